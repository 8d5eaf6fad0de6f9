//! Listening Unix sockets: their files, and files left by earlier servers.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::{Error, Process, UnixPath};

/// Maximum number of further attempts to bind a socket whose path still answers, `PAUSE` apart. The
/// kernel frees the listeners of a killed server a moment after its end, with its ring.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of further attempts, `PAUSE_AFTER_DEATH` apart, while the socket answers although
/// the process that listened has ended: on a busy machine the kernel takes seconds to free a ring.
/// The socket is never taken away, since an upgrade may have passed it to a successor.
const TRIES_AFTER_DEATH: u32 = 150;
const PAUSE_AFTER_DEATH: Duration = Duration::from_millis(100);

/// The file of a listening socket, removed together with the listener.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: UnixPath,
    /// The device and inode numbers of the file, by which a file that another program has put at
    /// the same path is recognized and kept.
    identity: (u64, u64),
    /// `true` if another process uses the socket, so that the socket's file must not be removed.
    stays: Arc<AtomicBool>,
}

impl SocketFile {
    /// Returns the file at the path; `None` if there is none.
    pub(crate) fn of(path: &UnixPath) -> Option<SocketFile> {
        let found = fs::symlink_metadata(path.as_path()).ok()?;
        let (path, identity) = (path.clone(), identity(&found));
        Some(SocketFile { path, identity, stays: Arc::default() })
    }

    /// Sets the file's permissions to `mode`; does nothing if the file was replaced.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Error> {
        let path = self.path.as_path();
        if !fs::symlink_metadata(path).is_ok_and(|found| identity(&found) == self.identity) {
            return Ok(());
        }
        let set = fs::set_permissions(path, Permissions::from_mode(mode));
        set.map_err(|e| Error::system(format!("cannot set the permissions of {}", self.path), e))
    }

    /// Returns a flag that, when set, keeps the file after this value is dropped.
    pub(crate) fn stays(&self) -> Arc<AtomicBool> {
        self.stays.clone()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let stays = self.stays.load(Ordering::SeqCst);
        let ours = |found: &Metadata| !stays && identity(found) == self.identity;
        if fs::symlink_metadata(self.path.as_path()).as_ref().is_ok_and(ours) {
            let _ = fs::remove_file(self.path.as_path()); // what stays is replaced next time
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Returns a socket that listens on `path`, whose file has the permissions `mode`. A socket left by
/// a dead server at `path` is replaced; any other file is kept, which is an error.
///
/// # Errors
/// Fails if another server listens there, another kind of file is there, or the directory does not
/// allow a new file.
pub(crate) fn listen(
    path: &UnixPath,
    mode: u32,
    backlog: i32,
) -> Result<(OwnedFd, SocketFile), Error> {
    let fail =
        |errno: Errno| Error::system(format!("cannot listen on {path}{}", hint(errno)), errno);
    let address = SocketAddrUnix::new(path.as_bytes()).map_err(fail)?;
    let socket = new_socket(SocketFlags::CLOEXEC).map_err(fail)?;
    let _turn = DirectoryLock::take(path.as_path());
    // The file is made with these permissions, so that nobody gets in before they are set.
    rustix::fs::fchmod(&socket, Mode::from_bits_truncate(mode & 0o600)).map_err(fail)?;
    for attempt in 0.. {
        match rustix::net::bind(&socket, &address) {
            Ok(()) => break,
            Err(Errno::ADDRINUSE) => match occupant(path, &address)? {
                SocketOccupant::Nobody if attempt < TRIES => remove_stale(path)?,
                SocketOccupant::Server if attempt < TRIES => std::thread::sleep(PAUSE),
                SocketOccupant::Kernel if attempt < TRIES_AFTER_DEATH => {
                    std::thread::sleep(PAUSE_AFTER_DEATH);
                }
                _ => return Err(fail(Errno::ADDRINUSE)),
            },
            Err(errno) => return Err(fail(errno)),
        }
    }
    // Before the turn is over: the next server must not find a socket that refuses.
    rustix::net::listen(&socket, backlog).map_err(fail)?;
    let said = |e: io::Error| Error::system(format!("cannot set the permissions of {path}"), e);
    let found = fs::symlink_metadata(path.as_path()).map_err(said)?;
    let (identity, stays) = (identity(&found), Arc::default());
    let file = SocketFile { path: path.clone(), identity, stays };
    fs::set_permissions(path.as_path(), Permissions::from_mode(mode)).map_err(said)?;
    Ok((socket, file))
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ADDRINUSE => " (another server is running there)",
        Errno::ACCESS | Errno::PERM => " (its directory does not let this user make files)",
        Errno::NOENT => " (its directory does not exist)",
        _ => "",
    }
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The kind of socket at a path that is in use.
#[derive(Debug, PartialEq, Eq)]
enum SocketOccupant {
    /// A socket without a listener.
    Nobody,
    /// A socket with a listener.
    Server,
    /// A socket with a listener, whose process has ended: the kernel has yet to free it.
    Kernel,
}

fn occupant(path: &UnixPath, address: &SocketAddrUnix) -> Result<SocketOccupant, Error> {
    match fs::symlink_metadata(path.as_path()) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(Error::new(format!(
                "cannot listen on {path}: there is something that is not a socket; remove it, or \
                 choose another path"
            )));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SocketOccupant::Nobody),
        Err(error) => return Err(Error::system(format!("cannot look at {path}"), error)),
    }
    let said = |errno| Error::system(format!("cannot tell whether anybody uses {path}"), errno);
    let probe = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(said)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(SocketOccupant::Nobody),
        Ok(()) if listener_has_ended(&probe) => Ok(SocketOccupant::Kernel),
        // A queue of arrivals that is full says so, too.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(SocketOccupant::Server),
        Err(errno) => Err(said(errno)),
    }
}

