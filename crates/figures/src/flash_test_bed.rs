//! A test bed: one device under open-loop load in virtual time. The bed uses the device through its
//! port only, so a calibration learns nothing on it that it could not learn on any device.

use std::time::Duration;

use client::load::{Arrival, Generator, Local, Pace, Path, Pattern, Shape, Tally};
use contract::{BLOCK_BYTES, Device, Instant, SizeClass};
use flash::sim_flash::{SimQueue, SimVolume};
use flash::{DecoratedDevice, Source, Spec};
use qos::PAGE_BYTES;
use qos::calibrate::{LoadResult, Mix, OfferedLoad};

use sim::Arena;

/// Maximum number of requests in flight at the device: that of a few workers.
pub const IN_FLIGHT_MAX: usize = 8192;

/// Maximum bytes of the buffers of all requests in flight.
const BUFFER_BYTES_MAX: usize = 256 << 20;

/// The share of a run, at its beginning, that is warm-up and not measured.
pub const WARMUP: f64 = 0.2;

/// The virtual time for which the device idles between two runs, so that one run does not affect
/// the next.
const REST: Duration = Duration::from_secs(1);

/// The interval between two checks for an overload or a stop, in requests of the load.
const LOOK_GAP: u64 = 2_000;

/// A run is ended as an overload when its median read latency exceeds the largest latency of
/// interest times this.
const GIVE_UP: f64 = 10.0;

/// The number of measured reads below which a run is never ended as an overload.
const COUNT_MIN: u64 = 1_000;

/// The reason why a run has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Requests ended in errors; the value is their number.
    Errors(u64),
    /// Requests are in flight, but the device reports no next event.
    Stuck,
    /// `is_stopped` returned `true`.
    Stopped,
}

/// A device under load in virtual time.
#[derive(Debug)]
pub struct TestBed<D> {
    /// A queue for the load, and a queue for the probes beside it.
    paths: [Local<D>; 2],
    arena: Arena,
    bytes: u64,
    now: Instant,
    runs: u64,
    seed: u64,
    latency_max_us: f64,
    requests: u64,
}

type LoadOnDevice<'a, D> = Generator<&'a mut Local<D>>;

impl<D: Device> TestBed<D> {
    /// Creates a bed for a device from two idle queues to it, one for the load and one for the
    /// probes. A run whose median read latency grows far beyond `latency_max_us` is ended as an
    /// overload.
    pub fn new(queues: [D; 2], latency_max_us: u32, seed: u64) -> Self {
        let bytes = queues[0].geometry().blocks * BLOCK_BYTES as u64;
        let path = |queue: D| {
            let in_flight = IN_FLIGHT_MAX.min(queue.room());
            Local::new(queue, in_flight)
        };
        TestBed {
            paths: queues.map(path),
            arena: Arena::default(),
            bytes,
            now: Instant::ZERO,
            runs: 0,
            seed,
            latency_max_us: f64::from(latency_max_us),
            requests: 0,
        }
    }

