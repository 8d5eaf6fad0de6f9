//! Tests of clients on the server's machine, through a Unix socket: both versions of the protocol,
//! both interfaces to the kernel, and access rules.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Launch, Server, open_folder};
use nearflash::{Error, Options, Status, blocking::Client};

/// A directory for a server's socket.
struct SocketFolder {
    folder: tempfile::TempDir,
}

impl SocketFolder {
    fn new() -> SocketFolder {
        // Other users may look for the socket; whether they may use it is the file's business.
        SocketFolder { folder: open_folder() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data.sock")
    }

    fn url(&self) -> String {
        format!("reflex+unix:{}", self.path().display())
    }

    fn launch(&self, query: &str) -> Launch {
        self.launch_with("mem:16MiB", query)
    }

    fn launch_with(&self, device: &str, query: &str) -> Launch {
        Launch::new(&["--device", device, "--listen", &format!("{}{query}", self.url())])
    }

    /// Starts a server with this access rule, these options of the listener, and this interface to
    /// the kernel.
    fn with_rule(&self, query: &str, rule: &str, interface: &str) -> Server {
        Launch::config(&format!(
            "[[device]]\nname = \"m\"\nspec = \"mem:16MiB\"\n\
             [[listen]]\nurl = \"{}{query}\"\n\
             [[access]]\n{rule}\nrights = \"read-write\"\n",
            self.url()
        ))
        .with("--interface")
        .with(interface)
        .start()
    }
}

fn impatient() -> Options {
    Options { outage_max: std::time::Duration::from_secs(1), ..Options::default() }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn exercise(url: &str) {
    let client = Client::connect(url, Options::default()).unwrap();
    let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 7) as u8).collect();
    client.write(8, &data).unwrap();
    assert!(client.read(8, data.len()).unwrap() == data, "{url}: other data came back");
}

fn bench(url: &str, user: Option<u32>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["bench", url, "--queue-depth", "8", "--seconds", "0.3", "--warmup", "0"]);
    command.args(["--read-percent", "50", "--verify", "--span", "1MiB"]).stdin(Stdio::null());
    if let Some(uid) = user {
        command.uid(uid).current_dir("/");
    }
    command.output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn both_versions_are_served_through_a_unix_socket() {
    for interface in ["auto", "epoll"] {
        let place = SocketFolder::new();
        let _server = place.launch("").with("--interface").with(interface).start();
        exercise(&place.url());
        exercise(&format!("{}?v=1", place.url()));
    }
}

#[test]
fn bench_verifies_through_a_unix_socket() {
    for version in ["", "?v=1"] {
        let place = SocketFolder::new();
        let _server = place.launch("").start();
        let ran = bench(&format!("{}{version}", place.url()), None);
        assert!(ran.status.success(), "{}", said(&ran));
    }
}

#[test]
fn the_listener_chooses_a_namespace_and_the_file_has_the_mode() {
    let place = SocketFolder::new();
    let first = SocketFolder::new();
    let _server = Launch::config(&format!(
        "[[device]]\nname = \"m\"\nspec = \"mem:8MiB\"\n\
         [[namespace]]\ndevice = \"m\"\nsize = \"1MiB\"\n\
         [[namespace]]\ndevice = \"m\"\noffset = \"1MiB\"\n\
         [[listen]]\nurl = \"{}?namespace=2&mode=660\"\n[[listen]]\nurl = \"{}\"\n",
        place.url(),
        first.url(),
    ))
    .start();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.path()), mode(&first.path())), (0o660, 0o600));
    let client = Client::connect(&format!("{}?v=1", place.url()), Options::default()).unwrap();
    client.write(0, &[2; 512]).unwrap();
    let client = Client::connect(&first.url(), Options::default()).unwrap();
    assert_eq!(client.info().unwrap().bytes, 1 << 20);
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn a_rule_lets_its_user_in_and_nobody_else() {
    for interface in ["auto", "epoll"] {
        let place = SocketFolder::new();
        let start = |uid: u32| place.with_rule("?mode=666", &format!("uid = {uid}"), interface);
        let server = start(own_uid());
        exercise(&place.url());
        drop(server);
        // What the killed server left is replaced.
        assert!(place.path().exists());
        let server = start(own_uid() + 1);
        let refused = Client::connect(&place.url(), impatient()).unwrap_err();
        assert!(matches!(&refused, Error::Connect(why) if why.contains("denied")), "{refused}");
        let v1 = Client::connect(&format!("{}?v=1", place.url()), impatient()).unwrap();
        let refused = v1.read(0, 512).unwrap_err();
        let ended = matches!(refused, Error::ConnectionLost | Error::Failed(Status::Denied));
        assert!(ended, "{refused}");
        drop(server);
    }
}

