//! Sums of successful requests that do not wrap.

use contract::{
    CoarseHistogram, Protocol, Stage, StageHistograms, TenantReading, WorkReading, coarse_edge,
};

/// Counts and bytes of successful requests, for example of a worker or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Numbers of successful reads, writes and other requests.
    pub requests: [u64; 3],
    /// Bytes of reads and of writes.
    pub bytes: [u64; 2],
    /// Times per stage of the sampled requests.
    pub samples: StageHistograms<u64>,
}

impl Work {
    /// Adds the requests, bytes and samples of `other`.
    pub(crate) fn add(&mut self, other: &Work) {
        self.requests.iter_mut().zip(other.requests).for_each(|(to, from)| *to += from);
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from);
        add_samples(&mut self.samples, &other.samples);
    }

    /// Returns the number of requests of all kinds.
    pub(crate) fn requests_total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Returns the rates of this work over `seconds` seconds: requests per second, then bytes read
    /// and bytes written per second.
    pub(crate) fn rates(&self, seconds: f64) -> (f64, [f64; 2]) {
        let iops = self.requests_total() as f64 / seconds;
        (iops, self.bytes.map(|bytes| bytes as f64 / seconds))
    }

    /// Returns the histograms of the sampled reads' times, one for each [`Stage`].
    pub(crate) fn reads(&self) -> [CoarseHistogram<u64>; Stage::ALL.len()] {
        self.samples[0]
    }
}

impl From<WorkReading> for Work {
    fn from(between: WorkReading) -> Work {
        let WorkReading { requests, bytes, samples } = between;
        Work { requests: requests.map(u64::from), bytes, samples: wide(&samples) }
    }
}

impl From<&TenantReading> for Work {
    fn from(between: &TenantReading) -> Work {
        Work {
            requests: [between.reads_total(), between.writes.into(), between.others.into()],
            bytes: [between.read_bytes, between.written_bytes],
            samples: wide(&between.samples),
        }
    }
}

fn wide(samples: &StageHistograms<u32>) -> StageHistograms<u64> {
    samples.map(|stages| stages.map(|histogram| histogram.map(u64::from)))
}

pub(crate) fn add_samples(to: &mut StageHistograms<u64>, from: &StageHistograms<u64>) {
    let to = to.as_flattened_mut().as_flattened_mut().iter_mut();
    to.zip(from.as_flattened().as_flattened()).for_each(|(to, from)| *to += from);
}

/// Returns the time in microseconds that `tenths` of a percent of these requests did not exceed:
/// the upper edge of a bucket, or the lower edge of the last bucket. Returns `None` without
/// requests.
pub(crate) fn percentile_us(histogram: &CoarseHistogram<u64>, tenths: u16) -> Option<f64> {
    let all: u64 = histogram.iter().sum();
    let wanted = (all * u64::from(tenths)).div_ceil(1_000).max(1);
    let mut below = 0;
    let found = histogram.iter().position(|count| {
        below += count;
        below >= wanted
    })?;
    let edge = coarse_edge(found).or_else(|| found.checked_sub(1).and_then(coarse_edge));
    edge.map(|nanos| nanos as f64 / 1e3)
}

/// The successful requests of each protocol.
///
/// Only sampled requests are attributed to the protocol of their connection. The exact count of all
/// successful requests is divided among the protocols in proportion to the samples of the same
/// window. Requests of a window without samples are divided in the next window that has some. While
/// only one protocol is in use, all requests belong to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByProtocol {
    /// The workers' samples at the end of the last window, by protocol.
    pub(crate) readings: [WorkReading; PROTOCOLS],
    pub(crate) done: [Work; PROTOCOLS],
    /// Successful requests that are not yet attributed.
    requests: [u64; 3],
    bytes: [u64; 2],
}

const PROTOCOLS: usize = Protocol::ALL.len();

