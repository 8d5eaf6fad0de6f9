//! The limits of a file system: names, links, inodes, space, pages of a commit.

use std::collections::BTreeSet;

use nearflash_contigfs::*;

use crate::disk::Disk;
use crate::world::{ROOMY, Sizes, World};

const TIME: Time = Time { seconds: 5, nanos: 0 };

/// Makes something, and returns its inode.
fn make(world: &mut World, parent: Ino, name: &str, mode: u32) -> Result<Ino, Errno> {
    let (name, rdev) = (name.as_bytes(), 0);
    let (answer, _) = world.ask(Operation::Make { parent, name, mode, rdev })?;
    let OperationResult::Entry(attributes) = answer else { panic!("an entry is answered") };
    world.system.forget(attributes.ino, 1);
    Ok(attributes.ino)
}

fn unlink(world: &mut World, name: &str) -> Result<(), Errno> {
    world.ask(Operation::Unlink { parent: ROOT, name: name.as_bytes() }).map(|_| ())
}

#[test]
fn a_directory_holds_a_hundred_thousand_files() {
    const FILES: u32 = 100_000;
    let sizes = Sizes { pages: 1 << 29, inodes: 131_072, pool_pages: 4096, commit_pages: 60 };
    let mut world = World::new(sizes, 1);
    for n in 0..FILES {
        make(&mut world, ROOT, &format!("file{n:08}"), S_IFREG | 0o644).unwrap();
    }
    world.settle();
    let commits = world.disk.commits;
    println!("{FILES} files in {commits} commits: {:?}", world.system.statistics());
    world.remount(true);
    assert_eq!(world.entries(ROOT).len(), FILES as usize);
    // Names that are removed while the directory is read neither hide nor double the others.
    let (mut seen, mut cookie, mut removed) = (BTreeSet::new(), 0, 0);
    loop {
        let (mut piece, from) = (Vec::new(), cookie);
        let visit = |entry: &DirectoryEntry| {
            cookie = entry.cookie;
            piece.push(entry.name.to_vec());
            piece.len() < 1000
        };
        world.system.read_directory(ROOT, from, visit).unwrap();
        if piece.is_empty() {
            break;
        }
        for name in &piece {
            assert!(seen.insert(name.clone()), "a name comes once");
        }
        for name in piece.iter().filter(|name| name.starts_with(b"file")).step_by(3) {
            world.ask(Operation::Unlink { parent: ROOT, name }).unwrap();
            removed += 1;
        }
    }
    assert_eq!(seen.len(), FILES as usize + 2);
    assert_eq!(world.entries(ROOT).len(), (FILES - removed) as usize);
    for name in seen.iter().filter(|name| name.starts_with(b"file")) {
        let _ = world.ask(Operation::Unlink { parent: ROOT, name });
    }
    world.remount(true);
    let counts = world.system.statistics();
    assert_eq!(counts.inodes - counts.inodes_free, 1);
    assert_eq!(counts.pool_pages, counts.pool_pages_free, "all pages came back");
    assert_eq!(counts.chunks, counts.chunks_free, "all places came back");
}

#[test]
fn a_full_table_of_inodes_takes_files_again_when_some_have_gone() {
    let sizes = Sizes { pages: 1 << 20, inodes: 64, pool_pages: 64, commit_pages: 8 };
    let mut world = World::new(sizes, 2);
    for n in 0..62 {
        make(&mut world, ROOT, &format!("{n}"), S_IFREG).unwrap();
    }
    assert_eq!(make(&mut world, ROOT, "one more", S_IFREG), Err(Errno::NOSPC));
    for n in 0..62 {
        unlink(&mut world, &format!("{n}")).unwrap();
        make(&mut world, ROOT, &format!("again{n}"), S_IFIFO).unwrap();
    }
    assert_eq!(make(&mut world, ROOT, "one more", S_IFIFO), Err(Errno::NOSPC));
    world.remount(true);
    assert_eq!(world.system.statistics().inodes_free, 0);
}

