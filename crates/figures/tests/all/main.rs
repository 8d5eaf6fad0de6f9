//! The tests of `nearflash-figures` through its public API.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod calibrate;
mod figures;
mod recalibrate;
