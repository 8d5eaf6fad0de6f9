//! Tests of `nearflash bench nbd://…`.

use std::process::{Command, Output, Stdio};

use crate::support::{Launch, Server, await_load, free_port, loading, long_enough, open_folder};
use serde_json::Value;

fn bench(words: &str, seconds: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.arg("bench").args(words.split_whitespace());
    command.args(["--json", "--warmup", "0.1", "--seconds", seconds]).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn json(words: &str, seconds: &str) -> Value {
    let output = bench(words, seconds);
    let said = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success(), "{words}: {said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).expect("it is JSON")
}

/// Returns the error message of a `bench` that must fail.
fn refused(words: &str) -> String {
    let output = bench(words, "0.5");
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {output:?}");
    String::from_utf8(output.stderr).expect("it is text")
}

/// Starts a server of two NBD exports, of which the second is read-only.
fn server(listen: &str) -> Server {
    let text = format!(
        "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n\
         [[namespace]]\nname = \"first\"\ndevice = \"mem\"\nsize = \"8MiB\"\n\
         [[namespace]]\nname = \"second\"\ndevice = \"mem\"\noffset = \"8MiB\"\nread_only = true\n\
         [[listen]]\nurl = \"{listen}\"\n"
    );
    Launch::config(&text).start()
}

fn verify(url: &str, shape: &str) {
    let result = long_enough(|seconds| {
        let result = json(&format!("{url} --verify --read-percent 50 {shape}"), seconds);
        assert_eq!(result["verify_failures"], 0, "{url} {shape}: {result}");
        assert_eq!(result["errors"], 0, "{url} {shape}: {result}");
        let is_whole = ["read", "write"].map(|side| result[side]["count"].as_u64() > Some(0));
        (result, is_whole == [true; 2])
    });
    for side in ["read", "write"] {
        assert!(result[side]["count"].as_u64().unwrap() > 0, "{url} {shape}: {result}");
    }
}

#[test]
fn verified_traffic_of_every_shape_finds_nothing_wrong() {
    let server = server("nbd://127.0.0.1:0");
    let url = format!("nbd://{}", server.address());
    for (export, shape) in [
        ("", "--queue-depth 8 --connections 3"),
        ("/first", "--block-size 512 --queue-depth 16"),
        ("/first", "--block-size 1MiB --queue-depth 2 --fua"),
        ("/first", "--threads 2 --connections 4 --pattern sequential"),
        ("", "--rate 2000 --arrival constant --queue-depth 8 --probe"),
    ] {
        verify(&format!("{url}{export}"), shape);
    }
}

#[test]
fn a_local_socket_is_measured_too() {
    let folder = open_folder();
    let path = folder.path().join("nbd.sock");
    let _server = server(&format!("nbd+unix:{}", path.display()));
    verify(&format!("nbd+unix:{}?export=first", path.display()), "--queue-depth 4");
}

#[test]
fn what_cannot_be_is_said_with_a_way_out() {
    let server = server("nbd://127.0.0.1:0");
    let url = format!("nbd://{}", server.address());
    let said = refused(&format!("{url}/none"));
    assert!(said.contains("no such export") && said.contains("nbdinfo --list"), "{said}");
    let said = refused(&format!("{url}/second --read-percent 50"));
    assert!(said.contains("read-only"), "{said}");
    assert_eq!(json(&format!("{url}/second"), "0.5")["errors"], 0);
    for (words, way) in [("--namespace 2", "nbd://HOST:PORT/NAMESPACE"), ("--tenant x", "listener")]
    {
        let said = refused(&format!("{url} {words}"));
        assert!(said.contains(way), "{said}");
    }
    let said = refused(&format!("{url} --key-file x"));
    assert!(said.contains("nvme-tcp://"), "{said}");
    let reflex = Launch::device("mem:1MiB").start();
    let said = refused(&format!("nvme-tcp://{}/x", reflex.address()));
    assert!(said.contains("name is missing"), "{said}");
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let folder = open_folder();
    let socket = folder.path().join("admin.sock");
    let address = free_port();
    let text = format!(
        "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n\
         [[listen]]\nurl = \"nbd://{address}\"\n"
    );
    let launch = || Launch::config(&text).with("--admin").with(socket.to_str().unwrap());
    let mut first = launch().start();
    let load = loading(&format!("nbd://{address}"), "--queue-depth 4 --read-percent 50");
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
