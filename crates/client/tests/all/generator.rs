//! Tests of the load generator against a path that the test controls.

use std::time::Duration;

use contract::{Buf, BufPool, Command, Instant, IoKind, Status};
use nearflash_client::load::{Arrival, Ended, Generator, Pace, Path, Pattern, Shape, Tally};

/// A path that serves each request after `delay`, and nothing during its stall. The path keeps
/// written data, and can be told to damage it.
struct Fake {
    delay: Duration,
    stall: Option<(Instant, Instant)>,
    flying: Vec<Option<(Instant, Command, Option<Buf>)>>,
    bytes: Vec<u8>,
    fault: Fault,
    most: usize,
    lanes: Vec<usize>,
    served: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Writes are acknowledged and forgotten.
    LoseWrites,
    /// Reads return the data of the next request.
    WrongAddress,
    /// Carries out only half of a write.
    Tear,
    /// Every request fails.
    Fail,
}

const CAPACITY: usize = 1 << 20;

impl Fake {
    fn new(delay: Duration, in_flight_max: usize) -> Fake {
        Fake {
            delay,
            stall: None,
            flying: (0..in_flight_max).map(|_| None).collect(),
            bytes: vec![0; CAPACITY],
            fault: Fault::None,
            most: 0,
            lanes: Vec::new(),
            served: 0,
        }
    }

    fn flying(&self) -> usize {
        self.flying.iter().flatten().count()
    }

    fn serve(&mut self, command: Command, buf: Option<&mut Buf>) -> Status {
        let range = command.range().unwrap();
        let mut at = range.lba as usize * 512;
        let Some(buf) = buf else { return Status::Ok };
        match command.kind() {
            IoKind::Read => {
                if self.fault == Fault::WrongAddress {
                    at = (at + range.bytes()) % CAPACITY;
                }
                let data = &self.bytes[at..at + range.bytes()];
                buf.prefix_mut(range.bytes()).copy_from_slice(data);
            }
            _ => {
                let bytes = match self.fault {
                    Fault::LoseWrites => 0,
                    Fault::Tear => range.bytes() / 2,
                    _ => range.bytes(),
                };
                self.bytes[at..at + bytes].copy_from_slice(&buf.bytes()[..bytes]);
            }
        }
        if self.fault == Fault::Fail { Status::MediaError } else { Status::Ok }
    }
}

impl Path for Fake {
    fn in_flight_max(&self) -> usize {
        self.flying.len()
    }

    fn room(&self) -> usize {
        self.flying.len() - self.flying()
    }

    fn reads_need_buffers(&self, _bytes: usize) -> bool {
        true
    }

    fn lost_writes_linger(&self) -> bool {
        false
    }

    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize {
        let index = self.flying.iter().position(Option::is_none).expect("there is room");
        let mut due = now + self.delay;
        if let Some((from, to)) = self.stall
            && now >= from
            && now < to
        {
            due = to + self.delay;
        }
        self.flying[index] = Some((due, command, buf));
        self.lanes.push(lane);
        self.most = self.most.max(self.flying());
        index
    }

    fn flush(&mut self, _now: Instant) {}

    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool {
        let before = ended.len();
        for index in 0..self.flying.len() {
            if self.flying[index].as_ref().is_some_and(|(due, ..)| *due <= now) {
                let (_, command, mut buf) = self.flying[index].take().unwrap();
                let status = self.serve(command, buf.as_mut());
                self.served += 1;
                ended.push(Ended { index, status, buf });
            }
        }
        ended.len() > before
    }

    fn wake_at(&self) -> Option<Instant> {
        self.flying.iter().flatten().map(|(due, ..)| *due).min()
    }
}

fn shape() -> Shape {
    Shape {
        read_percent: 100,
        request_bytes: 4096,
        lanes: 1,
        queue_depth: 1,
        pace: Pace::Closed,
        pattern: Pattern::Random,
        first_lba: 0,
        span_bytes: CAPACITY as u64,
        fua: false,
        verify: None,
        probe: None,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(1),
        seed: 1,
    }
}

/// Runs to the end, jumping from wake to wake.
fn run(shape: Shape, path: Fake) -> (Tally, Generator<Fake>) {
    let count = shape.in_flight_max();
    let bufs = (0..count)
        .map(|n| Buf::new(Box::leak(vec![0; shape.request_bytes].into_boxed_slice()), n as u32));
    let pool = BufPool::new(bufs);
    let mut now = Instant::from_nanos(5_000);
    let mut generator = Generator::new(now, shape, path, pool).unwrap();
    let mut tally = Tally::new();
    loop {
        while generator.turn(now) {}
        if generator.is_finished(now) {
            break;
        }
        now = generator.wake_at(now).expect("there is an end").max(now + Duration::from_nanos(1));
    }
    generator.report(&mut tally);
    (tally, generator)
}

fn open(per_second: f64) -> Pace {
    Pace::Open { per_second, arrival: Arrival::Constant }
}

#[test]
fn a_closed_loop_keeps_its_depth_and_measures_the_delay() {
    let shape = Shape { lanes: 3, queue_depth: 4, ..shape() };
    let (tally, mut generator) = run(shape, Fake::new(Duration::from_micros(100), 12));
    // 12 in flight, 100 µs each, one second.
    assert_eq!(tally.read.count, 120_000 - 12, "those that end with the clock are not counted");
    assert_eq!(generator.path().most, 12);
    let mean = tally.read.latency.mean();
    assert!((99_900.0..100_100.0).contains(&mean), "{mean}");
    let lanes = &generator.path().lanes;
    let share = |lane| lanes.iter().filter(|&&l| l == lane).count();
    assert_eq!([share(0), share(1), share(2)], [lanes.len() / 3; 3]);
}

