//! Recalibration of devices beside their tenants: the requests for it, the permission to begin, and
//! the use of its result (docs/explanation/recalibration.md).
//!
//! One thread does one measurement at a time. Deliberately not here: the method
//! (`qos::recalibrate`), and where models are kept (`live`).

mod model_store;
mod prober;
mod run;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use contract::{Instant, NamespaceId};
use control::Tenants;
use control::admin::{Code, Phase, Problem, Recalibration, Recalibrator, StartRecalibration, When};
use dataplane::{DeviceTable, KernelInterface, ThreadAccounts};
use io::Clock;
use qos::{DeviceModel, Drift};

pub(crate) use self::model_store::ModelStore;
use self::prober::{BlockRange, ProberControl};
use self::run::{IDLE_SHARE, MeasurementInputs, RecalibrationStop};
use crate::config::ServerNamespace;
use crate::wait;

/// The interval at which devices are checked for drift and idleness.
const PERIOD: Duration = Duration::from_millis(500);

/// The least time between a device's measurement and its next automatic one.
const AUTOMATIC_PERIOD: Duration = Duration::from_secs(600);

/// The number of times that a recalibration may give way to load. After the last one it is refused.
const GIVE_WAY_MAX: u32 = 20;

/// The number of attempts to reserve scratch space while an operator's change blocks it.
const SCRATCH_TRIES: u32 = 20;

/// The time limit for the end of a cancelled recalibration.
const END_MAX: Duration = Duration::from_secs(10);

/// The time limit for probes to leave a namespace that an operator changes.
const CLEAR_MAX: Duration = Duration::from_secs(2);

/// The reason that an automatic recalibration ends when the policy changes.
const OTHER_POLICY: &str =
    "what the configuration or an operator says of the device is another since";

/// The parts of the server that a measurement uses.
pub(crate) struct RecalibrationContext {
    pub(crate) tenants: Tenants,
    pub(crate) places: Arc<DeviceTable>,
    pub(crate) clock: Clock,
    pub(crate) accounts: ThreadAccounts,
    /// The number of workers, which is also the index of the probes' scheduler.
    pub(crate) workers: usize,
    pub(crate) chosen: KernelInterface,
}

/// The configured recalibration policy of a device.
#[derive(Clone, Debug)]
struct Policy {
    device: String,
    /// `true` if the device is recalibrated automatically when its latency has drifted from its
    /// model and it is idle.
    is_automatic: bool,
    /// The time of little load after which the device counts as idle.
    idle_after: Duration,
    scratch: Option<String>,
}

/// The recalibration of a device that waits, runs, or was the last to end.
struct Job {
    told: Recalibration,
    /// The scratch namespace as the operator named it, by number, since another namespace may get
    /// the name.
    scratch: Option<NamespaceId>,
    /// The measured model that is held back until an operator accepts it.
    held: Option<DeviceModel>,
    is_cancelled: bool,
    /// The time of the request, and later of the end.
    changed_at: Instant,
}

/// The jobs and the policies of all devices.
#[derive(Default)]
struct Jobs {
    policies: Vec<Policy>,
    /// A device that is about to be removed, of which no job is begun.
    leaving: Option<String>,
    /// The jobs by device.
    jobs: BTreeMap<String, Job>,
    /// The job whose probes may be in flight: the space that they may write to, and the switch to
    /// stop them.
    probing: Option<(Option<ServerNamespace>, Arc<ProberControl>)>,
    /// `true` while another process takes over, when no recalibration begins.
    is_halted: bool,
}

/// All recalibrations of a server, at most one at a time for each device.
pub(crate) struct Recalibrations {
    tools: RecalibrationContext,
    store: Arc<dyn ModelStore>,
    inner: Mutex<Jobs>,
    /// Held while a model is stored and then used, so that the stored and the used model are equal.
    modelling: Mutex<()>,
    /// `true` if an operator has waited for the models' lock in vain.
    is_stuck: AtomicBool,
    /// Notified when there is new work.
    news: Condvar,
}

