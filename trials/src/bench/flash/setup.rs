//! Folders, servers and mounts of the rows of `cargo xtask bench flash`. All are gone after the
//! run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::process::{Server, show};
use crate::bench::servers::built;

/// The core of servers, as `--cpus` takes it.
const SERVER_CPU: &str = "0";

/// Bytes of the file of zeroes that the yardstick serves, and of those that are read beside it.
pub(super) const FILE_BYTES: u64 = 256 << 20;

/// The program under test, the folders, and the settings of all rows.
pub(super) struct Setup {
    program: PathBuf,
    /// A folder in memory, and one on a disk.
    pub(super) memory: Folder,
    pub(super) disk: Folder,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    /// The command lines that were used.
    commands: BTreeSet<String>,
}

/// A folder that is removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    fn new(parent: &Path) -> Result<Folder, String> {
        let path = parent.join(format!("nearflash-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    /// Returns the path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a folder in the folder, unless it is there, and returns its path.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the target folder, or goes with the next boot.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// A mounted file system, with its server if a process serves it. It is taken off on drop.
pub(super) struct Mount {
    pub(super) folder: PathBuf,
    pub(super) server: Option<Server>,
    /// The loop device below, which is freed afterwards.
    under: Option<LoopDevice>,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.folder)) {
            println!("  {error}");
        }
        // A volume that closes in order has freed its device.
        if let Some(server) = self.server.take() {
            let _ended = server.ends_in_order(std::time::Duration::from_secs(30));
        }
        self.under = None;
    }
}

/// A loop device over a file.
pub(super) struct LoopDevice(pub(super) String);

impl LoopDevice {
    /// Makes a sparse file of `bytes` bytes, and a loop device over it.
    fn over(file: &Path, bytes: u64) -> Result<LoopDevice, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        fs::File::create(file).and_then(|file| file.set_len(bytes)).map_err(failed)?;
        let said = run(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
        Ok(LoopDevice(said.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").args(["--detach", &self.0])) {
            println!("  {error}");
        }
    }
}

/// Runs a command that must succeed, and returns its output.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let ran = command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(format!("{shown}: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}

impl Setup {
    pub(super) fn new(
        program: PathBuf,
        disk: &Path,
        rounds: usize,
        seconds: f64,
    ) -> Result<Setup, String> {
        let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
        let memory = Folder::new(Path::new("/dev/shm"))?;
        let disk = Folder::new(disk)?;
        Ok(Setup { program, memory, disk, rounds, seconds, commands: BTreeSet::new() })
    }

    /// Returns the command lines that were used, one a line, without the run's own folders.
    pub(super) fn commands(&self) -> String {
        self.commands.iter().map(|command| format!("{command}\n")).collect()
    }

    fn remember(&mut self, command: &Command) {
        let mut shown = show(command);
        for (folder, name) in [(&self.memory, "MEMORY"), (&self.disk, "DISK")] {
            shown = shown.replace(&folder.0.display().to_string(), name);
            let short = folder.0.strip_prefix(xtask::shell::root());
            shown = short.map_or(shown.clone(), |s| shown.replace(&s.display().to_string(), name));
        }
        self.commands.insert(shown);
    }

    /// Returns a command of the program under test.
    pub(super) fn nearflash(&self) -> Command {
        Command::new(&self.program)
    }

    /// Runs a command that must succeed, and remembers it.
    pub(super) fn run(&mut self, command: &mut Command) -> Result<String, String> {
        self.remember(command);
        run(command)
    }

    /// Makes a volume of flash translation on the file or device `member`, and returns its spec.
    pub(super) fn volume(&mut self, member: &str, options: &str) -> Result<String, String> {
        let spec = format!("ftl:file:{member}");
        let mut create = self.nearflash();
        create.args(["ftl", "create", &format!("{spec}{options}")]);
        self.run(&mut create)?;
        Ok(spec)
    }

    /// Starts a server of a device, with its worker on the server's core.
    pub(super) fn serve(&mut self, device: &str) -> Result<Server, String> {
        let mut command = self.nearflash();
        command.args(["serve", "--workers", "1", "--admin", "none", "--cpus", SERVER_CPU]);
        command.args(["--device", device, "--listen", "reflex://127.0.0.1:0"]);
        self.remember(&command);
        Server::start(&mut command)
    }

    /// Mounts a new file system of contiguous files on a volume.
    pub(super) fn mount(&mut self, volume: &str, folder: PathBuf) -> Result<Mount, String> {
        let mut create = self.nearflash();
        self.run(create.args(["fs", "create", volume]))?;
        let mut command = self.nearflash();
        command.args(["mount", volume]).arg(&folder).args(["--cpu", SERVER_CPU]);
        self.remember(&command);
        let server = Server::start(&mut command)?;
        Ok(Mount { folder, server: Some(server), under: None })
    }

    /// Mounts the file system that does nothing, over the same channel to the kernel.
    pub(super) fn mount_null(&mut self, folder: PathBuf) -> Result<Mount, String> {
        let mut command = Command::new(built("examples/fuse_null"));
        command.arg(&folder).args(["--size", &FILE_BYTES.to_string(), "--cpu", SERVER_CPU]);
        self.remember(&command);
        let server = Server::start(&mut command)?;
        Ok(Mount { folder, server: Some(server), under: None })
    }

    /// Mounts a new file system of contiguous files on a loop device over a new file.
    pub(super) fn mount_on_loop(
        &mut self,
        (file, bytes): (&Path, u64),
        folder: PathBuf,
    ) -> Result<Mount, String> {
        let under = LoopDevice::over(file, bytes)?;
        let volume = self.volume(&under.0, "")?;
        let mut mount = self.mount(&volume, folder)?;
        mount.under = Some(under);
        Ok(mount)
    }

    /// Mounts a new ext4 on a loop device over a new file.
    pub(super) fn mount_ext4(
        &mut self,
        (file, bytes): (&Path, u64),
        folder: PathBuf,
    ) -> Result<Mount, String> {
        let under = LoopDevice::over(file, bytes)?;
        self.run(Command::new("mkfs.ext4").args(["-q", &under.0]))?;
        self.run(Command::new("mount").args(["-t", "ext4", &under.0]).arg(&folder))?;
        Ok(Mount { folder, server: None, under: Some(under) })
    }
}
