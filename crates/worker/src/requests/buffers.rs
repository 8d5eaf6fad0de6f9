//! The buffers of a worker, and how many of them each tenant's reads have: from the submission of a
//! read until its peer has taken the data.

use contract::{Buf, BufPool, TenantId};

use super::in_flight::Room;
use super::quota::{CLASSES_MAX, Quotas, SHARE};
use super::reserve::Reserve;

/// The buffers of a worker.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(super) pool: BufPool,
    /// A buffer of the largest size, for a request at the front of a scheduler that finds none: the
    /// other buffers may all be with writes behind that request, which wait for it. A buffer that
    /// comes back is the next.
    pub(super) spare: Option<Buf>,
    pub(super) reserve: Reserve,
    /// The buffers of a size of which more than this many are free are not short: no tenant can have
    /// more than its part of the others.
    plenty: [usize; CLASSES_MAX],
    /// The number of buffers that each tenant's reads have, by size.
    reads: Vec<[u32; CLASSES_MAX]>,
}

impl Buffers {
    /// Sets one of the largest buffers of a pool aside.
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

    /// Takes a buffer for the data of a tenant's read, unless the tenant has more than its part: a
    /// first one for a read is everybody's, unless it is the last and the tenant has payloads. The
    /// buffer that is set aside is for the `first` in the order of a device alone.
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
        let Buffers { pool, spare, reserve, plenty, reads } = self;
        let reads = &mut reads[index];
        let mut found = pool.classes() - 1;
        let may = |class, free| {
            let is_its = free > plenty[class] || {
                let left = reserve.left(class, free, &yields);
                let (own, payloads) = (reads[class] as usize, quotas.payloads(tenant, class));
                match (own, own + payloads) {
                    (0, 0) => left > 0,
                    (0, _) => left > 1,
                    (_, held) => left > 1 && held < SHARE * left,
                }
            };
            found = class;
            is_its
        };
        let taken = pool.take_where(bytes, may);
        let largest = pool.classes() - 1;
        let mut buf = match taken {
            Some(buf) => buf,
            None if first && reads[largest] == 0 => {
                found = largest;
                spare.take()?
            }
            None => return None,
        };
        reads[found] += 1;
        buf.charge(tenant);
        Some(buf)
    }

    /// Makes room for the first read of a tenant with this number.
    #[cold]
    fn make_room(&mut self, index: usize) {
        self.reads.resize(index + 1, [0; CLASSES_MAX]);
    }

    /// Returns whether there is no buffer of so many bytes for anybody.
    pub(crate) fn is_dry(&self, bytes: usize) -> bool {
        !self.pool.has(bytes)
    }

    /// Returns how many buffers of a size the tenant's reads have.
    pub(super) fn reads(&self, tenant: TenantId, class: usize) -> usize {
        self.reads.get(tenant.0 as usize).map_or(0, |reads| reads[class] as usize)
    }

    /// Returns whether the tenant's reads have no buffers.
    pub(super) fn has_no_reads(&self, tenant: TenantId) -> bool {
        self.reads.get(tenant.0 as usize).is_none_or(|reads| reads.iter().all(|count| *count == 0))
    }

    /// Takes a buffer back. Returns the tenant whose read had it.
    #[inline]
    pub(super) fn give_back(&mut self, mut buf: Buf) -> Option<TenantId> {
        let holder = buf.take_holder();
        if let Some(tenant) = holder {
            self.reads[tenant.0 as usize][self.pool.class_of(&buf)] -= 1;
        }
        if self.spare.is_none() && buf.capacity() == self.pool.largest() {
            self.spare = Some(buf);
        } else {
            self.pool.give(buf);
        }
        holder
    }

    pub(super) fn room_of(&self, buf: Buf) -> Room {
        let class = Some(self.pool.class_of(&buf));
        Room { buf: Some(buf), class }
    }
}
