//! A test of a virtual machine whose disk is an export, as the guide makes it: the server is killed
//! under load, and the machine waits for it.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::super::guest::{Backing, Controller, Disk, LATER, Machine, SOON};
use super::super::port::free_port;
use super::super::{Context, Verdict};
use super::exports::run;
use crate::bench::process::Server;
use xtask::needs::{self, Need};
use xtask::shell;

const NEEDS: &[Need] = &[
    Need { program: "fio", package: "fio" },
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
    Need { program: "virt-xml-validate", package: "libvirt-clients" },
    Need { program: "xmllint", package: "libxml2-utils" },
];

/// The guide whose libvirt domain is checked.
const GUIDE: &str = "docs/how-to/run-a-virtual-machine.md";

/// Number of times that the server is killed under load.
const KILLS: u64 = 3;

/// The command of a round of load: some seconds of writing on any machine, then verification.
const ROUND: &str = "fio --name=load --directory=/mnt/volume --rw=randwrite --bsrange=4k-128k \
     --size=24m --io_size=8m --rate=2m --iodepth=16 --ioengine=libaio --direct=1 --fsync=64 \
     --verify=crc32c --verify_fatal=1 --output-format=terse";

/// Runs a machine, kills its server, checks its file system, and validates the guide's domain.
pub(in super::super) fn disk(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    validate(context)?;
    let port = free_port()?;
    let mut server = serve(context, port)?;
    let (qemu, kernel) = context.tools()?;
    let disk = Disk { controller: Controller::Virtio, backing: Backing::Export(port) };
    let share = &context.folder;
    let machine = Machine { qemu, kernel, share, disks: vec![disk], forwards: Vec::new() };
    let mut guest = machine.boot("machine")?;
    guest.mount_ext4("/dev/vda")?;
    let enough = "/run/enough";
    let load =
        guest.start(&format!("while :; do {ROUND} || exit 1; [ -e {enough} ] && exit 0; done"))?;
    guest.await_writes("vda", 1000)?;
    for kill in 0..KILLS {
        drop(server);
        thread::sleep(Duration::from_millis(500 * kill));
        server = serve(context, port)?;
        guest.await_writes("vda", 1000)?;
    }
    guest.must(&format!("touch {enough}"), SOON)?;
    guest.finish(&load, LATER)?;
    guest.must("umount /mnt/volume && fsck.ext4 -f -n /dev/vda", SOON)?;
    guest.must("! dmesg | grep -iE 'vda.*error'", SOON)?;
    guest.stop()?;
    drop(server);
    Ok(Verdict::Passed(format!("{KILLS} kills of the server, none seen by ext4; the XML is valid")))
}

/// Checks the libvirt domain in the guide against libvirt's schema.
fn validate(context: &Context) -> Result<(), String> {
    let text =
        fs::read_to_string(shell::root().join(GUIDE)).map_err(|e| format!("{GUIDE}: {e}"))?;
    let domain = text.split_once("```xml\n").and_then(|(_, rest)| rest.split_once("```"));
    let (domain, _) = domain.ok_or_else(|| format!("{GUIDE} has no XML"))?;
    let path = context.folder.join("domain.xml");
    fs::write(&path, domain).map_err(|error| format!("{}: {error}", path.display()))?;
    run(&["virt-xml-validate", &path.display().to_string(), "domain"]).map(drop)
}

/// Starts the server, and tries again while the kernel still locks the file of its killed
/// predecessor.
fn serve(context: &Context, port: u16) -> Result<Server, String> {
    let mut command = Command::new(&context.nearflash);
    command.args(["serve", "--admin", "none", "--state", "none", "--device"]);
    command.arg(context.volume());
    command.args(["--listen", &format!("nbd://127.0.0.1:{port}")]);
    Server::start_again(&mut command, &context.folder.join("server.log"))
}
