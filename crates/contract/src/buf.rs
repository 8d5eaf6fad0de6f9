//! Data buffers, and the pool that owns free buffers.

use alloc::vec::Vec;
use core::fmt;

use crate::TenantId;

/// The right to use one buffer: a contiguous, aligned piece of memory, allocated at start by the
/// maker of the pool (docs/adr/0002-contiguous-buffers.md).
///
/// A `Buf` is not `Clone`: it moves from the pool to the request, to the device, to the transport
/// and back. While a system call is in flight, `io` holds the `Buf` until the last completion, also
/// after the connection closed.
///
/// A `Buf` tracks how many of its bytes may hold a tenant's data. So a device without data can
/// return zeroes without writing them each time.
pub struct Buf {
    bytes: &'static mut [u8],
    index: u32,
    /// The number of the tenant that is charged for the buffer, or [`NOBODY`].
    holder: u32,
    /// Number of bytes at the front that may hold a tenant's data: `0 ≤ dirty ≤ bytes.len()`. All
    /// bytes behind them are zero.
    dirty: u32,
    /// Index of the buffer's size among the sizes of its pool, ascending from zero.
    class: u32,
}

/// The holder of a buffer that is charged to no tenant.
const NOBODY: u32 = u32::MAX;

impl Buf {
    /// Returns a buffer of the memory `bytes`, which must be all zero. `index` is the number that
    /// its maker gives it, such as that of a buffer registered with the kernel.
    ///
    /// # Panics
    /// Panics if there are 4 GiB or more.
    pub fn new(bytes: &'static mut [u8], index: u32) -> Self {
        assert!(u32::try_from(bytes.len()).is_ok(), "a buffer has less than 4 GiB");
        Buf { bytes, index, holder: NOBODY, dirty: 0, class: 0 }
    }

    /// Returns the number that the maker of the pool gave to the buffer.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the index of the buffer's size among the sizes of its pool, ascending from zero.
    #[inline]
    pub fn class(&self) -> u32 {
        self.class
    }

    /// Charges a tenant for the buffer until [`take_holder`](Buf::take_holder).
    #[inline]
    pub fn charge(&mut self, holder: TenantId) {
        self.holder = holder.0;
    }

    /// Returns the tenant that was charged for the buffer, and clears the charge; `None` if no
    /// tenant was charged.
    #[inline]
    pub fn take_holder(&mut self) -> Option<TenantId> {
        let holder = core::mem::replace(&mut self.holder, NOBODY);
        (holder != NOBODY).then_some(TenantId(holder))
    }

    /// Returns the size of the buffer in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all bytes of the buffer, to read.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns all bytes of the buffer, to write. From now on, all of them count as a tenant's
    /// data.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.dirty = self.bytes.len() as u32;
        self.bytes
    }

    /// Returns the first `len` bytes of the buffer, to write. From now on, these bytes count as a
    /// tenant's data.
    pub fn prefix_mut(&mut self, len: usize) -> &mut [u8] {
        self.dirty = self.dirty.max(len as u32);
        &mut self.bytes[..len]
    }

    /// Sets the first `len` bytes of the buffer to zero. Bytes that are known to be zero are not
    /// written.
    pub fn zero_prefix(&mut self, len: usize) {
        let dirty = (self.dirty as usize).min(len);
        if dirty > 0 {
            // Guarded, because even an empty fill wakes the processor's widest vector unit.
            self.bytes[..dirty].fill(0);
        }
        if dirty == self.dirty as usize {
            self.dirty = 0;
        }
    }

    /// Returns the memory of the buffer. For freeing or reusing the memory after the end of the
    /// pool.
    pub fn into_bytes(self) -> &'static mut [u8] {
        self.bytes
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf #{} ({} bytes)", self.index, self.bytes.len())
    }
}

/// The number of buffers of one size in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Size of each buffer in bytes.
    pub bytes: usize,
    /// Number of buffers of this size.
    pub count: usize,
}

