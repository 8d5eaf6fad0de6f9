//! Superblocks of formats on media: a page that begins with a magic and a version and ends with a
//! checksum, in several copies.
//!
//! This module deliberately leaves out what a superblock says, and where its copies lie.

use zerocopy::FromBytes;

/// Bytes of the checksum at a superblock's end.
const CHECK_BYTES: usize = 4;

/// A format whose superblocks are pages: eight bytes of magic, two of version, content, and a
/// checksum of four bytes, all little-endian.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The first bytes of a superblock.
    pub magic: [u8; 8],
    /// The versions that can be read.
    pub versions: &'static [u16],
    /// The checksum of the bytes before it.
    pub checksum: fn(&[u8]) -> u32,
}

/// The result of reading a page that should hold a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockPage<T> {
    /// A sound superblock.
    Sound(T),
    /// A superblock with a version of the format that cannot be read.
    Version(u16),
    /// The page is damaged.
    Damaged,
    /// The page holds nothing of the format.
    Nothing,
}

impl Format {
    /// Reads a page that should hold a superblock with the layout `T`.
    pub fn read<T: FromBytes>(&self, page: &[u8]) -> SuperblockPage<T> {
        let Ok(block) = T::read_from_bytes(page) else { return SuperblockPage::Nothing };
        let Some((content, check)) = page.split_last_chunk::<CHECK_BYTES>() else {
            return SuperblockPage::Nothing;
        };
        let Some(version) = content.strip_prefix(&self.magic) else {
            return SuperblockPage::Nothing;
        };
        match version.first_chunk() {
            _ if (self.checksum)(content) != u32::from_le_bytes(*check) => SuperblockPage::Damaged,
            None => SuperblockPage::Damaged,
            Some(version) => match u16::from_le_bytes(*version) {
                version if self.versions.contains(&version) => SuperblockPage::Sound(block),
                other => SuperblockPage::Version(other),
            },
        }
    }

    /// Writes the checksum of a superblock whose content is in place.
    ///
    /// # Panics
    /// Panics if the page is shorter than a checksum.
    pub fn seal(&self, page: &mut [u8]) {
        let (content, check) =
            page.split_last_chunk_mut::<CHECK_BYTES>().expect("a page has room for a checksum");
        *check = (self.checksum)(content).to_le_bytes();
    }
}

/// The reason why no copy of a superblock can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingSuperblock {
    /// A copy has a version of the format that cannot be read. It may be newer than the others.
    Version(u16),
    /// No copy of the superblock is valid, and at least one copy is damaged.
    Damaged,
    /// There is no copy of the superblock on the device.
    Nothing,
}

/// The search for a superblock among its copies.
#[derive(Clone, Copy, Debug)]
pub struct Search<T> {
    newest: Option<T>,
    version: Option<u16>,
    damaged: u32,
}

impl<T> Search<T> {
    /// Returns a search that has seen no copy.
    pub fn new() -> Search<T> {
        Search { newest: None, version: None, damaged: 0 }
    }

    /// Takes a copy in. A sound one is preferred to those before if `is_newer(&copy, &before)`.
    pub fn take(&mut self, copy: SuperblockPage<T>, is_newer: impl FnOnce(&T, &T) -> bool) {
        match copy {
            SuperblockPage::Sound(block) => {
                if self.newest.as_ref().is_none_or(|before| is_newer(&block, before)) {
                    self.newest = Some(block);
                }
            }
            SuperblockPage::Version(version) => self.version = Some(version),
            SuperblockPage::Damaged => self.damaged += 1,
            // Erased beside a sound copy, it is damaged as well.
            SuperblockPage::Nothing => {}
        }
    }

    /// Returns the number of damaged copies.
    pub fn damaged(&self) -> u32 {
        self.damaged
    }

    /// Returns the newest sound copy.
    ///
    /// # Errors
    /// Says why no copy can be used.
    pub fn end(self) -> Result<T, MissingSuperblock> {
        match (self.version, self.newest) {
            (Some(version), _) => Err(MissingSuperblock::Version(version)),
            (None, Some(block)) => Ok(block),
            (None, None) if self.damaged > 0 => Err(MissingSuperblock::Damaged),
            (None, None) => Err(MissingSuperblock::Nothing),
        }
    }
}

impl<T> Default for Search<T> {
    fn default() -> Search<T> {
        Search::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format {
        magic: *b"a format",
        versions: &[1, 3],
        checksum: |bytes| bytes.iter().map(|byte| u32::from(*byte)).sum(),
    };

    fn page(version: u8, content: u8) -> [u8; 20] {
        let mut page = [0; 20];
        page[..8].copy_from_slice(&FORMAT.magic);
        (page[8], page[12]) = (version, content);
        FORMAT.seal(&mut page);
        page
    }

    fn read(page: &[u8]) -> SuperblockPage<[u8; 20]> {
        FORMAT.read(page)
    }

    #[test]
    fn a_page_is_read_by_its_magic_its_checksum_and_its_version() {
        let sound = page(3, 7);
        assert_eq!(read(&sound), SuperblockPage::Sound(sound));
        assert_eq!(read(&page(2, 7)), SuperblockPage::Version(2));
        for (at, found) in [
            (0, SuperblockPage::Nothing),
            (8, SuperblockPage::Damaged),
            (16, SuperblockPage::Damaged),
        ] {
            let mut page = sound;
            page[at] ^= 1;
            assert_eq!(read(&page), found, "byte {at}");
        }
        assert_eq!(read(&[0; 20]), SuperblockPage::Nothing);
        assert_eq!(read(&sound[..19]), SuperblockPage::Nothing);
    }

    fn search(copies: &[SuperblockPage<u32>]) -> (Result<u32, MissingSuperblock>, u32) {
        let mut search = Search::new();
        copies.iter().for_each(|copy| search.take(*copy, |new, old| new > old));
        (search.end(), search.damaged())
    }

    #[test]
    fn the_newest_sound_copy_is_found_unless_a_copy_has_another_version() {
        use SuperblockPage::{Damaged, Nothing, Sound, Version};
        assert_eq!(search(&[Sound(4), Sound(5)]), (Ok(5), 0));
        assert_eq!(search(&[Sound(5), Sound(4)]), (Ok(5), 0));
        assert_eq!(search(&[Damaged, Sound(4)]), (Ok(4), 1));
        assert_eq!(search(&[Nothing, Sound(4)]), (Ok(4), 0));
        assert_eq!(search(&[Sound(4), Version(9)]), (Err(MissingSuperblock::Version(9)), 0));
        assert_eq!(search(&[Nothing, Damaged]), (Err(MissingSuperblock::Damaged), 1));
        assert_eq!(search(&[Nothing, Nothing]), (Err(MissingSuperblock::Nothing), 0));
    }
}
