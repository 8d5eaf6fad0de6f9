//! The activity of namespaces, devices, workers and protocols: sums since the start, and the last
//! window.

use std::sync::Arc;

use contract::{
    CoarseHistogram, DeviceError, DeviceReading, EndCause, Instant, Meters, NamespaceId, Protocol,
    Stage, Status, Tokens, TurnPart, WorkReading, WorkerGauges, WorkerReading,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::totals::tokens;
use crate::work::{ByProtocol, Work, percentile_us};

/// The activity of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NamespaceFlow {
    /// Successful work since the start.
    pub done: Work,
    /// Requests per second in the last window.
    pub iops: f64,
    /// Bytes read, and bytes written, per second in the last window.
    pub byte_rates: [f64; 2],
    /// Times of the last window's sampled reads, as a histogram for each [`Stage`].
    pub recent: [CoarseHistogram<u64>; Stage::ALL.len()],
}

/// The flow of tokens; in the admin API, in tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenRates")]
pub struct TokenFlow {
    /// Tokens generated.
    pub generated: f64,
    /// Spent on requests, and on the chores of the device.
    pub spent: f64,
    /// Taxed for the chores of the device.
    #[serde(default)]
    pub taxed: f64,
    /// Tokens that tenants with a surplus put into the bucket, also on behalf of idle tenants.
    pub donated: f64,
    /// Taken out of the bucket.
    pub borrowed: f64,
    /// Discarded when the bucket was emptied.
    pub expired: f64,
}

/// The activity of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceFlow {
    /// Counts of the successful requests to the device's namespaces since the start.
    pub done: Work,
    /// Tokens since the start: the maximum that each sum has ever reached. Requests that move are
    /// repaid, and expired tokens may be a debt, so a sum can fall. Its counter then waits until
    /// the sum has caught up.
    pub tokens: TokenFlow,
    /// The current sums since the start, which may fall.
    tokens_exact: TokenFlow,
    /// Requests per second in the last window.
    pub iops: f64,
    /// Bytes read, and bytes written, per second in the last window.
    pub byte_rates: [f64; 2],
    /// Tokens per second in the last window.
    pub token_rates: TokenFlow,
    /// Times of the last window's sampled reads, as a histogram for each [`Stage`].
    pub recent: [CoarseHistogram<u64>; Stage::ALL.len()],
    /// Number of requests at the device now.
    pub submitted: u32,
    /// Number of requests that wait in its schedulers now.
    pub queued: u32,
    /// Requests since the start that the device has failed, by [`DeviceError`].
    pub errors: [u64; DeviceError::ALL.len()],
}

/// The activity of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerFlow {
    /// Successful work since the start.
    pub done: Work,
    /// Number of turns since the start that did work.
    pub turns: u64,
    /// Seconds since the start that these turns took, with the system call after each.
    pub busy: f64,
    /// Seconds since the start for which the worker's thread waited for a processor; zero if the
    /// kernel does not count them.
    pub waited: f64,
    /// Seconds since the start that the timed turns spent, by [`TurnPart`].
    pub parts: [f64; TurnPart::ALL.len()],
    /// Failed requests since the start, by status.
    pub failures: [u64; Status::ALL.len()],
    /// Connections that have ended since the start, by [`EndCause`].
    pub ends: [u64; EndCause::ALL.len()],
    /// Numbers of connections since the start that moved to another worker or process, of those
    /// whose move failed, and of those that arrived.
    pub moves: [u64; 3],
    /// The worker's gauges, as of the last update of its counters.
    pub gauges: WorkerGauges,
    /// The activity in the last window.
    pub last: WorkerWindow,
}

/// The activity of a worker in the last window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerWindow {
    /// The worker's successful requests per second.
    pub iops: f64,
    /// Bytes read, and bytes written, per second.
    pub byte_rates: [f64; 2],
    /// Times of sampled reads, as a histogram for each [`Stage`].
    pub recent: [CoarseHistogram<u64>; Stage::ALL.len()],
    /// Turns of the worker per second that did work.
    pub turn_rate: f64,
    /// Share of the window in which the worker was busy, 0 to 1.
    pub busy_share: f64,
    /// Share of the window for which the worker's thread waited for a processor, 0 to 1.
    pub waited_share: f64,
    /// Share of each [`TurnPart`] in the time of the timed turns, from 0 to 1; all zero if no turn
    /// was timed.
    pub shares: [f64; TurnPart::ALL.len()],
}

