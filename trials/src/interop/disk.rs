//! A simulated disk with a volatile cache that loses power, like a drive without capacitors.
//!
//! Writes go to the cache; a flush, or forced unit access, moves them to the media. When the power
//! fails, chance decides for each cached sector whether it reaches the media, since drives write
//! back in any order. The guest's emulator reaches the disk over NBD (the protocol is described in
//! `doc/proto.md` of the NBD project), so the disk outlives the guest.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::chance::Rng;

const SECTOR: usize = 512;

/// The largest request in bytes that the disk announces to the emulator.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// A simulated disk that serves one emulator after the other, each in a thread of its own.
pub(crate) struct VolatileDisk {
    state: Arc<Mutex<State>>,
    server: Option<JoinHandle<()>>,
}

struct State {
    media: Vec<u8>,
    /// The cached contents of sectors, by sector number. A discarded sector holds zeroes.
    cache: BTreeMap<u64, [u8; SECTOR]>,
    /// `true` if the disk acknowledges flushes and forced unit access without doing them.
    lies: bool,
    counts: Counts,
}

/// The numbers of requests of each kind that a disk has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) forced: u64,
    pub(crate) flushes: u64,
    pub(crate) zeroings: u64,
}

impl VolatileDisk {
    /// Creates a disk of `bytes` zeroes. A disk that `lies` acknowledges flushes and forced unit
    /// access without doing them.
    pub(crate) fn new(bytes: usize, lies: bool) -> VolatileDisk {
        let cache = BTreeMap::new();
        let state = State { media: vec![0; bytes], cache, lies, counts: Counts::default() };
        VolatileDisk { state: Arc::new(Mutex::new(state)), server: None }
    }

    /// Listens at `socket`, and serves the one emulator that connects next.
    pub(crate) fn attach(&mut self, socket: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", socket.display());
        if socket.exists() {
            fs::remove_file(socket).map_err(failed)?;
        }
        let listener = UnixListener::bind(socket).map_err(failed)?;
        let state = Arc::clone(&self.state);
        self.server = Some(std::thread::spawn(move || {
            let served = listener.accept().and_then(|(stream, _)| serve(stream, &state));
            if let Err(error) = served
                && error.kind() != io::ErrorKind::UnexpectedEof
                && error.kind() != io::ErrorKind::ConnectionReset
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                println!("    disk: {error}");
            }
        }));
        Ok(())
    }

    /// Waits for the emulator's end and cuts the power: each cached sector reaches the media with a
    /// chance of `survive` percent. Returns the number of sectors that were lost.
    pub(crate) fn lose_power(&mut self, survive: u64, chance: &mut Rng) -> usize {
        self.detach();
        let state = &mut *self.state();
        let mut lost = 0;
        for (sector, bytes) in std::mem::take(&mut state.cache) {
            match chance.below(100) < survive {
                true => state.persist(sector, &bytes),
                false => lost += 1,
            }
        }
        lost
    }

    /// Waits until the connection of the emulator has ended, which happens when the emulator ends.
    fn detach(&mut self) {
        if let Some(server) = self.server.take() {
            server.join().expect("serving a disk does not panic");
        }
    }

    /// Returns the numbers of requests since the disk was created.
    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Writes the contents of the media to a file for inspection, and returns its path.
    pub(crate) fn save(&self, path: &Path) -> Result<PathBuf, String> {
        let written = fs::write(path, &self.state().media);
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.to_path_buf())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    fn persist(&mut self, sector: u64, bytes: &[u8; SECTOR]) {
        let at = sector as usize * SECTOR;
        self.media[at..at + SECTOR].copy_from_slice(bytes);
    }

    fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let at = offset as usize;
        let mut data = self.media[at..at + bytes].to_vec();
        let first = offset / SECTOR as u64;
        for (sector, cached) in self.cache.range(first..first + (bytes / SECTOR) as u64) {
            let at = (sector - first) as usize * SECTOR;
            data[at..at + SECTOR].copy_from_slice(cached);
        }
        data
    }

    fn write(&mut self, offset: u64, data: &[u8], forced: bool) {
        let first = offset / SECTOR as u64;
        for (number, bytes) in data.chunks_exact(SECTOR).enumerate() {
            let sector = first + number as u64;
            let bytes: &[u8; SECTOR] = bytes.try_into().expect("it is a whole sector");
            if forced && !self.lies {
                self.cache.remove(&sector);
                self.persist(sector, bytes);
            } else {
                self.cache.insert(sector, *bytes);
            }
        }
    }

    fn flush(&mut self) {
        if self.lies {
            return;
        }
        for (sector, bytes) in std::mem::take(&mut self.cache) {
            self.persist(sector, &bytes);
        }
    }
}

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Fixed newstyle negotiation, no padding.
const HANDSHAKE_FLAGS: u16 = 0b11;
/// The export has flags, and serves flush, forced unit access, trim and write zeroes.
const EXPORT_FLAGS: u16 = 0b110_1101;

const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;
const COMMAND_TRIM: u16 = 4;
const COMMAND_WRITE_ZEROES: u16 = 6;
const FLAG_FUA: u16 = 1;
const ERROR_INVALID: u32 = 22;

