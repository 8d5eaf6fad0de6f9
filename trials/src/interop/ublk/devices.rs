//! Tests of an attached volume in use: by programs, by a file system and by an operator.

use super::super::guest::LATER;
use super::super::{Context, Verdict};
use super::fixture::{UblkSetup, UblkTransport, provide};
use xtask::needs::Need;

/// The programs that [`file_system`] needs in the guest.
const NEEDS: &[Need] = &[
    Need { program: "sfdisk", package: "fdisk" },
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
];

/// A script that copies data, verifies checksums in requests of up to 8 MiB, which the kernel cuts,
/// and then discards and zeroes.
const DATA: &str = "
set -e
dd if=/usr/bin/fio of=/dev/ublkb0 bs=64k count=16 oflag=direct conv=fsync 2>/dev/null
cmp -n 1048576 /usr/bin/fio /dev/ublkb0
fio --name=small --filename=/dev/ublkb0 --rw=randwrite --bsrange=512-64k --size=16m --iodepth=16 \\
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=terse
fio --name=large --filename=/dev/ublkb0 --rw=write --bs=8m --size=32m --iodepth=8 \\
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=terse
fio --name=ring --filename=/dev/ublkb0 --rw=randrw --bsrange=4k-1m --size=32m --iodepth=32 \\
    --ioengine=io_uring --direct=1 --verify=crc32c --verify_fatal=1 --output-format=terse
blkdiscard -o 1M -l 8M /dev/ublkb0
cmp -n 8388608 -i 1048576:0 /dev/ublkb0 /dev/zero
blkdiscard -z -o 16M -l 8M /dev/ublkb0
cmp -n 8388608 -i 16777216:0 /dev/ublkb0 /dev/zero
";

/// Attaches a volume, verifies data on it, and detaches it.
pub(in super::super) fn attach(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut bed = UblkSetup::start(context, "mem:64MiB")?;
    bed.attached("")?;
    bed.must("[ $(blockdev --getsize64 /dev/ublkb0) -eq 67108864 ]")?;
    bed.guest.must(DATA, LATER)?;
    let release = bed.must("uname -r")?;
    bed.end()?;
    Ok(Verdict::Passed(format!("{}: copies, checksums, discards, zeroes", release.trim())))
}

/// The shell command that runs a program as a user other than root who can still read the program's
/// folder.
const SOMEBODY: &str =
    "setpriv --reuid 65534 --inh-caps=+dac_read_search --ambient-caps=+dac_read_search";

/// A script that makes a partition and a file system, works on it, and checks it.
const WORK: &str = "
set -e
echo 'start=2048, size=81920, type=83' | sfdisk -q /dev/ublkb0
for n in $(seq 200); do [ -b /dev/ublkb0p1 ] && break; sleep 0.05; done
modprobe ext4
mkfs.ext4 -q -F /dev/ublkb0p1
mkdir -p /mnt/volume
mount /dev/ublkb0p1 /mnt/volume
cp /usr/bin/fio /mnt/volume/program
fio --name=files --directory=/mnt/volume --nrfiles=8 --filesize=64k-512k --rw=randwrite \\
    --bsrange=1k-64k --ioengine=psync --fsync=32 --io_size=4m --verify=crc32c --verify_fatal=1 \\
    --output-format=terse
sync
fstrim -v /mnt/volume
";

/// A script that checks the data written by [`WORK`]. The kernel reads the partition table before
/// the device appears.
const LOOK: &str = "
set -e
[ $(cat /sys/block/ublkb0/ublkb0p1/size) -eq 81920 ]
for n in $(seq 200); do [ -b /dev/ublkb0p1 ] && break; sleep 0.05; done
fsck.ext4 -f -n /dev/ublkb0p1
mount -o ro /dev/ublkb0p1 /mnt/volume
cmp /usr/bin/fio /mnt/volume/program
umount /mnt/volume
";

/// Works with a file system on a partition, detaches and attaches again, and runs commands that
/// must be refused.
pub(in super::super) fn file_system(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(NEEDS) {
        return Ok(skipped);
    }
    let mut bed = UblkSetup::start(context, "mem:64MiB")?;
    let program = bed.path().display().to_string();
    bed.attached("--dev 0 --tenant default")?;
    bed.guest.must(WORK, LATER)?;
    bed.refused(&format!("{program} attach detach 0"), "is in use")?;
    bed.refused(&bed.attach("--dev 0 --tenant default"), "a device has one")?;
    bed.refused(&bed.attach("--dev 0"), "is the volume of")?;
    bed.refused(&format!("{program} attach recover 0"), "a device has one")?;
    if !bed.can_resize()? {
        bed.refused(&format!("{program} attach resize 0"), "cannot change the size")?;
    }
    bed.refused(&format!("{SOMEBODY} {program} attach detach 0"), "only root")?;
    let listed = bed.program("attach list")?;
    let shown = bed.program("attach show 0")?;
    if !listed.contains("/dev/ublkb0  serving") || !shown.contains("67108864 bytes") {
        return Err(format!("`attach list` and `show` say:\n{listed}{shown}"));
    }
    bed.must("umount /mnt/volume")?;
    bed.refused(&format!("exec 9</dev/ublkb0; {program} attach detach 0"), "is open in process")?;
    bed.program("attach detach 0")?;
    bed.attached("--read-only")?;
    bed.must("[ $(blockdev --getro /dev/ublkb0) -eq 1 ]")?;
    bed.refused("dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 oflag=direct", "ublkb0")?;
    bed.guest.must(LOOK, LATER)?;
    bed.end()?;
    Ok(Verdict::Passed("partitions, ext4 made and found again, and refusals".to_owned()))
}

/// For each transport, the most wake-ups of the process of an idle device during [`IDLE`], and the
/// most KiB of its memory. Over packets, the client asks every 20 s whether the server is there.
const IDLE_MAX: [(UblkTransport, [u64; 2]); 2] =
    [(UblkTransport::Streams, [1, 8 * 1024]), (UblkTransport::Packets, [20, 20 * 1024])];

/// A script that prints how often threads of the process were woken in 90 s, and in KiB its
/// resident memory, the part that is its own, and the part that is the program's file.
const IDLE: &str = "
set -e
pid=$(pidof nearflash)
count() { cat /proc/$pid/task/*/status | awk '/^voluntary_ctxt/ { n += $2 } END { print n }'; }
sleep 5
before=$(count)
sleep 90
echo $(($(count) - before)) $(awk '/^(VmRSS|RssAnon|RssFile)/ { print $2 }' /proc/$pid/status)
";

/// Attaches an idle volume over each transport, and checks that its process is hardly woken and
/// takes little memory.
pub(in super::super) fn idle(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut told = Vec::new();
    for (over, most) in IDLE_MAX {
        let mut bed = UblkSetup::over(context, over, "mem:64MiB")?;
        bed.attached("")?;
        let said = bed.guest.must(IDLE, LATER)?;
        let counts: Vec<u64> =
            said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[wakes, memory, own, file] = counts.as_slice() else {
            return Err(format!("no four counts: {said}"));
        };
        told.push(format!(
            "{over:?}: {wakes} wake-ups in 90 s, {memory} KiB: {own} of its own, {file} of its file"
        ));
        if wakes > most[0] || memory > most[1] {
            return Err(format!("{}; the limits are {most:?}", told.join("; ")));
        }
        bed.end()?;
    }
    Ok(Verdict::Passed(told.join("; ")))
}