impl Policy {
    fn of(device: &spec::Device) -> Policy {
        Policy {
            device: device.name.clone(),
            is_automatic: device.recalibrates_by_itself(),
            idle_after: device.idle_after(),
            scratch: device.recalibrate_scratch.clone(),
        }
    }

    /// Returns `true` if the policy allows a job. A job of an operator is allowed under every
    /// policy.
    fn wants(&self, job: &Job) -> bool {
        let asked = &job.told.asked;
        !job.told.automatic || self.is_automatic && self.scratch == asked.scratch
    }
}

impl Jobs {
    fn policy(&self, device: &str) -> Policy {
        let policy = self.policies.iter().find(|policy| policy.device == device);
        policy.cloned().unwrap_or_else(|| Policy {
            device: device.to_owned(),
            is_automatic: false,
            idle_after: spec::Device::IDLE_AFTER,
            scratch: None,
        })
    }

    fn is_leaving(&self, device: &str) -> bool {
        self.leaving.as_deref() == Some(device)
    }

    /// Returns true if the device's running recalibration may go on.
    fn is_wanted(&self, device: &str) -> bool {
        !self.is_halted && self.jobs.get(device).is_some_and(|job| !job.is_cancelled)
    }
}

impl Recalibrations {
    /// Adds a device with its recalibration policy.
    pub(crate) fn device_comes(&self, device: &spec::Device) {
        self.lock().policies.push(Policy::of(device));
    }

    /// Ends recalibration probes that write to blocks which the device's new settings forbid. To be
    /// called before the settings are stored, by a caller that prevents new probes.
    ///
    /// # Errors
    /// Probes are in flight there. They end soon, and nothing may change before.
    pub(crate) fn clear_for_device(&self, device: &spec::Device) -> Result<(), Problem> {
        let policy = Policy::of(device);
        let orders = {
            let mut inner = self.lock();
            let ends = |job: &&mut Job| job.told.phase == Phase::Measuring && !policy.wants(job);
            let Some(job) = inner.jobs.get_mut(&device.name).filter(ends) else { return Ok(()) };
            job.is_cancelled = true;
            job.told.why = Some(OTHER_POLICY.to_owned());
            // One device is measured at a time.
            let Some((Some(_), orders)) = &inner.probing else { return Ok(()) };
            orders.clone()
        };
        self.end_probes(&orders)
    }

    /// Applies a device's new settings to automatic recalibration.
    pub(crate) fn device_changes(&self, device: &spec::Device) {
        let (policy, now) = (Policy::of(device), self.tools.tenants.now());
        let mut inner = self.lock();
        if let Some(job) = inner.jobs.get_mut(&device.name) {
            job.follow(&policy, now);
        }
        inner.policies.retain(|policy| policy.device != device.name);
        inner.policies.push(policy);
    }

