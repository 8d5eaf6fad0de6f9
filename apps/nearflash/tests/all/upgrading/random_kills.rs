//! Tests that one process serves all acknowledged writes after either process of a take-over was
//! killed at a random instant (docs/adr/0009-upgrade.md).

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Launch, PATIENCE, Rng, Server, ServerFolder, StartingServer, kills, nearflash, pattern,
    v1_head, wait_until,
};

/// The longest time in microseconds from the start of the new process to a kill: about as long as a
/// take-over of an idle server takes.
const LONGEST_US: u64 = 200_000;

/// Maximum number of take-overs for each kill, since some are over before the kill.
const TRIES: u32 = 20;

const BLOCKS: u32 = 8;

/// The files of the two servers of a take-over. They listen at a Unix socket, whose path is equal
/// in both processes.
struct TakeOverFiles {
    place: ServerFolder,
    /// The specification of the device.
    device: String,
}

impl TakeOverFiles {
    /// Returns a scene whose device is a file.
    fn of_file() -> TakeOverFiles {
        let place = ServerFolder::in_memory().of_workers("1");
        let device = place.file("device");
        TakeOverFiles { place, device }
    }

    /// Returns a scene whose device is a volume of flash translation.
    fn of_volume() -> TakeOverFiles {
        let place = ServerFolder::in_memory().of_workers("1");
        let device = format!("ftl:file:{}", place.path("device").display());
        let made =
            nearflash(&["ftl", "create", &format!("{device}?size=64MiB&ftl.segment=256KiB")])
                .output()
                .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        TakeOverFiles { place, device }
    }

    fn launch(&self) -> Launch {
        let listen = format!("reflex+unix:{}", self.place.path("data").display());
        let words = ["--device", &self.device, "--listen", &listen];
        self.place.crewed(Launch::new(&words)).log("warn,nearflash_server=debug")
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.place.path("data"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Reads the first eight blocks; fails if no process serves.
    fn read(&self) -> std::io::Result<Vec<u8>> {
        let mut stream = self.connect()?;
        stream.write_all(&v1_head(0, 3, 0, BLOCKS))?;
        let mut answer = vec![0; 24 + BLOCKS as usize * 512];
        stream.read_exact(&mut answer)?;
        Ok(answer.split_off(24))
    }

    /// Kills the newer or the older process after the time `after`, while a client writes, and
    /// waits until one process serves. Returns `false` if the take-over was over before the kill.
    fn play(&self, kills_newer: bool, after: Duration) -> bool {
        let mut old = self.launch().start();
        let mut writer = Writer { stream: self.connect().unwrap(), acknowledged: 0 };
        writer.write().unwrap();
        let mut new: StartingServer = self.launch().with("--upgrade").begin();
        let stops = AtomicBool::new(false);
        let acknowledged = std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                while !stops.load(Ordering::Relaxed) {
                    if writer.write().is_err() {
                        break;
                    }
                }
                writer.acknowledged
            });
            std::thread::sleep(after);
            let victim: &mut Server = if kills_newer { &mut new } else { &mut old };
            let runs = victim.runs();
            if runs {
                victim.kill();
            }
            stops.store(true, Ordering::Relaxed);
            let acknowledged = writes.join().unwrap();
            runs.then_some(acknowledged)
        });
        let Some(acknowledged) = acknowledged else { return false };
        let (mut is_over, mut found) = (false, None);
        wait_until("a process that serves", PATIENCE, || {
            is_over = kills_newer && old.log().contains("name=\"over\"");
            found = self.read().ok();
            is_over || found.is_some()
        });
        let survivor: &mut Server = if kills_newer { &mut old } else { &mut new };
        let Some(found) = found else { return false };
        assert!(survivor.runs(), "{}", survivor.log());
        let of_version = |version: u8| pattern(0, BLOCKS, version);
        let (written, begun) = (of_version(acknowledged), of_version(acknowledged.wrapping_add(1)));
        for (n, block) in found.chunks(512).enumerate() {
            let at = n * 512..(n + 1) * 512;
            let is_there = [&written[at.clone()], &begun[at]].contains(&block);
            assert!(is_there, "block {n}: an acknowledged write is lost: {}", survivor.log());
        }
        let mut writer = Writer { stream: self.connect().unwrap(), acknowledged };
        writer.write().expect("who serves also writes");
        true
    }
}

/// A client that writes the first eight blocks again and again, each time with the next version.
struct Writer {
    stream: UnixStream,
    /// The last version whose write was acknowledged.
    acknowledged: u8,
}

impl Writer {
    fn write(&mut self) -> std::io::Result<()> {
        let version = self.acknowledged.wrapping_add(1);
        self.stream.write_all(&v1_head(1, 7, 0, BLOCKS))?;
        self.stream.write_all(&pattern(0, BLOCKS, version))?;
        let answered = self.stream.read_exact(&mut [0; 24]);
        let is_silent = answered.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!is_silent, "neither an answer nor an end");
        answered.map(|()| self.acknowledged = version)
    }
}

/// Kills one process of so many take-overs, the older one and the newer in turns, each at an
/// instant of chance.
fn kill_any(kills: u32, mut dice: Rng, scene: impl Fn() -> TakeOverFiles) {
    let (mut judged, mut tries) = ([0, 0], 0);
    while judged[0] + judged[1] < kills {
        let kills_newer = judged[1] < judged[0];
        let after = Duration::from_micros(dice.roll(LONGEST_US));
        let is_judged = scene().play(kills_newer, after);
        judged[usize::from(kills_newer)] += u32::from(is_judged);
        tries += 1;
        assert!(tries < kills * TRIES, "take-overs are over before they can be killed");
    }
    let [older, newer] = judged;
    println!(
        "one process served after each of {older} kills of the older and {newer} of the newer"
    );
    println!("{} take-overs were over before the kill", tries - kills);
}

#[test]
#[ignore = "full: two hundred take-overs take minutes"]
fn two_hundred_kills_of_a_take_over_leave_one_process_serving_each() {
    kill_any(kills(200), Rng::of(0x9e37_79b9_7f4a_7c15), TakeOverFiles::of_file);
}

#[test]
#[ignore = "full: two hundred take-overs take minutes"]
fn two_hundred_kills_of_a_take_over_of_a_volume_leave_one_process_serving_each() {
    kill_any(kills(200), Rng::of(0x2545_f491_4f6c_dd1d), TakeOverFiles::of_volume);
}