#[test]
fn full_virtual_space_takes_files_again_when_some_have_gone() {
    // 16 chunks for data.
    let sizes = Sizes { pages: 1024 + 16 * 1024, inodes: 64, pool_pages: 64, commit_pages: 8 };
    let mut world = World::new(sizes, 3);
    let files: Vec<Ino> =
        (0..16).map(|n| make(&mut world, ROOT, &format!("{n}"), S_IFREG).unwrap()).collect();
    assert_eq!(make(&mut world, ROOT, "more", S_IFREG), Err(Errno::NOSPC));
    make(&mut world, ROOT, "directory", S_IFDIR).unwrap();
    let size = |size| AttributeChange { size: Some(size), ..AttributeChange::default() };
    let grow = Operation::Change { ino: files[0], change: size(5 << 20) };
    assert_eq!(world.ask(grow), Err(Errno::NOSPC));
    let grow = Operation::Change { ino: files[0], change: size(65 << 20) };
    assert_eq!(world.ask(grow), Err(Errno::FBIG));
    for n in 4..16 {
        unlink(&mut world, &format!("{n}")).unwrap();
    }
    world.ask(Operation::Change { ino: files[0], change: size(5 << 20) }).unwrap();
    make(&mut world, ROOT, "more", S_IFREG).unwrap();
    world.remount(true);
}

#[test]
fn large_sparse_files_leave_places_to_new_files() {
    // 1 024 chunks for data, of which a 16th is for new files.
    let sizes = Sizes { pages: 2048 + 1024 * 1024, inodes: 2048, pool_pages: 256, commit_pages: 8 };
    let mut world = World::new(sizes, 12);
    let size = |mib: u64| AttributeChange { size: Some(mib << 20), ..AttributeChange::default() };
    let files: Vec<Ino> =
        (0..8).map(|n| make(&mut world, ROOT, &format!("{n}"), S_IFREG).unwrap()).collect();
    let before = world.system.statistics().chunks_free;
    world.ask(Operation::Change { ino: files[0], change: size(100) }).unwrap();
    world.settle();
    let taken = before - world.system.statistics().chunks_free;
    assert!(taken <= 32, "{taken} chunks for 25: a truncate is not generous");
    for ino in &files {
        // From the largest place that is left to the smallest.
        for mib in [2048, 1024, 512, 256, 128, 64, 32, 16, 8] {
            let bytes = mib << 20;
            let taken = Operation::Allocate { ino: *ino, offset: 0, bytes, keep_size: true };
            if world.ask(taken).is_ok() {
                break;
            }
        }
        world.settle();
    }
    let left = world.system.statistics().chunks_free;
    assert!(left >= 64, "{left} chunks are left");
    make(&mut world, ROOT, "new", S_IFREG).unwrap();
    world.remount(true);
}

#[test]
fn a_full_pool_refuses_names_and_attributes() {
    let sizes = Sizes { pages: 1 << 20, inodes: 1024, pool_pages: 16, commit_pages: 8 };
    let mut world = World::new(sizes, 4);
    let mut names = 0;
    while make(&mut world, ROOT, &format!("{names:0255}"), S_IFIFO).is_ok() {
        names += 1;
    }
    assert_eq!(names, 16 * 14, "fourteen of the longest names in each page");
    let set =
        |value| Operation::SetXattr { ino: ROOT, name: b"user.a", value, how: XattrMode::Any };
    assert_eq!(world.ask(set(b"x")), Err(Errno::NOSPC));
    for n in 0..14 {
        unlink(&mut world, &format!("{n:0255}")).unwrap();
    }
    world.ask(set(b"x")).unwrap();
    world.remount(true);
}

#[test]
fn a_full_volume_refuses_to_grow_and_lets_names_go() {
    let mut world = World::new(ROOMY, 5);
    make(&mut world, ROOT, "a", S_IFREG).unwrap();
    world.system.set_room(100_000, 10);
    assert_eq!(make(&mut world, ROOT, "b", S_IFREG), Err(Errno::NOSPC));
    unlink(&mut world, "a").unwrap();
    world.settle();
}

#[test]
fn growth_leaves_space_to_writes_within_files_and_both_to_commits() {
    const PAGE: u64 = 4096;
    let mut world = World::new(ROOMY, 10);
    let ino = make(&mut world, ROOT, "a", S_IFREG).unwrap();
    world.settle();
    let place = |world: &mut World, page: u64, pages: u64| {
        world.system.place_write(ino, page * PAGE, pages * PAGE)
    };
    let is_placed = |placed| matches!(placed, Ok(DataPlacement::At { .. }));
    // 256 pages are kept for commits, and 1 562 more for writes within files.
    world.system.set_room(100_000, 256 + 1562 + 10);
    assert_eq!(place(&mut world, 0, 11), Err(Errno::NOSPC));
    assert!(is_placed(place(&mut world, 0, 10)));
    // Ten pages are under way. What they leave is told when they have ended.
    let Ok(DataPlacement::Again(waits)) = place(&mut world, 10, 1) else { panic!("it waits") };
    assert_eq!(world.system.outcome(waits), None);
    world.system.wrote(TIME, ino, 0, 10 * PAGE, true);
    assert_eq!(world.system.outcome(waits), Some(Ok(())));
    world.system.set_room(100_000, 256 + 1562);
    assert_eq!(place(&mut world, 10, 1), Err(Errno::NOSPC));
    assert!(is_placed(place(&mut world, 0, 10)));
    world.system.set_room(100_000, 256 + 10);
    assert!(matches!(
        place(&mut world, 0, 1),
        Ok(DataPlacement::Again(AwaitedEvent::Space { .. }))
    ));
    world.system.wrote(TIME, ino, 0, 10 * PAGE, false);
    assert!(is_placed(place(&mut world, 0, 1)));
    world.system.wrote(TIME, ino, 0, PAGE, true);
    world.settle();
}

