//! A guest whose instructions are counted, with a device through each kind of client, and the
//! servers behind them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::client::Client;
use super::counter::{Counter, Names};
use super::report::Cost;
use crate::bench::process::Server;
use crate::interop::Context;
use crate::interop::apt;
use crate::interop::guest::{Guest, HOST, LATER, Machine, SOON};
use crate::interop::port::free_port;

/// The qualified names of the volume for NVMe hosts and for iSCSI initiators.
const NQN: &str = "nqn.2026-11.io.nearflash:clients";
const IQN: &str = "iqn.2026-11.io.nearflash:clients";

/// The size in bytes of each volume, all of whose data is in memory.
const BYTES: u64 = 64 << 20;

/// The time for which a running load is watched.
const WATCH: Duration = Duration::from_secs(8);

/// Number of reads that a load makes before it is watched, since its start executes much besides
/// reads.
const BEGUN: u64 = 500;

/// Number of times that the counts of a guest without a load are read. The median difference is the
/// cost of one reading.
const LOOKS: usize = 5;

/// A script that makes a device on which a read takes a second.
const SLOW: &str = "
set -e
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/nullb
mkdir nullb1
cd nullb1
echo 1024 >size
echo 2 >irqmode
echo 1000000000 >completion_nsec
echo 1 >power
for n in $(seq 400); do [ -b /dev/nullb1 ] && exit 0; sleep 0.05; done; exit 1
";

/// A guest with a device through each kind of client, and the servers behind them.
pub(super) struct GuestSetup {
    guest: Guest,
    counter: Counter,
    names: Names,
    /// The instructions that the guest executes in a second while a load waits: in programs, and in
    /// the kernel.
    idle: [f64; 2],
    /// The instructions that the guest executes for one reading of the counts: in programs, and in
    /// the kernel.
    cost_of_look: [f64; 2],
    _server: Server,
    _target: Target,
}

/// A reading of the counts: instructions in programs and in the kernel, reads of a device, and the
/// time.
struct CountReading {
    counts: [u64; 2],
    reads: u64,
    at: Instant,
}

/// The changes between two readings: instructions in programs and in the kernel, reads of the
/// device, and seconds.
struct CountChanges {
    counts: [f64; 2],
    reads: u64,
    seconds: f64,
}

/// The iSCSI target `tgtd`, a process that is killed on drop.
struct Target {
    daemon: Child,
    control: String,
}

impl GuestSetup {
    pub(super) fn start(context: &Context) -> Result<GuestSetup, String> {
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
        let server = serve(context, ports)?;
        let target = Target::start(&context.folder, ports[3])?;
        let counter = Counter::build(&context.folder)?;
        let (qemu, kernel) = context.tools()?;
        let share = &context.folder;
        let machine = Machine { qemu, kernel, share, disks: Vec::new(), forwards: Vec::new() };
        let mut guest = machine.boot_with("clients", &counter.argument())?;
        let program = context.nearflash.display();
        open(&mut guest, &ports, &format!("exec {program} attach"))?;
        let names = Names::parse(&guest.must("cat /proc/kallsyms", SOON)?);
        let mut bed = GuestSetup {
            guest,
            counter,
            names,
            idle: [0.0; 2],
            cost_of_look: [0.0; 2],
            _server: server,
            _target: target,
        };
        bed.rest()?;
        Ok(bed)
    }

    /// Returns the instructions of a second in which the guest's load waits.
    pub(super) fn idle(&self) -> Cost {
        let [programs, kernel] = self.idle;
        Cost { programs, kernel }
    }

    /// Measures the instructions of one reading of the counts, and those of a second in which a
    /// load waits.
    fn rest(&mut self) -> Result<(), String> {
        self.guest.must(SLOW, SOON)?;
        let mut looks = Vec::new();
        let mut before = self.look("nullb0")?.counts;
        for _ in 0..LOOKS {
            let after = self.look("nullb0")?.counts;
            looks.push([0, 1].map(|mode| (after[mode] - before[mode]) as f64));
            before = after;
        }
        looks.sort_by(|a, b| a[1].total_cmp(&b[1]));
        self.cost_of_look = looks[LOOKS / 2];
        let waits = self.watch("nullb1", 1, 1)?;
        self.idle = waits.counts.map(|count| count / waits.seconds);
        Ok(())
    }