    /// Returns the number of requests, probes included, that were measured in all runs.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Offers a load to the device and waits until all of its requests have ended. Calls
    /// `is_stopped` now and then, and ends the run early if it returns `true`.
    ///
    /// # Errors
    /// Returns the reason why the run has no outcome.
    pub fn offer(
        &mut self,
        offer: &OfferedLoad,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<LoadResult, Failure> {
        self.runs += 1;
        let seed = self.seed.wrapping_add(self.runs);
        let [load, probe] = &mut self.paths;
        let mut sources = Vec::with_capacity(2);
        let mut add = |path, shape: Shape| {
            let class = SizeClass { bytes: shape.request_bytes, count: shape.queue_depth };
            let pool = self.arena.pool(&[class]);
            sources.push(Generator::new(self.now, shape, path, pool).expect("nothing is verified"));
        };
        let in_flight = in_flight(offer.mix.bytes, load.in_flight_max());
        add(load, shape(offer, in_flight, self.bytes, seed));
        if offer.mix.is_probed {
            let probes = probes(offer);
            let in_flight = probe.in_flight_max();
            add(probe, shape(&probes, in_flight, self.bytes, seed ^ 1 << 63));
        }
        let mut run = RunState { now: self.now, tallies: [Tally::new(), Tally::new()], end: None };
        run.drive(&mut sources, self.latency_max_us, offer, is_stopped)?;
        let from = sources[0].measured().0;
        let until = sources[0].measured().1;
        let unsent: u64 = sources.iter().map(Generator::unsent).sum();
        for source in sources {
            self.arena.give(source.into_pool().into_bufs());
        }
        self.now = run.now + REST;
        let [load, probe] = &run.tallies;
        self.requests += load.count() + probe.count();
        let errors = load.errors + probe.errors;
        if errors > 0 {
            return Err(Failure::Errors(errors));
        }
        let is_late = unsent as f64 > 0.01 * (offer.iops + offer.probe_iops) * offer.seconds;
        let seconds = until.since(from).as_secs_f64();
        let reads = if offer.mix.is_probed { probe } else { load };
        match run.end {
            Some(EarlyEnd::Stopped) => Err(Failure::Stopped),
            end => Ok(outcome(load, reads, seconds, is_late || end == Some(EarlyEnd::Drowning))),
        }
    }
}

/// The reason why a run ended early: the device is overloaded, or the caller stopped the run.
#[derive(Clone, Copy, PartialEq)]
enum EarlyEnd {
    Drowning,
    Stopped,
}

/// The state of one run: the virtual time, the tallies of load and probes, and the reason of an
/// early end, if any.
struct RunState {
    now: Instant,
    tallies: [Tally; 2],
    end: Option<EarlyEnd>,
}

impl RunState {
    /// Steps from event to event until the run's time is over and no request is in flight.
    fn drive<D: Device>(
        &mut self,
        sources: &mut [LoadOnDevice<'_, D>],
        latency_max_us: f64,
        offer: &OfferedLoad,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let gap = Duration::from_secs_f64(LOOK_GAP as f64 / (offer.iops + offer.probe_iops));
        let mut look_at = self.now;
        loop {
            let now = self.now;
            for source in sources.iter_mut() {
                source.turn(now);
            }
            let until = sources[0].measured().1;
            if now >= look_at && now < until {
                look_at = now + gap;
                self.look(sources, latency_max_us, offer.mix.is_probed, is_stopped);
            }
            let is_over = now >= sources[0].measured().1;
            if is_over && sources.iter().all(|source| source.in_flight() == 0) {
                self.collect(sources);
                return Ok(());
            }
            // A generator stops waiting for requests in flight after a while; a bed does not.
            let wake = |source: &mut LoadOnDevice<'_, D>| match is_over {
                true => source.path().wake_at(),
                false => source.wake_at(now),
            };
            let Some(at) = sources.iter_mut().filter_map(wake).min() else {
                return Err(Failure::Stuck);
            };
            self.now = at.max(now + Duration::from_nanos(1));
        }
    }

