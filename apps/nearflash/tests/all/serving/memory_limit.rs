//! Tests of a server in a control group that limits its memory, as a container is: a server needs
//! no more than docs/how-to/size-a-server.md says, whatever its clients do.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::support::{Launch, PoliteClient, v1_head};

/// The limit: 96 MiB of buffers and 64 MiB of carried bytes for the one worker, and the program.
const LIMIT: u64 = 256 << 20;

/// Number of clients that stop in the middle of a payload, and of those that read no replies.
const CLIENTS: usize = 200;

/// A control group with limited memory, of either version. It is removed when this value is
/// dropped.
struct Group {
    folder: PathBuf,
    is_unified: bool,
}

impl Group {
    /// Makes the group; fails if this process may not, or the system has no such groups.
    fn new(limit: u64) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = root.join("cgroup.controllers").exists();
        let root = if is_unified { root.to_owned() } else { root.join("memory") };
        let folder = root.join(format!("nearflash-test-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let group = Group { folder, is_unified };
        let file = if is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        let limited = std::fs::write(group.folder.join(file), limit.to_string());
        limited.map_err(|e| format!("{file}: {e}"))?;
        // Without swap, what is above the limit has nowhere to go.
        let swap = if is_unified {
            ("memory.swap.max", 0)
        } else {
            ("memory.memsw.limit_in_bytes", limit)
        };
        let file = group.folder.join(swap.0);
        if file.exists() {
            std::fs::write(&file, swap.1.to_string()).map_err(|e| format!("{}: {e}", swap.0))?;
        }
        Ok(group)
    }

    /// Returns the number of the group's processes that the kernel has killed for lack of memory.
    fn killed(&self) -> u64 {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let text = std::fs::read_to_string(self.folder.join(file)).expect("the group is there");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Sends as much as the server takes at once.
fn push(address: std::net::SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_nonblocking(true).expect("a socket");
    let mut rest = bytes;
    while let Ok(sent @ 1..) = stream.write(rest) {
        rest = &rest[sent..];
    }
    stream
}

#[test]
fn stopped_clients_do_not_make_a_server_outgrow_its_control_group() {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(reason) => return println!("SKIPPED: no control group of memory here: {reason}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let device = format!("file:{}?size=64MiB", folder.path().join("disk").display());
    let join = format!("echo $$ > {}", group.folder.join("cgroup.procs").display());
    let launch = Launch::device(&device).with("--workers").with("1").after(&[], &join);
    let mut server = launch.start();
    let polite = PoliteClient::start(server.address());
    let blocks = 2048;
    let half = [&v1_head(1, 1, 4096, blocks)[..], &vec![5; 600_000]].concat();
    let reads: Vec<u8> = (0..64).flat_map(|n| v1_head(0, n, 4096, blocks)).collect();
    for _ in 0..2 {
        let halves: Vec<TcpStream> = (0..CLIENTS).map(|_| push(server.address(), &half)).collect();
        let unread: Vec<TcpStream> = (0..CLIENTS).map(|_| push(server.address(), &reads)).collect();
        polite.is_served();
        drop((halves, unread));
    }
    polite.dismiss();
    assert!(server.runs() && group.killed() == 0);
    server.kill();
}
