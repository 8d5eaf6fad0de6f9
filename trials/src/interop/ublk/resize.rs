//! A test of a volume that grows while a file system on it is mounted.

use std::fs;
use std::process::Command;

use super::super::guest::{LATER, SOON};
use super::super::{Context, Verdict};
use super::fixture::{UblkSetup, UblkTransport, provide};
use xtask::needs::Need;
use xtask::shell;

/// The programs that the test needs in the guest.
const NEEDS: &[Need] = &[
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
    Need { program: "resize2fs", package: "e2fsprogs" },
];

/// A script that grows the file system to the size of its device, and fills the added space.
const GROW: &str = "
set -e
[ $(blockdev --getsize64 /dev/ublkb0) -eq 100663296 ]
resize2fs /dev/ublkb0
fio --name=files --directory=/mnt/volume --size=56m --rw=write --bs=64k --end_fsync=1 \\
    --ioengine=psync --verify=crc32c --verify_fatal=1 --output-format=terse
cmp /usr/bin/fio /mnt/volume/program
";

/// A script that kills the process that serves the device.
const KILL: &str = r#"
process=$(sed -n 's/.*"process": \([0-9]*\).*/\1/p' /run/nearflash-attach/0.json)
kill -KILL $process || exit 1
for n in $(seq 1000); do [ -e /proc/$process ] || exit 0; sleep 0.05; done; exit 1
"#;

/// A script that checks that the device has its grown size after the kill, and checks the file
/// system.
const LOOK: &str = "
set -e
[ $(blockdev --getsize64 /dev/ublkb0) -eq 100663296 ]
umount /mnt/volume
fsck.ext4 -f -n /dev/ublkb0
";

/// Grows a volume from 32 to 96 MiB under a mounted file system, and kills the process that serves
/// it.
pub(in super::super) fn grow(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(NEEDS) {
        return Ok(skipped);
    }
    let config = context.folder.join("server.toml");
    let volume = context.folder.join("volume");
    let text = format!(
        "[[device]]\nname = \"d\"\nspec = \"file:{}?size=128MiB\"\n\
         [[namespace]]\nname = \"v\"\ndevice = \"d\"\nsize = \"32MiB\"\n",
        volume.display()
    );
    fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let (config, admin) = (config.display().to_string(), context.folder.join("admin"));
    let admin = admin.display().to_string();
    let arguments = ["--state", "none", "--admin", &admin, "--config", &config];
    let mut bed = UblkSetup::of(context, UblkTransport::Streams, &arguments)?;
    if !bed.can_resize()? {
        return Ok(Verdict::Skipped("the guest's kernel cannot change sizes".to_owned()));
    }
    bed.attached("--dev 0")?;
    bed.guest.mount_ext4("/dev/ublkb0")?;
    bed.must("cp /usr/bin/fio /mnt/volume/program")?;
    let mut command = Command::new(&context.nearflash);
    command.args(["namespace", "resize", "v", "96MiB"]).env("NEARFLASH_ADMIN", &admin);
    let ran = shell::capture(&mut command, SOON)?;
    if !ran.ok {
        return Err(ran.output);
    }
    let shown = bed.program("attach show 0")?;
    if !shown.contains("100663296 bytes: see `attach resize`") {
        return Err(format!("`attach show` does not say that the volume has grown:\n{shown}"));
    }
    bed.program("attach resize 0")?;
    bed.guest.must(GROW, LATER)?;
    bed.must(KILL)?;
    bed.attached("--dev 0")?;
    bed.guest.must(LOOK, LATER)?;
    let release = bed.must("uname -r")?;
    bed.end()?;
    Ok(Verdict::Passed(format!("{}: ext4 has grown while it was mounted", release.trim())))
}
