//! Places of data: growth, moves, holes, users of files without names.

use nearflash_contigfs::*;

use crate::world::{ROOMY, User, World};

fn make(world: &mut World, name: &[u8]) -> Ino {
    let made = world.apply(Operation::Make { parent: ROOT, name, mode: S_IFREG, rdev: 0 });
    let Ok(OperationResult::Entry(attributes)) = made else { panic!("it is made: {made:?}") };
    attributes.ino
}

fn place(world: &World, ino: Ino) -> u64 {
    match world.system.place_read(ino, 0, 1) {
        Ok(DataPlacement::At { at, .. }) => at,
        other => panic!("a read is placed: {other:?}"),
    }
}

#[test]
fn a_file_stays_contiguous_when_it_outgrows_its_place() {
    let mut world = World::new(ROOMY, 1);
    let mut a = make(&mut world, b"a");
    for n in 0.. {
        let next = make(&mut world, format!("{n}").as_bytes());
        if place(&world, next) == place(&world, a) + (4 << 20) {
            break;
        }
        a = next;
    }
    world.write(a, 0, &[1; 8000]).unwrap();
    let old = place(&world, a);
    while place(&world, a) == old {
        world.write(a, 4 << 20, &[2; 100]).unwrap();
    }
    assert!(world.marks.contains("move"));
    world.compare();
    let new = place(&world, a);
    world.write(a, 15 << 20, &[3; 100]).unwrap();
    assert_eq!(place(&world, a), new, "the new place is four times as large as was asked for");
    world.settle();
    assert!(world.disk.read_bytes(old, 8000).iter().all(|byte| *byte == 0), "the old is clean");
    let c = make(&mut world, b"c");
    assert_eq!(place(&world, c), old, "and free");
    // Nobody is in the way of the last place: it grows where it is.
    let last = place(&world, a);
    let bytes = 40 << 20;
    world.apply(Operation::Allocate { ino: a, offset: 0, bytes, keep_size: true }).unwrap();
    world.compare();
    println!("from {last} to {}", place(&world, a));
    world.remount(true);
    world.model.forget_users();
    world.compare();
}

#[test]
fn a_file_without_a_name_lives_as_long_as_its_users() {
    let mut world = World::new(ROOMY, 2);
    let ino = make(&mut world, b"a");
    world.open(ino, true);
    world.write(ino, 0, &[5; 10_000]).unwrap();
    let at = place(&world, ino);
    world.apply(Operation::Unlink { parent: ROOT, name: b"a" }).unwrap();
    world.settle();
    assert_eq!(world.read(ino, 0, 10_000), [5; 10_000]);
    assert_eq!(check(&mut world.disk).unwrap().nameless, 1);
    while !world.users.is_empty() {
        world.let_one_go();
    }
    world.settle();
    assert!(world.disk.read_bytes(at, 10_000).iter().all(|byte| *byte == 0));
    assert_eq!(world.system.place_read(ino, 0, 1), Err(Errno::STALE));
    assert_eq!(world.model.nodes.len(), 1);
    assert_eq!(check(&mut world.disk).unwrap().nameless, 0);
}

#[test]
fn a_mount_takes_files_apart_that_have_no_names() {
    let mut world = World::new(ROOMY, 3);
    let ino = make(&mut world, b"a");
    let how = XattrMode::Any;
    let value = [1; 5000];
    world.apply(Operation::SetXattr { ino, name: b"user.a", value: &value, how }).unwrap();
    world.write(ino, 0, &[5; 10_000]).unwrap();
    let at = place(&world, ino);
    world.apply(Operation::Unlink { parent: ROOT, name: b"a" }).unwrap();
    world.settle();
    assert!(matches!(world.users[..], [User::Lookup(_)]), "the kernel still knows it");
    world.remount(true);
    assert!(world.disk.read_bytes(at, 10_000).iter().all(|byte| *byte == 0));
    let counts = world.system.statistics();
    assert_eq!(counts.pool_pages, counts.pool_pages_free);
    assert_eq!(counts.chunks, counts.chunks_free);
}

/// A file is written and read without any commit, once its place and flag are durable.
#[test]
fn data_pass_by_the_metadata() {
    let mut world = World::new(ROOMY, 4);
    let ino = make(&mut world, b"a");
    world.open(ino, true);
    world.write(ino, 0, &[5; 4096]).unwrap();
    world.settle();
    let before = world.disk.commits;
    for n in 0..100u64 {
        world.write(ino, n * 4096, &[6; 4096]).unwrap();
    }
    assert_eq!(world.disk.commits, before);
    world.apply(Operation::Fsync { ino }).unwrap();
    world.turn();
    assert_eq!(world.disk.commits, before + 1);
    assert!(!world.turn(), "one commit is all");
}

