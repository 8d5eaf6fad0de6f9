//! Measurements of the write amplification of a volume in the steady state, over members without
//! data.
//!
//! The controller is the real one. Its members keep batch headers only, which is all that the
//! collector needs. Metadata counts: headers, checkpoints and superblocks.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use contract::{Slot, Status};

use crate::command::{MemberOperation, Request, Settings};
use crate::geometry::Shape;
use crate::layout::PAGE_BYTES;
use crate::open::{Media, create, open};
use crate::policy::Policy;
use crate::report::Report;
use crate::volume::Volume;

/// The distribution by which hosts choose the pages that they write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// Hosts write each page equally often.
    Uniform,
    /// Hosts choose pages by a Zipf distribution. Its most frequent fifth of the pages gets this
    /// share of the writes.
    Zipf(f64),
}

/// A load on a simulated volume whose write amplification is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Number of logical pages; the volume has about as many.
    pub pages: u32,
    /// Number of pages of a segment.
    pub segment_pages: u32,
    /// Physical over logical pages, less one, in thousandths.
    pub spare_per_mille: u32,
    /// The distribution of writes over the pages.
    pub skew: Skew,
    /// The policy of the volume: its streams, and the choice of segments to collect.
    pub policy: Policy,
    /// Number of one-page writes in flight.
    pub depth: u32,
    /// Amount of random writes before the measurement, and again during it, as a multiple of the
    /// volume's size.
    pub overwrites: u32,
}

impl Case {
    /// Returns the number of pages of the member, including those of checkpoints.
    pub(crate) fn member_pages(&self) -> u64 {
        let physical = u64::from(self.pages) * u64::from(1000 + self.spare_per_mille) / 1000;
        physical + physical / 500 + 64
    }
}

/// The knowledge of an oracle: the true ranks of all pages by how often hosts write them. The most
/// frequent pages are hot, the next ones warm and the others cold, for ever.
#[derive(Clone, Copy, Debug)]
pub struct Oracle {
    /// The share of the pages that are hot, in thousandths.
    pub hot_per_mille: u32,
    /// The share of the pages that are warm, in thousandths.
    pub warm_per_mille: u32,
}

impl Oracle {
    /// Returns the heat of each page, of pages that `draw` writes.
    fn heats(self, draw: &PageGenerator) -> Vec<u8> {
        let pages = draw.page.len();
        let edge = |per_mille: u32| pages * per_mille as usize / 1000;
        let (hot, warm) =
            (edge(self.hot_per_mille), edge(self.hot_per_mille + self.warm_per_mille));
        let mut heats = vec![0; pages];
        for (rank, page) in draw.page.iter().enumerate() {
            // What a write adds leaves each in its stream.
            heats[*page as usize] = if rank < hot { 255 } else { u8::from(rank < warm) * 100 };
        }
        heats
    }
}

/// A member in memory that keeps only pages that were written, which are those without hosts' data.
#[derive(Default)]
struct Headers {
    pages: u64,
    kept: BTreeMap<u64, Vec<u8>>,
}

impl Media for Headers {
    fn members(&self) -> usize {
        1
    }

    fn pages(&self, _member: usize) -> u64 {
        self.pages
    }

