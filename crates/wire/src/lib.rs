//! Wire layouts: the bytes of each protocol's messages as structs, with asserted sizes and offsets,
//! and open enums for the values that a peer may set; and what superblocks on media have in common.
//!
//! This crate deliberately leaves out the meaning of a message, the validity of values and the
//! order of messages. Crate `proto` has these.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;

pub mod fuse;
pub mod nbd;
pub mod nvme;
pub mod nvme_tcp;
pub mod packets;
pub mod reflex_v1;
pub mod reflex_v2;
pub mod superblock;
pub mod ublk;
