//! The registry of a server's tenants: names, numbers, and SLOs on devices.
//!
//! A tenant has one number, which is valid on every device. On its SLO's device, the tenant has
//! this SLO; on all other devices, it is best effort. A number is reused only when every worker has
//! ended its epoch, and none of its requests is in flight or queued.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Instant, Meter, Meters, Namespace, NamespaceId, Promise, Reading, Share, Slo, Tell, TenantId,
    Traces,
};
use qos::{AnyScheduler, CORRECTION_NANOS, Class, Percentile, QueueLimits, Totals, Usage};
use spec::Tenant;

use crate::flows::Flows;
use crate::history::{self, History};
use crate::info::{Admission, DeviceInfo, Origin, Refusal, State, TenantInfo, Verdict, Ways};
use crate::measured::{Promised, Window};
use crate::standing::Standing;
use crate::totals::{TOKEN, TenantTotals};
use crate::work::Work;

/// Maximum number of known names in the refusal of an unknown name.
const NAMES_TOLD_MAX: usize = 20;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) state: State,
    /// The device of the promise.
    pub(crate) device: usize,
    pub(crate) promise: Promise,
    pub(crate) tokens_needed: u64,
    /// The configuration item that names the tenant and so prevents its removal.
    pinned_by: Option<String>,
    pub(crate) window: Window,
    /// Number of answers that named the tenant. Wraps, like the workers' count.
    pub(crate) answers: u32,
    /// Time of the last notice to the tenant.
    pub(crate) noticed_at: Option<Instant>,
    /// Time since which no connection was seen to hold a handle on the tenant.
    pub(crate) alone_since: Option<Instant>,
}

impl Entry {
    fn class(&self) -> Class {
        match (self.state, self.promise) {
            (State::Leaving, _) => Class::Leaving,
            (State::Active, Promise::BestEffort(_)) => Class::BestEffort,
            (State::Active, Promise::LatencyCritical(_)) => Class::LatencyCritical,
        }
    }
}

/// The registry of all tenants of a server. Time is an argument.
#[derive(Debug)]
pub struct TenantRegistry {
    pub(crate) devices: Vec<Device>,
    /// The tenants, by number.
    pub(crate) entries: Vec<Option<Entry>>,
    pub(crate) names: BTreeMap<String, TenantId>,
    /// Numbers without an entry, which no device knows either.
    free: BTreeSet<TenantId>,
    /// Number of tenants that clients made, by the clients' tenant.
    made: HashMap<TenantId, usize>,
    /// Number of times that a number was freed, by number.
    pub(crate) epochs: Vec<u32>,
    /// Sums of the earlier tenants of a number, by number.
    pub(crate) departed: Vec<Option<Box<TenantTotals>>>,
    /// Work of tenants while they were latency-critical, best effort, and leaving.
    pub(crate) classes: [Work; 3],
    /// The meters, by worker.
    pub(crate) meters: Vec<Arc<Meters>>,
    /// The traces, by worker.
    pub(crate) traces: Vec<Arc<Traces>>,
    /// Unregistered tenants that workers have not yet been told of.
    pub(crate) leaves: Vec<TenantId>,
    /// Unregistered tenants whose numbers are not yet free.
    leaving: Vec<TenantId>,
    pub(crate) flows: Flows,
    pub(crate) history: History,
    /// Namespace changes that workers have not yet been told of.
    pub(crate) places: Vec<Tell>,
    /// Total number of namespace changes.
    placed: u64,
    /// `true` while another process takes over: tenants do not change.
    is_frozen: bool,
    measured_at: Instant,
    observed_at: Instant,
}

impl TenantRegistry {
    /// The name of the default tenant, for connections that name none.
    pub const DEFAULT: &'static str = "default";