/// Serves the NBD connection of one emulator to its end.
fn serve(mut stream: UnixStream, state: &Mutex<State>) -> io::Result<()> {
    stream.write_all(&MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&HANDSHAKE_FLAGS.to_be_bytes())?;
    let _client_flags: [u8; 4] = read(&mut stream)?;
    loop {
        let [_magic, head] = [read::<8>(&mut stream)?, read::<8>(&mut stream)?];
        let (option, bytes) = (be32(&head[..4]), be32(&head[4..]));
        let mut data = vec![0; bytes.min(REQUEST_BYTES_MAX) as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPTION_ABORT => return Ok(()),
            OPTION_GO => break,
            _ => reply_to_option(&mut stream, option, REPLY_UNSUPPORTED, &[])?,
        }
    }
    let size = state.lock().expect("no holder panics").media.len() as u64;
    let export = [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &EXPORT_FLAGS.to_be_bytes()];
    reply_to_option(&mut stream, OPTION_GO, REPLY_INFO, &export.concat())?;
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    for bytes in [SECTOR as u32, 4096, REQUEST_BYTES_MAX] {
        sizes.extend(bytes.to_be_bytes());
    }
    reply_to_option(&mut stream, OPTION_GO, REPLY_INFO, &sizes)?;
    reply_to_option(&mut stream, OPTION_GO, REPLY_ACK, &[])?;
    while serve_request(&mut stream, state)? {}
    Ok(())
}

fn reply_to_option(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for field in [option, kind, data.len() as u32] {
        reply.extend(field.to_be_bytes());
    }
    reply.extend(data);
    stream.write_all(&reply)
}

/// Serves one NBD request. Returns `false` when the emulator disconnects.
fn serve_request(stream: &mut UnixStream, state: &Mutex<State>) -> io::Result<bool> {
    let head: [u8; 28] = read(stream)?;
    let (magic, cookie) = (be32(&head[..4]), &head[8..16]);
    let flags = u16::from_be_bytes([head[4], head[5]]);
    let command = u16::from_be_bytes([head[6], head[7]]);
    let offset = u64::from(be32(&head[16..20])) << 32 | u64::from(be32(&head[20..24]));
    let bytes = be32(&head[24..]);
    if magic != REQUEST_MAGIC || bytes > REQUEST_BYTES_MAX && command == COMMAND_WRITE {
        return Err(io::Error::other("the emulator does not speak NBD"));
    }
    let mut payload = Vec::new();
    if command == COMMAND_WRITE {
        payload.resize(bytes as usize, 0);
        stream.read_exact(&mut payload)?;
    }
    let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
    let mut state = state.lock().expect("no holder panics");
    let aligned = (offset | u64::from(bytes)).is_multiple_of(SECTOR as u64);
    let fits = offset + u64::from(bytes) <= state.media.len() as u64;
    let forced = flags & FLAG_FUA != 0;
    let outcome = match command {
        COMMAND_DISCONNECT => return Ok(false),
        COMMAND_FLUSH => {
            state.counts.flushes += 1;
            state.flush();
            Some(Vec::new())
        }
        _ if !aligned || !fits => None,
        COMMAND_READ => Some(state.read(offset, bytes as usize)),
        COMMAND_WRITE => {
            state.counts.writes += 1;
            state.counts.forced += u64::from(forced);
            state.write(offset, &payload, forced);
            Some(Vec::new())
        }
        COMMAND_TRIM | COMMAND_WRITE_ZEROES => {
            state.counts.zeroings += 1;
            state.write(offset, &vec![0; bytes as usize], forced);
            Some(Vec::new())
        }
        _ => None,
    };
    drop(state);
    let error = if outcome.is_some() { 0 } else { ERROR_INVALID };
    reply.extend(error.to_be_bytes());
    reply.extend(cookie);
    reply.extend(outcome.unwrap_or_default());
    stream.write_all(&reply)?;
    Ok(true)
}

fn read<const BYTES: usize>(stream: &mut UnixStream) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(disk: &VolatileDisk) -> MutexGuard<'_, State> {
        disk.state()
    }

    #[test]
    fn what_was_flushed_or_forced_stays_and_the_rest_is_up_to_chance() {
        let mut disk = VolatileDisk::new(1 << 20, false);
        state(&disk).write(0, &[1; 4096], false);
        state(&disk).flush();
        state(&disk).write(4096, &[2; 4096], true);
        state(&disk).write(8192, &[3; 65536], false);
        assert_eq!(state(&disk).read(8192 + 512, 512), [3; 512]);
        let lost = disk.lose_power(50, &mut Rng::new(1));
        assert!((20..108).contains(&lost), "{lost} of 128");
        assert_eq!(state(&disk).read(0, 4096), [1; 4096]);
        assert_eq!(state(&disk).read(4096, 4096), [2; 4096]);
        let kept = state(&disk).read(8192, 65536).chunks(512).filter(|s| s[0] == 3).count();
        assert_eq!(kept, 128 - lost);
    }

    #[test]
    fn a_forced_write_is_not_undone_by_an_older_one_in_the_cache() {
        let mut disk = VolatileDisk::new(1 << 20, false);
        state(&disk).write(0, &[1; 512], false);
        state(&disk).write(0, &[2; 512], true);
        disk.lose_power(100, &mut Rng::new(1));
        assert_eq!(state(&disk).read(0, 512), [2; 512]);
    }

    #[test]
    fn a_disk_that_lies_loses_what_it_promised() {
        let mut disk = VolatileDisk::new(1 << 20, true);
        state(&disk).write(0, &[1; 512], true);
        state(&disk).flush();
        assert_eq!(disk.lose_power(0, &mut Rng::new(1)), 1);
        assert_eq!(state(&disk).read(0, 512), [0; 512]);
    }
}
