//! Counters of the background work of a volume, for the thread that charges it to tenants:
//! collected pages, headers, checkpoints.
//!
//! The worker of the volume publishes its counters; another thread reads them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use contract::{ChoreCounters, ChoreRate, Chores};

use crate::geometry::Geometry;
use crate::report::Report;

/// Maximum live share of a victim for which work is foreseen: 49 pages moved for each that is
/// freed.
const LIVE_MAX: f64 = 0.98;

/// The published counters of a volume, and the work that is expected of it.
#[derive(Debug)]
pub(crate) struct Tally {
    host: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    free_permille: AtomicU32,
    room: AtomicU32,
    is_short: AtomicBool,
    segments: u32,
    pages: u32,
    uniform: ChoreRate,
}

impl Tally {
    pub(crate) fn new(geometry: &Geometry) -> Tally {
        Tally {
            host: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            free_permille: AtomicU32::new(0),
            room: AtomicU32::new(0),
            is_short: AtomicBool::new(false),
            segments: geometry.segments(),
            pages: geometry.capacity,
            uniform: alone(uniform(geometry), geometry),
        }
    }

    /// Publishes the counters, the number `free` of free segments, and the number `room` of pages
    /// that hosts can still write. `is_short` means that writes wait for free segments.
    pub(crate) fn publish(&self, report: &Report, free: u32, room: u32, is_short: bool) {
        self.room.store(room, Relaxed);
        self.host.store(report.host_pages, Relaxed);
        self.read.store(report.collect_read_pages, Relaxed);
        let written = report.moved_pages + report.header_pages + report.checkpoint_pages;
        self.written.store(written, Relaxed);
        let permille = u64::from(free) * 1_000 / u64::from(self.segments.max(1));
        self.free_permille.store(permille as u32, Relaxed);
        self.is_short.store(is_short, Relaxed);
    }
}

impl Chores for Tally {
    fn done(&self) -> ChoreCounters {
        ChoreCounters {
            host_pages: self.host.load(Relaxed),
            read_pages: self.read.load(Relaxed),
            written_pages: self.written.load(Relaxed),
            free_permille: self.free_permille.load(Relaxed),
            is_short: self.is_short.load(Relaxed),
            ..ChoreCounters::default()
        }
    }

    fn uniform(&self) -> ChoreRate {
        self.uniform
    }

    fn pages(&self) -> u64 {
        self.pages.into()
    }

    fn room(&self) -> u64 {
        self.room.load(Relaxed).into()
    }
}

/// Returns the background work for each page that hosts write, while hosts write every page equally
/// often.
///
/// Segments are collected about in the order in which they were written. Then a victim has the live
/// share `v` with `u = (v − 1)/ln v`, where `u` is the live share of all closed segments (Robinson
/// 1996; Desnoyers 2012). So `v/(1 − v)` pages are moved for each page of hosts. The collector
/// reads whole victims, and each batch has a header.
fn uniform(geometry: &Geometry) -> ChoreRate {
    let dense = f64::from(geometry.dense_pages().max(1));
    // The reserve is free, and the open segments are half full.
    let idle = f64::from(geometry.reserve()) + f64::from(geometry.streams) / 2.0;
    let room = (f64::from(geometry.segments()) - idle).max(1.0) * dense;
    let live = live_share(f64::from(geometry.capacity) / room).min(LIVE_MAX);
    let headers = f64::from(geometry.segment_pages) / dense;
    let (moved, read) = (live / (1.0 - live), 1.0 / (1.0 - live));
    let permille = |pages: f64| (pages * 1_000.0) as u32 + 1;
    ChoreRate {
        read_permille: permille(read * headers),
        written_permille: permille((1.0 + moved) * headers - 1.0),
    }
}