#[test]
fn the_mix_is_as_asked() {
    let shape = Shape { read_percent: 70, queue_depth: 8, ..shape() };
    let (tally, _) = run(shape, Fake::new(Duration::from_micros(50), 8));
    let reads = tally.read.count as f64 / tally.count() as f64;
    assert!((0.69..0.71).contains(&reads), "{reads}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let shape = Shape { pace: open(5_000.0), queue_depth: 4, ..shape() };
    let (tally, generator) = run(shape, Fake::new(Duration::from_micros(100), 4));
    assert!((4_995..=5_000).contains(&tally.read.count), "{}", tally.read.count);
    assert!(tally.read.latency.max() < 101_000);
    assert_eq!(generator.unsent(), 0);
}

#[test]
fn evenly_spaced_requests_are_evenly_mixed() {
    let shape = Shape { read_percent: 80, pace: open(5_000.0), queue_depth: 4, ..shape() };
    let (tally, _) = run(shape, Fake::new(Duration::from_micros(100), 4));
    let (reads, writes) = (tally.read.count, tally.write.count);
    assert!(reads.abs_diff(4 * writes) <= 4, "every fifth is a write: {reads} and {writes}");
}

#[test]
fn a_stall_is_felt_by_every_request_that_was_meant_to_be_sent_in_it() {
    // 1 000 requests per second, one in flight, 10 µs each; a stall from 0.2 s to 0.4 s. In a
    // closed loop, or if latency counted from the actual sending, only a single request would
    // notice.
    let mut path = Fake::new(Duration::from_micros(10), 1);
    path.stall = Some((Instant::from_nanos(200_000_000), Instant::from_nanos(400_000_000)));
    let shape = Shape { pace: open(1_000.0), ..shape() };
    let (tally, _) = run(shape, path);
    let latency = &tally.read.latency;
    let slow = latency.count_between(1_000_000, u64::MAX);
    // A few more requests wait while the queue of 200 is worked off.
    assert!((198..=203).contains(&slow), "200 requests were meant for the stall: {slow}");
    // The waiting times fall evenly from 200 ms to zero.
    let p90 = latency.value_at_quantile(0.9) as f64;
    assert!((95e6..105e6).contains(&p90), "{p90}");
    assert!((195e6..205e6).contains(&(latency.max() as f64)));
}

#[test]
fn more_than_the_target_can_do_is_told() {
    // 1 ms each and one in flight: at most 1 000 per second.
    let shape = Shape { pace: open(3_000.0), ..shape() };
    let (tally, generator) = run(shape, Fake::new(Duration::from_millis(1), 1));
    assert!((998..=1000).contains(&tally.read.count));
    assert!((1_990..=2_010).contains(&generator.unsent()), "{}", generator.unsent());
    assert!(tally.read.latency.max() > 600_000_000, "the waiting counts");
}

#[test]
fn the_warm_up_is_not_measured() {
    let mut path = Fake::new(Duration::from_micros(100), 1);
    path.stall = Some((Instant::ZERO, Instant::from_nanos(400_000_000)));
    let shape = Shape { warmup: Duration::from_millis(500), ..shape() };
    let (tally, _) = run(shape, path);
    assert!(tally.read.latency.max() < 101_000, "the stall lay in the warm-up");
    assert!((9_990..=10_001).contains(&tally.read.count), "{}", tally.read.count);
}

#[test]
fn the_probe_has_a_lane_of_its_own() {
    let gap = Duration::from_millis(1);
    let shape = Shape { probe: Some(gap), queue_depth: 4, ..shape() };
    let (tally, mut generator) = run(shape, Fake::new(Duration::from_micros(100), 5));
    assert!((905..=911).contains(&tally.probe.count), "{}", tally.probe.count);
    assert_eq!(generator.path().most, 5);
    let probes = generator.path().lanes.iter().filter(|&&lane| lane == 1).count() as u64;
    assert!(probes - tally.probe.count <= 1);
}

#[test]
fn errors_are_counted_and_not_measured() {
    let mut path = Fake::new(Duration::from_micros(100), 1);
    path.fault = Fault::Fail;
    let (tally, _) = run(shape(), path);
    assert_eq!(tally.count(), 0);
    assert!(tally.errors >= 9_998);
}

fn verified(fault: Fault, pattern: Pattern, request_bytes: usize) -> (Tally, Generator<Fake>) {
    let mut path = Fake::new(Duration::from_micros(100), 16);
    path.fault = fault;
    let shape = Shape {
        verify: Some(77),
        read_percent: 50,
        queue_depth: 16,
        span_bytes: 256 << 10,
        pattern,
        request_bytes,
        duration: Duration::from_millis(100),
        ..shape()
    };
    run(shape, path)
}

#[test]
fn a_sound_path_passes_verification() {
    for request_bytes in [512, 1536, 4096, 16 << 10] {
        for pattern in [Pattern::Random, Pattern::Sequential, Pattern::Zipf { theta: 1.2 }] {
            let (tally, generator) = verified(Fault::None, pattern, request_bytes);
            assert_eq!(tally.verify_failures, 0, "{:?}", generator.failures());
            assert!(tally.read.count > 2_000 && tally.write.count > 2_000);
        }
    }
}

#[test]
fn planted_faults_are_caught() {
    for fault in [Fault::LoseWrites, Fault::WrongAddress, Fault::Tear] {
        let (tally, generator) = verified(fault, Pattern::Random, 4096);
        assert!(tally.verify_failures > 100);
        assert!(!generator.failures().is_empty() && generator.failures().len() <= 8);
        assert_eq!(tally.errors, 0);
    }
}
