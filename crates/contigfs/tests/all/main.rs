//! The tests of the file system from outside: a model of POSIX beside it, crashes, limits. The
//! module named `fuzz_…` is a fuzz test: it runs for `FUZZ_SECONDS` seconds where that is set.

mod crash;
mod disk;
mod fuzz_media;
mod limits;
mod model;
mod places;
mod random;
// The protocols' fuzz tests count their rounds in the same way.
#[allow(dead_code, reason = "replays need no special treatment here")]
#[path = "../../../proto/tests/all/support/rounds.rs"]
mod rounds;
mod world;
