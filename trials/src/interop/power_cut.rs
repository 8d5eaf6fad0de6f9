//! Tests that cut the power under load: writes acknowledged as durable must be there afterwards.
//!
//! A guest serves a volume on a disk with a volatile cache, and a client on the host writes to it.
//! At a random moment the guest dies with everything in its memory, and chance decides which cached
//! sectors reach the disk's media. Then the same disk boots again and every block is read.

use std::path::Path;
use std::time::Duration;

use super::chance::Rng;
use super::disk::VolatileDisk;
use super::guest::{Backing, Controller, Disk, Guest, Machine};
use super::ledger::{BLOCK, Ledger};
use super::load::{DurabilityPromise, Load, Mix, Survey, survey};
use super::port::free_port;
use super::reflex::Connection;
use super::{Context, Verdict};

/// The size of the disk, in bytes.
const DISK_BYTES: usize = 160 << 20;

/// The size in bytes of the volume, which is a file on the disk or the beginning of the disk.
const VOLUME_BYTES: usize = 32 << 20;

/// The time limit of quick commands in the guest.
const SOON: Duration = Duration::from_secs(60);

/// The kind of volume on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeKind {
    /// A new sparse file on ext4, whose metadata changes with almost every write.
    Sparse,
    /// A file whose space is allocated and was never written.
    Preallocated,
    /// The beginning of the disk, without a file system.
    Raw,
}

/// A disk with a volume, whose power is cut several times.
struct PowerCutTrial<'a> {
    context: &'a Context,
    place: VolumeKind,
    controller: Controller,
    disk: VolatileDisk,
    ledger: Ledger,
    chance: Rng,
    lost_unpromised: u64,
}

pub(super) fn sparse(context: &Context) -> Result<Verdict, String> {
    honest(context, VolumeKind::Sparse, Controller::Virtio, 11)
}

pub(super) fn preallocated(context: &Context) -> Result<Verdict, String> {
    honest(context, VolumeKind::Preallocated, Controller::Virtio, 22)
}

pub(super) fn raw(context: &Context) -> Result<Verdict, String> {
    honest(context, VolumeKind::Raw, Controller::Virtio, 33)
}

/// Cuts the power of a disk without a cache, which can lose only what is in the guest's memory: for
/// a sparse file, the metadata that says where its data lies.
pub(super) fn nvme(context: &Context) -> Result<Verdict, String> {
    honest(context, VolumeKind::Sparse, Controller::Nvme, 44)
}

/// Checks the checker: a disk that acknowledges flushes without doing them must be seen to break
/// promises.
pub(super) fn lying_disk(context: &Context) -> Result<Verdict, String> {
    let mut trial = PowerCutTrial::new(context, VolumeKind::Raw, Controller::Virtio, true, 55);
    trial.cut_once(0)?;
    let found = trial.look(1)?;
    match found.wrong {
        0 => Err("a disk that forgets what it flushed was not noticed".to_owned()),
        wrong => Ok(Verdict::Passed(format!("{wrong} broken promises were noticed"))),
    }
}

fn honest(
    context: &Context,
    place: VolumeKind,
    controller: Controller,
    seed: u64,
) -> Result<Verdict, String> {
    let mut trial = PowerCutTrial::new(context, place, controller, false, context.seed ^ seed);
    let cuts = if context.quick { 1 } else { 3 };
    let outcome = trial.cut_often(cuts);
    if outcome.is_err() {
        let saved = trial.disk.save(&context.folder.join("disk.image"))?;
        println!("    the disk as it was then: {}", saved.display());
    }
    outcome?;
    let lost = trial.lost_unpromised;
    if lost == 0 && controller == Controller::Virtio {
        return Err("no cut lost anything at all: it proves nothing".to_owned());
    }
    Ok(Verdict::Passed(format!("{cuts} cuts: {lost} unpromised changes lost, no promised one")))
}

impl<'a> PowerCutTrial<'a> {
    fn new(
        context: &'a Context,
        place: VolumeKind,
        controller: Controller,
        lies: bool,
        seed: u64,
    ) -> Self {
        PowerCutTrial {
            context,
            place,
            controller,
            disk: VolatileDisk::new(DISK_BYTES, lies),
            ledger: Ledger::new(seed << 40, VOLUME_BYTES / BLOCK),
            chance: Rng::new(seed),
            lost_unpromised: 0,
        }
    }