    /// Locks all models: only the holder of the guard may change one. Taken before any other lock.
    ///
    /// # Errors
    /// Fails if the device is being measured, or is about to be, since the result would refer to
    /// the old model. Fails if the disk that stores models does not answer.
    pub(crate) fn hold_models(&self, device: &str) -> Result<MutexGuard<'_, ()>, Problem> {
        let held = self.lock_models()?;
        match self.lock().jobs.get(device).is_some_and(|job| job.told.phase.is_open()) {
            false => Ok(held),
            true => {
                let message = format!(
                    "device {device:?} is being measured anew; wait for the end of that, or end it with \
                     `nearflash device recalibrate {device} --cancel`"
                );
                Err(Problem::new(Code::Busy, message))
            }
        }
    }

    /// Discards results that refer to a device's old model. Called by the holder of the models'
    /// lock when the device has its new model.
    pub(crate) fn model_changes(&self, device: &str) {
        let now = self.tools.tenants.now();
        let mut inner = self.lock();
        let Some(job) = inner.jobs.get_mut(device) else { return };
        if job.held.take().is_some() {
            job.told.phase = Phase::Cancelled;
            job.told.why = Some("an operator has given the device another model since".to_owned());
            job.changed_at = now;
        }
    }

    /// Forbids new recalibrations of a device that is about to be removed.
    ///
    /// # Errors
    /// The device is being measured.
    pub(crate) fn device_leaves(&self, device: &str) -> Result<(), Problem> {
        let mut inner = self.lock();
        if inner.jobs.get(device).is_some_and(|job| job.told.phase.is_open()) {
            let message = format!(
                "device {device:?} cannot be removed: it is being measured anew; wait for the end of that, or \
                 end it with `nearflash device recalibrate {device} --cancel`"
            );
            return Err(Problem::new(Code::InUse, message));
        }
        inner.leaving = Some(device.to_owned());
        Ok(())
    }

    /// Ends the removal of a device. If `is_gone`, its policy and its job are dropped; else it
    /// stays and may be recalibrated again.
    pub(crate) fn device_left(&self, device: &str, is_gone: bool) {
        let mut inner = self.lock();
        inner.leaving = None;
        if is_gone {
            inner.policies.retain(|policy| policy.device != device);
            inner.jobs.remove(device);
        }
    }

    /// Creates the recalibrations of these devices. No thread runs before the [start](Self::start).
    pub(crate) fn new(
        tools: RecalibrationContext,
        store: Arc<dyn ModelStore>,
        devices: &[spec::Device],
    ) -> Arc<Recalibrations> {
        let policies = devices.iter().map(Policy::of).collect();
        let inner = Mutex::new(Jobs { policies, ..Jobs::default() });
        let (modelling, news) = (Mutex::new(()), Condvar::new());
        let is_stuck = AtomicBool::new(false);
        Arc::new(Recalibrations { tools, store, inner, modelling, is_stuck, news })
    }

    /// Starts the thread that measures.
    pub(crate) fn start(self: &Arc<Recalibrations>) -> Result<(), String> {
        let body = self.clone();
        let thread = std::thread::Builder::new().name("recalibrations".to_owned());
        let started = thread.spawn(move || body.work());
        started.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// Locks all models for an operator, with a time limit: a measurement may hold the lock while a
    /// disk hangs.
    fn lock_models(&self) -> Result<MutexGuard<'_, ()>, Problem> {
        wait::lock_soon(&self.tools.clock, &self.modelling, &self.is_stuck)
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    fn work(&self) {
        let mut idle_since: HashMap<String, Instant> = HashMap::new();
        loop {
            self.look_at_devices(&mut idle_since);
            let due = self.due(&idle_since);
            let Some(device) = due else {
                let inner = self.lock();
                drop(self.news.wait_timeout(inner, PERIOD).expect("no holder panics"));
                continue;
            };
            self.measure(&device);
        }
    }

    /// Updates since when each device has been idle, and begins automatic recalibrations of drifted
    /// devices.
    fn look_at_devices(&self, idle_since: &mut HashMap<String, Instant>) {
        let now = self.tools.tenants.now();
        let devices = self.tools.tenants.registry().device_flows();
        for (info, flow) in devices {
            let made = info.tokens.unwrap_or(0) as f64;
            if flow.token_rates.spent > IDLE_SHARE * made {
                idle_since.remove(&info.name);
                continue;
            }
            idle_since.entry(info.name.clone()).or_insert(now);
            if matches!(info.drift, Some(Drift::Drifted { .. })) {
                self.begin_automatically(&info.name, now);
            }
        }
    }

    /// Begins a recalibration of a device that has drifted, if its policy allows that.
    fn begin_automatically(&self, device: &str, now: Instant) {
        let mut inner = self.lock();
        let Policy { is_automatic, scratch, .. } = inner.policy(device);
        let is_free = inner.jobs.get(device).is_none_or(|job| {
            let is_held = job.told.phase == Phase::Held;
            !job.told.phase.is_open() && !is_held && now.since(job.changed_at) >= AUTOMATIC_PERIOD
        });
        if !is_automatic || !is_free || inner.is_halted || inner.is_leaving(device) {
            return;
        }
        tracing::info!(device, "the device has drifted, and will be measured when it is idle");
        let asked = StartRecalibration { when: When::Idle, scratch, accept: false };
        inner.jobs.insert(device.to_owned(), Job::new(device, asked, true, now));
    }

    /// Returns the device that is to be measured now; `None` if there is none.
    fn due(&self, idle_since: &HashMap<String, Instant>) -> Option<String> {
        let now = self.tools.tenants.now();
        let inner = self.lock();
        if inner.is_halted {
            return None;
        }
        let is_due = |(device, job): &(&String, &Job)| {
            job.told.phase == Phase::Waiting
                && match job.told.asked.when {
                    When::Now => true,
                    When::Idle => idle_since
                        .get(*device)
                        .is_some_and(|since| now.since(*since) >= inner.policy(device).idle_after),
                }
        };
        inner.jobs.iter().find(is_due).map(|(device, _)| device.clone())
    }

    /// Measures a device, and then uses, holds back or refuses the measured model.
    fn measure(&self, device: &str) {
        let orders = Arc::new(ProberControl::default());
        let Some(asked) = self.begin(device) else { return };
        let is_cancelled = || !self.lock().is_wanted(device);
        let rest = || {
            std::thread::sleep(PERIOD);
            !is_cancelled()
        };
        let scratch = match patiently(|| self.scratch(device, &asked, &orders), rest) {
            Ok(scratch) => scratch,
            Err(_) if is_cancelled() => return self.end(device, Phase::Cancelled, None),
            Err(problem) => {
                return self.end(device, Phase::Refused, Some(problem.message));
            }
        };
        let tell = |recalibration: &qos::recalibrate::Recalibration, last: Option<&_>| {
            if let Some(job) = self.lock().jobs.get_mut(device) {
                words::tell(&mut job.told, recalibration, last);
            }
        };
        let order = MeasurementInputs {
            device,
            scratch,
            gives_way: asked.when == When::Idle,
            orders: orders.clone(),
            is_cancelled: &is_cancelled,
            tell: &tell,
            rest: &std::thread::sleep,
        };
        let measured = run::measure(&self.tools, &order);
        // Whatever happened, nobody has to wait for probes any more.
        orders.stop();
        self.lock().probing = None;
        match measured {
            Ok(findings) => self.found(device, &asked, &findings),
            Err(RecalibrationStop::Refused(why)) => self.end(device, Phase::Refused, Some(why)),
            Err(RecalibrationStop::Cancelled) => self.end(device, Phase::Cancelled, None),
            Err(RecalibrationStop::GivesWay) => self.give_way(device),
        }
    }

    fn begin(&self, device: &str) -> Option<StartRecalibration> {
        let mut inner = self.lock();
        let job = inner.jobs.get_mut(device)?;
        job.told.phase = Phase::Measuring;
        job.told.why = None;
        Some(job.told.asked.clone())
    }

    /// Reserves the scratch space that probes may overwrite. No other user gets the space before
    /// the probes have ended.
    fn scratch(
        &self,
        device: &str,
        asked: &StartRecalibration,
        orders: &Arc<ProberControl>,
    ) -> Result<Option<BlockRange>, Problem> {
        let space = asked.scratch.as_deref();
        self.store.with_scratch(device, space, |space| {
            let mut inner = self.lock();
            // A change of what is said of the device has come first, and waits for no probes.
            if !inner.is_wanted(device) {
                return Err(Problem::new(Code::NotFound, "the recalibration was cancelled"));
            }
            let meant = inner.jobs.get(device).and_then(|job| job.scratch);
            let is_other = |it: &&ServerNamespace| meant.is_some_and(|number| number != it.number);
            if let Some(space) = space.filter(is_other) {
                let message = format!(
                    "namespace {:?} is another one than when this was asked for, and is not overwritten",
                    space.name
                );
                return Err(Problem::new(Code::Invalid, message));
            }
            inner.probing = Some((space.cloned(), orders.clone()));
            Ok(space.map(|space| BlockRange { first: space.place.first, blocks: space.place.blocks }))
        })?
    }

    fn end(&self, device: &str, phase: Phase, why: Option<String>) {
        tracing::info!(device, phase = ?phase, why, "the recalibration has ended");
        let mut inner = self.lock();
        inner.probing = None;
        let Some(job) = inner.jobs.get_mut(device) else { return };
        job.told.phase = phase;
        let cancelled = job.told.why.take().filter(|_| phase == Phase::Cancelled);
        job.told.why = why.or(cancelled);
        job.changed_at = self.tools.tenants.now();
    }

    fn give_way(&self, device: &str) {
        let mut inner = self.lock();
        let Some(job) = inner.jobs.get_mut(device) else { return };
        if job.is_cancelled {
            drop(inner);
            return self.end(device, Phase::Cancelled, None);
        }
        job.told.gave_way += 1;
        job.told.phase = Phase::Waiting;
        job.told.why = Some("load has come; it begins anew when that is over".to_owned());
        if job.told.gave_way >= GIVE_WAY_MAX {
            drop(inner);
            let why = format!("it gave way to load {GIVE_WAY_MAX} times");
            self.end(device, Phase::Refused, Some(why));
        }
    }

    /// Uses the measured model of a device, or holds it back until an operator accepts it.
    fn found(
        &self,
        device: &str,
        asked: &StartRecalibration,
        findings: &qos::recalibrate::Findings,
    ) {
        let (displaced, before) = {
            let registry = self.tools.tenants.registry();
            let before =
                registry.devices().model(device).map(|model| model.cost().write()).unwrap_or(1);
            (registry.displaced(device, &findings.model).unwrap_or_default(), before)
        };
        {
            let mut inner = self.lock();
            let Some(job) = inner.jobs.get_mut(device) else { return };
            if job.is_cancelled {
                drop(inner);
                return self.end(device, Phase::Cancelled, None);
            }
            job.told.found = Some(words::found(findings, before));
            job.told.progress_percent = 100.0;
            job.told.displaced = displaced.clone();
            if !displaced.is_empty() && !asked.accept {
                job.held = Some(findings.model.clone());
                let why = "what these tenants were promised does not fit into the model that was \
                           found, so it is not used until it is accepted";
                drop(inner);
                return self.end(device, Phase::Held, Some(why.to_owned()));
            }
        }
        let modelling = self.modelling.lock().expect("no holder of this lock panics");
        // What was measured for minutes waits for as long as another change takes.
        let kept = self.store.keep_model_at_last(device, Some(&findings.model));
        match kept.and_then(|()| self.use_model(&modelling, device, findings.model.clone())) {
            Ok(()) => self.end(device, Phase::Accepted, words::remark(findings)),
            Err(problem) => self.end(device, Phase::Refused, Some(problem.message)),
        }
    }

    /// Makes the device use a model, which was stored before. The caller holds the models' lock. If
    /// the promises that were made meanwhile exceed the model, the stored model becomes the one
    /// that the device keeps.
    fn use_model(
        &self,
        _modelling: &MutexGuard<'_, ()>,
        device: &str,
        model: DeviceModel,
    ) -> Result<(), Problem> {
        let now = self.tools.tenants.now();
        let (refusal, kept) = {
            let mut registry = self.tools.tenants.registry();
            let Err(refusal) = registry.set_model(device, model, now) else { return Ok(()) };
            let devices = registry.devices();
            let (used, configured) = (devices.model(device)?, devices.configured_model(device)?);
            (refusal, (used != configured).then(|| used.clone()))
        };
        if let Err(problem) = self.store.keep_model_at_last(device, kept.as_ref()) {
            tracing::error!(
                device,
                why = problem.message,
                "the state has a model that is not used"
            );
        }
        Err(refusal.into())
    }

    /// Ends the probes that a change of namespaces forbids: probes that write to a namespace that
    /// moves or goes, or where a new one comes. To be called before the change is stored, under the
    /// lock that keeps new probes from beginning.
    ///
    /// # Errors
    /// Probes are in flight there. They end soon, and nothing may change before.
    pub(crate) fn clear_for(&self, spaces: &[ServerNamespace]) -> Result<(), Problem> {
        let orders = {
            let inner = self.lock();
            let Some((Some(scratch), orders)) = &inner.probing else { return Ok(()) };
            let meets =
                |other: &ServerNamespace| other.number != scratch.number && scratch.meets(other);
            let stays =
                |one: &ServerNamespace| (one.number, one.place) == (scratch.number, scratch.place);
            if spaces.iter().any(stays) && !spaces.iter().any(meets) {
                return Ok(());
            }
            orders.clone()
        };
        self.end_probes(&orders)
    }

    /// Stops the probes, and waits for their end for a limited time.
    ///
    /// # Errors
    /// Probes are still in flight.
    fn end_probes(&self, orders: &Arc<ProberControl>) -> Result<(), Problem> {
        orders.stop();
        // Those that never began do not end, either.
        let is_theirs = |probing: &(_, Arc<ProberControl>)| Arc::ptr_eq(&probing.1, orders);
        let is_over = || orders.is_over() || !self.lock().probing.as_ref().is_some_and(is_theirs);
        match wait::until(&self.tools.clock, CLEAR_MAX, is_over) {
            true => Ok(()),
            false => {
                let message = "probes of a recalibration are still at the device, in a namespace that \
                               would be theirs no more; nothing was changed, and no more follow: try \
                               again";
                Err(Problem::new(Code::Busy, message))
            }
        }
    }

    /// With `true`, cancels the running recalibration, waits for its end, and lets none begin while
    /// another process takes over. With `false`, lets them begin again.
    pub(crate) fn halt(&self, is_halted: bool) {
        self.lock().is_halted = is_halted;
        let is_over = || self.lock().probing.is_none();
        if is_halted && !wait::until(&self.tools.clock, END_MAX, is_over) {
            tracing::error!("a recalibration has not ended");
        }
    }

    /// Checks that a device exists and has a model, so that it can be recalibrated.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    fn check_device(&self, device: &str) -> Result<(), Problem> {
        Ok(self.tools.tenants.registry().devices().model(device).map(drop)?)
    }
}

