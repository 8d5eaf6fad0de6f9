//! A volume over members that end commands in any order, driven beside its model.

use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use contract::{Slot, Status};
use flash::Rng;
use zerocopy::little_endian::U64;

use super::members::{Members, SECTOR_BYTES};
use super::model::Model;
use crate::command::{Command, MemberOperation, ReadDestination, Request, Settings};
use crate::geometry::Shape;
use crate::hand_over::{AwaitedVolume, RestProgress};
use crate::layout::{PAGE_BYTES, checksum};
use crate::map::UNMAPPED;
use crate::open::{create, open_with};
use crate::policy::Policy;
use crate::sabotage::Sabotage;
use crate::table::{LentMemory, MapMemory};
use crate::volume::Volume;

/// A request in progress.
enum TrialRequest {
    Read { page: u32, legal: Vec<BTreeSet<u64>>, data: Vec<u8> },
    Write { pages: Vec<u32>, value: u64, durable: bool },
    Flush { snapshot: Vec<BTreeSet<u64>>, since: BTreeMap<u32, BTreeSet<u64>> },
}

/// Fills a page's data so that each sector encodes its page and value. Each sector ends with the
/// CRC-32C of the bytes before, as many formats of hosts do: the CRC-32C of such a page is the same
/// for every page and value.
fn fill(bytes: &mut [u8], page: u32, value: u64) {
    for sector in bytes.chunks_mut(SECTOR_BYTES) {
        sector[..8].copy_from_slice(&value.to_le_bytes());
        sector[8..12].copy_from_slice(&page.to_le_bytes());
        let crc = checksum(&sector[..SECTOR_BYTES - 4]);
        sector[SECTOR_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns the value in a page's data.
///
/// # Errors
/// Fails if sectors differ, or belong to another page.
fn value_of(bytes: &[u8], page: u32) -> Result<u64, &'static str> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let value = word(0);
    for at in (0..bytes.len()).step_by(SECTOR_BYTES) {
        if word(at) != value {
            return Err("torn");
        }
        let other = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes"));
        if value != 0 && other != page {
            return Err("another page's data");
        }
    }
    Ok(value)
}

/// The sizes of a trial's volume, and its requests.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) members: usize,
    pub(crate) member_pages: u64,
    pub(crate) segment_pages: u32,
    pub(crate) spare_per_mille: u32,
    pub(crate) policy: Policy,
    /// `true` if commits of scattered pages are among the requests.
    pub(crate) commits: bool,
    /// Number of logical pages of a thin volume; `None` for a volume that is not thin.
    pub(crate) virtual_pages: Option<u64>,
}

/// Counts over all sessions of a run.
#[derive(Default)]
pub(crate) struct Totals {
    /// Number of pages that collectors moved.
    pub(crate) moved: u64,
    /// Number of checkpoints that were completed.
    pub(crate) checkpoints: u64,
    /// Number of pages that were written in batches of lone writes.
    pub(crate) lone: u64,
    /// Number of times that the volume was handed over.
    pub(crate) handed: u64,
    /// Number of writes that were refused for want of space.
    pub(crate) refused: u64,
}

/// A run of a trial: a volume, its members, its model, and the requests in progress.
pub(crate) struct TrialRun {
    pub(crate) members: Members,
    pub(crate) volume: Volume,
    pub(crate) model: Model,
    pub(crate) chance: Rng,
    /// The choice of the pages that a dying process has written.
    cuts: Rng,
    /// Commands that are in flight at members.
    pub(crate) flying: Vec<Command>,
    pub(crate) commits: bool,
    doing: BTreeMap<u32, TrialRequest>,
    next_slot: u32,
    pub(crate) next_value: u64,
    settings: Settings,
    pub(crate) sabotage: Option<Sabotage>,
    /// `true` if flushes take far longer than other commands.
    pub(crate) slow_flushes: bool,
    /// For each page that was discarded since the last opening, the value that the next write had
    /// then.
    discards: BTreeMap<u32, u64>,
    /// The writes that a crash leaves whole, and commits, since the last opening: their pages and
    /// their value.
    atomics: Vec<(Vec<u32>, u64)>,
    pub(crate) totals: Totals,
}

/// The result of a trial; an error says which fault it found.
pub(crate) type Verdict = Result<(), String>;

impl TrialRun {
    pub(crate) fn new(sizes: &Sizes, seed: u64, sabotage: Option<Sabotage>) -> TrialRun {
        let mut members = Members::new(sizes.members, sizes.member_pages);
        let shape = Shape {
            uuid: *b"a volume's name.",
            segment_pages: sizes.segment_pages,
            spare_per_mille: sizes.spare_per_mille,
            policy: sizes.policy,
            virtual_pages: sizes.virtual_pages,
        };
        create(&mut members, &shape).expect("the members are large enough");
        let settings = Settings { flush_pages: 200, ..Settings::new(sizes.policy) };
        let (volume, _) = open_with(&mut members, settings, sabotage).expect("it was created");
        for member in &mut members.0 {
            member.lies = sabotage == Some(Sabotage::LyingFlush);
        }
        let model = Model::new(volume.geometry().pages);
        TrialRun {
            members,
            volume,
            model,
            chance: Rng::new(seed),
            cuts: Rng::new(!seed),
            flying: Vec::new(),
            commits: sizes.commits,
            doing: BTreeMap::new(),
            next_slot: 0,
            next_value: 1,
            settings,
            sabotage,
            totals: Totals::default(),
            slow_flushes: false,
            discards: BTreeMap::new(),
            atomics: Vec::new(),
        }
    }

    fn slot(&mut self) -> Slot {
        self.next_slot += 1;
        Slot::from_bits(self.next_slot)
    }

    /// Submits a write; returns `false` if the volume has no room now.
    pub(crate) fn write(&mut self, page: u32, pages: u32, fua: bool, atomic: bool) -> bool {
        let (slot, value) = (self.slot(), self.next_value);
        let mut data = vec![0; pages as usize * PAGE_BYTES];
        for (page, bytes) in (page..).zip(data.chunks_mut(PAGE_BYTES)) {
            fill(bytes, page, value);
        }
        let request = Request::Write { page, pages, data: &data, fua, atomic };
        if self.volume.submit(slot, request).is_err() {
            return false;
        }
        self.next_value += 1;
        let pages: Vec<u32> = (page..page + pages).collect();
        if atomic || pages.len() > 1 {
            self.atomics.push((pages.clone(), value));
        }
        self.begin(slot, pages, value, fua || atomic);
        true
    }

    /// Submits a commit; returns `false` if the volume has no room now.
    pub(crate) fn commit(&mut self, pages: Vec<u32>) -> bool {
        let (slot, value) = (self.slot(), self.next_value);
        let mut data = vec![0; pages.len() * PAGE_BYTES];
        for (page, bytes) in pages.iter().zip(data.chunks_mut(PAGE_BYTES)) {
            fill(bytes, *page, value);
        }
        let numbers: Vec<U64> = pages.iter().map(|page| u64::from(*page).into()).collect();
        let request = Request::Commit { pages: &numbers, data: &data };
        if self.volume.submit(slot, request).is_err() {
            return false;
        }
        self.next_value += 1;
        self.atomics.push((pages.clone(), value));
        self.begin(slot, pages, value, true);
        true
    }

    /// Takes all present values for durable, while nothing is in flight.
    pub(crate) fn expect_all_durable(&mut self) {
        assert!(self.doing.is_empty(), "nothing is in flight");
        let snapshot = self.model.snapshot();
        self.model.flushed(snapshot, &BTreeMap::new());
    }

    /// Submits a commit of random pages below `span`; returns `false` if the volume has no room
    /// now.
    pub(crate) fn commit_any(&mut self, span: u32) -> bool {
        let most = usize::from(self.volume.geometry().commit_pages_max()).min(6);
        let count = 1 + self.chance.below(most);
        let pages: BTreeSet<u32> =
            (0..count).map(|_| self.chance.below(span as usize) as u32).collect();
        let mut pages: Vec<u32> = pages.into_iter().collect();
        if self.chance.one_in(2) {
            pages.reverse();
        }
        self.commit(pages)
    }

    pub(crate) fn discard(&mut self, page: u32, pages: u32) -> bool {
        let slot = self.slot();
        // A page is discarded once at a time, so that zero is one value among those on their way.
        let busy = self.doing.values().any(|doing| {
            matches!(doing, TrialRequest::Write { pages: others, value: 0, .. }
                if others.iter().any(|other| (page..page + pages).contains(other)))
        });
        if busy || self.volume.submit(slot, Request::Discard { page, pages }).is_err() {
            return false;
        }
        self.discards.extend((page..page + pages).map(|page| (page, self.next_value)));
        self.begin(slot, (page..page + pages).collect(), 0, false);
        true
    }

    fn begin(&mut self, slot: Slot, pages: Vec<u32>, value: u64, durable: bool) {
        self.model.begin(&pages, value);
        for doing in self.doing.values_mut() {
            match doing {
                TrialRequest::Flush { since, .. } => {
                    for page in &pages {
                        since.entry(*page).or_default().insert(value);
                    }
                }
                TrialRequest::Read { page: first, legal, .. } => {
                    for (at, legal) in (*first..).zip(legal) {
                        if pages.contains(&at) {
                            legal.insert(value);
                        }
                    }
                }
                TrialRequest::Write { .. } => {}
            }
        }
        self.doing.insert(slot.to_bits(), TrialRequest::Write { pages, value, durable });
    }

    pub(crate) fn flush(&mut self) -> bool {
        if self.doing.values().any(|doing| matches!(doing, TrialRequest::Flush { .. })) {
            return false;
        }
        let slot = self.slot();
        if self.volume.submit(slot, Request::Flush).is_err() {
            return false;
        }
        let mut since = BTreeMap::new();
        for doing in self.doing.values() {
            if let TrialRequest::Write { pages, value, .. } = doing {
                for page in pages {
                    since.entry(*page).or_insert_with(BTreeSet::new).insert(*value);
                }
            }
        }
        let snapshot = self.model.snapshot();
        self.doing.insert(slot.to_bits(), TrialRequest::Flush { snapshot, since });
        true
    }

    pub(crate) fn read(&mut self, page: u32, pages: u32) -> bool {
        let slot = self.slot();
        if self.volume.submit(slot, Request::Read { page, pages }).is_err() {
            return false;
        }
        let legal = (page..page + pages).map(|page| self.model.survivors(page, false)).collect();
        let data = vec![0xee; pages as usize * PAGE_BYTES];
        self.doing.insert(slot.to_bits(), TrialRequest::Read { page, legal, data });
        true
    }

    /// Lets the volume advance, puts its new commands into flight, and checks its replies.
    pub(crate) fn turn(&mut self) -> Verdict {
        self.volume.advance();
        self.send()
    }

    /// Puts the volume's new commands into flight, and checks its replies.
    fn send(&mut self) -> Verdict {
        while let Some(command) = self.volume.command() {
            match command.op {
                MemberOperation::Zero { slot, first, pages } => {
                    let zeroes = vec![0; pages as usize * PAGE_BYTES];
                    self.fill_read(slot, first, &zeroes);
                }
                MemberOperation::Write { at, .. } => {
                    // In the member's cache from now on, whether or not it completes.
                    let bytes = self.volume.bytes(command.token).to_vec();
                    self.members.0[usize::from(command.member)].write(at, &bytes);
                    self.flying.push(command);
                }
                _ => self.flying.push(command),
            }
        }
        self.replies()
    }

    fn fill_read(&mut self, slot: Slot, first: u32, bytes: &[u8]) {
        let Some(TrialRequest::Read { data, .. }) = self.doing.get_mut(&slot.to_bits()) else {
            return;
        };
        data[first as usize * PAGE_BYTES..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Ends the command at this index of `flying`, with success.
    pub(crate) fn complete(&mut self, index: usize) -> Verdict {
        self.end(index, Status::Ok)
    }

    pub(crate) fn end(&mut self, index: usize, status: Status) -> Verdict {
        let command = self.flying.remove(index);
        let member = &mut self.members.0[usize::from(command.member)];
        match command.op {
            MemberOperation::Read { at, pages, into: ReadDestination::Host(slot, first) } => {
                let mut bytes = vec![0; pages as usize * PAGE_BYTES];
                member.read(at, &mut bytes);
                self.fill_read(slot, first, &bytes);
            }
            MemberOperation::Read { at, pages, into: ReadDestination::Volume } => {
                let to = &mut self.volume.bytes_mut(command.token)[..pages as usize * PAGE_BYTES];
                member.read(at, to);
            }
            MemberOperation::Flush => member.flush(),
            MemberOperation::Discard { at, pages } => {
                member.write(at, &vec![0; pages as usize * PAGE_BYTES]);
            }
            MemberOperation::Write { .. } | MemberOperation::Zero { .. } => {}
        }
        self.volume.complete(command.token, status);
        self.replies()
    }

    fn replies(&mut self) -> Verdict {
        while let Some(reply) = self.volume.reply() {
            let doing = self.doing.remove(&reply.slot.to_bits()).expect("one reply to a request");
            if let (Status::NoSpace, TrialRequest::Write { pages, value, .. }) =
                (reply.status, &doing)
            {
                self.refuse(pages, *value)?;
                continue;
            }
            if !reply.status.is_ok() {
                return Err(format!("a request ended with {}", reply.status));
            }
            match doing {
                TrialRequest::Read { page, legal, data } => {
                    for ((page, legal), bytes) in (page..).zip(legal).zip(data.chunks(PAGE_BYTES)) {
                        let value = value_of(bytes, page)?;
                        let fine = legal.contains(&value) || self.model.may_read(page, value);
                        if !fine {
                            return Err(format!("page {page} reads {value}, of {legal:?}"));
                        }
                    }
                }
                TrialRequest::Write { pages, value, durable } => {
                    self.model.end(&pages, value, durable);
                }
                TrialRequest::Flush { snapshot, since } => self.model.flushed(snapshot, &since),
            }
        }
        Ok(())
    }

    /// Ends a random command in flight, or none.
    pub(crate) fn complete_any(&mut self) -> Verdict {
        if self.flying.is_empty() || self.chance.one_in(3) {
            return Ok(());
        }
        let index = self.chance.below(self.flying.len());
        let waits = self.slow_flushes && self.flying[index].op == MemberOperation::Flush;
        if waits && !self.chance.one_in(40) {
            return Ok(());
        }
        self.complete(index)
    }

    /// Returns the number of requests that were not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.doing.len()
    }

    /// Takes back a write that found no space. Fails if the write needs no more space.
    fn refuse(&mut self, pages: &[u32], value: u64) -> Verdict {
        let map = &self.volume.store.map;
        if pages.iter().all(|page| map.place(*page) != UNMAPPED) {
            return Err(format!("an overwrite of {pages:?} finds no space"));
        }
        self.totals.refused += 1;
        self.atomics.retain(|(_, other)| *other != value);
        self.model.refuse(pages, value);
        Ok(())
    }

    /// Ends all commands and requests in flight.
    pub(crate) fn drain(&mut self) -> Verdict {
        for _ in 0..100_000 {
            self.turn()?;
            if self.flying.is_empty() {
                return if self.doing.is_empty() { Ok(()) } else { Err("a request hangs".into()) };
            }
            let index = self.chance.below(self.flying.len());
            self.complete(index)?;
        }
        Err("it never ends".into())
    }

    /// Hands the volume over once all requests have ended, at an arbitrary point of its own work.
    /// If `keeps`, the volume goes on in the place of its successor.
    pub(crate) fn hand_over(&mut self, keeps: bool) -> Verdict {
        while !self.doing.is_empty() {
            self.turn()?;
            if !self.flying.is_empty() {
                let index = self.chance.below(self.flying.len());
                self.complete(index)?;
            }
        }
        for _ in 0..10_000 {
            let rest = self.volume.come_to_rest();
            self.send()?;
            if self.flying.is_empty() && rest == RestProgress::Reached {
                let state = self.volume.hand_over();
                match keeps {
                    true => self.volume.go_on(),
                    false => self.succeed(&state),
                }
                return Ok(());
            }
            if !self.flying.is_empty() {
                let index = self.chance.below(self.flying.len());
                self.complete(index)?;
            }
        }
        Err("the volume does not come to rest".into())
    }

    /// Replaces the volume by one that has its state and its memory.
    fn succeed(&mut self, state: &[u8]) {
        let awaited = AwaitedVolume::new(self.volume.geometry(), self.settings);
        let (places, heat) = self.volume.store.map.tables();
        let memory = || MapMemory {
            places: LentMemory::new(places.to_vec().leak(), |_| ()),
            heat: LentMemory::new(heat.to_vec().leak(), |_| ()),
        };
        for end in (0..state.len()).step_by(1 + state.len() / 50) {
            assert!(awaited.receive(&state[..end], memory()).is_none(), "{end} bytes are too few");
        }
        let mut next = awaited.receive(state, memory()).expect("it is the volume's");
        assert_eq!(next.hand_over(), state, "nothing is lost on the way");
        let report = self.volume.report();
        self.totals.moved += report.moved_pages;
        self.totals.checkpoints += report.checkpoints;
        self.totals.lone += report.lone_pages;
        self.totals.handed += 1;
        next.store.set_sabotage(self.sabotage);
        self.volume = next;
    }

    /// Loses power, or only the process; opens the volume again and compares all pages.
    pub(crate) fn crash(&mut self, power: bool) -> Verdict {
        match power {
            true => self.members.cut(&mut self.chance),
            false => self.members.die(&self.flying, &mut self.cuts),
        }
        self.reopen(power)
    }

    /// Opens the volume after a crash and compares all pages with the model.
    pub(crate) fn reopen(&mut self, power: bool) -> Verdict {
        let report = self.volume.report();
        self.totals.moved += report.moved_pages;
        self.totals.checkpoints += report.checkpoints;
        self.totals.lone += report.lone_pages;
        self.flying.clear();
        self.doing.clear();
        // The first opening loses power as well, so the second recovers from its rests.
        if power && self.chance.one_in(3) {
            let mut rests = self.members.clone();
            open_with(&mut rests, self.settings, self.sabotage).map_err(|e| format!("{e}"))?;
            let first = self.values(&mut rests)?;
            let again = self.values(&mut rests)?;
            if first != again {
                return Err("a second opening finds something else".into());
            }
        }
        let opened = open_with(&mut self.members, self.settings, self.sabotage);
        (self.volume, _) = opened.map_err(|error| format!("{error}"))?;
        let (mapped, geometry) = (self.volume.store.map.mapped(), self.volume.geometry());
        if mapped > geometry.capacity {
            return Err(format!("{mapped} pages are in use, of {}", geometry.capacity));
        }
        let values = self.read_all()?;
        for (page, &value) in (0..).zip(&values) {
            let legal = self.model.survivors(page, power);
            if !legal.contains(&value) {
                return Err(format!("page {page} holds {value}, of {legal:?}"));
            }
        }
        for (pages, value) in &self.atomics {
            let of = |page: &u32| values[*page as usize];
            let is_newer = |page: &u32| match of(page) {
                0 => self.discards.get(page).is_some_and(|next| next > value),
                other => other >= *value,
            };
            if pages.iter().any(|page| of(page) == *value) && !pages.iter().all(is_newer) {
                let range: Vec<u64> = pages.iter().map(of).collect();
                return Err(format!("write {value} is in parts: {range:?}"));
            }
        }
        self.atomics.clear();
        self.discards.clear();
        self.model.settle(&values);
        Ok(())
    }

    fn values(&self, members: &mut Members) -> Result<Vec<u64>, String> {
        let (volume, _) =
            open_with(members, self.settings, self.sabotage).map_err(|e| format!("{e}"))?;
        values_of(&volume, members)
    }

    /// Returns the value of each page, read from the members.
    pub(crate) fn read_all(&mut self) -> Result<Vec<u64>, String> {
        values_of(&self.volume, &mut self.members)
    }

    /// Submits a random request to the first `pages` pages, if the volume has room.
    pub(crate) fn request(&mut self, pages: u32) {
        let batch = self.volume.geometry().batch_pages_max().min(6) as usize;
        // Three quarters of the requests go to an eighth of the pages.
        let span = if self.chance.one_in(4) { pages } else { pages.div_ceil(8) };
        let page = self.chance.below(span as usize) as u32;
        let long = 1 + self.chance.below(batch) as u32;
        let count = if self.chance.one_in(3) { long.min(pages - page) } else { 1 };
        let fua = self.chance.one_in(12);
        match self.chance.below(20) {
            0..11 => drop(self.write(page, count, fua, false)),
            11 | 12 => drop(self.write(page, long.min(pages - page), false, true)),
            13 => drop(self.discard(page, count)),
            14 | 15 => drop(self.flush()),
            _ => drop(self.read(page, count)),
        }
    }
}

fn values_of(volume: &Volume, members: &mut Members) -> Result<Vec<u64>, String> {
    let mut bytes = vec![0; PAGE_BYTES];
    let mut values = Vec::new();
    for page in 0..volume.geometry().pages {
        let place = volume.store.map.place(page);
        match place {
            UNMAPPED => values.push(0),
            crate::map::POISONED => return Err(format!("page {page} is poisoned")),
            _ => {
                let (member, at) = volume.geometry().locate(place);
                members.0[usize::from(member)].read(at, &mut bytes);
                values.push(value_of(&bytes, page).map_err(|e| format!("page {page}: {e}"))?);
            }
        }
    }
    Ok(values)
}
