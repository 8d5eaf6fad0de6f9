//! Crashes: the process dies at any point, and the commit that is under way has happened or not.
//! After the mount the tree is as it was after the last operation of a commit.

use std::collections::BTreeMap;

use nearflash_contigfs::*;

use crate::model::{Model, Node, comparable};
use crate::random::step;
use crate::world::{ROOMY, Sabotage, World};

/// A file that may have had several sizes when the process died.
fn is_loose(node: &Node) -> bool {
    node.kind() == S_IFREG
}

/// Compares an inode with its model at a commit. Data and sizes that no operation committed may be
/// younger.
fn compare_inode(world: &mut World, node: &Node, latest: &Model) {
    let ino = node.attributes.ino;
    let (answer, _) = world.ask(Operation::Attributes { ino }).expect("the inode is there");
    let OperationResult::Attributes(has) = answer else { panic!("attributes are asked for") };
    let (mut has, mut want) = (comparable(has), node.attributes);
    if is_loose(node) {
        let log = &world.sizes[&(ino, node.attributes.generation)];
        let first = log.iter().rposition(|(step, _)| *step <= node.synced).unwrap_or(0);
        let legal = log[first..].iter().any(|(_, size)| *size == has.size);
        assert!(legal, "inode {ino} has size {}, and had {:?}", has.size, &log[first..]);
        for side in [&mut has, &mut want] {
            (side.size, side.mtime, side.ctime) = (0, Time::default(), Time::default());
        }
    }
    assert_eq!(has, want, "inode {ino}");
    match node.kind() {
        S_IFDIR => assert_eq!(world.entries(ino), node.children, "directory {ino}"),
        S_IFREG => compare_data(world, node, latest),
        S_IFLNK => {
            let target = world.ask(Operation::ReadLink { ino }).map(|(answer, _)| answer);
            assert_eq!(target, Ok(OperationResult::Bytes(node.target.clone())));
        }
        _ => {}
    }
    for (name, value) in &node.xattrs {
        let has = world.ask(Operation::GetXattr { ino, name }).map(|(answer, _)| answer);
        assert_eq!(has, Ok(OperationResult::Bytes(value.clone())), "inode {ino}");
    }
}

/// Checks a file's words: each was written to this file, and where nothing happened since the
/// commit, each is the model's. Bytes beyond the size are zeroes when the file grows.
fn compare_data(world: &mut World, node: &Node, latest: &Model) {
    let (ino, generation) = (node.attributes.ino, node.attributes.generation);
    let (answer, _) = world.ask(Operation::Attributes { ino }).expect("the inode is there");
    let OperationResult::Attributes(Attributes { size, .. }) = answer else { panic!("attributes") };
    let tag = u64::from(ino) << 8 | u64::from(generation & 0xff);
    for page in world.stored(ino, size).into_iter().chain(node.data.keys().copied()) {
        let has = world.read(ino, page * 4096, 4096);
        for word in has.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            assert!(word == 0 || word >> 32 == tag, "inode {ino}: the word of another file");
        }
        let now = latest.nodes.get(&ino).filter(|n| n.attributes.generation == generation);
        let is_quiet = |now: &Node| now.data == node.data && now.attributes == node.attributes;
        if size == node.attributes.size && now.is_some_and(is_quiet) {
            assert!(has == node.read(page * 4096, 4096), "inode {ino}, page {page}");
        }
    }
    let change = AttributeChange { size: Some(size + 9000), ..AttributeChange::default() };
    world.ask(Operation::Change { ino, change }).expect("there is space");
    let beyond = world.read(ino, size, 9000);
    assert!(beyond.iter().all(|byte| *byte == 0), "inode {ino}: old data beyond its size");
    let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
    let (_, until) = world.ask(Operation::Change { ino, change }).expect("it shrinks");
    world.wait(until);
}

