//! A single recalibration: it offers probes step by step and watches the tenants meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Promise, TenantId};
use control::{Origin, Standing, State, WINDOW};
use dataplane::KernelInterface;
use io::{CpuWaits, EpollSockets, Sockets};
use qos::recalibrate::{Findings, Plan, Recalibration, Step, StepReading};
use qos::{DelaysCursor, DeviceModel, QueueLimits, Shared, WAITS_MAX, WORKERS_MAX, is_starved};

use super::RecalibrationContext;
use super::prober::{self, BlockRange, PROBES_MAX, ProbeLoad, ProberControl};

/// The shortest and the longest time for which a step measures. In between, a step measures about
/// [`STEP_READS`] reads.
const STEP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
const STEP_READS: f64 = 50_000.0;

/// The time after a change of the load for which latencies settle before the measurement begins.
const SETTLE: Duration = Duration::from_millis(300);

/// The interval at which a step looks at the tenants and at the delays of the device.
const LOOK: Duration = Duration::from_millis(50);

/// The number of reads from which on a tail latency is meaningful.
const LOOK_READS: u64 = 200;

/// The time limit of a recalibration.
const RUN_MAX: Duration = Duration::from_secs(600);

/// The share of a device's token rate that tenants must spend to count as load.
pub(super) const IDLE_SHARE: f64 = 0.2;

/// The reason that a recalibration ended without a result.
#[derive(Debug)]
pub(super) enum RecalibrationStop {
    /// The operator or the server ended the recalibration.
    Cancelled,
    /// Load has come, and the recalibration was only allowed without load.
    GivesWay,
    /// The recalibration is not possible, for this reason.
    Refused(String),
}

impl From<String> for RecalibrationStop {
    fn from(why: String) -> RecalibrationStop {
        RecalibrationStop::Refused(why)
    }
}

/// The inputs of a measurement: the device and settings, and the means to follow and cancel it.
pub(super) struct MeasurementInputs<'a> {
    pub(super) device: &'a str,
    pub(super) scratch: Option<BlockRange>,
    /// `true` if the measurement gives way to load.
    pub(super) gives_way: bool,
    pub(super) orders: Arc<ProberControl>,
    /// Returns true once the measurement was cancelled.
    pub(super) is_cancelled: &'a dyn Fn() -> bool,
    /// Reports the progress before a step, and again with the observation after it.
    pub(super) tell: &'a dyn Fn(&Recalibration, Option<&StepReading>),
    /// Lets time pass while probes are made.
    pub(super) rest: &'a dyn Fn(Duration),
}

/// A running recalibration.
struct Run<'a> {
    tools: &'a RecalibrationContext,
    order: &'a MeasurementInputs<'a>,
    /// The index of the device.
    place: usize,
    /// The tenant of the probes.
    tenant: TenantId,
    shared: Arc<Shared>,
    model: DeviceModel,
    /// The rate of the device in units per second, as known when the run began.
    made: f64,
    begun: Instant,
    /// The tenants that were late before the probes began.
    late: BTreeSet<TenantId>,
    late_at: Instant,
    /// The requests that were submitted up to the last look at tenants; `None` before the first
    /// look.
    looked: Option<SubmissionCounts>,
    /// The number of steps that were repeated because threads had to wait for processors.
    repeats: u32,
}

/// The numbers of probes (reads, writes) and of all requests that were submitted up to the time
/// `at`.
struct SubmissionCounts {
    at: Instant,
    probes: (u64, u64),
    seen: DelaysCursor,
}

/// Measures a device with probes beside its tenants.
pub(super) fn measure(
    tools: &RecalibrationContext,
    order: &MeasurementInputs<'_>,
) -> Result<Findings, RecalibrationStop> {
    let (mut run, plan) = Run::begin(tools, order)?;
    let measured = run.with_prober(Recalibration::new(plan));
    run.end();
    measured
}

/// Returns the device's index, the state that its workers share, and the plan of the measurement.
fn plan(
    tools: &RecalibrationContext,
    order: &MeasurementInputs<'_>,
) -> Result<(usize, Arc<Shared>, Plan), String> {
    let registry = tools.tenants.registry();
    let say = |refusal: control::Refusal| refusal.to_string();
    let (n, shared) = registry.devices().shared(order.device).map_err(say)?;
    let model = registry.devices().model(order.device).map_err(say)?.clone();
    let (bound_us, writes) = (registry.devices().strictest_us(n), order.scratch.is_some());
    Ok((n, shared, Plan { model, bound_us, writes, step: STEP, reads: STEP_READS }))
}

/// Returns the tenants of a device whose reads take longer than promised.
fn late(tools: &RecalibrationContext, device: &str) -> BTreeSet<TenantId> {
    let tenants = tools.tenants.list();
    let is_late = |info: &&control::TenantInfo| {
        info.device == device && info.state == State::Active && Standing::of(info) == Standing::Late
    };
    tenants.iter().filter(is_late).map(|info| info.tenant).collect()
}

