//! Tests of file systems on an NVMe/TCP device: each is made, worked on, checked, and found intact
//! after reconnecting.

use super::super::{Context, Verdict};
use super::{HostAndServer, LATER, provide};
use xtask::needs::Need;

/// A kind of file system: the commands that make and check it, and the programs that its test
/// needs.
struct Kind {
    name: &'static str,
    make: &'static str,
    check: &'static str,
    needs: &'static [Need],
}

const STRESS: Need = Need { program: "stress-ng", package: "stress-ng" };

const EXT4: Kind = Kind {
    name: "ext4",
    make: "mkfs.ext4 -q -F",
    check: "fsck.ext4 -f -n",
    needs: &[STRESS, Need { program: "mkfs.ext4", package: "e2fsprogs" }],
};

const XFS: Kind = Kind {
    name: "xfs",
    make: "mkfs.xfs -q -f",
    check: "xfs_repair -n",
    needs: &[STRESS, Need { program: "mkfs.xfs", package: "xfsprogs" }],
};

/// Tests ext4.
pub(in super::super) fn ext4(context: &Context) -> Result<Verdict, String> {
    file_system(context, &EXT4)
}

/// Tests XFS.
pub(in super::super) fn xfs(context: &Context) -> Result<Verdict, String> {
    file_system(context, &XFS)
}

/// A script in which several processes make, rename, link, punch, map and verify files; then fio
/// verifies files with checksums of its own.
const WORK: &str = "
set -e
cd /mnt/volume
cp /usr/bin/fio program
stress-ng --temp-path . --hdd 1 --hdd-bytes 8m --hdd-ops 200 --dentry 1 --dentry-ops 500 \\
    --rename 1 --rename-ops 500 --link 1 --link-ops 20 --fallocate 1 --fallocate-bytes 8m \\
    --fallocate-ops 10 --fpunch 1 --fpunch-ops 50 --mmap 0 --sync-file 1 --sync-file-ops 20 \\
    --verify --timeout 20
fio --name=files --directory=. --nrfiles=16 --filesize=64k-2m --rw=randwrite --bsrange=1k-256k \\
    --ioengine=psync --fsync=32 --io_size=16m --verify=crc32c --verify_fatal=1 \\
    --output-format=terse
cmp /usr/bin/fio program
mkdir many
for n in $(seq 200); do echo $n >many/$n; done
rm many/*7
sync
fstrim -v /mnt/volume
cd /
umount /mnt/volume
";

/// A script that checks the files written by [`WORK`].
const LOOK: &str = "
set -e
mount /dev/nvme0n1 /mnt/volume
cmp /usr/bin/fio /mnt/volume/program
[ $(ls /mnt/volume/many | wc -l) -eq 180 ]
for n in $(ls /mnt/volume/many); do [ $(cat /mnt/volume/many/$n) -eq $n ]; done
umount /mnt/volume
";

fn file_system(context: &Context, kind: &Kind) -> Result<Verdict, String> {
    if let Some(skipped) = provide(kind.needs) {
        return Ok(skipped);
    }
    let Kind { name, make, check, .. } = kind;
    let mut pair = HostAndServer::start(context, &["mem:512MiB"])?;
    pair.connect("")?;
    pair.must(&format!(
        "modprobe {name}; {make} /dev/nvme0n1 && mkdir -p /mnt/volume && \
         mount /dev/nvme0n1 /mnt/volume"
    ))?;
    pair.guest.must(WORK, LATER)?;
    pair.guest.must(&format!("{check} /dev/nvme0n1"), LATER)?;
    pair.disconnect()?;
    pair.connect("--data-digest --hdr-digest")?;
    pair.must(LOOK)?;
    pair.guest.must(&format!("{check} /dev/nvme0n1"), LATER)?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed(format!("{name} made, stressed, trimmed, checked, found again")))
}
