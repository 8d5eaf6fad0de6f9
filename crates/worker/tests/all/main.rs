//! The tests of a worker over transports and devices that are made up.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod awaited;
mod causes;
mod drained;
mod ends;
mod fenced;
mod gauges;
mod moving;
mod other_process;
mod parts;
mod places;
mod quotas;
mod rig;
mod shares;
