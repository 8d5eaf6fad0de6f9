//! The thread that makes the probes of a recalibration. It has a queue to the device and a
//! scheduler of its own, like a worker, but no connections.
//!
//! Probes are requests of a best-effort tenant, so the scheduler gives them only what other tenants
//! leave. Probes that cannot be sent in time are dropped, because a delayed probe measures nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::{
    BLOCK_BYTES, Buf, BufPool, Command, Completion, Device, Feedback, Instant, Range, Scheduler,
    SizeClass, SlotTable, Submission, TenantId, TurnOutcome,
};
use dataplane::{AnyDevice, SocketBackend, Volume};
use flash::{DecoratedDevice, Rng};
use io::{Clock, CpuWaits, Reactor, SpinPolicy, ThreadAccount};
use qos::{AnyScheduler, PAGE_BYTES};

/// Maximum number of probes that wait or are at the device.
pub(super) const PROBES_MAX: usize = 1024;

/// The largest number of request arrivals that one turn handles; more arrivals mean that the thread
/// has stalled.
const ARRIVALS_MAX: usize = 256;

/// The time before an arrival at which the thread stops sleeping.
const WAKE_LEAD: Duration = Duration::from_micros(60);

/// The interval at which the thread checks for new orders.
const ORDERS_PERIOD: Duration = Duration::from_millis(5);

const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;

/// A range of blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRange {
    pub(super) first: u64,
    pub(super) blocks: u64,
}

impl BlockRange {
    /// Returns the first whole page of the range and the number of whole pages.
    fn pages(self) -> (u64, u64) {
        let first = self.first.div_ceil(PAGE_BLOCKS);
        (first, ((self.first + self.blocks) / PAGE_BLOCKS).saturating_sub(first))
    }
}

/// The probes to be made: their rate and mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProbeLoad {
    /// Probes a second; zero for none.
    pub(super) iops: f64,
    /// The share of reads, 0 to 1.
    pub(super) reads: f64,
}

/// The state shared by the thread that submits probe requests and the recalibration that orders
/// them.
#[derive(Debug, Default)]
pub(super) struct ProberControl {
    offer: Mutex<ProbeLoad>,
    /// The number of times that the offer was replaced.
    changes: AtomicU64,
    stop: AtomicBool,
    /// `true` once the recalibration has ended: no probe is in flight, and no probe follows.
    over: AtomicBool,
    /// The number of reads that were submitted to the device.
    reads: AtomicU64,
    writes: AtomicU64,
    errors: AtomicU64,
    account: OnceLock<Option<ThreadAccount>>,
}

