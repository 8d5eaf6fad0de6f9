//! A volume with a file system, and its mount by a process of the real program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::support::{PATIENCE, complaint, nearflash, wait_until};

/// The size of the file that is the volume. It has holes: what is not written takes no space.
const SIZE: &str = "32GiB";

/// A volume with a file system, and a folder to mount it at.
pub(crate) struct FileVolume {
    place: tempfile::TempDir,
    spec: String,
    /// The process that serves the mounted file system.
    server: Option<Child>,
}

impl FileVolume {
    /// Makes a file system; or says why none can be mounted here.
    pub(crate) fn new() -> Option<FileVolume> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mounting a file system of our own needs root");
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            println!("SKIPPED: there is no /dev/fuse here");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let spec = format!("ftl:file:{}", place.path().join("volume").display());
        std::fs::create_dir(place.path().join("mounted")).unwrap();
        run(&["ftl", "create", &format!("{spec}?size={SIZE}")]);
        run(&["fs", "create", &spec]);
        Some(FileVolume { place, spec, server: None })
    }

    /// Returns the folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.path().join("mounted")
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Mounts the file system.
    pub(crate) fn mount(&mut self) {
        self.mount_with(&[]);
    }

    /// Mounts the file system with these options.
    pub(crate) fn mount_with(&mut self, options: &[&str]) {
        let folder = self.folder().display().to_string();
        let mut command = nearflash(&["mount", &self.spec, &folder]);
        command.args(options);
        let mut server = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.server = Some(server);
        assert!(line.starts_with("ready: "), "{line:?}");
    }

    /// Takes the file system off, and looks for faults. A child that another test starts has the
    /// open files of this process until it runs its program, so the folder may be in use for a
    /// moment.
    pub(crate) fn unmount(&mut self) {
        let folder = self.folder().display().to_string();
        wait_until("nobody in the folder", PATIENCE, || {
            let ran = nearflash(&["umount", &folder]).output().unwrap();
            let said = complaint(&ran);
            assert!(ran.status.success() || said.contains("somebody uses"), "{said}");
            ran.status.success()
        });
        let ended = self.server.take().unwrap().wait().unwrap();
        assert!(ended.success(), "{ended}");
        self.check();
    }

    /// Kills the process that serves the file system.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Returns `true` once the process that serves the file system has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        let ended = self.server.as_mut().is_none_or(|server| server.try_wait().unwrap().is_some());
        if ended {
            self.server = None;
        }
        ended
    }

    /// Looks for faults in the file system of a volume that nobody serves.
    pub(crate) fn check(&self) {
        let said = run(&["fs", "check", &self.spec]);
        assert!(said.contains("faults: 0"), "{said}");
    }

    /// Returns the process that serves the file system.
    pub(crate) fn server(&self) -> &Child {
        self.server.as_ref().expect("it is mounted")
    }

    /// Returns what `nearflash` complains of in a command on this volume that must fail.
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let ran = nearflash(words).output().unwrap();
        assert!(!ran.status.success(), "{words:?} was done");
        complaint(&ran)
    }

    /// Returns the volume's specification.
    pub(crate) fn spec(&self) -> &str {
        &self.spec
    }
}

impl Drop for FileVolume {
    fn drop(&mut self) {
        // Also where the test has failed, or the process is dead.
        let _ = nearflash(&["umount", "--detach", &self.folder().display().to_string()]).output();
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Runs a command that must succeed, and returns its output.
fn run(words: &[&str]) -> String {
    let ran = nearflash(words).output().unwrap();
    assert!(ran.status.success(), "{words:?}: {}", complaint(&ran));
    String::from_utf8(ran.stdout).unwrap()
}
