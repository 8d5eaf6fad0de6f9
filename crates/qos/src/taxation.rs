//! Tests of a device with background work (chores) and its tenants: the payers for the chores, the
//! tenants that wait for them, and the promises beside them.

use alloc::vec;
use alloc::vec::Vec;

use contract::{ChoreCounters, ChoreRate, Instant, IoKind, Scheduler, Slo, SlotTable, TenantId};

use crate::admission::Refusal;
use crate::units::nano;
use crate::{DeviceModel, QueueLimits, Registry, TokenScheduler};

/// The chores of uniform writes: eight pages written and nine read for each page that hosts write,
/// which is 89 tokens a write on device A.
const UNIFORM: ChoreRate = ChoreRate { read_permille: 9_000, written_permille: 8_000 };

const ROUND_NANOS: u64 = 100_000;

/// Device A with its tenants, one worker, and the chores that its writes cause.
struct TaxationFixture {
    registry: Registry,
    scheduler: TokenScheduler,
    slots: SlotTable<(TenantId, IoKind)>,
    now: Instant,
    done: ChoreCounters,
    /// The number of pages that the device moves for each page that hosts write.
    moved: u64,
}

impl TaxationFixture {
    fn new() -> TaxationFixture {
        let mut registry = Registry::new(DeviceModel::device_a(), 8);
        registry.taxes().expect(UNIFORM, 0, Instant::ZERO);
        let scheduler = registry.scheduler(0, QueueLimits { slots: 4096, of_tenant: 1024 });
        let (slots, now) = (SlotTable::new(4096), Instant::from_nanos(1_000_000));
        TaxationFixture {
            registry,
            scheduler,
            slots,
            now,
            done: ChoreCounters::default(),
            moved: 8,
        }
    }

    fn register(&mut self, slo: Option<Slo>) -> TenantId {
        self.registry.register(slo, self.now).unwrap().tenant
    }

    /// Runs rounds for so many milliseconds, in which these tenants always have requests. Returns
    /// the number of requests that each submitted.
    fn run(&mut self, millis: u64, demands: &[(TenantId, IoKind)]) -> Vec<u64> {
        let mut counts = vec![0; demands.len()];
        for round in 0..millis * 1_000_000 / ROUND_NANOS {
            for &(tenant, kind) in demands {
                while self.scheduler.queued_of(tenant) < 64 {
                    let slot = self.slots.insert((tenant, kind)).unwrap();
                    self.scheduler.enqueue(tenant, kind, 4096, slot).unwrap();
                }
            }
            self.now = self.now + core::time::Duration::from_nanos(ROUND_NANOS);
            self.scheduler.begin_round(self.now);
            while let Some(slot) = self.scheduler.next() {
                let submitted = self.slots.remove(slot);
                let n = demands.iter().position(|demand| *demand == submitted);
                n.into_iter().for_each(|n| counts[n] += 1);
                if submitted.1 == IoKind::Write {
                    self.done.host_pages += 1;
                    self.done.read_pages += self.moved;
                    self.done.written_pages += self.moved;
                }
            }
            if round % 10 == 0 {
                self.registry.taxes().charge(self.done, self.now);
            }
        }
        self.balances();
        counts
    }

    /// Checks that the accounts balance, with the taxes.
    fn balances(&self) {
        let all = [self.registry.totals(), self.scheduler.totals()];
        let made: i128 = all.iter().map(|totals| totals.generated).sum();
        let gone: i128 = all.iter().map(|totals| totals.spent + totals.expired).sum();
        assert_eq!(made, gone + self.registry.shared().held());
    }

    fn tax(&self) -> u32 {
        crate::Taxes::view(&self.registry).unwrap().tax
    }
}

#[test]
fn promises_reckon_with_the_chores_of_uniform_writes() {
    let mut bed = TaxationFixture::new();
    let slo = |iops| Some(Slo::new(500, iops, 50));
    // A pair of a read and a write costs 1 + 10 tokens, and 89 of tax, of 420 K.
    let Err(Refusal::TooMuch(_)) = bed.registry.register(slo(8_600), bed.now) else {
        panic!("more is promised than the device can do beside its chores")
    };
    let needed = bed.registry.register(slo(8_400), bed.now).unwrap().needed;
    assert_eq!(needed, 8_400 * (100 + 1_000 + 8_900) / 2);
    bed.registry.taxes().turn(false, bed.now);
    let claims: Vec<u64> = bed.registry.promises().map(|(_, claim)| claim.rate).collect();
    assert_eq!(claims, [8_400 * 1_100 / 2], "without the tax nobody pays for them");
}

