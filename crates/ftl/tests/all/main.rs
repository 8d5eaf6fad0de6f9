//! Tests of the crate from outside.

mod memory;
mod opening;
