//! The handle that an operator's tools and the configuration use.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use contract::{Instant, Meters, Slo, TenantId, Traces};
use qos::{AnyScheduler, QueueLimits};

use crate::book::{Book, DeviceSetup, Origin, TenantChange};
use crate::words::{Admission, DeviceInfo, Refusal, Share, TenantInfo, Verdict};

/// Tells the time: the clock that the workers use as well.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The tenants of a server, by name. Cheap to clone; every clone is the same book. Workers never
/// wait for its lock.
#[derive(Clone)]
pub struct Tenants {
    book: Arc<Mutex<Book>>,
    clock: Clock,
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").field("book", &self.book).finish_non_exhaustive()
    }
}

impl Tenants {
    /// Tenants of these devices, served by so many workers; at most `tenants_max`.
    pub fn new(
        devices: Vec<DeviceSetup>,
        workers: usize,
        tenants_max: usize,
        clock: Clock,
    ) -> Tenants {
        let book = Book::new(devices, workers, tenants_max);
        Tenants { book: Arc::new(Mutex::new(book)), clock }
    }

    /// The book itself, locked.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no holder of this lock panics")
    }

    /// What time it is.
    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Registers a tenant for an operator, with a promise about a device (the first unless it is
    /// named). An SLO without a latency is best effort, and may come with a share.
    ///
    /// # Errors
    /// Says what is wrong with the name, SLO or share, or why it cannot be promised.
    pub fn register(
        &self,
        name: &str,
        slo: &Slo,
        share: Option<Share>,
        device: Option<&str>,
    ) -> Result<Admission, Refusal> {
        let now = self.now();
        self.book().register_sharing(name, slo, share, device, Origin::Operator, now)
    }

    /// Changes a tenant's SLO, from best effort and to it as well, and its share unless that is to stay.
    /// The device stays.
    ///
    /// # Errors
    /// Says what is wrong with the SLO or share, or why it cannot be promised; then the old ones
    /// stand.
    pub fn change(
        &self,
        name: &str,
        slo: &Slo,
        share: Option<Share>,
    ) -> Result<Admission, Refusal> {
        let now = self.now();
        self.book().change_sharing(name, slo, share, now)
    }

    /// Ends a tenant. Its rate and its name are free at once; it is listed as leaving until the last
    /// of its requests has ended.
    ///
    /// # Errors
    /// When there is no such tenant, or the configuration names it.
    pub fn unregister(&self, name: &str) -> Result<(), Refusal> {
        let now = self.now();
        self.book().unregister(name, now)
    }

    /// Makes all changes of a batch, or none of them.
    ///
    /// # Errors
    /// Which one is refused, counted from zero, and why.
    pub fn apply(&self, changes: &[TenantChange]) -> Result<(), (usize, Refusal)> {
        let (now, mut book) = (self.now(), self.book());
        // Nothing comes between that could have to be undone for.
        let _ = book.begin_batch(changes, now)?;
        book.end_batch(changes, now);
        Ok(())
    }

    /// All tenants, by number, with how they fared in the last second.
    pub fn list(&self) -> Vec<TenantInfo> {
        self.book().list()
    }

    /// One tenant; `None` if there is none of this name that is not leaving.
    pub fn get(&self, name: &str) -> Option<TenantInfo> {
        let book = self.book();
        Some(book.info(book.find(name)?))
    }

    /// The devices, in the order of configuration.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.book().device_infos()
    }

    /// Whether an SLO would be admitted on a device (the first unless it is named), and what would
    /// have to give if not.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn check(&self, slo: &Slo, device: Option<&str>) -> Result<Verdict, Refusal> {
        self.book().check(slo, device)
    }

    /// Whether a tenant's SLO could become this one, and what would have to give if not.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn check_change(&self, name: &str, slo: &Slo) -> Result<Verdict, Refusal> {
        self.book().check_change(name, slo)
    }

    /// The number of a tenant.
    pub fn find(&self, name: &str) -> Option<TenantId> {
        self.book().find(name)
    }

    /// The scheduler of a worker's queue to a device.
    pub fn scheduler(&self, device: usize, worker: usize, limits: QueueLimits) -> AnyScheduler {
        self.book().scheduler(device, worker, limits)
    }

    /// The traces of a worker.
    pub fn traces(&self, worker: usize) -> Arc<Traces> {
        self.book().traces(worker)
    }

    /// The counters of a worker.
    pub fn meters(&self, worker: usize) -> Arc<Meters> {
        self.book().meters(worker)
    }
}
