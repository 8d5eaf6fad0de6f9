//! The service-level objective of a tenant (paper, section 3.2).
//!
//! This module deliberately leaves out the zeros that mean "none" in messages and files: parsers
//! replace them.

/// The service-level objective of a latency-critical tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Tail read latency in microseconds.
    pub latency_us: u32,
    /// The percentile that `latency_us` bounds, in tenths of a percent (950: p95).
    pub percentile_tenths: u16,
    /// Guaranteed requests per second.
    pub iops: u32,
    /// Share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Size of a typical request in bytes.
    pub request_bytes: u32,
}

impl Slo {
    /// The percentile of an objective that names none, in tenths of a percent.
    pub const PERCENTILE_TENTHS: u16 = 950;
    /// The share of reads in percent, of an objective that names none.
    pub const READ_PERCENT: u8 = 100;
    /// The size in bytes of a typical request, of an objective that names none.
    pub const REQUEST_BYTES: u32 = 4_096;

    /// Returns an objective with the default percentile and size of requests.
    pub const fn new(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
        Slo {
            latency_us,
            percentile_tenths: Slo::PERCENTILE_TENTHS,
            iops,
            read_percent,
            request_bytes: Slo::REQUEST_BYTES,
        }
    }
}
