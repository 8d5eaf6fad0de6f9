//! The tests of the laboratory from outside.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod calibrate;
mod figures;
mod recalibrate;
