//! Making and checking a file system.

use contigfs::{Pages, Shape, Time};
use dataplane::OfflineVolume;
use flash::Spec;
use io::since_1970;

/// Number of inodes that no file can have.
const INODES_RESERVED: u32 = 1;

/// Makes a file system on a volume.
pub(crate) fn create(spec: &Spec, files: Option<u32>, print: &dyn Fn(&str)) -> Result<(), String> {
    let mut medium = OfflineVolume::open(spec)?;
    let made = make(&mut medium, files);
    medium.close();
    let shape = made?;
    print(&format!("files and folders: at most {}", shape.inodes - INODES_RESERVED));
    print(&format!("folders and symbolic links: at most {}", shape.pool_pages));
    print(&format!("a file's first place: {} MiB of the volume's space", 4_u64 << shape.order));
    Ok(())
}

fn make(medium: &mut OfflineVolume, files: Option<u32>) -> Result<Shape, String> {
    let pages = medium.pages();
    let mut shape = Shape::of(io::random_uuid(), pages, pages);
    if let Some(files) = files {
        shape.inodes = inodes(files)?;
    }
    // Each folder and each symbolic link takes a page at least.
    shape.pool_pages = shape.pool_pages.max(shape.inodes / 2);
    contigfs::create(medium, &shape, now(), (0, 0)).map_err(|error| error.to_string())?;
    medium.flush().map_err(|status| format!("the volume fails ({status})"))?;
    Ok(shape)
}

/// Returns the number of inodes for so many files: a page of the table has 32.
fn inodes(files: u32) -> Result<u32, String> {
    const MOST: u32 = u32::MAX - 31 - INODES_RESERVED;
    match files {
        ..=MOST => Ok((files + INODES_RESERVED).next_multiple_of(32)),
        _ => Err(format!("--files {files}: there can be at most {MOST}; choose a smaller number")),
    }
}

/// Returns the time of day.
pub(crate) fn now() -> Time {
    let now = since_1970();
    Time { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// Returns a number that users cannot guess, for the hash of names.
pub(crate) fn seed() -> u64 {
    let mut seed = [0; 8];
    io::random(&mut seed);
    u64::from_ne_bytes(seed)
}

/// Looks for faults in the file system of a volume.
pub(crate) fn check(spec: &Spec, print: &dyn Fn(&str)) -> Result<(), String> {
    let mut medium = OfflineVolume::open(spec)?;
    let checked = contigfs::check(&mut medium).map_err(|error| error.to_string());
    medium.close();
    let checked = checked?;
    print(&format!("files and folders: {}", checked.inodes));
    print(&format!("names: {}", checked.names));
    print(&format!("without a name, removed by the next mount: {}", checked.nameless));
    print(&format!("pages of metadata: {}", checked.pool_pages));
    print(&format!("bytes of all files: {}", checked.bytes));
    print(&format!("faults: {}", checked.faults.count));
    for fault in &checked.faults.first {
        print(&format!("fault: {fault}"));
    }
    match checked.faults.count {
        0 => Ok(()),
        _ => Err("the file system contradicts itself; restore the volume from a copy".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_files_beyond_all_tables_is_refused() {
        assert_eq!((inodes(0), inodes(31), inodes(32)), (Ok(32), Ok(32), Ok(64)));
        assert_eq!(inodes(u32::MAX - 32), Ok(u32::MAX - 31));
        for files in [u32::MAX - 31, u32::MAX] {
            assert!(inodes(files).unwrap_err().contains("4294967263"));
        }
    }
}
