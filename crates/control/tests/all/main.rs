//! The tests of the control plane from outside.
//!
//! One program, because each one links the whole crate anew. Each module is a subject.

mod admin;
mod document;
mod openapi;
