//! Tests of NVMe/TCP over TLS with the real program: hosts that are admitted by their keys, and the
//! answers to the others.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use crate::support::{Launch, Operator, Server, ServerFolder, write_with};

const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:tests";
const OTHER_SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:others";
const FRIEND: &str = "nqn.2026-11.io.nearflash:friend";
const OTHER: &str = "nqn.2026-11.io.nearflash:other";

/// Keys of hosts, for tests only: they are published here. The first is of SHA-256, the second of
/// SHA-384, the third is kept as it is configured.
const KEYS: [&str; 3] = [
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
    "NVMeTLSkey-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:",
];

/// Returns whether the handshakes of these tests can be done here, and says so if not.
fn has_openssl() -> bool {
    let found = ["/lib", "/usr/lib", "/usr/lib64"].iter().any(|folder| {
        let has = |folder: &std::path::Path| folder.join("libssl.so.3").exists();
        let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
        has(folder.as_ref()) || below.map(|entry| entry.path()).any(|path| has(&path))
    });
    if !found {
        println!("SKIPPED: there is no libssl.so.3");
    }
    found
}

/// Returns a configuration with two subsystems and two hosts that have keys. The listener's URL
/// ends with `tls`.
fn config(tls: &str) -> String {
    format!(
        "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0{tls}\"\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n[[subsystem]]\nnqn = \"{OTHER_SUBSYSTEM}\"\n\
         [[host]]\nnqn = \"{FRIEND}\"\ntls_key = \"{}\"\n\
         [[host]]\nnqn = \"{OTHER}\"\ntls_key = \"{}\"\n",
        KEYS[0], KEYS[1]
    )
}

fn url(server: &Server, host: &str, more: &str) -> String {
    format!("nvme-tcp://{}/{SUBSYSTEM}?host={host}{more}", server.address())
}

fn bench(url: &str, key: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["bench", url, "--verify", "--read-percent", "50", "--connections", "2"]);
    command.args(["--queue-depth", "8", "--warmup", "0.1", "--seconds", "0.3", "--json"]);
    command.env_remove("NEARFLASH_NVME_KEY").env_remove("NEARFLASH_NVME_TLS_KEY");
    command.envs(key.map(|key| ("NEARFLASH_NVME_TLS_KEY", key)));
    command.stdin(Stdio::null()).output().expect("the program starts")
}

fn admitted(url: &str, key: Option<&str>) {
    let output = bench(url, key);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{url}: {said}{}", complaint(&output));
    let result: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()), "{url}");
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a `bench` that must fail, and asserts that it says all of these words.
fn refused(url: &str, key: Option<&str>, words: &[&str]) {
    let output = bench(url, key);
    let said = complaint(&output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{url}: {output:?}");
    words.iter().for_each(|word| assert!(said.contains(word), "{url}: {word:?} in {said}"));
    assert!(!said.contains("VRLb"), "a key is told: {said}");
}

#[test]
fn hosts_read_and_write_over_tls_with_keys_of_every_kind() {
    if !has_openssl() {
        return;
    }
    let text = config("?tls=required").replace(KEYS[0], KEYS[2]);
    let server = Launch::config(&text).start();
    admitted(&url(&server, FRIEND, "&tls=required"), Some(KEYS[2]));
    admitted(&url(&server, OTHER, "&digests=both&in_capsule=false"), Some(KEYS[1]));
}

#[test]
fn whoever_does_not_get_in_is_told_why_on_both_sides() {
    if !has_openssl() {
        return;
    }
    let server = Launch::config(&config("?tls=required")).log("info").start();
    let friend = url(&server, FRIEND, "");
    // Without TLS, where TLS is required.
    refused(&friend, None, &["wants TLS", "--tls-key-file"]);
    server.await_log("does not speak TLS");
    refused(&format!("{friend}&tls=required"), None, &["NEARFLASH_NVME_TLS_KEY"]);
    // A wrong key with an identity of version 1 is an identity that nobody has.
    refused(&friend, Some(KEYS[2]), &["unknown pre-shared key", "[[host]]"]);
    server.await_log("no pre-shared key that is known here");
    // A host that has no key, and a host with the key of another one.
    refused(&url(&server, "nqn.2026-11.x:nobody", ""), Some(KEYS[0]), &["unknown pre-shared key"]);
    refused(&url(&server, OTHER, ""), Some(KEYS[0]), &["unknown pre-shared key"]);
    admitted(&friend, Some(KEYS[0]));
    // TLS where there is none.
    let plain = Launch::config(&config("")).start();
    refused(&url(&plain, FRIEND, ""), Some(KEYS[0]), &["does not speak TLS", "tls=required"]);
    admitted(&url(&plain, FRIEND, ""), None);
}

#[test]
fn a_listener_may_let_hosts_choose() {
    if !has_openssl() {
        return;
    }
    let server = Launch::config(&config("?tls=allowed")).start();
    admitted(&url(&server, FRIEND, ""), Some(KEYS[0]));
    admitted(&url(&server, FRIEND, ""), None);
}

#[test]
fn a_key_is_replaced_while_the_server_runs() {
    if !has_openssl() {
        return;
    }
    let place = ServerFolder::new();
    let text = config("?tls=required");
    let server = Launch::config(&text).with("--admin").with(&place.admin()).start();
    let file = place.path("next");
    write_with(&file, KEYS[2], 0o600);
    let next = file.display().to_string();
    let friend = url(&server, FRIEND, "");
    let shows = |what: &str| place.told(&["host", "show", FRIEND]).contains(what);
    refused(&friend, Some(KEYS[2]), &["unknown pre-shared key"]);
    place.told(&["host", "key", FRIEND, &next, "--tls", "--overlap"]);
    assert!(shows("known, and the one before it"));
    admitted(&friend, Some(KEYS[0]));
    admitted(&friend, Some(KEYS[2]));
    place.told(&["host", "key", FRIEND, "--tls", "--end-overlap"]);
    refused(&friend, Some(KEYS[0]), &["unknown pre-shared key"]);
    admitted(&friend, Some(KEYS[2]));
    place.told(&["host", "key", FRIEND, "--tls", "--none"]);
    refused(&friend, Some(KEYS[2]), &["unknown pre-shared key"]);
    let said = place.refused(&["host", "key", OTHER, &next, "--tls", "--controller"]);
    assert!(said.contains("--controller"), "{said}");
    write_with(&file, "DHHC-1:00:AAAA:", 0o600);
    let said = place.refused(&["host", "key", OTHER, &next, "--tls"]);
    assert!(said.contains("NVMeTLSkey-1") && !said.contains("AAAA"), "{said}");
    assert!(!server.log().contains("NVMeTLSkey"), "{}", server.log());
}

#[test]
fn a_host_that_says_nothing_is_let_go_and_nonsense_is_refused() {
    if !has_openssl() {
        return;
    }
    let server = Launch::config(&config("?tls=required")).log("info").start();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut stream, &[0; 128]).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert_eq!(said, [21, 3, 3, 0, 2, 2, 10], "the alert that TLS is wanted");
    admitted(&url(&server, FRIEND, ""), Some(KEYS[0]));
}

#[test]
fn a_listener_takes_no_certificate() {
    let url = "nvme-tcp://127.0.0.1:0?tls=required&certificate=a&key=b";
    let output = Command::new(env!("CARGO_BIN_EXE_nearflash"))
        .args(["serve", "--device", "mem:16MiB", "--listen", url])
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    assert!(complaint(&output).contains("tls_key"), "{}", complaint(&output));
}
