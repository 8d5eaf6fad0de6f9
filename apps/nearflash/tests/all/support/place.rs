//! A directory for the files of one test's servers, with their admin socket.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use control::admin::{AdminAddress, Client};

use super::{Launch, Operator, PATIENCE, Server, complaint, nearflash, wait_until};

/// The subsystem of most tests.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:test";

/// Returns the lines of a configuration that give hosts the [`SUBSYSTEM`].
pub(crate) fn subsystem() -> String {
    format!("[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n")
}

/// Makes a directory that other users may look into.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Writes a file with these permissions.
pub(crate) fn write_with(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder for the files of a test's servers. Each test adds methods that start its servers.
pub(crate) struct ServerFolder {
    folder: tempfile::TempDir,
    workers: &'static str,
}

impl ServerFolder {
    /// Creates a folder on a disk.
    pub(crate) fn new() -> ServerFolder {
        ServerFolder { folder: tempfile::tempdir().unwrap(), workers: "2" }
    }

    /// Creates a folder in memory (`/dev/shm`), for servers that are measured or killed.
    pub(crate) fn in_memory() -> ServerFolder {
        ServerFolder { folder: tempfile::tempdir_in("/dev/shm").unwrap(), ..ServerFolder::new() }
    }

    /// Sets the `--workers` option of the servers that start later; `2` by default.
    pub(crate) fn of_workers(self, workers: &'static str) -> ServerFolder {
        ServerFolder { workers, ..self }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("admin.sock")
    }

    /// Writes a file with a key of 32 times `byte`, two hexadecimal digits, which only its owner
    /// can read. Returns the file's path.
    pub(crate) fn key_file(&self, name: &str, byte: &str) -> String {
        let path = self.path(name);
        write_with(&path, &byte.repeat(32), 0o600);
        path.display().to_string()
    }

    /// Returns the spec of a device of 16 MiB that is a file in this folder.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("file:{}?size=16MiB", self.path(name).display())
    }

    /// Returns `launch` with this place's number of workers, and with the admin socket in this
    /// folder.
    pub(crate) fn crewed(&self, launch: Launch) -> Launch {
        let admin = self.admin();
        ["--workers", self.workers, "--admin", &admin].into_iter().fold(launch, Launch::with)
    }

    /// Writes the configuration: a file device, a listener of each protocol, and `rest`.
    pub(crate) fn configure_disk(&self, rest: &str) {
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"{}\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             {rest}",
            self.file("disk"),
        );
        self.write_configuration(&text);
    }

    /// Writes the configuration file of this folder.
    pub(crate) fn write_configuration(&self, text: &str) {
        std::fs::write(self.path("nearflash.toml"), text).unwrap();
    }

    /// Returns a server with the configuration file of this folder. It is not started.
    pub(crate) fn configured(&self) -> Launch {
        let config = self.path("nearflash.toml").display().to_string();
        Launch::new(&["--config", &config, "--admin", &self.admin()])
    }

    /// Returns what `nearflash config show` prints of this folder's configuration file.
    pub(crate) fn shown(&self) -> String {
        let config = self.path("nearflash.toml").display().to_string();
        let ran = nearflash(&["config", "show", &config]).output().unwrap();
        assert!(ran.status.success(), "{}", complaint(&ran));
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Returns `launch` for a server that waits at the step `at` of a take-over, until
    /// [`go_on`](ServerFolder::go_on) is called.
    pub(crate) fn staying(&self, launch: Launch, at: &str) -> Launch {
        launch.staying(at, &self.path("go-on"))
    }

    /// Returns `launch` for a server that waits at the step `at` of a take-over, if the step is one
    /// of `side`.
    pub(crate) fn staying_as(&self, side: &str, launch: Launch, at: &str) -> Launch {
        if at.starts_with(side) { self.staying(launch, at) } else { launch }
    }

    /// Lets a server go on that waits at a step of a take-over.
    pub(crate) fn go_on(&self) {
        std::fs::write(self.path("go-on"), "").unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(AdminAddress::Unix(self.socket())).unwrap()
    }

    /// Returns the value of a series of the server's metrics.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let head = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
    }

    /// Waits until the server has this many connections, of which `carriers` have carried requests.
    /// Returns the addresses of their clients. By then the connections of short queries have ended.
    pub(crate) fn await_peers(&self, connections: usize, carriers: usize) -> Vec<String> {
        let mut peers = Vec::new();
        wait_until("the connections of a load", PATIENCE, || {
            let Ok(list) = self.client().connections() else { return false };
            let carry = list.connections.iter().filter(|one| one.messages > 50).count();
            peers = list.connections.into_iter().map(|one| one.peer).collect();
            peers.sort();
            peers.len() == connections && carry == carriers
        });
        peers
    }

    /// Returns the sorted addresses of the clients of all connections, as soon as the server
    /// answers.
    pub(crate) fn peers(&self) -> Vec<String> {
        let mut list = None;
        wait_until("an answer", PATIENCE, || {
            list = self.client().connections().ok();
            list.is_some()
        });
        let all = list.expect("it was awaited").connections;
        let mut peers: Vec<String> = all.into_iter().map(|one| one.peer).collect();
        peers.sort();
        peers
    }
}

/// A running server of two workers, with its files and its admin socket in a folder.
pub(crate) struct RunningServer {
    pub(crate) place: ServerFolder,
    pub(crate) server: Server,
}

impl RunningServer {
    /// Starts a server with this configuration in `place`.
    pub(crate) fn start(place: ServerFolder, config: &str) -> RunningServer {
        let server = place.crewed(Launch::config(config)).start();
        RunningServer { place, server }
    }

    pub(crate) fn client(&self) -> Client {
        self.place.client()
    }
}

impl Operator for RunningServer {
    fn admin(&self) -> String {
        self.place.admin()
    }
}

impl Operator for ServerFolder {
    fn admin(&self) -> String {
        self.socket().display().to_string()
    }
}
