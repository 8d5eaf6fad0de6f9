//! What a worker tells of its devices and itself. As in [`Meter`](crate::Meter), it alone writes, and
//! whoever reads takes differences.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crate::meters::{bump, bump_u64};
use crate::{End, Status};

/// Devices of a worker at most.
pub const DEVICES_MAX: usize = 16;

/// What became of tokens, in nano-units (a token is 100 units). All of it wraps, within minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Made, for tenants or for the bucket.
    pub generated: u64,
    /// Paid for requests.
    pub spent: u64,
    /// Put into the bucket by tenants that had more than they could use, or for idle ones.
    pub donated: u64,
    /// Taken out of the bucket by tenants that had less.
    pub borrowed: u64,
    /// Thrown away when the bucket was emptied.
    pub expired: u64,
}

/// One worker's counters of one device.
#[derive(Debug, Default)]
pub struct DeviceMeter {
    /// Generated, spent, donated, borrowed, expired.
    tokens: [AtomicU64; 5],
    submitted: AtomicU32,
    queued: AtomicU32,
}

/// What [`DeviceMeter`]s say, added up over workers. The gauges are as they are, the rest wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// Its tokens.
    pub tokens: Tokens,
    /// Requests at the device.
    pub submitted: u32,
    /// Requests that wait in schedulers.
    pub queued: u32,
}

impl DeviceMeter {
    /// Worker: this is how many requests the device has of it, and how many wait.
    pub fn tell(&self, submitted: usize, queued: usize) {
        self.submitted.store(submitted as u32, Ordering::Relaxed);
        self.queued.store(queued as u32, Ordering::Relaxed);
    }

    /// Worker: what became of tokens, in all.
    pub fn tell_tokens(&self, tokens: Tokens) {
        let Tokens { generated, spent, donated, borrowed, expired } = tokens;
        let all = [generated, spent, donated, borrowed, expired];
        self.tokens.iter().zip(all).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    }

    /// Adds what it says to `reading`.
    pub fn add_to(&self, reading: &mut DeviceReading) {
        let Tokens { generated, spent, donated, borrowed, expired } = &mut reading.tokens;
        let to = [generated, spent, donated, borrowed, expired].into_iter();
        to.zip(&self.tokens).for_each(|(to, from)| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        });
        reading.submitted += self.submitted.load(Ordering::Relaxed);
        reading.queued += self.queued.load(Ordering::Relaxed);
    }
}

impl DeviceReading {
    /// What was counted since an `earlier` reading; the gauges are as they are now.
    pub fn since(&self, earlier: &DeviceReading) -> DeviceReading {
        let less = |now: u64, then: u64| now.wrapping_sub(then);
        DeviceReading {
            tokens: Tokens {
                generated: less(self.tokens.generated, earlier.tokens.generated),
                spent: less(self.tokens.spent, earlier.tokens.spent),
                donated: less(self.tokens.donated, earlier.tokens.donated),
                borrowed: less(self.tokens.borrowed, earlier.tokens.borrowed),
                expired: less(self.tokens.expired, earlier.tokens.expired),
            },
            submitted: self.submitted,
            queued: self.queued,
        }
    }
}

/// What a worker's time goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Taking what the network delivered, and starting what it sends; without the system calls.
    Network,
    /// Parsing and admitting requests, writing replies.
    Protocol,
    /// The scheduler's rounds, and handing to the device what they let go.
    Scheduling,
    /// Taking what the device has ended.
    Device,
    /// The system call at the end of a turn, in which the kernel sends, receives and submits.
    Kernel,
    /// Mail of the control plane, sessions' own work, and looking after connections.
    Upkeep,
}

impl Part {
    /// All of them, in their order.
    pub const ALL: [Part; 6] =
        [Part::Network, Part::Protocol, Part::Scheduling, Part::Device, Part::Kernel, Part::Upkeep];
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `reflex`, of either version.
    Reflex,
    /// NVMe over TCP.
    NvmeTcp,
}

impl Protocol {
    /// All of them, in their order.
    pub const ALL: [Protocol; 2] = [Protocol::Reflex, Protocol::NvmeTcp];
}

/// What a worker holds at the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Connections that are open, by [`Protocol`].
    pub protocols: [u32; Protocol::ALL.len()],
    /// Requests in flight.
    pub in_flight: u32,
    /// Buffers that are out of the pool.
    pub buffers: u32,
    /// Bytes kept for stopped connections.
    pub carried: u32,
}

/// A worker's counters of itself.
#[derive(Debug, Default)]
pub struct WorkerMeter {
    /// Turns that did something.
    turns: AtomicU64,
    /// Nanoseconds that they took, with the system call behind each.
    busy_nanos: AtomicU64,
    /// Nanoseconds of the turns that were timed, by [`Part`].
    parts: [AtomicU64; Part::ALL.len()],
    /// Requests that were not carried out, by status.
    failures: [AtomicU32; Status::ALL.len()],
    /// Connections that have ended, by cause.
    ends: [AtomicU32; End::ALL.len()],
    /// Its connections.
    connections: AtomicU32,
    /// Connections that have left for other workers and landed there.
    moved: AtomicU32,
    /// Connections that were to leave and stayed.
    stayed: AtomicU32,
    /// Connections that came from other workers.
    arrived: AtomicU32,
    /// The longest pause of a connection that left, in microseconds.
    pause_us_max: AtomicU32,
    protocols: [AtomicU32; Protocol::ALL.len()],
    in_flight: AtomicU32,
    buffers: AtomicU32,
    carried: AtomicU32,
}

