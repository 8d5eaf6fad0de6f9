//! The commands of `nearflash ftl`: volumes of flash translation on members that no server serves.

use std::path::Path;

use dataplane::{FileMedia, explain, member_options, open_member, open_volume, shape};
use flash::{Source, Spec};
use ftl::layout::PAGE_BYTES;
pub use ftl::{CheckReport, Geometry, VolumeParameters};
use ftl::{Media, ReadOnlyMedia};
use io::device::FileVolume;

/// The number of bytes at the beginning of a member that are searched for other data.
const LOOKED_AT: usize = 1 << 20;

/// Returns the path of a spec's member, which must be a file, with the member's size, if the spec
/// has it, and the options of the volume.
fn member(spec: &Spec) -> Result<(&Path, Option<u64>, &flash::FtlOptions), String> {
    match &spec.source {
        Source::Ftl { member, wishes } => match &**member {
            Source::File { path, bytes, .. } => Ok((Path::new(path), *bytes, wishes)),
            _ => Err("a volume in memory is made when it is opened; expected ftl:file:PATH".into()),
        },
        _ => Err("the device has no volume of flash translation; expected ftl:file:PATH".into()),
    }
}

/// Creates a volume on an empty member. With `overwrite`, the member's content is lost.
///
/// # Errors
/// Says what is wrong and what to do. Then nothing was written, unless the member fails.
pub fn create(spec: &Spec, overwrite: bool) -> Result<Geometry, String> {
    let (path, bytes, wishes) = member(spec)?;
    let name = path.display();
    let file = FileVolume::open(path, bytes, member_options(false));
    let file = file.map_err(|error| error.to_string())?;
    let mut media = FileMedia::of(&file)?;
    let failed = |status| format!("{name} fails ({status}); replace it or try again");
    let looked_at = LOOKED_AT.min(media.pages(0) as usize * PAGE_BYTES);
    let mut begin = vec![0; looked_at];
    media.read(0, 0, &mut begin).map_err(failed)?;
    if !overwrite && ftl::describe(&mut media).is_ok() {
        return Err(format!(
            "{name} holds a volume of flash translation already; serve it, or give it up with \
             --overwrite"
        ));
    }
    if !overwrite && begin.iter().any(|byte| *byte != 0) {
        return Err(format!(
            "{name} holds other data; name another member, or give the data up with --overwrite"
        ));
    }
    let shape = shape(wishes, media.pages(0));
    Geometry::plan(&shape, &[media.pages(0)]).map_err(|error| format!("{name}: {error}"))?;
    if overwrite {
        media.write(0, 0, &vec![0; 2 * PAGE_BYTES]).map_err(failed)?;
    }
    ftl::create(&mut media, &shape).map_err(|error| format!("{name}: {error}"))
}

/// Describes the volume on a member.
///
/// # Errors
/// Says what is wrong and what to do.
pub fn show(spec: &Spec) -> Result<VolumeParameters, String> {
    let (path, ..) = member(spec)?;
    let path = path.display().to_string();
    let file = open_member(&path, member_options(true))?;
    ftl::describe(&mut FileMedia::of(&file)?).map_err(|error| explain(&path, error))
}

/// Checks a volume: recovers it in memory, and compares all its pages with their checksums. Nothing
/// is written.
///
/// # Errors
/// Says what is wrong and what to do.
pub fn check(spec: &Spec) -> Result<(VolumeParameters, CheckReport), String> {
    let (path, ..) = member(spec)?;
    let path = path.display().to_string();
    let file = open_member(&path, member_options(true))?;
    let mut media = FileMedia::of(&file)?;
    let mut checked = || {
        let described = ftl::describe(&mut media)?;
        let volume = open_volume(&mut ReadOnlyMedia(&mut media), false)?.0;
        Ok((described, ftl::check(&mut media, &volume)?))
    };
    checked().map_err(|error| explain(&path, error))
}
