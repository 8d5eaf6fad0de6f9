//! What namespaces, devices and workers do: sums since the start, and the last window.

use std::sync::Arc;

use contract::{
    COARSE_BUCKETS, Coarse, DeviceReading, End, Gauges, Instant, Meters, NAMESPACES_MAX,
    NamespaceId, NamespaceReading, Part, Status, Tokens, WorkerReading,
};

use crate::tally::tokens;

/// Of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NamespaceFlow {
    /// Requests carried out since the start: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes that reads and writes carried.
    pub bytes: [u64; 2],
    /// In the last window, a second: requests, and bytes of reads and of writes.
    pub iops: f64,
    /// See there.
    pub byte_rates: [f64; 2],
}

/// What became of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenFlow {
    /// Made, for tenants or for the bucket.
    pub generated: f64,
    /// Paid for requests, less what was paid back.
    pub spent: f64,
    /// Put into the bucket.
    pub donated: f64,
    /// Taken out of the bucket.
    pub borrowed: f64,
    /// Thrown away when the bucket was emptied.
    pub expired: f64,
}

/// Of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceFlow {
    /// Requests of its namespaces carried out since the start: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes that reads and writes carried.
    pub bytes: [u64; 2],
    /// How long sampled ones were there: reads, others.
    pub samples: [Coarse<u64>; 2],
    /// Tokens since the start: the most that each sum has ever been. What was spent is paid back for
    /// requests that move, and what expires may be a debt; a counter waits until it is made up for.
    pub tokens: TokenFlow,
    /// The sums as they are.
    tokens_exact: TokenFlow,
    /// In the last window, a second: requests, bytes of reads and of writes, tokens.
    pub iops: f64,
    /// See there.
    pub byte_rates: [f64; 2],
    /// See there.
    pub token_rates: TokenFlow,
    /// Samples of reads of the last window.
    pub recent: Coarse<u64>,
    /// Requests at it now, and requests that wait in its schedulers.
    pub submitted: u32,
    /// See there.
    pub queued: u32,
}

/// Of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerFlow {
    /// Turns that did something since the start.
    pub turns: u64,
    /// Seconds that they took, with the system call behind each.
    pub busy: f64,
    /// Seconds of the turns that were timed, by [`Part`].
    pub parts: [f64; Part::ALL.len()],
    /// Requests that were not carried out, by status.
    pub failures: [u64; Status::ALL.len()],
    /// Connections that have ended, by [`End`].
    pub ends: [u64; End::ALL.len()],
    /// Connections that left for other workers, stayed although they were to leave, and arrived.
    pub moves: [u64; 3],
    /// What it holds now.
    pub gauges: Gauges,
    /// In the last window: turns a second, the share in which it did something, and how that is
    /// made up, each from 0 to 1.
    pub turn_rate: f64,
    /// See there.
    pub busy_share: f64,
    /// See there. All zero where nothing was timed.
    pub shares: [f64; Part::ALL.len()],
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Flows {
    ended_at: Instant,
    namespaces: Box<[(NamespaceReading, NamespaceFlow)]>,
    devices: Vec<(DeviceReading, DeviceFlow)>,
    workers: Vec<(WorkerReading, WorkerFlow)>,
}

impl Flows {
    pub(crate) fn new(devices: usize, workers: usize) -> Flows {
        Flows {
            ended_at: Instant::ZERO,
            namespaces: vec![Default::default(); NAMESPACES_MAX].into(),
            devices: vec![Default::default(); devices],
            workers: vec![Default::default(); workers],
        }
    }

    /// There is one more device.
    pub(crate) fn add_device(&mut self) {
        self.devices.push(Default::default());
    }

