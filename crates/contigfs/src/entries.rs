//! The entries in a page of a directory.
//!
//! Records tile the content of the page. A record with an inode is an entry, one without is a hole.
//! Entries never move, so the place of an entry is a cookie for as long as the entry lives.
//!
//! | bytes | field of a record |
//! |---|---|
//! | 0–3 | inode, zero for a hole |
//! | 4–7 | generation of the inode |
//! | 8–9 | bytes of the record, a multiple of 8 and at least 16 |
//! | 10 | bytes of the name |
//! | 11 | type: the mode's upper four bits |
//! | 12… | name |

use crate::layout::CONTENT_BYTES;
use crate::words::{Ino, NAME_MAX};

/// Bytes of a record before its name.
const HEAD_BYTES: usize = 12;

/// Size in bytes of the smallest record of a directory page.
const RECORD_BYTES_MIN: usize = 16;

/// A directory entry: a name and its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Offset of the record in the content.
    pub(crate) offset: usize,
    /// Number of the inode that the entry names.
    pub(crate) ino: Ino,
    /// Generation of the inode, which distinguishes successive inodes of the same number.
    pub(crate) generation: u32,
    /// The type, as in a mode.
    pub(crate) kind: u32,
    /// Name of the entry, a single path component.
    pub(crate) name: &'a [u8],
}

/// Returns the bytes of the record of a name.
pub(crate) fn record_bytes(name: &[u8]) -> usize {
    (HEAD_BYTES + name.len()).next_multiple_of(8)
}

fn ino_at(content: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(content[at..at + 4].try_into().expect("four bytes"))
}

fn bytes_at(content: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([content[at + 8], content[at + 9]]))
}

fn set_bytes(content: &mut [u8], at: usize, bytes: usize) {
    let bytes = u16::try_from(bytes).expect("a record is shorter than a page");
    content[at + 8..at + 10].copy_from_slice(&bytes.to_le_bytes());
}

fn set_hole(content: &mut [u8], at: usize, bytes: usize) {
    content[at..at + HEAD_BYTES].fill(0);
    set_bytes(content, at, bytes);
}

/// Makes a directory page empty: one hole that covers the whole content.
pub(crate) fn clear(content: &mut [u8]) {
    content.fill(0);
    set_hole(content, 0, CONTENT_BYTES);
}

/// Returns the entry of a record, or `None` for a hole.
pub(crate) fn entry_at(content: &[u8], offset: usize) -> Option<Entry<'_>> {
    let ino = ino_at(content, offset);
    let generation = ino_at(content, offset + 4);
    let name_at = offset + HEAD_BYTES;
    let name = &content[name_at..name_at + usize::from(content[offset + 10])];
    let kind = u32::from(content[offset + 11]) << 12;
    (ino != 0).then_some(Entry { offset, ino, generation, kind, name })
}

/// Returns the entries of a page.
pub(crate) fn entries(content: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut at = 0;
    let records = core::iter::from_fn(move || {
        let offset = at;
        (offset < CONTENT_BYTES).then(|| {
            at += bytes_at(content, offset);
            entry_at(content, offset)
        })
    });
    records.flatten()
}

/// Returns the largest hole in bytes.
pub(crate) fn room(content: &[u8]) -> usize {
    let (mut at, mut largest) = (0, 0);
    while at < CONTENT_BYTES {
        let bytes = bytes_at(content, at);
        if ino_at(content, at) == 0 {
            largest = largest.max(bytes);
        }
        at += bytes;
    }
    largest
}

/// Writes an entry into the first hole that has room, and returns its offset.
///
/// # Panics
/// Panics if no hole has room.
pub(crate) fn insert(
    content: &mut [u8],
    name: &[u8],
    ino: Ino,
    generation: u32,
    kind: u32,
) -> usize {
    let need = record_bytes(name);
    let mut at = 0;
    while ino_at(content, at) != 0 || bytes_at(content, at) < need {
        at += bytes_at(content, at);
        assert!(at < CONTENT_BYTES, "a hole has room");
    }
    let has = bytes_at(content, at);
    if has - need >= RECORD_BYTES_MIN {
        set_hole(content, at + need, has - need);
        set_bytes(content, at, need);
    }
    set_inode(content, at, ino, generation, kind);
    content[at + 10] = name.len() as u8;
    content[at + HEAD_BYTES..at + HEAD_BYTES + name.len()].copy_from_slice(name);
    at
}