/// A pool of buffers in a few sizes. A request takes the smallest free buffer that is large enough,
/// at the cost of a stack's pop. An empty pool means back-pressure, never an allocation.
#[derive(Debug)]
pub struct BufPool {
    /// Buffers by size, ascending.
    shelves: Vec<FreeList>,
}

#[derive(Debug)]
struct FreeList {
    bytes: usize,
    count: usize,
    free: Vec<Buf>,
}

impl BufPool {
    /// The default size classes of a worker: 4 KiB × 4 096, 64 KiB × 256, 256 KiB × 64 and 2 MiB ×
    /// 8 (a compare-and-write of 1 MiB carries 2 MiB). Together they have 64 MiB of address space,
    /// of which only the used part is resident.
    pub const CLASSES: [SizeClass; 4] = [
        SizeClass { bytes: 4 << 10, count: 4096 },
        SizeClass { bytes: 64 << 10, count: 256 },
        SizeClass { bytes: 256 << 10, count: 64 },
        SizeClass { bytes: 2 << 20, count: 8 },
    ];

    /// Returns a pool of the given buffers, which it sorts by size.
    pub fn new(bufs: impl IntoIterator<Item = Buf>) -> Self {
        let mut all: Vec<Buf> = bufs.into_iter().collect();
        all.sort_by_key(|buf| (buf.capacity(), core::cmp::Reverse(buf.index)));
        let mut shelves: Vec<FreeList> = Vec::new();
        for mut buf in all {
            let bytes = buf.capacity();
            if shelves.last().is_none_or(|shelf| shelf.bytes != bytes) {
                shelves.push(FreeList { bytes, count: 0, free: Vec::new() });
            }
            buf.class = shelves.len() as u32 - 1;
            shelves.last_mut().expect("it was just made").free.push(buf);
        }
        for shelf in &mut shelves {
            shelf.count = shelf.free.len();
        }
        BufPool { shelves }
    }

    /// Takes a free buffer of at least `bytes` bytes, or returns `None` if there is none now.
    pub fn take(&mut self, bytes: usize) -> Option<Buf> {
        self.shelves.iter_mut().filter(|s| s.bytes >= bytes).find_map(|s| s.free.pop())
    }

    /// Takes a buffer of the smallest size that has `bytes` bytes, if more than half of the buffers
    /// of that size are free.
    #[inline]
    pub fn take_plentiful(&mut self, bytes: usize) -> Option<Buf> {
        let shelf = self.shelves.iter_mut().find(|s| s.bytes >= bytes)?;
        if 2 * shelf.free.len() > shelf.count { shelf.free.pop() } else { None }
    }

    /// Takes a free buffer of at least `bytes` bytes, of a size that `may` permits. `may` receives
    /// the number of the size (ascending from zero) and how many buffers of it are free.
    pub fn take_where(
        &mut self,
        bytes: usize,
        mut may: impl FnMut(usize, usize) -> bool,
    ) -> Option<Buf> {
        let fits = |(_, s): &(usize, &mut FreeList)| s.bytes >= bytes && !s.free.is_empty();
        let mut shelves = self.shelves.iter_mut().enumerate().filter(fits);
        shelves.find(|(class, s)| may(*class, s.free.len())).and_then(|(_, s)| s.free.pop())
    }

    /// Takes a free buffer like [`take_where`](BufPool::take_where), but never the last free buffer
    /// of the largest size. That buffer is reserved for callers that must not wait.
    pub fn take_but_last_where(
        &mut self,
        bytes: usize,
        mut may: impl FnMut(usize, usize) -> bool,
    ) -> Option<Buf> {
        let largest = self.shelves.len().saturating_sub(1);
        self.take_where(bytes, |class, free| (class < largest || free > 1) && may(class, free))
    }

    /// Returns the number of different sizes that the pool's buffers have.
    pub fn classes(&self) -> usize {
        self.shelves.len()
    }

