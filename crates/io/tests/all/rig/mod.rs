//! What tests of sockets share: both ways to the kernel, both kinds of connections, and an end of one.

#![allow(dead_code, unused_macros, reason = "each test uses a part of it")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contract::{Buf, CloseReason, ConnId, Frame, NetEvent};
use nearflash_io::{Clock, Listener, Network, Reactor, SocketsConfig, TcpOptions, UnixPath};

/// Makes a module of tests for each way to the kernel.
macro_rules! over_both {
    ($($name:ident)*) => {
        mod over_io_uring {
            $(#[test] fn $name() { super::$name::<nearflash_io::Sockets>(); })*
        }
        mod over_epoll {
            $(#[test] fn $name() { super::$name::<nearflash_io::EpollSockets>(); })*
        }
    };
}

/// Makes the same for tests of what does not depend on the kind of the connection.
macro_rules! over_every {
    ($($name:ident)*) => {
        mod over_io_uring_and_tcp {
            $(#[test] fn $name() { super::$name::<nearflash_io::Sockets>(crate::rig::listener()); })*
        }
        mod over_epoll_and_tcp {
            $(#[test] fn $name() { super::$name::<nearflash_io::EpollSockets>(crate::rig::listener()); })*
        }
        mod over_io_uring_and_unix {
            $(#[test] fn $name() { super::$name::<nearflash_io::Sockets>(crate::rig::unix_listener()); })*
        }
        mod over_epoll_and_unix {
            $(#[test] fn $name() { super::$name::<nearflash_io::EpollSockets>(crate::rig::unix_listener()); })*
        }
    };
}

pub(crate) fn buf(bytes: usize) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), 0)
}

/// Sockets with a reactor of their own that turn until a test has seen enough.
pub(crate) struct End<N: Network> {
    pub(crate) reactor: N::Reactor,
    pub(crate) clock: Clock,
    pub(crate) sockets: N,
}

impl<N: Network> End<N> {
    pub(crate) fn with(config: SocketsConfig) -> Self {
        let reactor = N::Reactor::new().unwrap();
        let sockets = N::new(&reactor, config).unwrap();
        End { reactor, clock: Clock::start(), sockets }
    }

    pub(crate) fn poll(&mut self) -> Vec<NetEvent> {
        let mut events = Vec::new();
        self.sockets.poll(self.clock.now(), &mut events, 64);
        events
    }

    pub(crate) fn end_turn(&mut self) {
        self.sockets.kick(self.clock.now());
        self.reactor.enter(Some(Some(Duration::from_millis(1))));
    }

    pub(crate) fn turn(&mut self) -> Vec<NetEvent> {
        let events = self.poll();
        self.end_turn();
        events
    }

    /// Turns until an event of the wanted kind comes; what comes before is not looked at, except
    /// that lent buffers go back.
    pub(crate) fn await_event<R>(&mut self, wanted: impl Fn(&NetEvent) -> Option<R>) -> R {
        let end = self.clock.now() + Duration::from_secs(60);
        while self.clock.now() < end {
            let mut found = None;
            for event in self.turn() {
                found = found.or_else(|| wanted(&event));
                if let NetEvent::Received { buf, .. } = event {
                    self.sockets.give(buf);
                }
            }
            if let Some(found) = found {
                return found;
            }
        }
        panic!("it never came");
    }

    pub(crate) fn await_opened(&mut self) -> ConnId {
        self.await_event(|event| match event {
            NetEvent::Opened { conn, .. } => Some(*conn),
            _ => None,
        })
    }

    pub(crate) fn await_closed(&mut self) -> (ConnId, CloseReason) {
        self.await_event(|event| match event {
            NetEvent::Closed { conn, reason } => Some((*conn, *reason)),
            _ => None,
        })
    }

    pub(crate) fn send(&mut self, conn: ConnId, frame: Frame) {
        self.sockets.send(self.clock.now(), conn, frame);
    }
}

pub(crate) fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap()
}

pub(crate) fn unix_path() -> UnixPath {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("nearflash-sockets-{}-{number}", std::process::id());
    UnixPath::new(std::env::temp_dir().join(name)).unwrap()
}

pub(crate) fn unix_listener() -> Listener {
    Listener::bind_unix(&unix_path(), 0o600).unwrap()
}
