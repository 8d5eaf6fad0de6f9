//! The process that serves a mounted file system, and the command that takes it off.
//!
//! The process holds the lock of the folder beneath the mount. So whoever has taken the file system
//! off can wait until its volume is closed. The lock is a file that only root can open: users may
//! lock the folder itself.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use contigfs::{FileSystem, Settings};
use contract::BufPool;
use dataplane::{OfflineVolume, Volume, close};
use io::fuse::{Channel, mounted, unmount};
use io::{SpinPolicy, carve, run};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::{BUFFERS, DEPTH, Engine};
use crate::maintain::{now, seed};
use crate::options::{MountArgs, UmountArgs};

/// The folder of the locks. It ends with the machine's run, and not with a server.
const LOCKS: &str = "/run/nearflash-mount";

/// The error number `EBUSY`: a process uses the file system.
const BUSY: i32 = 16;

/// The error number `ENOTCONN`: the server of the file system has ended.
const NOT_CONNECTED: i32 = 107;

/// Mounts a file system and serves it.
pub(crate) fn mount(args: &MountArgs, print: &dyn Fn(&str)) -> Result<(), String> {
    if let Some(cpu) = args.cpu {
        io::pin_to_cpu(cpu).map_err(|error| error.to_string())?;
    }
    let folder = clear(&args.folder)?;
    let _lock = lock(Path::new(LOCKS), &folder)?;
    let mut medium = OfflineVolume::open(&args.spec)?;
    let settings = Settings {
        commit_pages_max: medium.commit_pages_max(),
        seed: seed(),
        read_only: args.read_only,
    };
    match contigfs::mount(&mut medium, &settings) {
        Ok(fs) => serve(args, &folder, medium, fs, print),
        Err(error) => {
            medium.close();
            Err(format!("{}: {error}", name(args)))
        }
    }
}

/// Returns the name of the volume.
fn name(args: &MountArgs) -> String {
    Volume::identity(&args.spec).unwrap_or_else(|| "the volume".to_owned())
}

/// Returns the absolute path of a folder to mount at. A dead file system there, whose server has
/// ended, is unmounted.
fn clear(folder: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("cannot mount at {}: {error}", folder.display());
    let path = find(folder).map_err(failed)?;
    let Some(at) = mounted(&path).map_err(failed)? else { return Ok(path) };
    if !is_dead(&path) {
        return Err(format!(
            "{} is mounted at {} already; take it off (`nearflash umount`)",
            at.source.to_string_lossy(),
            path.display()
        ));
    }
    unmount(&path, true).map_err(failed)?;
    clear(folder)
}

/// Returns the absolute path of a folder at which a dead file system, whose server has ended, may
/// be mounted.
fn find(folder: &Path) -> std::io::Result<PathBuf> {
    match folder.canonicalize() {
        Err(error) if error.raw_os_error() == Some(NOT_CONNECTED) => std::path::absolute(folder),
        found => found,
    }
}