/// Repeats an attempt that a change in progress may block, a bounded number of times. `rest` waits
/// between attempts, and returns `true` to go on.
fn patiently<T>(
    mut attempt: impl FnMut() -> Result<T, Problem>,
    mut rest: impl FnMut() -> bool,
) -> Result<T, Problem> {
    for _ in 1..SCRATCH_TRIES {
        match attempt() {
            Err(problem) if problem.code == Code::Busy && rest() => {}
            done => return done,
        }
    }
    attempt()
}

impl Job {
    fn new(device: &str, asked: StartRecalibration, automatic: bool, now: Instant) -> Job {
        let told = words::waiting(device, asked, automatic);
        Job { told, scratch: None, held: None, is_cancelled: false, changed_at: now }
    }

    /// Applies a changed policy to the device's job: an automatic job that the policy no longer
    /// allows is cancelled, or gets the new scratch namespace if it waits.
    fn follow(&mut self, policy: &Policy, now: Instant) {
        if policy.wants(self) {
            return;
        }
        match self.told.phase {
            Phase::Waiting if policy.is_automatic => {
                self.told.asked.scratch.clone_from(&policy.scratch);
            }
            Phase::Waiting => {
                self.is_cancelled = true;
                self.told.phase = Phase::Cancelled;
                self.told.why = Some(OTHER_POLICY.to_owned());
                self.changed_at = now;
            }
            Phase::Measuring => self.is_cancelled = true,
            _ => {}
        }
    }
}

