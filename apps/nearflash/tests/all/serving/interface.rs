//! Tests of the interfaces to the kernel. A filter refuses io_uring to the real program, as
//! container engines do, and the program serves nevertheless.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{Launch, Server, V1, V2, pattern, v1_head};
use contract::{Command, Range, Status};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The number of the system call `io_uring_setup(2)`, on every architecture with the common
/// numbers.
const IO_URING_SETUP: i64 = 425;

/// The error of a forbidden system call (`EPERM`).
const FORBIDDEN: u32 = 1;

/// Runs `f` on a thread that may not set up io_uring. Processes that `f` starts inherit the
/// restriction.
fn without_io_uring<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let filter = SeccompFilter::new(
        BTreeMap::from([(IO_URING_SETUP, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(FORBIDDEN),
        std::env::consts::ARCH.try_into().expect("a filter for this machine"),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    let thread = std::thread::spawn(move || {
        apply_filter(&program).expect("a thread may give up its rights");
        f()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn start_without_io_uring(spec: String, arguments: &'static [&'static str]) -> Server {
    without_io_uring(move || {
        arguments.iter().fold(Launch::device(&spec), |launch, word| launch.with(word)).start()
    })
}

/// Number of requests in flight at the same time.
const REQUESTS: u64 = 64;

/// Writes and reads through both protocol versions, pipelined and cut over many segments. Replies
/// may come in any order.
fn exercise(server: &Server) {
    let mut v1 = V1::connect(server.address());
    for n in 0..REQUESTS {
        v1.set(n + 1, n * 8, &pattern(n * 8, 8, 1));
    }
    let mut answered = BTreeSet::new();
    for _ in 0..REQUESTS {
        let reply = v1.receive(24);
        let handle = handle_of(&reply);
        assert_eq!(reply, v1_head(1, handle, (handle - 1) * 8, 0));
        assert!(answered.insert(handle), "{handle} was answered twice");
    }
    for n in 0..REQUESTS {
        v1.get(n + 1, n * 8, 8);
    }
    for _ in 0..REQUESTS {
        let reply = v1.receive(24);
        let handle = handle_of(&reply);
        let lba = (handle - 1) * 8;
        assert_eq!(reply, v1_head(0, handle, lba, 8));
        assert_eq!(v1.receive(4096), pattern(lba, 8, 1));
        assert!(answered.remove(&handle), "{handle} was answered twice");
    }
    assert!(answered.is_empty());
    let (range, data) = (Range::new(1000, 2048), pattern(1000, 2048, 2));
    let mut v2 = V2::connect(server.address());
    let write = Command::Write { range, fua: true };
    assert_eq!(v2.call(write, &data).0, Status::Ok);
    assert_eq!(v2.call(Command::Flush, &[]).0, Status::Ok);
    assert_eq!(v2.call(Command::Read(range), &[]), (Status::Ok, data));
}

fn handle_of(head: &[u8]) -> u64 {
    u64::from_le_bytes(head[4..12].try_into().expect("a head has a handle"))
}

fn stops_in_order(mut server: Server) {
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

#[test]
fn where_io_uring_is_refused_epoll_serves_and_says_what_is_lost() {
    let server = start_without_io_uring("mem:8MiB".to_owned(), &["--workers", "2"]);
    exercise(&server);
    server.await_log("io_uring is forbidden here");
    let log = server.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("warning")).collect();
    assert_eq!(warnings.len(), 1, "one line, whatever the number of workers: {log}");
    for words in ["io_uring is forbidden here", "seccomp", "epoll instead", "through threads"] {
        assert!(warnings[0].contains(words), "{words}: {log}");
    }
    stops_in_order(server);
}

#[test]
fn where_io_uring_is_refused_files_are_served_through_threads() {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=4MiB", directory.path().join("volume").display());
    let server = start_without_io_uring(spec.clone(), &[]);
    exercise(&server);
    stops_in_order(server);
    let server = start_without_io_uring(spec, &[]);
    let mut v1 = V1::connect(server.address());
    v1.get(1, 8, 8);
    assert_eq!(v1.expect_data(1, 8, 8), pattern(8, 8, 1), "it is still there");
}

#[test]
fn io_uring_that_was_asked_for_and_is_refused_is_an_error() {
    let (code, said) = without_io_uring(|| {
        Launch::device("null:1MiB").with("--interface").with("io_uring").fail()
    });
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("io_uring is forbidden here"), "{said}");
    assert!(!said.contains("epoll"), "{said}");
}

/// Returns the lines of a server's log, without the warning that it has no admin API, which these
/// tests cause.
fn complaints(server: &Server) -> Vec<String> {
    let log = server.log();
    log.lines().filter(|line| !line.contains("without an admin API")).map(str::to_owned).collect()
}

#[test]
fn epoll_serves_where_it_is_asked_for() {
    let server = Launch::device("mem:8MiB").with("--interface").with("epoll").start();
    exercise(&server);
    assert_eq!(complaints(&server), Vec::<String>::new());
    stops_in_order(server);
}

#[test]
fn io_uring_is_taken_where_it_is_allowed() {
    let server = Launch::device("mem:8MiB").start();
    exercise(&server);
    assert_eq!(complaints(&server), Vec::<String>::new());
    stops_in_order(server);
}

#[test]
fn an_idle_server_on_epoll_sleeps() {
    let server = Launch::device("null:1MiB").with("--interface").with("epoll").start();
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 1);
    v1.expect_data(1, 0, 1);
    let before = server.processor_time();
    assert!(v1.stays(Duration::from_secs(3)));
    let used = server.processor_time() - before;
    let most = Duration::from_millis(60); // 2 % of a core
    assert!(used <= most, "{used:?} in 3 s");
}
