//! Random operations on the file system and its model.

use nearflash_contigfs::*;

use crate::world::{ROOMY, World};

/// A name from a small set, so that names meet; some long, some impossible.
pub(crate) fn name(world: &mut World) -> Vec<u8> {
    match world.chance.below(60) {
        0 => vec![b'x'; 255],
        1 => vec![b'y'; 256],
        2 => b"..".to_vec(),
        3 => b".".to_vec(),
        4 => b"a/b".to_vec(),
        5 => Vec::new(),
        n => format!("name{}", n % 13).into_bytes(),
    }
}

/// An inode of the model, or one that was.
fn inode(world: &mut World) -> Ino {
    if world.chance.one_in(30) {
        return world.chance.below(100) as Ino;
    }
    let all: Vec<Ino> = world.model.nodes.keys().copied().collect();
    *world.chance.pick(&all)
}

fn of_kind(world: &mut World, kind: u32) -> Ino {
    let is = |(_, node): &(&Ino, &crate::model::Node)| node.kind() == kind;
    let all: Vec<Ino> = world.model.nodes.iter().filter(is).map(|(ino, _)| *ino).collect();
    if all.is_empty() || world.chance.one_in(40) { inode(world) } else { *world.chance.pick(&all) }
}

/// A directory, and often a name that it has.
fn at(world: &mut World, existing: bool) -> (Ino, Vec<u8>) {
    let parent = of_kind(world, S_IFDIR);
    let names: Vec<Vec<u8>> = match world.model.nodes.get(&parent) {
        Some(node) if existing => node.children.keys().cloned().collect(),
        _ => Vec::new(),
    };
    if names.is_empty() || world.chance.one_in(10) {
        (parent, name(world))
    } else {
        (parent, world.chance.pick(&names).clone())
    }
}

/// The size of the unit of offsets and lengths.
pub(crate) fn offset(world: &mut World, unit: u64) -> u64 {
    let most = [100, 5000, 20_000, 20_000, 40_000, 6 << 20][world.chance.below(6)];
    world.chance.below(most) as u64 / unit * unit
}

fn make(world: &mut World) {
    // A tree that stays small has many collisions.
    let kinds = [S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR, S_IFIFO, S_IFCHR];
    let kind = *world.chance.pick(&kinds);
    let bits = [0o644, 0o755, 0o2755, 0o4711, 0o2644][world.chance.below(5)];
    let (parent, name) = at(world, false);
    let mode = kind | bits;
    let _ = world.apply(Operation::Make { parent, name: &name, mode, rdev: 7 });
}

fn change(world: &mut World, unit: u64) {
    let ino = inode(world);
    let mut change = AttributeChange::default();
    match world.chance.below(6) {
        0 => change.mode = Some(world.chance.below(0o10_000) as u32),
        1 => change.uid = Some(world.chance.below(3) as u32),
        2 => (change.gid, change.mode) = (Some(5), Some(0o2750)),
        3 => change.atime = Some(SetTime::To(Time { seconds: -5, nanos: 7 })),
        4 => (change.mtime, change.atime) = (Some(SetTime::Now), Some(SetTime::Now)),
        _ => {}
    }
    let _ = world.apply(Operation::Change { ino, change });
    if world.chance.one_in(2) {
        let ino = of_kind(world, S_IFREG);
        let size = Some(if world.chance.one_in(4) { 0 } else { offset(world, unit) });
        let change = AttributeChange { size, ..AttributeChange::default() };
        let _ = world.apply(Operation::Change { ino, change });
    }
}

fn rename(world: &mut World) {
    let ((parent, name), existing) = (at(world, true), world.chance.one_in(2));
    let (to_parent, to_name) = at(world, existing);
    let hows = [
        RenameMode::Replace,
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
        RenameMode::Exchange,
    ];
    let how = *world.chance.pick(&hows);
    let _ =
        world.apply(Operation::Rename { parent, name: &name, to_parent, to_name: &to_name, how });
}

fn xattr(world: &mut World) {
    let ino = inode(world);
    let name = format!("user.{}", world.chance.below(4)).into_bytes();
    let name = &name;
    let lengths = [0, 10, 100, 3000, 5000, 9000];
    let value = vec![world.chance.number() as u8; *world.chance.pick(&lengths)];
    let how = *world.chance.pick(&[
        XattrMode::Any,
        XattrMode::Any,
        XattrMode::Create,
        XattrMode::Replace,
    ]);
    let _ = match world.chance.below(5) {
        0 => world.apply(Operation::GetXattr { ino, name }),
        1 => world.apply(Operation::ListXattrs { ino }),
        2 => world.apply(Operation::RemoveXattr { ino, name }),
        _ => world.apply(Operation::SetXattr { ino, name, value: &value, how }),
    };
}