/// Lets an entry name another inode.
pub(crate) fn set_inode(content: &mut [u8], at: usize, ino: Ino, generation: u32, kind: u32) {
    content[at..at + 4].copy_from_slice(&ino.to_le_bytes());
    content[at + 4..at + 8].copy_from_slice(&generation.to_le_bytes());
    content[at + 11] = (kind >> 12) as u8;
}

/// Turns a directory entry into a hole, and merges the hole with adjacent holes. Returns `true` if
/// the page has no entry left.
pub(crate) fn remove(content: &mut [u8], offset: usize) -> bool {
    let (mut start, mut before) = (offset, None);
    let mut at = 0;
    while at < offset {
        before = (ino_at(content, at) == 0).then_some(at);
        at += bytes_at(content, at);
    }
    let mut end = offset + bytes_at(content, offset);
    if let Some(hole) = before {
        start = hole;
    }
    if end < CONTENT_BYTES && ino_at(content, end) == 0 {
        end += bytes_at(content, end);
    }
    content[start..end].fill(0);
    set_hole(content, start, end - start);
    start == 0 && end == CONTENT_BYTES
}

/// Returns `true` if a name may stand in a directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Checks the structure of a directory page that was read from the device.
///
/// # Errors
/// The fault in words.
pub(crate) fn verify(content: &[u8]) -> Result<(), &'static str> {
    let mut at = 0;
    while at < CONTENT_BYTES {
        if CONTENT_BYTES - at < RECORD_BYTES_MIN {
            return Err("a record crosses the end of the page");
        }
        let bytes = bytes_at(content, at);
        if bytes < RECORD_BYTES_MIN || !bytes.is_multiple_of(8) {
            return Err("a record has an impossible length");
        }
        if at + bytes > CONTENT_BYTES {
            return Err("a record crosses the end of the page");
        }
        let name_bytes = usize::from(content[at + 10]);
        if name_bytes > bytes - HEAD_BYTES {
            return Err("a name is longer than its record");
        }
        if entry_at(content, at).is_some_and(|entry| !is_name(entry.name)) {
            return Err("a name is empty, or has a slash or a zero");
        }
        at += bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn entries_keep_their_places_and_holes_join() {
        let mut content = vec![0; CONTENT_BYTES];
        clear(&mut content);
        let mut places = Vec::new();
        while room(&content) >= record_bytes(b"name000") {
            let name = format!("name{:03}", places.len());
            places.push(insert(&mut content, name.as_bytes(), 7, 1, 0o100_000));
            verify(&content).unwrap();
        }
        assert_eq!(places.len(), CONTENT_BYTES / 24);
        for place in places.iter().step_by(2) {
            assert!(!remove(&mut content, *place));
        }
        assert_eq!(entries(&content).count(), places.len() / 2);
        let left: Vec<usize> = entries(&content).map(|entry| entry.offset).collect();
        assert!(left.iter().all(|place| places.contains(place)));
        for (index, place) in left.iter().enumerate() {
            verify(&content).unwrap();
            assert_eq!(remove(&mut content, *place), index == left.len() - 1);
        }
        assert_eq!(room(&content), CONTENT_BYTES);
    }

    #[test]
    fn a_name_of_255_bytes_fits_fourteen_times() {
        let mut content = vec![0; CONTENT_BYTES];
        clear(&mut content);
        let name = [b'x'; 255];
        for _ in 0..14 {
            insert(&mut content, &name, 9, 1, 0o040_000);
        }
        assert!(room(&content) < record_bytes(&name));
        assert!(entries(&content).all(|entry| entry.name == name && entry.kind == 0o040_000));
    }

    #[test]
    fn damaged_content_is_refused() {
        let mut content = vec![0; CONTENT_BYTES];
        assert!(verify(&content).is_err(), "records of no length");
        clear(&mut content);
        insert(&mut content, b"a", 9, 1, 0);
        assert!(verify(&content).is_ok());
        for (at, value) in [(8, 12), (8, 24), (10, 5), (12, b'/'), (12, b'.'), (9, 0xff)] {
            let mut damaged = content.clone();
            damaged[at] = value;
            assert!(verify(&damaged).is_err(), "byte {at}");
        }
    }
}