/// The activity of all namespaces, devices, workers and protocols.
#[derive(Debug)]
pub(crate) struct Flows {
    ended_at: Instant,
    /// The last readings and the activity of the namespaces that are known or were, by number less
    /// one.
    namespaces: Vec<(WorkReading, NamespaceFlow)>,
    devices: Vec<(DeviceReading, DeviceFlow)>,
    workers: Vec<(WorkerReading, WorkReading, WorkerFlow)>,
    protocols: ByProtocol,
}

impl Flows {
    pub(crate) fn new(devices: usize, workers: usize) -> Flows {
        Flows {
            ended_at: Instant::ZERO,
            namespaces: Vec::new(),
            devices: vec![Default::default(); devices],
            workers: vec![Default::default(); workers],
            protocols: ByProtocol::default(),
        }
    }

    /// Adds the device with the index `place`. If a removed device had this index, the activity
    /// begins at zero, and the meters' counts go on.
    pub(crate) fn add_device(&mut self, place: usize) {
        match self.devices.get_mut(place) {
            Some((_, flow)) => *flow = DeviceFlow::default(),
            None => self.devices.push(Default::default()),
        }
    }

    /// Ends a window: reads all meters, and computes the activity since the last window.
    /// `registries` has the tokens that the devices' registries generate and discard, besides those
    /// of the workers.
    pub(crate) fn end(&mut self, meters: &[Arc<Meters>], registries: &[Tokens], now: Instant) {
        let seconds = now.since(self.ended_at).as_secs_f64().max(1e-9);
        self.ended_at = now;
        let (on_devices, by_workers, all) = self.end_namespaces(meters, seconds);
        for (n, (before, flow)) in self.devices.iter_mut().enumerate() {
            let mut reading = DeviceReading { tokens: registries[n], ..Default::default() };
            meters.iter().for_each(|meters| meters.device(n).add_to(&mut reading));
            flow.end(&reading.since(before), &on_devices[n], seconds);
            *before = reading;
        }
        let workers = self.workers.iter_mut().zip(by_workers);
        for (((before, work_before, flow), work), meters) in workers.zip(meters) {
            let reading = meters.worker.read();
            flow.end(&std::mem::replace(before, reading), &reading, seconds);
            flow.end_work(work.since(work_before).into(), seconds);
            *work_before = work;
        }
        let picked = Protocol::ALL.map(|protocol| {
            let mut sum = WorkReading::default();
            meters.iter().for_each(|meters| sum.add(&meters.protocol(protocol).read()));
            sum
        });
        self.protocols.end(picked, &all);
    }

    /// Ends the window of the namespaces. Returns the work in the window by device, the readings so
    /// far by worker, and the work in the window in total.
    fn end_namespaces(
        &mut self,
        meters: &[Arc<Meters>],
        seconds: f64,
    ) -> (Vec<Work>, Vec<WorkReading>, Work) {
        let mut on_devices = vec![Work::default(); self.devices.len()];
        let mut by_workers = vec![WorkReading::default(); self.workers.len()];
        let mut all = Work::default();
        let end = meters.iter().map(|meters| usize::from(meters.namespaces_end())).max();
        let end = end.unwrap_or(0).max(self.namespaces.len());
        self.namespaces.resize_with(end, Default::default);
        for (n, (before, flow)) in self.namespaces.iter_mut().enumerate() {
            let number = NamespaceId(n as u16 + 1);
            let each = || meters.iter().filter_map(|meters| meters.namespace(number));
            // Most numbers are never used.
            if !flow.is_used() && !each().any(|meter| meter.work.is_used()) {
                continue;
            }
            let mut reading = WorkReading::default();
            for (meter, by_worker) in each().zip(&mut by_workers) {
                let of_worker = meter.work.read();
                reading.add(&of_worker);
                by_worker.add(&of_worker);
            }
            let new = Work::from(reading.since(before));
            *before = reading;
            flow.end(&new, seconds);
            all.add(&new);
            if let Some(device) = each().next().and_then(|m| on_devices.get_mut(m.device())) {
                device.add(&new);
            }
        }
        (on_devices, by_workers, all)
    }

