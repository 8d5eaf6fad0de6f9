//! The simulated device: controller, channels, dies and write buffer, in the order of their events.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::blank::DiscardedPages;
use super::buffer::{BlockedWrite, WriteBuffer};
use super::channel::Channel;
use super::die::Die;
use super::garbage::Garbage;
use super::model::Model;
use crate::Rng;

/// Counters of a device since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages that the host read from flash.
    pub pages_read: u64,
    /// Pages that the host wrote.
    pub pages_written: u64,
    /// Program operations of dies for pages that the host wrote.
    pub programs: u64,
    /// Pages that garbage collection copied.
    pub pages_copied: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Writes that found the buffer full.
    pub writes_blocked: u64,
}

/// Maximum number of pages that a request touches: 1 MiB that begins within a page.
const REQUEST_PAGES_MAX: usize = 257;

/// An event of a die, earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: u64,
    /// Order of creation, which breaks ties and so makes runs repeatable.
    sequence: u64,
    die: u32,
    /// `true` if the die looks for more work at this event.
    looks: bool,
    /// Work that ends with this event, in ns.
    ended: u64,
}

/// The simulated mechanism. All times are nanoseconds on the caller's clock.
#[derive(Debug)]
pub(super) struct Engine {
    model: Model,
    age: f64,
    garbage: Garbage,
    chance: Rng,
    hash_key: u64,
    now: u64,
    /// Time at which the controller will be free.
    controller_free: u64,
    /// Time until which the device is in mixed mode at least.
    mixed_until: u64,
    indebted: usize,
    dies: Box<[Die]>,
    channels: Box<[Channel]>,
    timers: BinaryHeap<Reverse<Timer>>,
    timer_sequence: u64,
    buffer: WriteBuffer,
    blank: DiscardedPages,
    counters: Counters,
}

