//! A running server: what its configuration says, what changes while it serves, where that is kept, how a new
//! process takes over from it, and how devices are measured anew beside their tenants.
//!
//! [`serve::run`] is the whole of it; a test or another program can embed it.
#![forbid(unsafe_code)]

mod accounts;
pub mod admin;
mod audit;
mod complaints;
pub mod config;
pub mod credentials;
mod crew_size;
pub mod fabric;
pub mod host_identity;
pub mod interface;
pub mod listen;
pub mod live;
pub mod log;
mod machine;
mod orders;
mod places;
mod recalibrate;
pub mod serve;
mod sessions;
mod storage_epoch;
mod tenancy;
pub mod translation;
pub mod upgrade;
pub mod volumes;
mod wait;
