//! The look-up of a server: its address, the way in which a queue connects, and the namespace's
//! properties.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{Address, Durability, Initiator, Loss, Options, Report, Version};
use contract::{ControlRequest, EtherVia, NamespaceId, NamespaceInfo};
use io::{
    ClientTls, Clock, Endpoint, Network, PacketKey, PacketSockets, Reactor, Ring, Sockets,
    SocketsConfig,
};

use crate::record::Volume;

/// The longest time to wait for the server before there is a device.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and the options of connections to it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    endpoint: Endpoint,
    tls: Option<ClientTls>,
    /// The key of sealed packets; `None` for streams and for packets in the clear.
    key: Option<PacketKey>,
    options: Options,
}

impl Server {
    /// Resolves the server of a volume.
    ///
    /// # Errors
    /// Says what is wrong with the address, or with the file of the token or of the key.
    pub(crate) fn find(volume: &Volume) -> Result<Server, String> {
        let url = &volume.url;
        let address: Address = url.parse().map_err(|e| format!("`{url}`: {e}"))?;
        if address.version == Version::One {
            return Err(format!("`{url}`: version 1 has no writes that are safe to repeat"));
        }
        let token = match &volume.token_file {
            None => Box::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
                text.trim().as_bytes().into()
            }
        };
        let options = Options {
            checksums: volume.checksums,
            token,
            tenant: volume.tenant.clone().into(),
            outage_max: Duration::from_secs(volume.fail_after),
            reissues_max: u8::MAX,
            ..Options::default()
        };
        let trust = address.trust.as_ref();
        let tls = trust.map(|trust| {
            let authorities = trust.authorities.as_deref().map(Path::new);
            let pin = trust.fingerprint.as_deref();
            ClientTls::new(address.certified_name(), authorities, pin).map_err(|e| e.to_string())
        });
        let key = address.key.as_deref().map(|file| io::read_packet_key(Path::new(file)));
        let key = key.transpose().map_err(|e| e.to_string())?;
        let endpoint = Endpoint::find(&address.place).map_err(|e| e.to_string())?;
        Ok(Server { endpoint, tls: tls.transpose()?, key, options })
    }

    /// Returns the server for a successor of a client that knew this storage epoch, so that a loss
    /// of changes meanwhile is reported. `None` if the client knew none.
    #[must_use]
    pub(crate) fn after(mut self, storage_epoch: Option<u32>) -> Server {
        self.options.durability =
            Arc::new(storage_epoch.map(Durability::after).unwrap_or_default());
        self
    }

    /// Returns the record, shared by all connections to the server, of which changes are durable.
    pub(crate) fn durability(&self) -> &Durability {
        &self.options.durability
    }

    /// Returns `true` if connections to the server are made of packets, and `false` if they are
    /// streams. Packets need sockets of the type [`PacketSockets`].
    pub(crate) fn is_of_packets(&self) -> bool {
        self.endpoint.is_of_packets()
    }

    /// Returns the number of queues of a new device of this server's: `asked`, or else one for each
    /// processor.
    ///
    /// # Errors
    /// Refuses several queues that have to share a card's one AF_XDP socket.
    pub(crate) fn queues(&self, asked: Option<u16>) -> Result<u16, String> {
        let via = match &self.endpoint {
            Endpoint::Ethernet(at) => at.via,
            _ => None,
        };
        let processors = std::thread::available_parallelism();
        match (via, asked) {
            (Some(EtherVia::Xdp | EtherVia::Native), None | Some(1)) => Ok(1),
            (Some(EtherVia::Xdp | EtherVia::Native), Some(queues)) => Err(format!(
                "--queues {queues}: a card has one AF_XDP socket, and each queue has a socket of \
                 its own; use --queues 1, or via=packet"
            )),
            (_, asked) => Ok(asked.unwrap_or(processors.map_or(1, |n| n.get().min(128) as u16))),
        }
    }

    /// Returns an initiator with one connection and `depth` requests, over the sockets of `ring`,
    /// with this identity at the server.
    ///
    /// # Errors
    /// Fails if the machine has no memory or descriptors for it.
    pub(crate) fn initiator<N: Network<Reactor = Ring>>(
        &self,
        ring: &Ring,
        depth: u16,
        client: u128,
    ) -> Result<Initiator<N>, String> {
        let depth = usize::from(depth);
        let config = SocketsConfig {
            connections_max: 5,
            receive_buffers: 64,
            frames_max: depth + 4,
            ..SocketsConfig::default()
        };
        let mut sockets = N::new(ring, config).map_err(|e| e.to_string())?;
        sockets.dial_to(self.endpoint.clone());
        if let Some(key) = &self.key {
            sockets.dial_sealed(key.clone()).map_err(|e| e.to_string())?;
        }
        if let Some(tls) = &self.tls {
            sockets.dial_over(tls.clone()).map_err(|e| e.to_string())?;
        }
        let options =
            Options { client, in_flight_max: depth, seed: chance(), ..self.options.clone() };
        Ok(Initiator::new(sockets, options))
    }

    /// Connects to the server and asks for the properties of a namespace; `None` for its default.
    ///
    /// # Errors
    /// Says why the server has not answered.
    pub(crate) fn survey(&self, namespace: Option<u16>) -> Result<NamespaceInfo, String> {
        if let Endpoint::Ethernet(at) = &self.endpoint
            && at.via != Some(EtherVia::Packet)
        {
            // A card has one AF_XDP socket, which is for the device.
            let mut at = at.clone();
            at.via = Some(EtherVia::Packet);
            return Server { endpoint: Endpoint::Ethernet(at), ..self.clone() }.survey(namespace);
        }
        match self.is_of_packets() {
            true => self.survey_over::<PacketSockets>(namespace),
            false => self.survey_over::<Sockets>(namespace),
        }
    }

    fn survey_over<N: Network<Reactor = Ring>>(
        &self,
        namespace: Option<u16>,
    ) -> Result<NamespaceInfo, String> {
        let ring = Ring::new().map_err(|e| e.to_string())?;
        let mut initiator = self.initiator::<N>(&ring, 4, identity())?;
        let clock = Clock::start();
        let question = ControlRequest::Info { tag: 0, namespace: namespace.map(NamespaceId) };
        initiator.control(clock.now(), None, question).expect("nothing else is in flight");
        let until = clock.now() + PATIENCE.min(self.options.outage_max);
        let (mut done, mut last) = (Vec::new(), None);
        loop {
            let now = clock.now();
            initiator.turn(now, &mut done);
            let reports: Vec<Report> = initiator.reports().collect();
            for report in reports {
                match report {
                    Report::Info(_, Ok(info)) => return Ok(info),
                    Report::Info(_, Err(status)) => {
                        return Err(format!("the server answered: {status}"));
                    }
                    Report::Lost { why, .. } => last = Some(why),
                    _ => {}
                }
            }
            if now >= until {
                let why = last.map_or("it does not answer".to_owned(), told);
                return Err(format!("cannot reach the server: {why}"));
            }
            ring.enter(Some(Some(Duration::from_millis(20))));
        }
    }
}