/// Returns whether the process that listened on the other end of a connection has ended. Processes
/// that cannot be seen from here count as running.
fn listener_has_ended(connection: &OwnedFd) -> bool {
    let Ok(listener) = rustix::net::sockopt::socket_peercred(connection) else { return false };
    match pidfd_open(listener.pid, PidfdFlags::empty()) {
        Ok(process) => Process::passed(process).has_ended(),
        Err(errno) => errno == Errno::SRCH,
    }
}

fn remove_stale(path: &UnixPath) -> Result<(), Error> {
    match fs::remove_file(path.as_path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system(format!("cannot replace {path}, which a dead server left"), error))
        }
        _ => Ok(()),
    }
}

/// The right to replace files of a directory: of two servers that start at the same time, one must
/// not take the other's new socket for a dead one. It is a lock on the directory, so that no lock
/// file is left behind.
struct DirectoryLock(#[expect(dead_code, reason = "it is held, not read")] Option<File>);

impl DirectoryLock {
    /// Takes the right, waiting for a limited time: it only guards against a race, and other
    /// programs may lock a directory that they can read.
    fn take(path: &Path) -> DirectoryLock {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) else {
            return DirectoryLock(None); // binding says better what is wrong with it
        };
        for _ in 0..TRIES {
            match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => std::thread::sleep(PAUSE),
                _ => break,
            }
        }
        DirectoryLock(Some(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, SocketAddrUnix, SocketFlags, SocketOccupant, TRIES, new_socket, occupant};
    use crate::{Listener, UnixPath};
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// A directory that is removed when this value is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn socket(&self) -> UnixPath {
            UnixPath::new(self.0.join("s")).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_file_has_its_mode_and_goes_with_the_listener() {
        let folder = Folder::new("nearflash-mode");
        let path = folder.socket();
        for wanted in [0o600, 0o660, 0o666] {
            let listener = Listener::bind_unix(&path, wanted).unwrap();
            assert_eq!(mode(path.as_path()), wanted);
            UnixStream::connect(path.as_path()).unwrap();
            drop(listener);
            assert!(!path.as_path().exists());
        }
    }

    #[test]
    fn a_file_that_is_given_away_is_the_others() {
        let folder = Folder::new("nearflash-given");
        let path = folder.socket();
        let listener = Listener::bind_unix(&path, 0o600).unwrap();
        let kept = listener.keep();
        kept.give_away(true);
        let socket = kept.sockets().unwrap()[0].try_clone().unwrap();
        let other = Listener::adopt(socket, path.clone().into()).unwrap();
        drop(listener);
        assert!(kept.sockets().is_none());
        UnixStream::connect(path.as_path()).unwrap();
        drop(other);
        assert!(!path.as_path().exists());
        let (stream, _other) = UnixStream::pair().unwrap();
        let error = Listener::adopt(stream.into(), path.into()).unwrap_err().to_string();
        assert!(error.contains("does not listen"), "{error}");
    }

    #[test]
    fn permissions_change_of_the_own_file_alone() {
        let folder = Folder::new("nearflash-remode");
        let path = folder.socket();
        let listener = Listener::bind_unix(&path, 0o666).unwrap();
        listener.set_mode(0o660).unwrap();
        assert_eq!(mode(path.as_path()), 0o660);
        fs::remove_file(path.as_path()).unwrap();
        fs::write(path.as_path(), "theirs").unwrap();
        let before = mode(path.as_path());
        listener.set_mode(0o666).unwrap();
        assert_eq!(mode(path.as_path()), before);
    }

    #[test]
    fn what_a_dead_server_left_is_replaced() {
        let folder = Folder::new("nearflash-stale");
        let path = folder.socket();
        drop(UnixListener::bind(path.as_path()).unwrap());
        assert!(path.as_path().exists(), "it leaves its file behind, as a killed server does");
        let _listener = Listener::bind_unix(&path, 0o600).unwrap();
        UnixStream::connect(path.as_path()).unwrap();
    }

    /// The environment variable that makes this test program listen on its standard input, and end.
    const LISTEN: &str = "NEARFLASH_TEST_LISTEN";

    /// Returns a socket bound to the path, on which a process listened that has ended.
    fn socket_of_the_dead(path: &UnixPath) -> OwnedFd {
        let socket = new_socket(SocketFlags::CLOEXEC).unwrap();
        rustix::net::bind(&socket, &address(path)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "unix::tests::a_killed_servers_socket_is_waited_for"]);
        child.env(LISTEN, "1").stdin(Stdio::from(socket.try_clone().unwrap()));
        let ran = child.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        socket
    }

    fn address(path: &UnixPath) -> SocketAddrUnix {
        SocketAddrUnix::new(path.as_bytes()).unwrap()
    }

    #[test]
    fn a_killed_servers_socket_is_waited_for() {
        if std::env::var_os(LISTEN).is_some() {
            rustix::net::listen(std::io::stdin(), 16).unwrap();
            return;
        }
        let folder = Folder::new("nearflash-killed");
        let path = folder.socket();
        let kept = socket_of_the_dead(&path);
        assert_eq!(occupant(&path, &address(&path)).unwrap(), SocketOccupant::Kernel);
        // More attempts than a live server's socket is worth.
        let freed = std::thread::spawn(move || {
            std::thread::sleep(PAUSE * (TRIES + 5));
            drop(kept);
        });
        let _listener = Listener::bind_unix(&path, 0o600).unwrap();
        freed.join().unwrap();
        assert_eq!(occupant(&path, &address(&path)).unwrap(), SocketOccupant::Server);
    }

    #[test]
    fn a_live_server_and_other_files_are_left_alone() {
        let folder = Folder::new("nearflash-live");
        let path = folder.socket();
        let first = Listener::bind_unix(&path, 0o600).unwrap();
        let error = Listener::bind_unix(&path, 0o600).unwrap_err().to_string();
        assert!(error.contains("another server") && error.contains(&path.to_string()), "{error}");
        UnixStream::connect(path.as_path()).unwrap();
        drop(first);
        fs::write(path.as_path(), "precious").unwrap();
        let error = Listener::bind_unix(&path, 0o600).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read(path.as_path()).unwrap(), b"precious");
    }

    #[test]
    fn a_file_of_somebody_else_survives_the_listener() {
        let folder = Folder::new("nearflash-other");
        let path = folder.socket();
        let listener = Listener::bind_unix(&path, 0o600).unwrap();
        fs::remove_file(path.as_path()).unwrap();
        fs::write(path.as_path(), "theirs").unwrap();
        drop(listener);
        assert_eq!(fs::read(path.as_path()).unwrap(), b"theirs");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let path = UnixPath::new("/nonexistent-nearflash/s").unwrap();
        let error = Listener::bind_unix(&path, 0o600).unwrap_err().to_string();
        assert!(error.contains("directory does not exist"), "{error}");
    }

    #[test]
    fn of_servers_that_start_together_one_gets_the_path() {
        let folder = Folder::new("nearflash-race");
        let path = folder.socket();
        drop(UnixListener::bind(path.as_path()).unwrap());
        let start = || {
            let path = path.clone();
            std::thread::spawn(move || Listener::bind_unix(&path, 0o600))
        };
        let threads: Vec<_> = (0..4).map(|_| start()).collect();
        let got: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(got.iter().filter(|g| g.is_ok()).count(), 1);
        UnixStream::connect(path.as_path()).unwrap();
    }
}
