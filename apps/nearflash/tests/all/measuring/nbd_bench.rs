//! Tests of `nearflash bench nbd://…`.

use std::process::{Command, Output, Stdio};

use crate::support::{
    self, Launch, Server, free_port, open_folder, parsed, refusal, survive_a_kill,
};
use serde_json::Value;

fn bench(words: &str, seconds: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.arg("bench").args(words.split_whitespace());
    command.args(["--json", "--warmup", "0.1", "--seconds", seconds]).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn json(words: &str, seconds: &str) -> Value {
    parsed(words, bench(words, seconds))
}

/// Returns the error message of a `bench` that must fail.
fn refused(words: &str) -> String {
    refusal(words, bench(words, "0.5"))
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
    let words = format!("{url} --verify --read-percent 50 {shape}");
    support::verify(&words, |seconds| json(&words, seconds));
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
    let url = format!("nbd://{}", free_port());
    let text =
        format!("[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n[[listen]]\nurl = \"{url}\"\n");
    survive_a_kill(&text, &url);
}