/// A copy takes from the volume's space what it was promised: others find what is left all the
/// time.
#[test]
fn a_copy_counts_once() {
    const PAGE: u64 = 4096;
    let mut world = World::new(ROOMY, 11);
    let first = make(&mut world, ROOT, "a", S_IFREG).unwrap();
    let other = make(&mut world, ROOT, "b", S_IFREG).unwrap();
    let mut size = 64 * PAGE;
    let order = loop {
        match world.system.place_write(first, size - PAGE, PAGE).unwrap() {
            DataPlacement::At { .. } => {
                world.system.wrote(TIME, first, size - PAGE, PAGE, true);
                size *= 2;
            }
            DataPlacement::Again(until) => world.wait(until),
            DataPlacement::Move(order) => break order,
        }
    };
    let copied = order.bytes / PAGE;
    let others = |world: &mut World| world.system.place_write(other, 0, PAGE).unwrap();
    world.system.set_room(100_000, 256 + 1562 + copied / 2);
    assert!(matches!(others(&mut world), DataPlacement::Again(AwaitedEvent::Space { .. })));
    world.system.copied(first, 0);
    loop {
        match others(&mut world) {
            DataPlacement::At { .. } => break,
            DataPlacement::Again(until) => world.wait(until),
            DataPlacement::Move(_) => panic!("an empty file is not moved"),
        }
    }
    world.system.wrote(TIME, other, 0, PAGE, true);
    world.system.moved(first, true);
    world.settle();
}

/// A file that is cut needs no larger place, though a writer wanted one: it is not copied first,
/// and a page of it that cannot be read is no reason to refuse. The writer gets its place
/// afterwards.
#[test]
fn a_file_is_cut_while_a_writer_waits_for_a_larger_place() {
    const PAGE: u64 = 4096;
    let mut world = World::new(ROOMY, 12);
    let ino = make(&mut world, ROOT, "a", S_IFREG).unwrap();
    make(&mut world, ROOT, "b", S_IFREG).unwrap();
    let mut size = 64 * PAGE;
    loop {
        match world.system.place_write(ino, size - PAGE, PAGE).unwrap() {
            DataPlacement::At { .. } => {
                world.system.wrote(TIME, ino, size - PAGE, PAGE, true);
                size *= 2;
            }
            DataPlacement::Again(until) => {
                world.wait(until);
                if matches!(until, AwaitedEvent::Moved { .. }) {
                    break;
                }
            }
            DataPlacement::Move(_) => panic!("the writer was to wait first"),
        }
    }
    let change = AttributeChange { size: Some(PAGE), ..AttributeChange::default() };
    let cut = world.system.apply(TIME, &Caller::default(), Operation::Change { ino, change });
    assert!(matches!(cut, Ok(Reply::Answer(..))), "{cut:?}");
    loop {
        match world.system.place_write(ino, size - PAGE, PAGE).unwrap() {
            DataPlacement::At { .. } => break,
            DataPlacement::Again(until) => world.wait(until),
            DataPlacement::Move(order) => {
                assert_eq!(order.bytes, PAGE, "what was cut is not copied");
                world.system.moved(ino, true);
            }
        }
    }
    world.system.wrote(TIME, ino, size - PAGE, PAGE, true);
    world.settle();
    world.remount(true);
}