#[test]
fn writers_pay_and_readers_do_not() {
    let mut bed = TaxationFixture::new();
    bed.register(Some(Slo::new(500, 100, 100)));
    let [reader, writer] = [None; 2].map(|none| bed.register(none));
    let demands = [(reader, IoKind::Read), (writer, IoKind::Write)];
    bed.run(5_000, &demands);
    // Eight pages read and written for each page of hosts.
    assert_eq!(bed.tax(), 8 * (100 + 1_000));
    let before = bed.registry.totals().spent + bed.scheduler.totals().spent;
    let served = bed.run(1_000, &demands);
    let share = bed.registry.shared().share() as f64;
    let of_share = |paid: f64| paid / share;
    let [reads, writes] = [served[0] as f64 * 100.0, served[1] as f64 * (1_000.0 + 8_800.0)];
    assert!(
        of_share(reads) > 0.98 && of_share(writes) > 0.98,
        "{} {}",
        of_share(reads),
        of_share(writes)
    );
    // All of it was spent on requests and on the chores: the device does no more than it makes.
    let spent = bed.registry.totals().spent + bed.scheduler.totals().spent - before;
    let made = i128::from(nano(1)) * i128::from(bed.registry.device_rate());
    assert!((spent - made).abs() < made / 50, "{spent} of {made}");
}

#[test]
fn best_effort_pays_what_is_not_taxed() {
    let mut bed = TaxationFixture::new();
    let promised = bed.register(Some(Slo::new(500, 1_000, 0)));
    let [reader, writer] = [None; 2].map(|none| bed.register(none));
    bed.moved = 20;
    let demands = [(promised, IoKind::Write), (reader, IoKind::Read), (writer, IoKind::Write)];
    bed.run(1_000, &demands);
    assert_eq!(bed.tax(), 8_900, "no more than what promises reckon with");
    let served = bed.run(1_000, &demands);
    assert!((995..=1_010).contains(&served[0]), "{served:?}");
    let (share, expired) = (bed.registry.shared().share() as f64, bed.registry.totals().expired);
    assert!((served[1] as f64) * 100.0 < 0.9 * share, "{served:?}");
    assert!(expired == 0 || served[1] < 200_000, "{expired}");
}

/// Checks that a tenant may owe one taxed write, so that its reads do not wait until the write is
/// paid off.
#[test]
fn a_taxed_write_holds_no_reads_of_its_tenant() {
    let mut bed = TaxationFixture::new();
    let promised = bed.register(Some(Slo::new(500, 1_000, 80)));
    let writer = bed.register(None);
    bed.run(5_000, &[(writer, IoKind::Write)]);
    assert_eq!(bed.tax(), 8 * (100 + 1_000));
    // Its tokens of three rounds rest; it sends a write and reads behind it.
    bed.run(1, &[(writer, IoKind::Write)]);
    for kind in [IoKind::Write, IoKind::Read, IoKind::Read] {
        let slot = bed.slots.insert((promised, kind)).unwrap();
        bed.scheduler.enqueue(promised, kind, 4096, slot).unwrap();
    }
    bed.now = bed.now + core::time::Duration::from_nanos(ROUND_NANOS);
    bed.scheduler.begin_round(bed.now);
    let went = core::iter::from_fn(|| bed.scheduler.next()).map(|slot| bed.slots.remove(slot).0);
    assert_eq!(went.filter(|tenant| *tenant == promised).count(), 3);
    bed.balances();
    // A tenant that was promised reads alone may owe as much as on any device.
    let reader = bed.register(Some(Slo::new(500, 1_000, 100)));
    let limit = |tenant: TenantId| bed.registry.shared().tenant(tenant.0).limit();
    assert_eq!(limit(reader), crate::units::NEG_LIMIT);
    assert_eq!(limit(promised), -nano(1_000 + 8_900));
    bed.registry.taxes().turn(false, bed.now);
    assert_eq!(bed.registry.shared().tenant(promised.0).limit(), crate::units::NEG_LIMIT);
}

#[test]
fn writes_of_best_effort_wait_while_the_device_has_no_space() {
    let mut bed = TaxationFixture::new();
    let promised = bed.register(Some(Slo::new(500, 1_000, 0)));
    let [reader, writer] = [None; 2].map(|none| bed.register(none));
    let demands = [(promised, IoKind::Write), (reader, IoKind::Read), (writer, IoKind::Write)];
    bed.run(100, &demands);
    bed.done.is_short = true;
    bed.run(1, &demands);
    let served = bed.run(100, &demands);
    assert!(served[0] >= 99 && served[1] > 10_000, "{served:?}");
    assert_eq!(served[2], 0);
    bed.done.is_short = false;
    bed.run(1, &demands);
    assert!(bed.run(100, &demands)[2] > 100);
    // A tenant that was idle waits like others.
    let idle = bed.register(None);
    bed.done.is_short = true;
    bed.run(1, &demands);
    assert_eq!(bed.run(10, &[(idle, IoKind::Write)]), [0]);
}

#[test]
fn a_device_without_chores_has_no_tax() {
    let mut registry = Registry::new(DeviceModel::device_a(), 8);
    let before = registry.shared().prices();
    let done = ChoreCounters { host_pages: 1, written_pages: 1 << 20, ..ChoreCounters::default() };
    registry.taxes().charge(done, Instant::from_nanos(1));
    assert_eq!((registry.shared().prices(), crate::Taxes::view(&registry)), (before, None));
    assert_eq!(registry.totals().spent, 0);
}
