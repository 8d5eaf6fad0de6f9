//! Tests of `nearflash bench nvme-tcp://…`.

use std::process::{Command, Output, Stdio};

use crate::support::{
    self, Launch, Server, free_port, long_enough, parsed, refusal, survive_a_kill, write_with,
};
use serde_json::Value;

const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:tests";
const FRIEND: &str = "nqn.2026-11.io.nearflash:friend";

/// The key of a host, for tests only: it is published here.
const KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";
const CONTROLLER_KEY: &str = "DHHC-1:00:TU5PUFFSU1RVVldYWVpbXF1eX2BhYmNkZWZnaGlqa2xTPNDK:";

fn bench(words: &str, keys: &[(&str, &str)]) -> Output {
    bench_for("0.5", words, keys)
}

fn bench_for(seconds: &str, words: &str, keys: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.env_remove("NEARFLASH_NVME_KEY").env_remove("NEARFLASH_NVME_CONTROLLER_KEY");
    command.envs(keys.iter().copied()).arg("bench").args(words.split_whitespace());
    command.args(["--json", "--warmup", "0.1", "--seconds", seconds]).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn json(words: &str, keys: &[(&str, &str)]) -> Value {
    parsed(words, bench(words, keys))
}

/// Runs a `bench` that must fail, and returns its error message.
fn refused(words: &str, keys: &[(&str, &str)]) -> String {
    refusal(words, bench(words, keys))
}

/// Starts a server with a subsystem of two namespaces, of which the second is read-only. `more` is
/// added to the configuration of the subsystem.
fn server(more: &str) -> Server {
    let text = format!(
        "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n[[namespace]]\ndevice = \"mem\"\nsize = \"8MiB\"\n\
         [[namespace]]\ndevice = \"mem\"\noffset = \"8MiB\"\nread_only = true\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n{more}"
    );
    Launch::config(&text).start()
}

fn url(server: &Server) -> String {
    format!("nvme-tcp://{}/{SUBSYSTEM}", server.address())
}

#[test]
fn verified_traffic_of_every_shape_finds_nothing_wrong() {
    let server = server("");
    for (query, shape) in [
        ("", "--queue-depth 8 --connections 3"),
        ("?digests=both", "--block-size 512 --queue-depth 16"),
        ("?digests=data&in_capsule=false", "--block-size 1536 --queue-depth 4"),
        ("?digests=header", "--block-size 1MiB --queue-depth 2 --fua"),
        ("?nsid=1&in_capsule=false", "--threads 2 --connections 4 --pattern sequential"),
        ("", "--rate 2000 --arrival constant --queue-depth 8 --probe"),
    ] {
        let words = format!("{}{query} --verify --read-percent 50 {shape}", url(&server));
        support::verify(&words, |seconds| parsed(&words, bench_for(seconds, &words, &[])));
    }
}

#[test]
fn what_keeps_a_host_out_is_said_with_a_way_in() {
    let server = server(&format!("hosts = [\"{FRIEND}\"]\n"));
    let friend = format!("{}?host={FRIEND}", url(&server));
    let said = refused(&url(&server), &[]);
    assert!(said.contains("does not let this host in") && said.contains("`hosts`"), "{said}");
    assert_eq!(json(&friend, &[])["errors"], 0);
    let said = refused(&format!("{friend}&nsid=7"), &[]);
    assert!(said.contains("there are: 1 2") && said.contains("?nsid=N"), "{said}");
    let other = format!("nvme-tcp://{}/nqn.2026-11.io.nearflash:x", server.address());
    let said = refused(&other, &[]);
    assert!(said.contains("no such subsystem") && said.contains("nvme discover"), "{said}");
    let said = refused(&format!("{friend} --queue-depth 500"), &[]);
    assert!(said.contains("at most --queue-depth 127"), "{said}");
    let said = refused(&format!("{friend} --connections 500"), &[]);
    assert!(said.contains("at most 128 --connections"), "{said}");
    for (words, way) in [("--namespace 2", "?nsid=N"), ("--checksums", "?digests=data")] {
        let said = refused(&format!("{friend} {words}"), &[]);
        assert!(said.contains(way), "{said}");
    }
    let reflex = Launch::device("mem:1MiB").start();
    let said = refused(&format!("nvme-tcp://{}/{SUBSYSTEM}", reflex.address()), &[]);
    assert!(said.contains("is it an NVMe/TCP server?"), "{said}");
    let said = refused(&format!("reflex://{} --key-file x", reflex.address()), &[]);
    assert!(said.contains("nvme-tcp://"), "{said}");
}

#[test]
fn writes_to_what_is_read_only_are_errors() {
    let server = server("");
    let words = format!("{}?nsid=2 --read-percent 0", url(&server));
    let (result, code) = long_enough(|seconds| {
        let output = bench_for(seconds, &words, &[]);
        let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let has_any = result["errors"].as_u64() > Some(0);
        ((result, output.status.code()), has_any)
    });
    assert_eq!(code, Some(1));
    assert!(result["errors"].as_u64().unwrap() > 0, "{result}");
    assert_eq!(json(&format!("{}?nsid=2", url(&server)), &[])["errors"], 0, "reads are not");
}

#[test]
fn keys_come_from_files_or_the_environment() {
    let server = server(&format!(
        "authenticate = true\n[[host]]\nnqn = \"{FRIEND}\"\nkey = \"{KEY}\"\n\
         controller_key = \"{CONTROLLER_KEY}\"\n"
    ));
    let friend = format!("{}?host={FRIEND}", url(&server));
    let said = refused(&friend, &[]);
    assert!(said.contains("--key-file") && said.contains("NEARFLASH_NVME_KEY"), "{said}");
    let said = refused(&friend, &[("NEARFLASH_NVME_KEY", CONTROLLER_KEY)]);
    assert!(said.contains("does not accept the key"), "{said}");
    assert!(!said.contains("DHHC"), "a key is told");
    let said = refused(&friend, &[("NEARFLASH_NVME_KEY", "DHHC-1:00:AAAA:")]);
    assert!(said.contains("NEARFLASH_NVME_KEY") && !said.contains("AAAA"), "{said}");

    let directory = tempfile::tempdir().expect("there is room");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        write_with(&path, &format!("{text}\n"), 0o600);
        path.display().to_string()
    };
    let (own, wrong) = (file("own", KEY), file("wrong", KEY));
    let controller = file("controller", CONTROLLER_KEY);
    let both = format!("{friend} --connections 2 --key-file {own} --controller-key-file");
    assert_eq!(json(&format!("{both} {controller}"), &[])["errors"], 0);
    let said = refused(&format!("{both} {wrong}"), &[]);
    assert!(said.contains("the server did not prove"), "{said}");
    write_with(&directory.path().join("wrong"), KEY, 0o644);
    let said = refused(&format!("{both} {wrong}"), &[]);
    assert!(said.contains("others may read"), "{said}");
    let environment = [("NEARFLASH_NVME_KEY", KEY)];
    assert_eq!(json(&friend, &environment)["errors"], 0);
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let base = format!("nvme-tcp://{}", free_port());
    let text = format!(
        "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n\
         [[listen]]\nurl = \"{base}\"\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n"
    );
    survive_a_kill(&text, &format!("{base}/{SUBSYSTEM}"));
}

#[test]
fn a_machine_that_cannot_connect_is_told_what_it_lacks() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["connect", &format!("nvme-tcp://127.0.0.1:1/{SUBSYSTEM}"), "--run"]);
    let output = command.env("PATH", "/nowhere").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected =
        if rustix::process::geteuid().is_root() { "install nvme-cli" } else { "only root" };
    assert!(said.contains(expected), "{said}");
}
