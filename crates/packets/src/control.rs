//! The window of a path: the bytes that may be in flight.
//!
//! [`Policy::Delay`] keeps the queue of the bottleneck short: it compares each round trip with the
//! least one plus 50 µs (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control
//! in the Datacenter", SIGCOMM 2020), halves at a loss, and follows marks as DCTCP does (RFC 8257).
//! docs/explanation/packets.md has the derivation.

use core::time::Duration;

use contract::Instant;

/// The rule for the window of a path, which limits the bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The window follows the delay of packets.
    Delay,
    /// The window is this number of packets, whatever happens (as Tyche's windows, or for shaped
    /// links).
    Fixed(u16),
}

/// The queueing delay that [`Policy::Delay`] aims at, above the least round trip.
pub(crate) const TARGET: Duration = Duration::from_micros(50);

/// The first window of a path, in packets.
const FIRST_PACKETS: u32 = 16;

/// The window of a path after the size of its packets has changed, in packets.
const RESTART_PACKETS: u32 = 2;

/// The window from which on packets are not paced, in packets.
const PACED_PACKETS: u32 = 8;

/// The divisor of a packet's bytes that gives the smallest window. A window below one packet means
/// a pause between packets.
const LEAST_PART: u32 = 64;

/// The longest pause between two packets. Longer round trips come from busy machines, not from a
/// queue.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The congestion window of a path, and the state by which it grows and shrinks.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    policy: Policy,
    /// The largest packet of the path, in bytes.
    packet_bytes: u32,
    /// The upper limit of the window, in bytes.
    window_max: u32,
    /// The window in bytes. Below one packet, packets leave with pauses.
    window: u32,
    /// `true` until the first sign of a queue: the window grows by the bytes that are acknowledged
    /// (slow start).
    starting: bool,
    /// The time of the last cut. The window is cut at most once a round trip.
    cut_at: Instant,
    /// The window before the last cut for a loss, restored if the packet was not lost; zero if the
    /// cut cannot be undone any more.
    before: u32,
    /// Share of marked bytes, smoothed, in units of 1/1024.
    marked: u32,
}

/// The information about a path that an acknowledgement brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    /// Bytes of the packets that were acknowledged.
    pub acked_bytes: u32,
    /// The round-trip time of a packet of at least half the full size, without the peer's delay of
    /// the acknowledgement. `None` if there was none: the time of a small packet says nothing about
    /// the window.
    pub delay: Option<Duration>,
    /// The least round trip of the last seconds.
    pub least: Duration,
    /// The smoothed round-trip time.
    pub smoothed: Duration,
    /// `true` if the network has marked packets of this end for congestion.
    pub marked: bool,
    /// `true` if packets took up at least half of the window when an acknowledged packet was sent,
    /// so that the window limits what is sent.
    pub was_limited: bool,
}

impl Control {
    /// Creates the state of a new path, with its first window. The path's packets have at most
    /// `packet_bytes` bytes, and at most `packets_max` of them are in flight.
    pub(crate) fn new(policy: Policy, packet_bytes: usize, packets_max: usize) -> Control {
        let packet_bytes = packet_bytes as u32;
        let packets = match policy {
            Policy::Delay => FIRST_PACKETS,
            Policy::Fixed(packets) => u32::from(packets),
        };
        let window_max = packet_bytes * packets_max as u32;
        let window = (packets * packet_bytes).min(window_max);
        Control {
            policy,
            packet_bytes,
            window_max,
            window,
            starting: true,
            cut_at: Instant::ZERO,
            before: 0,
            marked: 0,
        }
    }

    /// Returns the number of bytes that may be in flight: at least one packet.
    pub(crate) fn window(&self) -> u32 {
        self.window.max(self.packet_bytes)
    }

    /// Returns `true` if the window is so small that its packets are spread over the round trip.
    pub(crate) fn is_paced(&self) -> bool {
        self.policy == Policy::Delay && self.window < PACED_PACKETS * self.packet_bytes
    }

    /// Returns `true` if losses and delays have made the window smaller than a full packet. A
    /// sender of small packets measures no delays that would let the window grow again, so every
    /// acknowledgement lets it grow.
    fn is_below_a_packet(&self) -> bool {
        self.window < self.packet_bytes
    }

    /// Returns the pause after a packet of `bytes` bytes; `None` if the window is large enough to
    /// go without pauses.
    pub(crate) fn pause(&self, bytes: u32, smoothed: Duration) -> Option<Duration> {
        if !self.is_paced() {
            return None;
        }
        let nanos = smoothed.as_nanos() as u64 * u64::from(bytes) / u64::from(self.window);
        Some(Duration::from_nanos(nanos).min(PAUSE_MAX))
    }