/// Returns the reason of a loss in words.
pub(crate) fn told(why: Loss) -> String {
    match (why.refused_seal(), why.errno()) {
        (Some(refusal), _) => refusal.to_owned(),
        (None, Some(errno)) => std::io::Error::from_raw_os_error(errno).to_string(),
        (None, None) => why.to_string(),
    }
}

/// Returns a new random identity for the first queue of a device. The following identities are for
/// the other queues.
pub(crate) fn identity() -> u128 {
    let top = u128::from(chance()) << 64 | u128::from(chance());
    top & !0xffff | 1 << 127
}

/// Returns 64 random bits, from the random keys of the standard library's hashers.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(url: &str) -> Volume {
        Volume {
            url: url.to_owned(),
            namespace: None,
            tenant: String::new(),
            token_file: None,
            checksums: false,
            fail_after: 1,
            read_only: false,
            spin_micros: 0,
        }
    }

    #[test]
    fn identities_differ_and_leave_room_for_queues() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        assert_eq!((one | other) & 0xffff, 0);
    }

    #[test]
    fn queues_that_would_share_a_card_are_refused() {
        let card = "reflex+eth://eth1/02:00:00:00:00:01";
        let queues = |url: &str, asked| Server::find(&volume(url)).unwrap().queues(asked);
        assert_eq!(queues(card, Some(3)), Ok(3));
        assert_eq!(queues(&format!("{card}?via=packet"), Some(3)), Ok(3));
        for via in ["xdp", "native"] {
            let url = format!("{card}?via={via}");
            assert_eq!((queues(&url, None), queues(&url, Some(1))), (Ok(1), Ok(1)));
            let error = queues(&url, Some(2)).unwrap_err();
            assert!(error.contains("use --queues 1, or via=packet"), "{error}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let error = Server::find(&volume("http://x")).unwrap_err();
        assert!(error.contains("reflex://"), "{error}");
        let error = Server::find(&volume("reflex://127.0.0.1:1?v=1")).unwrap_err();
        assert!(error.contains("version 1"), "{error}");
        let error = Server::find(&volume("reflex+udp://h:1?key=/nonexistent/key")).unwrap_err();
        assert!(error.contains("/nonexistent/key"), "{error}");
        let missing = Volume {
            token_file: Some("/nonexistent/token".into()),
            ..volume("reflex://127.0.0.1:1")
        };
        let error = Server::find(&missing).unwrap_err();
        assert!(error.contains("/nonexistent/token"), "{error}");
    }
}
