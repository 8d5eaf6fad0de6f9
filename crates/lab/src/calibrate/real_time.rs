//! Loads in real time. Each thread has a ring and a queue to the device, and makes one load after
//! the other. One additional thread makes the probes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::load::{Generator, Local, Path, Shape, Tally};
use contract::{BufPool, Instant, SizeClass, TurnOutcome};
use dataplane::{FileBackend, Volume};
use figures::flash_test_bed;
use io::{Clock, Ring, SpinPolicy};
use qos::calibrate::{LoadResult, OfferedLoad};

use super::stop::CalibrationError;

/// The longest interval between two readings of the threads' measurements.
const LOOK_GAP: Duration = Duration::from_millis(100);

/// The buffers of each load thread: the sizes in bytes, and for each the maximum number of requests
/// in flight.
const BUFFERS: [SizeClass; 3] = [
    SizeClass { bytes: 4 << 10, count: 1024 },
    SizeClass { bytes: 64 << 10, count: 256 },
    SizeClass { bytes: 1 << 20, count: 64 },
];

/// The time before a timed request at which a thread stops sleeping, to cover its wake-up.
const WAKE_LEAD: Duration = Duration::from_micros(80);

/// The interval at which a thread publishes its measurements.
const REPORT_GAP: Duration = Duration::from_millis(50);

/// The offered load that may stay unsent because a thread had no processor, in seconds of that
/// load. With more, beside one per cent of the run, the device counts as overloaded.
const STALL_SECONDS: f64 = 0.05;

/// The idle time of the device between two loads.
const REST: Duration = Duration::from_millis(300);

/// The time between ordering a load and starting it, so that all threads start at the same moment.
const LEAD: Duration = Duration::from_millis(5);

/// The main thread's handle to the load threads and the probe thread of a calibration.
pub(super) struct CalibrationThreads {
    clock: Clock,
    bytes: u64,
    seed: u64,
    runs: u64,
    latency_us_max: u32,
    requests: u64,
    /// The handles of the load threads, followed by that of the probe thread.
    hands: Vec<LoadThread>,
    done: Receiver<Result<u64, String>>,
    stop: Arc<AtomicBool>,
}

/// The main thread's handle to one load thread.
struct LoadThread {
    jobs: Sender<Job>,
    tally: Arc<Mutex<Tally>>,
}

/// The description of a load that the main thread sends to a load thread.
struct Job {
    shape: Shape,
    start: Instant,
}

/// The state of a load thread.
struct LoadThreadState {
    clock: Clock,
    jobs: Receiver<Job>,
    tally: Arc<Mutex<Tally>>,
    /// The channel for the end of each load: the number of arrivals that were never sent, or an
    /// error.
    done: Sender<Result<u64, String>>,
    stop: Arc<AtomicBool>,
}