    /// Returns a registry for these devices and for `workers` workers, with at most `tenants_max`
    /// tenants. The number of the default tenant is reserved for it.
    pub fn new(devices: Vec<DeviceSetup>, workers: usize, tenants_max: usize) -> TenantRegistry {
        assert!(tenants_max > 0 && !devices.is_empty(), "a tenant and a device there must be");
        let device = |setup: DeviceSetup| Device::new(setup, tenants_max);
        TenantRegistry {
            flows: Flows::new(devices.len(), workers),
            history: History::default(),
            devices: devices.into_iter().map(device).collect(),
            entries: (0..tenants_max).map(|_| None).collect(),
            names: BTreeMap::new(),
            free: (0..tenants_max as u32).map(TenantId).collect(),
            made: HashMap::new(),
            epochs: vec![0; tenants_max],
            departed: vec![None; tenants_max],
            classes: Default::default(),
            meters: (0..workers).map(|_| Arc::new(Meters::new(tenants_max))).collect(),
            traces: (0..workers).map(|_| Arc::default()).collect(),
            leaves: Vec::new(),
            leaving: Vec::new(),
            places: Vec::new(),
            placed: 0,
            is_frozen: false,
            measured_at: Instant::ZERO,
            observed_at: Instant::ZERO,
        }
    }

    /// Returns the counters of a worker.
    pub fn meters(&self, worker: usize) -> Arc<Meters> {
        self.meters[worker].clone()
    }

    /// Returns the traces of a worker.
    pub fn traces(&self, worker: usize) -> Arc<Traces> {
        self.traces[worker].clone()
    }

    /// Returns the token scheduler of a worker's queue to a device.
    pub fn scheduler(&self, device: usize, worker: usize, limits: QueueLimits) -> AnyScheduler {
        AnyScheduler::Tokens(self.devices[device].registry.scheduler(worker, limits))
    }

    /// Returns the number of a tenant that is not leaving.
    pub fn find(&self, name: &str) -> Option<TenantId> {
        self.names.get(name).copied()
    }

    /// Returns the names of the tenants that are not leaving, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Builds the "unknown tenant" refusal, listing up to [`NAMES_TOLD_MAX`] existing names.
    pub(crate) fn no_tenant(&self, name: &str) -> Refusal {
        let known = self.names().take(NAMES_TOLD_MAX).map(str::to_owned).collect();
        let others = self.names.len().saturating_sub(NAMES_TOLD_MAX);
        Refusal::NoTenant { name: name.to_owned(), known, others }
    }

    /// Registers a tenant with a promise on a device (the first device by default).
    ///
    /// # Errors
    /// Fails if the name or promise is invalid, or with the reason that it cannot be promised.
    pub fn register(
        &mut self,
        name: &str,
        promise: Promise,
        device: Option<&str>,
        origin: Origin,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let device = self.device(device)?;
        self.register_on(name, promise, device, origin, now)
    }

    pub(crate) fn register_on(
        &mut self,
        name: &str,
        promise: Promise,
        device: usize,
        origin: Origin,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        self.check_thawed()?;
        Tenant::check_name(name).map_err(Refusal::Invalid)?;
        if self.names.contains_key(name) {
            return Err(Refusal::Taken(name.to_owned()));
        }
        if self.devices[device].is_gone {
            return Err(self.no_device(&self.devices[device].name));
        }
        self.check_promise(device, promise)?;
        let tenant = self.room(name, origin).or_else(|_| {
            // Leaving tenants may have left by now.
            self.settle(now);
            self.room(name, origin)
        })?;
        let admission = self.devices[device].registry.register_as(tenant, promise.slo(), now);
        let admission = admission.map_err(|refusal| self.named(refusal))?;
        for (n, other) in self.devices.iter_mut().enumerate().filter(|(n, _)| *n != device) {
            let best_effort = other.registry.register_as(tenant, None, now);
            assert!(best_effort.is_ok(), "best effort is never refused on device {n}");
        }
        let index = tenant.0 as usize;
        self.entries[index] = Some(Entry {
            name: name.to_owned(),
            origin,
            state: State::Active,
            device,
            promise,
            tokens_needed: tokens_up(admission.needed),
            pinned_by: None,
            window: Window::start(self.reading(tenant), now),
            answers: self.answers(tenant),
            noticed_at: None,
            alone_since: Some(now),
        });
        self.names.insert(name.to_owned(), tenant);
        self.free.remove(&tenant);
        if promise.share() != Share::default() {
            self.put_share(tenant, promise.share(), now);
        }
        if let Origin::Client(by) = origin {
            *self.made.entry(by).or_default() += 1;
        }
        Ok(self.admission(tenant))
    }