impl Recalibrator for Recalibrations {
    fn start(&self, device: &str, how: &StartRecalibration) -> Result<Recalibration, Problem> {
        self.check_device(device)?;
        // What is wrong with the namespace is said at once.
        let number_of = |space: Option<&ServerNamespace>| space.map(|space| space.number);
        let scratch = self.store.with_scratch(device, how.scratch.as_deref(), number_of)?;
        let now = self.tools.tenants.now();
        let mut inner = self.lock();
        if inner.is_halted {
            return Err(Problem::new(Code::Busy, control::UPGRADING));
        }
        if inner.is_leaving(device) {
            return Err(Problem::new(Code::Busy, format!("device {device:?} is being removed")));
        }
        if inner.jobs.get(device).is_some_and(|job| job.told.phase.is_open()) {
            let message = format!("device {device:?} is being measured already");
            return Err(Problem::new(Code::Busy, message));
        }
        let job = Job { scratch, ..Job::new(device, how.clone(), false, now) };
        let told = job.told.clone();
        inner.jobs.insert(device.to_owned(), job);
        self.news.notify_all();
        Ok(told)
    }

    fn recalibration(&self, device: &str) -> Result<Option<Recalibration>, Problem> {
        self.check_device(device)?;
        Ok(self.lock().jobs.get(device).map(|job| job.told.clone()))
    }

