//! A test of a machine whose disk is an export: its firmware, boot loader and kernel read the disk
//! over NBD, and the machine is cut from power while it writes.

use std::fs;
use std::time::{Duration, Instant};

use super::super::guest::{Backing, Controller, Disk, Guest, Machine};
use super::super::{Context, Verdict};
use super::exports::{Exports, run};
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "qemu-img", package: "qemu-utils" },
    Need { program: "syslinux", package: "syslinux" },
    Need { program: "mcopy", package: "mtools" },
    Need { program: "mkfs.vfat", package: "dosfstools" },
];

/// The size in bytes of the file system from which the machine boots, at the start of the disk.
const BOOT_BYTES: u64 = 32 << 20;

/// The time limit of commands in the guest.
const LIMIT: Duration = Duration::from_secs(120);

/// A script that writes ascending numbers behind the boot loader's file system for ever, each
/// durable before the next.
const COUNT: &str = "
n=0
while :; do
    n=$((n + 1))
    printf '%-4096d' $n >/run/number
    dd if=/run/number of=/dev/vda bs=4096 seek=9000 oflag=direct,dsync conv=notrunc status=none ||
        exit 1
    echo $n
done
";

/// Boots a machine from an export twice, with a power cut in between.
pub(in super::super) fn boot(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    let exports = Exports::start(context)?;
    let (qemu, kernel) = context.tools()?;
    let disk =
        Disk { controller: Controller::Virtio, backing: Backing::Nbd(exports.socket.clone()) };
    let share = &context.folder;
    let machine = Machine { qemu, kernel, share, disks: vec![disk], forwards: Vec::new() };
    let image = exports.path("boot.image");
    make_image(&exports, &machine, &image)?;
    run(&["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", &image, &exports.url("second")])?;
    let mut guest = machine.boot_from_disk("first")?;
    let written = guest.start(COUNT)?;
    let (mut last, began) = (0, Instant::now());
    while began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(100));
        let text = fs::read_to_string(&written).unwrap_or_default();
        // The last line may not be whole yet.
        last = text.lines().rev().skip(1).find_map(|line| line.parse().ok()).unwrap_or(0);
        if last >= 50 {
            break;
        }
    }
    guest.cut();
    if last < 50 {
        return Err(format!("the guest wrote {last} numbers in {} s", LIMIT.as_secs()));
    }
    let mut guest = machine.boot_from_disk("second")?;
    let found = number(&mut guest)?;
    guest.stop()?;
    match found >= last {
        true => Ok(Verdict::Passed(format!("two boots; {last} durable writes, {found} found"))),
        false => Err(format!("write {last} was acknowledged, and {found} is on the disk")),
    }
}

fn number(guest: &mut Guest) -> Result<u64, String> {
    let text =
        guest.must("dd if=/dev/vda bs=4096 skip=9000 count=1 iflag=direct status=none", LIMIT)?;
    text.trim().parse().map_err(|_| format!("the disk has {text:?} in place of a number"))
}

/// Makes a file system with the boot loader, the kernel, and the kernel's first file system, in the
/// file `image`.
fn make_image(exports: &Exports, machine: &Machine, image: &str) -> Result<(), String> {
    let failed = |path: &str, error: std::io::Error| format!("{path}: {error}");
    let file = fs::File::create(image);
    file.and_then(|file| file.set_len(BOOT_BYTES)).map_err(|error| failed(image, error))?;
    run(&["mkfs.vfat", image])?;
    run(&["syslinux", "--install", image])?;
    let settings = exports.path("syslinux.cfg");
    let text = format!(
        "DEFAULT linux\nPROMPT 0\nLABEL linux\n  LINUX linux\n  INITRD initramfs\n  APPEND {}\n",
        machine.kernel_words()
    );
    fs::write(&settings, text).map_err(|error| failed(&settings, error))?;
    let kernel = machine.kernel;
    let [linux, initramfs] = [&kernel.image, &kernel.initramfs].map(|p| p.display().to_string());
    for (from, to) in
        [(&settings, "::syslinux.cfg"), (&linux, "::linux"), (&initramfs, "::initramfs")]
    {
        run(&["mcopy", "-i", image, from, to])?;
    }
    Ok(())
}
