//! Tests on the oldest supported kernel, and on a kernel that forbids io_uring.

use std::time::Duration;

use super::chance::Rng;
use super::guest::{Backing, Controller, Disk, Guest, Machine};
use super::kill_server::Report;
use super::ledger::{BLOCK, Ledger};
use super::load::{Load, survey};
use super::port::free_port;
use super::power_cut::await_device;
use super::reflex::Connection;
use super::{Context, Verdict};

const VOLUME_BYTES: usize = 64 << 20;

/// The time limit of quick commands in the guest.
const SOON: Duration = Duration::from_secs(60);

/// Serves a null device, memory and a file, and runs the load generator against each. Server,
/// client and verification all run on the old kernel.
pub(super) fn io_uring(context: &Context) -> Result<Verdict, String> {
    let mut guest = boot(context, Vec::new())?;
    let release = guest.must("uname -r", SOON)?.trim().to_owned();
    let devices = [
        ("null:64MiB".to_owned(), ""),
        ("mem:64MiB".to_owned(), "--verify"),
        (format!("file:/mnt/disk/volume?size={VOLUME_BYTES}"), "--verify"),
    ];
    let program = context.nearflash.display();
    let mut summary = vec![release];
    for (number, (device, verify)) in devices.iter().enumerate() {
        let port = 7420 + number;
        let listen = format!("reflex://127.0.0.1:{port}");
        let serve = format!(
            "echo $$ >/run/server{port}; exec {program} serve --device '{device}' --listen {listen}"
        );
        guest.serve(&serve, SOON)?;
        let rings = format!("ls -l /proc/$(cat /run/server{port})/fd | grep -c io_uring");
        guest.must(&rings, SOON).map_err(|_| format!("{device} is not served by io_uring"))?;
        let bench = format!(
            "exec {program} bench {listen} {verify} --read-percent 50 --queue-depth 8 \
             --connections 2 --seconds 3 --warmup 0 --json"
        );
        let output = guest.run(&bench, SOON)?;
        let report = Report::find(&output.text)?;
        if report.errors + report.verify_failures > 0 || report.write.count < 10 {
            return Err(format!("{device}: {report:?}\n{}", output.text));
        }
        summary.push(format!("{device} {} + {}", report.read.count, report.write.count));
        guest.must(&format!("kill -TERM $(cat /run/server{port})"), SOON)?;
    }
    guest.stop()?;
    Ok(Verdict::Passed(summary.join(", ")))
}

/// Serves a file on a kernel that forbids io_uring. The load comes from the host.
pub(super) fn without_io_uring(context: &Context) -> Result<Verdict, String> {
    let port = free_port()?;
    let mut guest = boot(context, vec![(port, 7420)])?;
    let forbid = "echo 2 >/proc/sys/kernel/io_uring_disabled";
    let release = guest.must("uname -r", SOON)?.trim().to_owned();
    if guest.run(forbid, SOON)?.status != 0 {
        return Ok(Verdict::Skipped(format!("kernel {release} cannot forbid io_uring")));
    }
    let program = context.nearflash.display();
    let device = format!("file:/mnt/disk/volume?size={VOLUME_BYTES}");
    let serve = format!(
        "exec {program} serve --insecure --listen reflex://0.0.0.0:7420 --device '{device}'"
    );
    guest.serve(&serve, SOON)?;
    let mut connection = Connection::open(&format!("127.0.0.1:{port}"), SOON)?;
    let mut ledger = Ledger::new(77 << 40, VOLUME_BYTES / BLOCK);
    let mut chance = Rng::new(context.seed ^ 77);
    let load = Load::of_all(&mut connection, &mut ledger, &mut chance);
    let counts = load.for_time(Duration::from_secs(3))?;
    survey(&mut connection, &mut ledger)?.verdict()?;
    guest.stop()?;
    let changes = counts.plain + counts.forced + counts.zeroed;
    Ok(Verdict::Passed(format!("{release}: {changes} changes read back")))
}

/// Boots a guest that forwards these ports and has ext4 on an NVMe disk at `/mnt/disk`.
fn boot(context: &Context, forwards: Vec<(u16, u16)>) -> Result<Guest, String> {
    let image = context.folder.join("disk.image");
    let file = std::fs::File::create(&image);
    file.and_then(|file| file.set_len(256 << 20))
        .map_err(|error| format!("{}: {error}", image.display()))?;
    let (qemu, kernel) = context.tools()?;
    let disk = Disk { controller: Controller::Nvme, backing: Backing::Image(image) };
    let share = &context.folder;
    let mut guest = Machine { qemu, kernel, share, disks: vec![disk], forwards }.boot("boot")?;
    guest.must(&await_device("/dev/nvme0n1"), SOON)?;
    guest.must(
        "mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /mnt/disk && mount /dev/nvme0n1 /mnt/disk",
        SOON,
    )?;
    Ok(guest)
}