    fn accept(&self, device: &str) -> Result<Recalibration, Problem> {
        self.check_device(device)?;
        // What is held is forgotten with the model beside which it was found.
        let modelling = self.lock_models()?;
        let held = {
            let inner = self.lock();
            inner.jobs.get(device).and_then(|job| job.held.clone())
        };
        let Some(model) = held else {
            let message = format!("nothing that was found of device {device:?} is held back");
            return Err(Problem::new(Code::NotFound, message));
        };
        self.store.keep_model(device, Some(&model))?;
        self.use_model(&modelling, device, model)?;
        let mut inner = self.lock();
        let job = inner.jobs.get_mut(device).expect("a job stays until there is another");
        // Another may have been asked for meanwhile.
        if job.held.take().is_some() {
            job.told.phase = Phase::Accepted;
            job.told.why = Some("an operator has accepted it".to_owned());
        }
        Ok(job.told.clone())
    }

    fn cancel(&self, device: &str) -> Result<(), Problem> {
        self.check_device(device)?;
        let now = self.tools.tenants.now();
        let mut inner = self.lock();
        let job = inner.jobs.get_mut(device);
        let may_end = |job: &&mut Job| job.told.phase.is_open() || job.held.is_some();
        let Some(job) = job.filter(may_end) else {
            let message = format!("device {device:?} is not being measured");
            return Err(Problem::new(Code::NotFound, message));
        };
        job.is_cancelled = true;
        job.held = None;
        job.changed_at = now;
        if job.told.phase != Phase::Measuring {
            job.told.phase = Phase::Cancelled;
        }
        Ok(())
    }

    fn reset_model(&self, device: &str) -> Result<(), Problem> {
        let modelling = self.lock_models()?;
        if self.lock().jobs.get(device).is_some_and(|job| job.told.phase == Phase::Measuring) {
            let message = format!("device {device:?} is being measured; cancel that first");
            return Err(Problem::new(Code::Busy, message));
        }
        // An operator may have named another one until just now.
        let configured = self.tools.tenants.registry().devices().configured_model(device)?.clone();
        self.store.keep_model(device, None)?;
        self.use_model(&modelling, device, configured)
    }
}

#[cfg(test)]
mod tests;
