//! Tests of measurements in virtual time, from the first probe to a restart with the model that was
//! found. A simulated device, the server's prober and the measurement run in one thread, so the
//! outcome depends on a seed alone.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::{
    BLOCK_BYTES, BufPool, Command, Device, Range, SizeClass, SlotTable, Submission, TurnOutcome,
};
use control::admin::{Phase, Recalibrator, StartRecalibration, When};
use dataplane::SocketBackend;
use io::EpollReactor;

use super::*;
use crate::live::LiveConfig;
use crate::live::tests::{live_from, recalibrations};
use crate::recalibrate::Recalibrations;
use crate::recalibrate::prober::ServerProber;

/// A server with device A at an eighth of its speed and at twice the age that its model assumes.
/// The promises fit into the model, and into a new device.
const SERVER: &str = "[[device]]\nname = \"disk\"\nspec = \"sim:a?slow=8&age=2&size=64MiB\"\n\
                      [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
                      [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"32MiB\"\n\
                      [[namespace]]\nname = \"scratch\"\ndevice = \"disk\"\n\
                      offset = \"32MiB\"\nsize = \"16MiB\"\n\
                      [[namespace]]\nname = \"more\"\ndevice = \"disk\"\n\
                      offset = \"48MiB\"\nsize = \"16MiB\"\n\
                      [[tenant]]\nname = \"gold\"\nlatency_us = 4000\niops = 2500\n\
                      [[tenant]]\nname = \"writer\"\nlatency_us = 4000\niops = 6000\n\
                      read_percent = 40\n";

/// The size of each piece in which the device is read.
const PIECE: usize = 128 << 10;

/// The first and the last byte of the namespace `scratch`, as numbers of pieces.
const SCRATCH: std::ops::Range<usize> = (32 << 20) / PIECE..(48 << 20) / PIECE;

/// The shortest time between two turns of the prober.
const TURN: Duration = Duration::from_micros(1);

/// A virtual clock, in nanoseconds.
#[derive(Clone, Default)]
struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Instant) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn clock(&self) -> control::Clock {
        let time = self.clone();
        Arc::new(move || time.now())
    }

    /// Runs the turns of a prober until this time has passed, or after its last turn.
    fn pass(&self, prober: &mut ServerProber, pause: Duration) {
        let end = self.now() + pause;
        while let Some(TurnOutcome { wake_at, .. }) = prober.turn(self.now()) {
            let next = wake_at.unwrap_or(end).max(self.now() + TURN);
            self.set(next.min(end));
            if next >= end {
                break;
            }
        }
    }
}

/// Starts a server without workers, or restarts it with its state file.
fn start(state: &Path, time: &VirtualClock) -> (Arc<LiveConfig>, Arc<Recalibrations>) {
    let live = live_from(SERVER, state, time.clock());
    let all = recalibrations(&live);
    (live, all)
}

/// Measures the device of a server, as a thread of the server does. Returns the results, or why
/// there are none.
fn measured(
    all: &Recalibrations,
    time: &VirtualClock,
    scratch: Option<BlockRange>,
) -> Result<Findings, RecalibrationStop> {
    let prober: RefCell<Option<ServerProber>> = RefCell::new(None);
    let rest = |pause| time.pass(prober.borrow_mut().as_mut().expect("it was opened"), pause);
    let tell = |_: &Recalibration, last: Option<&StepReading>| {
        last.into_iter().for_each(|reading| println!("{:?}: {reading:?}", time.now()));
    };
    let orders = Arc::<ProberControl>::default();
    let order = MeasurementInputs {
        device: "disk",
        scratch,
        gives_way: false,
        orders: orders.clone(),
        is_cancelled: &|| false,
        tell: &tell,
        rest: &rest,
    };
    let (mut run, plan) = Run::begin(&all.tools, &order)?;
    let reactor = EpollReactor::new().unwrap();
    let opened = ServerProber::open::<EpollSockets>(run.prober(), &reactor)?;
    *prober.borrow_mut() = Some(opened);
    run.probe(true);
    let findings = run.steps(Recalibration::new(plan));
    run.probe(false);
    orders.stop();
    rest(Duration::from_secs(1));
    run.end();
    findings
}

