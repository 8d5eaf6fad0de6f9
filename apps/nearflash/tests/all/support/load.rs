//! Loads of `nearflash bench` that run beside a test.

use std::path::Path;
use std::process::{Child, Stdio};

use control::admin::{AdminAddress, Client};
use serde_json::Value;

use super::{PATIENCE, nearflash, wait_until};

/// Seconds of a load that is to last longer than any test.
const FOR_EVER: &str = "600";

/// Waits until a connection of the server with this admin socket has carried more than 100
/// messages.
pub(crate) fn await_load(socket: &Path) {
    let mut client = Client::new(AdminAddress::Unix(socket.to_owned())).unwrap();
    wait_until("the load", PATIENCE, || {
        client.connections().is_ok_and(|all| all.connections.iter().any(|one| one.messages > 100))
    });
}

/// Starts a load that verifies its reads, with as many writes, and runs until its [`result`] is
/// taken.
pub(crate) fn verifying(url: &str, words: &str) -> Child {
    loading(url, &format!("--verify --read-percent 50 {words}"))
}

/// Starts a load that runs until its [`result`] is taken.
pub(crate) fn loading(url: &str, words: &str) -> Child {
    let mut bench = nearflash(&["bench", url, "--json", "--warmup", "0", "--seconds", FOR_EVER]);
    bench.args(words.split_whitespace());
    bench.env("NEARFLASH_BENCH_STOP", "").stdin(Stdio::piped());
    bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Runs a load for ever longer times, in seconds, until it says that the time was long enough to
/// have what the test looks at. On a busy machine a short one may have no request at all. Returns
/// its last results.
pub(crate) fn long_enough<R>(mut load: impl FnMut(&str) -> (R, bool)) -> R {
    for seconds in ["0.5", "3"] {
        if let (result, true) = load(seconds) {
            return result;
        }
    }
    load("10").0
}

/// Ends a load, which must succeed, and returns its results.
pub(crate) fn result(bench: Child) -> Value {
    // This closes its standard input, and so ends it.
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).expect("it is JSON")
}

/// Ends a load, asserts that it had no error, and returns its results.
pub(crate) fn faultless(bench: Child) -> Value {
    let result = result(bench);
    assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
    result
}