#[test]
fn group_commit_gathers_what_arrives_while_a_commit_is_under_way() {
    let mut world = World::new(ROOMY, 5);
    let names: Vec<Vec<u8>> = (0..20).map(|n| format!("f{n}").into_bytes()).collect();
    let mut untils = Vec::new();
    for name in &names {
        let made = world.ask(Operation::Make { parent: ROOT, name, mode: S_IFIFO, rdev: 0 });
        untils.push(made.unwrap().1);
        if untils.len() == 1 {
            let first = world.system.take_commit().unwrap();
            assert_eq!(first.pages.len(), 2, "the page of inodes, the page of names");
            world.disk.commit(&first.pages).unwrap();
            assert_eq!(world.system.take_commit().map(|commit| commit.number), None);
        }
    }
    world.system.commit_ended(1, true);
    assert_eq!(untils[0], AwaitedEvent::Commit(1));
    assert!(untils[1..].iter().all(|until| *until == AwaitedEvent::Commit(2)));
    let second = world.system.take_commit().unwrap();
    assert_eq!((second.number, second.pages.len()), (2, 2));
    world.disk.commit(&second.pages).unwrap();
    world.system.commit_ended(2, true);
    assert!(untils.iter().all(|until| world.system.outcome(*until) == Some(Ok(()))));
}

/// The memory that the metadata of a file take.
#[test]
fn memory_per_file_is_bounded() {
    const FILES: u64 = 50_000;
    let sizes =
        crate::world::Sizes { pages: 1 << 28, inodes: 65_536, pool_pages: 4096, commit_pages: 60 };
    let mut world = World::new(sizes, 6);
    for n in 0..FILES {
        let name = format!("file{n:08}");
        let name = name.as_bytes();
        let made = world.ask(Operation::Make { parent: ROOT, name, mode: S_IFREG, rdev: 0 });
        let (OperationResult::Entry(attributes), _) = made.unwrap() else { panic!("an entry") };
        world.system.forget(attributes.ino, 1);
    }
    world.settle();
    let settings = world.settings;
    let mut disk = world.disk;
    let used = allocation_counter::measure(|| {
        std::mem::forget(mount(&mut disk, &settings).expect("it is sound"));
    });
    let each = used.bytes_current / FILES as i64;
    println!("{each} bytes a file with a name of 12 bytes");
    assert!((100..260).contains(&each), "{each} bytes a file");
}

/// A write under way may have read its page before the rest of the page is cleared.
#[test]
fn what_cuts_or_clears_a_file_waits_for_its_writes() {
    let mut world = World::new(ROOMY, 11);
    let ino = make(&mut world, b"a");
    world.write(ino, 0, &[5; 8192]).unwrap();
    world.settle();
    let size = AttributeChange { size: Some(5000), ..AttributeChange::default() };
    let cut = Operation::Change { ino, change: size };
    let clear = Operation::Zero { ino, offset: 5000, bytes: 100, keep_size: true };
    let caller = Caller::default();
    for change in [cut, clear] {
        let now = world.now;
        let placed = world.system.place_write(ino, 4096, 904);
        assert!(matches!(placed, Ok(DataPlacement::At { .. })), "{placed:?}");
        let quiet = AwaitedEvent::Quiet { ino };
        assert_eq!(world.system.apply(now, &caller, change), Ok(Reply::Again(quiet)));
        assert_eq!(world.system.outcome(quiet), None);
        let next = world.system.place_write(ino, 0, 10);
        assert_eq!(next, Ok(DataPlacement::Again(quiet)), "the change does not wait without end");
        world.system.wrote(now, ino, 4096, 904, true);
        assert_eq!(world.system.outcome(quiet), Some(Ok(())));
        let changed = world.system.apply(now, &caller, change);
        assert!(matches!(changed, Ok(Reply::Answer(..))), "{changed:?}");
        world.settle();
    }
}

#[test]
fn a_path_names_the_range_of_a_file() {
    let mut world = World::new(ROOMY, 5);
    let folder = Operation::Make { parent: ROOT, name: b"vm", mode: S_IFDIR, rdev: 0 };
    let Ok(OperationResult::Entry(folder)) = world.apply(folder) else { panic!("it is made") };
    let file = Operation::Make { parent: folder.ino, name: b"disk", mode: S_IFREG, rdev: 0 };
    let Ok(OperationResult::Entry(file)) = world.apply(file) else { panic!("it is made") };
    let link = Operation::Symlink { parent: ROOT, name: b"link", target: b"vm" };
    world.apply(link).unwrap();
    assert_eq!(world.system.extent("/vm/disk"), Err(NoExtent::Empty));
    world.write(file.ino, 8192, &[7; 100]).unwrap();
    world.settle();
    let extent = Extent { at: place(&world, file.ino), bytes: 8292 };
    assert_eq!(world.system.extent("/vm/disk"), Ok(extent));
    assert_eq!(world.disk.read_bytes(extent.at + 8192, 100), [7; 100]);
    let refused = |path: &str| world.system.extent(path).unwrap_err();
    for path in ["", "/", "vm/disk", "//vm", "/vm/", "/vm/./disk", "/vm/../vm/disk", "/vm\0"] {
        assert_eq!(refused(path), NoExtent::Path, "{path:?}");
    }
    assert_eq!(refused("/vm"), NoExtent::Directory);
    assert_eq!(refused("/vm/none/disk"), NoExtent::Missing("/vm/none".to_owned()));
    assert_eq!(refused("/vm/disk/more"), NoExtent::NoDirectory("/vm/disk".to_owned()));
    for path in ["/link", "/link/disk"] {
        assert_eq!(refused(path), NoExtent::Link("/link".to_owned()), "{path}");
    }
}
