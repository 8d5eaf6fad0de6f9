//! The price of a request (paper, section 3.2.1).
//!
//! `cost = weight(bytes) × C(kind, load)`, where `weight` is the number of 4 KiB pages, rounded up,
//! unless a measured curve says otherwise, and `load` tells whether the device serves only reads at
//! present. The derivation is in docs/explanation/scheduler.md, "What a request costs".
//!
//! This module deliberately leaves out the device's present load ([`ReadRatio`](crate::ReadRatio)),
//! and the rate of tokens ([`DeviceModel`](crate::DeviceModel)).

use alloc::boxed::Box;
use core::fmt;
use core::ops::{AddAssign, SubAssign};

use contract::{IoKind, REQUEST_BYTES_MAX};

use crate::units::TOKEN;

/// The size of a page of flash in bytes. A smaller request costs as much as one page.
pub const PAGE_BYTES: usize = 4096;

const PAGES_MAX: usize = REQUEST_BYTES_MAX / PAGE_BYTES;

/// The largest price of a 4 KiB request, in units.
pub const PRICE_MAX: u32 = 100_000;

/// The largest tax on a 4 KiB write, in units: the largest price again.
pub(crate) const TAX_MAX: u32 = PRICE_MAX;

/// The largest weight of a request, in hundredths of a 4 KiB one.
pub const WEIGHT_MAX: u32 = 100_000;

/// The present load of a device, as far as prices depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// The device gets both reads and writes.
    Mixed,
    /// A load of reads alone.
    ReadOnly,
}

/// The price of a request in units, under either load. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The price while the device's load is mixed.
    pub mixed: u32,
    /// The price while the device serves only reads.
    pub read_only: u32,
}

impl Cost {
    /// Returns the price under `load`.
    pub fn under(self, load: Load) -> u32 {
        match load {
            Load::Mixed => self.mixed,
            Load::ReadOnly => self.read_only,
        }
    }
}

/// A measured point of a cost curve: the cost of a request of `bytes`, in hundredths of the cost of
/// a 4 KiB request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePoint {
    /// The size of the request in bytes.
    pub bytes: usize,
    /// The price of the request, in hundredths of the price of a 4 KiB request.
    pub weight: u32,
}

/// The reason that a cost model is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostModelError {
    /// A price is zero or above [`PRICE_MAX`].
    Price,
    /// The curve's sizes do not ascend, its weights fall, or one is below 100 or above
    /// [`WEIGHT_MAX`].
    Curve,
}

impl fmt::Display for CostModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostModelError::Price => write!(f, "a price must lie between 1 and {PRICE_MAX} units"),
            CostModelError::Curve => write!(
                f,
                "a size curve needs ascending sizes and weights that do not fall, \
                 from 100 to {WEIGHT_MAX}"
            ),
        }
    }
}

/// The index of a line in a price list: one kind of request, and one size in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceIndex(u32);

/// The number of price-list lines for each request size in pages: one for each kind of request.
const KINDS: usize = 4;

impl PriceIndex {
    /// The line that stands for no request.
    pub(crate) const NONE: PriceIndex = PriceIndex(u32::MAX);

    #[inline]
    pub(crate) fn of(kind: IoKind, bytes: usize) -> PriceIndex {
        const { assert!((IoKind::Other as usize) < KINDS) };
        let pages = bytes.min(REQUEST_BYTES_MAX).div_ceil(PAGE_BYTES);
        PriceIndex((pages * KINDS + kind as usize) as u32)
    }

    /// Returns the kind of the line's requests, and their size in bytes of whole pages.
    pub(crate) fn size(self) -> (IoKind, usize) {
        let kinds = [IoKind::Read, IoKind::Write, IoKind::Exchange, IoKind::Other];
        let kind = kinds.into_iter().find(|kind| *kind as u32 == self.0 % KINDS as u32);
        (kind.unwrap_or(IoKind::Other), self.0 as usize / KINDS * PAGE_BYTES)
    }
}

/// The total price of some requests, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceSum {
    /// The price in units under a mixed load; `read_only` is the price under a load of reads alone.
    mixed: u64,
    read_only: u64,
    /// The number of reads in the low 32 bits, and of other requests in the high 32 bits.
    counts: u64,
    /// Units of the price that are tax.
    tax: u64,
}