impl CalibrationThreads {
    /// Starts `threads` threads for loads, and one for probes.
    pub(super) fn start(
        volume: Arc<Volume>,
        threads: usize,
        latency_us_max: u32,
        seed: u64,
    ) -> Result<CalibrationThreads, String> {
        let clock = Clock::start();
        let (done, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut hands = Vec::new();
        for n in 0..=threads {
            let (jobs, inside_jobs) = channel();
            let tally = Arc::new(Mutex::new(Tally::new()));
            let inside = LoadThreadState {
                clock,
                jobs: inside_jobs,
                tally: tally.clone(),
                done: done.clone(),
                stop: stop.clone(),
            };
            let volume = volume.clone();
            std::thread::Builder::new()
                .name(format!("load{n}"))
                .spawn(move || {
                    if let Err(error) = work(&volume, n, &inside) {
                        let _ = inside.done.send(Err(error));
                    }
                })
                .map_err(|e| format!("cannot start a thread: {e}"))?;
            hands.push(LoadThread { jobs, tally });
        }
        let bytes = volume.bytes();
        let crew = CalibrationThreads {
            clock,
            bytes,
            seed,
            runs: 0,
            latency_us_max,
            requests: 0,
            hands,
            done: results,
            stop,
        };
        Ok(crew)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Runs a load on the threads and returns its rate and latencies. Returns an error if
    /// `is_stopped` returns `true` or a request fails.
    pub(super) fn offer(
        &mut self,
        offer: &OfferedLoad,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<LoadResult, CalibrationError> {
        let shapes = self.shapes(offer);
        let busy = shapes.len();
        let start = self.clock.now() + LEAD;
        self.stop.store(false, Ordering::Relaxed);
        for (hand, shape) in self.hands.iter().zip(shapes) {
            // A thread that has ended says why below.
            let _ = hand.jobs.send(Job { shape, start });
        }
        let mut tallies = [Tally::new(), Tally::new()];
        let (mut left, mut unsent, mut drowning) = (busy, 0, false);
        while left > 0 {
            match self.done.recv_timeout(LOOK_GAP) {
                Ok(Ok(late)) => {
                    left -= 1;
                    unsent += late;
                }
                Ok(Err(error)) => return Err(CalibrationError::Failed(error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CalibrationError::Failed(
                        "the threads of the load have ended".to_owned(),
                    ));
                }
            }
            if is_stopped() {
                return Err(CalibrationError::Interrupted);
            }
            self.collect(&mut tallies);
            let reads = &tallies[usize::from(offer.mix.is_probed)];
            if flash_test_bed::is_drowning(reads, f64::from(self.latency_us_max)) {
                drowning = true;
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        self.collect(&mut tallies);
        std::thread::sleep(REST);
        let [load, probes] = &tallies;
        self.requests += load.count() + probes.count();
        if load.errors + probes.errors > 0 {
            return Err(CalibrationError::of_errors(load.errors + probes.errors));
        }
        let late_seconds = unsent as f64 / (offer.iops + offer.probe_iops);
        let is_late = !drowning && late_seconds > STALL_SECONDS + 0.01 * offer.seconds;
        let seconds = offer.seconds * (1.0 - flash_test_bed::WARMUP);
        let reads = if offer.mix.is_probed { probes } else { load };
        Ok(flash_test_bed::outcome(load, reads, seconds, drowning || is_late))
    }

    /// Returns the load of each thread: an equal part of the offer for each load thread, and the
    /// probes for the last thread if the offer has probes.
    fn shapes(&mut self, offer: &OfferedLoad) -> Vec<Shape> {
        self.runs += 1;
        let seed = self.seed.wrapping_add(self.runs << 16);
        let loads = self.hands.len() - 1;
        let part = OfferedLoad { iops: offer.iops / loads as f64, ..*offer };
        let shape = |offer: &OfferedLoad, seed| {
            flash_test_bed::shape(offer, in_flight(offer.mix.bytes), self.bytes, seed)
        };
        let mut shapes: Vec<Shape> = (0..loads).map(|n| shape(&part, seed + n as u64)).collect();
        if offer.mix.is_probed {
            shapes.push(shape(&flash_test_bed::probes(offer), seed + loads as u64));
        }
        shapes
    }

    fn collect(&self, tallies: &mut [Tally; 2]) {
        let last = self.hands.len() - 1;
        for (n, hand) in self.hands.iter().enumerate() {
            let mut tally = hand.tally.lock().expect("no holder panics");
            tallies[usize::from(n == last)].add(&tally);
            tally.reset();
        }
    }
}

/// Returns the maximum number of requests of `bytes` bytes that one thread keeps in flight.
fn in_flight(bytes: usize) -> usize {
    BUFFERS.iter().find(|class| class.bytes >= bytes).map_or(1, |class| class.count)
}

/// Runs a load thread: opens a queue to the device once, and runs the ordered loads one after
/// another.
fn work(volume: &Volume, n: usize, inside: &LoadThreadState) -> Result<(), String> {
    let ring = Ring::new().map_err(|e| e.to_string())?;
    let device = volume.open_queue(&FileBackend::Ring(&ring), 0, n)?;
    let mut path = Local::new(device, BUFFERS[0].count);
    let mut pool = BufPool::new(io::carve(&BUFFERS).map_err(|e| e.to_string())?.bufs);
    while let Ok(job) = inside.jobs.recv() {
        let generator = Generator::new(job.start, job.shape, &mut path, pool);
        let (unsent, whole) = drive(&ring, generator.map_err(|e| e.to_string())?, inside)?;
        pool = whole;
        if inside.done.send(Ok(unsent)).is_err() {
            break; // Nobody listens any more.
        }
    }
    Ok(())
}

/// Runs one load to its end. Returns the number of arrivals that were never sent, and the buffers
/// for the next load.
fn drive<P: Path>(
    ring: &Ring,
    mut generator: Generator<P>,
    inside: &LoadThreadState,
) -> Result<(u64, BufPool), String> {
    let start = inside.clock.now();
    let mut report_at = start + REPORT_GAP;
    io::run(ring, &inside.clock, SpinPolicy { spin: WAKE_LEAD }, |now| {
        let progressed = generator.turn(now);
        if inside.stop.load(Ordering::Relaxed) {
            generator.stop(now);
        }
        let finished = generator.is_finished(now);
        if now >= report_at || finished {
            report_at = now + REPORT_GAP;
            generator.report(&mut inside.tally.lock().expect("no holder panics"));
        }
        if finished {
            return None;
        }
        let wake_at = generator.wake_at(now).unwrap_or(report_at).min(report_at);
        Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
    });
    if generator.in_flight() > 0 {
        return Err("the device left requests unanswered".to_owned());
    }
    Ok((generator.unsent(), generator.into_pool()))
}
