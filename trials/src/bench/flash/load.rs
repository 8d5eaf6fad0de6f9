//! Loads on files, by a thread on the client's core, and the time that other work took meanwhile.

use std::fs::{File, OpenOptions, remove_file};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bench::packets::watch::threads;
use crate::siege::account::{ThreadTimes, named};

/// The number of the core reserved for the load.
const CLIENT_CPU: usize = 1;

/// Bytes of a page, which direct requests are aligned to.
const PAGE: usize = 4096;

/// Bytes of a request of a stream.
const STREAM: usize = 1 << 20;

/// Runs a load on a thread on the client's core. Returns its figure, and the largest share of the
/// time for which that thread, or one of these processes, waited because others ran.
pub(super) fn on_core(
    processes: &[u32],
    load: impl FnOnce() -> Result<f64, String> + Send,
) -> Result<(f64, f64), String> {
    let body = || {
        let mut core = CpuSet::new();
        core.set(CLIENT_CPU);
        sched_setaffinity(None, &core).map_err(|error| format!("core {CLIENT_CPU}: {error}"))?;
        let own = File::open("/proc/thread-self/schedstat").map_err(|error| error.to_string())?;
        let mut accounts = vec![own];
        for process in processes {
            accounts.extend(named(&threads(*process), "")?);
        }
        let read = || accounts.iter().map(ThreadTimes::read).collect::<Vec<_>>();
        let (began, before) = (Instant::now(), read());
        let figure = load()?;
        let (after, elapsed) = (read(), began.elapsed());
        let taken = after.iter().zip(&before).map(|(after, before)| after.taken_since(before));
        let taken = taken.max().unwrap_or_default();
        Ok((figure, taken.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)))
    };
    std::thread::scope(|scope| scope.spawn(body).join().map_err(|_| "the load died".to_owned())?)
}

/// Writes a file of `bytes` bytes that are not zeroes, and makes it durable.
pub(super) fn fill(path: &Path, bytes: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    let part: Vec<u8> = (0..STREAM).map(|at| (at % 251) as u8).collect();
    for _ in 0..bytes / STREAM as u64 {
        file.write_all(&part).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// Reads a file from its beginning to its end in parts of 1 MiB, again and again, each time without
/// what the kernel has cached of it. Returns the rate in MB/s.
pub(super) fn stream(path: &Path, bytes: u64, seconds: f64) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let mut part = vec![0; STREAM];
    let (mut read, mut time) = (0, Duration::ZERO);
    while time.as_secs_f64() < seconds {
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
        let began = Instant::now();
        for at in (0..bytes).step_by(STREAM) {
            file.read_exact_at(&mut part, at).map_err(failed)?;
        }
        time += began.elapsed();
        read += bytes;
    }
    Ok(read as f64 / time.as_secs_f64() / 1e6)
}

/// Reads pages at random around the kernel's cache, one at a time. Returns the mean time in µs.
pub(super) fn direct(path: &Path, bytes: u64, seconds: f64) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = file.open(path).map_err(failed)?;
    let mut memory = vec![0; 2 * PAGE];
    let skip = memory.as_ptr().align_offset(PAGE);
    let page = &mut memory[skip..skip + PAGE];
    let (mut state, mut count) = (1_u64, 0_u32);
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < seconds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) % (bytes / PAGE as u64) * PAGE as u64;
        file.read_exact_at(page, at).map_err(failed)?;
        count += 1;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

/// Creates files of one page in a folder, makes each durable and removes it, one after the other.
/// Returns how many a second.
pub(super) fn names(folder: &Path, seconds: f64) -> Result<f64, String> {
    let (mut count, page, began) = (0_u32, [7; PAGE], Instant::now());
    while began.elapsed().as_secs_f64() < seconds {
        let path = folder.join(format!("file-{count}"));
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = File::create(&path).map_err(failed)?;
        file.write_all(&page).and_then(|()| file.sync_all()).map_err(failed)?;
        drop(file);
        remove_file(&path).map_err(failed)?;
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_on_files_have_figures() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fill(&path, 2 << 20).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 2 << 20);
        assert!(stream(&path, 2 << 20, 0.001).unwrap() > 0.0);
        assert!(stream(&path, 3 << 20, 0.01).is_err(), "it is shorter");
        assert!(names(place.path(), 0.01).unwrap() > 0.0);
        let left = place.path().read_dir().unwrap().count();
        assert_eq!(left, 1, "what was created is removed");
    }
}
