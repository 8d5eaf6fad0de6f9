//! User-space iSCSI as a yardstick: Debian's target `tgt`, and a measuring initiator that uses
//! `libiscsi` (`crates/io/examples/iscsi.rs`).

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::real::{Point, RealTimeSettings};
use crate::child::Helper;

const TARGET: &str = "iqn.2026-11.nearflash:yardstick";

/// Bytes of the disk that the iSCSI target serves, from memory.
const BYTES: u64 = 64 << 20;

/// The control port that distinguishes our `tgtd` daemon from others on the machine.
const CONTROL_PORT: &str = "77";

/// Measures single reads, then single writes, of 4 KiB over iSCSI to memory. Returns the points of
/// reads and of writes.
pub(super) fn measure(bed: &RealTimeSettings) -> Result<[Point; 2], String> {
    let client = bed.yardstick("iscsi").ok_or(
        "its initiator is not built (cargo build --release -p nearflash-io --example iscsi)",
    )?;
    let file = tempfile::NamedTempFile::new_in("/dev/shm").map_err(|e| format!("/dev/shm: {e}"))?;
    file.as_file().set_len(BYTES).map_err(|e| format!("/dev/shm: {e}"))?;
    let portal = free_port()?;
    let listen = format!("portal={portal}");
    let mut daemon = Command::new("tgtd");
    daemon.args(["-f", "-C", CONTROL_PORT, "--iscsi", &listen]).stderr(Stdio::null());
    let _target = Helper::start(&mut daemon)
        .map_err(|e| format!("{e} (apt-get install tgt libiscsi7 brings it)"))?;
    let path = file.path().display().to_string();
    let steps: [&[&str]; 3] = [
        &["--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET],
        &["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &path],
        &["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
    ];
    for step in steps {
        administer(step)?;
    }
    let mut points: Vec<[Point; 2]> = Vec::new();
    for _ in 0..bed.repetitions() {
        let words = [&portal.to_string(), TARGET, "--seconds", bed.seconds()];
        let output = Command::new(&client).args(words).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        points.push(parse(&String::from_utf8_lossy(&output.stdout))?);
    }
    points.sort_by(|a, b| a[0].p95_us.total_cmp(&b[0].p95_us));
    Ok(points.swap_remove(points.len() / 2))
}

/// Runs `tgtadm` on the daemon, up to 50 times in case the daemon has just been started.
fn administer(words: &[&str]) -> Result<(), String> {
    let mut said = String::new();
    for _ in 0..50 {
        let mut command = Command::new("tgtadm");
        command.args(["-C", CONTROL_PORT, "--lld", "iscsi"]).args(words);
        let output = command.output().map_err(|e| format!("tgtadm: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!("tgtadm: {said}"))
}

/// Returns a loopback address with a port that was free a moment ago.
fn free_port() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.local_addr().map_err(|e| e.to_string())
}

/// Parses the initiator's output: a line `read MEAN P95` and a line `write MEAN P95`, in µs.
fn parse(text: &str) -> Result<[Point; 2], String> {
    let point = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut numbers = line.split_whitespace().map(|word| word.parse::<f64>().ok());
        let (mean_us, p95_us) = (numbers.next()??, numbers.next()??);
        Some(Point { iops: 1e6 / mean_us, mean_us, p95_us })
    };
    let both = point("read ").zip(point("write "));
    both.map(|(read, write)| [read, write]).ok_or(format!("the initiator said {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initiators_words_are_understood() {
        let [read, write] = parse("read 24.5 30.125\nwrite 20 25\n").unwrap();
        assert_eq!((read.mean_us, read.p95_us, write.p95_us), (24.5, 30.125, 25.0));
        assert!(parse("read 1 2\n").is_err());
    }
}
