//! NVM Express: the structures of the NVM Express Base Specification 2.0 (cited as "Base"), the NVM
//! Command Set Specification 1.0 ("NVM") and the parts of the Base Specification that were NVMe
//! over Fabrics.
//!
//! All structures are little-endian. In each structure, the number before a field is its byte
//! offset, which is asserted.
//!
//! This module deliberately leaves out the effect of commands, the validity of values and the
//! transport of capsules (see `nvme_tcp`).

mod auth;
mod command;
mod discovery;
mod fabrics;
mod feature;
mod identify;
mod log;
mod property;
mod reservation;
mod status;

pub use auth::{
    AUTH_LIST_MAX, AUTH_PROTOCOL, AuthChallenge, AuthDescriptor, AuthFailure, AuthFailureMessage,
    AuthHead, AuthKind, AuthMessage, AuthNegotiate, AuthReply, AuthSuccess1, AuthSuccess2,
};
pub use command::{
    AdminOpcode, BLOCK_FUA, CommandId, Completion, DISCARD_RANGES_MAX, DiscardRange,
    FABRICS_OPCODE, Fuse, NvmOpcode, SglDescriptor, SglKind, Submission, ZEROES_DEALLOCATE,
};
pub use discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, NQN_BYTES, SecureChannel, SubsystemKind,
    TransportKind,
};
pub use fabrics::{
    AuthCommand, CONNECT_CNTLID_DYNAMIC, CONNECT_DISABLE_FLOW_CONTROL, ConnectCommand, ConnectData,
    DISCOVERY_NQN, FabricsCommand, FabricsKind, PropertyCommand,
};
pub use feature::{Event, EventKind, Feature, FeatureSelect, Timestamp, notice};
pub use identify::{
    CommandSetIdentifier, DescriptorHead, DescriptorKind, IdentifyCns, IdentifyController,
    IdentifyNamespace, IdentifyNamespaceCommon, IdentifyNvmController, IdentifyNvmNamespace,
    LbaFormat, PowerState,
};
pub use log::{
    AnaGroup, AnaHeader, AnaState, EffectsLog, ErrorEntry, FirmwareLog, LogPage, SmartLog, effect,
};
pub use property::{Capabilities, Configuration, ControllerState, Property, VERSION_2_0};
pub use reservation::{
    RegistrantExtended, ReservationAcquire, ReservationHead, ReservationKind, ReservationNotice,
    ReservationNoticeKind, ReservationRegister, ReservationRelease,
};
pub use status::{Status, StatusType};