    /// Returns the namespaces that were ever used, by number.
    pub(crate) fn namespaces(&self) -> Vec<(NamespaceId, NamespaceFlow)> {
        let numbered = (1..).map(NamespaceId).zip(self.namespaces.iter().map(|(_, flow)| *flow));
        numbered.filter(|(_, flow)| flow.is_used()).collect()
    }

    pub(crate) fn devices(&self) -> Vec<DeviceFlow> {
        self.devices.iter().map(|(_, flow)| *flow).collect()
    }

    pub(crate) fn workers(&self) -> Vec<WorkerFlow> {
        self.workers.iter().map(|(_, _, flow)| *flow).collect()
    }

    /// Returns the successful work since the start, by [`Protocol`].
    pub(crate) fn protocols(&self) -> [Work; Protocol::ALL.len()] {
        self.protocols.done
    }
}

impl NamespaceFlow {
    fn is_used(&self) -> bool {
        self.done.requests != [0; 3]
    }

    /// Ends a measurement window of `seconds`, in which the work `new` was done in the namespace.
    fn end(&mut self, new: &Work, seconds: f64) {
        self.done.add(new);
        (self.iops, self.byte_rates) = new.rates(seconds);
        self.recent = new.reads();
    }

    /// Returns the time per stage of the last window's reads in microseconds, as in
    /// [`DeviceFlow::recent_percentile_us`].
    pub fn recent_percentiles_us(&self, tenths: u16) -> [Option<f64>; Stage::ALL.len()] {
        self.recent.map(|histogram| percentile_us(&histogram, tenths))
    }
}

impl DeviceFlow {
    /// Ends a measurement window of `seconds`, in which the work `new` was done on the device's
    /// namespaces.
    fn end(&mut self, reading: &DeviceReading, new: &Work, seconds: f64) {
        self.done.add(new);
        (self.iops, self.byte_rates) = new.rates(seconds);
        self.recent = new.reads();
        self.token_rates = self.tokens_exact.end(&reading.tokens, seconds);
        self.tokens.reach(&self.tokens_exact);
        (self.submitted, self.queued) = (reading.submitted, reading.queued);
        let new = self.errors.iter_mut().zip(reading.errors);
        new.for_each(|(sum, count)| *sum += u64::from(count));
    }

    /// Returns the time at the device in microseconds that `tenths` of a percent of the last
    /// window's sampled reads did not exceed: the upper edge of a bucket; `None` without samples.
    pub fn recent_percentile_us(&self, tenths: u16) -> Option<f64> {
        percentile_us(&self.recent[Stage::Device as usize], tenths)
    }
}

impl TokenFlow {
    /// Adds the tokens of a window of `seconds` to the sums, and returns their flow in tokens per
    /// second.
    fn end(&mut self, new: &Tokens, seconds: f64) -> TokenFlow {
        let Tokens { generated, spent, taxed, donated, borrowed, expired } = *new;
        let [generated, spent, taxed, donated, borrowed, expired] =
            [generated, spent, taxed, donated, borrowed, expired].map(tokens);
        self.generated += generated;
        self.spent += spent;
        self.taxed += taxed;
        self.donated += donated;
        self.borrowed += borrowed;
        self.expired += expired;
        TokenFlow {
            generated: generated / seconds,
            spent: spent / seconds,
            taxed: taxed / seconds,
            donated: donated / seconds,
            borrowed: borrowed / seconds,
            expired: expired / seconds,
        }
    }
}

