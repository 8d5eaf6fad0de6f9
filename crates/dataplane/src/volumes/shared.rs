//! The memory of a volume's map, which another process maps to take the volume over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use io::SharedMemory;
use zerocopy::{FromBytes, IntoBytes};

/// The descriptors of the memory of a map: of its places, and of its heats.
#[derive(Debug)]
pub(super) struct MapDescriptors([OwnedFd; 2]);

impl MapDescriptors {
    pub(super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|file| file.as_fd())
    }
}

/// Moves the map of a volume to memory that another process can map.
pub(super) fn shared(volume: &mut ftl::Volume) -> Result<MapDescriptors, String> {
    let (places, heat) = volume.memory_sizes();
    let create = |bytes| SharedMemory::create(bytes).map_err(|error| error.to_string());
    let ((places_file, places), (heat_file, heat)) = (create(places * 4)?, create(heat)?);
    volume.share(memory(places, heat)?);
    Ok(MapDescriptors([places_file, heat_file]))
}

/// Maps the memory of a map that another process has, by its two descriptors.
pub(super) fn adopted(files: Vec<OwnedFd>) -> Result<(ftl::MapMemory, MapDescriptors), String> {
    let files: [OwnedFd; 2] = files.try_into().map_err(|_| "the memory of a map did not come")?;
    let adopt = |file| SharedMemory::adopt(file).map_err(|error| error.to_string());
    let (places, heat) = (adopt(&files[0])?, adopt(&files[1])?);
    Ok((memory(places, heat)?, MapDescriptors(files)))
}

fn memory(places: SharedMemory, heat: SharedMemory) -> Result<ftl::MapMemory, String> {
    let places = <[u32]>::mut_from_bytes(places.into_bytes());
    let places = places.map_err(|_| "the memory of a map has an odd size")?;
    let give_back = |places: &'static mut [u32]| SharedMemory::give_back(places.as_mut_bytes());
    let places = ftl::LentMemory::new(places, give_back);
    Ok(ftl::MapMemory {
        places,
        heat: ftl::LentMemory::new(heat.into_bytes(), SharedMemory::give_back),
    })
}