#[test]
fn a_file_has_sixty_five_thousand_names() {
    let sizes = Sizes { pages: 1 << 20, inodes: 64, pool_pages: 1024, commit_pages: 60 };
    let mut world = World::new(sizes, 6);
    let ino = make(&mut world, ROOT, "0", S_IFREG).unwrap();
    for n in 1..65_000 {
        let name = format!("{n}");
        world.ask(Operation::Link { ino, parent: ROOT, name: name.as_bytes() }).unwrap();
    }
    let more = world.ask(Operation::Link { ino, parent: ROOT, name: b"more" });
    assert_eq!(more, Err(Errno::MLINK));
    world.system.forget(ino, 64_999);
    world.remount(true);
    for n in 0..65_000 {
        unlink(&mut world, &format!("{n}")).unwrap();
    }
    world.remount(true);
    let counts = world.system.statistics();
    assert_eq!(counts.inodes - counts.inodes_free, 1);
}

#[test]
fn no_directory_moves_below_itself() {
    let mut world = World::new(ROOMY, 7);
    let mut path = vec![ROOT];
    for _ in 0..100 {
        let parent = *path.last().unwrap();
        path.push(make(&mut world, parent, "d", S_IFDIR).unwrap());
    }
    for below in [1, 2, 50, 100] {
        for how in [RenameMode::Replace, RenameMode::NoReplace] {
            let moved = Operation::Rename {
                parent: ROOT,
                name: b"d",
                to_parent: path[below],
                to_name: b"here",
                how,
            };
            assert_eq!(world.ask(moved), Err(Errno::INVAL), "{below} below");
        }
    }
    make(&mut world, path[60], "f", S_IFREG).unwrap();
    let exchanged = Operation::Rename {
        parent: path[60],
        name: b"f",
        to_parent: path[20],
        to_name: b"d",
        how: RenameMode::Exchange,
    };
    assert_eq!(world.ask(exchanged), Err(Errno::INVAL), "a directory would hold itself");
    world.remount(true);
}

/// Each operation is alone in its commit. None has more pages than is said.
#[test]
fn an_operation_changes_at_most_six_pages() {
    let mut world = World::new(ROOMY, 8);
    let mut most = std::collections::BTreeMap::new();
    let mut one = |world: &mut World, what: &'static str, operation: Operation| {
        world.settle();
        let answer = world.ask(operation).unwrap();
        let commit = world.system.take_commit().expect("it changed something");
        let pages: &mut usize = most.entry(what).or_default();
        *pages = commit.pages.len().max(*pages);
        world.disk.commit(&commit.pages).unwrap();
        world.system.commit_ended(commit.number, true);
        answer.0
    };
    // Inodes 32 apart lie in different pages.
    let mut directories = Vec::new();
    for n in 0..8 {
        directories.push(make(&mut world, ROOT, &format!("d{n}"), S_IFDIR).unwrap());
        for filler in 0..31 {
            make(&mut world, ROOT, &format!("{n}-{filler}"), S_IFIFO).unwrap();
        }
    }
    use Operation as O;
    let (a, b) = (directories[0], directories[1]);
    let entry = |answer| match answer {
        OperationResult::Entry(attributes) => attributes.ino,
        other => panic!("an entry is answered, not {other:?}"),
    };
    for n in 0..8 {
        let names = [format!("x{n}"), format!("y{n}"), format!("z{n}"), format!("t{n}")];
        let [x, y, z, t] = names.each_ref().map(|name| name.as_bytes());
        let mode = S_IFREG;
        let x_ino = entry(one(&mut world, "make", O::Make { parent: a, name: x, mode, rdev: 0 }));
        for filler in 0..32 {
            make(&mut world, ROOT, &format!("{n}+{filler}"), S_IFIFO).unwrap();
        }
        make(&mut world, b, &names[1], S_IFREG).unwrap();
        let target = [b't'; 4095];
        let made = one(&mut world, "symlink", O::Symlink { parent: a, name: t, target: &target });
        world.system.forget(entry(made), 1);
        one(&mut world, "link", O::Link { ino: x_ino, parent: b, name: z });
        let value = [7; 8000];
        let how = XattrMode::Any;
        one(&mut world, "setxattr", O::SetXattr { ino: x_ino, name: b"n", value: &value, how });
        for how in [RenameMode::Exchange, RenameMode::Replace] {
            let rename = O::Rename { parent: a, name: x, to_parent: b, to_name: y, how };
            one(&mut world, "rename", rename);
        }
        one(&mut world, "unlink", O::Unlink { parent: a, name: t });
        one(&mut world, "unlink", O::Unlink { parent: b, name: z });
        one(&mut world, "unlink", O::Unlink { parent: b, name: y });
        world.system.forget(x_ino, 2);
    }
    println!("pages of an operation: {most:?}");
    assert!(most.values().all(|pages| *pages <= 6), "{most:?}");
    assert_eq!(most["rename"], 6, "{most:?}");
}