    fn read(&mut self, _member: usize, at: u64, into: &mut [u8]) -> Result<(), Status> {
        for (at, page) in (at..).zip(into.chunks_exact_mut(PAGE_BYTES)) {
            match self.kept.get(&at) {
                Some(kept) => page.copy_from_slice(kept),
                None => page.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, _member: usize, at: u64, from: &[u8]) -> Result<(), Status> {
        for (at, page) in (at..).zip(from.chunks_exact(PAGE_BYTES)) {
            match self.kept.get_mut(&at) {
                Some(kept) => kept.copy_from_slice(page),
                None => drop(self.kept.insert(at, page.to_vec())),
            }
        }
        Ok(())
    }

    fn flush(&mut self, _member: usize) -> Result<(), Status> {
        Ok(())
    }
}

/// A generator of random pages with a given distribution, by the alias method.
struct PageGenerator {
    state: u64,
    odds: Vec<f64>,
    alias: Vec<u32>,
    page: Vec<u32>,
}

impl PageGenerator {
    fn new(pages: u32, skew: Skew) -> PageGenerator {
        let count = pages as usize;
        let exponent = match skew {
            Skew::Uniform => 0.0,
            Skew::Zipf(share) => exponent(count, share),
        };
        let weight = |rank: usize| libm::pow(rank as f64 + 1.0, -exponent);
        let sum: f64 = (0..count).map(weight).sum();
        let mut odds: Vec<f64> = (0..count).map(|rank| weight(rank) * count as f64 / sum).collect();
        let mut alias: Vec<u32> = (0..pages).collect();
        let is_small = |odds: &[f64], rank: &usize| odds[*rank] < 1.0;
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|rank| is_small(&odds, rank));
        while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
            alias[low] = high as u32;
            odds[high] += odds[low] - 1.0;
            if odds[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        let mut draw = PageGenerator { state: 1, odds, alias, page: (0..pages).collect() };
        for last in (1..count).rev() {
            let other = draw.below(last as u64 + 1) as usize;
            draw.page.swap(last, other);
        }
        draw
    }

    /// Returns a random number below `bound` (xorshift; good enough to place writes).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(bound)) >> 64) as u64
    }

    fn page(&mut self) -> u32 {
        let rank = self.below(self.odds.len() as u64) as usize;
        let unit = self.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        let rank = if unit < self.odds[rank] { rank } else { self.alias[rank] as usize };
        self.page[rank]
    }
}

/// Returns the Zipf exponent for which the most frequent fifth of `pages` pages gets `share` of the
/// writes.
fn exponent(pages: usize, share: f64) -> f64 {
    let (mut low, mut high) = (0.1, 2.5);
    for _ in 0..25 {
        let middle = (low + high) / 2.0;
        let (mut sum, mut hot) = (0.0, 0.0);
        for rank in 0..pages {
            let weight = libm::pow(rank as f64 + 1.0, -middle);
            sum += weight;
            hot += if rank < pages / 5 { weight } else { 0.0 };
        }
        if hot / sum < share { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Carries out the volume's commands on the member until there are no more.
fn settle(volume: &mut Volume, media: &mut Headers) {
    loop {
        volume.advance();
        let mut busy = false;
        while let Some(command) = volume.command() {
            busy = true;
            match command.op {
                MemberOperation::Read { at, pages, .. } => {
                    // Live pages have no data here: only headers are read.
                    let is_header = volume.reads_header();
                    let into = volume.bytes_mut(command.token);
                    if is_header {
                        let bytes = into.len().min(pages as usize * PAGE_BYTES);
                        let _ = media.read(0, at, &mut into[..bytes]);
                    }
                }
                MemberOperation::Write { at, .. } => {
                    let _ = media.write(0, at, volume.bytes(command.token));
                }
                MemberOperation::Flush
                | MemberOperation::Discard { .. }
                | MemberOperation::Zero { .. } => {}
            }
            if !matches!(command.op, MemberOperation::Zero { .. }) {
                volume.complete(command.token, Status::Ok);
            }
        }
        while volume.reply().is_some() {}
        if !busy {
            return;
        }
    }
}

/// Measures a case. Returns the volume's counters over the measured overwrites.
///
/// # Panics
/// Panics if no volume can have the sizes of the case.
pub fn measure(case: &Case) -> Report {
    run(case, None).0
}

/// Measures a case whose pages have the heats of an oracle in place of counted ones. Returns the
/// volume's counters over the measured overwrites.
///
/// # Panics
/// Panics if no volume can have the sizes of the case.
pub fn measure_oracle(case: &Case, oracle: Oracle) -> Report {
    run(case, Some(oracle)).0
}

/// Carries a case out. Returns the counters over the measured overwrites, and the volume.
fn run(case: &Case, oracle: Option<Oracle>) -> (Report, Volume) {
    let mut media = Headers { pages: case.member_pages(), kept: BTreeMap::new() };
    let shape = Shape {
        uuid: *b"an amplification",
        segment_pages: case.segment_pages,
        spare_per_mille: case.spare_per_mille,
        policy: case.policy,
        virtual_pages: None,
    };
    create(&mut media, &shape).expect("a possible volume");
    let settings = Settings { data: false, discards: false, ..Settings::new(case.policy) };
    let (mut volume, _) = open(&mut media, settings).expect("it was created");
    let pages = volume.geometry().pages;
    let mut draw = PageGenerator::new(pages, case.skew);
    let heats = oracle.map(|oracle| oracle.heats(&draw));
    // The page whose heat the next write lowers.
    let mut hand = 0;
    let mut write = |volume: &mut Volume, media: &mut Headers, page: u32| {
        write(volume, media, page);
        if let Some(heats) = &heats {
            volume.store.map.set_heat(page, heats[page as usize]);
            volume.store.map.set_heat(hand, heats[hand as usize]);
            hand = (hand + 1) % pages;
        }
    };
    for page in 0..pages {
        write(&mut volume, &mut media, page);
        if page % case.depth == 0 {
            settle(&mut volume, &mut media);
        }
    }
    let mut before = volume.report();
    for round in 0..2 * case.overwrites {
        if round == case.overwrites {
            before = volume.report();
        }
        for number in 0..pages {
            let page = draw.page();
            write(&mut volume, &mut media, page);
            if number % case.depth == 0 {
                settle(&mut volume, &mut media);
            }
        }
    }
    (volume.report().since(&before), volume)
}

fn write(volume: &mut Volume, media: &mut Headers, page: u32) {
    let slot = Slot::from_bits(page);
    let write = Request::Write { page, pages: 1, data: &[], fua: false, atomic: false };
    let mut tries = 0;
    while volume.submit(slot, write).is_err() {
        settle(volume, media);
        tries += 1;
        assert!(tries < 1000, "a volume that is settled takes a write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;

    fn case(skew: Skew, policy: Policy) -> Case {
        Case {
            pages: 32_768,
            segment_pages: 64,
            spare_per_mille: 200,
            skew,
            policy,
            depth: 128,
            overwrites: 3,
        }
    }

    fn amplification(skew: Skew, policy: Policy) -> f64 {
        measure(&case(skew, policy)).amplification()
    }

    /// Returns the case with the least spare space, in steps of half a per cent, that a volume with
    /// this policy can have.
    fn tightest(policy: Policy) -> Case {
        let of = |spare_per_mille| Case {
            pages: 8_192,
            segment_pages: 64,
            spare_per_mille,
            skew: Skew::Uniform,
            policy,
            depth: 128,
            overwrites: 2,
        };
        let fits = |case: &Case| {
            let shape = Shape {
                uuid: [0; 16],
                segment_pages: case.segment_pages,
                spare_per_mille: case.spare_per_mille,
                policy,
                virtual_pages: None,
            };
            Geometry::plan(&shape, &[case.member_pages()]).is_ok()
        };
        (20..1_000).step_by(5).map(of).find(fits).expect("some spare space is enough")
    }

    /// Writes whose skew lies between even and uneven change the number of streams again and again.
    /// Each time, the moves of collection find a segment to go to.
    #[test]
    fn a_volume_takes_writes_while_the_trend_changes() {
        let case =
            Case { spare_per_mille: 100, overwrites: 2, ..case(Skew::Zipf(0.8), Policy::HEAT6) };
        assert!(measure(&case).amplification() < 12.0);
    }

    /// A volume that was created takes writes for ever: no placement of its pages leaves it without
    /// a victim and without room.
    #[test]
    fn the_tightest_volumes_take_writes() {
        for policy in [Policy::of_streams(1), Policy::HEAT3, Policy::HEAT6] {
            for skew in [Skew::Uniform, Skew::Zipf(0.8), Skew::Zipf(0.95)] {
                let case = Case { skew, ..tightest(policy) };
                let report = measure(&case);
                assert!(!report.read_only && report.amplification() > 1.0, "{case:?}");
            }
        }
    }

    /// A header of a lone write costs its own page and one move of the write's page, not a place
    /// among the pages that collection moves again and again.
    #[test]
    fn the_headers_of_lone_writes_are_cheap() {
        for spare_per_mille in [100, 200] {
            let even = Case { spare_per_mille, ..case(Skew::Uniform, Policy::HEAT3) };
            let [lone, deep] = [1, 128].map(|depth| measure(&Case { depth, ..even }));
            let more = lone.amplification() - deep.amplification();
            assert!(more < 2.5, "{:.2} {:.2}", lone.amplification(), deep.amplification());
            assert!(lone.lone_pages > lone.host_pages / 10 * 9, "{lone:?}");
            assert!(deep.lone_pages < deep.host_pages / 20, "{deep:?}");
        }
    }

    /// The heats of an oracle are the true ones after any number of writes, which would raise and
    /// lower them.
    #[test]
    fn an_oracle_keeps_its_heats() {
        let case = Case { pages: 16_384, overwrites: 1, ..case(Skew::Zipf(0.8), Policy::HEAT3) };
        let oracle = Oracle { hot_per_mille: 50, warm_per_mille: 150 };
        let (_, volume) = run(&case, Some(oracle));
        let pages = volume.geometry().pages;
        let heats = oracle.heats(&PageGenerator::new(pages, case.skew));
        assert!((0..pages).all(|page| volume.store.map.heat(page) == heats[page as usize]));
        let count = |heat| heats.iter().filter(|other| **other == heat).count() as u32;
        assert_eq!((count(255), count(100)), (pages * 50 / 1000, pages * 200 / 1000 - count(255)));
    }

    #[test]
    fn counted_heats_are_nearly_as_good_as_true_ones() {
        let case = Case { spare_per_mille: 100, ..case(Skew::Zipf(0.8), Policy::HEAT3) };
        let oracle = Oracle { hot_per_mille: 50, warm_per_mille: 150 };
        let (counted, known) = (measure(&case), measure_oracle(&case, oracle));
        let (counted, known) = (counted.amplification(), known.amplification());
        assert!(counted < 1.2 * known && known < 1.2 * counted, "{counted:.2} {known:.2}");
    }

    #[test]
    fn even_writes_cost_no_more_with_streams_than_without() {
        let [greedy, streams] = [Policy::baseline(100), Policy::HEAT3]
            .map(|policy| amplification(Skew::Uniform, policy));
        assert!(streams < 1.02 * greedy, "{streams:.2} {greedy:.2}");
    }

    #[test]
    fn separation_and_age_save_writes_under_skew() {
        let less = |skew| {
            1.0 - amplification(skew, Policy::HEAT3) / amplification(skew, Policy::baseline(10))
        };
        let (mild, steep) = (less(Skew::Zipf(0.8)), less(Skew::Zipf(0.95)));
        assert!(mild > 0.25 && steep > mild, "{mild:.2} {steep:.2}");
    }
}
