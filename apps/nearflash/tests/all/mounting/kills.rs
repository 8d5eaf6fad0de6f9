//! The process that serves a mounted file system is killed, and what was made durable is there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::volume::FileVolume;
use crate::support::{PATIENCE, Rng, kills, wait_until};

/// The content of each file after the last change that ended: its fill, and its size; `None` for a
/// file whose removal has ended. A change that has not ended may have happened or not.
type Ledger = BTreeMap<String, Option<(u8, usize)>>;

/// A change that has begun.
type ChangeInProgress = Option<(String, Option<(u8, usize)>)>;

/// Creates, writes, syncs, renames and removes files, until the file system is gone.
fn work(folder: &Path, seed: u64, ledger: &Mutex<(Ledger, ChangeInProgress)>, stop: &AtomicBool) {
    let mut dice = Rng::of(seed);
    let note = |name: &str, now: Option<(u8, usize)>| {
        ledger.lock().unwrap().1 = Some((name.to_owned(), now));
    };
    let settle = || {
        let mut ledger = ledger.lock().unwrap();
        if let Some((name, now)) = ledger.1.take() {
            ledger.0.insert(name, now);
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let name = format!("file-{}", dice.roll(20));
        let path = folder.join(&name);
        let done = if dice.roll(4) == 0 {
            note(&name, None);
            match fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        } else {
            let (fill, size) = (1 + dice.roll(255) as u8, 1 + dice.roll(50_000) as usize);
            note(&name, Some((fill, size)));
            // A new file takes the place of the old one, whole.
            let new = folder.join("new");
            File::create(&new)
                .and_then(|file| {
                    file.write_all_at(&vec![fill; size], 0)?;
                    file.sync_all()
                })
                .and_then(|()| fs::rename(&new, &path))
        };
        // Changes of names are durable once the folder, or any file, was synced.
        match done.and_then(|()| File::open(folder)?.sync_all()) {
            Ok(()) => settle(),
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(error) => {
                // The file system is gone, now or amid the call, and soon the stop is asked for.
                assert!(matches!(error.raw_os_error(), Some(103 | 107)), "{error}");
                return;
            }
        }
    }
}

/// Returns what a file has: its fill, and its size.
fn found(path: &Path) -> Option<(u8, usize)> {
    let bytes = fs::read(path).ok()?;
    let fill = bytes.first().copied().unwrap_or(0);
    assert!(bytes.iter().all(|byte| *byte == fill), "{}: bytes of two writes", path.display());
    Some((fill, bytes.len()))
}

#[test]
fn what_was_synced_is_there_after_each_kill() {
    let Some(mut volume) = FileVolume::new() else { return };
    let ledger = Mutex::new((Ledger::new(), None));
    let mut dice = Rng::of(0xdead);
    for kill in 0..kills(10) {
        volume.mount();
        let stop = AtomicBool::new(false);
        let folder = volume.folder();
        let most = 20 + dice.roll(100);
        std::thread::scope(|scope| {
            let before = volume.path("progress");
            scope.spawn(|| work(&folder, 1 + u64::from(kill), &ledger, &stop));
            // So many changes of another file, at whose end the process is killed.
            for n in 0..most {
                fs::write(&before, n.to_string()).unwrap();
            }
            volume.kill();
            stop.store(true, Ordering::Relaxed);
        });
        volume.mount();
        let (settled, begun) = &mut *ledger.lock().unwrap();
        for (name, wanted) in &*settled {
            let found = found(&volume.path(name));
            let may = begun.as_ref().filter(|(begun, _)| begun == name).map(|(_, now)| *now);
            assert!(found == *wanted || Some(found) == may, "kill {kill}, {name}: {found:?}");
        }
        if let Some((name, _)) = begun.take() {
            settled.insert(name.clone(), found(&volume.path(&name)));
        }
        volume.unmount();
    }
}

#[test]
fn a_signal_takes_the_file_system_off() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    fs::write(volume.path("file"), "kept").unwrap();
    let open = OpenOptions::new().read(true).open(volume.path("file")).unwrap();
    let server = rustix::process::Pid::from_child(volume.server());
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    // Whoever has a file open goes on.
    wait_until("the folder is free", PATIENCE, || !volume.path("file").exists());
    let mut bytes = [0; 4];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kept");
    drop(open);
    wait_until("the process ends", PATIENCE, || volume.has_ended());
    volume.check();
    volume.mount();
    assert_eq!(fs::read(volume.path("file")).unwrap(), b"kept");
    volume.unmount();
}

#[test]
fn whoever_does_wrong_is_told_in_a_sentence() {
    let Some(mut volume) = FileVolume::new() else { return };
    let folder = volume.folder().display().to_string();
    let spec = volume.spec().to_owned();
    let said = volume.refused(&["fs", "create", &spec]);
    assert!(said.contains("already has a file system"), "{said}");
    let said = volume.refused(&["mount", "mem:64MiB", &folder]);
    assert!(said.contains("name a volume of flash translation"), "{said}");
    let said = volume.refused(&["umount", &folder]);
    assert!(said.contains("no file system of nearflash is mounted"), "{said}");
    let said = volume.refused(&["mount", &spec, "/nowhere/at/all"]);
    assert!(said.contains("cannot mount at /nowhere/at/all"), "{said}");
    volume.mount();
    let said = volume.refused(&["mount", &spec, &folder]);
    assert!(said.contains("is mounted at"), "{said}");
    let open = File::create(volume.path("file")).unwrap();
    let said = volume.refused(&["umount", &folder]);
    assert!(said.contains("somebody uses"), "{said}");
    drop(open);
    volume.unmount();
}
