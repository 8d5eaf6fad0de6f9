//! The workers of a running server: their threads, the devices below them and the sessions above.
//!
//! Here the worker's ports are bound, so that this crate is the only one that compiles a server's
//! worker. [`WorkerSetup::start`] starts the threads; [`WorkerOrders`] tells them what to do.
#![forbid(unsafe_code)]

mod accounts;
mod complaints;
mod files;
mod interface;
mod medium;
mod orders;
mod places;
mod plan;
mod sessions;
mod volumes;
mod worker_orders;

pub use accounts::ThreadAccounts;
pub use files::DeviceFiles;
pub use interface::{KernelInterface, SocketBackend};
pub use medium::{OfflineVolume, close, fill_commit, read_files};
pub use orders::{DeviceOrder, OrderInbox, WorkerOrder, WorkerOrders};
pub use places::{DeviceTable, OpenDevice};
pub use plan::WorkerSetup;
pub use sessions::AnySession;
pub use volumes::*;