impl PriceSum {
    pub(crate) const NOTHING: PriceSum = PriceSum { mixed: 0, read_only: 0, counts: 0, tax: 0 };

    /// Returns the price in units under this load.
    #[inline]
    pub(crate) fn under(&self, load: Load) -> u64 {
        match load {
            Load::Mixed => self.mixed,
            Load::ReadOnly => self.read_only,
        }
    }

    pub(crate) fn reads(&self) -> u64 {
        self.counts & u64::from(u32::MAX)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.counts >> 32
    }

    /// Returns `true` if all requests are reads of one page at most.
    #[inline]
    pub(crate) fn is_single_pages(&self) -> bool {
        self.mixed == self.counts * u64::from(TOKEN)
    }

    /// Returns the units of the price that are tax, under either load.
    #[inline]
    pub(crate) fn tax(&self) -> u64 {
        self.tax
    }

    /// Returns the price of `count` times these requests.
    pub(crate) fn times(&self, count: u32) -> PriceSum {
        let PriceSum { mixed, read_only, counts, tax } = *self;
        let count = u64::from(count);
        PriceSum {
            mixed: mixed * count,
            read_only: read_only * count,
            counts: counts * count,
            tax: tax * count,
        }
    }
}

impl AddAssign for PriceSum {
    #[inline]
    fn add_assign(&mut self, other: PriceSum) {
        self.mixed += other.mixed;
        self.read_only += other.read_only;
        self.counts += other.counts;
        self.tax += other.tax;
    }
}

impl SubAssign for PriceSum {
    #[inline]
    fn sub_assign(&mut self, other: PriceSum) {
        self.mixed -= other.mixed;
        self.read_only -= other.read_only;
        self.counts -= other.counts;
        self.tax -= other.tax;
    }
}

/// The prices of requests on one device, by kind, size and load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    write: u32,
    read_only_read: u32,
    /// Units of tax on a 4 KiB write.
    tax: u32,
    /// The prices by [`PriceIndex`]: for each number of pages those of a read, a write, an
    /// exchange, and any other request.
    prices: Box<Prices>,
}

type Prices = [PriceSum; KINDS * (PAGES_MAX + 1)];

impl CostModel {
    /// Creates prices that are linear in the number of pages, from the price of a 4 KiB write, and
    /// of a 4 KiB read while the load is read-only, in units. A read under a mixed load costs
    /// [`TOKEN`] a page.
    pub fn linear(write: u32, read_only_read: u32) -> Result<CostModel, CostModelError> {
        CostModel::curved(write, read_only_read, &[])
    }

    /// Creates prices with a measured curve. Between its points the weight is interpolated. Up to
    /// its first point the weight is that point's. Behind its last point the weight grows by a
    /// whole 100 a page.
    pub fn curved(
        write: u32,
        read_only_read: u32,
        curve: &[SizePoint],
    ) -> Result<CostModel, CostModelError> {
        let sound = |price: u32| (1..=PRICE_MAX).contains(&price);
        if !sound(write) || !sound(read_only_read) {
            return Err(CostModelError::Price);
        }
        let rising =
            |pair: &[SizePoint]| pair[0].bytes < pair[1].bytes && pair[0].weight <= pair[1].weight;
        let bounded = |point: &SizePoint| (100..=WEIGHT_MAX).contains(&point.weight);
        if !curve.windows(2).all(rising) || !curve.iter().all(bounded) {
            return Err(CostModelError::Curve);
        }
        let price = |price: u32, weight: u32| (u64::from(price) * u64::from(weight)).div_ceil(100);
        let prices = core::array::from_fn(|line| match (line / KINDS, line % KINDS) {
            (pages, kind) if kind == IoKind::Read as usize => {
                let weight = weight(pages, curve);
                let (mixed, read_only) = (price(TOKEN, weight), price(read_only_read, weight));
                PriceSum { mixed, read_only, counts: 1, tax: 0 }
            }
            _ => PriceSum { mixed: 0, read_only: 0, counts: 1 << 32, tax: 0 },
        });
        let mut model = CostModel { write, read_only_read, tax: 0, prices: Box::new(prices) };
        model.set_write(write);
        Ok(model)
    }