impl TokenFlow {
    /// Raises each sum to at least the sum of `to`.
    fn reach(&mut self, to: &TokenFlow) {
        self.generated = self.generated.max(to.generated);
        self.spent = self.spent.max(to.spent);
        self.taxed = self.taxed.max(to.taxed);
        self.donated = self.donated.max(to.donated);
        self.borrowed = self.borrowed.max(to.borrowed);
        self.expired = self.expired.max(to.expired);
    }
}

impl WorkerFlow {
    fn end(&mut self, before: &WorkerReading, after: &WorkerReading, seconds: f64) {
        let busy = (after.busy_nanos - before.busy_nanos) as f64 / 1e9;
        self.last.turn_rate = (after.turns - before.turns) as f64 / seconds;
        self.last.busy_share = (busy / seconds).min(1.0);
        let waited = after.waited_nanos.saturating_sub(before.waited_nanos) as f64 / 1e9;
        self.last.waited_share = (waited / seconds).min(1.0);
        self.waited = after.waited_nanos as f64 / 1e9;
        (self.turns, self.busy) = (after.turns, after.busy_nanos as f64 / 1e9);
        let new = |n: usize| (after.parts[n] - before.parts[n]) as f64;
        let all: f64 = (0..TurnPart::ALL.len()).map(new).sum();
        self.last.shares = std::array::from_fn(|n| if all > 0.0 { new(n) / all } else { 0.0 });
        self.parts = after.parts.map(|nanos| nanos as f64 / 1e9);
        let add = |sums: &mut [u64], after: &[u32], before: &[u32]| {
            for ((sum, after), before) in sums.iter_mut().zip(after).zip(before) {
                *sum += u64::from(after.wrapping_sub(*before));
            }
        };
        add(&mut self.failures, &after.failures, &before.failures);
        add(&mut self.ends, &after.ends, &before.ends);
        add(&mut self.moves, &after.moves, &before.moves);
        self.gauges = after.gauges;
    }

    /// Ends a measurement window of `seconds`, in which the worker did the work `new`.
    fn end_work(&mut self, new: Work, seconds: f64) {
        self.done.add(&new);
        (self.last.iops, self.last.byte_rates) = new.rates(seconds);
        self.last.recent = new.reads();
    }

