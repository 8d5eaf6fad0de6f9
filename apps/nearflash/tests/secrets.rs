//! What of a server's memory others can get at.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use support::{Launch, Server};

/// Whether the end of a process that dumps its memory is told of here.
fn cores_are_dumped() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited && kill -ABRT $$"]).current_dir(folder.path());
    let ended = shell.stdin(Stdio::null()).status().unwrap();
    assert_eq!(ended.signal(), Some(6));
    ended.core_dumped()
}

/// Whether a server that aborts leaves a core dump.
fn leaves_a_core(options: &[&str]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::device("mem:1MiB")
        .after(&[], &format!("ulimit -c unlimited && cd {}", folder.path().display()));
    let mut server: Server = options.iter().fold(launch, |launch, word| launch.with(word)).start();
    server.abort();
    let ended = server.wait();
    assert_eq!(ended.signal(), Some(6));
    ended.core_dumped()
}

#[test]
fn no_secret_is_in_a_core_dump() {
    assert!(!leaves_a_core(&[]));
    match cores_are_dumped() {
        true => assert!(leaves_a_core(&["--core-dumps"]), "who wants one gets one"),
        false => println!("SKIPPED: this machine dumps no cores, of no process"),
    }
}
