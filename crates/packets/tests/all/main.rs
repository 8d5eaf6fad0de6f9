//! The tests of the endpoint from outside. The modules named `fuzz_…` are fuzz tests: they run for
//! `FUZZ_SECONDS` seconds each where that is set.

mod allocations;
// The trials inside the crate draw from the same generator.
#[allow(dead_code, reason = "the tests from outside need a part")]
#[path = "../../src/trial/key_randomness.rs"]
mod chance;
mod fuzz_packets;
mod fuzz_peer_addresses;
mod liars;
mod pair;
// The protocols' fuzz tests count their rounds in the same way.
#[allow(dead_code, reason = "replays need no special treatment here")]
#[path = "../../../proto/tests/all/support/rounds.rs"]
mod rounds;

mod transport;
