//! The rows of files that are created, made durable and removed: a mounted file system beside ext4
//! on a device of the same kind, and beside a file system that does nothing.

use super::load::{names, on_core};
use super::mounted::sides;
use super::setup::Setup;
use crate::bench::packets::judge::{Bound, Comparison, ratio};
use crate::bench::process::Server;
use xtask::shell;

/// The least rate beside ext4.
const RATIO_MIN: f64 = 0.5;

/// Bytes of the files below the devices, which are sparse.
const DEVICE_BYTES: u64 = 16 << 30;

/// Measures on loop devices over files on a disk, and again over files in memory.
pub(super) fn measure(setup: &mut Setup) -> Result<Vec<Comparison>, String> {
    if let Some(missing) =
        ["losetup", "mkfs.ext4"].into_iter().find(|program| !shell::has_program(program))
    {
        println!("left out: names: there is no {missing}");
        return Ok(Vec::new());
    }
    let null = setup.mount_null(setup.memory.folder("null")?)?;
    let mut measured = Vec::new();
    for place in ["disk", "memory"] {
        let folder = if place == "disk" { &setup.disk } else { &setup.memory };
        let [ours, ext4] = ["ours.image", "ext4.image"].map(|name| folder.path(name));
        let (ours_at, ext4_at) = (setup.memory.folder("mounted")?, setup.memory.folder("ext4")?);
        let ext4 = setup.mount_ext4((&ext4, DEVICE_BYTES), ext4_at)?;
        let ours = setup.mount_on_loop((&ours, DEVICE_BYTES), ours_at)?;
        let mut sides = sides(["ext4", "mount", "null"]);
        for _ in 0..setup.rounds {
            for (side, mount) in sides.iter_mut().zip([&ext4, &ours, &null]) {
                let ids: Vec<u32> = mount.server.iter().map(Server::id).collect();
                side.add(on_core(&ids, || names(&mount.folder, setup.seconds)));
            }
        }
        let what = format!("files on {place}, mount beside ext4");
        let judged = vec![ratio(what, &sides[1], &sides[0], Bound::AtLeast(RATIO_MIN))];
        let about = format!("create, write 4 KiB, fsync, unlink; loop device on {place}");
        measured.push(Comparison { name: "names", about, unit: "files/s", sides, judged });
    }
    Ok(measured)
}
