//! Tests that other users cannot read the memory of a server or of a command.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use crate::support::{Launch, PATIENCE, Server, nearflash, wait_until};

const NOBODY: u32 = 65_534;

/// Returns `true` if this machine reports that a process dumped its core.
fn cores_are_dumped() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited && kill -ABRT $$"]).current_dir(folder.path());
    let ended = shell.stdin(Stdio::null()).status().unwrap();
    assert_eq!(ended.signal(), Some(6));
    ended.core_dumped()
}

/// Returns `true` if a server with these options leaves a core dump when it aborts.
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
        false => {
            let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern");
            println!("SKIPPED: this machine dumps no cores, of no process ({pattern:?})");
        }
    }
}

/// Checks that not even the server's own user can look into the server. The files of a process in
/// `/proc` belong to its user, or to root if the process may not be dumped (proc(5)). That also
/// holds on machines that dump no cores.
#[test]
fn not_even_its_own_user_looks_into_a_server() {
    let own = rustix::process::geteuid();
    let user = if own.is_root() { NOBODY } else { own.as_raw() };
    let start = |options: &[&str]| {
        let uid = user.to_string();
        let wrapper = match own.is_root() {
            true => &["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"][..],
            false => &[],
        };
        let launch = Launch::device("mem:1MiB").after(wrapper, "cd /");
        options.iter().fold(launch, |launch, word| launch.with(word)).start()
    };
    let reads = |server: &Server| {
        let file = format!("/proc/{}/environ", server.pid());
        let owner = std::fs::metadata(&file).unwrap().uid();
        let mut cat = Command::new("cat");
        if own.is_root() {
            cat.uid(user).gid(user);
        }
        let ran = cat.arg(&file).current_dir("/").output().unwrap();
        (owner, ran.status.success())
    };
    assert_eq!(reads(&start(&[])), (0, false), "its memory is root's");
    assert_eq!(reads(&start(&["--core-dumps"])), (user, true), "and would be its user's");
}

/// Checks that not even its own user can look into a running command, which holds tokens and keys
/// of hosts in its memory.
#[test]
fn nor_does_it_look_into_a_command() {
    let server = Launch::device("mem:1MiB").start();
    let url = format!("reflex://{}", server.address());
    let mut load = nearflash(&["bench", &url, "--seconds", "60", "--rate", "10"]);
    let own = rustix::process::geteuid();
    if own.is_root() {
        load.uid(NOBODY).gid(NOBODY);
    }
    let mut load = load.current_dir("/").stdout(Stdio::null()).spawn().unwrap();
    let file = format!("/proc/{}/environ", load.id());
    // It may not have come to that yet.
    wait_until("a memory that is root's", PATIENCE, || {
        has_begun(&load) && std::fs::metadata(&file).unwrap().uid() == 0
    });
    load.kill().unwrap();
    load.wait().unwrap();
}

/// Returns `true` once the child process runs its own program; before that, it is a copy of this
/// process.
fn has_begun(child: &Child) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
    text.contains("bench")
}