/// What a [`WorkerMeter`] says. Failures, ends and moves wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerReading {
    /// Turns that did something.
    pub turns: u64,
    /// Nanoseconds that they took, with the system call behind each.
    pub busy_nanos: u64,
    /// Nanoseconds of the turns that were timed, by [`Part`].
    pub parts: [u64; Part::ALL.len()],
    /// Requests that were not carried out, by status.
    pub failures: [u32; Status::ALL.len()],
    /// Connections that have ended, by [`End`].
    pub ends: [u32; End::ALL.len()],
    /// Connections that left, stayed although they were to leave, and arrived.
    pub moves: [u32; 3],
    /// What it holds.
    pub gauges: Gauges,
}

impl WorkerMeter {
    /// Worker: so many turns more did something; what was done until now took so many nanoseconds in
    /// all.
    pub fn tell(&self, turns: u32, busy_nanos: u64, gauges: Gauges) {
        bump_u64(&self.turns, u64::from(turns));
        self.busy_nanos.store(busy_nanos, Ordering::Relaxed);
        let Gauges { protocols, in_flight, buffers, carried } = gauges;
        let pairs =
            [(&self.in_flight, in_flight), (&self.buffers, buffers), (&self.carried, carried)];
        for (to, from) in pairs.into_iter().chain(self.protocols.iter().zip(protocols)) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Worker: of a timed turn, so many nanoseconds went into this.
    pub fn time(&self, part: Part, nanos: u64) {
        bump_u64(&self.parts[part as usize], nanos);
    }

    /// Worker: a request was not carried out.
    pub fn fail(&self, status: Status) {
        bump(&self.failures[usize::from(status.code())], 1);
    }

    /// Worker: a connection has ended.
    pub fn end(&self, cause: End) {
        bump(&self.ends[cause as usize], 1);
    }

    /// Worker: it has so many connections.
    pub fn set_connections(&self, count: usize) {
        self.connections.store(count as u32, Ordering::Relaxed);
    }

    /// Its connections.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Worker: a connection has landed elsewhere, which was not received from for that long.
    pub fn count_moved(&self, pause: Duration) {
        bump(&self.moved, 1);
        let us = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX);
        self.pause_us_max.fetch_max(us, Ordering::Relaxed);
    }

    /// Worker: a connection that was to leave stays.
    pub fn count_stayed(&self) {
        bump(&self.stayed, 1);
    }

    /// Worker: a connection came from another worker.
    pub fn count_arrived(&self) {
        bump(&self.arrived, 1);
    }

    /// Connections that left, stayed although they were to leave, and arrived.
    pub fn moves(&self) -> [u32; 3] {
        [&self.moved, &self.stayed, &self.arrived].map(|count| count.load(Ordering::Relaxed))
    }

    /// The longest pause of a connection that left, in microseconds.
    pub fn pause_us_max(&self) -> u32 {
        self.pause_us_max.load(Ordering::Relaxed)
    }

    /// Microseconds in which it had something to do; wraps.
    pub fn busy_us(&self) -> u32 {
        (self.busy_nanos.load(Ordering::Relaxed) / 1_000) as u32
    }

    /// What it says.
    pub fn read(&self) -> WorkerReading {
        let wide = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let narrow = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        WorkerReading {
            turns: wide(&self.turns),
            busy_nanos: wide(&self.busy_nanos),
            parts: self.parts.each_ref().map(wide),
            failures: self.failures.each_ref().map(narrow),
            ends: self.ends.each_ref().map(narrow),
            moves: self.moves(),
            gauges: Gauges {
                protocols: self.protocols.each_ref().map(narrow),
                in_flight: narrow(&self.in_flight),
                buffers: narrow(&self.buffers),
                carried: narrow(&self.carried),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_says_what_was_told() {
        let meter = DeviceMeter::default();
        let tokens = Tokens { generated: u64::MAX, spent: 2, donated: 3, borrowed: 4, expired: 5 };
        meter.tell(6, 7);
        meter.tell_tokens(tokens);
        let mut before = DeviceReading::default();
        meter.add_to(&mut before);
        assert_eq!(before.tokens, tokens);
        meter.tell_tokens(Tokens { generated: 1, ..tokens });
        let mut after = DeviceReading::default();
        meter.add_to(&mut after);
        let since = after.since(&before);
        assert_eq!((since.tokens.generated, since.tokens.spent), (2, 0), "it has wrapped");
        assert_eq!((since.submitted, since.queued), (6, 7));
    }

    #[test]
    fn a_worker_adds_up_its_turns() {
        let meter = WorkerMeter::default();
        let gauges = Gauges { protocols: [1, 5], in_flight: 2, buffers: 3, carried: 4 };
        meter.tell(1, 0, gauges);
        meter.tell(2, 500, gauges);
        meter.time(Part::Kernel, 300);
        meter.fail(Status::Denied);
        meter.end(End::Stuck);
        meter.count_stayed();
        let read = meter.read();
        assert_eq!((read.turns, read.busy_nanos, read.gauges), (3, 500, gauges));
        assert_eq!((read.parts[4], read.failures[5]), (300, 1));
        assert_eq!((read.ends[End::Stuck as usize], read.moves), (1, [0, 1, 0]));
    }
}
