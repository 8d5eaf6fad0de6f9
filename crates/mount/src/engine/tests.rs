//! The engine between a kernel that is a list of messages and a volume that is a map of pages
//! (`volume.rs`).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range as Span;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use contigfs::{Image, Settings, Shape};
use contract::Buf;
use io::fuse::HEAD_BYTES;

use super::*;
use volume::{
    COMMIT_PAGES_MAX, Cache, Faults, FreePages, Memory, SlowDevice, VOLUME_PAGES, random,
};

mod power;
mod volume;

/// Replies by the numbers of their requests: an error number, and the body.
type Replies = Rc<RefCell<BTreeMap<u64, (i32, Vec<u8>)>>>;

/// A kernel that is a list of messages.
#[derive(Default)]
struct MessageList {
    messages: Rc<RefCell<VecDeque<Vec<u8>>>>,
    replies: Replies,
    leaving: Vec<Buf>,
    ended: Rc<RefCell<bool>>,
}

impl Kernel for MessageList {
    fn poll(
        &mut self,
        messages: &mut Vec<FuseRequest>,
        freed: &mut Vec<Buf>,
        supply: &mut dyn FnMut() -> Option<Buf>,
    ) {
        freed.append(&mut self.leaving);
        while let Some(bytes) = self.messages.borrow_mut().pop_front() {
            let mut head = [0; HEAD_BYTES];
            let (first, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
            head[..first.len()].copy_from_slice(first);
            let mut buf = supply().expect("there are buffers");
            buf.prefix_mut(rest.len()).copy_from_slice(rest);
            messages.push(FuseRequest { head, bytes: bytes.len(), buf });
        }
    }

    fn reply(&mut self, head: &[u8], body: Option<(Buf, Span<usize>)>) {
        let word = |at: usize| i32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        let unique = u64::from_ne_bytes(head[8..16].try_into().unwrap());
        let mut bytes = head[16..].to_vec();
        if let Some((buf, span)) = body {
            bytes.extend_from_slice(&buf.bytes()[span]);
            self.leaving.push(buf);
        }
        assert_eq!(word(0) as usize, 16 + bytes.len(), "a reply has its length");
        let before = self.replies.borrow_mut().insert(unique, (-word(4), bytes));
        assert!(before.is_none(), "a request has one reply");
    }

    fn ignore(&mut self) {}

    fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    fn has_sent_all(&self) -> bool {
        true
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A mounted file system.
struct Rig {
    memory: Memory,
    cache: Rc<RefCell<Cache>>,
    engine: Engine<MessageList, SlowDevice>,
    messages: Rc<RefCell<VecDeque<Vec<u8>>>>,
    replies: Replies,
    ended: Rc<RefCell<bool>>,
    faults: Rc<RefCell<Faults>>,
    room: Arc<FreePages>,
    unique: u64,
    now: Instant,
}

impl Rig {
    /// Returns a new file system.
    fn new() -> Rig {
        let mut memory = Memory::default();
        let shape = Shape { uuid: [7; 16], inodes: 256, pool_pages: 256, order: 0 };
        contigfs::create(&mut memory, &shape, Time::default(), (0, 0)).unwrap();
        Rig::mount(memory)
    }

    /// Returns a new file system with the open file `file`, which has this content, and its node.
    fn with_file(content: &[u8]) -> (Rig, u64) {
        let mut rig = Rig::new();
        let node = rig.create("file");
        rig.write(node, 0, content).unwrap();
        (rig, node)
    }

    fn mount(mut memory: Memory) -> Rig {
        let most = usize::from(COMMIT_PAGES_MAX);
        let settings = Settings { commit_pages_max: most, seed: 1, read_only: false };
        let fs = contigfs::mount(&mut memory, &settings).unwrap();
        let list = MessageList::default();
        let (messages, replies) = (list.messages.clone(), list.replies.clone());
        let (ended, faults) = (list.ended.clone(), Rc::<RefCell<Faults>>::default());
        let (waiting, ready) = (Vec::new(), Vec::new());
        let cache = Rc::<RefCell<Cache>>::default();
        let slow = SlowDevice {
            memory: memory.clone(),
            cache: cache.clone(),
            waiting,
            ready,
            chance: 1,
            discards_most: 0,
            faults: faults.clone(),
        };
        let make = |(n, class): (usize, &SizeClass)| {
            let bytes = class.bytes;
            (0..class.count)
                .map(move |i| {
                    let index = (n * 1000 + i) as u32;
                    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index)
                })
                .collect::<Vec<Buf>>()
        };
        let pool = BufPool::new(BUFFERS.iter().enumerate().flat_map(make));
        let room = Arc::new(FreePages(AtomicU64::new(VOLUME_PAGES)));
        let engine = Engine::new(list, slow, fs, pool, Some(room.clone()));
        let (unique, now) = (0, Instant::ZERO);
        Rig { memory, cache, engine, messages, replies, ended, faults, room, unique, now }
    }

    fn turn(&mut self) -> Option<TurnOutcome> {
        self.now = self.now + std::time::Duration::from_millis(1);
        let wall = Time { seconds: 1_000 + self.unique as i64, nanos: 0 };
        self.engine.turn(self.now, wall)
    }

    /// Sends a request, and returns its number.
    fn send(&mut self, opcode: u32, node: u64, body: &[u8]) -> u64 {
        self.unique += 2;
        let mut bytes = Vec::new();
        bytes.extend((40 + body.len() as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(self.unique.to_ne_bytes());
        bytes.extend(node.to_ne_bytes());
        for number in [1000_u32, 100, 4242, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(body);
        self.messages.borrow_mut().push_back(bytes);
        self.unique
    }

    /// Takes turns until a request has its reply.
    fn reply(&mut self, unique: u64) -> Result<Vec<u8>, i32> {
        for _ in 0..1000 {
            if let Some((error, bytes)) = self.replies.borrow_mut().remove(&unique) {
                return if error == 0 { Ok(bytes) } else { Err(error) };
            }
            self.turn().expect("the file system is mounted");
        }
        panic!("request {unique} has no reply");
    }

    fn call(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let unique = self.send(opcode, node, body);
        self.reply(unique)
    }

    /// Makes a file and returns its node.
    fn create(&mut self, name: &str) -> u64 {
        let mut body = Vec::new();
        for number in [2_u32, 0o100_644, 0o022, 0] {
            body.extend(number.to_ne_bytes());
        }
        body.extend(name.as_bytes());
        body.push(0);
        word(&self.call(35, 1, &body).unwrap(), 0)
    }

    fn lookup(&mut self, name: &str) -> Result<u64, i32> {
        let name = [name.as_bytes(), &[0]].concat();
        // The node zero is none, which the kernel may keep in mind.
        match word(&self.call(1, 1, &name)?, 0) {
            0 => Err(2),
            node => Ok(node),
        }
    }

    fn size(&mut self, node: u64) -> u64 {
        word(&self.call(3, node, &[0; 16]).unwrap(), 24)
    }

    fn send_write(&mut self, node: u64, offset: u64, data: &[u8]) -> u64 {
        self.send_write_with(0, node, offset, data)
    }

    /// Sends a write of a file that was opened with these flags of open(2).
    fn send_write_with(&mut self, flags: u32, node: u64, offset: u64, data: &[u8]) -> u64 {
        let mut body = vec![0; 40];
        body[32..36].copy_from_slice(&flags.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..20].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        body.extend(data);
        self.send(16, node, &body)
    }

    fn write(&mut self, node: u64, offset: u64, data: &[u8]) -> Result<(), i32> {
        let unique = self.send_write(node, offset, data);
        let written = self.reply(unique)?;
        assert_eq!(word(&written, 0), data.len() as u64, "a write is whole");
        Ok(())
    }

    fn read(&mut self, node: u64, offset: u64, bytes: u32) -> Vec<u8> {
        let mut body = [0; 40];
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..20].copy_from_slice(&bytes.to_ne_bytes());
        self.call(15, node, &body).unwrap()
    }

    fn set_size(&mut self, node: u64, size: u64) {
        let mut body = [0; 88];
        body[0] = 8;
        body[16..24].copy_from_slice(&size.to_ne_bytes());
        self.call(4, node, &body).unwrap();
    }

    fn fsync(&mut self, node: u64) {
        self.call(20, node, &[0; 16]).unwrap();
    }

    fn release(&mut self, node: u64) {
        let mut body = [0; 24];
        body[0] = 1;
        self.call(18, node, &body).unwrap();
    }

    /// Cuts the power, and returns the volume with some of what was not durable.
    /// The volume may have a commit that was under way, and not what the commit would have made
    /// durable at its end.
    fn cut_power(self, chance: &mut u64) -> Memory {
        let mut cache = self.cache.borrow_mut();
        let happens = random(chance).is_multiple_of(2);
        if let Some((pages, payload)) = cache.flying.take().filter(|_| happens) {
            cache.commit(&self.memory, pages, &payload, 0);
        }
        cache.cut(&self.memory, |_| !random(chance).is_multiple_of(3));
        drop(cache);
        self.memory
    }

    /// Takes the file system off, and returns its volume. Nothing is lost of what the engine had.
    fn unmount(mut self) -> Memory {
        *self.ended.borrow_mut() = true;
        for _ in 0..1000 {
            if self.turn().is_none() {
                let checked = contigfs::check(&mut self.memory).unwrap();
                assert_eq!(checked.faults.count, 0, "{checked:?}");
                return self.memory;
            }
        }
        panic!("the engine does not end");
    }
}

#[test]
fn files_stay_after_an_unmount() {
    let (mut rig, node) = Rig::with_file(b"hello");
    rig.write(node, 5, b", world").unwrap();
    assert_eq!(rig.read(node, 0, 4096), b"hello, world");
    assert_eq!(rig.size(node), 12);
    rig.release(node);
    let mut rig = Rig::mount(rig.unmount());
    let node = rig.lookup("file").unwrap();
    assert_eq!(rig.read(node, 7, 4096), b"world");
    assert_eq!(rig.lookup("other"), Err(2));
    rig.unmount();
}

#[test]
fn an_open_file_outlives_its_name() {
    let (mut rig, node) = Rig::with_file(&[7; 100]);
    rig.call(10, 1, b"file\0").unwrap();
    assert_eq!(rig.lookup("file"), Err(2));
    assert_eq!(rig.read(node, 0, 4096), [7; 100]);
    rig.release(node);
    rig.send(2, node, &1_u64.to_ne_bytes());
    let again = rig.create("file");
    assert!(rig.read(again, 0, 4096).is_empty());
    rig.unmount();
}

#[test]
fn directories_list_what_they_have() {
    let mut rig = Rig::new();
    for n in 0..40 {
        let node = rig.create(&format!("file-{n}"));
        rig.release(node);
    }
    let mut body = [0; 40];
    body[16..20].copy_from_slice(&1024_u32.to_ne_bytes());
    let mut names = Vec::new();
    loop {
        let listed = rig.call(28, 1, &body).unwrap();
        let mut at = 0;
        while at < listed.len() {
            let len = word(&listed, at + 16) as u32 as usize;
            names.push(String::from_utf8(listed[at + 24..at + 24 + len].to_vec()).unwrap());
            body[8..16].copy_from_slice(&listed[at + 8..at + 16]);
            at += (24 + len).next_multiple_of(8);
        }
        if listed.is_empty() {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 42, "{names:?}");
    rig.unmount();
}

#[test]
fn a_volume_that_fails_is_not_written_any_more() {
    let (mut rig, node) = Rig::with_file(&[7; 100]);
    rig.fsync(node);
    rig.faults.borrow_mut().writes = true;
    assert_eq!(rig.write(node, 0, &[8; 100]), Err(5));
    rig.call(10, 1, b"file\0").unwrap();
    assert_eq!(rig.call(20, 1, &[0; 16]).map(drop), Err(5), "the sync waits for the commit");
    rig.faults.borrow_mut().writes = false;
    assert_eq!(rig.write(node, 0, &[8; 100]), Err(30), "the commit has failed");
    let mut rig = Rig::mount(rig.memory.clone());
    let node = rig.lookup("file").unwrap();
    assert_eq!(rig.read(node, 0, 4096), [7; 100]);
}

#[test]
fn a_file_that_cannot_be_copied_to_a_larger_place_refuses_to_grow() {
    let (mut rig, node) = Rig::with_file(&[7; PAGE_BYTES]);
    let neighbours: Vec<u64> = (0..4).map(|n| rig.create(&format!("neighbour-{n}"))).collect();
    let is_ours = |(page, image): (&u64, &Image)| (image[..] == [7; PAGE_BYTES]).then_some(*page);
    let lost = rig.memory.pages.borrow().iter().find_map(is_ours);
    rig.faults.borrow_mut().unreadable = lost;
    let place = 4 << 20;
    assert_eq!(rig.write(node, place, &[8; PAGE_BYTES]), Err(5));
    let mut body = [0; 88];
    body[0] = 8;
    body[16..24].copy_from_slice(&(place + 1).to_ne_bytes());
    assert_eq!(rig.call(4, node, &body).map(|_| ()), Err(5), "a request that is no write");
    assert_eq!(rig.size(node), PAGE_BYTES as u64);
    rig.faults.borrow_mut().unreadable = None;
    rig.write(node, place, &[8; PAGE_BYTES]).unwrap();
    assert_eq!(rig.read(node, 0, 4096), [7; PAGE_BYTES]);
    [node].iter().chain(&neighbours).for_each(|node| rig.release(*node));
    rig.unmount();
}

#[test]
fn a_full_volume_refuses_writes_and_names_and_lets_names_go() {
    let (mut rig, node) = Rig::with_file(&[7; PAGE_BYTES]);
    rig.room.0.store(0, Relaxed);
    assert_eq!(rig.write(node, 4096, &[7; PAGE_BYTES]), Err(28));
    assert_eq!(rig.call(9, 1, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], &b"folder\0"[..]].concat()), Err(28));
    let sizes = rig.call(17, 1, &[]).unwrap();
    assert_eq!((word(&sizes, 0), word(&sizes, 8)), (VOLUME_PAGES, 0));
    rig.call(10, 1, b"file\0").unwrap();
    rig.room.0.store(VOLUME_PAGES, Relaxed);
    rig.write(node, 4096, &[7; PAGE_BYTES]).unwrap();
    rig.release(node);
    rig.unmount();
}

#[test]
fn a_write_without_space_leaves_the_file_system_writable() {
    let mut rig = Rig::new();
    rig.engine.make_names_durable();
    let node = rig.create("file");
    rig.write(node, 0, &[7; 100]).unwrap();
    rig.fsync(node);
    rig.faults.borrow_mut().full = true;
    // What the failed write may have left behind the end is cleared: there is nothing.
    assert_eq!(rig.write(node, 5000, &[8; 100]), Err(28));
    let made = rig.send(9, 1, &[&[0xed, 1, 0, 0, 0, 0, 0, 0], &b"folder\0"[..]].concat());
    for _ in 0..300 {
        rig.turn();
    }
    assert!(rig.replies.borrow().is_empty(), "the commit waits for space");
    rig.faults.borrow_mut().full = false;
    rig.reply(made).unwrap();
    rig.write(node, 5000, &[8; 100]).unwrap();
    rig.release(node);
    rig.unmount();
}

#[test]
fn a_buffer_that_comes_back_is_offered_to_readers_at_once() {
    let (mut rig, node) = Rig::with_file(&[7; 100]);
    rig.release(node);
    for _ in 0..100 {
        rig.turn();
    }
    assert!(!rig.turn().unwrap().progressed, "nothing is left to do");
    rig.read(node, 0, 100);
    assert!(rig.turn().unwrap().progressed, "the reply has left, and its buffer is back");
    assert!(!rig.turn().unwrap().progressed);
    rig.unmount();
}

#[test]
fn discards_of_many_files_take_turns() {
    let mut rig = Rig::new();
    for n in 0..40 {
        let node = rig.create(&format!("{n:02}"));
        rig.write(node, 0, &[7; 100]).unwrap();
        rig.release(node);
        rig.send(2, node, &1_u64.to_ne_bytes());
    }
    let removed: Vec<u64> =
        (0..40).map(|n| rig.send(10, 1, format!("{n:02}\0").as_bytes())).collect();
    removed.into_iter().for_each(|unique| _ = rig.reply(unique).unwrap());
    *rig.ended.borrow_mut() = true;
    while rig.turn().is_some() {}
    let Rig { engine, mut memory, .. } = rig;
    assert_eq!(contigfs::check(&mut memory).unwrap().inodes, 1, "all are gone");
    let (_, device, _) = engine.into_parts();
    assert_eq!(device.discards_most, 8);
}

#[test]
fn a_file_that_is_copied_to_a_larger_place_is_read_meanwhile() {
    let (mut rig, node) = Rig::with_file(&[7; 3 * PAGE_BYTES]);
    let neighbours: Vec<u64> = (0..4).map(|n| rig.create(&format!("neighbour-{n}"))).collect();
    rig.faults.borrow_mut().stuck = true;
    let grown = rig.send_write(node, 4 << 20, &[8; PAGE_BYTES]);
    for _ in 0..100 {
        rig.turn();
    }
    assert_eq!(rig.read(node, 4096, 4096), [7; PAGE_BYTES], "the copy does not end");
    assert!(rig.replies.borrow().is_empty());
    let mut body = [0; 40];
    body[16..20].copy_from_slice(&4096_u32.to_ne_bytes());
    let read = rig.send(15, node, &body);
    rig.faults.borrow_mut().stuck = false;
    rig.reply(grown).unwrap();
    assert_eq!(rig.reply(read).unwrap(), [7; PAGE_BYTES]);
    assert_eq!(rig.read(node, 4 << 20, 4096), [8; PAGE_BYTES]);
    [node].iter().chain(&neighbours).for_each(|node| rig.release(*node));
    rig.unmount();
}

#[test]
fn a_last_flush_that_fails_is_told() {
    for fails in [false, true] {
        let (mut rig, node) = Rig::with_file(&[7; 100]);
        rig.release(node);
        rig.faults.borrow_mut().flushes = fails;
        *rig.ended.borrow_mut() = true;
        while rig.turn().is_some() {}
        assert_eq!(rig.engine.has_flushed(), !fails);
    }
}

#[test]
fn unknown_requests_are_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.call(39, 1, &[0; 32]), Err(38), "a command");
    assert_eq!(rig.call(777, 1, &[]), Err(38));
    assert_eq!(rig.call(1, 1, b"a/b\0"), Err(22));
    assert_eq!(rig.call(3, 1 << 40, &[0; 16]), Err(116), "no such node");
    assert_eq!(rig.call(3, 77, &[0; 16]), Err(116), "no such node");
    rig.unmount();
}

/// Writes, cuts, zeroes and reads a file at random, beside a model in memory.
fn exercise(seed: u64, operations: u32) {
    let mut rig = Rig::new();
    let mut node = rig.create("file");
    let mut model: Vec<u8> = Vec::new();
    let chance = &mut (seed * 2 + 1);
    for step in 0..operations {
        let largest = [100, 5_000, 70_000, 1 << 20][random(chance) as usize % 4];
        let offset = match random(chance) % 4 {
            0 => model.len() as u64,
            1 => random(chance) % 64 * 4096,
            _ => random(chance) % 300_000,
        };
        let bytes = 1 + random(chance) % largest;
        let end = (offset + bytes) as usize;
        match random(chance) % 10 {
            0..4 => {
                let data: Vec<u8> = (0..bytes).map(|_| random(chance) as u8).collect();
                rig.write(node, offset, &data).unwrap();
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&data);
            }
            4 => {
                rig.set_size(node, offset);
                model.resize(offset as usize, 0);
            }
            5 => {
                let mut body = [0; 32];
                body[8..16].copy_from_slice(&offset.to_ne_bytes());
                body[16..24].copy_from_slice(&bytes.to_ne_bytes());
                body[24] = 3;
                rig.call(43, node, &body).unwrap();
                let (start, end) = ((offset as usize).min(model.len()), end.min(model.len()));
                model[start..end].fill(0);
            }
            6 if step % 8 == 0 => {
                rig.fsync(node);
                rig.release(node);
                rig = Rig::mount(rig.unmount());
                node = rig.lookup("file").unwrap();
                rig.call(14, node, &[2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            }
            _ => {
                let found = rig.read(node, offset, bytes as u32);
                let (start, end) = ((offset as usize).min(model.len()), end.min(model.len()));
                assert!(found == model[start..end], "seed {seed}, step {step}: {offset}+{bytes}");
            }
        }
        assert_eq!(rig.size(node), model.len() as u64, "seed {seed}, step {step}");
    }
    rig.unmount();
}

#[test]
fn a_file_is_what_was_written() {
    for seed in 0..40 {
        exercise(seed, 100);
    }
}

#[test]
fn requests_that_overlap_end_in_some_order() {
    let chance = &mut 9;
    for round in 0..50 {
        let mut rig = Rig::new();
        let node = rig.create("file");
        let mut sent = Vec::new();
        // Each writes its own bytes, which share pages with those of others.
        for n in 0..20_u64 {
            let fill = [n as u8 + 1; 1000];
            sent.push(rig.send_write(node, n * 1000, &fill));
            if random(chance).is_multiple_of(2) {
                rig.turn();
            }
        }
        for unique in sent {
            rig.reply(unique).unwrap();
        }
        let found = rig.read(node, 0, 32_768);
        assert_eq!(found.len(), 20_000, "round {round}");
        for (n, part) in found.chunks(1000).enumerate() {
            assert!(part.iter().all(|byte| *byte == n as u8 + 1), "round {round}, part {n}");
        }
        rig.unmount();
    }
}
