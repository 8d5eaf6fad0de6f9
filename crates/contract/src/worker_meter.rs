//! A worker's counters of its devices and of itself. As in [`TenantMeter`](crate::TenantMeter),
//! only the worker writes, and a reader takes differences.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crate::counter::{bump, bump_u64};
use crate::{EndCause, Status};

/// Maximum number of devices of a worker.
pub const DEVICES_MAX: usize = 64;

/// The flow of tokens, in nano-units (a token is 100 units). All counters wrap, within minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Generated for tenants or for the bucket.
    pub generated: u64,
    /// Paid for requests, without the tax, and for the device's background work.
    pub spent: u64,
    /// Paid as tax on writes, for the device's background work.
    pub taxed: u64,
    /// Put into the bucket by tenants that had more than they could use, or on behalf of idle
    /// tenants.
    pub donated: u64,
    /// Taken out of the bucket by tenants that had too few.
    pub borrowed: u64,
    /// Discarded when the bucket was emptied.
    pub expired: u64,
}

impl Tokens {
    /// Returns the sum of two token flows, of which `earlier` precedes this one. The sums wrap like
    /// the counters.
    #[must_use]
    pub fn after(self, earlier: Tokens) -> Tokens {
        Tokens {
            generated: self.generated.wrapping_add(earlier.generated),
            spent: self.spent.wrapping_add(earlier.spent),
            taxed: self.taxed.wrapping_add(earlier.taxed),
            donated: self.donated.wrapping_add(earlier.donated),
            borrowed: self.borrowed.wrapping_add(earlier.borrowed),
            expired: self.expired.wrapping_add(earlier.expired),
        }
    }
}

/// An error of a device itself, as opposed to a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The device could not read or write.
    Media,
    /// The device, or the file system below it, has no space left.
    NoSpace,
    /// The device takes no writes.
    ReadOnly,
}

impl DeviceError {
    /// All errors of devices, in the order of the enumeration.
    pub const ALL: [DeviceError; 3] =
        [DeviceError::Media, DeviceError::NoSpace, DeviceError::ReadOnly];

    /// Returns the error that a device ended a request with; `None` for a success, a failed compare
    /// and other outcomes that say nothing of the device.
    pub fn of(status: Status) -> Option<DeviceError> {
        match status {
            Status::MediaError => Some(DeviceError::Media),
            Status::NoSpace => Some(DeviceError::NoSpace),
            Status::ReadOnly => Some(DeviceError::ReadOnly),
            _ => None,
        }
    }
}

/// A worker's counters of one device.
#[derive(Debug, Default)]
pub struct DeviceMeter {
    /// Requests that ended with an error of the device, by [`DeviceError`].
    errors: [AtomicU32; DeviceError::ALL.len()],
    /// Generated, spent, taxed, donated, borrowed and expired tokens.
    tokens: [AtomicU64; 6],
    submitted: AtomicU32,
    queued: AtomicU32,
}

/// The counters of [`DeviceMeter`]s, summed over workers. Gauges have their current value, the rest
/// wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// Requests that ended with an error of the device, by [`DeviceError`].
    pub errors: [u32; DeviceError::ALL.len()],
    /// The flow of tokens at the device, in nano-units.
    pub tokens: Tokens,
    /// Requests that are at the device now.
    pub submitted: u32,
    /// Requests that wait in the workers' schedulers of the device now.
    pub queued: u32,
}

impl DeviceMeter {
    /// Worker: sets the number of its requests at the device and in schedulers.
    pub fn tell(&self, submitted: usize, queued: usize) {
        self.submitted.store(submitted as u32, Ordering::Relaxed);
        self.queued.store(queued as u32, Ordering::Relaxed);
    }

    /// Worker: counts a request that ended with an error of the device.
    pub fn count_error(&self, error: DeviceError) {
        bump(&self.errors[error as usize], 1);
    }

    /// Worker: sets the total flow of tokens.
    pub fn tell_tokens(&self, tokens: Tokens) {
        let Tokens { generated, spent, taxed, donated, borrowed, expired } = tokens;
        let all = [generated, spent, taxed, donated, borrowed, expired];
        self.tokens.iter().zip(all).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    }

    /// Adds the counters to `reading`.
    pub fn add_to(&self, reading: &mut DeviceReading) {
        let Tokens { generated, spent, taxed, donated, borrowed, expired } = &mut reading.tokens;
        let to = [generated, spent, taxed, donated, borrowed, expired].into_iter();
        to.zip(&self.tokens).for_each(|(to, from)| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        });
        reading.errors.iter_mut().zip(&self.errors).for_each(|(to, from)| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        });
        reading.submitted += self.submitted.load(Ordering::Relaxed);
        reading.queued += self.queued.load(Ordering::Relaxed);
    }
}

