//! The tests of the client from outside.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod allocations;
mod direct;
mod generator;
mod initiator;
mod reissue;
mod support;