    /// Ends the run if the device is overloaded or the caller has stopped it.
    fn look<D: Device>(
        &mut self,
        sources: &mut [LoadOnDevice<'_, D>],
        latency_max_us: f64,
        is_probed: bool,
        is_stopped: &dyn Fn() -> bool,
    ) {
        self.collect(sources);
        if is_drowning(&self.tallies[usize::from(is_probed)], latency_max_us) {
            self.end = Some(EarlyEnd::Drowning);
        }
        if is_stopped() {
            self.end = Some(EarlyEnd::Stopped);
        }
        if self.end.is_some() {
            for source in sources {
                source.stop(self.now);
            }
        }
    }

    fn collect<D: Device>(&mut self, sources: &mut [LoadOnDevice<'_, D>]) {
        for (source, tally) in sources.iter_mut().zip(&mut self.tallies) {
            source.report(tally);
        }
    }
}

/// Returns the maximum number of requests of `bytes` bytes in flight, on a device queue with room
/// for `queue` requests.
pub fn in_flight(bytes: usize, queue: usize) -> usize {
    (BUFFER_BYTES_MAX / bytes).min(IN_FLIGHT_MAX).min(queue)
}

/// Returns the probes of an offer as an offer of their own: reads of 4 KiB at `probe_iops`.
pub fn probes(offer: &OfferedLoad) -> OfferedLoad {
    let mix = Mix { read_percent: 100, bytes: PAGE_BYTES, is_probed: false };
    OfferedLoad { mix, iops: offer.probe_iops, probe_iops: 0.0, ..*offer }
}

/// Maximum number of requests in flight on the probes' queue of a simulated device.
const PROBES_IN_FLIGHT_MAX: usize = 1024;

/// A bed for the simulated device of a spec.
#[derive(Debug)]
pub struct FlashTestBed {
    bed: TestBed<DecoratedDevice<SimQueue>>,
}

impl FlashTestBed {
    /// Opens a bed for the device that the spec names, without its data; `None` if the spec names
    /// no simulated device. The bed uses the device through its port only.
    pub fn open(spec: &Spec, latency_max_us: u32, seed: u64) -> Option<FlashTestBed> {
        let Source::Sim { preset, bytes, age, slow } = &spec.source else { return None };
        let (model, blocks) = (preset.model().slowed(*slow), bytes / BLOCK_BYTES as u64);
        let volume = SimVolume::forgetful(model, blocks, *age, spec.decorations.seed);
        let queues = [(0, IN_FLIGHT_MAX), (1, PROBES_IN_FLIGHT_MAX)]
            .map(|(n, depth)| spec.decorations.wrap(volume.open_queue_of(depth), n));
        Some(FlashTestBed { bed: TestBed::new(queues, latency_max_us, seed) })
    }

    /// Returns the size of the device in bytes.
    pub fn bytes(&self) -> u64 {
        self.bed.bytes
    }

    /// Returns the number of requests, probes included, that were measured in all runs.
    pub fn requests(&self) -> u64 {
        self.bed.requests
    }

    /// Offers a load, like [`TestBed::offer`].
    ///
    /// # Errors
    /// Returns the reason why the run has no outcome.
    pub fn offer(
        &mut self,
        offer: &OfferedLoad,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<LoadResult, Failure> {
        self.bed.offer(offer, is_stopped)
    }
}

/// Returns the settings of the load generator for an offer to the first `span_bytes` bytes of a
/// device, with at most `in_flight` requests in flight.
pub fn shape(offer: &OfferedLoad, in_flight: usize, span_bytes: u64, seed: u64) -> Shape {
    let seconds = Duration::from_secs_f64(offer.seconds);
    Shape {
        read_percent: offer.mix.read_percent,
        request_bytes: offer.mix.bytes,
        lanes: 1,
        queue_depth: in_flight,
        pace: Pace::Open { per_second: offer.iops, arrival: Arrival::Poisson },
        pattern: Pattern::Random,
        first_lba: 0,
        span_bytes,
        fua: false,
        verify: None,
        probe: None,
        warmup: seconds.mul_f64(WARMUP),
        duration: seconds.mul_f64(1.0 - WARMUP),
        seed,
    }
}

/// Returns the rate of `load` and the latencies of `reads` over `seconds` measured seconds. `reads`
/// is the tally of the probes, or of the load itself without probes. Latencies are infinite if
/// `is_overload`.
pub fn outcome(load: &Tally, reads: &Tally, seconds: f64, is_overload: bool) -> LoadResult {
    let latency = &reads.read.latency;
    let micros = |nanos: f64| if is_overload { f64::INFINITY } else { nanos / 1e3 };
    LoadResult {
        iops: if seconds > 0.0 { load.count() as f64 / seconds } else { 0.0 },
        mean_us: micros(latency.mean()),
        p95_us: micros(latency.value_at_quantile(0.95) as f64),
        p99_us: micros(latency.value_at_quantile(0.99) as f64),
    }
}

/// Returns `true` if at least 1 000 reads were measured and their median is more than ten times
/// `latency_max_us`, so that the device is overloaded.
pub fn is_drowning(tally: &Tally, latency_max_us: f64) -> bool {
    let read = &tally.read.latency;
    let p50_us = || read.value_at_quantile(0.5) as f64 / 1e3;
    read.len() >= COUNT_MIN && p50_us() > GIVE_UP * latency_max_us
}
