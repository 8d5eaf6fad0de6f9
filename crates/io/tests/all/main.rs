//! The tests of sockets and devices over the real kernel.
//!
//! All tests are one program, because each program links the whole crate anew. Each module is a
//! subject.

#[macro_use]
mod rig;

mod descriptors;
mod devices;
mod direct;
mod ether;
mod ether_lanes;
mod packets;
mod sockets;
mod tls;