    /// Returns the instructions of one read through a client with `depth` reads in flight, without
    /// those that a waiting guest executes meanwhile.
    pub(super) fn measure(&mut self, client: Client, depth: u32) -> Result<Cost, String> {
        let watched = self.watch(client.device(), depth, BEGUN)?;
        let [programs, kernel] = [0, 1].map(|mode| {
            (watched.counts[mode] - self.idle[mode] * watched.seconds) / watched.reads as f64
        });
        Ok(Cost { programs, kernel })
    }

    /// Starts a load on a device, and watches it once it has made `begun` reads. Ends the load and
    /// returns what happened meanwhile.
    fn watch(&mut self, device: &str, depth: u32, begun: u64) -> Result<CountChanges, String> {
        let load = load(device, &format!("--iodepth={depth} --time_based --runtime=600"));
        let started = self.guest.start(&format!("echo $$ >/run/load; exec {load}"))?;
        let before = reads(device);
        self.guest.must(
            &format!(
                "before=$({before})\n\
                 for n in $(seq 1000); do\n\
                   [ $({before}) -ge $((before + {begun})) ] && exit 0; sleep 0.05\n\
                 done; exit 1"
            ),
            SOON,
        )?;
        let first = self.look(device)?;
        thread::sleep(WATCH);
        let last = self.look(device)?;
        self.guest.must("kill -INT $(cat /run/load)", SOON)?;
        // fio says that it was interrupted.
        let _interrupted = self.guest.finish(&started, SOON);
        let counts = [0, 1]
            .map(|mode| (last.counts[mode] - first.counts[mode]) as f64 - self.cost_of_look[mode]);
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        Ok(CountChanges { counts, reads: last.reads - first.reads, seconds })
    }

    /// Returns the guest's instructions and the device's reads so far.
    fn look(&mut self, device: &str) -> Result<CountReading, String> {
        let text = self.guest.must(&reads(device), SOON)?;
        let counts = self.counter.read()?;
        let reads = text.trim().parse().map_err(|_| format!("{device} has read {text:?}"))?;
        Ok(CountReading { counts, reads, at: Instant::now() })
    }

    /// Returns the kernel's functions with their instructions for each read, the busiest first. The
    /// load's start and end are included.
    pub(super) fn ways(
        &mut self,
        client: Client,
        depth: u32,
        reads: u32,
    ) -> Result<Vec<(String, f64)>, String> {
        let before = self.counter.snapshot(&self.names)?;
        let size = format!("--iodepth={depth} --number_ios={reads}");
        self.guest.must(&load(client.device(), &size), LATER)?;
        let after = self.counter.snapshot(&self.names)?;
        let busiest = self.names.busiest(&before, &after).into_iter();
        Ok(busiest.map(|(name, count)| (name, count as f64 / f64::from(reads))).collect())
    }

    /// Ends the guest, and returns the release of its kernel, as `uname -r` prints it.
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

/// Connects each kind of client to its server. No device gets an I/O scheduler, since kernels
/// choose different ones.
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

/// Returns the guest's command that prints the number of completed reads of a device.
fn reads(device: &str) -> String {
    format!("awk '{{ print $1 }}' /sys/block/{device}/stat")
}

/// Returns the guest's command for a load of random 4 KiB reads. `size` holds the options that set
/// its length.
fn load(device: &str, size: &str) -> String {
    format!(
        "fio --name=load --filename=/dev/{device} --size={BYTES} --rw=randread --bs=4k --direct=1 \
         --ioengine=libaio {size} --gtod_reduce=1 --randrepeat=1 \
         --thread --output-format=terse"
    )
}

impl Target {
    /// Starts Debian's iSCSI target with a volume in memory.
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

    /// Sends an administrative command to the target, and tries again while the target starts.
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
