//! The numbers of requests, buffers and bytes that a worker holds.

/// The requests, buffers and bytes that a worker holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceUse {
    /// Number of requests in flight at the worker.
    pub in_flight: usize,
    /// Buffers that are out of the pool.
    pub buffers: usize,
    /// Bytes kept for stalled connections, at most [`Limits::carried`](crate::Limits::carried).
    pub carried: usize,
    /// Requests whose payloads the worker has not asked their peers for yet.
    pub put_off: usize,
    /// Requests that wait until other requests of their fence, or another process, let them start.
    pub fenced: usize,
    /// Connections that were called, because the reason of their stall may be over.
    pub called: usize,
}