/// Returns the message for a recalibration that exceeds its time limit, with the number of steps
/// that were repeated.
fn too_long(repeats: u32) -> String {
    let again = match repeats {
        0 => String::new(),
        n => format!(
            ", and {n} steps were made again: the machine is overcommitted, so workers or probes were \
             ready to run and did not for more than {:.1} % of the time",
            WAITS_MAX * 100.0
        ),
    };
    format!("it took more than {} seconds{again}", RUN_MAX.as_secs())
}

/// Returns the longest wait of a thread for a processor between two readings.
fn longest(before: &[CpuWaits], after: &[CpuWaits]) -> Duration {
    let each = after.iter().zip(before).map(|(after, before)| after.since(before));
    each.max().unwrap_or_default()
}

impl<'a> Run<'a> {
    /// Registers the tenant of the probes. Returns the run and the plan of its measurement.
    fn begin(
        tools: &'a RecalibrationContext,
        order: &'a MeasurementInputs<'a>,
    ) -> Result<(Run<'a>, Plan), RecalibrationStop> {
        let (n, shared, plan) = plan(tools, order)?;
        if tools.workers >= WORKERS_MAX {
            let why =
                format!("probes need a scheduler of their own, and {WORKERS_MAX} workers have all");
            return Err(RecalibrationStop::Refused(why));
        }
        let now = tools.tenants.now();
        let name = format!("(recalibration of device {n})");
        let tenant = {
            let mut registry = tools.tenants.registry();
            let (device, origin) = (Some(order.device), Origin::Configured);
            let admission = registry.register(&name, Promise::default(), device, origin, now);
            let tenant = admission.map_err(|refusal| refusal.to_string())?.tenant;
            registry.pin(tenant, "the recalibration of its device");
            tenant
        };
        let known = tools.tenants.devices().into_iter().find(|device| device.name == order.device);
        let run = Run {
            tools,
            order,
            place: n,
            tenant,
            shared,
            model: plan.model.clone(),
            made: known.and_then(|device| device.tokens).unwrap_or(0) as f64 * 100.0,
            begun: now,
            late: late(tools, order.device),
            late_at: now,
            looked: None,
            repeats: 0,
        };
        Ok((run, plan))
    }

    /// Removes the tenant of the probes, of which none is in flight any more.
    fn end(self) {
        self.tools.tenants.registry().dismiss(self.tenant, self.tools.tenants.now());
    }

    /// Returns the inputs of the prober.
    fn prober(&self) -> prober::ProberInputs {
        let n = self.place;
        let limits = QueueLimits { slots: PROBES_MAX, of_tenant: PROBES_MAX as u32 };
        prober::ProberInputs {
            orders: self.order.orders.clone(),
            volume: self.tools.places.get(n).expect("a device stays while it is measured"),
            device: n,
            scheduler: self.tools.tenants.scheduler(n, self.tools.workers, limits),
            worker: self.tools.workers,
            tenant: self.tenant,
            clock: self.tools.clock,
            seed: self.begun.as_nanos(),
            scratch: self.order.scratch,
        }
    }

    /// Runs a measurement with a thread for the probes.
    fn with_prober(&mut self, recalibration: Recalibration) -> Result<Findings, RecalibrationStop> {
        let tools = self.prober();
        let thread = match self.tools.chosen {
            KernelInterface::IoUring => prober::start::<Sockets>(tools)?,
            KernelInterface::Epoll => prober::start::<EpollSockets>(tools)?,
        };
        self.probe(true);
        let measured = self.steps(recalibration);
        self.probe(false);
        self.order.orders.stop();
        match thread.join() {
            Ok(Ok(())) => measured,
            Ok(Err(why)) => Err(RecalibrationStop::Refused(why)),
            Err(_) => {
                Err(RecalibrationStop::Refused("the thread of the probes has ended".to_owned()))
            }
        }
    }

    fn probe(&self, on: bool) {
        let known = self.tools.tenants.registry().probe(self.order.device, on);
        assert!(known.is_ok(), "devices stay");
    }

    fn steps(&mut self, mut recalibration: Recalibration) -> Result<Findings, RecalibrationStop> {
        loop {
            recalibration.tighten(self.bound_us());
            let Some(step) = recalibration.next_step() else { break };
            (self.order.tell)(&recalibration, None);
            let Some((reading, is_cut)) = self.step(&mut recalibration, &step)? else {
                self.repeats += 1;
                continue;
            };
            recalibration.take(step, reading, is_cut);
            (self.order.tell)(&recalibration, Some(&reading));
        }
        recalibration.findings().map_err(|unfit| RecalibrationStop::Refused(unfit.to_string()))
    }

    /// Returns the strictest latency that is promised on the device now, in microseconds at p95;
    /// `None` without an SLO.
    fn bound_us(&self) -> Option<u32> {
        self.tools.tenants.registry().devices().strictest_us(self.place)
    }

    /// Returns the wait times of the workers and of the probes' thread.
    fn waits(&self) -> Vec<CpuWaits> {
        let mut waits = self.tools.accounts.waits();
        waits.push(self.order.orders.waits());
        waits
    }

