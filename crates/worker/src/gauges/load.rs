//! The figures of what a worker holds.

/// The requests, buffers and bytes that a worker holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight.
    pub in_flight: usize,
    /// Buffers that are out of the pool.
    pub buffers: usize,
    /// Bytes kept for stopped connections, at most [`Limits::carried`](crate::Limits::carried).
    pub carried: usize,
    /// Requests that wait to ask for their payloads.
    pub put_off: usize,
    /// Requests that their fences, or another process, hold.
    pub fenced: usize,
    /// Connections that are to be looked at, because what they waited for may be over.
    pub called: usize,
}
