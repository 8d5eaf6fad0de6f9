//! Wire layouts: the bytes of each protocol's messages as structs, with their sizes and offsets
//! asserted, and open enums for the values that a peer may set.
//!
//! What is deliberately not here: what a message means, which values are good, and in which order
//! messages may come. That is `proto`'s.
#![no_std]
#![forbid(unsafe_code)]

pub mod nvme;
pub mod nvme_tcp;
pub mod reflex_v1;
pub mod reflex_v2;
