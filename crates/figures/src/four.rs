//! The four tenants of Figure 5 of the ReFlex paper (section 5.4), with their promises on a drive.

use std::time::Duration;

/// The price of a 4 KiB write on device A, in tokens; a 4 KiB read in a mixed load costs one.
pub const WRITE_TOKENS: f64 = 10.0;

/// A tenant of Figure 5: its name, its share of reads, and its promised rate on device A.
#[derive(Clone, Copy, Debug)]
pub struct PaperTenant {
    /// Letter in the paper.
    pub name: &'static str,
    /// Share of reads, in percent.
    pub read_percent: u8,
    /// The promised requests a second; `None` for best effort.
    pub iops: Option<f64>,
}

/// The four tenants of Figure 5.
pub const TENANTS: [PaperTenant; 4] = [
    PaperTenant { name: "A", read_percent: 100, iops: Some(120e3) },
    PaperTenant { name: "B", read_percent: 80, iops: Some(70e3) },
    PaperTenant { name: "C", read_percent: 95, iops: None },
    PaperTenant { name: "D", read_percent: 25, iops: None },
];

/// The share of its promised 70 K requests a second that B sends in the second scenario.
pub const B_SENDS_LESS: f64 = 45e3 / 70e3;

/// A drive on which the tenants of Figure 5 run, with the promises that fit the drive.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// The promised 95th percentile of the latency of reads.
    pub p95: Duration,
    /// The promised rates on this drive, as a share of the paper's rates.
    pub share: f64,
    /// Tokens a second that the drive serves at the promised latency.
    pub tokens: f64,
}

/// Device A of the paper.
pub const PAPER: Drive = Drive { p95: Duration::from_micros(500), share: 1.0, tokens: 420e3 };

/// A tenant's service level objective on a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Requests a second.
    pub iops: f64,
    /// The bound of the 95th percentile of the latency of reads.
    pub p95: Duration,
}

impl PaperTenant {
    /// Returns the tenant's SLO on a drive; `None` if it is best effort.
    pub fn slo(&self, drive: Drive) -> Option<Slo> {
        Some(Slo { iops: self.iops? * drive.share, p95: drive.p95 })
    }

    /// Returns the mean tokens of a request in the tenant's mix of reads and writes.
    pub fn tokens(&self) -> f64 {
        let reads = f64::from(self.read_percent) / 100.0;
        reads + (1.0 - reads) * WRITE_TOKENS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_arithmetic() {
        let tokens = |n: usize| TENANTS[n].iops.unwrap() * TENANTS[n].tokens();
        assert!((tokens(0) - 120e3).abs() < 1.0);
        assert!((tokens(1) - 196e3).abs() < 1.0);
        let left = PAPER.tokens - tokens(0) - tokens(1);
        assert!((left / 2.0 - 52e3).abs() < 1.0, "C and D get 52 K each: {left}");
    }
}
