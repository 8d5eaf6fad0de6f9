//! Other people's NBD clients: libnbd, QEMU, nbdkit as a relay, fio, the kernel's client and a
//! machine that boots from an export, against a server that serves two namespaces over TCP and over
//! a Unix socket, and over TLS; and other people's servers under our load.

pub(super) mod boot;
mod exports;
pub(super) mod kernel;
pub(super) mod machine;
pub(super) mod servers;
pub(super) mod tls;
pub(super) mod tools;