    /// Returns a number for one more tenant. The number of the default tenant is reserved. The
    /// clients of one tenant get at most a quarter of the table, so that they cannot take its room
    /// from others.
    fn room(&self, name: &str, origin: Origin) -> Result<TenantId, Refusal> {
        let tenants_max = (self.entries.len() / 4).max(1);
        if let Origin::Client(by) = origin
            && self.made.get(&by).is_some_and(|made| *made >= tenants_max)
        {
            return Err(Refusal::TooMany { tenants_max });
        }
        let free = match name {
            TenantRegistry::DEFAULT => self.free.get(&TenantId::DEFAULT),
            _ => self.free.range(TenantId(1)..).next(),
        };
        free.copied().ok_or(Refusal::TableFull { tenants_max: self.entries.len() })
    }

    /// Changes a tenant's promise, also from and to best effort. The device stays.
    ///
    /// # Errors
    /// Fails with the reason if the promise is invalid or not admitted. Then the old one stands.
    pub fn change(
        &mut self,
        name: &str,
        to: Promise<Option<Share>>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let tenant = self.known(name)?;
        self.change_of(tenant, to, now)
    }

    pub(crate) fn change_of(
        &mut self,
        tenant: TenantId,
        to: Promise<Option<Share>>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        self.check_thawed()?;
        let device = self.entry(tenant).device;
        let promise = to.over(self.share_of(tenant));
        if to != Promise::BestEffort(None) {
            self.check_promise(device, promise)?;
        }
        let changed = self.devices[device].registry.change(tenant, promise.slo(), now);
        let admission = changed.map_err(|refusal| self.named(refusal))?;
        let entry = self.entry_mut(tenant);
        entry.promise = promise;
        entry.tokens_needed = tokens_up(admission.needed);
        if let Promise::BestEffort(Some(share)) = to {
            self.put_share(tenant, share, now);
        }
        Ok(self.admission(tenant))
    }

    /// Unregisters a tenant. Its rate and its name are free at once, and its connections' requests
    /// are refused from now on. Its number is free when the last of its requests has ended.
    ///
    /// # Errors
    /// Fails if there is no such tenant, or the configuration names it.
    pub fn unregister(&mut self, name: &str, now: Instant) -> Result<(), Refusal> {
        let tenant = self.check_end(name)?;
        self.unregister_of(tenant, now);
        Ok(())
    }

    /// Checks whether a tenant may be unregistered now; returns its number.
    ///
    /// # Errors
    /// Fails as [`unregister`](TenantRegistry::unregister) does.
    pub fn check_end(&self, name: &str) -> Result<TenantId, Refusal> {
        self.check_thawed()?;
        let tenant = self.known(name)?;
        match &self.entry(tenant).pinned_by {
            Some(by) => Err(Refusal::InUse { name: name.to_owned(), by: by.clone() }),
            None => Ok(tenant),
        }
    }

    pub(crate) fn unregister_of(&mut self, tenant: TenantId, now: Instant) {
        for device in &mut self.devices {
            let left = device.registry.unregister(tenant, now);
            assert!(left.is_ok(), "a tenant is known to every device");
        }
        let entry = self.entry_mut(tenant);
        entry.state = State::Leaving;
        let name = std::mem::take(&mut entry.name);
        self.names.remove(&name);
        self.entry_mut(tenant).name = name;
        self.leaves.push(tenant);
        self.leaving.push(tenant);
    }

    /// Records that the configuration names a tenant, so that it cannot be removed.
    pub fn pin(&mut self, tenant: TenantId, by: &str) {
        self.entry_mut(tenant).pinned_by.get_or_insert_with(|| by.to_owned());
    }

    /// Changes or removes a namespace, and tells the workers.
    /// [`is_placed`](TenantRegistry::is_placed) returns `true` once all workers apply the change.
    pub fn place(&mut self, number: NamespaceId, namespace: Option<Namespace>) {
        self.placed += 1;
        self.places.push(Tell::Place { change: self.placed, number, namespace });
    }

    /// Returns `true` if all workers apply all namespace changes, and no device has requests any
    /// more that the changes forbid.
    pub fn is_placed(&self) -> bool {
        self.meters.iter().all(|meters| meters.placed() == self.placed)
    }