impl Engine {
    pub(super) fn new(model: Model, pages: u64, age: f64, seed: u64) -> Self {
        let largest = REQUEST_PAGES_MAX + model.program_pages;
        assert!(model.buffer.pages >= largest, "the buffer must hold the largest request");
        let mut chance = Rng::new(seed);
        let programs_max = model.buffer.pages / model.program_pages + 1;
        let block_pages = (model.block_programs * model.program_pages) as f64;
        let dies = (0..model.dies)
            .map(|_| Die::new(programs_max, block_pages * unit(&mut chance)))
            .collect();
        Engine {
            age,
            garbage: Garbage::new(),
            hash_key: chance.number(),
            chance,
            now: 0,
            controller_free: 0,
            mixed_until: 0,
            indebted: 0,
            dies,
            channels: (0..model.channels).map(|_| Channel::new(model.transfer_ns)).collect(),
            timers: BinaryHeap::with_capacity(model.dies + 8 * programs_max),
            timer_sequence: 0,
            buffer: WriteBuffer::new(model.buffer.pages),
            blank: DiscardedPages::new(pages),
            counters: Counters::default(),
            model,
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn set_age(&mut self, age: f64) {
        self.age = age;
    }

    /// Adds an owner, which is a queue of at most `depth` requests; returns the owner's number.
    pub(super) fn add_owner(&mut self, depth: usize) -> usize {
        self.buffer.add_owner(depth)
    }

    /// Reads `count` pages from `first`; returns the time at which the last page arrives.
    pub(super) fn read(&mut self, now: u64, first: u64, count: u64) -> u64 {
        self.advance(now);
        let mixed = self.is_mixed();
        (first..first + count).map(|page| self.read_page(page, mixed)).max().unwrap_or(self.now)
    }

    /// Buffers `count` pages from `first`; returns the time of the acknowledgement. Returns `None`
    /// if the buffer is full; `take_admitted` reports the write later.
    pub(super) fn write(
        &mut self,
        now: u64,
        first: u64,
        count: u64,
        owner: usize,
        ticket: u32,
    ) -> Option<u64> {
        self.advance(now);
        self.occupy(count);
        for page in first..first + count {
            self.blank.mark(page, false);
        }
        let (at, pages) = (self.controller_free, count as u32);
        if !self.buffer.offer(self.now, BlockedWrite { at, pages, owner, ticket }) {
            self.counters.writes_blocked += 1;
            return None;
        }
        Some(self.admit(at, pages))
    }

    /// Processes a command that only needs the controller; returns the time of the acknowledgement.
    pub(super) fn manage(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.occupy(1);
        self.acknowledgement(self.controller_free)
    }

    /// Discards pages; returns the time of the acknowledgement.
    pub(super) fn discard(&mut self, now: u64, first: u64, count: u64) -> u64 {
        for page in first..first + count {
            self.blank.mark(page, true);
        }
        self.manage(now)
    }

    /// Passes the blocked writes of this owner that were admitted to `f`, with the times of their
    /// acknowledgements.
    pub(super) fn take_admitted(&mut self, now: u64, owner: usize, f: impl FnMut((u64, u32))) {
        self.advance(now);
        self.buffer.take_admitted(owner).for_each(f);
    }

    /// Returns the earliest acknowledgement of an admitted write of this owner. If there is none,
    /// returns the time of the next event, at which a blocked write may be admitted, or `None`
    /// without one.
    pub(super) fn next_for(&self, owner: usize) -> Option<u64> {
        if let Some(at) = self.buffer.next_admitted(owner) {
            return Some(at);
        }
        let timer = self.timers.peek().map(|Reverse(timer)| timer.at);
        timer.into_iter().chain(self.flush_at()).min()
    }

    fn occupy(&mut self, count: u64) {
        self.controller_free = self.controller_free.max(self.now) + count * self.model.command_ns;
    }

    fn is_mixed(&self) -> bool {
        self.indebted > 0 || self.buffer.open() > 0 || self.now < self.mixed_until
    }

    fn read_page(&mut self, page: u64, mixed: bool) -> u64 {
        self.occupy(1);
        let at = self.controller_free;
        if self.blank.contains(page) {
            return at + self.model.finish_ns;
        }
        self.counters.pages_read += 1;
        let hash = mix(page ^ self.hash_key);
        let place = (((hash >> 32) * self.model.dies as u64) >> 32) as usize;
        let spread = self.model.sense.spread_ns;
        let sense = self.model.sense.medium_ns - spread + spread * (((hash & 0xffff) * 3) >> 16);
        if self.buffer.is_above(self.model.buffer.urgent_above) && self.dies[place].debt() > 0 {
            let slice = self.dies[place].debt().min(self.program_ns());
            self.begin(place, at, slice, false);
        }
        let die = &mut self.dies[place];
        let ready = die.busy_until.max(at) + sense;
        die.busy_until = ready + if mixed { self.model.sense.mixed_hold_ns } else { 0 };
        let channel = &mut self.channels[place % self.model.channels];
        channel.transfer(self.now, ready) + self.model.finish_ns
    }

    fn program_ns(&self) -> u64 {
        (self.model.program_ns as f64 * self.age) as u64
    }

    fn acknowledgement(&mut self, at: u64) -> u64 {
        let draw = self.chance.number();
        let jitter = (self.model.ack.jitter_ns * (draw >> 32)) >> 32;
        let late = if draw.is_multiple_of(10) { self.model.ack.late_ns } else { 0 };
        at + self.model.ack.min_ns + jitter + late
    }

    /// Puts pages into the buffer, which has room; returns the time of the acknowledgement.
    fn admit(&mut self, at: u64, pages: u32) -> u64 {
        self.counters.pages_written += u64::from(pages);
        self.buffer.put(pages);
        while self.buffer.open() >= self.model.program_pages {
            self.dispatch(self.model.program_pages);
        }
        self.acknowledgement(at)
    }

    /// Hands `pages` pages of the write buffer to a die to be programmed, with the garbage
    /// collection that they cause.
    fn dispatch(&mut self, pages: usize) {
        self.buffer.hand_over(pages, self.model.program_pages);
        let mut place = self.draw_die();
        for _ in 1..self.model.die_choices {
            let other = self.draw_die();
            if self.dies[other].debt() < self.dies[place].debt() {
                place = other;
            }
        }
        let copies = self.garbage.copies(self.blank.used() / (1.0 + self.model.spare));
        let program = self.program_ns();
        let copied = copies * self.model.program_pages as f64;
        let sensed = copied * self.model.sense.medium_ns as f64 * self.age;
        let mut garbage = (copies * program as f64 + sensed) as u64;
        let die = &mut self.dies[place];
        die.pages_to_erase -= self.model.program_pages as f64 + copied;
        if die.pages_to_erase <= 0.0 {
            die.pages_to_erase += (self.model.block_programs * self.model.program_pages) as f64;
            garbage += (self.model.erase_ns as f64 * self.age) as u64;
            self.counters.erases += 1;
        }
        die.owe(program, garbage);
        self.counters.programs += 1;
        self.counters.pages_copied += copied as u64;
        if !die.is_armed {
            die.is_armed = true;
            self.indebted += 1;
            let at = die.busy_until.max(self.now);
            self.arm(Timer { at, sequence: 0, die: place as u32, looks: true, ended: 0 });
        }
    }

    fn draw_die(&mut self) -> usize {
        self.chance.within(0..=self.model.dies as u64 - 1) as usize
    }

    fn arm(&mut self, timer: Timer) {
        self.timer_sequence += 1;
        self.timers.push(Reverse(Timer { sequence: self.timer_sequence, ..timer }));
    }

    fn begin(&mut self, place: usize, at: u64, slice: u64, looks: bool) {
        let at = self.dies[place].begin(at, slice);
        self.arm(Timer { at, sequence: 0, die: place as u32, looks, ended: slice });
    }

    /// Processes all events until `now`. A clock that goes back counts as standing still.
    pub(super) fn advance(&mut self, now: u64) {
        loop {
            let flush = self.flush_at().filter(|&at| at <= now);
            match self.timers.peek() {
                Some(Reverse(timer))
                    if timer.at <= now && flush.is_none_or(|at| timer.at <= at) =>
                {
                    let Some(Reverse(timer)) = self.timers.pop() else { break };
                    self.now = self.now.max(timer.at);
                    self.fire(timer);
                }
                _ => {
                    let Some(at) = flush else { break };
                    self.now = self.now.max(at);
                    self.dispatch(self.buffer.open());
                }
            }
        }
        self.now = self.now.max(now);
    }

    fn flush_at(&self) -> Option<u64> {
        self.buffer.flush_at(self.model.buffer.idle_flush_ns)
    }

    fn fire(&mut self, timer: Timer) {
        let place = timer.die as usize;
        let programs = self.dies[place].end(timer.ended);
        self.buffer.free(programs * self.model.program_pages);
        if programs > 0 {
            self.let_in();
        }
        if !timer.looks {
            return;
        }
        let die = &mut self.dies[place];
        let debt = die.debt();
        if debt == 0 {
            die.is_armed = false;
            self.indebted -= 1;
            self.mixed_until = self.now + self.model.sense.mixed_linger_ns;
        } else if die.busy_until > self.now {
            let at = die.busy_until;
            self.arm(Timer { at, sequence: 0, die: timer.die, looks: true, ended: 0 });
        } else {
            let share = (debt as f64 * self.model.slice.debt_share) as u64;
            let slice = share.clamp(self.model.slice.min_ns, self.model.slice.max_ns);
            self.begin(place, self.now, slice.min(debt), true);
        }
    }

    fn let_in(&mut self) {
        while let Some(BlockedWrite { at, pages, owner, ticket }) = self.buffer.unblock() {
            let done = self.admit(at.max(self.now), pages);
            self.buffer.acknowledge(owner, done, ticket);
        }
    }
}

/// Returns a number in [0, 1).
pub(super) fn unit(chance: &mut Rng) -> f64 {
    (chance.number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a hash of a page's number, which scatters pages over dies as writes in random order do.
fn mix(page: u64) -> u64 {
    let mut mixed = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}