fn space(world: &mut World, unit: u64) {
    let (ino, keep_size) = (of_kind(world, S_IFREG), world.chance.one_in(2));
    let offset = offset(world, unit);
    let bytes = (1 + world.chance.below(9000) as u64).next_multiple_of(unit);
    let _ = match world.chance.below(4) {
        0 => world.apply(Operation::Allocate { ino, offset, bytes, keep_size }),
        1 => world.apply(Operation::Seek { ino, offset, what: SeekTarget::Data }),
        _ => world.apply(Operation::Zero { ino, offset, bytes, keep_size }),
    };
}

/// Writes words that tell their file and their step.
pub(crate) fn write(world: &mut World, unit: u64) {
    let ino = of_kind(world, S_IFREG);
    let Ok(node) = world.model.node(ino) else { return };
    if node.kind() != S_IFREG {
        return;
    }
    let word = u64::from(ino) << 40 | u64::from(node.attributes.generation) << 32;
    let word = word | world.model.step & 0xffff_ffff | 1;
    let mut offset = offset(world, unit);
    if world.chance.one_in(3) {
        offset = world.model.node(ino).expect("it is there").attributes.size;
    }
    let length = (1 + world.chance.below(9000) as u64).next_multiple_of(unit);
    let bytes: Vec<u8> =
        (offset..offset + length).map(|at| word.to_le_bytes()[(at % 8) as usize]).collect();
    world.write(ino, offset, &bytes).expect("there is space");
}

fn read(world: &mut World) {
    let ino = of_kind(world, S_IFREG);
    let Ok(node) = world.model.node(ino) else { return };
    if node.kind() == S_IFREG {
        let offset = offset(world, 1);
        let want = world.model.node(ino).expect("it is there").read(offset, 9000);
        let has = world.read(ino, offset, 9000);
        let differs = has.iter().zip(&want).position(|(has, want)| has != want);
        assert!(
            has == want,
            "inode {ino} from {offset}: {} and {} bytes, differ at {differs:?}",
            has.len(),
            want.len(),
        );
    }
}

/// Carries out one random operation, and some of what is due.
pub(crate) fn step(world: &mut World, unit: u64) {
    let grows = world.model.nodes.len() < 60;
    match world.chance.below(32) {
        0..=4 if grows => make(world),
        5 if grows => {
            let (parent, name) = at(world, false);
            let length = [1, 30, 4072, 4073, 4095, 4096][world.chance.below(6)];
            let target = vec![b't'; length];
            let _ = world.apply(Operation::Symlink { parent, name: &name, target: &target });
        }
        6 | 7 => {
            let ino = inode(world);
            let (parent, name) = at(world, false);
            let _ = world.apply(Operation::Link { ino, parent, name: &name });
        }
        0..=5 | 8 | 9 => {
            let (parent, name) = at(world, true);
            let _ = world.apply(Operation::Unlink { parent, name: &name });
        }
        10 | 11 => {
            let (parent, name) = at(world, true);
            let _ = world.apply(Operation::RemoveDirectory { parent, name: &name });
        }
        12..=14 => rename(world),
        15 | 16 => change(world, unit),
        17 | 18 => xattr(world),
        19 => space(world, unit),
        20..=23 => write(world, unit),
        24 => read(world),
        25 => {
            let (parent, name) = at(world, true);
            let _ = world.apply(Operation::Lookup { parent, name: &name });
        }
        26 => {
            let ino = inode(world);
            let write = world.chance.one_in(2);
            world.open(ino, write);
        }
        27 => {
            let ino = inode(world);
            let _ = world.apply(Operation::Fsync { ino });
        }
        28 => {
            let ino = inode(world);
            let _ = world.apply(Operation::ReadLink { ino });
            let _ = world.apply(Operation::Attributes { ino });
        }
        _ => world.let_one_go(),
    }
    while world.users.len() > 20 {
        world.let_one_go();
    }
    for _ in 0..world.chance.below(4) {
        world.turn();
    }
    if world.chance.one_in(300) {
        world.system.flush_attributes();
    }
}

fn run(seeds: std::ops::Range<u64>, steps: u64) {
    let mut marks = std::collections::BTreeSet::new();
    for seed in seeds {
        let mut world = World::new(ROOMY, seed);
        for done in 0..steps {
            step(&mut world, 1);
            if world.chance.one_in(500) {
                world.compare();
            }
            if world.chance.one_in(800) || done + 1 == steps {
                world.remount(true);
                world.model.forget_users();
                world.compare();
            }
        }
        marks.append(&mut world.marks);
    }
    let all = ["again", "again to write", "failed write", "move"];
    assert!(all.iter().all(|mark| marks.contains(mark)), "{marks:?}");
}

#[test]
fn a_hundred_thousand_operations_are_as_the_model_says() {
    run(0..10, 11_000);
}

#[test]
#[ignore = "full: a minute"]
fn a_million_operations_are_as_the_model_says() {
    run(100..140, 26_000);
}
