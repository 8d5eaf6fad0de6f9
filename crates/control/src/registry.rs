//! The registry of a server's tenants: names, numbers, and SLOs on devices.
//!
//! A tenant has one number, which is valid on every device. On its SLO's device, the tenant has
//! this SLO; on all other devices, it is best effort. A number is reused only when every worker has
//! ended its epoch, and none of its requests is in flight or queued.
//!
//! The registry is made of parts, and does what concerns several of them: the [table] of
//! tenants, the [devices], the [counters](meters) of workers, the [news] for workers, and the
//! [activity] of all.

mod activity;
mod batch;
mod changes;
mod device;
mod devices;
pub(crate) mod holdings;
mod meters;
mod news;
pub(crate) mod proposed_promises;
mod table;
mod verdicts;
mod waits;

use std::sync::Arc;

use contract::{
    Instant, Member, Meters, Namespace, NamespaceId, Promise, Share, Slo, TenantId, Traces,
    WorkerMessage,
};

use crate::flows::DeviceFlow;
use crate::history;
use crate::info::{Admission, DeviceInfo, Origin, Refusal, State, TenantInfo, Verdict, Ways};
use crate::measured::{JudgedSlo, Window};
use crate::standing::Standing;
use crate::totals::TOKEN;

pub use activity::Activity;
pub(crate) use activity::class_index;
pub use batch::{Batch, TenantChange};
pub use device::DeviceSetup;
pub use devices::Devices;
use meters::WorkerMeters;
use news::WorkerUpdates;
pub(crate) use table::{Entry, TenantTable};
use verdicts::{named, tokens_up, verdict};
use waits::Waits;

/// The registry of all tenants of a server. Time is an argument.
#[derive(Debug)]
pub struct TenantRegistry {
    pub(crate) tenants: TenantTable,
    devices: Devices,
    pub(crate) meters: WorkerMeters,
    news: WorkerUpdates,
    activity: Activity,
    waits: Waits,
    /// Unregistered tenants whose numbers are not yet free.
    leaving: Vec<TenantId>,
    /// `true` while another process takes over: tenants do not change.
    is_frozen: bool,
}

impl TenantRegistry {
    /// The name of the default tenant, for connections that name none.
    pub const DEFAULT: &'static str = table::DEFAULT;

    /// Returns a registry for these devices and for `workers` workers, with at most `tenants_max`
    /// tenants. The number of the default tenant is reserved for it.
    pub fn new(devices: Vec<DeviceSetup>, workers: usize, tenants_max: usize) -> TenantRegistry {
        assert!(tenants_max > 0 && !devices.is_empty(), "a tenant and a device there must be");
        TenantRegistry {
            tenants: TenantTable::new(tenants_max),
            activity: Activity::new(devices.len(), workers),
            devices: Devices::new(devices, tenants_max),
            meters: WorkerMeters::new(workers, tenants_max),
            news: WorkerUpdates::default(),
            waits: Waits::default(),
            leaving: Vec::new(),
            is_frozen: false,
        }
    }

    /// Returns the devices that the tenants share.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Returns the activity of all tenants together.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Returns the counters of a worker.
    pub fn meters(&self, worker: usize) -> Arc<Meters> {
        self.meters.all()[worker].clone()
    }

    /// Returns the traces of a worker.
    pub fn traces(&self, worker: usize) -> Arc<Traces> {
        self.meters.traces()[worker].clone()
    }

    /// Returns the number of the tenant of this name; `None` if there is none that is not leaving.
    pub fn find(&self, name: &str) -> Option<TenantId> {
        self.tenants.find(name)
    }

