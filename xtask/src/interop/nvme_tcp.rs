//! The kernel's own NVMe/TCP host, in a guest, against a server on this machine.
//!
//! What the host wrote about it (its console, the outputs of its commands) stays with the test's
//! other files when the test fails.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use super::guest::{Guest, Machine};
use super::{Context, Verdict, free_port};
use crate::bench::process::Server;
use crate::ci::needs::{self, Need};

/// What is waited for in the guest is quick, on a quiet machine.
const SOON: Duration = Duration::from_secs(120);

/// Programs of the guest beyond those of every guest.
const NEEDS: &[Need] =
    &[Need { program: "nvme", package: "nvme-cli" }, Need { program: "fio", package: "fio" }];

/// The subsystem of the tests.
pub(super) const NQN: &str = "nqn.2026-11.io.nearflash:interop";

/// A host of a server.
pub(super) struct Pair {
    pub(super) guest: Guest,
    pub(super) port: u16,
    _server: Server,
}

impl Pair {
    /// Starts a server with these devices, and boots a guest with the host's driver.
    fn start(context: &Context, devices: &[&str]) -> Result<Pair, String> {
        Pair::start_with(context, devices, "")
    }

    /// The same, with more in the server's configuration.
    pub(super) fn start_with(
        context: &Context,
        devices: &[&str],
        more: &str,
    ) -> Result<Pair, String> {
        let port = free_port()?;
        let config = context.folder.join("server.toml");
        let device =
            |(n, spec): (usize, &&str)| format!("[[device]]\nname = \"d{n}\"\nspec = \"{spec}\"\n");
        let devices: String = devices.iter().enumerate().map(device).collect();
        let text = format!(
            "{devices}[[listen]]\nurl = \"nvme-tcp://127.0.0.1:{port}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\n{more}"
        );
        std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let mut command = Command::new(&context.nearflash);
        command.arg("serve").arg("--config").arg(&config);
        let log = context.folder.join("server.log");
        let errors = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let server = Server::start_with(&mut command, errors.into())?;
        let (qemu, kernel) = context.tools()?;
        let share = &context.folder;
        let disks = Vec::new();
        let mut guest =
            Machine { qemu, kernel, share, disks, forwards: Vec::new() }.boot("host")?;
        guest.must("modprobe nvme-tcp", SOON)?;
        Ok(Pair { guest, port, _server: server })
    }

    /// Connects with these options; the first namespace is `/dev/nvme0n1` then.
    pub(super) fn connect(&mut self, options: &str) -> Result<(), String> {
        let port = self.port;
        self.guest.must(
            &format!(
                "nvme connect -t tcp -a 10.0.2.2 -s {port} -n {NQN} -i 1 {options}\n\
                 for n in $(seq 200); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.05; done; exit 1"
            ),
            SOON,
        )?;
        Ok(())
    }

    pub(super) fn must(&mut self, script: &str) -> Result<String, String> {
        self.guest.must(script, SOON)
    }

    /// Disconnects, which leaves no device behind.
    pub(super) fn disconnect(&mut self) -> Result<(), String> {
        self.must(&format!("nvme disconnect -n {NQN} && [ ! -e /dev/nvme0 ]"))?;
        Ok(())
    }
}

/// The guest's needs, or the reason to skip.
pub(super) fn provide() -> Option<Verdict> {
    needs::provide(NEEDS).err().map(Verdict::Skipped)
}

/// The host finds what there is, asks what it is, and goes again.
pub(super) fn connect(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide() {
        return Ok(skipped);
    }
    let mut pair = Pair::start(context, &["mem:64MiB", "mem:32MiB"])?;
    let port = pair.port;
    let found = pair.must(&format!("nvme discover -t tcp -a 10.0.2.2 -s {port}"))?;
    if !found.contains(NQN) {
        return Err(format!("discovery does not name {NQN}:\n{found}"));
    }
    pair.connect("")?;
    // The kernel scans namespaces side by side, and names them in the order in which that ends.
    let sizes = pair.must(
        "for n in /sys/block/nvme0n[12]; do echo $(cat $n/nsid) $(cat $n/size); done | sort",
    )?;
    if sizes.lines().ne(["1 131072", "2 65536"]) {
        return Err(format!("namespaces of 64 and 32 MiB have so many blocks of 512:\n{sizes}"));
    }
    let list = pair.must("nvme list && nvme id-ctrl /dev/nvme0 && nvme id-ns /dev/nvme0n1")?;
    if !list.contains("nearflash") {
        return Err(format!("the list does not name us:\n{list}"));
    }
    pair.must("nvme smart-log /dev/nvme0 && nvme error-log /dev/nvme0")?;
    pair.disconnect()?;
    pair.connect("")?;
    pair.disconnect()?;
    pair.guest.stop()?;
    Ok(Verdict::Passed("discovered, connected, listed, disconnected, twice".to_owned()))
}

/// Writes blocks of many sizes, in capsules and when asked, and reads them back.
const VERIFY: &str = "fio --name=verify --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio \
                      --rw=randrw --iodepth=16 --size=24m --bsrange=4k-1024k --blockalign=4k \
                      --verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=terse && \
                      fio --name=small --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio \
                      --rw=randwrite --iodepth=32 --size=4m --bs=4k --verify=crc32c \
                      --verify_fatal=1 --output-format=terse";

/// What is written is read, with and without digests.
pub(super) fn verify(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide() {
        return Ok(skipped);
    }
    let mut pair = Pair::start(context, &["mem:64MiB"])?;
    let kinds = ["", "--hdr-digest", "--data-digest", "--hdr-digest --data-digest"];
    for digests in if context.quick { &kinds[..1] } else { &kinds[..] } {
        pair.connect(digests)?;
        pair.must(VERIFY).map_err(|error| format!("with {digests:?}: {error}"))?;
        pair.disconnect()?;
    }
    pair.guest.stop()?;
    Ok(Verdict::Passed("4 KiB to 1 MiB read back, digests off and on".to_owned()))
}

/// A file system is made, filled, checked, and found again.
pub(super) fn file_system(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide() {
        return Ok(skipped);
    }
    let mut pair = Pair::start(context, &["mem:128MiB"])?;
    pair.connect("")?;
    pair.must(
        "mkfs.ext4 -q -F /dev/nvme0n1 && mkdir -p /mnt/e && mount /dev/nvme0n1 /mnt/e && \
         cp /usr/bin/fio /mnt/e/ && sync && cmp /usr/bin/fio /mnt/e/fio && umount /mnt/e && \
         fsck.ext4 -f -n /dev/nvme0n1",
    )?;
    pair.disconnect()?;
    pair.connect("--data-digest")?;
    pair.must("mount /dev/nvme0n1 /mnt/e && cmp /usr/bin/fio /mnt/e/fio && umount /mnt/e")?;
    pair.must("fsck.ext4 -f -n /dev/nvme0n1")?;
    pair.disconnect()?;
    pair.guest.stop()?;
    Ok(Verdict::Passed("ext4 made, filled, checked, found again".to_owned()))
}