    /// Ends a window. Beside the workers, the registries of the devices made and threw away tokens.
    pub(crate) fn end(&mut self, meters: &[Arc<Meters>], registries: &[Tokens], now: Instant) {
        let seconds = now.since(self.ended_at).as_secs_f64().max(1e-9);
        self.ended_at = now;
        let mut on_devices = vec![NamespaceFlow::default(); self.devices.len()];
        for (n, (before, flow)) in self.namespaces.iter_mut().enumerate() {
            let number = NamespaceId(n as u16 + 1);
            let each = || meters.iter().filter_map(|meters| meters.namespace(number));
            let mut reading = NamespaceReading::default();
            each().for_each(|meter| meter.add_to(&mut reading));
            let was = *flow;
            flow.end(&std::mem::replace(before, reading), &reading, seconds);
            if let Some(device) = each().next().and_then(|m| on_devices.get_mut(m.device())) {
                device.add_new(flow, &was);
            }
        }
        for (n, (before, flow)) in self.devices.iter_mut().enumerate() {
            let mut reading = DeviceReading { tokens: registries[n], ..Default::default() };
            meters.iter().for_each(|meters| meters.device(n).add_to(&mut reading));
            flow.end(&reading.since(before), &on_devices[n], seconds);
            *before = reading;
        }
        for ((before, flow), meters) in self.workers.iter_mut().zip(meters) {
            let reading = meters.worker.read();
            flow.end(&std::mem::replace(before, reading), &reading, seconds);
        }
    }

    /// The namespaces that were ever used, by number.
    pub(crate) fn namespaces(&self) -> Vec<(NamespaceId, NamespaceFlow)> {
        let numbered = (1..).map(NamespaceId).zip(self.namespaces.iter().map(|(_, flow)| *flow));
        numbered.filter(|(_, flow)| flow.requests != [0; 3]).collect()
    }

    pub(crate) fn devices(&self) -> Vec<DeviceFlow> {
        self.devices.iter().map(|(_, flow)| *flow).collect()
    }

    pub(crate) fn workers(&self) -> Vec<WorkerFlow> {
        self.workers.iter().map(|(_, flow)| *flow).collect()
    }
}

impl NamespaceFlow {
    fn end(&mut self, before: &NamespaceReading, after: &NamespaceReading, seconds: f64) {
        let mut all = 0;
        for (n, sum) in self.requests.iter_mut().enumerate() {
            let new = u64::from(after.requests[n].wrapping_sub(before.requests[n]));
            *sum += new;
            all += new;
        }
        self.iops = all as f64 / seconds;
        for (n, sum) in self.bytes.iter_mut().enumerate() {
            let new = after.bytes[n].wrapping_sub(before.bytes[n]);
            *sum += new;
            self.byte_rates[n] = new as f64 / seconds;
        }
    }
}

impl NamespaceFlow {
    /// Adds what a namespace did since it `was`.
    fn add_new(&mut self, namespace: &NamespaceFlow, was: &NamespaceFlow) {
        for (n, sum) in self.requests.iter_mut().enumerate() {
            *sum += namespace.requests[n] - was.requests[n];
        }
        for (n, sum) in self.bytes.iter_mut().enumerate() {
            *sum += namespace.bytes[n] - was.bytes[n];
        }
    }
}

impl DeviceFlow {
    /// Ends a window; what its namespaces did in it is `carried` out.
    fn end(&mut self, new: &DeviceReading, carried: &NamespaceFlow, seconds: f64) {
        let add = |sums: &mut [u64], new: &[u64]| {
            sums.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
        };
        add(&mut self.requests, &carried.requests);
        add(&mut self.bytes, &carried.bytes);
        for (sums, new) in self.samples.iter_mut().zip(new.samples) {
            add(sums, &new.map(u64::from));
        }
        self.iops = carried.requests.iter().sum::<u64>() as f64 / seconds;
        self.byte_rates = carried.bytes.map(|bytes| bytes as f64 / seconds);
        self.recent = new.samples[0].map(u64::from);
        self.token_rates = self.tokens_exact.end(&new.tokens, seconds);
        self.tokens.reach(&self.tokens_exact);
        (self.submitted, self.queued) = (new.submitted, new.queued);
    }

    /// The time in microseconds that so many tenths of a percent of the reads sampled in the last
    /// window were at the device at most: the upper edge of a bucket; `None` without any.
    pub fn recent_percentile_us(&self, tenths: u16) -> Option<f64> {
        let all: u64 = self.recent.iter().sum();
        let wanted = (all * u64::from(tenths)).div_ceil(1_000).max(1);
        let mut below = 0;
        let found = (0..COARSE_BUCKETS).find(|n| {
            below += self.recent[*n];
            below >= wanted
        })?;
        // The last bucket has no upper edge: its lower one stands for it.
        let edge = contract::coarse_edge(found)
            .or_else(|| found.checked_sub(1).and_then(contract::coarse_edge));
        edge.map(|nanos| nanos as f64 / 1e3)
    }
}