    /// Offers the probes of a step and observes the device. Returns the observation, and `true` if
    /// the step was ended early; `None` if threads had to wait for processors.
    fn step(
        &mut self,
        recalibration: &mut Recalibration,
        step: &Step,
    ) -> Result<Option<(StepReading, bool)>, RecalibrationStop> {
        let reads = f64::from(step.read_percent) / 100.0;
        self.order.orders.offer(ProbeLoad { iops: step.iops, reads });
        let (mut all, mut slice) = (DelaysCursor::nothing(), DelaysCursor::nothing());
        slice.look(self.shared.delays());
        let mut is_cut = false;
        let (offered, waits) = (self.tools.tenants.now(), self.waits());
        let (mut begun, mut settled) = (self.tools.tenants.now(), false);
        let mut slow = Vec::new();
        loop {
            (self.order.rest)(LOOK);
            self.check()?;
            // A tenant may have come meanwhile.
            recalibration.tighten(self.bound_us());
            let now = self.tools.tenants.now();
            if !settled && now.since(begun) >= SETTLE {
                all.look(self.shared.delays());
                (begun, settled) = (now, true);
            }
            // A tail of few reads waits for more of them.
            let since = slice.clone().look(self.shared.delays());
            if since.ended() >= LOOK_READS {
                slow.push(recalibration.is_too_late(since.tail_nanos(950) as f64 / 1e3));
                slice.look(self.shared.delays());
            }
            // One look may have met a stall of the machine; two in a row have met the device.
            is_cut |= step.iops > 0.0 && slow.ends_with(&[true, true]);
            if is_cut && !settled {
                all.look(self.shared.delays());
                (begun, settled) = (now, true);
                (self.order.rest)(LOOK);
            }
            let now = self.tools.tenants.now();
            if settled && (is_cut || now.since(begun) >= step.length) {
                let since = all.look(self.shared.delays());
                let write = self.shared.prices().write;
                let length = now.since(begun);
                self.order.orders.offer(ProbeLoad::default());
                let is_starved =
                    is_starved(longest(&waits, &self.waits()), now.since(offered), 950);
                let reading = StepReading::of(&self.model, &since, write, length);
                return Ok((!is_starved).then_some((reading, is_cut)));
            }
        }
    }

    /// Checks that the run may continue.
    fn check(&mut self) -> Result<(), RecalibrationStop> {
        let orders = &self.order.orders;
        if (self.order.is_cancelled)() || orders.is_over() {
            return Err(RecalibrationStop::Cancelled);
        }
        if orders.errors() > 0 {
            let why = "probes ended in errors: a device that fails cannot be measured";
            return Err(RecalibrationStop::Refused(why.to_owned()));
        }
        let now = self.tools.tenants.now();
        if now.since(self.begun) > RUN_MAX {
            return Err(RecalibrationStop::Refused(too_long(self.repeats)));
        }
        if now.since(self.late_at) >= WINDOW {
            self.late_at = now;
            self.check_late()?;
        }
        if self.order.gives_way && self.is_loaded(now) {
            return Err(RecalibrationStop::GivesWay);
        }
        Ok(())
    }

    /// Fails if a tenant has become late. Its reads may then wait elsewhere than at the device, so
    /// the measurement would be wrong, and the tenant needs the device.
    fn check_late(&self) -> Result<(), RecalibrationStop> {
        // Then it is the machine that makes tenants late.
        if self.tools.tenants.registry().activity().starvation().is_some() {
            return Ok(());
        }
        let late = late(self.tools, self.order.device);
        if let Some(tenant) = late.difference(&self.late).next() {
            let name =
                self.tools.tenants.registry().name_of(*tenant, None).unwrap_or("").to_owned();
            let why = format!("tenant {name:?} has become late meanwhile, so it was ended");
            return Err(RecalibrationStop::Refused(why));
        }
        Ok(())
    }

    /// Returns `true` if tenants have spent more than the share [`IDLE_SHARE`] of the device's
    /// tokens since the last call.
    fn is_loaded(&mut self, now: Instant) -> bool {
        let probes = self.order.orders.submitted();
        let Some(looked) = &mut self.looked else {
            let mut seen = DelaysCursor::nothing();
            seen.look(self.shared.delays());
            self.looked = Some(SubmissionCounts { at: now, probes, seen });
            return false;
        };
        let since = looked.seen.look(self.shared.delays());
        let seconds = now.since(looked.at).as_secs_f64().max(1e-3);
        let (reads, writes) = (probes.0 - looked.probes.0, probes.1 - looked.probes.1);
        // Workers publish at the ends of rounds, so a probe may be in one of the counts alone.
        let cost = self.model.cost();
        let others = since.reads.saturating_sub(reads) as f64 * 100.0
            + since.writes.saturating_sub(writes) as f64 * f64::from(cost.write());
        (looked.at, looked.probes) = (now, probes);
        others / seconds > IDLE_SHARE * self.made
    }
}

#[cfg(test)]
mod tests;
