//! The rows of reads from a mounted file system, beside one that does nothing over the same channel
//! to the kernel.

use super::load::{direct, fill, on_core, stream};
use super::setup::{FILE_BYTES, Setup};
use crate::bench::packets::judge::{Bound, ComparedSide, Comparison, ratio, verdict};
use crate::bench::process::Server;

/// The least rate of reads in order beside the file system that does nothing.
const STREAM_MIN: f64 = 0.85;

/// The most µs that a read of a page may take beyond the file system that does nothing and the
/// device.
const MORE_MAX: f64 = 5.0;

/// Measures reads of 1 MiB in order, and reads of one page around the kernel's cache. The volume is
/// a file in memory, so that no disk hides the cost.
pub(super) fn measure(setup: &mut Setup) -> Result<Vec<Comparison>, String> {
    let member = setup.memory.path("volume");
    let volume = setup.volume(&member.display().to_string(), "?size=16GiB")?;
    let ours = setup.mount(&volume, setup.memory.folder("mounted")?)?;
    let null = setup.mount_null(setup.memory.folder("null")?)?;
    let file = ours.folder.join("file");
    fill(&file, FILE_BYTES)?;
    // The device alone, without a file system.
    let bare = setup.memory.path("bare");
    fill(&bare, FILE_BYTES)?;
    let zeroes = null.folder.join("zeroes");
    let ids = |server: &Option<Server>| server.iter().map(Server::id).collect::<Vec<_>>();
    let (ours_id, null_id) = (ids(&ours.server), ids(&null.server));
    let (mut streams, mut pages) = (sides(["null", "mount"]), sides(["device", "null", "mount"]));
    let seconds = setup.seconds;
    for _ in 0..setup.rounds {
        streams[0].add(on_core(&null_id, || stream(&zeroes, FILE_BYTES, seconds)));
        streams[1].add(on_core(&ours_id, || stream(&file, FILE_BYTES, seconds)));
        pages[0].add(on_core(&[], || direct(&bare, FILE_BYTES, seconds)));
        pages[1].add(on_core(&null_id, || direct(&zeroes, FILE_BYTES, seconds)));
        pages[2].add(on_core(&ours_id, || direct(&file, FILE_BYTES, seconds)));
    }
    let what = "reads of 1 MiB, mount beside null".to_owned();
    let judged = vec![ratio(what, &streams[1], &streams[0], Bound::AtLeast(STREAM_MIN))];
    let about = "reads of 1 MiB in order".to_owned();
    let first = Comparison { name: "mount", about, unit: "MB/s", sides: streams, judged };
    let [device, null, mount] = [0, 1, 2].map(|side| pages[side].median());
    let more = device.zip(null).zip(mount).map(|((device, null), mount)| mount - null - device);
    let result = more.map_or(String::new(), |more| format!("{more:.1} µs"));
    let what = "µs of a page, mount less null and device".to_owned();
    let all: Vec<&ComparedSide> = pages.iter().collect();
    let judged = vec![verdict(what, Bound::AtMost(MORE_MAX), more, result, &all)];
    let about = "reads of 4 KiB with O_DIRECT, one at a time".to_owned();
    let second = Comparison { name: "mount", about, unit: "µs", sides: pages, judged };
    Ok(vec![first, second])
}

/// Returns sides without figures.
pub(super) fn sides<const N: usize>(names: [&str; N]) -> Vec<ComparedSide> {
    names.map(|name| ComparedSide::new(name.to_owned())).into()
}
