//! Tests that a server reveals nothing to others: to other users of its machine at its sockets, and
//! to other clients through reused buffers.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{
    Launch, OperatorFiles, PATIENCE, Server, V1, V2, complaint, nearflash, now, pattern, v1_head,
    wait_until,
};
use contract::{Command, Range, Status};

/// Ids of users without rights on any machine: the server's user, and another one.
const OWNER: u32 = 65_534;
const STRANGER: u32 = 65_533;

/// A server that runs as the user [`OWNER`]. File permissions let everybody connect to its sockets.
struct OwnedServer {
    folder: tempfile::TempDir,
    server: Server,
}

impl OwnedServer {
    /// Starts the server; returns `None` if this process may not run programs as other users.
    fn start() -> Option<OwnedServer> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can be other users");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(OWNER), Some(OWNER)).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let place = folder.path().join("admin.sock");
        let server = launch(OWNER, &place).start();
        Some(OwnedServer { folder, server })
    }

    fn admin(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    fn upgrade(&self) -> PathBuf {
        self.folder.path().join("admin.sock.upgrade")
    }

    /// Runs `nearflash tenant list` as the user `uid`, at the server's admin socket.
    fn asked_by(&self, uid: u32) -> Output {
        let mut command = nearflash(&["tenant", "list", "--admin"]);
        command.arg(self.admin()).uid(uid).gid(uid).current_dir("/").output().unwrap()
    }

    /// Tries to take over the server as the user `uid`, which must fail. Returns the error.
    fn taken_over_by(&self, uid: u32) -> String {
        let (code, said) = launch(uid, &self.admin()).with("--upgrade").fail();
        assert_eq!(code, 1, "{said}");
        said
    }
}

/// Returns a server of the user `uid`, whose device is a file beside its admin socket. It is not
/// started.
fn launch(uid: u32, admin: &Path) -> Launch {
    let url = "reflex://127.0.0.1:0";
    let device = format!("file:{}?size=16MiB", admin.with_file_name("disk").display());
    let (uid, admin) = (uid.to_string(), admin.display().to_string());
    let wrapper = ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"];
    Launch::new(&["--device", &device, "--listen", url, "--admin", &admin, "--workers", "1"])
        .after(&wrapper, "cd /")
}

fn open_to_all(socket: &Path) {
    std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
}

#[test]
fn the_admin_socket_answers_its_owner_and_root_and_no_other_user() {
    let Some(owned) = OwnedServer::start() else { return };
    let refused = owned.asked_by(STRANGER);
    assert!(!refused.status.success(), "the file keeps others out");
    open_to_all(&owned.admin());
    for user in [OWNER, 0] {
        let ran = owned.asked_by(user);
        assert!(ran.status.success(), "user {user}: {}", complaint(&ran));
    }
    let refused = owned.asked_by(STRANGER);
    let said = complaint(&refused);
    assert!(
        !refused.status.success() && said.contains("for the user who runs the server"),
        "{said}"
    );
}

#[test]
fn the_upgrade_socket_gives_nothing_to_another_user() {
    let Some(mut owned) = OwnedServer::start() else { return };
    let mut client = V2::connect(owned.server.address());
    client.write_blocks(64, &pattern(64, 8, 1), true);
    let mode = std::fs::metadata(owned.upgrade()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the file keeps others out");
    owned.taken_over_by(STRANGER);
    open_to_all(&owned.upgrade());
    // Neither another user, who is told nothing, nor root, whose files the server could not open
    // again.
    let said = owned.taken_over_by(STRANGER);
    assert!(!said.contains(&format!("user {OWNER}")), "{said}");
    let refused = format!("user {STRANGER} may not take over a server of user {OWNER}");
    owned.server.await_log(&refused);
    let said = owned.taken_over_by(0);
    assert!(said.contains("start it as that user"), "{said}");
    owned.server.await_log(&format!("user 0 may not take over a server of user {OWNER}"));
    // Whoever knocks without a word does not get one either, nor a descriptor, and keeps nobody
    // out.
    let mut stream = UnixStream::connect(owned.upgrade()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(&[0; 64]); // the server may have hung up
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    assert!(!String::from_utf8_lossy(&told).contains("reflex://"), "{told:?}");
    assert_eq!(client.read_blocks(64, 8), pattern(64, 8, 1), "its connection is where it was");
    assert!(owned.server.runs());
    // Its own user does get it all.
    let successor = launch(OWNER, &owned.admin()).with("--upgrade").start();
    assert_eq!(successor.address(), owned.server.address());
    assert!(owned.server.wait().success());
}

/// Maximum number of lines about refused strangers that the audit log gets in ten seconds.
const LINES_MAX: u64 = 20;

#[test]
fn strangers_elsewhere_fill_no_audit_log() {
    let operators = OperatorFiles::new();
    let mut server = operators.start();
    let begun = now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..12 {
                    let refused =
                        operators.client("not-the-token-of-anybody").tenants().unwrap_err();
                    assert!(refused.code().is_some(), "{refused}");
                }
            });
        }
    });
    let periods = begun.elapsed().as_secs() / 10 + 1;
    let audit = std::fs::read_to_string(operators.path("audit")).unwrap();
    let lines = audit.lines().count() as u64;
    assert!((1..=LINES_MAX * periods).contains(&lines), "{lines} lines in {periods} periods");
    assert!(!audit.contains("\"done\""), "{audit}");
    // Those who may operate it have their lines all the same.
    assert!(operators.run("ann", &["tenant", "add", "gold"]).status.success());
    let audit = std::fs::read_to_string(operators.path("audit")).unwrap();
    assert!(audit.lines().last().unwrap().contains("\"done\""), "{audit}");
    assert!(server.runs());
}