impl DeviceReading {
    /// Returns the difference to an `earlier` reading; gauges keep their current value.
    pub fn since(&self, earlier: &DeviceReading) -> DeviceReading {
        let less = |now: u64, then: u64| now.wrapping_sub(then);
        DeviceReading {
            errors: core::array::from_fn(|n| self.errors[n].wrapping_sub(earlier.errors[n])),
            tokens: Tokens {
                generated: less(self.tokens.generated, earlier.tokens.generated),
                spent: less(self.tokens.spent, earlier.tokens.spent),
                taxed: less(self.tokens.taxed, earlier.tokens.taxed),
                donated: less(self.tokens.donated, earlier.tokens.donated),
                borrowed: less(self.tokens.borrowed, earlier.tokens.borrowed),
                expired: less(self.tokens.expired, earlier.tokens.expired),
            },
            submitted: self.submitted,
            queued: self.queued,
        }
    }
}

/// A part of a worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnPart {
    /// Processing received messages and starting sends, without the system calls.
    Network,
    /// Parsing and admitting requests, writing replies.
    Protocol,
    /// The scheduler's rounds, and submitting the released requests to the device.
    Scheduling,
    /// Handling the device's completions.
    Device,
    /// The system call at the end of a turn, in which the kernel sends, receives and submits.
    Kernel,
    /// Mail of the control plane, sessions' own work, and upkeep of connections.
    Upkeep,
}

impl TurnPart {
    /// All parts of a worker's time, in order.
    pub const ALL: [TurnPart; 6] = [
        TurnPart::Network,
        TurnPart::Protocol,
        TurnPart::Scheduling,
        TurnPart::Device,
        TurnPart::Kernel,
        TurnPart::Upkeep,
    ];
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `reflex`, of either version.
    Reflex,
    /// NVMe over TCP.
    NvmeTcp,
    /// NBD.
    Nbd,
}

impl Protocol {
    /// All protocols of connections, in order.
    pub const ALL: [Protocol; 3] = [Protocol::Reflex, Protocol::NvmeTcp, Protocol::Nbd];
}

/// A worker's gauges at the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerGauges {
    /// Open connections by [`Protocol`].
    pub protocols: [u32; Protocol::ALL.len()],
    /// Requests in flight at the worker.
    pub in_flight: u32,
    /// Buffers that are taken from the pool.
    pub buffers: u32,
    /// Bytes kept for stopped connections.
    pub carried: u32,
}

/// A worker's counters of itself.
#[derive(Debug, Default)]
pub struct WorkerMeter {
    /// Number of turns that did work.
    turns: AtomicU64,
    /// Nanoseconds of turns that did work, with the system call after each.
    busy_nanos: AtomicU64,
    /// Nanoseconds for which the worker's thread waited for a processor.
    waited_nanos: AtomicU64,
    /// Nanoseconds of the timed turns, by [`TurnPart`].
    parts: [AtomicU64; TurnPart::ALL.len()],
    /// Failed requests of the worker; the index is the status's number.
    failures: [AtomicU32; Status::ALL.len()],
    /// Connections that have ended, by cause.
    ends: [AtomicU32; EndCause::ALL.len()],
    /// Number of the worker's connections.
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

/// The counters of a [`WorkerMeter`]. Failures, ends and moves wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerReading {
    /// Number of turns that did work.
    pub turns: u64,
    /// Nanoseconds of turns that did work, with the system call after each.
    pub busy_nanos: u64,
    /// Nanoseconds for which the worker's thread waited for a processor; zero if the kernel does
    /// not count them.
    pub waited_nanos: u64,
    /// Nanoseconds of the timed turns, by [`TurnPart`].
    pub parts: [u64; TurnPart::ALL.len()],
    /// Failed requests of the worker; the index is the status's number.
    pub failures: [u32; Status::ALL.len()],
    /// Connections that have ended, by [`EndCause`].
    pub ends: [u32; EndCause::ALL.len()],
    /// Numbers of connections that moved to another worker or process, of those whose move failed,
    /// and of those that arrived.
    pub moves: [u32; 3],
    /// The worker's gauges at the time of its last update of the counters.
    pub gauges: WorkerGauges,
}

