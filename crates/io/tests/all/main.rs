//! The tests of sockets and devices over the real kernel.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

#[macro_use]
mod rig;

mod descriptors;
mod devices;
mod direct;
mod ether;
mod packets;
mod sockets;
mod tls;
