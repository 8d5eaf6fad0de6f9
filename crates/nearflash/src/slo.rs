//! A tenant's service-level objective, and the figures with which the server accepts or refuses it.

use std::fmt;

use contract::Status;

/// A tenant's service-level objective. The default is best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    /// Tail read latency in microseconds; zero: best effort.
    pub latency_us: u32,
    /// The percentile that `latency_us` bounds, in tenths of a percent (950: p95); zero means p95.
    pub percentile_tenths: u16,
    /// Guaranteed requests per second.
    pub iops: u32,
    /// Share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Size of a typical request in bytes; zero means 4 096.
    pub request_bytes: u32,
}

impl Slo {
    /// Returns the objective in the form of the protocol's messages; `None` for best effort.
    pub(crate) fn asked(&self) -> Option<contract::Slo> {
        let mut slo = contract::Slo::new(self.latency_us, self.iops, self.read_percent);
        if self.percentile_tenths > 0 {
            slo.percentile_tenths = self.percentile_tenths;
        }
        if self.request_bytes > 0 {
            slo.request_bytes = self.request_bytes;
        }
        (self.latency_us > 0).then_some(slo)
    }
}

/// The token rates with which a server accepts or refuses an SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Tokens a second that the SLO needs; a token is a read of 4 KiB. Zero for best effort.
    pub tokens_needed: u64,
    /// Tokens a second that the device has left beside all SLOs. For a refused SLO, the tokens that
    /// were available to it.
    pub tokens_free: u64,
}

/// A server's refusal of an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The server's status. `NoResources`: the device does not deliver as many tokens, or its model
    /// lacks that latency. `Unsupported`: the device has no model.
    pub status: Status,
    /// The tokens a second that the SLO needs, and those that were available to it.
    pub figures: Registered,
    /// The latency bound in microseconds at which the device's tokens did not suffice; `None` if
    /// the refusal has another reason.
    pub limit_latency_us: Option<u32>,
    /// `true` if the bound in `limit_latency_us` is that of another tenant.
    pub limited_by_other: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { status, figures, limit_latency_us, limited_by_other } = self;
        write!(f, "the server does not promise that: {status}")?;
        let Some(latency_us) = limit_latency_us else { return Ok(()) };
        if figures.tokens_needed > 0 {
            let Registered { tokens_needed, tokens_free } = figures;
            write!(f, "; it needs {tokens_needed} tokens/s of {tokens_free} available")?;
        }
        let whose = if *limited_by_other { "another tenant's" } else { "its own" };
        write!(f, "; the limit is set by {whose} latency of {latency_us} µs")
    }
}
