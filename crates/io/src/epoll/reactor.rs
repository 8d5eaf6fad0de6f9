//! The epoll instance of one thread.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::token::Token;
use crate::reactor::ReadyDescriptor;
use crate::{Error, Reactor, Waker};

/// Maximum number of events that one `epoll_wait` returns; the remaining events are returned by the
/// next one.
const EVENTS_MAX: usize = 1024;

/// The watched events of a stream: all that it has, so that one call is enough. They are reported
/// edge-triggered.
const STREAM: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::OUT).union(epoll::EventFlags::RDHUP);

/// A handle to a thread's epoll instance, which clones share.
#[derive(Clone)]
pub struct EpollReactor {
    inner: Rc<Inner>,
    waker: Waker,
}

struct Inner {
    epoll: OwnedFd,
    /// The events of the present wait; empty between waits.
    waited: RefCell<Vec<epoll::Event>>,
    /// Reported events that the sockets have not drained.
    inbox: RefCell<Vec<epoll::Event>>,
}

impl EpollReactor {
    /// Creates an epoll instance for the calling thread.
    ///
    /// # Errors
    /// Fails if the system refuses one (too few descriptors).
    pub fn new() -> Result<EpollReactor, Error> {
        let fail = |e: Errno| Error::system("cannot set epoll up", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail)?;
        let waker = Waker::new()?;
        epoll::add(&epoll, waker.fd(), Token::Waker.data(), epoll::EventFlags::IN).map_err(fail)?;
        let inner = Inner {
            epoll,
            waited: RefCell::new(Vec::with_capacity(EVENTS_MAX)),
            inbox: RefCell::new(Vec::with_capacity(EVENTS_MAX)),
        };
        Ok(EpollReactor { inner: Rc::new(inner), waker })
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, wait: Option<Option<Duration>>) {
        let limit = wait.unwrap_or(Some(Duration::ZERO)).map(whole_millis);
        let space = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.inner.epoll, space, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("epoll_wait failed: {errno}"),
        }
    }

    /// Watches a stream, edge-triggered, and reports its events with `token`.
    pub(super) fn watch_stream(&self, stream: impl AsFd, token: Token) -> Result<(), Errno> {
        let flags = STREAM | epoll::EventFlags::ET;
        epoll::add(&self.inner.epoll, stream, token.data(), flags)
    }

    /// Stops watching a stream or listener. Events of it that were reported before may still be
    /// drained.
    pub(super) fn forget(&self, stream: impl AsFd) {
        epoll::delete(&self.inner.epoll, stream).expect("it is watched");
    }

    /// Watches a listener, edge-triggered, and reports its events with `token`.
    pub(super) fn watch_listener(&self, listener: impl AsFd, token: Token) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.inner.epoll, listener, token.data(), flags)
    }

    /// Moves all events of the inbox to the end of `events`.
    pub(super) fn drain(&self, events: &mut Vec<epoll::Event>) {
        events.append(&mut self.inner.inbox.borrow_mut());
    }

    /// Tells whether there are events to drain.
    pub(super) fn has_events(&self) -> bool {
        !self.inner.inbox.borrow().is_empty()
    }
}

impl Reactor for EpollReactor {
    fn new() -> Result<Self, Error> {
        EpollReactor::new()
    }

    fn enter(&self, wait: Option<Option<Duration>>) -> bool {
        let mut waited = self.inner.waited.borrow_mut();
        self.wait(&mut waited, wait);
        let any = !waited.is_empty();
        let mut inbox = self.inner.inbox.borrow_mut();
        for event in waited.drain(..) {
            match Token::from_data(event.data) {
                Token::Waker => self.waker.clear(),
                _ => inbox.push(event),
            }
        }
        any
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn bell(&self) -> Result<ReadyDescriptor, Error> {
        let again = self.inner.epoll.try_clone();
        let fd = again.map_err(|e| Error::system("cannot copy a descriptor", e))?;
        Ok(ReadyDescriptor { fd, is_counter: false })
    }
}

/// Returns the limit, rounded down to whole milliseconds, which every kernel and filter supports.
/// The loop spins for the rest, so that nothing is late.
fn whole_millis(limit: Duration) -> Timespec {
    const MAX: Duration = Duration::from_millis(i32::MAX as u64);
    let limit = limit.min(MAX);
    let millis = i64::from(limit.subsec_millis());
    Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: millis * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_ends_the_present_or_next_wait() {
        let reactor = EpollReactor::new().unwrap();
        let waker = reactor.waker();
        waker.wake();
        assert!(reactor.enter(Some(None)), "a wake before the wait");
        assert!(!reactor.enter(None), "one wake ends one wait");
        let other = std::thread::spawn(move || waker.wake());
        assert!(reactor.enter(Some(None)), "a wake during the wait");
        other.join().unwrap();
    }

    #[test]
    fn a_limit_ends_a_wait_and_is_never_exceeded() {
        let limit = whole_millis(Duration::from_nanos(2_003_999_999));
        assert_eq!((limit.tv_sec, limit.tv_nsec), (2, 3_000_000));
        assert_eq!(whole_millis(Duration::MAX).tv_sec, i64::from(i32::MAX / 1000));
        let reactor = EpollReactor::new().unwrap();
        assert!(!reactor.enter(Some(Some(Duration::from_micros(1)))));
    }
}
