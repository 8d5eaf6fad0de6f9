//! A test of a mirror in a guest over the volumes of two servers, made as the guide to mirrors
//! says. One server is killed under load and comes back; then the other one is killed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::guest::{Guest, HOST, LATER, SOON};
use super::port::free_port;
use super::{Context, Verdict};
use crate::bench::process::Server;
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "mdadm", package: "mdadm" },
    Need { program: "nvme", package: "nvme-cli" },
    Need { program: "fio", package: "fio" },
];

/// A script that makes the mirror. The guest has no service that makes links in `/dev`, so the
/// mirror is named by its device file.
const CREATE: &str = "
set -e
mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --bitmap=internal --assume-clean \\
    --failfast /dev/nvme0n1 /dev/nvme1n1
";

/// The command of a round of load: some seconds of writing on any machine, then verification.
const ROUND: &str = "fio --name=load --filename=/dev/md0 --rw=randwrite --bsrange=4k-128k \
     --size=32m --io_size=8m --rate=2m --iodepth=16 --ioengine=libaio --direct=1 --fsync=64 \
     --verify=crc32c --verify_fatal=1 --output-format=terse";

/// A script that adds the half that came back to the mirror again, once its host is connected.
const READD: &str = "
for n in $(seq 600); do [ \"$(cat /sys/class/nvme/nvme1/state)\" = live ] && break; sleep 0.1; done
mdadm /dev/md0 --remove /dev/nvme1n1
mdadm /dev/md0 --re-add /dev/nvme1n1
";

/// A script that checks that the two halves are equal, and then writes to the mirror.
const CHECK: &str = "
set -e
echo check >/sys/block/md0/md/sync_action
for n in $(seq 600); do
    [ $(cat /sys/block/md0/md/sync_action) = idle ] && break; sleep 0.1
done
[ $(cat /sys/block/md0/md/mismatch_cnt) -eq 0 ]
dd if=/usr/bin/fio of=/dev/md0 bs=64k count=16 oflag=direct conv=fsync status=none
";

/// A script that reads the data written by [`CHECK`] from the remaining half of the mirror. The
/// kernel may first wait some seconds for the other half.
const LOOK: &str = "
set -e
echo 3 >/proc/sys/vm/drop_caches
cmp -n 1048576 /usr/bin/fio /dev/md0
mdadm --stop /dev/md0
";

/// A server that has one half of the mirror.
struct MirrorServer {
    program: PathBuf,
    config: PathBuf,
    nqn: String,
    port: u16,
    server: Option<Server>,
}

impl MirrorServer {
    fn new(context: &Context, name: &str) -> Result<MirrorServer, String> {
        let port = free_port()?;
        let nqn = format!("nqn.2026-11.io.nearflash:mirror-{name}");
        let config = context.folder.join(format!("{name}.toml"));
        let volume = context.folder.join(name);
        let text = format!(
            "[[device]]\nname = \"d\"\nspec = \"file:{}?size=64MiB\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:{port}?advertise={HOST}:{port}\"\n\
             [[subsystem]]\nnqn = \"{nqn}\"\n",
            volume.display()
        );
        fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let program = context.nearflash.clone();
        let mut half = MirrorServer { program, config, nqn, port, server: None };
        half.start()?;
        Ok(half)
    }

    fn start(&mut self) -> Result<(), String> {
        let log = self.config.with_extension("log");
        let mut command = Command::new(&self.program);
        command.args(["serve", "--admin", "none", "--state", "none", "--config"]).arg(&self.config);
        self.server = Some(Server::start_again(&mut command, &log)?);
        Ok(())
    }

    /// Kills the server with SIGKILL.
    fn kill(&mut self) {
        self.server = None;
    }

    /// Returns the guest's command that connects this half as the guide does, and waits for the
    /// device: in an emulated machine it may appear later than the program waits for it.
    fn connect(&self, number: u32) -> String {
        let MirrorServer { program, nqn, port, .. } = self;
        let (program, controller) = (program.display(), format!("/sys/class/nvme/nvme{number}"));
        format!(
            "{program} connect nvme-tcp://{HOST}:{port}/{nqn} --run --fail-after 5\n\
             [ $(cat {controller}/fast_io_fail_tmo) -eq 5 ] || exit 1\n\
             for n in $(seq 400); do [ -b /dev/nvme{number}n1 ] && exit 0; sleep 0.05; done; exit 1"
        )
    }
}

/// Makes a mirror, kills each of its servers in turn, and checks that the written data is there.
pub(super) fn two_servers(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    let mut first = MirrorServer::new(context, "first")?;
    let mut second = MirrorServer::new(context, "second")?;
    let (qemu, kernel) = context.tools()?;
    let mut guest = context.standby.take(qemu, kernel)?;
    guest.must("modprobe -a nvme-tcp raid1 && dmesg --clear", SOON)?;
    guest.must(&first.connect(0), SOON)?;
    guest.must(&second.connect(1), SOON)?;
    guest.must(CREATE, SOON)?;
    let enough = "/run/enough";
    let rounds = format!("while :; do {ROUND} || exit 1; [ -e {enough} ] && exit 0; done");
    let load = guest.start(&rounds)?;
    guest.await_writes("md0", 2000)?;
    second.kill();
    await_halves(&mut guest, "[U_]")?;
    guest.await_writes("md0", 2000)?;
    second.start()?;
    guest.must(READD, SOON)?;
    await_halves(&mut guest, "[UU]")?;
    guest.await_writes("md0", 2000)?;
    guest.must(&format!("touch {enough}"), SOON)?;
    guest.finish(&load, LATER)?;
    guest.must(CHECK, SOON)?;
    first.kill();
    guest.must(LOOK, SOON)?;
    guest.cut();
    Ok(Verdict::Passed("one half was away and came back, the other one went".to_owned()))
}

/// Waits until the kernel reports this state of the mirror's halves, such as `[UU]`.
fn await_halves(guest: &mut Guest, halves: &str) -> Result<(), String> {
    guest.must(
        &format!(
            "for n in $(seq 1000); do grep -qF '{halves}' /proc/mdstat && exit 0; sleep 0.1; done\n\
             cat /proc/mdstat; exit 1"
        ),
        SOON,
    )?;
    Ok(())
}