    /// Returns the names of the tenants that are not leaving, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tenants.names()
    }

    /// Builds the "unknown tenant" refusal, listing some existing names.
    pub(crate) fn no_tenant(&self, name: &str) -> Refusal {
        self.tenants.no_tenant(name)
    }

    /// Returns the name of a tenant; `None` if it is leaving, or its number is free or not in the
    /// given `epoch`.
    pub fn name_of(&self, tenant: TenantId, epoch: Option<u32>) -> Option<&str> {
        let entry = match epoch {
            Some(epoch) => self.tenants.current(Member { tenant, epoch }),
            None => self.tenants.get(tenant).filter(|entry| entry.is_active()),
        };
        entry.map(|entry| entry.name.as_str())
    }

    /// Returns the tenant of a name, in the current epoch of its number; `None` if there is none.
    pub fn member(&self, name: &str) -> Option<Member> {
        Some(self.tenants.member(self.find(name)?))
    }

    /// Returns the origin of a tenant; `None` if its number is not in use.
    pub fn origin(&self, tenant: TenantId) -> Option<Origin> {
        self.tenants.get(tenant).map(|entry| entry.origin)
    }

    /// Freezes or unfreezes the registry. While frozen, tenants only end by themselves.
    pub fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Checks that the registry is not frozen.
    ///
    /// # Errors
    /// Fails if the registry is frozen.
    pub(crate) fn check_thawed(&self) -> Result<(), Refusal> {
        if self.is_frozen { Err(Refusal::Upgrading) } else { Ok(()) }
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
        let device = self.devices.find(device)?;
        self.register_on(name, promise, device, origin, now)
    }

    pub(crate) fn register_on(
        &mut self,
        name: &str,
        promise: Promise,
        place: usize,
        origin: Origin,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        self.check_thawed()?;
        self.tenants.check_new(name)?;
        let device = self.devices.at(place);
        if device.is_gone {
            return Err(self.devices.no_device(&device.name));
        }
        device.check_promise(promise)?;
        let tenant = self.tenants.room(name, origin).or_else(|_| {
            // Leaving tenants may have left by now.
            self.settle(now);
            self.tenants.room(name, origin)
        })?;
        let admission = self.devices.register(tenant, promise, place, now);
        let admission = admission.map_err(|refusal| named(&self.tenants, refusal))?;
        let entry = Entry {
            name: name.to_owned(),
            origin,
            state: State::Active,
            device: place,
            promise,
            tokens_needed: tokens_up(admission.needed),
            note: None,
            pinned_by: None,
            window: Window::start(self.meters.reading(tenant), now),
            answers: self.meters.answers(tenant),
            noticed_at: None,
            alone_since: Some(now),
        };
        self.tenants.add(tenant, entry);
        Ok(self.admission(tenant))
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
        let tenant = self.tenants.known(name)?;
        self.change_of(tenant, to, None, now)
    }

    /// Changes a tenant's promise, and the device that it is about: `place` is the index of the new
    /// device, and `None` keeps the device. The tenant is best effort on the device that it leaves.
    pub(crate) fn change_of(
        &mut self,
        tenant: TenantId,
        to: Promise<Option<Share>>,
        place: Option<usize>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        self.check_thawed()?;
        let entry = self.tenants.entry_mut(tenant);
        let (from, place) = (entry.device, place.unwrap_or(entry.device));
        let promise = to.over(self.devices.at(from).share_of(tenant));
        let admission = match self.devices.change(tenant, (to, promise), (from, place), now) {
            Ok(admission) => admission,
            Err(why) => return Err(why.unwrap_or_else(|why| named(&self.tenants, why))),
        };
        (entry.promise, entry.device) = (promise, place);
        entry.tokens_needed = tokens_up(admission.needed);
        Ok(self.admission(tenant))
    }

    /// Unregisters a tenant. Its rate and its name are free at once, and its connections' requests
    /// are refused from now on. Its number is free when the last of its requests has ended.
    ///
    /// # Errors
    /// Fails if there is no such tenant, or the configuration names it.
    pub fn unregister(&mut self, name: &str, now: Instant) -> Result<(), Refusal> {
        let tenant = self.check_end(name)?;
        self.dismiss(tenant, now);
        Ok(())
    }

    /// Checks whether a tenant may be unregistered now; returns its number.
    ///
    /// # Errors
    /// Fails as [`unregister`](TenantRegistry::unregister) does.
    pub fn check_end(&self, name: &str) -> Result<TenantId, Refusal> {
        self.check_thawed()?;
        let tenant = self.tenants.known(name)?;
        match &self.tenants.entry(tenant).pinned_by {
            Some(by) => Err(Refusal::InUse { name: name.to_owned(), by: by.clone() }),
            None => Ok(tenant),
        }
    }

    /// Unregisters a tenant, even if the registry is frozen or the configuration names the tenant.
    pub fn dismiss(&mut self, tenant: TenantId, now: Instant) {
        self.devices.unregister(tenant, now);
        self.tenants.leave(tenant);
        self.news.leave(tenant);
        self.leaving.push(tenant);
    }

    /// Records that the configuration names a tenant, so that it cannot be removed.
    pub fn pin(&mut self, tenant: TenantId, by: &str) {
        self.tenants.entry_mut(tenant).pinned_by.get_or_insert_with(|| by.to_owned());
    }

    /// Announces to all workers the change of a namespace, or with `None` its removal.
    /// [`is_placed`](TenantRegistry::is_placed) returns `true` once all workers apply the change.
    pub fn place(&mut self, number: NamespaceId, namespace: Option<Namespace>, name: Arc<str>) {
        self.news.place(number, namespace, name);
    }

    /// Returns `true` if all workers apply all namespace changes, and no device has requests any
    /// more that the changes forbid.
    pub fn is_placed(&self) -> bool {
        self.meters.have_placed(self.news.placed())
    }

    /// Takes the queued messages that must be sent to all workers.
    pub(crate) fn take_news(&mut self) -> impl Iterator<Item = WorkerMessage> {
        self.news.take()
    }

    /// Frees the numbers of tenants that have left: every worker has ended their epoch, and none of
    /// their requests is in flight or queued.
    pub fn settle(&mut self, now: Instant) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|tenant| !self.settle_one(*tenant, now));
        self.leaving = leaving;
    }

    /// Frees the number of a leaving tenant, if possible. Returns `true` if the number is free.
    fn settle_one(&mut self, tenant: TenantId, now: Instant) -> bool {
        if !self.meters.has_left(tenant, self.tenants.next_epoch(tenant)) {
            return false;
        }
        // Before devices forget the tenant.
        let (reading, usage) = (self.meters.reading(tenant), self.devices.usage(tenant));
        let entry = self.tenants.entry_mut(tenant);
        self.activity.count(entry.class(), &entry.window.count(reading, usage));
        let is_free = self.devices.forget(tenant, now);
        if is_free {
            self.tenants.remove(tenant);
        }
        is_free
    }

    /// Ends a measurement window and starts the next one.
    pub fn measure(&mut self, now: Instant) {
        let mut all = history::Window { ended_at: now, ..history::Window::default() };
        for tenant in self.tenants.numbers() {
            let Some(entry) = self.tenants.get_mut(tenant) else { continue };
            let (reading, usage) = (self.meters.reading(tenant), self.devices.usage(tenant));
            let (workers, slo) = (self.meters.workers_of(tenant), entry.promise.slo());
            let promised = slo.map(|slo| JudgedSlo { slo, tokens: entry.tokens_needed });
            let between = entry.window.end(reading, usage, workers, now, promised);
            all.add_reads(&between);
            all.add_measured(&entry.window.measured);
            let standing = entry.standing();
            all.standings[standing as usize] += 1;
            if standing == Standing::Late {
                self.activity.add_late(tenant, entry, &self.devices.at(entry.device).name, now);
            }
            self.activity.count(entry.class(), &between);
        }
        self.activity.end(all, &self.meters, &self.devices);
    }

    /// Corrects the devices' models and bounds their depths by the measurements since the last
    /// call, if these features are [switched on](spec::Switches) and their window is over. Also
    /// checks whether the devices have drifted from their models, and charges their chores.
    pub fn observe(&mut self, now: Instant) {
        self.devices.charge_chores(now);
        if !self.is_observation_due(now) {
            return;
        }
        let waited = self.waits.look(self.meters.all());
        self.devices.observe(waited, now).into_iter().for_each(|place| self.price_tenants(place));
    }

    /// Returns `true` if [`observe`](TenantRegistry::observe) would do something now.
    pub(crate) fn is_observation_due(&self, now: Instant) -> bool {
        self.devices.is_due(now)
    }

    fn price_tenants(&mut self, place: usize) {
        for (tenant, claim) in self.devices.at(place).registry.promises() {
            let entry = self.tenants.get_mut(tenant);
            if let Some(entry) = entry.filter(|entry| entry.device == place) {
                entry.tokens_needed = tokens_up(claim.rate);
            }
        }
    }

    /// Returns the descriptions of all tenants, leaving ones included, by number.
    pub fn list(&self) -> Vec<TenantInfo> {
        self.tenants.iter().map(|(tenant, entry)| self.info_of(tenant, entry)).collect()
    }

    /// Returns the description of the tenant of a number that is in use.
    pub(crate) fn info(&self, tenant: TenantId) -> TenantInfo {
        self.info_of(tenant, self.tenants.entry(tenant))
    }

    /// Returns the description of a tenant.
    pub(crate) fn info_of(&self, tenant: TenantId, entry: &Entry) -> TenantInfo {
        TenantInfo {
            name: entry.name.clone(),
            tenant,
            state: entry.state,
            origin: entry.origin,
            class: entry.class(),
            device: self.devices.at(entry.device).name.clone(),
            promise: entry.promise,
            tokens_needed: entry.tokens_needed,
            note: entry.note.clone(),
            measured: entry.window.measured.clone(),
            connections: self.meters.connections(tenant),
            in_flight: self.meters.in_flight(tenant),
        }
    }

    /// Returns the descriptions of the devices with their activity, in the order of their indices.
    pub fn device_flows(&self) -> Vec<(DeviceInfo, DeviceFlow)> {
        self.activity.device_flows(&self.devices)
    }

    /// Returns the tokens per second that are not promised on the device of a tenant; `None`
    /// without a model.
    pub(crate) fn tokens_left(&self, tenant: TenantId) -> Option<u64> {
        self.devices.at(self.tenants.entry(tenant).device).tokens_left()
    }

    /// Checks whether an SLO would be admitted, of a new tenant or of a known one, and returns
    /// remedies if not. `device` defaults to the known tenant's, and for a new tenant to the first.
    ///
    /// # Errors
    /// Fails if there is no such tenant or device.
    pub fn check(
        &self,
        slo: Slo,
        known: Option<&str>,
        device: Option<&str>,
    ) -> Result<Verdict, Refusal> {
        let known = known.map(|name| self.tenants.known(name)).transpose()?;
        let device = self.devices.at(match (known, device) {
            (Some(tenant), None) => self.tenants.entry(tenant).device,
            _ => self.devices.find(device)?,
        });
        if let Err(refusal) = device.check_slo(slo) {
            return Ok(Verdict::Refused { refusal, ways: Ways::default() });
        }
        let checked = match known {
            None => device.registry.check(Some(slo)),
            Some(tenant) => device.registry.check_change(tenant, Some(slo)),
        };
        Ok(verdict(&self.tenants, checked))
    }

    /// Makes many changes, and updates other tenants' rates once. On a device that promised more
    /// than it delivers, each single change would recompute the rates of all tenants.
    fn in_a_row<R>(&mut self, now: Instant, make: impl FnOnce(&mut TenantRegistry) -> R) -> R {
        self.devices.begin_row();
        let made = make(self);
        self.devices.end_row(now);
        made
    }

    /// Returns a tenant's admission, with the tokens that its device has left now.
    ///
    /// # Errors
    /// Fails if there is no such tenant.
    pub fn admission_of(&self, name: &str) -> Result<Admission, Refusal> {
        Ok(self.admission(self.tenants.known(name)?))
    }

    fn admission(&self, tenant: TenantId) -> Admission {
        let entry = self.tenants.entry(tenant);
        let device = self.devices.at(entry.device);
        Admission {
            name: entry.name.clone(),
            tenant,
            device: device.name.clone(),
            tokens_needed: entry.tokens_needed,
            tokens_left: device.registry.left() / TOKEN,
            has_model: device.has_model,
            share: device.share_of(tenant),
        }
    }

    /// Returns `true` if a worker has not yet processed an answer that names the tenant, and so may
    /// still give a handle.
    pub(crate) fn is_being_told(&self, tenant: TenantId) -> bool {
        // In this order, and before the handles are counted: see `TenantMeter::note_answer`.
        self.meters.answers(tenant) != self.tenants.entry(tenant).answers
    }
}

#[cfg(test)]
mod tests;