    /// Restarts with a short window after the size of packets has changed. The least round-trip
    /// time must be measured again, without a queue that this end has caused.
    pub(crate) fn restart(&mut self) {
        if self.policy == Policy::Delay {
            self.window = RESTART_PACKETS * self.packet_bytes;
            self.starting = true;
        }
    }

    /// Adapts the window to an acknowledgement: cuts it if packets were late or marked, and lets it
    /// grow if it limited what was sent.
    pub(crate) fn acknowledged(&mut self, now: Instant, signal: &Signal) {
        if self.policy != Policy::Delay {
            return;
        }
        let share = if signal.marked { 1024 } else { 0 };
        let weight = signal.acked_bytes.min(self.window) as u64 * 1024 / self.window as u64;
        self.marked = mix(self.marked, share, weight as u32 / 16);
        let target = signal.least + TARGET;
        if let Some(delay) = signal.delay
            && delay > target
        {
            self.starting = false;
            let over = (delay - target).as_nanos() as u64;
            let cut = 820 * over / delay.as_nanos() as u64;
            self.cut_for_queue(now, signal.smoothed, 1024 - (cut as u32).min(512));
        } else if signal.marked {
            self.starting = false;
            self.cut_for_queue(now, signal.smoothed, 1024 - self.marked / 2);
        } else if signal.was_limited && signal.delay.is_some() || self.is_below_a_packet() {
            let (acked, window) = (u64::from(signal.acked_bytes), u64::from(self.window));
            // A packet a round trip; a quarter of one where many share the link.
            let step = if self.is_paced() { self.packet_bytes / 4 } else { self.packet_bytes };
            let grown = match self.starting {
                true => acked,
                false => (acked * u64::from(step) / window).max(1),
            };
            // Small packets, which have no delay, say nothing about a queue of full ones.
            let most = if signal.delay.is_some() { self.window_max } else { self.packet_bytes };
            self.window = (self.window + grown as u32).min(most);
        }
    }

    /// Halves the window after a loss, at most once a round trip.
    pub(crate) fn lost(&mut self, now: Instant, smoothed: Duration) {
        if self.policy == Policy::Delay {
            self.starting = false;
            let before = self.window;
            if self.cut(now, smoothed, 512) {
                self.before = before;
            }
        }
    }

    /// Halves the window because of the peer's lasting silence. One packet that arrives after all
    /// undoes all such cuts: the peer was busy.
    pub(crate) fn silent(&mut self, now: Instant, smoothed: Duration) {
        let before = self.before;
        self.lost(now, smoothed);
        self.before = self.before.max(before);
    }

    /// Notes that a packet was counted as lost without a cut: there is nothing to undo if it
    /// arrives after all.
    pub(crate) fn lost_without_cut(&mut self) {
        self.before = 0;
    }

    /// Undoes the last cut of the window for a loss, once, since the packet arrived after all.
    pub(crate) fn was_not_lost(&mut self) {
        if self.policy == Policy::Delay {
            self.window = self.window.max(core::mem::take(&mut self.before));
        }
    }

    /// Cuts the window for a queue on the way, after which no cut for a loss is undone.
    fn cut_for_queue(&mut self, now: Instant, smoothed: Duration, parts: u32) {
        if self.cut(now, smoothed, parts) {
            self.before = 0;
        }
    }

    /// Multiplies the window by `parts`/1024, at most once a round trip. Returns `false` if the
    /// last cut is more recent.
    fn cut(&mut self, now: Instant, smoothed: Duration, parts: u32) -> bool {
        if self.cut_at > Instant::ZERO && now - self.cut_at < smoothed {
            return false;
        }
        self.cut_at = now;
        let window = u64::from(self.window) * u64::from(parts) / 1024;
        self.window = (window as u32).max(self.packet_bytes / LEAST_PART).max(1);
        true
    }
}