/// Checks that an access rule knows a client by its user. Runs only as root, since the client has
/// to be another user.
#[test]
fn the_kernel_says_who_the_other_end_is() {
    const NOBODY: u32 = 65_534;
    if own_uid() != 0 {
        return;
    }
    let place = SocketFolder::new();
    let server = place.with_rule("?mode=666", &format!("uid = {NOBODY}"), "auto");
    let ran = bench(&place.url(), Some(NOBODY));
    assert!(ran.status.success(), "{}", said(&ran));
    let ran = bench(&place.url(), None);
    assert!(said(&ran).contains("access denied"), "{}", said(&ran));
    drop(server);
    let _server = place.with_rule("", "from = \"anyone\"", "auto");
    let ran = bench(&place.url(), Some(NOBODY));
    assert!(said(&ran).contains("may not use the socket"), "{}", said(&ran));
    assert!(bench(&place.url(), None).status.success());
}

#[test]
fn a_live_servers_socket_is_not_taken_and_goes_at_exit() {
    let place = SocketFolder::new();
    let mut server = place.launch("").start();
    let (code, said) = place.launch("").fail();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another server") && said.contains("data.sock"), "{said}");
    exercise(&place.url());
    server.terminate();
    assert!(server.wait().success());
    assert!(!place.path().exists(), "the socket's file is left behind");
}

#[test]
fn a_killed_servers_socket_is_replaced() {
    let place = SocketFolder::new();
    let mut server = place.launch("").start();
    server.kill();
    assert!(place.path().exists());
    let _server = place.launch("").start();
    exercise(&place.url());
}

#[test]
fn what_is_in_the_way_is_not_removed() {
    let place = SocketFolder::new();
    std::fs::write(place.path(), "precious").unwrap();
    let (code, said) = place.launch("").fail();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(std::fs::read(place.path()).unwrap(), b"precious");
}

#[test]
fn a_client_without_a_server_is_told() {
    let place = SocketFolder::new();
    let ran = bench(&place.url(), None);
    let said = said(&ran);
    assert!(!ran.status.success() && said.contains("nearflash serve"), "{said}");
    assert!(said.contains(&place.url()), "{said}");
}

/// Returns the results of three flushes around a kill of a server with this device: one before the
/// kill and two after it.
fn flushes_around_a_kill(device: &str) -> [Result<(), Error>; 3] {
    let place = SocketFolder::new();
    let mut server = place.launch_with(device, "").start();
    let client = Client::connect(&place.url(), Options::default()).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    let before = client.flush();
    client.write(8, &[2; 4096]).unwrap();
    server.kill();
    let _server = place.launch_with(device, "").start();
    [before, client.flush(), client.flush()]
}

#[test]
fn a_flush_tells_of_writes_that_ended_with_the_process() {
    let lost = Err(Error::Failed(Status::WritesLost));
    assert_eq!(flushes_around_a_kill("mem:1MiB"), [Ok(()), lost, Ok(())]);
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}?size=1MiB", folder.path().join("volume").display());
    assert_eq!(flushes_around_a_kill(&file), [Ok(()), Ok(()), Ok(())], "files outlive it");
}
