//! Protocols without I/O: both ends of each, as sessions that turn bytes into the words of
//! `contract` and back.
//!
//! What is deliberately not here: sockets, clocks, access rules, tenants. A session knows what was
//! said on one connection and nothing else.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod carry;
mod crc32c;
pub mod nvme;
pub mod nvme_tcp;
pub mod reflex;
pub mod takeover;
