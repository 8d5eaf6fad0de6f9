//! The buffers of a worker, and the number that each tenant's reads hold, from a read's submission
//! until its peer has taken the data.

use contract::{Buf, BufPool, TenantId};

use super::quota::{CLASSES_MAX, Quotas, Reserve, SHARE};

/// The buffers of a worker, and the counts of those that each tenant's reads hold.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(super) pool: BufPool,
    /// A spare buffer of the largest size, for the first request in a scheduler's order if no other
    /// buffer is free: writes queued behind that request may hold all other buffers. The next
    /// buffer of its size that is returned refills the spare.
    pub(super) spare: Option<Buf>,
    pub(super) reserve: Reserve,
    /// For each size class of buffers, the number of free buffers above which no tenant can exceed
    /// its share, so that shares need not be checked.
    plenty: [usize; CLASSES_MAX],
    /// The number of buffers that each tenant's reads hold, by size.
    reads: Vec<[u32; CLASSES_MAX]>,
}

impl Buffers {
    /// Creates a worker's buffers from a pool, and sets one of the largest buffers aside as the
    /// spare.
    ///
    /// # Panics
    /// Panics if the pool has fewer than two of its largest buffers.
    pub(super) fn new(mut pool: BufPool, slots: usize) -> Buffers {
        let spare = pool.take(pool.largest());
        assert!(pool.has(pool.largest()), "a pool has two of its largest buffers");
        assert!(pool.classes() <= CLASSES_MAX, "buffers have a few sizes");
        let mut plenty = [0; CLASSES_MAX];
        (0..pool.classes()).for_each(|class| plenty[class] = pool.count(class) / 2);
        let reserve = Reserve::new(slots, &pool);
        Buffers { pool, spare, reserve, plenty, reads: Vec::new() }
    }

    /// Takes a buffer for the data of a tenant's read. Returns `None` if no buffer is free, or the
    /// tenant already holds its share of them. A tenant without reads may take any free buffer but
    /// the last, and the last too if the tenant has no write payloads. The spare buffer is only for
    /// the `first` request in the device's order.
    #[inline]
    pub(crate) fn take_for_read(
        &mut self,
        quotas: &Quotas,
        (tenant, bytes): (TenantId, usize),
        first: bool,
        yields: impl Fn() -> bool,
    ) -> Option<Buf> {
        let index = tenant.0 as usize;
        if index >= self.reads.len() {
            self.make_room(index);
        }
        // As a rule there are plenty, and nobody has to ask who has them.
        let mut buf = match self.pool.take_plentiful(bytes) {
            Some(buf) => buf,
            None => self.take_scarce(quotas, (tenant, bytes), first, yields)?,
        };
        self.reads[index][buf.class() as usize] += 1;
        buf.charge(tenant);
        Some(buf)
    }

    /// Takes a buffer for a read while buffers are scarce, if the tenant's share allows it.
    #[inline(never)]
    fn take_scarce(
        &mut self,
        quotas: &Quotas,
        (tenant, bytes): (TenantId, usize),
        first: bool,
        yields: impl Fn() -> bool,
    ) -> Option<Buf> {
        let Buffers { pool, spare, reserve, plenty, reads } = self;
        let reads = &reads[tenant.0 as usize];
        let may = |class, free| {
            free > plenty[class] || {
                let left = reserve.left(class, free, &yields);
                let (own, payloads) = (reads[class] as usize, quotas.payloads(tenant, class));
                match (own, own + payloads) {
                    (0, 0) => left > 0,
                    (0, _) => left > 1,
                    (_, held) => left > 1 && held < SHARE * left,
                }
            }
        };
        let taken = pool.take_where(bytes, may);
        let may_have_spare = first && reads[pool.classes() - 1] == 0;
        taken.or_else(|| if may_have_spare { spare.take() } else { None })
    }

    /// Reserves memory for the counts of a tenant at its first read.
    #[cold]
    fn make_room(&mut self, index: usize) {
        self.reads.resize(index + 1, [0; CLASSES_MAX]);
    }

    /// Returns whether no buffer of so many bytes is free for any tenant.
    pub(crate) fn is_dry(&self, bytes: usize) -> bool {
        !self.pool.has(bytes)
    }

    /// Returns the pool, and a function that returns the number of buffers of a size class that the
    /// tenant's reads hold.
    pub(super) fn pool_beside_reads(
        &mut self,
        tenant: TenantId,
    ) -> (&mut BufPool, impl Fn(usize) -> usize) {
        let reads = self.reads.get(tenant.0 as usize);
        (&mut self.pool, move |class| reads.map_or(0, |reads| reads[class] as usize))
    }

    /// Returns whether the tenant's reads hold no buffers.
    pub(super) fn has_no_reads(&self, tenant: TenantId) -> bool {
        self.reads.get(tenant.0 as usize).is_none_or(|reads| reads.iter().all(|count| *count == 0))
    }

    /// Returns a buffer to the pool. The result is the tenant whose read had it; `None` if no read
    /// had.
    #[inline]
    pub(super) fn give_back(&mut self, mut buf: Buf) -> Option<TenantId> {
        let holder = buf.take_holder();
        if let Some(tenant) = holder {
            self.reads[tenant.0 as usize][buf.class() as usize] -= 1;
        }
        if self.spare.is_none() && buf.capacity() == self.pool.largest() {
            self.spare = Some(buf);
        } else {
            self.pool.give(buf);
        }
        holder
    }
}
