//! Scenarios of the features that follow a running device: correction, depth, failing fast. The
//! device is a queue in virtual time that serves so many units a second, first come, first served.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{Feedback, Instant, IoKind, QueueFull, Scheduler, Slo, SlotTable, TenantId};

use crate::{
    Adjustment, CORRECTION_NANOS, CostModel, DeviceModel, QueueLimits, RatePoint, Registry,
    TokenScheduler,
};

const BOUND_US: u32 = 2_000;
/// Units a second of the simulated device: a tenth of device A's, so that a simulated second takes
/// little time.
const RATE: u64 = 4_000_000;
const WRITE: u32 = 1_000;
const TURN_NANOS: u64 = 100_000;
/// The nanoseconds that a request takes on an idle device.
const BASE_NANOS: u64 = 80_000;

/// A queue in the place of a device.
struct Queue {
    /// The true rate in units a second; `write` is the true price of a write in units.
    rate: u64,
    write: u64,
    free_at: u64,
}

impl Queue {
    /// Serves a request that comes now, and returns its latency.
    fn serve(&mut self, now: u64, kind: IoKind) -> Duration {
        let units = if kind == IoKind::Read { 100 } else { self.write };
        self.free_at = self.free_at.max(now) + units * 1_000_000_000 / self.rate;
        Duration::from_nanos(self.free_at - now + BASE_NANOS)
    }
}

struct World {
    registry: Registry,
    scheduler: TokenScheduler,
    table: SlotTable<(usize, IoKind)>,
    queue: Queue,
    now: u64,
    /// The time in each window for which the worker waits for a processor.
    waited: Duration,
    /// Number of requests of the latency-critical tenant so far.
    asked: u64,
    mixed: u64,
}

/// The measurements of a window, from the tenants' point of view.
#[derive(Debug)]
struct WindowResult {
    /// The 95th percentile of the latency-critical tenant's read latencies, in microseconds.
    tail_us: u64,
    /// Reads of the latency-critical tenant; `best_effort` counts all requests of the other tenant.
    critical: u64,
    best_effort: u64,
}

impl World {
    /// Creates a world with a latency-critical reader of 10 K IOPS, and a best-effort tenant with
    /// half writes that always has requests.
    fn new() -> World {
        let cost = CostModel::linear(WRITE, 100).unwrap();
        let row = RatePoint { latency_us: BOUND_US, mixed: RATE, read_only: RATE };
        let model = DeviceModel::new(cost, vec![row], RATE).unwrap();
        let mut registry = Registry::new(model, 2);
        let slo = Some(Slo::new(BOUND_US, 10_000, 100));
        registry.register(slo, Instant::ZERO).unwrap();
        registry.register(None, Instant::ZERO).unwrap();
        let limits = QueueLimits { slots: 4_096, of_tenant: 2_048 };
        let scheduler = registry.scheduler(0, limits);
        let queue = Queue { rate: RATE, write: u64::from(WRITE), free_at: 0 };
        let table = SlotTable::new(limits.slots);
        World {
            registry,
            scheduler,
            table,
            queue,
            now: 0,
            waited: Duration::ZERO,
            asked: 0,
            mixed: 0,
        }
    }

    fn ask(&mut self, tenant: usize, kind: IoKind) -> Result<(), QueueFull> {
        let slot = self.table.insert((tenant, kind)).expect("it is large enough");
        let asked = self.scheduler.enqueue(TenantId(tenant as u32), kind, 4096, slot);
        if asked.is_err() {
            self.table.remove(slot);
        }
        asked
    }

    /// Runs for one window of the correction, ends it, and returns the tenants' measurements.
    fn window(&mut self) -> WindowResult {
        let end = self.now + CORRECTION_NANOS;
        let mut delays: Vec<u64> = Vec::new();
        let mut seen = WindowResult { tail_us: 0, critical: 0, best_effort: 0 };
        while self.now < end {
            while self.asked * 100_000 < self.now {
                self.ask(0, IoKind::Read).unwrap();
                self.asked += 1;
            }
            while self.scheduler.queued_of(TenantId(1)) < 64 {
                self.mixed += 1;
                let kind = if self.mixed.is_multiple_of(2) { IoKind::Read } else { IoKind::Write };
                self.ask(1, kind).unwrap();
            }
            self.scheduler.begin_round(Instant::from_nanos(self.now));
            while let Some(slot) = self.scheduler.next() {
                let (tenant, kind) = self.table.remove(slot);
                let delay = self.queue.serve(self.now, kind);
                self.scheduler.ended(kind, delay);
                if tenant == 0 {
                    seen.critical += 1;
                    delays.push(delay.as_micros() as u64);
                } else {
                    seen.best_effort += 1;
                }
            }
            self.now += TURN_NANOS;
        }
        delays.sort_unstable();
        seen.tail_us = delays[delays.len() * 95 / 100];
        self.registry.observe(self.waited, Instant::from_nanos(self.now));
        seen
    }

