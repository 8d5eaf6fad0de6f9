//! Kills of the process and power cuts, and the content of the volume afterwards.

use std::collections::BTreeSet;

use super::*;

#[test]
fn what_was_synced_is_there_after_a_kill() {
    let (mut rig, node) = Rig::with_file(&[7; 5000]);
    rig.fsync(node);
    rig.write(node, 5000, &[8; 100]).unwrap();
    // The engine and its memory are lost with the process.
    let mut rig = Rig::mount(rig.memory.clone());
    let node = rig.lookup("file").unwrap();
    let found = rig.read(node, 0, 8192);
    assert_eq!(found[..5000], [7; 5000]);
    rig.unmount();
}

/// Makes, writes, syncs and removes files until the power is cut. What was synced is there, whole,
/// and of the names a beginning in the order in which they were made.
fn cut_at_random(seed: u64) {
    let mut rig = Rig::new();
    let chance = &mut (seed * 2 + 1);
    let (mut synced, mut removed) = (Vec::new(), BTreeSet::new());
    let count = 5 + random(chance) as usize % 30;
    for n in 0..count {
        let (node, fill) = (rig.create(&format!("{n}")), n as u8 + 1);
        rig.write(node, 0, &vec![fill; 100 * n + 1]).unwrap();
        if random(chance).is_multiple_of(3) {
            // The commit of another file may be under way meanwhile.
            let other = rig.send(20, 1, &[0; 16]);
            (0..random(chance) % 5).for_each(|_| _ = rig.turn());
            rig.write(node, 100 * n as u64 + 1, &[fill; 5_000]).unwrap();
            let zeroes = if random(chance).is_multiple_of(2) { 3_000 } else { 0 };
            if zeroes > 0 {
                // A commit may take the file's attributes before its pages are cleared.
                let mut body = [0; 32];
                body[16..24].copy_from_slice(&u64::to_ne_bytes(zeroes));
                body[24] = 3;
                let cleared = rig.send(43, node, &body);
                rig.send(20, 1, &[0; 16]);
                rig.reply(cleared).unwrap();
                (0..random(chance) % 9).for_each(|_| _ = rig.turn());
            }
            rig.fsync(node);
            rig.reply(other).unwrap();
            synced.push((n, 100 * n + 5_001, zeroes as usize));
        }
        rig.release(node);
        if random(chance).is_multiple_of(4) {
            rig.call(10, 1, format!("{n}\0").as_bytes()).unwrap();
            removed.insert(n);
        }
        (0..random(chance) % 4).for_each(|_| _ = rig.turn());
    }
    let mut rig = Rig::mount(rig.cut_power(chance));
    let kept = (0..count).filter(|n| !removed.contains(n));
    let is_there: Vec<bool> = kept.map(|n| rig.lookup(&format!("{n}")).is_ok()).collect();
    assert!(is_there.is_sorted_by(|a, b| a >= b), "seed {seed}: {is_there:?}");
    for (n, bytes, zeroes) in synced {
        match rig.lookup(&format!("{n}")) {
            Ok(node) => {
                let found = rig.read(node, 0, 16_384);
                assert_eq!(found.len(), bytes, "seed {seed}: {n}");
                let (first, rest) = found.split_at(zeroes);
                assert!(first.iter().all(|byte| *byte == 0), "seed {seed}: {n}");
                assert!(rest.iter().all(|byte| *byte == n as u8 + 1), "seed {seed}: {n}");
            }
            Err(_) => assert!(removed.contains(&n), "seed {seed}: {n}"),
        }
    }
    rig.unmount();
}

#[test]
fn what_was_synced_is_there_after_a_power_cut() {
    (0..300).for_each(cut_at_random);
}

#[test]
fn a_write_that_is_to_be_durable_is_so_with_its_reply() {
    use rustix::fs::OFlags;
    let cases = [
        (OFlags::DIRECT, 7, 4096),
        (OFlags::DIRECT | OFlags::DSYNC, 8, 8192),
        (OFlags::DIRECT | OFlags::SYNC, 8, 8192),
    ];
    for (flags, has, bytes) in cases {
        let (mut rig, node) = Rig::with_file(&[7; 4096]);
        rig.fsync(node);
        // The size is in memory alone.
        rig.write(node, 4096, &[7; 4096]).unwrap();
        let written = rig.send_write_with(flags.bits(), node, 0, &[8; 8192]);
        rig.reply(written).unwrap();
        rig.cache.borrow_mut().cut(&rig.memory, |_| true);
        let mut rig = Rig::mount(rig.memory);
        let node = rig.lookup("file").unwrap();
        assert_eq!(rig.read(node, 0, 8192), vec![has; bytes], "{flags:?}");
    }
}

