//! The workers of a running server: their threads, the devices below them and the sessions above.
//!
//! Here the worker's ports are bound, so that this crate is the only one that compiles a server's
//! worker. [`Plan::start`] starts the threads; [`Orders`] tells them what to do.
#![forbid(unsafe_code)]

mod accounts;
mod complaints;
mod duty;
mod files;
mod interface;
mod medium;
mod orders;
mod places;
mod plan;
mod sessions;
mod volumes;

pub use accounts::Accounts;
pub use files::Files;
pub use interface::{Chosen, SocketBackend};
pub use medium::{Medium, close, fill_commit, read_files};
pub use orders::{DiskOrder, Inbox, Order, Orders};
pub use places::{Disk, Places};
pub use plan::Plan;
pub use sessions::AnySession;
pub use volumes::*;