#[test]
fn a_failed_commit_makes_the_file_system_read_only_and_leaves_the_media_whole() {
    let mut world = World::new(ROOMY, 9);
    make(&mut world, ROOT, "kept", S_IFREG).unwrap();
    world.settle();
    world.disk.commits_max = Some(world.disk.commits);
    let name = b"lost";
    let made = world.ask(Operation::Make { parent: ROOT, name, mode: S_IFREG, rdev: 0 });
    let (OperationResult::Entry(_), until) = made.unwrap() else { panic!("an entry is answered") };
    assert_eq!(world.system.outcome(until), None);
    world.turn();
    assert_eq!(world.system.outcome(until), Some(Err(Errno::IO)));
    assert!(world.system.is_read_only() && world.system.is_idle());
    assert_eq!(make(&mut world, ROOT, "more", S_IFREG), Err(Errno::ROFS));
    world.disk.commits_max = None;
    world.remount(true);
    assert_eq!(world.entries(ROOT).keys().collect::<Vec<_>>(), [b"kept"]);
}

/// The write was at the device when the failure came: its size is never committed.
#[test]
fn a_write_that_ends_after_a_failure_fails_each_fsync() {
    let mut world = World::new(ROOMY, 13);
    let ino = make(&mut world, ROOT, "written", S_IFREG).unwrap();
    make(&mut world, ROOT, "removed", S_IFREG).unwrap();
    unlink(&mut world, "removed").unwrap();
    let chore = loop {
        if let Some(chore) = world.system.take_chore() {
            break chore;
        }
        let commit = world.system.take_commit().expect("a commit comes before the chore");
        world.disk.commit(&commit.pages).unwrap();
        world.system.commit_ended(commit.number, true);
    };
    while let Some(commit) = world.system.take_commit() {
        world.disk.commit(&commit.pages).unwrap();
        world.system.commit_ended(commit.number, true);
    }
    let placed = world.system.place_write(ino, 0, 4096);
    assert!(matches!(placed, Ok(DataPlacement::At { .. })), "{placed:?}");
    world.system.chore_ended(chore.number, false);
    world.ask(Operation::Fsync { ino }).expect("nothing is lost yet");
    world.system.wrote(TIME, ino, 0, 4096, true);
    for _ in 0..2 {
        assert_eq!(world.ask(Operation::Fsync { ino }), Err(Errno::IO));
    }
}

#[test]
fn the_reasons_why_nothing_is_mounted_say_what_to_do() {
    let settings = Settings { commit_pages_max: 60, seed: 1, read_only: false };
    let shape = Shape { uuid: [7; 16], inodes: 64, pool_pages: 16, order: 0 };
    let mut disk = Disk::new(8192);
    let refused = |disk: &mut Disk| mount(disk, &settings).expect_err("it is refused");
    assert_eq!(refused(&mut disk), Error::Nothing);
    create(&mut disk, &shape, TIME, (0, 0)).unwrap();
    assert_eq!(create(&mut disk, &shape, TIME, (0, 0)), Err(Error::InUse));
    let tiny = Settings { commit_pages_max: 5, ..settings };
    assert_eq!(mount(&mut disk, &tiny).err(), Some(Error::Commits(5, 6)));
    let good = disk.clone();
    disk.write(100, b"x");
    mount(&mut disk, &settings).expect("the other copy is whole");
    disk.write(4096 + 100, b"x");
    assert_eq!(refused(&mut disk), Error::Damaged);
    let mut short = good.clone();
    short.size = 8191;
    assert_eq!(refused(&mut short), Error::Shrunk(8191, 8192));
    let mut newer = good.clone();
    for page in [0, 1] {
        let mut image = newer.page(page);
        image[8] = 2;
        let crc = layout::checksum(&image[..4092]);
        image[4092..].copy_from_slice(&crc.to_le_bytes());
        newer.pages.insert(page, image);
    }
    assert_eq!(refused(&mut newer), Error::Version(2));
    let mut damaged = good.clone();
    damaged.write(2 * 4096 + 128 + 9, b"x");
    let Error::Inconsistent(faults, first) = refused(&mut damaged) else { panic!("a fault") };
    assert_eq!((faults, &first[..]), (2, "inode 1: its checksum is wrong"));
    for error in [Error::Nothing, Error::Damaged, Error::Version(2), Error::Inconsistent(1, first)]
    {
        let text = format!("{error}");
        assert!(text.contains(';') && text.len() > 40, "{text}");
    }
}