    fn cut_often(&mut self, cuts: usize) -> Result<(), String> {
        for number in 0..cuts {
            self.cut_once(number)?;
        }
        self.look(cuts)?.verdict()
    }

    /// Boots the guest, checks what the last cut left, and cuts the power under load.
    fn cut_once(&mut self, number: usize) -> Result<(), String> {
        let (guest, mut connection) = self.boot(number)?;
        if number > 0 {
            let found = survey(&mut connection, &mut self.ledger)?;
            self.lost_unpromised += found.lost_unpromised;
            found.verdict()?;
        }
        let mix = [Mix::Flushes, Mix::Forced, Mix::Both][number % 3];
        let time = Duration::from_millis(700 + self.chance.below(2500));
        let load = Load {
            connection: &mut connection,
            ledger: &mut self.ledger,
            chance: &mut self.chance,
            promise: DurabilityPromise::Durable,
            mix,
        };
        let counts = load.until(time, || guest.cut())?;
        let survive = [0, 50][self.chance.below(2) as usize];
        let asked = self.disk.counts();
        let lost = self.disk.lose_power(survive, &mut self.chance);
        let survey = format!(
            "{} forced, {} plain, {} zeroed, {} flushes, {} unanswered",
            counts.forced, counts.plain, counts.zeroed, counts.flushes, counts.unanswered
        );
        println!(
            "    cut after {time:?} ({mix:?}): {survey}; {lost} sectors lost ({asked:?} so far)"
        );
        Ok(())
    }

    /// Boots the guest once more, only checks the volume, and returns the result.
    fn look(&mut self, number: usize) -> Result<Survey, String> {
        let (guest, mut connection) = self.boot(number)?;
        let found = survey(&mut connection, &mut self.ledger)?;
        self.lost_unpromised += found.lost_unpromised;
        guest.stop()?;
        Ok(found)
    }

    fn boot(&mut self, number: usize) -> Result<(Guest, Connection), String> {
        let socket = self.context.folder.join("disk.socket");
        self.disk.attach(&socket)?;
        let port = free_port()?;
        let machine = Machine {
            qemu: &self.context.tools()?.0,
            kernel: &self.context.tools()?.1,
            share: &self.context.folder,
            disks: vec![Disk { controller: self.controller, backing: Backing::Nbd(socket) }],
            forwards: vec![(port, 7420)],
        };
        let mut guest = machine.boot(&format!("boot{number}"))?;
        let volume = self.prepare(&mut guest, number == 0)?;
        let program = self.context.nearflash.display();
        let serve = format!(
            "exec {program} serve --insecure --listen reflex://0.0.0.0:7420 --device file:{volume}"
        );
        guest.serve(&serve, SOON)?;
        let connection = Connection::open(&format!("127.0.0.1:{port}"), SOON)?;
        Ok((guest, connection))
    }

    /// Prepares the volume in the guest. Returns its path with options, as the spec of a device
    /// takes them.
    fn prepare(&self, guest: &mut Guest, is_first: bool) -> Result<String, String> {
        let device = match self.controller {
            Controller::Nvme => "/dev/nvme0n1",
            Controller::Virtio => "/dev/vda",
        };
        guest.must(&await_device(device), SOON)?;
        if self.place == VolumeKind::Raw {
            return Ok(device.to_owned());
        }
        if is_first {
            guest.must(&format!("mkfs.ext4 -q {device}"), SOON)?;
        }
        let mount = format!("mkdir -p /mnt/disk && mount -t ext4 {device} /mnt/disk");
        guest.must(&mount, SOON)?;
        if is_first && self.place == VolumeKind::Preallocated {
            let allocate = format!("fallocate -l {VOLUME_BYTES} /mnt/disk/volume && sync");
            guest.must(&allocate, SOON)?;
        }
        Ok(format!("/mnt/disk/volume?size={VOLUME_BYTES}"))
    }
}

/// Returns a script that waits until the guest's kernel has found the disk.
pub(super) fn await_device(device: &str) -> String {
    let found = Path::new(device).display();
    format!("n=0; until [ -b {found} ]; do n=$((n+1)); [ $n -le 200 ] || exit 1; sleep 0.05; done")
}
