//! The tests of the server as a library.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod compatible;
