//! A record of the contents that each block of a volume may hold after a crash.
//!
//! The ledger keeps, for each block, the newest change that must not be lost and every later
//! change. After a crash the block may hold any of these, and nothing older. Changes to one block
//! are made one after the other.

use super::chance::Rng;

/// The size of a block of the ledger, in bytes.
pub(super) const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// The kind of contents that a change leaves in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Bytes that identify the change.
    Data,
    /// Zeroes, left by a discard or a write of zeroes.
    Zeroes,
}

/// A change to one block of the volume.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// The number of the change. Zero stands for the initial contents of the block.
    generation: u32,
    contents: Contents,
    /// The position among all acknowledgements; `None` until the change is acknowledged.
    acknowledged: Option<u64>,
}

/// The blocks of a volume, and the contents that each may hold.
pub(super) struct Ledger {
    /// A number that distinguishes the contents of this run from those of earlier runs.
    run: u64,
    /// For each block the newest change that must survive, and behind it the later ones in order.
    blocks: Vec<Vec<Change>>,
    generations: u32,
    acknowledgements: u64,
}

/// The result of checking one block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Finding {
    /// A description of each sector that holds something it must not hold.
    pub(super) wrong: Vec<String>,
    /// `true` if an acknowledged change is gone whose survival was not promised.
    pub(super) lost_unpromised: bool,
}

impl Ledger {
    /// Creates the ledger of a volume of `blocks` blocks of zeroes.
    pub(super) fn new(run: u64, blocks: usize) -> Ledger {
        let first = Change { generation: 0, contents: Contents::Zeroes, acknowledged: Some(0) };
        Ledger { run, blocks: vec![vec![first]; blocks], generations: 0, acknowledgements: 0 }
    }

    /// Returns the number of blocks of the volume.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Records that a change of `count` blocks from `first` on was sent, and returns the change's
    /// number.
    pub(super) fn issue(&mut self, first: usize, count: usize, contents: Contents) -> u32 {
        self.generations += 1;
        let generation = self.generations;
        for block in &mut self.blocks[first..first + count] {
            block.push(Change { generation, contents, acknowledged: None });
        }
        generation
    }

    /// Records that the change `generation` was acknowledged. If `durable`, it must survive from
    /// now on.
    pub(super) fn acknowledge(
        &mut self,
        first: usize,
        count: usize,
        generation: u32,
        durable: bool,
    ) {
        self.acknowledgements += 1;
        for block in &mut self.blocks[first..first + count] {
            let place = block.iter().position(|change| change.generation == generation);
            let place = place.expect("changes are acknowledged once, after they were issued");
            block[place].acknowledged = Some(self.acknowledgements);
            if durable {
                block.drain(..place);
            }
        }
    }

    /// Returns the mark to pass to [`flushed`](Self::flushed) for a flush that is sent now.
    pub(super) fn mark(&self) -> u64 {
        self.acknowledgements
    }

    /// Records that the flush sent at `mark` was acknowledged: changes acknowledged before it must
    /// survive.
    pub(super) fn flushed(&mut self, mark: u64) {
        for block in &mut self.blocks {
            let covered = |change: &Change| change.acknowledged.is_some_and(|order| order <= mark);
            if let Some(place) = block.iter().rposition(covered) {
                block.drain(..place);
            }
        }
    }

    /// Fills `bytes` with the data that change `generation` writes to a block.
    pub(super) fn fill(&self, block: usize, generation: u32, bytes: &mut [u8]) {
        for (number, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            let place = (block * (BLOCK / SECTOR) + number) as u64;
            let mut filler = Rng::new(self.run ^ place << 32 ^ u64::from(generation));
            for piece in sector.chunks_exact_mut(8) {
                piece.copy_from_slice(&filler.number().to_le_bytes());
            }
            sector[..4].copy_from_slice(&generation.to_le_bytes());
        }
    }

    /// Compares the `bytes` that a block holds after a crash with the contents that the ledger
    /// allows, and records the bytes as the block's new state.
    pub(super) fn settle(&mut self, block: usize, bytes: &[u8]) -> Finding {
        let mut finding = Finding::default();
        let changes = &self.blocks[block];
        let newest_acknowledged = changes.iter().rposition(|c| c.acknowledged.is_some());
        let mut places = Vec::new();
        for (number, sector) in bytes.chunks_exact(SECTOR).enumerate() {
            let found = changes.iter().rposition(|change| self.is(change, block, number, sector));
            match found {
                Some(place) => places.push(place),
                None => finding.wrong.push(self.describe(block, number, sector)),
            }
        }
        let oldest = places.iter().min().copied();
        finding.lost_unpromised = oldest < newest_acknowledged;
        let settled = oldest.filter(|oldest| places.iter().all(|place| place == oldest));
        if let Some(place) = settled {
            let mut there = self.blocks[block][place];
            there.acknowledged = Some(0);
            self.blocks[block] = vec![there];
        } else if oldest.is_some() {
            // A torn block stays a mixture of its possible contents, which no flush makes whole.
            for change in &mut self.blocks[block][1..] {
                change.acknowledged = None;
            }
        }
        finding
    }