/// Returns `old` moved towards `new` by `weight`/1024.
fn mix(old: u32, new: u32, weight: u32) -> u32 {
    (old * (1024 - weight) + new * weight) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn signal(delay: u64) -> Signal {
        Signal {
            acked_bytes: 10_000,
            delay: Some(micros(delay)),
            least: micros(20),
            smoothed: micros(delay),
            marked: false,
            was_limited: true,
        }
    }

    #[test]
    fn the_window_follows_the_delay() {
        let mut control = Control::new(Policy::Delay, 1000, 128);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        // (now in ms, delay in µs, window afterwards)
        let table = [
            (1, 30, 26_000),      // starting: grows by what was acknowledged
            (2, 70, 36_000),      // the target itself is no queue
            (3, 140, 21_585),     // 70 µs above of 140: × (1 − 0.8/2)
            (3, 140, 21_585),     // once a round trip
            (4, 30, 22_048),      // from now on a packet a round trip
            (50, 10_000, 11_024), // never below the half
        ];
        for (ms, delay, window) in table {
            control.acknowledged(at(ms), &signal(delay));
            assert_eq!(control.window(), window, "at {ms} ms, {delay} µs");
        }
    }

    #[test]
    fn a_loss_halves_once_a_round_trip_and_is_taken_back() {
        let mut control = Control::new(Policy::Delay, 1000, 128);
        let now = Instant::from_nanos(1_000_000);
        control.lost(now, micros(100));
        control.lost(now + micros(50), micros(100));
        assert_eq!(control.window(), 8000);
        control.was_not_lost();
        assert_eq!(control.window(), 16_000);
    }

    #[test]
    fn no_old_window_comes_back_after_another_reason_to_be_slow() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let cut = || {
            let mut control = Control::new(Policy::Delay, 1000, 128);
            control.lost(at(1), micros(100));
            assert_eq!(control.window(), 8000);
            control
        };
        let mut queued = cut();
        queued.acknowledged(at(50), &signal(10_000));
        queued.was_not_lost();
        assert_eq!(queued.window(), 4000, "a queue was seen after the loss");
        let mut silent = cut();
        silent.lost_without_cut();
        silent.was_not_lost();
        assert_eq!(silent.window(), 8000, "that packet had cut nothing");
    }

    #[test]
    fn an_idle_sender_does_not_grow() {
        let mut control = Control::new(Policy::Delay, 1000, 128);
        let idle = Signal { was_limited: false, ..signal(30) };
        control.acknowledged(Instant::from_nanos(1), &idle);
        assert_eq!(control.window(), 16_000);
    }

    #[test]
    fn small_windows_become_pauses() {
        let mut control = Control::new(Policy::Delay, 1000, 128);
        assert_eq!(control.pause(1000, micros(100)), None);
        for n in 1..=2 {
            control.lost(Instant::from_nanos(n * 1_000_000), micros(100));
        }
        assert_eq!(control.pause(1000, micros(100)), Some(micros(25)));
        for n in 3..40 {
            control.lost(Instant::from_nanos(n * 1_000_000), micros(100));
        }
        assert_eq!(control.window(), 1000, "a packet is always possible");
        assert!(control.pause(1000, micros(100)) > Some(micros(6000)));
    }

    #[test]
    fn small_packets_alone_end_the_pauses_again() {
        let mut control = Control::new(Policy::Delay, 1000, 128);
        for n in 1..40 {
            control.lost(Instant::from_nanos(n * 1_000_000), micros(100));
        }
        let before = control.pause(96, micros(100));
        let small = Signal { acked_bytes: 96, delay: None, was_limited: false, ..signal(30) };
        let acks = (0..64).take_while(|_| {
            control.acknowledged(Instant::from_nanos(100_000_000), &small);
            control.pause(96, micros(100)) > Some(micros(10))
        });
        assert!(acks.count() < 10, "an acknowledgement has to shorten the pause of {before:?}");
        for _ in 0..64 {
            control.acknowledged(Instant::from_nanos(100_000_000), &small);
        }
        assert_eq!(control.window, 1000, "a full packet, and no more");
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut control = Control::new(Policy::Fixed(4), 1000, 128);
        control.acknowledged(Instant::from_nanos(1), &signal(10_000));
        control.lost(Instant::from_nanos(2), micros(100));
        assert_eq!((control.window(), control.pause(1000, micros(9))), (4000, None));
    }

    #[test]
    fn few_marks_cut_little_and_many_cut_half() {
        let marked = Signal { marked: true, ..signal(30) };
        let mut control = Control::new(Policy::Delay, 1000, 128);
        control.acknowledged(Instant::from_nanos(1_000_000), &marked);
        assert!(control.window() > 15_000, "{}", control.window());
        for n in 2..200 {
            control.acknowledged(Instant::from_nanos(n * 1_000_000), &marked);
        }
        assert_eq!(control.window(), 1000);
    }
}