/// Returns the number of bytes other than zero in each piece of the device.
fn written(all: &Recalibrations, time: &VirtualClock) -> Vec<usize> {
    let volume = all.tools.places.get(0).unwrap();
    let reactor = EpollReactor::new().unwrap();
    let mut device = volume.open_queue(&EpollSockets::through(&reactor), 0, 2).unwrap();
    let class = SizeClass { bytes: PIECE, count: 1 };
    let mut pool = BufPool::new(io::carve(&[class]).unwrap().bufs);
    let (mut table, mut done) = (SlotTable::new(1), Vec::new());
    let blocks = (PIECE / BLOCK_BYTES) as u32;
    let mut read = |first| {
        let (slot, buf) = (table.insert(()).unwrap(), pool.take(PIECE));
        let command = Command::Read(Range::new(first, blocks));
        device.submit(time.now(), Submission { slot, command, buf });
        device.kick(time.now());
        while done.is_empty() {
            time.set(device.wake_at().unwrap_or(Instant::ZERO).max(time.now() + TURN));
            device.poll(time.now(), &mut done);
        }
        let ended: contract::Completion = done.remove(0);
        table.remove(ended.slot);
        let buf = ended.buf.expect("a read has one");
        let count = buf.bytes()[..PIECE].iter().filter(|byte| **byte != 0).count();
        pool.give(buf);
        count
    };
    (0..volume.blocks()).step_by(blocks as usize).map(&mut read).collect()
}

fn price(all: &Recalibrations) -> u32 {
    all.tools.tenants.registry().devices().model("disk").unwrap().cost().write()
}

/// Returns `true` if the device uses a model that was measured.
fn is_recalibrated(all: &Recalibrations) -> bool {
    all.tools.tenants.registry().devices().infos()[0].is_remodelled
}

#[test]
fn an_aged_device_is_measured_and_its_model_held_accepted_kept_and_undone() {
    let (folder, time) = (tempfile::tempdir().unwrap(), VirtualClock::default());
    let state = folder.path().join("state");
    let (live, all) = start(&state, &time);
    let asked =
        StartRecalibration { when: When::Now, scratch: Some("scratch".into()), accept: false };
    Recalibrator::start(&*all, "disk", &asked).unwrap();
    let asked = all.begin("disk").unwrap();
    let scratch = all.scratch("disk", &asked, &Arc::default()).unwrap();
    let findings = measured(&all, &time, scratch).expect("it can be measured");
    let cost = findings.write_cost.expect("writes were probed");
    println!("after {:?} a write costs {cost:.1} tokens", time.now());
    // The model says 10. How near the truth a measurement comes is shown in
    // `crates/figures/tests/all/recalibrate.rs`.
    assert!((20.0..40.0).contains(&cost), "{cost}");

    // It overwrites what it was given and nothing else.
    for (n, bytes) in written(&all, &time).into_iter().enumerate() {
        let is_scratch = SCRATCH.contains(&n);
        assert_eq!(bytes > 0, is_scratch, "{bytes} bytes of the {n}-th 128 KiB");
    }

    // The tenants' promises do not fit into what was found.
    all.found("disk", &asked, &findings);
    let told = all.recalibration("disk").unwrap().unwrap();
    assert_eq!((told.phase, told.displaced), (Phase::Held, vec!["writer".to_owned()]));
    assert_eq!((price(&all), is_recalibrated(&all)), (1_000, false), "it is not used");
    let told = all.accept("disk").unwrap();
    assert_eq!((told.phase, told.automatic), (Phase::Accepted, false));
    let found = findings.model.cost().write();
    assert_eq!((price(&all), is_recalibrated(&all)), (found, true));

    // It survives a crash, with a tenant that does not fit into it.
    drop((live, all));
    let (live, all) = start(&state, &time);
    assert_eq!((price(&all), is_recalibrated(&all)), (found, true));
    let writer = all.tools.tenants.get("writer").unwrap();
    assert!(matches!(writer.promise, Promise::LatencyCritical(_)), "{:?}", writer.promise);
    all.reset_model("disk").unwrap();
    assert_eq!((price(&all), is_recalibrated(&all)), (1_000, false));
    drop((live, all));
    let (_live, all) = start(&state, &time);
    assert_eq!((price(&all), is_recalibrated(&all)), (1_000, false));
}

#[test]
fn what_takes_too_long_because_of_the_machine_says_so() {
    assert_eq!(too_long(0), "it took more than 600 seconds");
    let said = too_long(3);
    assert!(said.contains("3 steps were made again: the machine is overcommitted"), "{said}");
    assert!(said.ends_with("2.5 % of the time"), "{said}");
}
