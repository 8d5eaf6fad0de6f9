//! The buckets of latency histograms: narrow ones, from which percentiles are computed, and coarse
//! ones, which are powers of two and show the distribution of time.

/// The shortest time that narrow buckets distinguish, as a power of two of nanoseconds: 2 µs.
const FINE_SMALLEST: u32 = 11;

/// Narrow buckets per doubling: each is at most 1/16 of its value wide.
const PER_OCTAVE: usize = 16;

/// Doublings that narrow buckets distinguish: up to 1.07 s.
const OCTAVES: usize = 19;

/// Number of narrow buckets: those of the doublings, one for shorter times, one for longer times.
pub const LATENCY_BUCKETS: usize = 1 + OCTAVES * PER_OCTAVE + 1;

/// The upper edge of the first coarse bucket, as a power of two of nanoseconds: 4.1 µs.
const COARSE_SMALLEST: u32 = 12;

/// Number of coarse buckets: the last but one ends at 268 ms, and the last has no end.
pub const COARSE_BUCKETS: usize = 18;

/// The number of the narrow histogram bucket that contains a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyBucket(u16);

impl LatencyBucket {
    /// The bucket of the shortest latencies.
    pub const FIRST: LatencyBucket = LatencyBucket(0);

    /// Returns the bucket of a time in nanoseconds.
    #[inline]
    pub fn of(nanos: u64) -> LatencyBucket {
        LatencyBucket(fine(nanos) as u16)
    }

    /// Returns the bucket's number, below [`LATENCY_BUCKETS`].
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of the coarse histogram bucket that contains a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoarseBucket(u8);

impl CoarseBucket {
    /// Returns the bucket of a time in nanoseconds.
    #[inline]
    pub fn of(nanos: u64) -> CoarseBucket {
        CoarseBucket(coarse(nanos) as u8)
    }

    /// Returns the bucket's number, below [`COARSE_BUCKETS`].
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Returns the number of the narrow bucket of a time in nanoseconds.
///
/// A floating-point number is its exponent, then its mantissa, so the upper bits are the logarithm
/// in steps that are even within each doubling. (Times are rounded to 24 bits on the way.)
pub(crate) fn fine(nanos: u64) -> usize {
    const MANTISSA_BITS: u32 = f32::MANTISSA_DIGITS - 1;
    const FIRST: usize = (127 + FINE_SMALLEST as usize) * PER_OCTAVE - 1;
    let bits = (nanos as i64 as f32).to_bits() >> (MANTISSA_BITS - PER_OCTAVE.ilog2());
    (bits as usize).saturating_sub(FIRST).min(LATENCY_BUCKETS - 1)
}

/// Returns the lower edge of a narrow bucket in nanoseconds. The edge after the last bucket is the
/// nominal end of the last bucket.
pub fn fine_edge(bucket: usize) -> u64 {
    let Some(step) = bucket.checked_sub(1) else { return 0 };
    let (octave, within) = (step / PER_OCTAVE, step % PER_OCTAVE);
    ((PER_OCTAVE + within) as u64) << (FINE_SMALLEST as usize + octave) >> PER_OCTAVE.ilog2()
}

/// Returns the number of the coarse bucket of a time in nanoseconds.
pub(crate) fn coarse(nanos: u64) -> usize {
    let above = (nanos >> (COARSE_SMALLEST - 1)) | 1;
    (above.ilog2() as usize).min(COARSE_BUCKETS - 1)
}

/// Returns the upper edge of a coarse bucket in nanoseconds; `None` for the last bucket, which has
/// no end.
pub const fn coarse_edge(bucket: usize) -> Option<u64> {
    if bucket < COARSE_BUCKETS - 1 { Some(1 << (COARSE_SMALLEST + bucket as u32)) } else { None }
}

/// Returns the coarse bucket that contains a narrow bucket.
pub(crate) fn coarse_of_fine(bucket: usize) -> usize {
    coarse(fine_edge(bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_buckets_hold_what_their_edges_say() {
        let times = (0..3_000_000).step_by(7).chain([524_287_000, 1_073_741_000, 1 << 33]);
        for nanos in times {
            let bucket = fine(nanos);
            let (from, to) = (fine_edge(bucket), fine_edge(bucket + 1));
            let is_last = bucket == LATENCY_BUCKETS - 1;
            assert!(from <= nanos && (nanos < to || is_last), "{nanos} in {from}..{to}");
            assert!(bucket == 0 || is_last || (to - from) * 16 <= from, "{from}..{to} is wide");
        }
        assert_eq!((fine(0), fine(2_047), fine(2_048)), (0, 0, 1));
        assert_eq!(fine(u64::MAX >> 1), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn coarse_buckets_are_made_of_narrow_ones() {
        for nanos in (0..3_000_000u64).step_by(11).chain([268_435_000, 268_435_456, 1 << 33]) {
            let bucket = coarse(nanos);
            assert!(coarse_edge(bucket).is_none_or(|edge| nanos < edge), "{nanos} in {bucket}");
            assert!(bucket == 0 || coarse_edge(bucket - 1).unwrap() <= nanos, "{nanos}");
            assert_eq!(coarse_of_fine(fine(nanos)), bucket, "{nanos}");
        }
    }
}
