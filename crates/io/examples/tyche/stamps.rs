//! The times at which a request passes the points of its path.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point of a request's path. Letters are those of the paper's Figure 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The application issues the request (A, B).
    Issued,
    /// The initiator gives the last packet to the kernel (C).
    Left,
    /// The target's kernel has the last packet.
    AtTarget,
    /// The target has received the last packet (D).
    Received,
    /// The network thread wakes the block thread.
    WakesBlock,
    /// The block thread runs.
    Block,
    /// The request goes to the drive (E).
    ToDrive,
    /// The drive has done it.
    Done,
    /// The block thread wakes the work queue.
    WakesQueue,
    /// The work queue runs (F).
    Queue,
    /// The target gives the last packet to the kernel (G).
    Replied,
    /// The initiator's kernel has the last packet.
    AtInitiator,
    /// The initiator has received the last packet (H).
    Back,
    /// The network thread wakes the block thread.
    WakesEnd,
    /// The block thread runs.
    End,
    /// The request is complete (B).
    Complete,
    /// The application runs again (A).
    Notified,
}

const POINTS: usize = Point::Notified as usize + 1;

/// The stamps of the one request that is outstanding, in nanoseconds since 1970.
static STAMPS: [AtomicU64; POINTS] = [const { AtomicU64::new(0) }; POINTS];

/// Returns the clock that the kernel stamps received packets with, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Notes that the request passes a point now.
pub(crate) fn stamp(point: Point) {
    stamp_at(point, now());
}

/// Notes that the request passed a point at a time.
pub(crate) fn stamp_at(point: Point, at: u64) {
    STAMPS[point as usize].store(at, Ordering::Release);
}

/// The components of a request's time in the paper's Table I, and the points between which each
/// passes. A point without a stamp of this request counts as the point before it.
const COMPONENTS: [(&str, &[(Point, Point)]); 11] = [
    ("in-out", &[(Point::Complete, Point::Notified)]),
    ("ty-is", &[(Point::Issued, Point::Left)]),
    ("ty-tr", &[(Point::Received, Point::WakesBlock), (Point::Block, Point::ToDrive)]),
    ("ty-ts", &[(Point::Done, Point::WakesQueue), (Point::Queue, Point::Replied)]),
    ("ty-ir", &[(Point::Back, Point::WakesEnd), (Point::End, Point::Complete)]),
    ("cs-wq", &[(Point::WakesQueue, Point::Queue)]),
    ("cs-rec", &[(Point::WakesBlock, Point::Block), (Point::WakesEnd, Point::End)]),
    ("cs-irq", &[(Point::AtTarget, Point::Received), (Point::AtInitiator, Point::Back)]),
    ("ramdisk", &[(Point::ToDrive, Point::Done)]),
    ("network", &[(Point::Left, Point::AtTarget), (Point::Replied, Point::AtInitiator)]),
    ("total", &[(Point::Issued, Point::Notified)]),
];

/// The components of all measured requests, in nanoseconds.
pub(crate) struct Record {
    components: [Vec<u64>; COMPONENTS.len()],
}

impl Record {
    pub(crate) fn new(requests: usize) -> Record {
        Record { components: std::array::from_fn(|_| Vec::with_capacity(requests)) }
    }

    /// Adds the request whose stamps are complete.
    pub(crate) fn add(&mut self) {
        let mut stamps: [u64; POINTS] =
            std::array::from_fn(|point| STAMPS[point].load(Ordering::Acquire));
        fill(&mut stamps);
        for (times, (_, parts)) in self.components.iter_mut().zip(COMPONENTS) {
            let time = |(from, to): &(Point, Point)| {
                stamps[*to as usize].saturating_sub(stamps[*from as usize])
            };
            times.push(parts.iter().map(time).sum());
        }
    }

    /// Returns the number of requests whose components add up to a total above zero.
    #[cfg(test)]
    pub(crate) fn whole(&self) -> usize {
        let (parts, total) = self.components.split_at(COMPONENTS.len() - 1);
        let sum = |n: usize| parts.iter().map(|times| times[n]).sum::<u64>();
        total[0].iter().enumerate().filter(|(n, total)| **total > 0 && **total == sum(*n)).count()
    }

    /// Prints the median of each component in µs.
    pub(crate) fn print(&self) {
        for ((name, _), times) in COMPONENTS.iter().zip(&self.components) {
            let mut times = times.clone();
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or(0);
            println!("{name} {:.3}", median as f64 / 1e3);
        }
    }
}

/// Gives each point that this request did not pass the time of the point before it. Stamps of
/// earlier requests are earlier than the first one of this.
fn fill(stamps: &mut [u64; POINTS]) {
    for point in 1..POINTS {
        stamps[point] = stamps[point].max(stamps[point - 1]);
    }
}

/// Returns the number of times that the threads of this process gave up the processor by
/// themselves, as `RUSAGE_THREAD` counts them (`ru_nvcsw`, getrusage(2)).
pub(crate) fn switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let count = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    threads.flatten().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_were_left_out_take_no_time() {
        let mut stamps = [0; POINTS];
        stamps[Point::Issued as usize] = 100;
        stamps[Point::Left as usize] = 110;
        stamps[Point::Block as usize] = 50; // of the request before
        stamps[Point::Notified as usize] = 200;
        fill(&mut stamps);
        assert_eq!(stamps[Point::Block as usize], 110);
        assert_eq!(stamps[Point::Complete as usize], 110);
        assert_eq!(stamps[Point::Notified as usize], 200);
    }

    #[test]
    fn the_components_cover_the_total_once() {
        let pairs = || COMPONENTS[..10].iter().flat_map(|(_, parts)| parts.iter());
        for point in 0..POINTS - 1 {
            let over =
                |(from, to): &&(Point, Point)| (*from as usize..*to as usize).contains(&point);
            assert_eq!(pairs().filter(over).count(), 1, "{point}");
        }
    }
}