    /// Returns how many buffers of one size the pool has, free and taken. `class` is the index of
    /// the size, ascending from zero.
    pub fn count(&self, class: usize) -> usize {
        self.shelves[class].count
    }

    /// Returns `true` if [`take`](BufPool::take) would find a buffer of at least `bytes` bytes now.
    pub fn has(&self, bytes: usize) -> bool {
        self.shelves.iter().any(|s| s.bytes >= bytes && !s.free.is_empty())
    }

    /// Puts a buffer back into the pool that it was taken from.
    #[inline]
    pub fn give(&mut self, buf: Buf) {
        let shelf = &mut self.shelves[buf.class as usize];
        assert!(shelf.bytes == buf.capacity(), "a buffer returns to the pool it came from");
        assert!(shelf.free.len() < shelf.count, "a buffer returned twice");
        shelf.free.push(buf);
    }

    /// Returns the size of the largest buffer of the pool, in bytes.
    pub fn largest(&self) -> usize {
        self.shelves.last().map_or(0, |s| s.bytes)
    }

    /// Returns `true` if no buffer of the pool is taken.
    pub fn is_whole(&self) -> bool {
        self.shelves.iter().all(|s| s.free.len() == s.count)
    }

    /// Returns the number of taken buffers, over all sizes.
    pub fn taken(&self) -> usize {
        self.shelves.iter().map(|s| s.count - s.free.len()).sum()
    }

    /// Returns the free buffers, from which the caller makes another pool.
    pub fn into_bufs(self) -> impl Iterator<Item = Buf> {
        self.shelves.into_iter().flat_map(|s| s.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;

    fn buf(bytes: usize, index: u32) -> Buf {
        Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index)
    }

    #[test]
    fn takes_the_smallest_that_fits_then_a_larger_one() {
        let mut pool = BufPool::new([buf(64, 0), buf(16, 1), buf(16, 2)]);
        let first = pool.take(10).unwrap();
        let second = pool.take(16).unwrap();
        let third = pool.take(1).unwrap();
        assert_eq!([first.capacity(), second.capacity(), third.capacity()], [16, 16, 64]);
        assert!(pool.take(1).is_none());
        assert_eq!(pool.taken(), 3);
        for buf in [third, first, second] {
            pool.give(buf);
        }
        let small = pool.take_where(1, |class, free| class == 0 && free > 1).unwrap();
        assert_eq!((small.capacity(), small.class()), (16, 0));
        assert!(pool.take_where(1, |class, free| class == 0 && free > 1).is_none());
        assert!(pool.take_plentiful(1).is_none(), "just half of them are free");
        pool.give(small);
        let small = pool.take_plentiful(1).expect("all of them are free");
        assert_eq!((small.capacity(), small.class()), (16, 0));
        pool.give(small);
        let patient: Vec<Buf> =
            core::iter::from_fn(|| pool.take_but_last_where(1, |_, _| true)).collect();
        assert_eq!(patient.len(), 2, "the last of the largest is for others");
        patient.into_iter().for_each(|buf| pool.give(buf));
        assert!(pool.is_whole());
        assert!(pool.take(65).is_none());
    }

    #[test]
    fn zeroes_only_what_was_written() {
        let mut buf = buf(16, 0);
        buf.prefix_mut(4).fill(7);
        assert_eq!(buf.bytes()[..5], [7, 7, 7, 7, 0]);
        buf.zero_prefix(2);
        assert_eq!(buf.bytes()[..5], [0, 0, 7, 7, 0]);
        buf.zero_prefix(16);
        assert_eq!(buf.bytes(), [0; 16]);
        assert_eq!(buf.dirty, 0);
    }

    #[test]
    #[should_panic(expected = "returned twice")]
    fn a_foreign_buffer_is_caught() {
        let mut pool = BufPool::new([buf(16, 0)]);
        pool.give(buf(16, 1));
    }
}
