//! The library for C and C++: what `include/nearflash.h` declares, over [`nearflash::Queue`] and
//! [`nearflash::blocking::Client`].
//!
//! Each function checks its handle and its pointers, calls the library, and returns minus an error
//! number on failure; the text is kept for `nf_error`. No panic leaves a function: the handle in
//! which it happened is dead. `docs/reference/c-api.md` is about the interface and
//! `docs/adr/0030-c-library.md` about its form.
//!
//! This crate deliberately leaves out everything that a Rust program could not do as well.

pub mod abi;
pub mod client;
pub mod failure;
mod guard;
pub mod queue;