impl ProberControl {
    /// Replaces the rate and the mix of the probes.
    pub(super) fn offer(&self, offer: ProbeLoad) {
        *self.offer.lock().expect("no holder panics") = offer;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Stops making probes; probes in flight complete.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns true if the thread was stopped and no probe is in flight.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the numbers of reads and writes submitted so far.
    pub(super) fn submitted(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Returns the wait times of the thread; zero where the kernel does not count them.
    pub(super) fn waits(&self) -> CpuWaits {
        let account = self.account.get().and_then(Option::as_ref);
        account.and_then(ThreadAccount::waits).unwrap_or_default()
    }

    /// Returns the number of failed probes.
    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// The inputs of the thread that makes probes.
pub(super) struct ProberInputs {
    pub(super) orders: Arc<ProberControl>,
    pub(super) volume: Arc<Volume>,
    /// The index of the device.
    pub(super) device: usize,
    pub(super) scheduler: AnyScheduler,
    /// The worker number of the prober, which no worker of the server has.
    pub(super) worker: usize,
    pub(super) tenant: TenantId,
    pub(super) clock: Clock,
    pub(super) seed: u64,
    /// The range that probes may overwrite; `None` if probes do not write.
    pub(super) scratch: Option<BlockRange>,
}

/// Starts the thread that makes probes.
pub(super) fn start<N: SocketBackend>(
    tools: ProberInputs,
) -> Result<JoinHandle<Result<(), String>>, String> {
    let orders = tools.orders.clone();
    let body = move || {
        orders.account.get_or_init(ThreadAccount::of_this_thread);
        let worked = work::<N>(tools);
        orders.over.store(true, Ordering::Release);
        worked
    };
    let thread = std::thread::Builder::new().name("recalibration".to_owned()).spawn(body);
    thread.map_err(|error| format!("cannot start a thread: {error}"))
}

fn work<N: SocketBackend>(tools: ProberInputs) -> Result<(), String> {
    let reactor = N::Reactor::new().map_err(|error: io::Error| error.to_string())?;
    let clock = tools.clock;
    let mut prober = ServerProber::open::<N>(tools, &reactor)?;
    io::run(&reactor, &clock, SpinPolicy { spin: WAKE_LEAD }, |now| prober.turn(now));
    Ok(())
}

/// Fills all buffers of a pool with random data, which no device can compress.
fn fill(pool: &mut BufPool, chance: &mut Rng) {
    let mut all: Vec<Buf> = std::iter::from_fn(|| pool.take(PAGE_BYTES)).collect();
    for buf in &mut all {
        for word in buf.prefix_mut(PAGE_BYTES).chunks_exact_mut(8) {
            word.copy_from_slice(&chance.number().to_le_bytes());
        }
    }
    all.into_iter().for_each(|buf| pool.give(buf));
}

/// A probe that waits or is at the device.
#[derive(Debug)]
struct Probe {
    command: Command,
    submitted_at: Instant,
}

/// A prober of any device of the server.
pub(super) type ServerProber = Prober<DecoratedDevice<AnyDevice>>;

/// Makes the probes of one device, turn by turn.
pub(super) struct Prober<D> {
    orders: Arc<ProberControl>,
    device: D,
    scheduler: AnyScheduler,
    tenant: TenantId,
    /// Buffers for reads. Their contents belong to tenants, and must never be written elsewhere.
    read_pool: BufPool,
    write_pool: BufPool,
    table: SlotTable<Probe>,
    done: Vec<Completion>,
    chance: Rng,
    everything: BlockRange,
    scratch: Option<BlockRange>,
    offer: ProbeLoad,
    /// The number of the last offer that was read.
    changes: u64,
    /// The time at which the next probe arrives.
    next_at: Instant,
    /// The number of probes at the device.
    submitted: usize,
    /// `true` if the device had no room for all probes of the last round.
    is_cut: bool,
}

impl ServerProber {
    /// Opens a queue to the device, and takes buffers for probes.
    pub(super) fn open<N: SocketBackend>(
        tools: ProberInputs,
        reactor: &N::Reactor,
    ) -> Result<ServerProber, String> {
        let volume = &tools.volume;
        let device = volume.open_queue(&N::through(reactor), tools.device, tools.worker)?;
        let class = SizeClass { bytes: PAGE_BYTES, count: PROBES_MAX };
        let carve = || io::carve(&[class]).map_err(|error| error.to_string());
        let mut chance = Rng::new(tools.seed);
        let read_pool = BufPool::new(carve()?.bufs);
        let mut write_pool = BufPool::new(carve()?.bufs);
        fill(&mut write_pool, &mut chance);
        let everything = BlockRange { first: 0, blocks: volume.blocks() };
        Ok(Prober {
            orders: tools.orders,
            device,
            scheduler: tools.scheduler,
            tenant: tools.tenant,
            read_pool,
            write_pool,
            table: SlotTable::new(PROBES_MAX),
            done: Vec::with_capacity(PROBES_MAX),
            chance,
            everything,
            scratch: tools.scratch,
            offer: ProbeLoad::default(),
            changes: 0,
            next_at: Instant::ZERO,
            submitted: 0,
            is_cut: false,
        })
    }
}

impl<D: Device> Prober<D> {
    /// Runs one turn. Returns `None` after the last.
    pub(super) fn turn(&mut self, now: Instant) -> Option<TurnOutcome> {
        let is_stopped = self.orders.stop.load(Ordering::Acquire);
        self.take_offer(now, is_stopped);
        let arrived = self.arrive(now);
        let dispatched = self.dispatch(now, arrived);
        let progressed = self.complete(now) | arrived | dispatched;
        if is_stopped && self.table.is_empty() {
            // So that the scheduler lets go of the tenant.
            self.scheduler.begin_round(now);
            let none = self.scheduler.next();
            assert!(none.is_none(), "nothing waits");
            return None;
        }
        let mut wake_at = now + ORDERS_PERIOD;
        if self.offer.iops > 0.0 {
            wake_at = wake_at.min(self.next_at);
        }
        let others = [self.scheduler.wake_at(now), self.device.wake_at()];
        let wake_at = others.into_iter().flatten().fold(wake_at, Instant::min);
        Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
    }

    fn take_offer(&mut self, now: Instant, is_stopped: bool) {
        let changes = self.orders.changes.load(Ordering::Acquire);
        if is_stopped {
            self.offer = ProbeLoad::default();
            self.drop_waiting();
        } else if changes != self.changes {
            self.changes = changes;
            self.offer = *self.orders.offer.lock().expect("no holder panics");
            self.next_at = now;
            self.drop_waiting();
        }
    }

    /// Drops the queued probes, which belong to an offer that is over.
    fn drop_waiting(&mut self) {
        while let Some(slot) = self.scheduler.discard() {
            self.table.remove(slot);
        }
    }

    /// Queues the probes that have arrived by now, at random times (Poisson). Returns `true` if
    /// there was one.
    fn arrive(&mut self, now: Instant) -> bool {
        let mut arrived = 0;
        while self.offer.iops > 0.0 && self.next_at <= now {
            if arrived == ARRIVALS_MAX {
                self.next_at = now;
                break;
            }
            arrived += 1;
            let unit = (self.chance.number() >> 11) as f64 / (1_u64 << 53) as f64;
            let gap = -(1.0 - unit).ln() / self.offer.iops;
            self.next_at = self.next_at + Duration::from_secs_f64(gap.min(1.0));
            let command = self.command();
            let Ok(slot) = self.table.insert(Probe { command, submitted_at: now }) else {
                continue;
            };
            let asked = self.scheduler.enqueue(self.tenant, command.kind(), PAGE_BYTES, slot);
            if asked.is_err() {
                self.table.remove(slot);
            }
        }
        arrived > 0
    }

    fn command(&mut self) -> Command {
        let scratch = self.scratch.filter(|_| !self.chance.happens(self.offer.reads));
        let (first, pages) = scratch.unwrap_or(self.everything).pages();
        let page = first + self.chance.within(0..=pages - 1);
        let range = Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
        match scratch {
            Some(_) => Command::Write { range, fua: false },
            None => Command::Read(range),
        }
    }

    /// Submits the probes that a round of the scheduler releases.
    fn dispatch(&mut self, now: Instant, has_arrived: bool) -> bool {
        let is_due = self.scheduler.wake_at(now).is_some_and(|at| at <= now);
        if !is_due && !has_arrived && !self.is_cut {
            return false;
        }
        self.scheduler.begin_round(now);
        let mut progressed = false;
        loop {
            self.is_cut = self.device.room() == 0 || self.submitted >= self.scheduler.depth_max();
            let next = if self.is_cut { None } else { self.scheduler.next() };
            let Some(slot) = next else { break };
            let probe = self.table.get(slot);
            probe.submitted_at = now;
            let command = probe.command;
            let (count, pool) = match command {
                Command::Read(_) => (&self.orders.reads, &mut self.read_pool),
                _ => (&self.orders.writes, &mut self.write_pool),
            };
            count.fetch_add(1, Ordering::Relaxed);
            let buf = pool.take(PAGE_BYTES);
            assert!(buf.is_some(), "there are as many buffers as probes");
            self.submitted += 1;
            self.device.submit(now, Submission { slot, command, buf });
            progressed = true;
        }
        if progressed {
            self.device.kick(now);
        }
        progressed
    }

    fn complete(&mut self, now: Instant) -> bool {
        if self.submitted == 0 {
            return false;
        }
        self.device.poll(now, &mut self.done);
        let progressed = !self.done.is_empty();
        for Completion { slot, status, buf } in self.done.drain(..) {
            self.submitted -= 1;
            let Probe { command, submitted_at } = self.table.remove(slot);
            self.scheduler.ended(command.kind(), now.since(submitted_at));
            if !status.is_ok() {
                self.orders.errors.fetch_add(1, Ordering::Relaxed);
            }
            let pool = match command {
                Command::Read(_) => &mut self.read_pool,
                _ => &mut self.write_pool,
            };
            buf.into_iter().for_each(|buf| pool.give(buf));
        }
        progressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::{MemQueue, MemVolume};
    use qos::{DeviceModel, QueueLimits, Registry};

    /// A prober over a device in memory. Each turn takes a tenth of a millisecond of virtual time.
    struct Run {
        volume: MemVolume,
        orders: Arc<ProberControl>,
        prober: Prober<MemQueue>,
        now: Instant,
    }

    impl Run {
        fn new(scratch: Option<BlockRange>) -> Run {
            let (volume, orders) = (MemVolume::new(1024), Arc::new(ProberControl::default()));
            let mut registry = Registry::new(DeviceModel::unlimited(), 1);
            let tenant = registry.register(None, Instant::ZERO).unwrap().tenant;
            let limits = QueueLimits { slots: PROBES_MAX, of_tenant: PROBES_MAX as u32 };
            let class = SizeClass { bytes: PAGE_BYTES, count: PROBES_MAX };
            let pool = || BufPool::new(io::carve(&[class]).unwrap().bufs);
            let (read_pool, mut write_pool, mut chance) = (pool(), pool(), Rng::new(7));
            fill(&mut write_pool, &mut chance);
            let prober = Prober {
                orders: orders.clone(),
                device: volume.open_queue(),
                scheduler: AnyScheduler::Tokens(registry.scheduler(0, limits)),
                tenant,
                read_pool,
                write_pool,
                table: SlotTable::new(PROBES_MAX),
                done: Vec::new(),
                chance,
                everything: BlockRange { first: 0, blocks: 1024 },
                scratch,
                offer: ProbeLoad::default(),
                changes: 0,
                next_at: Instant::ZERO,
                submitted: 0,
                is_cut: false,
            };
            Run { volume, orders, prober, now: Instant::ZERO }
        }

        /// Runs turns. Returns `false` if one of them was the last.
        fn turns(&mut self, count: u32) -> bool {
            (0..count).all(|_| {
                self.now = self.now + Duration::from_micros(100);
                self.prober.turn(self.now).is_some()
            })
        }

        fn offer(&mut self, reads: f64) {
            self.orders.offer(ProbeLoad { iops: 100_000.0, reads });
        }

        /// Returns the pages that were written.
        fn written(&self) -> Vec<u64> {
            let is_written = |page: &u64| {
                let mut data = [0; PAGE_BYTES];
                let range = Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
                self.volume.read_now(range, &mut data);
                data.iter().any(|byte| *byte != 0)
            };
            (0..1024 / PAGE_BLOCKS).filter(is_written).collect()
        }
    }

    #[test]
    fn probes_write_to_whole_pages_of_the_scratch_and_nowhere_else() {
        // Neither its first nor its last page is whole.
        let mut run = Run::new(Some(BlockRange { first: 260, blocks: 250 }));
        run.offer(0.5);
        assert!(run.turns(500));
        let (reads, writes) = run.orders.submitted();
        assert!(reads > 2_000 && writes > 2_000, "{reads}, {writes}");
        assert_eq!(run.written(), (33..63).collect::<Vec<_>>());
        let mut without = Run::new(None);
        without.offer(0.5);
        assert!(without.turns(500));
        assert_eq!((without.orders.submitted().1, without.written()), (0, vec![]));
        assert_eq!(run.orders.errors() + without.orders.errors(), 0);
    }

    #[test]
    fn probes_end_when_told() {
        let mut run = Run::new(Some(BlockRange { first: 0, blocks: 512 }));
        run.offer(0.5);
        assert!(run.turns(100));
        // Reads alone; then nothing, until there is another offer.
        run.offer(1.0);
        assert!(run.turns(1));
        let (reads, writes) = run.orders.submitted();
        assert!(run.turns(200));
        let more = run.orders.submitted();
        assert!(more.0 > reads && more.1 == writes, "{more:?} after {reads}, {writes}");
        run.orders.offer(ProbeLoad::default());
        assert!(run.turns(1));
        let before = run.orders.submitted();
        assert!(run.turns(200));
        assert_eq!(run.orders.submitted(), before);
        run.offer(0.0);
        assert!(run.turns(100));
        let before = run.orders.submitted();
        assert!(before.1 > writes);
        run.orders.stop();
        assert!(!run.turns(100), "it ends");
        assert_eq!(run.orders.submitted(), before);
    }
}
