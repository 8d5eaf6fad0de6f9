//! Which request is submitted next, and when.
//!
//! What is deliberately not here: I/O, a clock, and the worker, which knows only the
//! [`Scheduler`](contract::Scheduler) port.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod pass_through;

pub use pass_through::PassThrough;
