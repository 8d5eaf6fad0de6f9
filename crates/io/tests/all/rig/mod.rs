//! Parts that tests of sockets share: both ways to the kernel, all kinds of connections, and one
//! end of a connection.

#![allow(dead_code, unused_macros, reason = "each test uses a part of it")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use contract::{Buf, CloseReason, ConnId, Frame, NetEvent};
use nearflash_io::{
    ClientTls, Clock, Listener, Network, Reactor, ServerTls, SocketsConfig, TcpOptions, TlsPolicy,
    UnixPath,
};

/// Makes a module of tests for each way to the kernel: io_uring and epoll.
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

/// Makes a module of tests for each way to the kernel and each kind of stream: TCP and Unix
/// sockets.
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

/// Makes a module of tests for each way to the kernel, with connections over TLS.
macro_rules! over_tls {
    ($($name:ident)*) => {
        mod over_io_uring_and_tls {
            $(#[test] fn $name() { super::$name::<nearflash_io::Sockets>(crate::rig::tls_listener()); })*
        }
        mod over_epoll_and_tls {
            $(#[test] fn $name() { super::$name::<nearflash_io::EpollSockets>(crate::rig::tls_listener()); })*
        }
    };
}

/// Time limit for anything that works, on a very busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn buf(bytes: usize) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), 0)
}

/// Sockets with a reactor of their own, which run turns until a test has seen enough.
pub(crate) struct SocketRig<N: Network> {
    pub(crate) reactor: N::Reactor,
    pub(crate) clock: Clock,
    pub(crate) sockets: N,
}

impl<N: Network> SocketRig<N> {
    pub(crate) fn with(config: SocketsConfig) -> Self {
        let reactor = N::Reactor::new().unwrap();
        let sockets = N::new(&reactor, config).unwrap();
        SocketRig { reactor, clock: Clock::start(), sockets }
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

    /// Runs turns until an event comes for which `wanted` returns a value, and returns that value.
    /// Buffers of received bytes go back to the sockets; other events are ignored.
    pub(crate) fn await_event<R>(&mut self, wanted: impl Fn(&NetEvent) -> Option<R>) -> R {
        let end = self.clock.now() + PATIENCE;
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

/// Returns a new self-signed certificate in PEM, its key, and its fingerprint.
pub(crate) fn certificate() -> (String, String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let print = ring::digest::digest(&ring::digest::SHA256, made.cert.der());
    let print = print.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (made.cert.pem(), made.signing_key.serialize_pem(), print)
}

/// The certificate of all listeners with TLS in this process, its key and its fingerprint.
pub(crate) static CERTIFICATE: LazyLock<(String, String, String)> = LazyLock::new(certificate);

/// Returns the TLS settings of a listener with [`CERTIFICATE`].
pub(crate) fn server_tls(policy: TlsPolicy) -> Arc<ServerTls> {
    let (certificate, key, _) = &*CERTIFICATE;
    ServerTls::new(policy, certificate.as_bytes(), key.as_bytes()).unwrap()
}

/// Returns the TLS settings of a client that trusts [`CERTIFICATE`].
pub(crate) fn client_tls() -> ClientTls {
    ClientTls::new("127.0.0.1", None, Some(&CERTIFICATE.2)).unwrap()
}

/// Returns a listener on loopback that requires TLS.
pub(crate) fn tls_listener() -> Listener {
    listener().with_tls(Some(server_tls(TlsPolicy::Required)))
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
