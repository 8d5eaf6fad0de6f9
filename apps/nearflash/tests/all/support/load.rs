//! Loads of `nearflash bench` that run beside a test.

use std::path::Path;
use std::process::{Child, Output, Stdio};

use control::admin::{AdminAddress, Client};
use serde_json::Value;

use super::{Launch, PATIENCE, nearflash, open_folder, wait_until};

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
    parsed("the load", bench.wait_with_output().unwrap())
}

/// Returns the output in JSON of a `bench` of these words, which must have succeeded.
pub(crate) fn parsed(words: &str, output: Output) -> Value {
    let said = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success(), "{words}: {said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).expect("it is JSON")
}

/// Returns the error message of a `bench` of these words, which must have failed.
pub(crate) fn refusal(words: &str, output: Output) -> String {
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {output:?}");
    String::from_utf8(output.stderr).expect("it is text")
}

/// Runs a load for a time that is [`long_enough`] for reads and writes, and asserts that it had no
/// error and read what was written. `run` runs it for so many seconds.
pub(crate) fn verify(about: &str, run: impl Fn(&str) -> Value) {
    let result = long_enough(|seconds| {
        let result = run(seconds);
        assert_eq!(result["verify_failures"], 0, "{about}: {result}");
        assert_eq!(result["errors"], 0, "{about}: {result}");
        let is_whole = ["read", "write"].map(|side| result[side]["count"].as_u64() > Some(0));
        (result, is_whole == [true; 2])
    });
    for side in ["read", "write"] {
        assert!(result[side]["count"].as_u64().unwrap() > 0, "{about}: {result}");
    }
}

/// Kills a server with this configuration under a load at `url`, and starts it again. The load must
/// go on, and lose no more than what was in flight.
pub(crate) fn survive_a_kill(configuration: &str, url: &str) {
    let folder = open_folder();
    let socket = folder.path().join("admin.sock");
    let launch = || Launch::config(configuration).with("--admin").with(socket.to_str().unwrap());
    let mut first = launch().start();
    let load = loading(url, "--queue-depth 4 --read-percent 50");
    await_load(&socket);
    first.kill();
    let _second = launch().start();
    await_load(&socket);
    let output = load.wait_with_output().expect("it ends");
    let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let errors = result["errors"].as_u64().unwrap();
    assert!((1..=4).contains(&errors), "what was in flight is lost, and nothing else: {result}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("connecting again"), "{said}");
}

/// Ends a load, asserts that it had no error, and returns its results.
pub(crate) fn faultless(bench: Child) -> Value {
    let result = result(bench);
    assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
    result
}