/// Runs a world until its process dies, mounts, and compares. Returns the number of crashes.
fn run(seed: u64, crashes: u64, sabotage: Option<Sabotage>) {
    let mut world = World::new(ROOMY, seed);
    world.sabotage = sabotage;
    world.keeps = true;
    for _ in 0..crashes {
        world.snapshots = BTreeMap::from([(0, world.model.clone())]);
        for _ in 0..world.chance.below(80) {
            step(&mut world, 8);
        }
        let mut latest = world.model.clone();
        // What was not answered may have happened in part.
        let unsure =
            world.pending.iter().filter(|(_, until)| world.system.outcome(**until).is_none());
        for (ino, _) in unsure {
            latest.nodes.remove(ino);
        }
        let durable = world.remount(false);
        let at = world.snapshots.range(..=durable).next_back().expect("the first is there").1;
        let mut model = at.clone();
        model.forget_users();
        for node in model.nodes.values() {
            compare_inode(&mut world, node, &latest);
        }
        let count = world.system.statistics();
        let used = count.inodes - count.inodes_free;
        assert_eq!(used, model.nodes.len() as u64, "nothing rose again");
        adopt(&mut world, model);
    }
}

/// Goes on with the tree as it is: the model takes sizes, times and data.
fn adopt(world: &mut World, mut model: Model) {
    world.settle();
    world.keeps = false;
    for (ino, node) in &mut model.nodes {
        let (answer, _) = world.ask(Operation::Attributes { ino: *ino }).expect("it is there");
        let OperationResult::Attributes(has) = answer else { panic!("attributes") };
        node.attributes = comparable(has);
        if node.kind() == S_IFREG {
            node.data.clear();
            for page in world.stored(*ino, has.size) {
                let mut part = world.read(*ino, page * 4096, 4096);
                part.resize(4096, 0);
                node.data.insert(page, part);
            }
            node.synced = model.step;
        }
    }
    world.model = model;
    world.sizes.clear();
    world.remount(true);
    world.compare();
    world.keeps = true;
    world.begin_log();
}

#[test]
fn a_crash_takes_nothing_that_a_commit_had() {
    for seed in 0..100 {
        println!("seed {seed}");
        run(seed, 8, None);
    }
}

#[test]
#[ignore = "full: minutes"]
fn ten_thousand_crashes_take_nothing_that_a_commit_had() {
    (1000..1500).for_each(|seed| run(seed, 20, None));
}

/// Returns the number of seeds until a sabotage is found.
fn seeds_until_found(sabotage: Sabotage) -> u64 {
    let found = |seed: &u64| std::panic::catch_unwind(|| run(*seed, 8, Some(sabotage))).is_err();
    (1..).find(found).expect("a sabotage is found")
}

#[test]
fn sabotages_are_found() {
    for sabotage in [Sabotage::TornCommit, Sabotage::NoDiscard, Sabotage::NoZero] {
        let seeds = seeds_until_found(sabotage);
        println!("{sabotage:?} is found by seed {seeds}");
        assert!(seeds <= 50, "{sabotage:?} is found by seed {seeds}");
    }
}

/// The crash at every commit of one sequence of operations, each commit there or not.
#[test]
fn each_commit_of_a_sequence_is_a_tree() {
    let mut world = World::new(ROOMY, 7);
    world.keeps = true;
    world.snapshots.insert(0, world.model.clone());
    world.history = Some(vec![(0, world.disk.clone())]);
    for _ in 0..400 {
        step(&mut world, 8);
    }
    let disks = world.history.take().expect("it was kept");
    assert!(disks.len() > 100, "{} commits", disks.len());
    for (number, disk) in disks {
        let mut after = World::over(disk, world.settings);
        let model = world.snapshots.range(..=number).next_back().expect("the first is there").1;
        let mut model = model.clone();
        model.forget_users();
        let names = |model: &Model, ino: Ino| model.nodes[&ino].children.clone();
        for (ino, node) in &model.nodes {
            if node.kind() == S_IFDIR {
                assert_eq!(after.entries(*ino), names(&model, *ino), "commit {number}");
            }
        }
        let count = after.system.statistics();
        assert_eq!(count.inodes - count.inodes_free, model.nodes.len() as u64, "commit {number}");
    }
}