/// The byte that one client writes, and that no other client may see.
const SECRET: u8 = 0xa5;

/// The configuration of two namespaces on one device: one client writes to the first, and the
/// second is never written.
const TWO_NAMESPACES: &str = "workers = 1\n[[device]]\nname = \"m\"\nspec = \"DEVICE\"\n\
    [[namespace]]\ndevice = \"m\"\nsize = \"8MiB\"\n\
    [[namespace]]\ndevice = \"m\"\noffset = \"8MiB\"\n\
    [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
    [[listen]]\nurl = \"reflex://127.0.0.1:0?namespace=2\"\n";

/// Sizes in blocks of requests, one for each size class of buffers.
const SIZES: [u32; 4] = [8, 100, 300, 2048];

fn serve(spec: &str) -> Server {
    Launch::config(&TWO_NAMESPACES.replace("DEVICE", spec)).start()
}

/// Fills buffers of each size class with the secret byte: by writes that succeed, by writes that
/// are refused, and by writes that are cut off by a reset of their connection.
fn leave_secrets(server: &Server) {
    for blocks in SIZES {
        let secret = vec![SECRET; blocks as usize * 512];
        let mut writer = V2::connect(server.address());
        let inside = Command::Write { range: Range::new(0, blocks), fua: false };
        writer.call(inside, &secret);
        let outside = Command::Write { range: Range::new(1 << 40, blocks), fua: false };
        assert_ne!(writer.call(outside, &secret).0, Status::Ok);
        writer.call(Command::Read(Range::new(0, blocks)), &[]);
        let message = writer.encode(1, 0, 0, inside, &secret);
        writer.send_bytes(&message[..message.len() - 256]);
        writer.reset();
        let mut writer = V1::connect(server.address());
        writer.send(&v1_head(1, 1, 0, blocks));
        writer.send(&secret[..secret.len() - 256]);
        writer.reset();
    }
}

/// Reads blocks of the other namespace as another client, and asserts that the answer has no secret
/// byte. Returns the status of the read.
fn look(server: &Server, blocks: u32) -> Status {
    let mut reader = V2::connect(server.listener(1));
    let (status, data) = reader.call_in(2, Command::Read(Range::new(0, blocks)), &[]);
    assert!(!data.contains(&SECRET), "{blocks} blocks, {status:?}: data of another client");
    if status == Status::Ok {
        assert!(data == vec![0; blocks as usize * 512], "{blocks} blocks: it was never written");
    }
    // What is said to nonsense is no piece of a buffer either.
    let (status_outside, data) = reader.call_in(2, Command::Read(Range::new(1 << 40, blocks)), &[]);
    assert!(status_outside != Status::Ok && data.is_empty());
    status
}

#[test]
fn no_client_sees_data_of_another_in_a_buffer_that_is_used_again() {
    let server = serve("mem:16MiB");
    for _ in 0..4 {
        leave_secrets(&server);
        for blocks in SIZES {
            assert_eq!(look(&server, blocks), Status::Ok);
            let mut v1 = V1::connect(server.listener(1));
            v1.get(1, 0, blocks);
            assert!(v1.expect_data(1, 0, blocks).iter().all(|&byte| byte == 0), "{blocks}");
        }
    }
}

#[test]
fn no_client_sees_data_of_another_when_its_read_fails() {
    let server = serve("mem:16MiB?fail_reads=0.5&fail_writes=0.5&seed=3");
    let mut failed = 0;
    for _ in 0..16 {
        leave_secrets(&server);
        failed += SIZES.iter().filter(|&&blocks| look(&server, blocks) != Status::Ok).count();
    }
    assert!((8..=56).contains(&failed), "{failed} of 64 reads failed: both ways are looked at");
}

#[test]
fn no_client_sees_data_of_another_when_a_file_ends_early() {
    for interface in ["auto", "epoll"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        let spec = format!("file:{}?size=16MiB", file.display());
        let launch = Launch::config(&TWO_NAMESPACES.replace("DEVICE", &spec));
        let mut server = launch.with("--interface").with(interface).start();
        leave_secrets(&server);
        assert_eq!(look(&server, 2048), Status::Ok);
        // Somebody cuts the file off within the second namespace: reads come back short, then
        // empty.
        let disk = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        let mut ended = Vec::new();
        for end in [(8 << 20) + (600 << 9), (8 << 20) + (50 << 9), 8 << 20] {
            disk.set_len(end).unwrap();
            leave_secrets(&server);
            ended.extend(SIZES.map(|blocks| look(&server, blocks)));
        }
        assert!(ended.iter().any(|status| *status != Status::Ok), "none came back short");
        wait_until("it still serves", PATIENCE, || server.runs());
    }
}