    /// Frees the numbers of tenants that have left: every worker has ended their epoch, and none of
    /// their requests is in flight or queued.
    pub fn settle(&mut self, now: Instant) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|tenant| !self.settle_one(*tenant, now));
        self.leaving = leaving;
    }

    /// Frees the number of a leaving tenant, if possible.
    fn settle_one(&mut self, tenant: TenantId, now: Instant) -> bool {
        let n = tenant.0 as usize;
        let next = self.epochs[n].wrapping_add(1);
        let done = self.meters.iter().all(|meters| {
            let meter = meters.get(tenant).expect("as many meters as numbers");
            // In this order: the count after the end of the epoch includes all requests admitted
            // before.
            meter.epoch() == next && meter.in_flight() == 0
        });
        if done {
            // Before devices forget the tenant.
            let (reading, usage) = (self.reading(tenant), self.usage(tenant));
            let entry = self.entry_mut(tenant);
            let (class, between) = (entry.class(), entry.window.count(reading, usage));
            self.classes[class_index(class)].add(&(&between).into());
        }
        // A number that is already free on one device stays bound by its entry.
        let free = done
            && self.devices.iter_mut().all(|device| {
                device.registry.is_vacant(tenant) || device.registry.remove(tenant, now)
            });
        if free {
            let entry = self.entries[n].take().expect("it was leaving");
            self.epochs[n] = next;
            self.free.insert(tenant);
            if let Origin::Client(by) = entry.origin
                && let hash_map::Entry::Occupied(mut made) = self.made.entry(by)
            {
                *made.get_mut() -= 1;
                if *made.get() == 0 {
                    made.remove();
                }
            }
            if entry.window.totals != TenantTotals::default() {
                self.departed[n].get_or_insert_default().add_totals(&entry.window.totals);
            }
        }
        free
    }

    /// Ends a measurement window and starts the next one.
    pub fn measure(&mut self, now: Instant) {
        self.measured_at = now;
        let mut all = history::Window { ended_at: now, ..history::Window::default() };
        for n in 0..self.entries.len() {
            if self.entries[n].is_none() {
                continue;
            }
            let tenant = TenantId(n as u32);
            let (reading, usage) = (self.reading(tenant), self.usage(tenant));
            let workers = self.meters_of(tenant).filter(|meter| meter.connections() > 0).count();
            let entry = self.entry_mut(tenant);
            let slo = entry.promise.slo();
            let promised = slo.map(|slo| Promised { slo, tokens: entry.tokens_needed });
            let class = entry.class();
            let between = entry.window.end(reading, usage, workers, now, promised);
            all.add_reads(&between);
            let measured = &entry.window.measured;
            all.requests += measured.iops;
            all.bytes[0] += measured.read_bytes;
            all.bytes[1] += measured.written_bytes;
            all.failures += measured.failures;
            let standing = Standing::with(entry.state, slo, entry.tokens_needed, measured);
            all.standings[standing as usize] += 1;
            self.classes[class_index(class)].add(&(&between).into());
        }
        let made = self.devices.iter().map(|device| device.registry.totals().into());
        self.flows.end(&self.meters, &made.collect::<Vec<_>>(), now);
        let devices = self.device_flows();
        all.devices =
            devices.iter().map(|(info, flow)| history::OfDevice::new(info, flow)).collect();
        self.history.push(all);
    }

    /// Corrects the devices' models and bounds their depths by the measurements since the last
    /// call, if these features are [switched on](spec::Switches) and their window is over. Also checks
    /// whether the devices have drifted from their models.
    pub fn observe(&mut self, now: Instant) {
        if now.since(self.observed_at) < Duration::from_nanos(CORRECTION_NANOS) {
            return;
        }
        self.observed_at = now;
        let mut corrected = Vec::new();
        for (n, device) in self.devices.iter_mut().enumerate().filter(|(_, device)| !device.is_gone)
        {
            let before = device.registry.adjustment();
            let adjustment = device.registry.observe(now);
            device.tell_drift(now);
            if adjustment == before {
                continue;
            }
            corrected.push(n);
            tracing::info!(
                device = device.name,
                rate_permille = adjustment.rate_permille,
                write_permille = adjustment.write_permille,
                "the device's model is corrected"
            );
        }
        // A changed price of writes changes the tokens that SLOs need.
        corrected.into_iter().for_each(|n| self.price_tenants(n));
    }

    /// Returns the age of the current measurement window.
    pub fn window(&self, now: Instant) -> Duration {
        now.since(self.measured_at)
    }

    /// Returns all tenants, by number.
    pub fn list(&self) -> Vec<TenantInfo> {
        let numbers = (0..self.entries.len()).filter(|n| self.entries[*n].is_some());
        numbers.map(|n| self.info(TenantId(n as u32))).collect()
    }

    /// Returns all devices.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        let info = |device: &Device| {
            let with_model = |tokens: u64| device.has_model.then_some(tokens / TOKEN);
            DeviceInfo {
                name: device.name.clone(),
                has_model: device.has_model,
                tokens: with_model(device.registry.device_rate()),
                tokens_promised: device.registry.promised().div_ceil(TOKEN),
                tokens_left: with_model(device.registry.left()),
                latency_us: device.registry.latency_us_min(),
                correction: device.registry.is_corrected().then(|| device.registry.adjustment()),
                drift: device.registry.drift(),
                is_remodelled: TenantRegistry::is_remodelled(device),
            }
        };
        self.devices.iter().filter(|device| !device.is_gone).map(info).collect()
    }

    /// Checks whether an SLO would be admitted, and returns remedies if not.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn check(&self, slo: Slo, device: Option<&str>) -> Result<Verdict, Refusal> {
        let device = self.device(device)?;
        if let Err(refusal) = self.check_model(device, slo) {
            return Ok(Verdict::Refused { refusal, ways: Ways::default() });
        }
        Ok(self.verdict(self.devices[device].registry.check(Some(slo))))
    }

    /// Checks whether a tenant's SLO could become this one, and returns remedies if not.
    ///
    /// # Errors
    /// Fails if there is no such tenant.
    pub fn check_change(&self, name: &str, slo: Slo) -> Result<Verdict, Refusal> {
        let tenant = self.known(name)?;
        let device = self.entry(tenant).device;
        if let Err(refusal) = self.check_model(device, slo) {
            return Ok(Verdict::Refused { refusal, ways: Ways::default() });
        }
        Ok(self.verdict(self.devices[device].registry.check_change(tenant, Some(slo))))
    }

    /// Converts a device's verdict to names and tokens.
    fn verdict(&self, verdict: qos::admission::Verdict) -> Verdict {
        match verdict {
            qos::admission::Verdict::Admitted { needed, left } => {
                Verdict::Admitted { tokens_needed: tokens_up(needed), tokens_left: left / TOKEN }
            }
            qos::admission::Verdict::Refused { refusal, ways } => Verdict::Refused {
                refusal: self.named(refusal),
                ways: Ways {
                    iops: ways.iops,
                    latency_us: ways.latency_us,
                    leave: ways.leave.iter().map(|tenant| self.name(*tenant)).collect(),
                },
            },
        }
    }

    /// Checks whether a device knows what such an SLO needs.
    fn check_model(&self, device: usize, slo: Slo) -> Result<(), Refusal> {
        let device = &self.devices[device];
        if !device.has_model {
            return Err(Refusal::NoModel { device: device.name.clone() });
        }
        match Percentile::from_tenths(slo.percentile_tenths) {
            Some(percentile) if device.registry.model().points_at(percentile).is_empty() => {
                Err(Refusal::NotMeasured { device: device.name.clone(), percentile })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn entry(&self, tenant: TenantId) -> &Entry {
        self.entries[tenant.0 as usize].as_ref().expect("a number that was just found")
    }

    pub(crate) fn entry_mut(&mut self, tenant: TenantId) -> &mut Entry {
        self.entries[tenant.0 as usize].as_mut().expect("a number that was just found")
    }

    fn known(&self, name: &str) -> Result<TenantId, Refusal> {
        self.find(name).ok_or_else(|| self.no_tenant(name))
    }

    fn name(&self, tenant: TenantId) -> String {
        self.entry(tenant).name.clone()
    }

    /// Returns a tenant's admission, with the tokens that its device has left now.
    fn admission(&self, tenant: TenantId) -> Admission {
        let entry = self.entry(tenant);
        let device = &self.devices[entry.device];
        Admission {
            name: entry.name.clone(),
            tenant,
            device: device.name.clone(),
            tokens_needed: entry.tokens_needed,
            tokens_left: device.registry.left() / TOKEN,
        }
    }

    /// Converts a device's refusal to names and tokens.
    fn named(&self, refusal: qos::admission::Refusal) -> Refusal {
        use qos::admission::Refusal as Numbered;
        match refusal {
            Numbered::Invalid(what) => Refusal::Invalid(format!("the SLO makes no sense: {what}")),
            Numbered::TableFull => Refusal::TableFull { tenants_max: self.entries.len() },
            Numbered::NoTenant => unreachable!("a tenant is known to every device"),
            Numbered::TooTight { latency_us, tightest_us, percentile } => {
                Refusal::TooTight { latency_us, tightest_us, percentile }
            }
            Numbered::TooMuch(shortage) => Refusal::TooMuch {
                tokens_needed: tokens_up(shortage.needed),
                tokens_available: shortage.available / TOKEN,
                tokens_device: shortage.device / TOKEN,
                latency_us: shortage.latency_us,
                percentile: shortage.percentile,
                limited_by: shortage.limited_by.map(|tenant| self.name(tenant)),
            },
        }
    }

    /// Returns a tenant's counters, summed over all workers.
    pub(crate) fn reading(&self, tenant: TenantId) -> Reading {
        let mut reading = Reading::default();
        self.meters_of(tenant).for_each(|meter| meter.add_to(&mut reading));
        reading
    }

    /// Returns a tenant's usage, summed over the schedulers of all devices.
    fn usage(&self, tenant: TenantId) -> Usage {
        let each = self.devices.iter().map(|device| device.registry.shared().usage(tenant));
        each.fold(Usage::default(), |sum, usage| Usage {
            spent: sum.spent + usage.spent,
            reads: sum.reads + usage.reads,
            writes: sum.writes + usage.writes,
            deficits: sum.deficits + usage.deficits,
            throttled_nanos: sum.throttled_nanos + usage.throttled_nanos,
            donated: sum.donated.wrapping_add(usage.donated),
            borrowed: sum.borrowed.wrapping_add(usage.borrowed),
        })
    }

    /// Returns the token totals of a device's registry, and the nano-units that its tenants and its
    /// bucket hold. Together with the totals of its schedulers, they add up.
    pub fn tokens(&self, device: usize) -> (Totals, i128) {
        let registry = &self.devices[device].registry;
        (registry.totals(), registry.shared().held())
    }

    /// Returns the number of connections that belong to a tenant or hold a handle on it.
    pub(crate) fn connections(&self, tenant: TenantId) -> u32 {
        self.meters_of(tenant).map(Meter::connections).sum()
    }

    /// Returns a tenant's meters, by worker.
    fn meters_of(&self, tenant: TenantId) -> impl Iterator<Item = &Meter> {
        let meters = self.meters.iter();
        meters.map(move |meters| meters.get(tenant).expect("as many meters as numbers"))
    }

    fn answers(&self, tenant: TenantId) -> u32 {
        self.meters_of(tenant).map(Meter::answers).fold(0, u32::wrapping_add)
    }

    /// Returns `true` if a worker has not yet processed an answer that names the tenant: the worker
    /// may give a handle.
    pub(crate) fn is_being_told(&self, tenant: TenantId) -> bool {
        // In this order, and before the handles are counted: see `Meter::note_answer`.
        self.answers(tenant) != self.entry(tenant).answers
    }

    pub(crate) fn info(&self, tenant: TenantId) -> TenantInfo {
        let entry = self.entry(tenant);
        TenantInfo {
            name: entry.name.clone(),
            tenant,
            state: entry.state,
            origin: entry.origin,
            class: entry.class(),
            device: self.devices[entry.device].name.clone(),
            promise: entry.promise,
            tokens_needed: entry.tokens_needed,
            measured: entry.window.measured.clone(),
            connections: self.connections(tenant),
            in_flight: self.meters_of(tenant).map(Meter::in_flight).sum(),
        }
    }
}

/// Returns the index of a class in arrays by class.
pub(crate) fn class_index(class: Class) -> usize {
    match class {
        Class::LatencyCritical => 0,
        Class::BestEffort => 1,
        Class::Leaving | Class::Vacant => 2,
    }
}

/// Converts units to tokens, rounded up.
fn tokens_up(units: u64) -> u64 {
    units.div_ceil(TOKEN)
}

mod batch;
mod device;
mod devices;
mod models;
mod shares;
mod upgrade;

pub use batch::{TenantChange, Undo};
pub(crate) use device::Device;
pub use device::DeviceSetup;

#[cfg(test)]
mod tests;