    fn windows(&mut self, count: usize) -> Vec<WindowResult> {
        (0..count).map(|_| self.window()).collect()
    }
}

fn late(windows: &[WindowResult]) -> usize {
    windows.iter().filter(|seen| seen.tail_us > u64::from(BOUND_US)).count()
}

#[test]
fn a_device_that_ages_breaks_the_model_and_not_the_correction() {
    for (rate, write) in [(RATE, 2 * u64::from(WRITE)), (RATE / 2, u64::from(WRITE))] {
        for corrected in [false, true] {
            let mut world = World::new();
            world.registry.correct_online(corrected, Instant::ZERO);
            let fresh = world.windows(20);
            assert_eq!(late(&fresh), 0, "{fresh:?}");
            assert_eq!(world.registry.adjustment(), Adjustment::NONE);
            (world.queue.rate, world.queue.write) = (rate, write);
            let first = world.windows(50);
            assert!(late(&first) > 0, "{first:?}");
            let after = world.windows(100);
            if !corrected {
                assert_eq!(late(&after), 100, "{after:?}");
                continue;
            }
            // Restored within five seconds, and kept but for a look at whether it is fresh again.
            assert!(late(&after) <= 4, "{after:?}");
            assert!(after.iter().all(|seen| (990..=1_010).contains(&seen.critical)), "{after:?}");
            let best_effort: u64 = after.iter().map(|seen| seen.best_effort).sum();
            assert!(best_effort > 0, "{after:?}");
            let adjustment = world.registry.adjustment();
            assert!(adjustment.rate_permille <= 1_000 && adjustment.write_permille >= 1_000);
            // Fresh again.
            (world.queue.rate, world.queue.write) = (RATE, u64::from(WRITE));
            world.windows(150);
            let regained = world.windows(10).iter().map(|seen| seen.best_effort).sum::<u64>();
            let before = fresh[10..].iter().map(|seen| seen.best_effort).sum::<u64>();
            assert!(regained * 100 >= before * 85, "{regained} of {before}");
            world.registry.correct_online(false, Instant::from_nanos(world.now));
            assert_eq!(world.registry.adjustment(), Adjustment::NONE);
            assert!(!world.registry.shared().measuring());
        }
    }
}

#[test]
fn delays_of_a_worker_that_waits_for_a_processor_correct_nothing() {
    let mut world = World::new();
    world.registry.correct_online(true, Instant::ZERO);
    world.registry.bound_depth(true, Instant::ZERO);
    world.windows(5);
    let depth = world.scheduler.depth_max();
    // To the server, a thread that is kept from running looks like a device that is slow.
    (world.queue.rate, world.waited) = (RATE / 2, Duration::from_millis(40));
    let starved = world.windows(50);
    assert!(late(&starved) > 0, "{starved:?}");
    assert_eq!(world.registry.adjustment(), Adjustment::NONE);
    assert_eq!(world.scheduler.depth_max(), depth);
    world.waited = Duration::ZERO;
    world.windows(10);
    assert!(world.registry.adjustment() != Adjustment::NONE, "now it is the device");
}

#[test]
fn the_depth_follows_the_strictest_latency() {
    let mut world = World::new();
    assert_eq!(world.scheduler.depth_max(), usize::MAX);
    world.registry.bound_depth(true, Instant::ZERO);
    world.windows(5);
    // 40 K tokens a second for 2 ms.
    assert_eq!(world.scheduler.depth_max(), 80);
    world.queue.write *= 4;
    world.windows(60);
    assert!(world.scheduler.depth_max() < 30, "{}", world.scheduler.depth_max());
    world.registry.bound_depth(false, Instant::from_nanos(world.now));
    world.windows(1);
    assert_eq!(world.scheduler.depth_max(), usize::MAX);
}

#[test]
fn what_would_miss_its_latency_is_refused_at_once() {
    let mut world = World::new();
    let flood =
        |world: &mut World| (0..1_000).filter(|_| world.ask(0, IoKind::Read).is_ok()).count();
    world.scheduler.begin_round(Instant::ZERO);
    world.registry.fail_fast(true);
    world.scheduler.begin_round(Instant::from_nanos(1_000));
    while world.scheduler.next().is_some() {}
    // Its deficit allows for 50 requests, and its rate makes 20 in the 2 ms of its latency; one
    // that would wait just as long as that is late.
    assert_eq!(flood(&mut world), 69);
    assert!(world.ask(1, IoKind::Write).is_ok(), "best effort has no latency to miss");
    world.registry.fail_fast(false);
    world.scheduler.begin_round(Instant::from_nanos(2_000));
    assert_eq!(flood(&mut world), 1_000);
}