/// Returns the work for each page that hosts write, if each page is a batch of its own; `rate` is
/// the work in full batches. A log for single-page writes adds at most two pages read and two
/// written. Without such a log a header takes as much space as a page.
fn alone(rate: ChoreRate, geometry: &Geometry) -> ChoreRate {
    let ChoreRate { read_permille, written_permille } = rate;
    let place = written_permille + 1_000;
    let more = if geometry.has_lone_log() { place.min(2_000) } else { place };
    ChoreRate { read_permille: read_permille + more, written_permille: written_permille + more }
}

/// Returns the expected live share of a victim if the share `used` of the pages in all closed
/// segments is live.
fn live_share(used: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let live: f64 = (low + high) / 2.0;
        if live > 0.0 && (live - 1.0) / libm::log(live) > used { high = live } else { low = live }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amplification::{Case, Skew, measure};
    use crate::geometry::Shape;
    use crate::policy::Policy;

    #[test]
    fn live_shares_solve_their_equation() {
        for used in [0.3, 0.7, 0.9, 0.97] {
            let live = live_share(used);
            assert!((libm::exp(-(1.0 - live) / used) - live).abs() < 1e-6, "{used}: {live}");
        }
        assert!(live_share(0.0) < 0.01 && live_share(2.0) > 0.99);
    }

    /// Returns a load of uniform writes, and the geometry of the volume on which it is measured.
    fn uniform_load(
        pages: u32,
        spare_per_mille: u32,
        policy: Policy,
        depth: u32,
    ) -> (Case, Geometry) {
        let case = Case {
            pages,
            segment_pages: 64,
            spare_per_mille,
            skew: Skew::Uniform,
            policy,
            depth,
            overwrites: 2,
        };
        let shape = Shape::small(spare_per_mille, policy);
        let geometry = Geometry::plan(&shape, &[case.member_pages()]).unwrap();
        (case, geometry)
    }

    /// Asserts that the expected work is the measured work, or a little more.
    fn suffices(foreseen_permille: u32, measured: f64, case: &Case) {
        let ratio = f64::from(foreseen_permille) / 1_000.0 / measured;
        assert!((0.95..1.25).contains(&ratio), "{case:?}: {foreseen_permille} ‰ of {measured:.2}");
    }

    #[test]
    fn uniform_writes_cause_the_work_that_promises_reckon_with() {
        for (spare_per_mille, policy) in
            [(100, Policy::of_streams(1)), (200, Policy::of_streams(1)), (200, Policy::HEAT3)]
        {
            let (case, geometry) = uniform_load(65_536, spare_per_mille, policy, 128);
            let report = measure(&case);
            suffices(uniform(&geometry).written_permille, report.amplification() - 1.0, &case);
        }
    }

    #[test]
    fn lone_writes_cause_no_more_work_than_promises_reckon_with() {
        for spare_per_mille in [100, 200] {
            let (case, geometry) = uniform_load(32_768, spare_per_mille, Policy::HEAT3, 1);
            let (foreseen, report) = (alone(uniform(&geometry), &geometry), measure(&case));
            suffices(foreseen.written_permille, report.amplification() - 1.0, &case);
            let read = report.collect_read_pages as f64 / report.host_pages as f64;
            suffices(foreseen.read_permille, read, &case);
        }
    }

    #[test]
    fn what_is_published_is_read() {
        let shape = Shape {
            uuid: [0; 16],
            segment_pages: 64,
            spare_per_mille: 200,
            policy: Policy::HEAT3,
            virtual_pages: None,
        };
        let geometry = Geometry::plan(&shape, &[65_536]).unwrap();
        let tally = Tally::new(&geometry);
        let report = Report {
            host_pages: 10,
            moved_pages: 20,
            header_pages: 3,
            checkpoint_pages: 4,
            collect_read_pages: 30,
            ..Report::default()
        };
        tally.publish(&report, geometry.segments() / 2, 500, true);
        let ChoreCounters {
            host_pages, read_pages, written_pages, free_permille, is_short, ..
        } = tally.done();
        assert_eq!((host_pages, read_pages, written_pages, is_short), (10, 30, 27, true));
        assert_eq!(tally.room(), 500);
        assert!((498..=500).contains(&free_permille), "{free_permille}");
    }
}
