//! Fuzzes the media: a mount and a check of damaged pages end with a sentence or a file system,
//! never with a panic, and a file system that mounts works.

use flash::Rng;
use nearflash_contigfs::layout::{self, PAGE_BYTES};
use nearflash_contigfs::*;

use crate::disk::Disk;
use crate::random::step;
use crate::rounds::rounds;
use crate::world::{Sizes, World};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 300;

const SIZES: Sizes = Sizes { pages: 1 << 18, inodes: 128, pool_pages: 64, commit_pages: 12 };

/// Returns a volume with some files.
fn volume(seed: u64) -> (Disk, Settings) {
    let mut world = World::new(SIZES, seed % 8);
    for _ in 0..300 {
        step(&mut world, 8);
    }
    (world.disk.clone(), world.settings)
}

/// Damages pages of metadata. Half of them get the right checksum.
fn damage(chance: &mut Rng, disk: &mut Disk) {
    let metadata: Vec<u64> = disk.pages.keys().copied().take_while(|page| *page < 70).collect();
    for _ in 0..=chance.below(3) {
        let page = *chance.pick(&metadata);
        let mut image = disk.page(page);
        for _ in 0..=chance.below(4) {
            let at = match chance.below(3) {
                0 => chance.below(PAGE_BYTES),
                1 => chance.below(64),
                _ => 128 * chance.below(32) + chance.below(80),
            };
            let value = [0, 1, 0xff, 0x80, chance.number() as u8][chance.below(5)];
            image[at] = value;
        }
        if chance.one_in(8) {
            image = disk.page(*chance.pick(&metadata));
        }
        match page {
            0 | 1 => {
                let crc = layout::checksum(&image[..PAGE_BYTES - 4]);
                image[PAGE_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            }
            2..6 => layout::seal_inodes(&mut image),
            _ => layout::seal_pool(&mut image),
        }
        if chance.one_in(2) {
            let at = chance.below(PAGE_BYTES);
            image[at] ^= u8::from(chance.one_in(2));
        }
        disk.pages.insert(page, image.clone());
        if page == 0 && chance.one_in(2) {
            disk.pages.insert(1, image);
        }
    }
}

/// Uses all that a file system has.
fn walk(system: &mut FileSystem, disk: &mut Disk) {
    let mut next = vec![ROOT];
    let (now, caller) = (Time::default(), Caller::default());
    let mut names = 0;
    while let Some(parent) = next.pop() {
        let mut entries = Vec::new();
        let visit = |entry: &DirectoryEntry| {
            entries.push((entry.ino, entry.kind, entry.name.to_vec()));
            true
        };
        system.read_directory(parent, 2, visit).expect("it is a directory");
        for (ino, kind, name) in entries {
            names += 1;
            assert!(names < 10_000, "the tree has an end");
            let name = &name;
            let how = XattrMode::Any;
            let _ = system.apply(now, &caller, Operation::ReadLink { ino });
            let _ = system.apply(now, &caller, Operation::ListXattrs { ino });
            let set = Operation::SetXattr { ino, name: b"user.x", value: b"1", how };
            let _ = system.apply(now, &caller, set);
            let change = AttributeChange { size: Some(10), ..AttributeChange::default() };
            let _ = system.apply(now, &caller, Operation::Change { ino, change });
            if kind == S_IFDIR {
                next.push(ino);
            } else {
                let _ = system.apply(now, &caller, Operation::Unlink { parent, name });
            }
        }
    }
    settle(system, disk).expect("memory does not fail");
}

#[test]
fn damaged_media_never_panic() {
    let (mut mounted, mut refused) = (0, 0);
    rounds(ROUNDS, |seed| {
        let mut chance = Rng::new(seed);
        let (mut disk, settings) = volume(seed);
        damage(&mut chance, &mut disk);
        let checked = check(&mut disk.clone());
        match mount(&mut disk, &settings) {
            Ok(mut system) => {
                mounted += 1;
                assert_eq!(checked.expect("what mounts can be checked").faults.count, 0);
                walk(&mut system, &mut disk);
                assert_eq!(check(&mut disk).expect("it can be read").faults.first, [""; 0]);
            }
            Err(error) => {
                refused += 1;
                assert!(!format!("{error}").is_empty());
                assert!(checked.is_err() || checked.is_ok_and(|found| found.faults.count > 0));
            }
        }
    });
    println!("{mounted} mounted, {refused} refused");
    assert!(mounted + refused < 50 || (mounted > 0 && refused > 0));
}
