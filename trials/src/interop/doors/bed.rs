//! A guest whose instructions are counted, with all doors open, and the servers behind them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::counter::{Counter, Names};
use super::door::Door;
use super::report::Cost;
use crate::bench::process::Server;
use crate::interop::Context;
use crate::interop::apt;
use crate::interop::guest::{Guest, Machine};
use crate::interop::port::free_port;

/// The address at which the guest reaches this machine's loopback interface.
const HOST: &str = "10.0.2.2";

/// The names by which NVMe and iSCSI know the volume.
const NQN: &str = "nqn.2026-11.io.nearflash:doors";
const IQN: &str = "iqn.2026-11.io.nearflash:doors";

/// The bytes of each volume, all of them in memory.
const BYTES: u64 = 64 << 20;

/// The time limit of what a guest does quickly on an idle machine.
const SOON: Duration = Duration::from_secs(120);

/// The time limit of a load.
const LATER: Duration = Duration::from_secs(400);

/// The seconds of two loads that ask for one read a second, to see what time alone costs.
const IDLE_SECONDS: [u32; 2] = [2, 8];

/// A guest with every door open.
pub(super) struct Bed {
    guest: Guest,
    counter: Counter,
    names: Names,
    /// The instructions of a second in which a load waits: of programs, of the kernel.
    idle: [f64; 2],
    _server: Server,
    _target: Target,
}

/// An iSCSI target of another project, which is killed on drop.
struct Target {
    daemon: Child,
    control: String,
}

impl Bed {
    pub(super) fn start(context: &Context) -> Result<Bed, String> {
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
        let server = serve(context, ports)?;
        let target = Target::start(&context.folder, ports[3])?;
        let counter = Counter::build(&context.folder)?;
        let (qemu, kernel) = context.tools()?;
        let share = &context.folder;
        let machine = Machine { qemu, kernel, share, disks: Vec::new(), forwards: Vec::new() };
        let mut guest = machine.boot_with("doors", &counter.argument())?;
        let program = context.nearflash.display();
        open(&mut guest, &ports, &format!("exec {program} attach"))?;
        let names = Names::parse(&guest.must("cat /proc/kallsyms", SOON)?);
        let mut bed =
            Bed { guest, counter, names, idle: [0.0; 2], _server: server, _target: target };
        bed.idle = bed.rest()?;
        Ok(bed)
    }

    /// Returns what the guest executes in a second in which a load does next to nothing.
    fn rest(&mut self) -> Result<[f64; 2], String> {
        let mut counts = [[0.0; 2]; 2];
        let mut seconds = [0.0; 2];
        for (number, limit) in IDLE_SECONDS.into_iter().enumerate() {
            let started = Instant::now();
            let more = format!("--rate_iops=1 --time_based --runtime={limit}");
            counts[number] = self.load(Door::Nothing, &format!("--iodepth=1 {more}"))?;
            seconds[number] = started.elapsed().as_secs_f64();
        }
        let seconds = seconds[1] - seconds[0];
        Ok([0, 1].map(|mode| (counts[1][mode] - counts[0][mode]) / seconds))
    }

    /// Returns the instructions of one read, from two loads with these numbers of reads.
    pub(super) fn measure(
        &mut self,
        door: Door,
        depth: u32,
        reads: [u32; 2],
    ) -> Result<Cost, String> {
        let reads_of = |reads: u32| format!("--iodepth={depth} --number_ios={reads}");
        let short = self.load(door, &reads_of(reads[0]))?;
        let long = self.load(door, &reads_of(reads[1]))?;
        let reads = f64::from(reads[1] - reads[0]);
        let [programs, kernel] = [0, 1].map(|mode| (long[mode] - short[mode]) / reads);
        Ok(Cost { programs, kernel })
    }

    /// Runs a load. Returns the instructions that it has caused: of programs, of the kernel.
    fn load(&mut self, door: Door, size: &str) -> Result<[f64; 2], String> {
        let (before, started) = (self.counter.read()?, Instant::now());
        self.guest.must(&load(door, size), LATER)?;
        let (after, seconds) = (self.counter.read()?, started.elapsed().as_secs_f64());
        Ok([0, 1].map(|mode| (after[mode] - before[mode]) as f64 - self.idle[mode] * seconds))
    }

    /// Returns the functions of the kernel that execute most for a read, start and end included.
    pub(super) fn ways(
        &mut self,
        door: Door,
        depth: u32,
        reads: u32,
    ) -> Result<Vec<(String, f64)>, String> {
        let before = self.counter.snapshot(&self.names)?;
        self.load(door, &format!("--iodepth={depth} --number_ios={reads}"))?;
        let after = self.counter.snapshot(&self.names)?;
        let busiest = self.names.busiest(&before, &after).into_iter();
        Ok(busiest.map(|(name, count)| (name, count as f64 / f64::from(reads))).collect())
    }

    /// Closes the doors, and returns the kernel's release.
    pub(super) fn end(mut self) -> Result<String, String> {
        let release = self.guest.must("uname -r", SOON)?;
        self.guest.cut();
        Ok(release.trim().to_owned())
    }
}