impl TokenFlow {
    /// Adds what is new; what that is a second.
    fn end(&mut self, new: &Tokens, seconds: f64) -> TokenFlow {
        let Tokens { generated, spent, donated, borrowed, expired } = *new;
        let [generated, spent, donated, borrowed, expired] =
            [generated, spent, donated, borrowed, expired].map(tokens);
        self.generated += generated;
        self.spent += spent;
        self.donated += donated;
        self.borrowed += borrowed;
        self.expired += expired;
        TokenFlow {
            generated: generated / seconds,
            spent: spent / seconds,
            donated: donated / seconds,
            borrowed: borrowed / seconds,
            expired: expired / seconds,
        }
    }
}

impl TokenFlow {
    /// Grows to what `to` is.
    fn reach(&mut self, to: &TokenFlow) {
        self.generated = self.generated.max(to.generated);
        self.spent = self.spent.max(to.spent);
        self.donated = self.donated.max(to.donated);
        self.borrowed = self.borrowed.max(to.borrowed);
        self.expired = self.expired.max(to.expired);
    }
}

impl WorkerFlow {
    fn end(&mut self, before: &WorkerReading, after: &WorkerReading, seconds: f64) {
        let busy = (after.busy_nanos - before.busy_nanos) as f64 / 1e9;
        self.turn_rate = (after.turns - before.turns) as f64 / seconds;
        self.busy_share = (busy / seconds).min(1.0);
        (self.turns, self.busy) = (after.turns, after.busy_nanos as f64 / 1e9);
        let new = |n: usize| (after.parts[n] - before.parts[n]) as f64;
        let all: f64 = (0..Part::ALL.len()).map(new).sum();
        self.shares = std::array::from_fn(|n| if all > 0.0 { new(n) / all } else { 0.0 });
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use contract::Kind;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_window_is_told_beside_the_sums() {
        let meters = [Arc::new(Meters::new(1)), Arc::new(Meters::new(1))];
        let mut flows = Flows::new(1, 2);
        for meters in &meters {
            (0..100)
                .for_each(|_| meters.namespace(NamespaceId(7)).unwrap().record(Kind::Read, 512));
            meters.device(0).tell(3, 2);
            meters.device(0).sample(Kind::Read, 100_000);
            meters.worker.tell(1, 400_000_000, Gauges::default());
            meters.worker.time(Part::Network, 30);
            meters.worker.time(Part::Kernel, 10);
        }
        let made = Tokens { generated: 3_000_000_000_000, ..Tokens::default() };
        flows.end(&meters, &[made], at(2));
        let [(number, namespace)] = flows.namespaces()[..] else { panic!("one was used") };
        assert_eq!(
            (number, namespace.requests, namespace.iops),
            (NamespaceId(7), [200, 0, 0], 100.0)
        );
        let device = flows.devices()[0];
        assert_eq!((device.byte_rates[0], device.submitted, device.queued), (51_200.0, 6, 4));
        assert_eq!((device.token_rates.generated, device.tokens.generated), (15.0, 30.0));
        assert_eq!(device.recent_percentile_us(950), Some(131.072));
        let worker = flows.workers()[0];
        assert_eq!((worker.busy_share, worker.shares[0], worker.shares[4]), (0.2, 0.75, 0.25));
        meters[0].device(0).sample(Kind::Read, 1);
        flows.end(&meters, &[made], at(3));
        let shortest = contract::coarse_edge(0).map(|nanos| nanos as f64 / 1e3);
        assert_eq!(flows.devices()[0].recent_percentile_us(950), shortest);
        flows.end(&meters, &[made], at(4));
        let device = flows.devices()[0];
        assert_eq!(
            (device.iops, device.requests[0], device.recent_percentile_us(950)),
            (0.0, 200, None)
        );
        assert_eq!((flows.workers()[1].busy_share, flows.workers()[1].busy), (0.0, 0.4));
    }

    #[test]
    fn what_is_paid_back_makes_no_counter_fall() {
        let meters = [Arc::new(Meters::new(1))];
        let mut flows = Flows::new(1, 1);
        // Units, as the registry of the device counts them: 30 tokens, 10 paid back, 15 more.
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
