//! Tests of the C interface: the header against the Rust signatures, and programs in C and C++
//! against a server.

mod header;
mod programs;
mod server;
