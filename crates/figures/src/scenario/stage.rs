//! The stage: workers, a device, tenants and their loads, on one virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use contract::{Command, Instant, IoKind, Slo, Status, Tag, TenantId};
use flash::Rng;
use flash::sim_flash::{Model, SimVolume};
use ftl::Report;
use qos::admission::Refusal;
use qos::{DeviceModel, PassThrough, QueueLimits, Registry};
use worker::{
    AccessRules, AccessScope, Limits, Namespace, Namespaces, PeerPattern, PeerRule, SharedState,
};

use super::disk::{Disk, Translation};
use super::meter::Meter;
use super::source::{Load, LoadConnection, SendingRule, Source};
use super::stalls::{StallPattern, Stalls};
use super::wire::Message;
use super::worker::{SchedulerKind, SimWorker};

/// The nanoseconds from the departure of a reply to the arrival of the request that it triggers in
/// a closed loop.
const ROUND_TRIP: u64 = 20_000;
/// The nanoseconds after which a client repeats a request that was answered with `Retry`.
const BACKOFF: u64 = 100_000;
/// The nanoseconds between two charges for the garbage collection that the device does of its own
/// accord.
const CHARGE: u64 = 50_000_000;

/// The parameters of a stage.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of workers, each on a core of its own.
    pub workers: usize,
    /// `true` if requests are scheduled by tokens; `false` if each goes to the device as it comes.
    pub scheduled: bool,
    /// The model of the simulated device.
    pub flash: Model,
    /// The flash translation over the simulated device, which one worker serves; `None` for bare
    /// flash.
    pub translation: Option<Translation>,
    /// The model that the scheduler uses for the device.
    pub model: DeviceModel,
    /// The largest number of tenants registered at a time.
    pub tenants_max: usize,
    /// `true` if tenants with an SLO may claim promised tokens later that they did not use
    /// (arrears).
    pub pays_arrears: bool,
    /// The stalls of each worker's thread.
    pub worker_stalls: StallPattern,
    /// The stalls of the clients, which all stall at the same moment.
    pub client_stalls: StallPattern,
}

impl Setup {
    /// Returns the setup with device A of the paper and its published model, scheduled by tokens.
    pub fn device_a(seed: u64, workers: usize) -> Setup {
        let (flash, model) = (Model::A, DeviceModel::device_a());
        Setup {
            seed,
            workers,
            scheduled: true,
            flash,
            translation: None,
            model,
            tenants_max: 64,
            pays_arrears: true,
            worker_stalls: StallPattern::NEVER,
            client_stalls: StallPattern::NEVER,
        }
    }
}

/// The identifier of a load on a stage: its index in the table of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

/// A request that a client sends at a time, for the first time or again. Happenings are ordered by
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScheduledRequest {
    at: u64,
    /// The number of happenings created before, which breaks ties and so makes runs repeatable.
    sequence: u64,
    source: usize,
    epoch: u32,
    /// The nanosecond at which the request is due, without stalls of the clients.
    meant: u64,
    /// The index of the connection among the source's: of a closed loop's request, or of a request
    /// sent again.
    line: usize,
    /// The tag of the request that is sent again; `None` for a new request.
    again: Option<Tag>,
}

/// A request between its first arrival at a worker and its reply.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    source: usize,
    epoch: u32,
    line: usize,
    /// The time at which the request was meant to be sent, in nanoseconds; its latency counts from
    /// then.
    meant: u64,
    command: Command,
}

/// Simulated workers, a device, tenants and their loads, on one virtual clock.
pub struct Scenario {
    now: u64,
    scheduled: bool,
    chance: Rng,
    client_stalls: Stalls,
    registry: Registry,
    disk: Disk,
    workers: Vec<SimWorker>,
    sources: Vec<Source>,
    requests: Vec<Option<Outstanding>>,
    free: Vec<u32>,
    happenings: BinaryHeap<Reverse<ScheduledRequest>>,
    sequence: u64,
    replies: Vec<(u64, Tag, Status)>,
    /// The units that each tenant, by its id, had spent when the measurements were last cleared.
    spent_before: Vec<u64>,
    measured_from: u64,
    busy_before: Vec<(u64, u64)>,
}