impl ByProtocol {
    /// Ends a window with the total work `carried`. `readings` are the workers' samples.
    pub(crate) fn end(&mut self, readings: [WorkReading; PROTOCOLS], carried: &Work) {
        let before = std::mem::replace(&mut self.readings, readings);
        let picked: [Work; PROTOCOLS] =
            std::array::from_fn(|n| readings[n].since(&before[n]).into());
        for (done, picked) in self.done.iter_mut().zip(&picked) {
            add_samples(&mut done.samples, &picked.samples);
        }
        for (n, left) in self.requests.iter_mut().enumerate() {
            *left += carried.requests[n];
            let parts = divide(left, picked.map(|of| of.requests[n]));
            self.done.iter_mut().zip(parts).for_each(|(done, part)| done.requests[n] += part);
        }
        for (n, left) in self.bytes.iter_mut().enumerate() {
            *left += carried.bytes[n];
            let parts = divide(left, picked.map(|of| of.bytes[n]));
            self.done.iter_mut().zip(parts).for_each(|(done, part)| done.bytes[n] += part);
        }
    }
}

/// Divides a total in proportion to `by`. A remainder stays in `left`: less than one per protocol.
fn divide(left: &mut u64, by: [u64; PROTOCOLS]) -> [u64; PROTOCOLS] {
    let all: u64 = by.iter().sum();
    if all == 0 {
        return [0; PROTOCOLS];
    }
    let whole = u128::from(*left);
    let parts = by.map(|share| (whole * u128::from(share) / u128::from(all)) as u64);
    *left -= parts.iter().sum::<u64>();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(reads: u32, bytes: u64) -> WorkReading {
        WorkReading { requests: [reads, 0, 0], bytes: [bytes, 0], ..WorkReading::default() }
    }

    fn carried(reads: u64, bytes: u64) -> Work {
        Work { requests: [reads, 0, 0], bytes: [bytes, 0], ..Work::default() }
    }

    #[test]
    fn what_one_protocol_did_alone_is_exactly_its_own() {
        let mut all = ByProtocol::default();
        all.end([picked(0, 0), picked(0, 0), picked(0, 0)], &carried(40, 4_001));
        assert_eq!(all.done.map(|done| done.requests[0]), [0; 3], "nobody was picked yet");
        all.end([picked(0, 0), picked(1, 100), picked(0, 0)], &carried(57, 5_700));
        let told = all.done.map(|done| (done.requests[0], done.bytes[0]));
        assert_eq!(told, [(0, 0), (97, 9_701), (0, 0)]);
        all.end([picked(0, 0), picked(1, 100), picked(0, 0)], &carried(3, 300));
        assert_eq!(all.done[1].requests[0], 97, "nobody more was picked");
    }

    #[test]
    fn what_two_did_is_divided_and_nothing_is_lost() {
        let mut all = ByProtocol::default();
        // The samples wrap on the way.
        let start = u32::MAX - 50;
        all.readings[0] = picked(start, 0);
        for n in 1..=100 {
            let first = picked(start.wrapping_add(2 * n), 1_000 * u64::from(n));
            all.end([first, picked(n, 200 * u64::from(n)), picked(0, 0)], &carried(191, 191_000));
        }
        let [first, second, _] = all.done.map(|done| done.requests[0]);
        assert!(19_100 - (first + second) < 2, "{first} and {second}");
        assert!((12_725..=12_755).contains(&first), "two thirds are {first}");
        let bytes = all.done.map(|done| done.bytes[0] as f64);
        assert!((4.99..5.01).contains(&(bytes[0] / bytes[1])), "{bytes:?}");
    }

    #[test]
    fn percentiles_are_edges_of_buckets() {
        let mut histogram = [0; contract::COARSE_BUCKETS];
        assert_eq!(percentile_us(&histogram, 950), None);
        histogram[2] = 95;
        histogram[contract::COARSE_BUCKETS - 1] = 5;
        let edge = |n| coarse_edge(n).map(|nanos| nanos as f64 / 1e3);
        assert_eq!(percentile_us(&histogram, 950), edge(2));
        assert_eq!(percentile_us(&histogram, 951), edge(contract::COARSE_BUCKETS - 2));
    }
}
