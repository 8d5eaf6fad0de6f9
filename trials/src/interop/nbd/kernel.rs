//! A test of the kernel's NBD client in a guest: bare, partitioned, and with a file system, over
//! four connections and over one.

use super::super::guest::{HOST, LATER, SOON};
use super::super::{Context, Verdict};
use super::exports::Exports;
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "nbd-client", package: "nbd-client" },
    Need { program: "fio", package: "fio" },
    Need { program: "sfdisk", package: "fdisk" },
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
];

/// A script that verifies checksums over the whole device in requests of up to 8 MiB, which are
/// larger than a command of the server's device. Then it makes a partition table, which the kernel
/// reads again from the server.
const BARE: &str = "
set -e
echo 32768 >/sys/block/nbd0/queue/max_sectors_kb
fio --name=small --filename=/dev/nbd0 --rw=randwrite --bsrange=4k-64k --size=16m --iodepth=16 \\
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=terse
fio --name=large --filename=/dev/nbd0 --rw=write --bs=8m --size=32m --iodepth=4 \\
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=terse
blkdiscard -o 1M -l 8M /dev/nbd0
cmp -n 8388608 -i 1048576:0 /dev/nbd0 /dev/zero
blkdiscard -z -o 16M -l 8M /dev/nbd0
cmp -n 8388608 -i 16777216:0 /dev/nbd0 /dev/zero
echo 'start=2048, size=40960, type=83' | sfdisk -q /dev/nbd0
for n in $(seq 200); do [ -b /dev/nbd0p1 ] && break; sleep 0.05; done
[ $(cat /sys/block/nbd0/nbd0p1/size) -eq 40960 ]
";

/// A script that works on a mounted file system, and checks it.
const WORK: &str = "
set -e
cd /mnt/volume
cp /usr/bin/fio program
fio --name=files --directory=. --nrfiles=8 --filesize=64k-512k --rw=randwrite --bsrange=1k-64k \\
    --ioengine=psync --fsync=32 --io_size=4m --verify=crc32c --verify_fatal=1 \\
    --output-format=terse
mkdir many
for n in $(seq 100); do echo $n >many/$n; done
rm many/*7
sync
fstrim -v /mnt/volume
cd /
umount /mnt/volume
fsck.ext4 -f -n /dev/nbd0p1
";

/// A script that checks the data written by [`WORK`], without writing.
const LOOK: &str = "
set -e
for n in $(seq 200); do [ -b /dev/nbd0p1 ] && break; sleep 0.05; done
fsck.ext4 -f -n /dev/nbd0p1
mount -o ro /dev/nbd0p1 /mnt/volume
cmp /usr/bin/fio /mnt/volume/program
[ $(ls /mnt/volume/many | wc -l) -eq 90 ]
umount /mnt/volume
";

/// Returns the guest's script that attaches the first export with this many connections.
fn attach(exports: &Exports, connections: u32) -> String {
    format!(
        "nbd-client {HOST} {} /dev/nbd0 -N first -C {connections} || exit 1\n\
         for n in $(seq 200); do\n\
           [ $(cat /sys/block/nbd0/size) -gt 0 ] && exit 0; sleep 0.05\n\
         done; exit 1",
        exports.port
    )
}

/// A script that detaches the device, and waits until the kernel has let go of it.
const DETACH: &str = "
nbd-client -d /dev/nbd0 || exit 1
for n in $(seq 200); do [ -e /sys/block/nbd0/pid ] || exit 0; sleep 0.05; done; exit 1
";

/// Tests the kernel's NBD client.
pub(in super::super) fn client(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    let exports = Exports::start(context)?;
    let (qemu, kernel) = context.tools()?;
    let mut guest = context.standby.take(qemu, kernel)?;
    guest.must("modprobe nbd nbds_max=2 && dmesg --clear", SOON)?;
    guest.must(&attach(&exports, 4), SOON)?;
    guest.must(BARE, LATER)?;
    guest.mount_ext4("/dev/nbd0p1")?;
    guest.must(WORK, LATER)?;
    guest.must(DETACH, SOON)?;
    guest.must(&attach(&exports, 1), SOON)?;
    guest.must(LOOK, LATER)?;
    guest.must(DETACH, SOON)?;
    let complaints = guest.must("dmesg | grep -iE 'nbd0.*(error|fail|timed out)' || true", SOON)?;
    if !complaints.is_empty() {
        return Err(format!("the guest's kernel complains:\n{complaints}"));
    }
    guest.must("rmmod nbd", SOON)?;
    let version = guest.must("nbd-client -V 2>&1 | head -n 1; uname -r", SOON)?;
    context.standby.give(guest)?;
    let version = version.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Verdict::Passed(format!("{version}: checksums, partitions, ext4 made and found again")))
}
