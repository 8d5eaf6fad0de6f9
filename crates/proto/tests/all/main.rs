//! The tests of the protocols, both ends. The modules named `fuzz_…` are fuzz tests: they run for
//! `FUZZ_SECONDS` seconds each where that is set.
//!
//! All tests are one program, because each program links the whole crate anew. Each module is a
//! subject.

mod fuzz_auth;
mod fuzz_fuse;
mod fuzz_nbd;
mod fuzz_nvme;
mod fuzz_nvme_psk;
mod fuzz_nvme_tcp;
mod fuzz_reflex;
mod fuzz_takeover;
mod nbd_client;
mod nbd_pair;
mod nbd_prelude;
mod nbd_rig;
mod nbd_server;
mod nbd_status;
mod nvme_auth;
mod nvme_busy;
mod nvme_controller;
mod nvme_documents;
mod nvme_fences;
mod nvme_hand_over;
mod nvme_host;
mod nvme_isolation;
mod nvme_moves;
mod nvme_reservations;
mod nvme_tcp_hostile;
mod nvme_tcp_pair;
mod nvme_tls;
mod reflex_documents;
mod reflex_example;
mod reflex_streams;
mod reflex_v1;
mod reflex_v2;
mod support;