/// Starts a server whose volume is open to `reflex`, NVMe and NBD clients.
fn serve(context: &Context, ports: [u16; 4]) -> Result<Server, String> {
    let [reflex, nvme, nbd, _] = ports;
    let config = context.folder.join("server.toml");
    let text = format!(
        "[[device]]\nname = \"d\"\nspec = \"mem:{BYTES}B\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:{reflex}\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:{nvme}?advertise={HOST}:{nvme}\"\n\
         [[listen]]\nurl = \"nbd://127.0.0.1:{nbd}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n"
    );
    fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut command = Command::new(&context.nearflash);
    command.args(["serve", "--admin", "none", "--state", "none", "--config"]).arg(config);
    Server::start(&mut command)
}

/// Opens every door. No device has a scheduler, since kernels differ in which they choose.
fn open(guest: &mut Guest, ports: &[u16; 4], attach: &str) -> Result<(), String> {
    let [reflex, nvme, nbd, iscsi] = ports;
    guest.must(
        "set -e\n\
         modprobe null_blk nr_devices=1 submit_queues=1 gb=1 bs=512 queue_mode=2 irqmode=0\n\
         modprobe -a nvme-tcp iscsi_tcp sd_mod ublk_drv; modprobe nbd nbds_max=1\n\
         mkdir -p /etc/iscsi /run/lock/iscsi\n\
         echo InitiatorName=iqn.2026-11.io.nearflash:guest >/etc/iscsi/initiatorname.iscsi",
        SOON,
    )?;
    guest.must(&format!("nvme connect -t tcp -a {HOST} -s {nvme} -n {NQN} -i 1"), SOON)?;
    guest.must(&format!("nbd-client {HOST} {nbd} /dev/nbd0 -N ns1"), SOON)?;
    for (device, spin) in [(0, ""), (1, "--spin 0")] {
        let options = format!("--dev {device} --queues 1 {spin}");
        guest.serve(&format!("{attach} reflex://{HOST}:{reflex} {options}"), SOON)?;
    }
    guest.start("exec iscsid -f")?;
    let portal = format!("-m node -T {IQN} -p {HOST}:{iscsi}");
    guest.must(
        &format!(
            "for n in $(seq 100); do\n\
               iscsiadm {portal} -o new && break; sleep 0.1\n\
             done\n\
             iscsiadm {portal} --login"
        ),
        SOON,
    )?;
    guest.must(
        "for device in nullb0 nvme0n1 nbd0 sda ublkb0 ublkb1; do\n\
           for n in $(seq 400); do [ -b /dev/$device ] && break; sleep 0.05; done\n\
           [ $(blockdev --getsize64 /dev/$device) -ge 67108864 ] || exit 1\n\
         done\n\
         for device in /sys/block/*/queue/scheduler; do echo none >$device || exit 1; done\n\
         cat /sys/block/nvme0c0n1/queue/scheduler",
        SOON,
    )?;
    Ok(())
}

/// Returns the command of a load of this size.
fn load(door: Door, size: &str) -> String {
    let device = match door {
        Door::Nothing => "nullb0",
        Door::Nvme => "nvme0n1",
        Door::Nbd => "nbd0",
        Door::Iscsi => "sda",
        Door::Attach => "ublkb0",
        Door::AttachSleeping => "ublkb1",
    };
    format!(
        "fio --name=load --filename=/dev/{device} --size={BYTES} --rw=randread --bs=4k --direct=1 \
         --ioengine=libaio {size} --gtod_reduce=1 --randrepeat=1 \
         --thread --output-format=terse"
    )
}

impl Target {
    /// Starts Debian's target with a volume in memory.
    fn start(folder: &Path, port: u16) -> Result<Target, String> {
        let volume = folder.join("volume");
        let file = fs::File::create(&volume);
        file.and_then(|file| file.set_len(BYTES))
            .map_err(|error| format!("{}: {error}", volume.display()))?;
        let control = port.to_string();
        let mut command = Command::new("tgtd");
        command.args(["-f", "-C", &control, "--iscsi", &format!("portal=127.0.0.1:{port}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().map_err(|error| format!("tgtd: {error}"))?;
        let target = Target { daemon, control };
        let volume = volume.display().to_string();
        let steps: [&[&str]; 3] = [
            &["--mode", "target", "--op", "new", "--tid", "1", "-T", IQN],
            &["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &volume],
            &["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
        ];
        for step in steps {
            target.tell(step)?;
        }
        Ok(target)
    }

    /// Tells the daemon, which may have just been started.
    fn tell(&self, words: &[&str]) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let mut command = Command::new("tgtadm");
            command.args(["-C", &self.control, "--lld", "iscsi"]).args(words);
            match apt::run(&mut command) {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > SOON => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both calls fail only if the daemon has ended by itself.
        let _gone = self.daemon.kill();
        let _status = self.daemon.wait();
    }
}
