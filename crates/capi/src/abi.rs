//! The structs and constants of the C interface. `tests/header.rs` holds the header to them.

use std::ffi::{c_char, c_void};

use nearflash::Info;

/// Flag of [`Options`]: use the namespace [`Options::nsid`] and not the server's default.
pub const NF_NAMESPACE: u32 = 1;
/// Flag of [`Options`]: payloads have checksums on the network.
pub const NF_CHECKSUMS: u32 = 2;

/// Code of [`Op`]: read blocks.
pub const NF_READ: u16 = 0;
/// Code of [`Op`]: write blocks.
pub const NF_WRITE: u16 = 1;
/// Code of [`Op`]: make acknowledged writes durable.
pub const NF_FLUSH: u16 = 2;
/// Code of [`Op`]: discard blocks, which then read as zeroes.
pub const NF_DISCARD: u16 = 3;
/// Code of [`Op`]: write zeroes.
pub const NF_WRITE_ZEROES: u16 = 4;
/// Code of [`Op`]: compare with the first half of the data, and write the second.
pub const NF_COMPARE_AND_WRITE: u16 = 5;
/// Code of [`Op`]: write all or nothing.
pub const NF_WRITE_ATOMIC: u16 = 6;
/// Code of [`Op`]: order the requests of a stream.
pub const NF_BARRIER: u16 = 7;

/// Flag of [`Op`]: a write is durable before it ends.
pub const NF_FUA: u16 = 1;

/// Options of a handle; zero means the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Size of the caller's struct in bytes.
    pub size: usize,
    /// Flags: `NF_NAMESPACE` and `NF_CHECKSUMS`, or zero.
    pub flags: u32,
    /// Number of the namespace, with the flag `NF_NAMESPACE`.
    pub nsid: u32,
    /// Number of connections to the server.
    pub connections: u32,
    /// Maximum number of requests in flight.
    pub in_flight_max: u32,
    /// Time in nanoseconds for which requests wait for an unreachable server.
    pub outage_ns: i64,
    /// Time in nanoseconds for which a wait polls before it sleeps; negative for none.
    pub spin_ns: i64,
    /// The tenant of the connections, or null.
    pub tenant: *const c_char,
    /// Credentials for the server, or null for none.
    pub token: *const c_void,
    /// Size of the credentials in bytes.
    pub token_bytes: usize,
}

/// A request to submit to a queue, as C programs fill it in.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Op {
    /// The operation: `NF_READ` or another of these codes.
    pub code: u16,
    /// Flags: `NF_FUA`, or zero.
    pub flags: u16,
    /// Zero for any connection, `n` for the n-th.
    pub connection: u16,
    /// The stream in which barriers order the request.
    pub stream: u16,
    /// Offset in the namespace in bytes, a multiple of 512.
    pub offset: u64,
    /// Size of the range in bytes, a multiple of 512.
    pub bytes: u64,
    /// The payload of a write, or room for the data of a read.
    pub data: *mut c_void,
    /// The caller's name for the request.
    pub tag: u64,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Done {
    /// The caller's name for the request.
    pub tag: u64,
    /// Zero, or minus an error number.
    pub result: i32,
    /// Reserved; zero.
    pub reserved: u32,
}

/// The properties of a namespace.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    /// Size of the namespace in bytes.
    pub bytes: u64,
    /// Maximum size of an atomic write in bytes; zero for none.
    pub atomic_bytes_max: u64,
    /// Granularity in bytes at which the device works best.
    pub physical_block_bytes: u32,
    /// Number of the namespace.
    pub nsid: u16,
    /// 1 if the client may read.
    pub may_read: u8,
    /// 1 if the client may write.
    pub may_write: u8,
    /// 1 if acknowledged writes become durable only with a flush.
    pub needs_flush: u8,
    /// Reserved; zero.
    pub reserved: [u8; 7],
}

impl From<Info> for Properties {
    fn from(info: Info) -> Properties {
        Properties {
            bytes: info.bytes,
            atomic_bytes_max: info.atomic_bytes_max,
            physical_block_bytes: info.physical_block_bytes,
            nsid: info.namespace,
            may_read: info.may_read.into(),
            may_write: info.may_write.into(),
            needs_flush: info.needs_flush.into(),
            reserved: [0; 7],
        }
    }
}

/// A tenant's service-level objective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slo {
    /// Tail read latency in microseconds; zero: best effort.
    pub latency_us: u32,
    /// Guaranteed requests per second of the tenant.
    pub iops: u32,
    /// Size of a typical request in bytes; zero means 4 096.
    pub request_bytes: u32,
    /// The percentile that the latency bounds, in tenths of a percent; zero means p95.
    pub percentile_tenths: u16,
    /// Share of reads in percent.
    pub read_percent: u8,
    /// Reserved; zero.
    pub reserved: u8,
}

impl From<Slo> for nearflash::Slo {
    fn from(slo: Slo) -> nearflash::Slo {
        nearflash::Slo {
            latency_us: slo.latency_us,
            percentile_tenths: slo.percentile_tenths,
            iops: slo.iops,
            read_percent: slo.read_percent,
            request_bytes: slo.request_bytes,
        }
    }
}

/// The figures of a promise, or of its refusal.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Promise {
    /// Tokens per second that the SLO needs.
    pub tokens_needed: u64,
    /// On success, tokens per second that the device has left beside the SLO; on refusal, those
    /// that were free for it.
    pub tokens_free: u64,
}

/// A notice that the tenant demands more than its SLO.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Notice {
    /// The tenant's measured rate in requests per second.
    pub iops: u32,
    /// Measured share of reads in percent.
    pub read_percent: u32,
}
