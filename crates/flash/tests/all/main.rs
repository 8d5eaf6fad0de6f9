//! The tests of the simulated flash from outside.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod figures;
