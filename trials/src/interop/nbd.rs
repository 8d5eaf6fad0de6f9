//! Other people's NBD clients: libnbd, QEMU, nbdkit as a relay, fio, the kernel's client and a
//! machine that boots from an export, against a server that serves two namespaces over TCP and over
//! a Unix socket.

pub(super) mod boot;
mod exports;
pub(super) mod kernel;
pub(super) mod tools;
