//! The tax on writes, which pays for the background work (chores) that a device does because of
//! them, such as collecting garbage.
//!
//! The chores of a device are a tenant that nobody registers. Its account receives the tax of each
//! write, and pays what the device has read and written of its own accord. The tax follows the
//! measured chores for each page of hosts; promises are priced with the chores of uniform writes.

use contract::{ChoreCounters, ChoreRate, IoKind};

use crate::cost_model::{CostModel, PAGE_BYTES, TAX_MAX};
use crate::ledger::Totals;
use crate::shared::Shared;
use crate::units::{TOKEN, generated, nano};

/// Pages of one request of background work: 128 KiB.
const RUN_PAGES: u64 = 32;

/// The divisor that gives the number of pages over which the background work is averaged, from the
/// number of the device's pages. The quotient is bounded by [`HORIZON_PAGES`].
const HORIZON_PART: u64 = 64;

/// The minimum and the maximum number of pages, written by hosts, over which the background work is
/// averaged: 4 MiB and 1 GiB.
const HORIZON_PAGES: core::ops::RangeInclusive<u64> = 1_024..=262_144;

/// The limit of the account for background work, as a time in nanoseconds: the account holds at
/// most the tokens that the device makes in 100 ms.
const ACCOUNT_NANOS: u64 = 100_000_000;

/// The background work of a device, such as garbage collection, as the admin API reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoreView {
    /// The present tax on a 4 KiB write, in units.
    pub tax: u32,
    /// The tax with which promises are priced, in units.
    pub promised_tax: u32,
    /// The counts of the device's background work that were charged last.
    pub done: ChoreCounters,
}

/// The treasury of a device: sets the tax on writes, and pays for background work.
#[derive(Debug)]
pub(crate) struct WriteTax {
    /// The averages of the device's background work; `None` for a device without any.
    collector: Option<Collector>,
    /// The present prices, without the tax.
    untaxed: CostModel,
    /// `true` if writes are taxed.
    is_on: bool,
}

impl WriteTax {
    /// Creates the treasury of a device without background work.
    pub(crate) fn new(cost: &CostModel) -> WriteTax {
        WriteTax { collector: None, untaxed: cost.clone(), is_on: true }
    }

    /// Restarts the averages of the background work for a device of `pages` pages. `uniform` is the
    /// work of uniform writes, with which promises are priced.
    pub(crate) fn expect(&mut self, uniform: ChoreRate, pages: u64) {
        self.collector = Some(Collector::new(uniform, pages));
    }

    /// Turns the tax on or off.
    pub(crate) fn turn(&mut self, on: bool) {
        self.is_on = on;
    }

    fn taxed(&self, tax: impl Fn(&Collector, &CostModel) -> u32) -> u32 {
        let collector = self.collector.as_ref().filter(|_| self.is_on);
        collector.map_or(0, |collector| tax(collector, &self.untaxed))
    }

    /// Takes new prices without a tax. Returns them with the present tax, and with the tax with
    /// which promises are priced.
    pub(crate) fn price(&mut self, untaxed: CostModel) -> (CostModel, CostModel) {
        self.untaxed = untaxed;
        let (mut cost, mut promised) = (self.untaxed.clone(), self.untaxed.clone());
        cost.set_tax(self.taxed(Collector::tax));
        promised.set_tax(self.taxed(Collector::promised_tax));
        (cost, promised)
    }

    /// Pays for the background work that the device has done since the last call. The device makes
    /// `rate` units a second. Returns the tax on a 4 KiB write from now on, in units.
    ///
    /// Tokens of the account beyond those of 100 ms go to the bucket. Missing ones are paid from
    /// the bucket, then from the loan, at the cost of best-effort tenants; the rest is written off.
    pub(crate) fn charge(
        &mut self,
        done: ChoreCounters,
        rate: u64,
        shared: &Shared,
        totals: &mut Totals,
    ) -> u32 {
        let Some(collector) = &mut self.collector else { return 0 };
        let spent = nano(collector.note(done, &self.untaxed));
        shared.set_holding_writes(self.is_on && done.is_short);
        let (account, most) = (&shared.chores, generated(rate, ACCOUNT_NANOS));
        account.add(-spent);
        totals.spent += i128::from(spent);
        let surplus = account.take(|tokens| tokens - most);
        shared.bucket.give(surplus);
        totals.donated += i128::from(surplus);
        let lacking = (-account.tokens()).max(0);
        let taken = if self.is_on { shared.bucket.take(lacking) } else { 0 };
        totals.borrowed += i128::from(taken);
        let is_repaid = self.is_on && shared.best_effort() > 0;
        let lent = if is_repaid { shared.loan.lend(lacking - taken, most) } else { 0 };
        account.add(taken + lent);
        let debt_max = if self.is_on { most } else { 0 };
        let lost = (-debt_max).saturating_sub(account.tokens()).max(0);
        account.add(lost);
        totals.expired -= i128::from(lost);
        self.taxed(Collector::tax)
    }

    /// Returns the background work for operators, at the taxed prices `cost` and `promised`; `None`
    /// for a device without any.
    pub(crate) fn view(&self, cost: &CostModel, promised: &CostModel) -> Option<ChoreView> {
        let collector = self.collector.as_ref()?;
        let (tax, promised_tax) = (cost.tax(), promised.tax());
        Some(ChoreView { tax, promised_tax, done: collector.seen })
    }
}