    /// Returns the time per stage of the last window's reads in microseconds, as in
    /// [`DeviceFlow::recent_percentile_us`].
    pub fn recent_percentiles_us(&self, tenths: u16) -> [Option<f64>; Stage::ALL.len()] {
        self.last.recent.map(|histogram| percentile_us(&histogram, tenths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use contract::{CoarseBucket, IoKind};

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Records reads of 512 bytes of a namespace; one of them was at the device for `device_nanos`.
    fn read(meters: &Meters, namespace: u16, reads: u32, device_nanos: u64) {
        let work = &meters.know_namespace(NamespaceId(namespace)).unwrap().work;
        work.record_reads(reads, 512 * u64::from(reads));
        let protocol = meters.protocol(Protocol::NvmeTcp);
        protocol.record(IoKind::Read, 512);
        let times = [(Stage::Scheduler, 9_000), (Stage::Device, device_nanos)];
        for (stage, nanos) in times {
            work.stages.sample(IoKind::Read, stage, CoarseBucket::of(nanos));
            protocol.stages.sample(IoKind::Read, stage, CoarseBucket::of(nanos));
        }
    }

    #[test]
    fn a_window_is_told_beside_the_sums() {
        let meters = [Arc::new(Meters::new(1)), Arc::new(Meters::new(1))];
        let mut flows = Flows::new(1, 2);
        for meters in &meters {
            read(meters, 7, 100, 100_000);
            meters.device(0).tell(3, 2);
            meters.device(0).count_error(DeviceError::Media);
            meters.worker.tell(1, 400_000_000, WorkerGauges::default());
            meters.worker.time(TurnPart::Network, 30);
            meters.worker.time(TurnPart::Kernel, 10);
        }
        let made = Tokens { generated: 3_000_000_000_000, ..Tokens::default() };
        flows.end(&meters, &[made], at(2));
        let [(number, namespace)] = flows.namespaces()[..] else { panic!("one was used") };
        assert_eq!(
            (number, namespace.done.requests, namespace.iops),
            (NamespaceId(7), [200, 0, 0], 100.0)
        );
        let device = flows.devices()[0];
        assert_eq!((device.byte_rates[0], device.submitted, device.queued), (51_200.0, 6, 4));
        assert_eq!((device.token_rates.generated, device.tokens.generated), (15.0, 30.0));
        assert_eq!(device.recent_percentile_us(950), Some(131.072));
        let worker = flows.workers()[0];
        let last = worker.last;
        assert_eq!((last.busy_share, last.shares[0], last.shares[4]), (0.2, 0.75, 0.25));
        read(&meters[0], 7, 1, 1);
        flows.end(&meters, &[made], at(3));
        let shortest = contract::coarse_edge(0).map(|nanos| nanos as f64 / 1e3);
        assert_eq!(flows.devices()[0].recent_percentile_us(950), shortest);
        flows.end(&meters, &[made], at(4));
        let device = flows.devices()[0];
        assert_eq!(device.errors, [2, 0, 0]);
        assert_eq!(
            (device.iops, device.done.requests[0], device.recent_percentile_us(950)),
            (0.0, 201, None)
        );
        assert_eq!((flows.workers()[1].last.busy_share, flows.workers()[1].busy), (0.0, 0.4));
    }

    #[test]
    fn what_is_carried_out_is_somebodys_of_each_kind() {
        let meters = [Arc::new(Meters::new(1)), Arc::new(Meters::new(1))];
        meters.iter().for_each(|meters| meters.namespace(NamespaceId(3)).unwrap().set_device(1));
        let mut flows = Flows::new(2, 2);
        let samples = |work: &Work| work.samples[0].map(|stage| stage.iter().sum::<u64>());
        for second in 1..=2 {
            read(&meters[0], 1, 10, 100_000);
            read(&meters[1], 3, 20, 100_000);
            read(&meters[1], 1024, 5, 100_000);
            flows.end(&meters, &[Tokens::default(); 2], at(second));
        }
        let of = |work: &Work| (work.requests[0], work.bytes[0], samples(work));
        let workers = flows.workers();
        assert_eq!(of(&workers[0].done), (20, 20 * 512, [2, 2, 0]));
        assert_eq!(of(&workers[1].done), (50, 50 * 512, [4, 4, 0]));
        let stages = workers[1].recent_percentiles_us(950);
        assert_eq!((workers[1].last.iops, stages), (25.0, [Some(16.384), Some(131.072), None]));
        let devices = flows.devices().iter().map(|flow| of(&flow.done)).collect::<Vec<_>>();
        assert_eq!(devices, [(30, 30 * 512, [4, 4, 0]), (40, 40 * 512, [2, 2, 0])]);
        let namespaces = flows.namespaces();
        let numbers: Vec<u16> = namespaces.iter().map(|(number, _)| number.0).collect();
        assert_eq!((numbers, samples(&namespaces[1].1.done)), (vec![1, 3, 1024], [2, 2, 0]));
        let [reflex, nvme, _] = flows.protocols();
        assert_eq!((of(&reflex), of(&nvme)), ((0, 0, [0; 3]), (70, 70 * 512, [6, 6, 0])));
    }

    #[test]
    fn what_is_paid_back_makes_no_counter_fall() {
        let meters = [Arc::new(Meters::new(1))];
        let mut flows = Flows::new(1, 1);
        // Units, as the registry of the device counts them: 30 tokens, 10 repaid, 15 more.
        let mut told = Vec::new();
        for (second, spent) in (1..).zip([30, 20, 35]) {
            let tokens = Tokens { spent: spent * 100_000_000_000, ..Tokens::default() };
            flows.end(&meters, &[tokens], at(second));
            let device = flows.devices()[0];
            told.push((device.tokens.spent, device.token_rates.spent));
        }
        assert_eq!(told, [(30.0, 30.0), (30.0, -10.0), (35.0, 15.0)]);
    }
}