impl Scenario {
    /// Creates a stage without tenants.
    pub fn new(setup: Setup) -> Scenario {
        let mut disk = Disk::new(setup.flash, setup.translation, setup.seed);
        let mut registry = Registry::new(setup.model, setup.tenants_max);
        registry.pay_arrears(setup.pays_arrears);
        if let Some(chores) = disk.chores() {
            registry.taxes().expect(chores.uniform(), chores.pages(), Instant::ZERO);
        }
        let parts = parts(setup.tenants_max, disk.blocks);
        let slots = Limits::default().in_flight;
        let limits = QueueLimits { slots, of_tenant: slots as u32 };
        let order = |n| match setup.scheduled {
            true => SchedulerKind::Tokens(Box::new(registry.scheduler(n, limits))),
            false => SchedulerKind::PassThrough(PassThrough::new(slots)),
        };
        let workers = (0..setup.workers)
            .map(|n| {
                let stalls = Stalls::new(setup.worker_stalls, setup.seed ^ (0x57a11 + n as u64));
                SimWorker::new(
                    disk.open_queue(),
                    order(n),
                    parts.clone(),
                    setup.tenants_max,
                    stalls,
                )
            })
            .collect();
        Scenario {
            now: 0,
            scheduled: setup.scheduled,
            chance: Rng::new(setup.seed ^ 0x5ce0),
            client_stalls: Stalls::new(setup.client_stalls, setup.seed ^ 0xc11e),
            registry,
            disk,
            workers,
            sources: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            happenings: BinaryHeap::new(),
            sequence: 0,
            replies: Vec::new(),
            spent_before: vec![0; setup.tenants_max],
            measured_from: 0,
            busy_before: vec![(0, 0); setup.workers],
        }
    }

    /// Returns the virtual time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the simulated flash.
    pub fn volume(&self) -> &SimVolume {
        &self.disk.flash
    }

    /// Returns the counters of the flash translation; `None` for bare flash.
    pub fn translation(&mut self) -> Option<Report> {
        self.workers.iter_mut().find_map(SimWorker::report)
    }

    /// Returns the registry of tenants.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Registers a tenant: with an SLO, or best effort for `None`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if its SLO cannot be promised.
    pub fn register(&mut self, slo: impl Into<Option<Slo>>) -> Result<TenantId, Refusal> {
        let now = Instant::from_nanos(self.now);
        Ok(self.registry.register(slo.into(), now)?.tenant)
    }

    /// Opens `connections` connections of a tenant to each of `workers`, by their indices. Nothing
    /// is sent before [`Scenario::start`].
    pub fn add(
        &mut self,
        tenant: TenantId,
        load: Load,
        workers: &[usize],
        connections: usize,
    ) -> SourceId {
        let tenants = [(tenant, workers)];
        self.add_group(&tenants, load, connections)
    }

    /// Opens `connections` connections of each tenant to each of its workers. `load` is the load of
    /// all tenants together.
    pub fn add_group(
        &mut self,
        tenants: &[(TenantId, &[usize])],
        load: Load,
        connections: usize,
    ) -> SourceId {
        let mut lines = Vec::new();
        for &(tenant, workers) in tenants {
            for &worker in workers {
                for _ in 0..connections {
                    let line = self.workers[worker].open(tenant.0);
                    lines.push(LoadConnection { worker, line });
                }
            }
        }
        self.sources.push(Source::new(load, lines));
        SourceId(self.sources.len() - 1)
    }

    /// Starts to send the requests of a load.
    pub fn start(&mut self, id: SourceId) {
        let now = self.now;
        let source = &mut self.sources[id.0];
        source.is_on = true;
        source.epoch += 1;
        let epoch = source.epoch;
        match source.load.arrivals {
            SendingRule::Random(_) | SendingRule::Paced(_) => {
                let at = source.begin(now, &mut self.chance);
                self.schedule(at, id.0, epoch, 0, None);
            }
            SendingRule::Closed(depth) => {
                // The first requests are spread over a millisecond, so that they do not all come at
                // once.
                for line in 0..self.sources[id.0].lines.len() {
                    for _ in 0..depth {
                        let at = now + self.chance.within(0..=999_999);
                        self.schedule(at, id.0, epoch, line, None);
                    }
                }
            }
        }
    }

    /// Makes a load drop requests that are answered with `Retry`, instead of sending them again.
    pub fn give_up(&mut self, id: SourceId) {
        self.sources[id.0].gives_up = true;
    }

    /// Stops a load. Requests that it has sent are still answered.
    pub fn stop(&mut self, id: SourceId) {
        self.sources[id.0].is_on = false;
        self.sources[id.0].epoch += 1;
    }

    /// Replaces a load. A running load continues with the new one.
    pub fn change(&mut self, id: SourceId, load: Load) {
        self.sources[id.0].load = load;
        if self.sources[id.0].is_on {
            self.start(id);
        }
    }

