//! The processor time that a turn of a simulated worker takes. All constants of that kind stand
//! here.
//!
//! The constants are fitted to the bench's measurements of the real server (docs/results/serve.md,
//! version 1 over loopback on device `null:`, in nanoseconds of the server's core a request). A
//! saturated worker takes 64 requests a turn, where connections have several each:
//!
//! | row | connections a turn | measured | this model |
//! |---|---|---|---|
//! | `read-1k-4x32` | 2 | 335 | 336 |
//! | `read-1k-64x4` | 16 | 1183 | 1167 |
//! | `read-1k-5000x1` | 64 | 3930 | 4017 |
//! | `read-4k-4x32` | 2 | 615 | 618 |
//! | `write-4k-4x32` | 2 | 838 | 839 |
//! | a lone request's turn | 1 | about 7 000 | 6 970 |
//!
//! With thousands of connections that have one request each, a real turn takes about 40 requests:
//! from Linux 6.13 on, io_uring runs 20 pieces of its deferred work at a time, twice in a system
//! call. In the simulated world a turn takes 64; with 40 this model says 4 045 ns.
//!
//! A server's sockets are by far the most of it: a connection that is received from and sent to
//! costs 3.8 µs, twenty times what its request costs. The rows do not tell a receive from a send,
//! so each is charged half.
//!
//! The scheduler's part is counted in instructions (`cargo xtask cost`, the worker with its
//! sockets), in rounds of 64 requests. The assumed pace is 2.75 instructions a ns:
//!
//! | tenants | a round serves | instructions a request | ns | this model |
//! |---|---|---|---|---|
//! | 4, with 32 requests each in flight | 2 | 43 | 15.6 | 15.7 |
//! | 2 500, with one request each in flight | 64 | 233 | 84.7 | 84.5 |
//!
//! In the second row all requests go the short way (docs/explanation/scheduler.md, "The short
//! way"), so tenants are charged whichever way they go. The pace is a slow one: over a network of
//! memory, with nothing else in the caches, the same code was timed at several times that.
//!
//! Deliberately left out: the time to wake a sleeping worker (simulated workers spin, as the
//! paper's do), caches, and other programs.

/// The work of a worker in one turn, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnWork {
    /// Receives: a buffer of bytes taken from one connection.
    pub(crate) receives: u64,
    /// Connections to which bytes were sent.
    pub(crate) sends: u64,
    /// Number of requests whose first byte was received in the turn.
    pub(crate) requests: u64,
    /// Number of bytes received in the turn.
    pub(crate) bytes_in: u64,
    /// Number of bytes sent in the turn.
    pub(crate) bytes_out: u64,
    /// Rounds of the worker's token scheduler.
    pub(crate) rounds: u64,
    /// Tenants that the rounds visited, or whose requests went the short way.
    pub(crate) served: u64,
    /// Requests that were queued in a token scheduler.
    pub(crate) queued: u64,
}

/// Nanoseconds of a turn that progressed, beside its requests: the system call, the loop, the
/// inboxes.
const TURN: u64 = 3_000;
/// Nanoseconds of a turn without work (a spin of the loop).
const SPIN: u64 = 300;
/// Nanoseconds to receive once from a connection.
const RECEIVE: u64 = 1_900;
/// Nanoseconds to send to a connection.
const SEND: u64 = 1_900;
/// Processor time of one request in nanoseconds, without the costs for its bytes and its
/// scheduling.
const REQUEST: u64 = 76;
/// Nanoseconds to receive a KiB.
const KIB_IN: u64 = 149;
/// Nanoseconds to send a KiB.
const KIB_OUT: u64 = 94;
/// Nanoseconds of a token scheduler's round, beside its tenants.
const ROUND: u64 = 160;
/// Nanoseconds of one tenant in a token scheduler's round.
const TENANT: u64 = 71;
/// Nanoseconds to queue, price and pay one request in a token scheduler.
const QUEUE: u64 = 11;

impl TurnWork {
    /// Returns the processor time of the turn in nanoseconds. `progressed` is `true` if the turn
    /// found work.
    pub(crate) fn nanos(&self, progressed: bool) -> u64 {
        let turn = if progressed { TURN } else { SPIN };
        let sockets = RECEIVE * self.receives + SEND * self.sends;
        let bytes = (KIB_IN * self.bytes_in + KIB_OUT * self.bytes_out) / 1024;
        turn + sockets + bytes + REQUEST * self.requests + self.scheduling()
    }

    /// Returns the token scheduler's part of the turn's processor time, in nanoseconds.
    pub(crate) fn scheduling(&self) -> u64 {
        ROUND * self.rounds + TENANT * self.served + QUEUE * self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the processor time of a request, in nanoseconds, for a saturated worker that takes
    /// 64 requests a turn over this many connections.
    fn saturated(connections: u64, kib_in: u64, kib_out: u64) -> f64 {
        let requests = 64;
        let bytes = |kib: u64| kib * 1024 * requests;
        let work = TurnWork {
            receives: connections,
            sends: connections,
            requests,
            bytes_in: bytes(kib_in),
            bytes_out: bytes(kib_out),
            ..TurnWork::default()
        };
        work.nanos(true) as f64 / requests as f64
    }

    #[test]
    fn scheduling_costs_what_was_counted() {
        let a_request = |served| {
            let work = TurnWork { rounds: 1, served, queued: 64, ..TurnWork::default() };
            work.scheduling() as f64 / 64.0
        };
        for (served, instructions) in [(2, 43.0), (64, 233.0)] {
            let (modelled, expected) = (a_request(served), instructions / 2.75);
            assert!((modelled / expected - 1.0_f64).abs() < 0.03, "{modelled} of {expected}");
        }
    }

    #[test]
    fn costs_are_those_of_the_bench() {
        let rows = [
            (335.0, saturated(2, 0, 1)),
            (1183.0, saturated(16, 0, 1)),
            (3930.0, saturated(64, 0, 1)),
            (615.0, saturated(2, 0, 4)),
            (838.0, saturated(2, 4, 0)),
        ];
        for (measured, modelled) in rows {
            assert!((modelled / measured - 1.0_f64).abs() < 0.03, "{modelled} of {measured}");
        }
    }
}
