//! Traces of single requests through a worker: a bounded ring that the worker fills and the control
//! plane empties, without a lock.
//!
//! Nothing is traced unless an operator asks for it, and then one request in a given number. A
//! trace that finds the ring full is dropped. This module deliberately leaves out the
//! display of traces.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{IoKind, NamespaceId, Status, TenantId};

/// Capacity of a ring, in traces.
const TRACES_MAX: usize = 1024;

/// A point on the path of a request, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// The beginning of the turn that received the request's last bytes.
    Received,
    /// The request was parsed and admitted.
    Admitted,
    /// All requests that the turn received were parsed, admitted and queued.
    Queued,
    /// The turn that released the request came to its schedulers.
    Due,
    /// The request was submitted, with all requests that the turn released, and the device was
    /// kicked.
    Submitted,
    /// The turn in which the device had ended the request came to its devices.
    Polled,
    /// The request's completion was taken from the device.
    Ended,
    /// The request's reply was written, with all replies of the turn.
    Answered,
    /// The request's reply was handed to the socket, with all replies of the turn.
    Handed,
    /// A turn found that the network had taken the whole reply.
    Sent,
}

impl TracePoint {
    /// All points on the path of a request, in order.
    pub const ALL: [TracePoint; 10] = [
        TracePoint::Received,
        TracePoint::Admitted,
        TracePoint::Queued,
        TracePoint::Due,
        TracePoint::Submitted,
        TracePoint::Polled,
        TracePoint::Ended,
        TracePoint::Answered,
        TracePoint::Handed,
        TracePoint::Sent,
    ];
}

/// The trace of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The tenant of the request.
    pub tenant: TenantId,
    /// The index of its connection.
    pub connection: u32,
    /// The index of the request's connection.
    pub namespace: NamespaceId,
    /// The namespace of the request.
    pub kind: IoKind,
    /// The status of the request.
    pub status: Status,
    /// The size of the request's data in bytes.
    pub bytes: u32,
    /// The time at each [`TracePoint`], in nanoseconds of the server's clock; zero if the request
    /// did not reach it.
    pub at: [u64; TracePoint::ALL.len()],
}

/// Number of words of a trace in the ring.
const WORDS: usize = 3 + TracePoint::ALL.len();

/// The traces of one worker: a ring buffer that the worker fills and the control plane empties.
#[derive(Debug)]
pub struct Traces {
    /// Sampling interval: every `one_in`th request is traced; zero for none.
    one_in: AtomicU32,
    /// Number of traces ever put into the ring (`put`) and ever taken out (`taken`): `taken ≤ put ≤
    /// taken + TRACES_MAX`.
    put: AtomicU64,
    taken: AtomicU64,
    ring: Box<[[AtomicU64; WORDS]]>,
}

impl Default for Traces {
    fn default() -> Traces {
        let empty = |_| core::array::from_fn(|_| AtomicU64::new(0));
        Traces {
            one_in: AtomicU32::new(0),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            ring: (0..TRACES_MAX).map(empty).collect(),
        }
    }
}

impl Traces {
    /// Control plane: traces one request in `one_in` from the worker's next turn on; zero for none.
    pub fn set_one_in(&self, one_in: u32) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }

    /// Returns the sampling interval; zero for none.
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Ordering::Relaxed)
    }

    /// Worker: puts a trace into the ring, or drops it if the ring is full.
    pub fn put(&self, trace: &Trace) {
        let put = self.put.load(Ordering::Relaxed);
        if put - self.taken.load(Ordering::Acquire) == TRACES_MAX as u64 {
            return;
        }
        let place = &self.ring[put as usize % TRACES_MAX];
        place.iter().zip(trace.to_words()).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
        self.put.store(put + 1, Ordering::Release);
    }

    /// Control plane, one caller at a time: takes the oldest trace out; `None` if the ring is
    /// empty.
    pub fn take(&self) -> Option<Trace> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.put.load(Ordering::Acquire) {
            return None;
        }
        let place = &self.ring[taken as usize % TRACES_MAX];
        let words = place.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.taken.store(taken + 1, Ordering::Release);
        Some(Trace::from_words(words))
    }
}

impl Trace {
    fn to_words(self) -> [u64; WORDS] {
        let kind = match self.kind {
            IoKind::Read => 0,
            IoKind::Write => 1,
            IoKind::Exchange => 2,
            IoKind::Other => 3,
        };
        let mut words = [0; WORDS];
        words[0] = u64::from(self.tenant.0) << 32 | u64::from(self.connection);
        words[1] = u64::from(self.namespace.0) << 16 | u64::from(self.status.code());
        words[2] = kind << 32 | u64::from(self.bytes);
        words[3..].copy_from_slice(&self.at);
        words
    }

    fn from_words(words: [u64; WORDS]) -> Trace {
        let [who, what, size, at @ ..] = words;
        Trace {
            tenant: TenantId((who >> 32) as u32),
            connection: who as u32,
            namespace: NamespaceId((what >> 16) as u16),
            status: Status::from_code(what as u16),
            kind: match size >> 32 {
                0 => IoKind::Read,
                1 => IoKind::Write,
                2 => IoKind::Exchange,
                _ => IoKind::Other,
            },
            bytes: size as u32,
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(n: u32) -> Trace {
        Trace {
            tenant: TenantId(n),
            connection: u32::MAX - n,
            namespace: NamespaceId(7),
            kind: [IoKind::Read, IoKind::Write, IoKind::Exchange, IoKind::Other][n as usize % 4],
            status: Status::ALL[n as usize % Status::ALL.len()],
            bytes: n,
            at: core::array::from_fn(|seam| u64::from(n) << seam),
        }
    }

    #[test]
    fn a_ring_keeps_its_order_and_drops_what_is_too_much() {
        let traces = Traces::default();
        assert_eq!((traces.one_in(), traces.take()), (0, None));
        for start in [0, 700] {
            (0..TRACES_MAX as u32 + 3).for_each(|n| traces.put(&trace(start + n)));
            let all = core::iter::from_fn(|| traces.take());
            assert!(all.eq((0..TRACES_MAX as u32).map(|n| trace(start + n))));
        }
        assert_eq!(traces.take(), None);
    }
}
