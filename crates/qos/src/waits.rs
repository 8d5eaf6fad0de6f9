//! The time for which the server's threads waited for a processor, and its effect on measurements
//! of a device.
//!
//! A measured delay ends when a thread takes the completion. If the thread waits for a processor,
//! the delay is partly the machine's, so a window with much waiting says nothing about the device
//! (docs/explanation/recalibration.md, "An overcommitted machine").

use core::time::Duration;

/// The share of a window for which a thread may wait without spoiling a p95: half of the reads that
/// may be above a p95.
pub const WAITS_MAX: f64 = 0.025;

/// Returns the share of a window for which a thread may wait without spoiling this percentile of
/// the delays, in tenths of a percent.
fn waits_max(tenths: u16) -> f64 {
    f64::from(1_000 - tenths.min(999)) / 1_000.0 / 2.0
}

/// Returns `true` if a thread waited for so much of a window that this percentile of the delays, in
/// tenths of a percent, says nothing about the device.
pub fn is_starved(waited: Duration, length: Duration, tenths: u16) -> bool {
    waited.as_secs_f64() > waits_max(tenths) * length.as_secs_f64()
}

/// The waits of the thread that waited most, between readings.
///
/// The kernel counts a wait at its end, and the thread counts the affected delays afterwards. A
/// reading in between finds the wait one window before the delays, so a window is also judged by
/// the waits of the previous window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    before: Duration,
    now: Duration,
}

impl Waits {
    /// Takes the longest wait of a thread since the last reading.
    pub(crate) fn look(&mut self, waited: Duration) {
        (self.before, self.now) = (self.now, waited);
    }

    /// Returns the longest wait at the last reading.
    pub(crate) fn last(&self) -> Duration {
        self.now
    }

    /// Returns `true` if workers' threads waited so long for a processor in the window that ended
    /// with the last reading that delays at this percentile (in tenths of a percent) say nothing
    /// about the device.
    pub(crate) fn spoil(&self, length: Duration, tenths: u16) -> bool {
        is_starved(self.now.max(self.before), length, tenths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);

    #[test]
    fn the_stricter_the_percentile_the_shorter_the_wait_that_spoils_it() {
        let waits = |micros, tenths| is_starved(Duration::from_micros(micros), WINDOW, tenths);
        assert_eq!([waits(2_500, 950), waits(2_501, 950)], [false, true]);
        assert_eq!([waits(500, 990), waits(501, 990)], [false, true]);
        assert!(!waits(0, 999) && !waits(0, 1_000));
        assert!((waits_max(950) - WAITS_MAX).abs() < 1e-12);
    }

    #[test]
    fn a_wait_spoils_its_window_and_the_next() {
        let mut waits = Waits::default();
        let spoilt = [0, 40, 0, 0].map(|millis| {
            waits.look(Duration::from_millis(millis));
            waits.spoil(WINDOW, 950)
        });
        assert_eq!(spoilt, [false, true, true, false]);
    }
}