/// The pages of a hole, and the bytes that a truncate has cut off, are zero once the call returns.
#[test]
fn what_was_cleared_is_clear_after_a_power_cut() {
    for is_cut in [false, true] {
        let (mut rig, node) = Rig::with_file(&[7; 16_384]);
        rig.fsync(node);
        if is_cut {
            rig.set_size(node, 100);
        } else {
            let mut body = [0; 32];
            body[8..16].copy_from_slice(&100_u64.to_ne_bytes());
            body[16..24].copy_from_slice(&16_284_u64.to_ne_bytes());
            body[24] = 3;
            rig.call(43, node, &body).unwrap();
        }
        rig.cache.borrow_mut().cut(&rig.memory, |_| true);
        let mut rig = Rig::mount(rig.memory);
        let node = rig.lookup("file").unwrap();
        let found = rig.read(node, 0, 16_384);
        assert_eq!(found.len(), if is_cut { 100 } else { 16_384 });
        assert_eq!(found[..100], [7; 100]);
        assert!(found[100..].iter().all(|byte| *byte == 0));
    }
}

/// Checks that no page has bytes but those of files. A file that is made where they are would have
/// them.
fn check_free_space(rig: &Rig, seed: u64) {
    let fs = &rig.engine.core.fs;
    let extents: Vec<_> = (1..256).filter_map(|ino| fs.extent_of(ino)).collect();
    let first = fs.geometry().data_start();
    for (page, image) in rig.memory.pages.borrow().range(first..) {
        let at = page * PAGE_BYTES as u64;
        let left = |file: &contigfs::Extent| (file.at + file.bytes).saturating_sub(at);
        let own = extents.iter().filter(|file| file.at <= at).map(left).max().unwrap_or(0);
        let beyond = &image[(own as usize).min(PAGE_BYTES)..];
        assert!(beyond.iter().all(|byte| *byte == 0), "seed {seed}: page {page} has old bytes");
    }
}

/// Makes, cuts and removes files until the power is cut.
fn remove_at_random(seed: u64) {
    let mut rig = Rig::new();
    let chance = &mut (seed * 2 + 1);
    for n in 0..3 + random(chance) % 12 {
        let node = rig.create(&format!("{n}"));
        rig.write(node, 0, &[n as u8 + 1; 9_000]).unwrap();
        if random(chance).is_multiple_of(2) {
            rig.fsync(node);
        }
        if random(chance).is_multiple_of(3) {
            rig.set_size(node, random(chance) % 9_000);
        }
        rig.release(node);
        if random(chance).is_multiple_of(2) {
            rig.call(10, 1, format!("{n}\0").as_bytes()).unwrap();
            rig.send(2, node, &1_u64.to_ne_bytes());
        }
        // Some wait for the commits that nobody asks for.
        let idle = if random(chance).is_multiple_of(4) { 3_000 } else { 9 };
        (0..random(chance) % idle).for_each(|_| _ = rig.turn());
    }
    rig.send(20, 1, &[0; 16]);
    (0..random(chance) % 6).for_each(|_| _ = rig.turn());
    check_free_space(&Rig::mount(rig.cut_power(chance)), seed);
}

#[test]
fn free_space_has_no_old_bytes_after_a_power_cut() {
    (0..400).for_each(remove_at_random);
}

/// Changes of names that nobody waits for are answered at once, and share a commit; they are durable
/// a second later.
#[test]
fn changes_of_names_share_a_commit() {
    let mut rig = Rig::new();
    let nodes: Vec<u64> = (0..20).map(|n| rig.create(&format!("{n}"))).collect();
    assert_eq!(Rig::mount(rig.memory.copy()).lookup("0"), Err(2), "no commit has begun");
    rig.fsync(nodes[3]);
    let mut other = Rig::mount(rig.memory.copy());
    assert!((0..20).all(|n| other.lookup(&format!("{n}")).is_ok()), "a sync takes all before it");
    rig.call(10, 1, b"7\0").unwrap();
    (0..1_100).for_each(|_| _ = rig.turn());
    assert_eq!(Rig::mount(rig.memory.copy()).lookup("7"), Err(2));
    rig.unmount();
}

/// Changes of names that come at each turn share the commits of each second, for nobody waits.
#[test]
fn names_that_change_all_the_time_share_commits() {
    let mut rig = Rig::new();
    for n in 0..3_000_u32 {
        let mode = 0o600 + n % 8;
        let mut body = [0; 88];
        body[0] = 1;
        body[68..72].copy_from_slice(&mode.to_ne_bytes());
        rig.call(4, 1, &body).unwrap();
    }
    let commits = rig.cache.borrow().commits;
    assert!((2..=4).contains(&commits), "{commits} commits in 3 seconds");
    rig.unmount();
}

/// The sync of a name starts one commit, and none for names that came while it was under way.
#[test]
fn a_reply_that_is_due_starts_no_commit() {
    let mut rig = Rig::new();
    for n in 0..20 {
        rig.create(&format!("{n}"));
        let synced = rig.send(20, 1, &[0; 16]);
        rig.turn();
        rig.create(&format!("{n} later"));
        rig.reply(synced).unwrap();
        (0..20).for_each(|_| _ = rig.turn());
        assert_eq!(rig.cache.borrow().commits, n + 1);
    }
    rig.unmount();
}

#[test]
fn names_are_durable_when_they_are_answered_if_that_was_asked() {
    let mut rig = Rig::new();
    rig.engine.make_names_durable();
    rig.create("file");
    assert!(Rig::mount(rig.memory.copy()).lookup("file").is_ok());
    rig.unmount();
}