/// Returns `true` if the server of the file system that is mounted at the folder has ended. The
/// test asks for the sizes of the file system, which the kernel does not cache.
fn is_dead(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Opens the lock of a folder: a file below `locks` that has the numbers of the folder's device and
/// inode for a name.
fn lock_file(locks: &Path, folder: &Path) -> Result<File, Error> {
    match DirBuilder::new().mode(0o700).create(locks) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = locks.join(lock_name(folder)?);
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn lock_name(folder: &Path) -> Result<String, Error> {
    let of = folder.metadata()?;
    Ok(format!("{}-{}", of.dev(), of.ino()))
}

/// Takes the lock of a folder.
fn lock(locks: &Path, folder: &Path) -> Result<File, String> {
    let failed = |error| format!("cannot mount at {}: {error}", folder.display());
    let file = lock_file(locks, folder).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(format!(
            "another process serves {}, or closes its volume; wait for its end",
            folder.display()
        )),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn serve(
    args: &MountArgs,
    folder: &Path,
    medium: OfflineVolume,
    fs: FileSystem,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let (volume, device, ring, clock) = medium.into_parts();
    let arena = carve(&BUFFERS).map_err(|error| error.to_string())?;
    if volume.is_direct()
        && let Err(error) = ring.register_buffers(&arena)
    {
        tracing::warn!("{error}");
    }
    // Whatever fails from here on to the mount leaves nothing mounted.
    let is_mounted = heed_signals(folder.to_owned())?;
    let file = io::fuse::mount(&name(args), folder, args.read_only);
    let file = file.map_err(|error| error.to_string())?;
    let channel = Channel::open(file, &ring, OfflineVolume::other_owner(), DEPTH);
    let mut engine = Engine::new(channel, device, fs, BufPool::new(arena.bufs), volume.chores());
    if args.durable_names {
        engine.make_names_durable();
    }
    if let Ok(Some(at)) = mounted(folder)
        && let Err(error) = at.read_ahead()
    {
        tracing::warn!("the kernel reads ahead less than it could: {error}");
    }
    // The thread that heeds signals waits for this, and ends with the process only.
    let _ = is_mounted.send(());
    print(&format!("ready: {}", folder.display()));
    run(&ring, &clock, SpinPolicy { spin: args.spin() }, |at| engine.turn(at, now()));
    let has_flushed = engine.has_flushed();
    let (channel, device, fs) = engine.into_parts();
    close(&volume, device, &ring, &clock);
    match channel.failure() {
        Some(error) => Err(format!("the kernel has refused a message: {error}")),
        None if fs.is_read_only() && !args.read_only => {
            Err("the volume has failed to write: see the log, and check the file system".to_owned())
        }
        None if !has_flushed => Err(
            "the volume has failed at the last flush: what was not synced before may be lost; see \
             the log, and check the file system"
                .to_owned(),
        ),
        None => Ok(()),
    }
}

/// Unmounts the file system on a signal to end, while the thread of the caller serves it. A second
/// signal ends the process. Signals wait until the returned sender tells that the file system is
/// mounted.
fn heed_signals(folder: PathBuf) -> Result<Sender<()>, String> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot wait for signals: {error}"))?;
    let (sender, mounted) = std::sync::mpsc::channel();
    let heed = move || {
        if mounted.recv().is_err() {
            return;
        }
        let mut asked = 0;
        for _ in signals.forever() {
            asked += 1;
            if asked > 1 {
                std::process::exit(1);
            }
            match unmount(&folder, false) {
                Err(error) if error.raw_os_error() == Some(BUSY) => {
                    tracing::warn!(
                        "somebody uses the file system: it ends when nobody does any more, or at \
                         another signal"
                    );
                    // Whoever has taken it off meanwhile has done what was asked.
                    let _ = unmount(&folder, true);
                }
                Err(error) => tracing::warn!("the file system is not taken off: {error}"),
                Ok(()) => {}
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(heed);
    thread.map(|_| sender).map_err(|error| format!("cannot start a thread for signals: {error}"))
}

/// Takes a file system off, and waits until its process has closed the volume.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), String> {
    let failed = |error| format!("cannot unmount {}: {error}", args.folder.display());
    let path = find(&args.folder).map_err(failed)?;
    if mounted(&path).map_err(failed)?.is_none() {
        return Err(format!("no file system of nearflash is mounted at {}", path.display()));
    }
    unmount(&path, args.detach).map_err(|error| match error.raw_os_error() {
        Some(BUSY) => format!(
            "somebody uses {}: end what does (`fuser -m`), or take it off with --detach",
            path.display()
        ),
        _ => failed(error),
    })?;
    if !args.detach {
        lock_file(Path::new(LOCKS), &path).and_then(|file| file.lock()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_locks_the_folder_is_not_in_the_way() {
        let place = tempfile::tempdir().unwrap();
        let (locks, folder) = (place.path().join("locks"), place.path().join("folder"));
        std::fs::create_dir(&folder).unwrap();
        let users = File::open(&folder).unwrap();
        users.lock().unwrap();
        let held = lock(&locks, &folder).unwrap();
        let refused = lock(&locks, &folder).unwrap_err();
        assert!(refused.contains("another process serves"), "{refused}");
        for (path, mode) in
            [(locks.clone(), 0o700), (locks.join(lock_name(&folder).unwrap()), 0o600)]
        {
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode, "{}", path.display());
        }
        drop(held);
        lock(&locks, &folder).unwrap();
    }
}
