//! Protocols without I/O. Sessions for both ends of each protocol convert bytes to the types of
//! `contract` and back.
//!
//! Deliberately left out: sockets, clocks, access rules, tenants. A session knows one connection
//! and nothing else.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod carry;
pub mod fuse;
pub mod nbd;
pub mod nvme;
pub mod nvme_tcp;
pub mod reflex;
pub mod takeover;