    /// Returns the price on a line of the list.
    #[inline]
    pub(crate) fn priced(&self, line: PriceIndex) -> &PriceSum {
        &self.prices[line.0 as usize]
    }

    /// Returns the price of a request of this kind and size. A flush costs a write of one page; a
    /// compare-and-write costs a read and a write of its range. A range longer than any payload (of
    /// a discard or a write of zeroes) costs as much as the largest payload.
    pub fn cost(&self, kind: IoKind, bytes: usize) -> Cost {
        let priced = self.priced(PriceIndex::of(kind, bytes));
        Cost { mixed: priced.mixed as u32, read_only: priced.read_only as u32 }
    }

    /// Changes the price of a 4 KiB write, and with it of all requests that write; the curve stays.
    /// The price is at most [`PRICE_MAX`].
    pub fn set_write(&mut self, write: u32) {
        self.write = write.clamp(1, PRICE_MAX);
        self.price_writes();
    }

    /// Sets the tax on a 4 KiB write; other sizes pay by the curve. The tax is at most [`TAX_MAX`].
    pub fn set_tax(&mut self, tax: u32) {
        self.tax = tax.min(TAX_MAX);
        self.price_writes();
    }

    fn price_writes(&mut self) {
        let price = |weight: u64| (u64::from(self.write) * weight).div_ceil(100);
        let tax = |weight: u64| (u64::from(self.tax) * weight).div_ceil(100);
        let (of_each, _) = self.prices.as_chunks_mut::<KINDS>();
        // A flush costs a write of one page, whatever the curve and its range.
        let flush = price(100);
        for [read, write, exchange, other] in of_each {
            // A read of a mixed load costs its weight, because a read of one page costs a hundred.
            const { assert!(TOKEN == 100) };
            const { assert!(IoKind::Read as usize == 0 && IoKind::Write as usize == 1) };
            const { assert!(IoKind::Exchange as usize == 2 && IoKind::Other as usize == 3) };
            let tax = tax(read.mixed);
            (write.tax, exchange.tax) = (tax, tax);
            let units = price(read.mixed) + tax;
            (write.mixed, write.read_only) = (units, units);
            // Where the load has writes, no read is cheap.
            (exchange.mixed, exchange.read_only) = (units + read.mixed, units + read.mixed);
            (other.mixed, other.read_only) = (flush, flush);
        }
    }

    /// Changes the price of a 4 KiB read of a read-only load; the curve stays. The price is at most
    /// [`PRICE_MAX`].
    pub fn set_read_only_read(&mut self, units: u32) {
        self.read_only_read = units.clamp(1, PRICE_MAX);
        let (of_each, _) = self.prices.as_chunks_mut::<KINDS>();
        for [read, ..] in of_each {
            // What a read of a mixed load costs is its weight.
            read.read_only = (u64::from(self.read_only_read) * read.mixed).div_ceil(100);
        }
    }

    /// Returns the price of a 4 KiB write in units, without the tax.
    pub fn write(&self) -> u32 {
        self.write
    }

    /// Returns the tax on a 4 KiB write in units.
    pub fn tax(&self) -> u32 {
        self.tax
    }

    /// Returns the price of a 4 KiB read in units while the load is read-only.
    pub fn read_only_read(&self) -> u32 {
        self.read_only_read
    }
}

