//! The options of clients and queues.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use client::Version;

/// The options of a client or a queue.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of connections to the server.
    pub connections: usize,
    /// Maximum number of requests in flight over all connections. In a client, as many again may
    /// wait to be sent.
    pub in_flight_max: usize,
    /// The namespace to use; `None` for the server's default.
    pub namespace: Option<u16>,
    /// Token to present to the server; empty for none.
    pub token: Vec<u8>,
    /// Name of the tenant that pays for the requests; empty for the server's choice.
    pub tenant: String,
    /// If `true`, the client asks for checksums of payloads on the network.
    pub checksums: bool,
    /// Maximum time that requests wait for an unreachable server before they end as
    /// [`Error::ConnectionLost`](crate::Error::ConnectionLost).
    pub outage_max: Duration,
    /// Time that the client's thread, or a poll of a queue, looks for more work before it sleeps.
    /// Longer spinning trades processor time for latency.
    pub spin: Duration,
    /// The name of the client's thread, as system tools show it. A queue has no thread.
    pub thread_name: String,
}

impl Default for Options {
    /// Returns the defaults: one connection, 256 requests in flight, an outage of 30 s, 50 µs of
    /// spinning.
    fn default() -> Self {
        Options {
            connections: 1,
            in_flight_max: 256,
            namespace: None,
            token: Vec::new(),
            tenant: String::new(),
            checksums: false,
            outage_max: Duration::from_secs(30),
            spin: Duration::from_micros(50),
            thread_name: "nearflash".to_owned(),
        }
    }
}

impl Options {
    /// Panics if the options ask for no connection or no request in flight.
    pub(crate) fn check(&self) {
        assert!(self.connections > 0 && self.in_flight_max > 0, "a client has both");
    }

    pub(crate) fn for_initiator(&self, version: Version) -> client::Options {
        // Each hasher has random keys: the only source of randomness in the standard library.
        let chance = || RandomState::new().build_hasher().finish();
        client::Options {
            connections: self.connections,
            in_flight_max: self.in_flight_max,
            version,
            client: u128::from(chance()) << 64 | u128::from(chance()) | 1,
            checksums: self.checksums,
            token: self.token.clone().into(),
            tenant: self.tenant.clone().into(),
            outage_max: self.outage_max,
            seed: chance(),
            ..client::Options::default()
        }
    }
}
