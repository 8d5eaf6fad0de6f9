//! The tests of the simulated world from outside.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod checkers;
