//! A running server: its configuration, its live changes and where they are kept, the take-over by
//! a new process, and the recalibration of devices under load.
//!
//! [`serve::run`] is the entry point; a test or another program can embed it.
#![forbid(unsafe_code)]

pub mod admin;
mod audit;
pub mod config;
pub mod credentials;
pub mod fabric;
pub mod host_identity;
mod host_keys;
pub mod inspect;
pub mod interface;
pub mod listen;
pub mod live;
pub mod log;
mod machine;
pub mod reach;
mod recalibrate;
pub mod serve;
mod storage_epoch;
mod tenancy;
pub mod translation;
pub mod upgrade;
mod wait;
mod watchdog;
mod worker_count;