/// Returns the price in units of reading and writing the given numbers of pages in background
/// requests of 128 KiB.
fn price(cost: &CostModel, read_pages: u64, written_pages: u64) -> u64 {
    let run = |kind| {
        let bytes = RUN_PAGES as usize * PAGE_BYTES;
        u64::from(cost.cost(kind, bytes).mixed)
    };
    (read_pages * run(IoKind::Read) + written_pages * run(IoKind::Write)).div_ceil(RUN_PAGES)
}

/// The state of a device's background work and of the tax that pays for it.
#[derive(Clone, Debug)]
struct Collector {
    /// The background work of uniform writes.
    uniform: ChoreRate,
    /// The number of pages, written by hosts, over which the background work is averaged.
    horizon: f64,
    seen: ChoreCounters,
    /// The pages that hosts wrote, and those that the background work read and wrote. Their weight
    /// falls with each page that hosts write. The first number stays at the horizon.
    recent: [f64; 3],
}

impl Collector {
    /// Returns the collector of a device of so many pages.
    fn new(uniform: ChoreRate, pages: u64) -> Collector {
        let (least, most) = (*HORIZON_PAGES.start(), *HORIZON_PAGES.end());
        let horizon = (pages / HORIZON_PART).clamp(least, most) as f64;
        Collector { uniform, horizon, seen: ChoreCounters::default(), recent: [horizon, 0.0, 0.0] }
    }

    /// Notes the work that the device has done until now. Returns the price of the new work, at
    /// prices without a tax.
    fn note(&mut self, done: ChoreCounters, cost: &CostModel) -> u64 {
        let ChoreCounters { host_pages, read_pages, written_pages, .. } = self.seen;
        let host = done.host_pages.saturating_sub(host_pages);
        let read = done.read_pages.saturating_sub(read_pages);
        let written = done.written_pages.saturating_sub(written_pages);
        self.seen = done;
        let left = self.horizon / (self.horizon + host as f64);
        for (recent, new) in self.recent.iter_mut().zip([host, read, written]) {
            *recent = (*recent + new as f64) * left;
        }
        price(cost, read, written)
    }

    /// Returns the tax on a write of one page for the measured background work, at prices without a
    /// tax. The tax is at most the one that promises include.
    fn tax(&self, cost: &CostModel) -> u32 {
        let [host, read, written] = self.recent;
        let permille = |pages: f64| (pages * 1_000.0 / host.max(1.0)) as u64;
        let units = price(cost, permille(read), permille(written)).div_ceil(1_000);
        rounded(units).min(self.promised_tax(cost))
    }

    /// Returns the tax on a write of one page with which promises are priced, at prices without a
    /// tax.
    fn promised_tax(&self, cost: &CostModel) -> u32 {
        let ChoreRate { read_permille, written_permille } = self.uniform;
        rounded(price(cost, read_permille.into(), written_permille.into()).div_ceil(1_000))
    }
}

/// Limits a tax to its range and rounds it up to whole tokens, so that prices change seldom.
fn rounded(units: u64) -> u32 {
    units.next_multiple_of(TOKEN.into()).min(TAX_MAX.into()) as u32
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const UNIFORM: ChoreRate = ChoreRate { read_permille: 9_000, written_permille: 8_000 };

    /// Returns the prices of device A without a curve: a page costs 100 units to read and 1 000 to
    /// write.
    fn cost() -> CostModel {
        CostModel::linear(1_000, 50).unwrap()
    }

    #[test]
    fn the_tax_follows_the_chores() {
        let mut collector = Collector::new(UNIFORM, 1 << 20);
        assert_eq!((collector.tax(&cost()), collector.promised_tax(&cost())), (0, 8_900));
        let mut done = ChoreCounters::default();
        for _ in 0..200 {
            done.host_pages += 1_000;
            done.read_pages += 4_000;
            done.written_pages += 3_000;
            assert_eq!(collector.note(done, &cost()), 4_000 * 100 + 3_000 * 1_000);
        }
        assert_eq!(collector.tax(&cost()), 3_400);
        assert_eq!(collector.note(done, &cost()), 0);
        for _ in 0..200 {
            done.host_pages += 1_000;
            collector.note(done, &cost());
        }
        assert_eq!(collector.tax(&cost()), 0, "what ends is forgotten");
    }

    #[test]
    fn a_long_history_is_forgotten_within_a_few_horizons() {
        let mut collector = Collector::new(UNIFORM, 1 << 20);
        let history = ChoreCounters { host_pages: 1 << 30, ..ChoreCounters::default() };
        let mut done = history;
        collector.note(done, &cost());
        while done.host_pages < history.host_pages + 4 * (1 << 20) / HORIZON_PART {
            done.host_pages += 100;
            done.written_pages += 500;
            collector.note(done, &cost());
        }
        assert!((4_800..=5_000).contains(&collector.tax(&cost())), "{}", collector.tax(&cost()));
    }

    #[test]
    fn a_write_pays_no_more_than_what_promises_reckon_with() {
        let mut collector = Collector::new(UNIFORM, 0);
        let written_pages = 1 << 40;
        collector.note(
            ChoreCounters { host_pages: 1, written_pages, ..ChoreCounters::default() },
            &cost(),
        );
        assert_eq!(collector.tax(&cost()), 8_900);
        let endless = ChoreRate { written_permille: u32::MAX, ..UNIFORM };
        assert_eq!(Collector::new(endless, 0).promised_tax(&cost()), TAX_MAX);
    }
}