    /// Runs the simulation for `time` of virtual time.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time.as_nanos() as u64;
        while self.step(until) {}
        self.now = until;
    }

    /// Charges the registry for the garbage collection that the device has done, which sets the tax
    /// on writes.
    fn charge(&mut self) {
        let Some(chores) = self.disk.chores() else { return };
        let now = Instant::from_nanos(self.now);
        self.registry.taxes().charge(chores.done(), now);
        self.disk.charge_at = self.now + CHARGE;
    }

    /// Clears the measurements of all loads, tenants and workers, but not windows of reads.
    pub fn clear(&mut self) {
        self.sources.iter_mut().for_each(|source| source.meter.clear());
        let shared = self.registry.shared();
        for (n, before) in self.spent_before.iter_mut().enumerate() {
            *before = shared.usage(TenantId(n as u32)).spent;
        }
        let busy = |worker: &SimWorker| (worker.busy, worker.scheduling);
        self.busy_before = self.workers.iter().map(busy).collect();
        self.measured_from = self.now;
    }

    /// Returns the seconds of virtual time since the measurements were last cleared.
    pub fn seconds(&self) -> f64 {
        (self.now - self.measured_from) as f64 / 1e9
    }

    /// Returns the measurements of a load.
    pub fn meter(&mut self, id: SourceId) -> &mut Meter {
        &mut self.sources[id.0].meter
    }

    /// Returns the requests a second of a load that were answered since the measurements were last
    /// cleared.
    pub fn iops(&self, id: SourceId) -> f64 {
        self.sources[id.0].meter.count() as f64 / self.seconds()
    }

    /// Returns the tokens a second that a tenant spent since the measurements were last cleared;
    /// zero without a token scheduler.
    pub fn tokens(&self, tenant: TenantId) -> f64 {
        let n = tenant.0 as usize;
        let spent = self.registry.shared().usage(tenant).spent - self.spent_before[n];
        spent as f64 / 100.0 / self.seconds()
    }

    /// Returns the share of the time that a worker was busy, and the share of scheduling in its
    /// busy time, since the measurements were last cleared.
    pub fn busy(&self, worker: usize) -> (f64, f64) {
        let (busy, scheduling) = self.busy_before[worker];
        let worker = &self.workers[worker];
        let took = (worker.busy - busy) as f64;
        let scheduling = (worker.scheduling - scheduling) as f64;
        (took / 1e9 / self.seconds(), scheduling / took.max(1.0))
    }

    /// Stops all loads, waits until nothing is in flight, and returns the workers' buffers for the
    /// next stage.
    ///
    /// # Panics
    /// Panics if requests are still in flight after 100 s of virtual time.
    pub fn end(mut self) {
        self.drain();
        self.workers.into_iter().for_each(SimWorker::take_apart);
    }

    /// Stops all loads, drops requests of which no byte was received, and waits until the others
    /// are answered.
    fn drain(&mut self) {
        for n in 0..self.sources.len() {
            self.stop(SourceId(n));
        }
        self.workers.iter_mut().for_each(SimWorker::forget);
        let limit = self.now + 100_000_000_000;
        while !self.workers.iter_mut().all(SimWorker::is_at_rest) {
            assert!(self.step(limit), "the stage does not come to rest");
        }
    }

    fn schedule(&mut self, at: u64, source: usize, epoch: u32, line: usize, again: Option<Tag>) {
        let sequence = self.sequence;
        self.sequence += 1;
        let (meant, at) = (at, at.max(self.now));
        self.happenings.push(Reverse(ScheduledRequest {
            at,
            sequence,
            source,
            epoch,
            meant,
            line,
            again,
        }));
    }

    /// Executes the next event before `until`: a client's, a worker's or a charge. Returns `false`
    /// if there is none. At equal times a client's event comes before a worker's.
    fn step(&mut self, until: u64) -> bool {
        let worker = (0..self.workers.len())
            .filter_map(|n| self.workers[n].next().map(|at| (at.max(self.now), n)))
            .min();
        let happening = self.happenings.peek().map(|Reverse(next)| next.at);
        let first = worker.map(|(at, _)| at).into_iter().chain(happening).min();
        let first = first.filter(|at| *at < until);
        // A charge ends what writes wait for, so it is due even if nothing else is.
        if self.disk.charge_at < until.min(first.unwrap_or(until)) {
            self.now = self.disk.charge_at;
            self.charge();
            return true;
        }
        let Some(at) = first else { return false };
        self.now = at;
        if happening == Some(at) {
            let Reverse(next) = self.happenings.pop().expect("it was just seen");
            match self.client_stalls.resume(at) {
                resumed if resumed > at => {
                    self.happenings.push(Reverse(ScheduledRequest { at: resumed, ..next }));
                }
                _ => self.happen(next),
            }
        } else {
            let (_, n) = worker.expect("something is first");
            let mut replies = std::mem::take(&mut self.replies);
            self.workers[n].step(at, &mut replies);
            for (leaves, tag, status) in replies.drain(..) {
                self.answered(leaves, tag, status);
            }
            self.replies = replies;
        }
        true
    }

    fn happen(&mut self, what: ScheduledRequest) {
        let ScheduledRequest { at, source: n, epoch, meant, line, again, .. } = what;
        let source = &mut self.sources[n];
        if let Some(tag) = again {
            let request = self.requests[tag as usize].expect("it waits to be sent again");
            let LoadConnection { worker, line } = source.lines[line];
            self.workers[worker].arrive(line, Message { tag, command: request.command });
            return;
        }
        if source.epoch != epoch {
            return;
        }
        let line = match source.load.arrivals {
            SendingRule::Closed(_) => line,
            SendingRule::Random(_) | SendingRule::Paced(_) => {
                let next = source.advance(&mut self.chance);
                let line = source.pick(&mut self.chance);
                self.schedule(next, n, epoch, 0, None);
                line
            }
        };
        let source = &mut self.sources[n];
        let meant = if matches!(source.load.arrivals, SendingRule::Closed(_)) { at } else { meant };
        let command = source.command(self.disk.blocks, &mut self.chance);
        let LoadConnection { worker, line: number } = source.lines[line];
        let units = self.units(command);
        self.sources[n].meter.arrive(at, units);
        let request = Outstanding { source: n, epoch, line, meant, command };
        let tag = self.keep(request);
        self.workers[worker].arrive(number, Message { tag, command });
    }

    /// Returns the price of a request under mixed load, in units.
    fn units(&self, command: Command) -> u64 {
        let bytes = command.range().map_or(0, |range| range.bytes());
        self.registry.model().cost().cost(command.kind(), bytes).mixed.into()
    }

    fn keep(&mut self, request: Outstanding) -> Tag {
        match self.free.pop() {
            Some(n) => {
                self.requests[n as usize] = Some(request);
                n.into()
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() as Tag - 1
            }
        }
    }

    fn answered(&mut self, leaves: u64, tag: Tag, status: Status) {
        let request = self.requests[tag as usize].expect("a request is answered once");
        let Outstanding { source: n, epoch, line, meant, command } = request;
        let source = &mut self.sources[n];
        if status == Status::Retry {
            source.meter.retried += 1;
            if source.gives_up {
                self.requests[tag as usize] = None;
                self.free.push(tag as u32);
                return;
            }
            self.schedule(leaves + BACKOFF, n, epoch, line, Some(tag));
            return;
        }
        assert!(status.is_ok(), "{command:?} of {:?}: {status}", source.lines[line]);
        let seen = self.client_stalls.delayed(leaves);
        source.meter.end(command.kind() == IoKind::Read, meant, seen);
        let goes_on =
            matches!(source.load.arrivals, SendingRule::Closed(_)) && source.epoch == epoch;
        self.requests[tag as usize] = None;
        self.free.push(tag as u32);
        if goes_on {
            self.schedule(leaves + ROUND_TRIP, n, epoch, line, None);
        }
    }

    /// Returns `true` if requests are scheduled by tokens.
    pub fn is_scheduled(&self) -> bool {
        self.scheduled
    }
}

