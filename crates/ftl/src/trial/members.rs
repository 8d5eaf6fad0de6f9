//! Members in memory, with a volatile cache of sectors and a power switch.

use std::vec;
use std::vec::Vec;

use contract::Status;
use flash::Rng;

use crate::command::{Command, MemberOperation};
use crate::layout::PAGE_BYTES;
use crate::open::Media;

/// Bytes of a sector, which survives a loss of power whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;

/// A member in memory: the bytes that reads see, the durable ones, and the writes between.
#[derive(Clone)]
pub(crate) struct Member {
    seen: Vec<u8>,
    durable: Vec<u8>,
    cache: Vec<(usize, Vec<u8>)>,
    /// `true` if flushes do nothing.
    pub(crate) lies: bool,
}

impl Member {
    fn new(pages: u64) -> Member {
        let bytes = vec![0; pages as usize * PAGE_BYTES];
        Member { seen: bytes.clone(), durable: bytes, cache: Vec::new(), lies: false }
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let at = at as usize * PAGE_BYTES;
        into.copy_from_slice(&self.seen[at..at + into.len()]);
    }

    pub(crate) fn write(&mut self, at: u64, from: &[u8]) {
        let at = at as usize * PAGE_BYTES;
        self.seen[at..at + from.len()].copy_from_slice(from);
        self.cache.push((at, from.to_vec()));
    }

    pub(crate) fn flush(&mut self) {
        if !self.lies {
            for (at, bytes) in self.cache.drain(..) {
                self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    /// Returns the number of writes that no flush covers.
    pub(crate) fn unflushed(&self) -> usize {
        self.cache.len()
    }

    /// Loses power: of each unflushed write, the sectors that `survives` names are kept.
    pub(crate) fn cut(&mut self, mut survives: impl FnMut(usize, usize) -> bool) {
        for (number, (at, bytes)) in self.cache.drain(..).enumerate() {
            for (sector, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if survives(number, sector) {
                    let at = at + sector * SECTOR_BYTES;
                    self.durable[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        self.seen.copy_from_slice(&self.durable);
    }

    /// Loses the process: its completed writes are kept. Of a write in flight, which begins at one
    /// of the pages in `flying`, the first pages are kept, as many as `kept` says.
    fn die(&mut self, flying: &[u64], mut kept: impl FnMut(usize) -> usize) {
        let of = |at: u64| at as usize * PAGE_BYTES;
        let last = |at: &u64| self.cache.iter().rposition(|(other, _)| *other == of(*at));
        for write in flying.iter().filter_map(last).collect::<Vec<_>>() {
            let bytes = &mut self.cache[write].1;
            bytes.truncate(kept(bytes.len() / PAGE_BYTES) * PAGE_BYTES);
        }
        self.cut(|_, _| true);
    }

    /// Changes byte `byte` of page `at` permanently.
    pub(crate) fn damage(&mut self, at: u64, byte: usize) {
        let at = at as usize * PAGE_BYTES + byte;
        self.seen[at] ^= 0x40;
        self.durable[at] ^= 0x40;
    }
}

/// The members of a volume.
#[derive(Clone)]
pub(crate) struct Members(pub(crate) Vec<Member>);

impl Members {
    pub(crate) fn new(count: usize, pages: u64) -> Members {
        Members((0..count).map(|_| Member::new(pages)).collect())
    }

    /// Loses power: each unflushed sector survives or not by chance, in one of four ways.
    pub(crate) fn cut(&mut self, chance: &mut Rng) {
        let manner = chance.below(4);
        for member in &mut self.0 {
            let mut whole = Vec::new();
            member.cut(|write, _| {
                while whole.len() <= write {
                    whole.push(chance.one_in(2));
                }
                match manner {
                    0 => false,
                    1 => whole[write],
                    2 => chance.one_in(2),
                    _ => !chance.one_in(20),
                }
            });
        }
    }

    /// Makes all writes survive, as when only the process dies.
    pub(crate) fn keep_all(&mut self) {
        self.0.iter_mut().for_each(|member| member.cut(|_, _| true));
    }

    /// Loses the process amid these commands in flight. The writes among them are cut at a page.
    pub(crate) fn die(&mut self, flying: &[Command], chance: &mut Rng) {
        for (number, member) in self.0.iter_mut().enumerate() {
            let ours = flying.iter().filter(|command| usize::from(command.member) == number);
            let writes: Vec<u64> = ours
                .filter_map(|command| match command.op {
                    MemberOperation::Write { at, .. } => Some(at),
                    _ => None,
                })
                .collect();
            member.die(&writes, |pages| chance.below(pages + 1));
        }
    }

    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        self.0.iter().map(|member| member.seen.clone()).collect()
    }
}

impl Media for Members {
    fn members(&self) -> usize {
        self.0.len()
    }

    fn pages(&self, member: usize) -> u64 {
        (self.0[member].seen.len() / PAGE_BYTES) as u64
    }

    fn read(&mut self, member: usize, at: u64, into: &mut [u8]) -> Result<(), Status> {
        self.0[member].read(at, into);
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8]) -> Result<(), Status> {
        self.0[member].write(at, from);
        Ok(())
    }

    fn flush(&mut self, member: usize) -> Result<(), Status> {
        self.0[member].flush();
        Ok(())
    }
}
