//! The nouns and the ports of nearflash.
//!
//! All other crates share these nouns. A [`Command`] is the operation of a request, a [`Status`]
//! its outcome, a [`Slot`] its identifier while it is in flight, and a [`Buf`] carries its data. At
//! the ports, the simulated world replaces the real one: [`Device`], [`Streams`] (with
//! [`Transport`] and [`Migrate`] for workers, [`Dial`] for initiators), [`Session`], [`Scheduler`]
//! and [`Mailbox`].
//!
//! This crate deliberately leaves out clocks, randomness, I/O and threads. Time is an [`Instant`]
//! argument. The crate is `no_std` (with `alloc`), so a stray system call cannot compile.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buf;
mod chores;
mod command;
mod counter;
mod device;
mod ether;
mod failures;
mod fence;
mod latency;
mod mailbox;
mod meters;
mod namespace;
mod namespace_view;
mod packet_meter;
mod parcel;
mod prelude;
mod promise;
mod psk;
mod scheduler;
mod server_endpoint;
mod server_event;
mod session;
mod slo;
mod slot;
mod stages;
mod status;
#[cfg(test)]
mod steps;
mod time;
mod tls_failure;
mod tls_use;
mod traces;
mod transport;
mod try_lock;
mod variants;
mod work_meter;
mod worker_meter;

pub use buf::{Buf, BufPool, SizeClass};
pub use chores::{ChoreCounters, ChoreRate, Chores};
pub use command::{
    BLOCK_BYTES, COMMIT_PAGE_BYTES, Command, IoKind, LARGE_REQUEST_BYTES, REQUEST_BYTES_MAX, Range,
};
pub use device::{Completion, Device, Geometry, Submission};
pub use ether::{EtherAddress, EtherCard, EtherError, EtherVia, Mac};
pub use failures::AuthFailures;
pub use fence::{Fence, FenceGroup, StartOutcome};
pub use latency::{
    COARSE_BUCKETS, CoarseBucket, LATENCY_BUCKETS, LatencyBucket, coarse_edge, fine_edge,
};
pub use mailbox::{
    ConnSummary, LimitedBy, Mailbox, Member, MoveRefusal, NoMailbox, Report, TenancyAnswer,
    TenancyOperation, TenancyRequest, WorkerMessage,
};
pub use meters::{Meters, TenantMeter, TenantReading};
pub use namespace::{Namespace, NamespaceId};
pub use namespace_view::{NamespaceRemovals, NamespaceView};
pub use packet_meter::{LaneReading, PacketReading};
pub use parcel::{
    MigratingConnection, MigratingGrant, MigratingNameClaim, MigratingPayload, MigratingRequest,
};
pub use prelude::{CompletedPrelude, Prelude, PreludeOutcome};
pub use promise::{Promise, Share};
pub use psk::{Psk, PskBook, PskHash, PskMark};
pub use scheduler::{Feedback, QueueFull, Scheduler, TenantId};
pub use server_endpoint::{PacketHosts, ServerEndpoint};
pub use server_event::{Credential, EndCause, ServerEvent};
pub use session::{
    ControlRequest, ExpectedPayload, Hello, HelloReply, MigratableSession, NamespaceInfo, Notice,
    ProtocolError, Reply, Request, RestorableSession, RevocablePermissions, Rights,
    SPEECH_BYTES_MAX, Session, SessionEvent, Tag, TenantRegistration, TenantReply,
    UnsolicitedOutput,
};
pub use slo::Slo;
pub use slot::{Slot, SlotTable};
pub use stages::{CoarseHistogram, Stage, StageHistograms, StageMeter};
pub use status::Status;
pub use time::Instant;
pub use tls_failure::TlsFailure;
pub use tls_use::{TlsOpen, TlsUse};
pub use traces::{Trace, TracePoint, Traces};
pub use transport::{
    CloseReason, ConnId, DIRECT_BYTES_MIN, Dial, Frame, FrameHead, HEAD_BYTES_MAX, ListenerId,
    Migrate, NetEvent, Peer, Streams, Ticket, Transport, TurnOutcome,
};
pub use try_lock::TryLock;
pub use work_meter::{NAMESPACES_MAX, NamespaceMeter, WorkMeter, WorkReading};
pub use worker_meter::{
    DEVICES_MAX, DeviceError, DeviceMeter, DeviceReading, Protocol, Tokens, TurnPart, WorkerGauges,
    WorkerMeter, WorkerReading,
};