impl WorkerMeter {
    /// Worker: adds `turns` turns that did work, and sets the total busy time and the gauges.
    pub fn tell(&self, turns: u32, busy_nanos: u64, gauges: WorkerGauges) {
        bump_u64(&self.turns, u64::from(turns));
        self.busy_nanos.store(busy_nanos, Ordering::Relaxed);
        let WorkerGauges { protocols, in_flight, buffers, carried } = gauges;
        let pairs =
            [(&self.in_flight, in_flight), (&self.buffers, buffers), (&self.carried, carried)];
        for (to, from) in pairs.into_iter().chain(self.protocols.iter().zip(protocols)) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Worker: adds the nanoseconds that a timed turn spent in a part.
    pub fn time(&self, part: TurnPart, nanos: u64) {
        bump_u64(&self.parts[part as usize], nanos);
    }

    /// Control plane: sets the total time for which the worker's thread waited for a processor.
    pub fn set_waited(&self, waited: Duration) {
        self.waited_nanos.store(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the total time for which the worker's thread waited for a processor; zero if the
    /// kernel does not count it.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed))
    }

    /// Worker: counts a failed request.
    pub fn fail(&self, status: Status) {
        bump(&self.failures[usize::from(status.code())], 1);
    }

    /// Worker: counts an ended connection.
    pub fn end(&self, cause: EndCause) {
        bump(&self.ends[cause as usize], 1);
    }

    /// Worker: sets the number of connections.
    pub fn set_connections(&self, count: usize) {
        self.connections.store(count as u32, Ordering::Relaxed);
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Worker: counts a connection that has landed elsewhere, with the time during which it was not
    /// received from.
    pub fn count_moved(&self, pause: Duration) {
        bump(&self.moved, 1);
        let us = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX);
        self.pause_us_max.fetch_max(us, Ordering::Relaxed);
    }

    /// Worker: counts a connection that was to leave and stays.
    pub fn count_stayed(&self) {
        bump(&self.stayed, 1);
    }

    /// Worker: counts a connection that came from another worker.
    pub fn count_arrived(&self) {
        bump(&self.arrived, 1);
    }

    /// Returns the numbers of connections that moved away, of those whose move failed, and of those
    /// that arrived.
    pub fn moves(&self) -> [u32; 3] {
        [&self.moved, &self.stayed, &self.arrived].map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the longest pause of a connection that left, in microseconds.
    pub fn pause_us_max(&self) -> u32 {
        self.pause_us_max.load(Ordering::Relaxed)
    }

    /// Returns the busy time in microseconds; wraps.
    pub fn busy_us(&self) -> u32 {
        (self.busy_nanos.load(Ordering::Relaxed) / 1_000) as u32
    }

    /// Returns the present values of the worker's counters and gauges.
    pub fn read(&self) -> WorkerReading {
        let wide = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let narrow = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        WorkerReading {
            turns: wide(&self.turns),
            busy_nanos: wide(&self.busy_nanos),
            waited_nanos: wide(&self.waited_nanos),
            parts: self.parts.each_ref().map(wide),
            failures: self.failures.each_ref().map(narrow),
            ends: self.ends.each_ref().map(narrow),
            moves: self.moves(),
            gauges: WorkerGauges {
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
        let tokens =
            Tokens { generated: u64::MAX, spent: 2, taxed: 6, donated: 3, borrowed: 4, expired: 5 };
        meter.tell(6, 7);
        meter.tell_tokens(tokens);
        meter.count_error(DeviceError::NoSpace);
        let mut before = DeviceReading::default();
        meter.add_to(&mut before);
        assert_eq!(before.tokens, tokens);
        meter.tell_tokens(Tokens { generated: 1, ..tokens });
        meter.count_error(DeviceError::Media);
        let mut after = DeviceReading::default();
        meter.add_to(&mut after);
        let since = after.since(&before);
        assert_eq!((since.tokens.generated, since.tokens.spent), (2, 0), "it has wrapped");
        assert_eq!((since.submitted, since.queued), (6, 7));
        assert_eq!((before.errors, since.errors), ([0, 1, 0], [1, 0, 0]));
    }

    #[test]
    fn a_worker_adds_up_its_turns() {
        let meter = WorkerMeter::default();
        let gauges = WorkerGauges { protocols: [1, 5, 0], in_flight: 2, buffers: 3, carried: 4 };
        meter.tell(1, 0, gauges);
        meter.tell(2, 500, gauges);
        meter.set_waited(Duration::from_nanos(700));
        meter.time(TurnPart::Kernel, 300);
        meter.fail(Status::Denied);
        meter.end(EndCause::Stuck);
        meter.count_stayed();
        let read = meter.read();
        assert_eq!((read.turns, read.busy_nanos, read.gauges), (3, 500, gauges));
        assert_eq!((read.parts[4], read.failures[5]), (300, 1));
        assert_eq!((read.waited_nanos, meter.waited()), (700, Duration::from_nanos(700)));
        assert_eq!((read.ends[EndCause::Stuck as usize], read.moves), (1, [0, 1, 0]));
    }
}
