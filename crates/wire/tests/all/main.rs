//! The tests of the wire formats against their documents.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod documents;
