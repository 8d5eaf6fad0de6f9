//! Tests with other people's NBD clients: libnbd, QEMU, nbdkit as a relay, fio, the kernel's client
//! and a machine that boots from an export. They use a server of two namespaces over TCP, over a
//! Unix socket and over TLS. Other tests put our load on other people's servers.

pub(super) mod boot;
mod exports;
pub(super) mod kernel;
pub(super) mod machine;
pub(super) mod servers;
pub(super) mod tls;
pub(super) mod tools;