/// Returns one namespace of `blocks` blocks for all tenants, and for each tenant an access rule:
/// the local user with the tenant's number as uid.
fn parts(tenants: usize, blocks: u64) -> Arc<SharedState> {
    let namespace = Namespace { device: 0, first: 0, blocks, read_only: false };
    let rule = |n| PeerRule {
        who: PeerPattern::User(n),
        tenant: TenantId(n),
        tenant_name: String::new(),
        register: true,
        scope: AccessScope::All(contract::Rights::ALL),
    };
    let access = AccessRules::new((0..tenants as u32).map(rule).collect());
    Arc::new(SharedState::new(Namespaces::new(vec![namespace]), access))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that writes that a scheduler holds back, because the volume is short of space, end
    /// when the stage is drained.
    #[test]
    fn a_stage_that_is_drained_while_its_volume_is_short_ends_each_write() {
        let translation = Some(Translation { pages: 1 << 14, spare_per_mille: 100 });
        let mut stage = Scenario::new(Setup { translation, ..Setup::device_a(3, 1) });
        let writers = [(); 4].map(|()| {
            let writer = stage.register(None).expect("best effort is always admitted");
            let load = Load { arrivals: SendingRule::Closed(64), reads: 0.0, bytes: 4096 };
            let source = stage.add(writer, load, &[0], 4);
            stage.start(source);
            source
        });
        let is_short = |stage: &mut Scenario| stage.registry().shared().holding_writes();
        for _ in 0..10_000 {
            stage.run(Duration::from_millis(1));
            if is_short(&mut stage) {
                break;
            }
        }
        assert!(is_short(&mut stage), "writes outrun collection");
        assert!(stage.requests.iter().flatten().count() > 100, "writes wait");
        let before = writers.map(|source| stage.meter(source).count());
        stage.drain();
        for (source, before) in writers.into_iter().zip(before) {
            assert!(stage.meter(source).count() > before, "its writes are answered");
        }
        stage.end();
    }
}