    /// Returns `true` if sector `number` of a block holds the data that `change` wrote there.
    fn is(&self, change: &Change, block: usize, number: usize, sector: &[u8]) -> bool {
        match change.contents {
            Contents::Zeroes => sector.iter().all(|byte| *byte == 0),
            Contents::Data => self.holds(block, number, sector) == Some(change.generation),
        }
    }

    /// Returns the number of the change that wrote this sector's data; `None` if no change of this
    /// run did.
    fn holds(&self, block: usize, number: usize, sector: &[u8]) -> Option<u32> {
        let generation = u32::from_le_bytes(sector[..4].try_into().expect("four bytes"));
        let mut expected = vec![0; BLOCK];
        self.fill(block, generation, &mut expected);
        (expected[number * SECTOR..][..SECTOR] == *sector).then_some(generation)
    }

    fn describe(&self, block: usize, number: usize, sector: &[u8]) -> String {
        let found = match self.holds(block, number, sector) {
            Some(generation) => format!("change {generation}"),
            None if sector.iter().all(|byte| *byte == 0) => "zeroes".to_owned(),
            None => "bytes that nobody wrote there".to_owned(),
        };
        let allowed: Vec<String> = self.blocks[block]
            .iter()
            .map(|change| format!("{} ({:?})", change.generation, change.contents))
            .collect();
        let allowed = allowed.join(", ");
        format!("block {block} sector {number} holds {found}; may hold changes {allowed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(ledger: &Ledger, block: usize, generation: u32) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        ledger.fill(block, generation, &mut bytes);
        bytes
    }

    fn written(ledger: &mut Ledger, durable: bool) -> u32 {
        let generation = ledger.issue(3, 1, Contents::Data);
        ledger.acknowledge(3, 1, generation, durable);
        generation
    }

    #[test]
    fn a_durable_change_must_be_there() {
        let mut ledger = Ledger::new(1, 8);
        let durable = written(&mut ledger, true);
        assert_eq!(ledger.settle(3, &[0; BLOCK]).wrong.len(), 8);
        let bytes = contents(&ledger, 3, durable);
        assert_eq!(ledger.settle(3, &bytes), Finding::default());
        let other = contents(&ledger, 4, durable);
        assert!(ledger.settle(3, &other).wrong[0].contains("nobody wrote"));
    }

    #[test]
    fn an_unpromised_change_may_be_gone_and_is_counted() {
        let mut ledger = Ledger::new(1, 8);
        let durable = written(&mut ledger, true);
        written(&mut ledger, false);
        let bytes = contents(&ledger, 3, durable);
        let finding = ledger.settle(3, &bytes);
        assert!(finding.wrong.is_empty() && finding.lost_unpromised);
        // The change that was found counts as the block's contents from now on.
        assert!(!ledger.settle(3, &bytes).lost_unpromised);
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
        let mut ledger = Ledger::new(1, 8);
        let first = written(&mut ledger, false);
        let mark = ledger.mark();
        let second = written(&mut ledger, false);
        ledger.flushed(mark);
        assert_eq!(ledger.settle(3, &[0; BLOCK]).wrong.len(), 8);
        let bytes = contents(&ledger, 3, first);
        assert!(ledger.settle(3, &bytes).lost_unpromised);
        let newer = contents(&ledger, 3, second);
        assert!(!ledger.settle(3, &newer).wrong.is_empty(), "it was settled to be gone");
    }

    #[test]
    fn a_flush_does_not_mend_what_an_earlier_crash_tore() {
        let mut ledger = Ledger::new(1, 8);
        let old = written(&mut ledger, true);
        let new = written(&mut ledger, false);
        let mut bytes = contents(&ledger, 3, new);
        bytes[..SECTOR].copy_from_slice(&contents(&ledger, 3, old)[..SECTOR]);
        assert!(ledger.settle(3, &bytes).lost_unpromised);
        ledger.flushed(ledger.mark());
        assert_eq!(ledger.settle(3, &bytes), Finding::default());
        // A new write counts again.
        written(&mut ledger, true);
        assert_eq!(ledger.settle(3, &bytes).wrong.len(), 8);
    }

    #[test]
    fn a_change_in_flight_may_be_there_in_part() {
        let mut ledger = Ledger::new(1, 8);
        let old = written(&mut ledger, true);
        let new = ledger.issue(3, 1, Contents::Zeroes);
        let mut bytes = contents(&ledger, 3, old);
        bytes[SECTOR..2 * SECTOR].fill(0);
        assert_eq!(ledger.settle(3, &bytes), Finding::default());
        assert_eq!(ledger.settle(3, &[0; BLOCK]), Finding::default());
        assert!(new > old);
    }
}