/// Returns the weight of a request of `pages` pages by the curve, in hundredths of a 4 KiB
/// request's; without a curve, 100 for each page.
fn weight(pages: usize, curve: &[SizePoint]) -> u32 {
    let bytes = pages.max(1) * PAGE_BYTES;
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return 100 * pages.max(1) as u32;
    };
    if bytes <= first.bytes {
        return first.weight;
    }
    if bytes >= last.bytes {
        let more = (bytes - last.bytes).div_ceil(PAGE_BYTES) as u32;
        return last.weight + 100 * more;
    }
    let behind = curve.partition_point(|point| point.bytes < bytes);
    let (low, high) = (curve[behind - 1], curve[behind]);
    let (run, rise) = ((high.bytes - low.bytes) as u64, u64::from(high.weight - low.weight));
    low.weight + ((bytes - low.bytes) as u64 * rise).div_ceil(run) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device_a() -> CostModel {
        CostModel::linear(1_000, 50).unwrap()
    }

    #[test]
    fn the_papers_prices() {
        let model = device_a();
        let read = |bytes| model.cost(IoKind::Read, bytes);
        assert_eq!(read(4096), Cost { mixed: 100, read_only: 50 });
        assert_eq!(read(512), read(4096));
        assert_eq!(read(32 << 10).mixed, 800);
        assert_eq!(read((32 << 10) + 512).mixed, 900);
        assert_eq!(model.cost(IoKind::Write, 4096), Cost { mixed: 1_000, read_only: 1_000 });
        assert_eq!(model.cost(IoKind::Write, 1 << 20).mixed, 256_000);
        // Compared and written: one of each.
        let both = Cost { mixed: 2_200, read_only: 2_200 };
        assert_eq!(model.cost(IoKind::Exchange, 8192), both);
    }

    #[test]
    fn nothing_is_free_and_nothing_overflows() {
        let curve = [SizePoint { bytes: 4096, weight: WEIGHT_MAX }];
        let models = [
            CostModel::linear(1, 1).unwrap(),
            device_a(),
            CostModel::curved(PRICE_MAX, PRICE_MAX, &curve).unwrap(),
        ];
        for model in models {
            for kind in [IoKind::Read, IoKind::Write, IoKind::Exchange, IoKind::Other] {
                let mut before = Cost { mixed: 1, read_only: 1 };
                for bytes in (0..=REQUEST_BYTES_MAX).step_by(512).chain([usize::MAX]) {
                    let cost = model.cost(kind, bytes);
                    assert!(cost.mixed >= before.mixed && cost.read_only >= before.read_only);
                    before = cost;
                }
            }
        }
    }

    #[test]
    fn a_curve_is_followed_between_its_points() {
        let curve = [
            SizePoint { bytes: 4096, weight: 100 },
            SizePoint { bytes: 16 << 10, weight: 250 },
            SizePoint { bytes: 64 << 10, weight: 900 },
        ];
        let model = CostModel::curved(1_000, 50, &curve).unwrap();
        let read = |bytes| model.cost(IoKind::Read, bytes).mixed;
        assert_eq!([read(512), read(4096), read(8192), read(16 << 10)], [100, 100, 150, 250]);
        assert_eq!([read(64 << 10), read(68 << 10)], [900, 1_000]);
    }

    #[test]
    fn another_price_of_a_write_is_another_model() {
        let curve =
            [SizePoint { bytes: 8192, weight: 130 }, SizePoint { bytes: 64 << 10, weight: 777 }];
        let mut model = CostModel::curved(1_000, 50, &curve).unwrap();
        model.set_write(1_733);
        assert_eq!(model, CostModel::curved(1_733, 50, &curve).unwrap());
        model.set_write(u32::MAX);
        assert_eq!(model.write(), PRICE_MAX);
    }

    #[test]
    fn a_tax_is_a_part_of_what_writes_cost() {
        let mut model = device_a();
        model.set_tax(7_000);
        let tax = |kind, bytes| model.priced(PriceIndex::of(kind, bytes)).tax();
        assert_eq!(model.cost(IoKind::Write, 4096), Cost { mixed: 8_000, read_only: 8_000 });
        assert_eq!(model.cost(IoKind::Exchange, 8192), Cost { mixed: 16_200, read_only: 16_200 });
        assert_eq!([tax(IoKind::Write, 4096), tax(IoKind::Exchange, 8192)], [7_000, 14_000]);
        for kind in [IoKind::Read, IoKind::Other] {
            assert_eq!(model.cost(kind, 4096), device_a().cost(kind, 4096));
            assert_eq!(tax(kind, 4096), 0);
        }
        model.set_tax(0);
        assert_eq!(model, device_a());
    }

    #[test]
    fn senseless_models_are_refused() {
        assert_eq!(CostModel::linear(0, 50), Err(CostModelError::Price));
        assert_eq!(CostModel::linear(1_000, 0), Err(CostModelError::Price));
        let point = |bytes, weight| SizePoint { bytes, weight };
        for curve in [
            [point(4096, 0), point(8192, 100)],
            [point(8192, 100), point(4096, 200)],
            [point(4096, 200), point(8192, 100)],
        ] {
            assert_eq!(CostModel::curved(1_000, 50, &curve), Err(CostModelError::Curve));
        }
    }
}
