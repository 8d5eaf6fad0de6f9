//! A descriptor for event loops that becomes readable when a reactor has events or at a set time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use contract::Instant;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::reactor::ReadyDescriptor;
use crate::{Error, Reactor};

/// A descriptor that is readable when a reactor's thread must run: an `epoll(7)` instance over the
/// reactor and a timer.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
    bell: ReadyDescriptor,
    timer: OwnedFd,
    /// The time that the timer is set to; `None` if it is not set.
    set: Option<Instant>,
}

impl Readiness {
    /// Creates the descriptor for `reactor`; called once for each reactor. The timer is not set.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    pub fn new(reactor: &impl Reactor) -> Result<Readiness, Error> {
        let fail = |e: Errno| Error::system("cannot make a descriptor for event loops", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(fail)?;
        let data = epoll::EventData::new_u64(0);
        let bell = reactor.bell()?;
        epoll::add(&epoll, &bell.fd, data, epoll::EventFlags::IN).map_err(fail)?;
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN).map_err(fail)?;
        Ok(Readiness { epoll, bell, timer, set: None })
    }

    /// Returns the descriptor, which an event loop watches for being readable.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Clears the descriptor's signal. Called before the reactor is entered for the events.
    pub fn clear(&self) {
        if self.bell.is_counter {
            let _ = rustix::io::read(&self.bell.fd, &mut [0u8; 8]); // there may be none
        }
    }

    /// Makes the descriptor readable at the time `at`, or with `None` by events of the reactor
    /// alone. Costs a system call only if the time differs from the set one, or the set one is
    /// past.
    pub fn set(&mut self, now: Instant, at: Option<Instant>) {
        let is_over = self.set.is_some_and(|set| set <= now);
        if at == self.set && !is_over {
            return;
        }
        self.set = at;
        // Zero would stop the timer.
        let left = at.map(|at| at.since(now).max(Duration::from_nanos(1))).unwrap_or_default();
        let it_value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)
            .expect("a timer takes every time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, EpollReactor, Ring};
    use rustix::event::{PollFd, PollFlags, poll};

    /// Milliseconds in which an event surely comes, however busy the machine is.
    const PATIENCE: i64 = 60_000;

    fn is_readable(readiness: &Readiness, millis: i64) -> bool {
        let limit = Timespec { tv_sec: millis / 1_000, tv_nsec: millis % 1_000 * 1_000_000 };
        let mut polled = [PollFd::from_borrowed_fd(readiness.fd(), PollFlags::IN)];
        poll(&mut polled, Some(&limit)).unwrap() == 1
    }

    fn tells(reactor: &impl Reactor) {
        let mut readiness = Readiness::new(reactor).unwrap();
        reactor.enter(None); // arms the waker
        assert!(!is_readable(&readiness, 0));
        reactor.waker().wake();
        assert!(is_readable(&readiness, PATIENCE));
        readiness.clear();
        while reactor.enter(None) {}
        readiness.clear(); // running the work has told of it once more
        assert!(!is_readable(&readiness, 0), "the event was taken");
        let clock = Clock::start();
        let now = clock.now();
        readiness.set(now, Some(now + Duration::from_millis(2)));
        assert!(is_readable(&readiness, PATIENCE));
        readiness.set(clock.now(), None);
        assert!(!is_readable(&readiness, 0));
        readiness.set(clock.now(), Some(Instant::ZERO));
        assert!(is_readable(&readiness, PATIENCE), "a time that is over is due");
    }

    #[test]
    fn events_and_times_make_it_readable() {
        tells(&EpollReactor::new().unwrap());
        if let Ok(ring) = Ring::new() {
            tells(&ring);
        }
    }
}
