//! The admin API: REST and JSON over HTTP/1.1, for operators and their programs.
//!
//! [`start`] runs the API on a thread of its own, so that no request waits for a worker or delays
//! one. Requests read and change the registry behind [`Tenants`](crate::Tenants), for which workers
//! never wait. [`Client`] is the client's side, which the command line uses. The bodies of both
//! sides are in `model` and its neighbours, and their paths in `resource`. The operations are the
//! table in `operations`, from which the router and the document at `/openapi.json` come.
//!
//! This module deliberately leaves out persistence, the files of certificates and tokens, and the
//! listening socket with its file and permissions, which the program makes.

mod address;
mod answers;
mod audit;
mod blocking;
mod client;
mod connection_permit;
mod dashboard;
mod devices;
mod drain;
mod gate;
mod input;
mod inventory;
mod listeners;
mod model;
mod openapi;
mod operation;
mod operations;
mod pages;
mod ports;
mod problem;
mod resource;
mod routes;
mod scrape;
mod secrecy;
mod server;
mod settings;
mod state;
mod terms;
mod time_limit;
mod tls;
mod tokens;
mod violations;
mod warning;
mod watch;
mod why;
mod workers;

pub use axum::Router;

pub use address::{AddressError, AdminAddress};
pub use audit::{Caller, Journal, Outcome, Record};
pub use client::{Client, ClientError};
pub use dashboard::{History, Model, Rate, Reads, Second, StandingList, Standings, TenantStanding};
pub use devices::{
    Found, FoundRate, Phase, Recalibration, Recalibrator, SetRecalibration, StartRecalibration,
    When,
};
pub use drain::{Drain, DrainServer, DrainState};
pub use inventory::{
    AddDevice, AddListener, Ana, AnaState, Contained, Controller, DrainListener, Exported,
    GroupName, HashName, HostPatch, HostStatus, Hosts, KeyState, ListenerState, ListenerStatus,
    Listeners, NamespacePatch, NamespaceStatus, Namespaces, NewNamespace, NewSubsystem,
    OpenedDevice, RemoveListener, RemoveNamespace, RemovedListener, Secret, SetAna, SubsystemPatch,
    SubsystemStatus, Subsystems,
};
pub use listeners::ListenerPatch;
pub use model::{
    Admitted, ChangeTenant, ChangeTenants, ChangedTenants, Check, Class, Correction, DeviceStatus,
    Devices, Drift, DriftState, NewTenant, Origin, RemoveNamed, SetNamed, Share, Slo, Strictest,
    TenantPatch, TenantStatus, Tenants, Verdict, Worker, Workers,
};
pub use openapi::document;
pub use operations::{GIVE_BACK_MAX, in_batch};
pub use ports::{Inventory, ServerParts};
pub use problem::{Code, Problem, Shortage};
pub use resource::{Document, Request};
pub use routes::router;
pub use scrape::scrape_router;
pub use server::{AdminListener, EndpointHandle, start, start_audited};
pub use settings::{Automatic, DevicePatch, DeviceSettings, Promises};
pub use state::{ImportState, Imported, ServerState};
pub use terms::{parse_iops, parse_latency, parse_percentile};
pub use tls::{ClientCredentials, Credentials};
pub use tokens::Tokens;
pub use violations::{Violation, Violations};
pub use watch::{FlowOfDevice, FlowOfNamespace, FlowOfWorker, Flows, StageTails, Stages};
pub use why::{Cause, Diagnosis, Evidence, StageTime};
pub use workers::{Connection, Connections, EndConnection, HasMoved, MoveTo, SetWorker};

pub use crate::commands::WorkerState;
pub use crate::compliance::Compliance;
pub use crate::flows::TokenFlow as TokenRates;
pub use crate::history::SecondOfDevice;
pub use crate::info::{State, Ways};
pub use crate::measured::Measured;
pub use crate::standing::Standing;
