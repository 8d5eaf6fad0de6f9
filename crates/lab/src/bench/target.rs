//! The target of a measurement: the address of a server (protocol `reflex`, NVMe/TCP or NBD), or
//! the spec of a device that this process opens itself.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use client::nbd::NbdAddress;
use client::nvme::NvmeAddress;
use client::{Address, AddressError, Trust, Version};
use contract::ServerEndpoint;
use flash::Spec;
use io::{ClientTls, Endpoint, Network, PacketKey};

/// The address of a server, the TLS settings and the key of sealed packets.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    /// The listening address.
    pub(crate) endpoint: Endpoint,
    /// The TLS settings, with the trusted certificates; `None` without TLS.
    pub(crate) tls: Option<ClientTls>,
    /// The key of sealed packets; `None` for other transports and for packets in the clear.
    pub(crate) key: Option<PacketKey>,
}

impl ServerAddress {
    /// Makes the sockets dial this server, with its TLS settings and packet key.
    ///
    /// # Errors
    /// Fails if the TLS settings or the key need a thread or descriptor that the system does not
    /// have.
    pub(crate) fn dial<N: Network>(&self, sockets: &mut N) -> Result<(), io::Error> {
        sockets.dial_to(self.endpoint.clone());
        if let Some(key) = self.key.clone() {
            sockets.dial_sealed(key)?;
        }
        self.tls.clone().map_or(Ok(()), |tls| sockets.dial_over(tls))
    }
}

/// The target of a measurement.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A server of protocol `reflex`.
    Server {
        /// The address, and the TLS settings.
        reach: ServerAddress,
        /// The version of the protocol.
        version: Version,
        /// The target as the user wrote it.
        text: String,
    },
    /// A subsystem of a server that speaks NVMe over TCP.
    Nvme {
        /// The listening address.
        endpoint: Endpoint,
        /// The address of the subsystem, and the options of the connection.
        address: NvmeAddress,
        /// The target as the user wrote it.
        text: String,
    },
    /// An export of a server that speaks NBD.
    Nbd {
        /// The listening address and the TLS settings.
        reach: ServerAddress,
        /// The export's name.
        export: String,
        /// The target as the user wrote it.
        text: String,
    },
    /// A device that this process opens itself.
    Device {
        /// The spec of the device.
        spec: Spec,
        /// The target as the user wrote it.
        text: String,
    },
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("nvme-tcp://") {
            let address = text.parse::<NvmeAddress>().map_err(|e| e.to_string())?;
            let endpoint = io::look_up(&address.place).map_err(|error| error.to_string())?.into();
            return Ok(Target::Nvme { endpoint, address, text: text.to_owned() });
        }
        if ["nbd://", "nbds://", "nbd+unix:"].iter().any(|scheme| text.starts_with(scheme)) {
            let NbdAddress { place, export, trust } = text.parse().map_err(|e| format!("{e}"))?;
            let tls = tls_of(&place, trust.as_ref())?.map(|tls| tls.behind(client::nbd::prelude));
            let endpoint = Endpoint::find(&place).map_err(|error| error.to_string())?;
            let reach = ServerAddress { endpoint, tls, key: None };
            return Ok(Target::Nbd { reach, export, text: text.to_owned() });
        }
        let server = match text.parse::<Address>() {
            Ok(server) => server,
            Err(AddressError::Scheme) if !text.contains("://") && !text.contains("+unix:") => {
                let spec = text.parse::<Spec>().map_err(|error| match is_host_and_port(text) {
                    true => format!("{text} names no protocol: did you mean reflex://{text}?"),
                    false => error.to_string(),
                })?;
                return Ok(Target::Device { spec, text: text.to_owned() });
            }
            Err(error) => return Err(error.to_string()),
        };
        let endpoint = Endpoint::find(&server.place).map_err(|error| error.to_string())?;
        let key = server.key.as_deref().map(|file| io::read_packet_key(Path::new(file)));
        let key = key.transpose().map_err(|error| error.to_string())?;
        let reach =
            ServerAddress { endpoint, tls: tls_of(&server.place, server.trust.as_ref())?, key };
        Ok(Target::Server { reach, version: server.version, text: text.to_owned() })
    }
}

/// Returns `true` for the form `HOST:PORT`, which no device spec has.
fn is_host_and_port(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok()
            && (host == "localhost" || host.contains('.') || host.contains(']'))
    })
}

/// Returns the TLS settings of a server's address; `None` if `trust` is `None`, which means no TLS.
fn tls_of(place: &ServerEndpoint, trust: Option<&Trust>) -> Result<Option<ClientTls>, String> {
    let Some(trust) = trust else { return Ok(None) };
    let authorities = trust.authorities.as_deref().map(Path::new);
    let name = trust.certified_name(place);
    let tls = ClientTls::new(name, authorities, trust.fingerprint.as_deref());
    tls.map(Some).map_err(|error| error.to_string())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Server { text, .. }
            | Target::Nvme { text, .. }
            | Target::Nbd { text, .. }
            | Target::Device { text, .. } => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_devices_are_told_apart() {
        let Ok(Target::Server { reach, version, .. }) = "reflex://127.0.0.1:7420?v=1".parse()
        else {
            panic!("a server")
        };
        assert_eq!(reach.endpoint.to_string(), "127.0.0.1:7420");
        assert_eq!(version, Version::One);
        assert!(matches!("reflex://[::1]:7420".parse(), Ok(Target::Server { .. })));
        let unix = "reflex+unix:/run/a.sock?v=1".parse();
        let is_unix = |reach: &ServerAddress| matches!(reach.endpoint, Endpoint::Unix(_));
        assert!(matches!(unix, Ok(Target::Server { reach, .. }) if is_unix(&reach)));
        let packets = "reflex+udp://127.0.0.1:7420".parse();
        let is_packets = |reach: &ServerAddress| matches!(reach.endpoint, Endpoint::Packets(_));
        assert!(matches!(packets, Ok(Target::Server { reach, .. }) if is_packets(&reach)));
        let nvme = "nvme-tcp://127.0.0.1:4420/nqn.2026-11.x:a?nsid=2".parse();
        assert!(matches!(nvme, Ok(Target::Nvme { .. })));
        let nbd = "nbd://127.0.0.1:10809/first".parse();
        assert!(matches!(nbd, Ok(Target::Nbd { export, .. }) if export == "first"));
        let unix = "nbd+unix:/run/a.sock".parse();
        assert!(matches!(unix, Ok(Target::Nbd { reach, .. }) if is_unix(&reach)));
        let pin = "ab".repeat(32);
        let nbds = format!("nbds://127.0.0.1:1/first?fingerprint={pin}").parse();
        assert!(matches!(nbds, Ok(Target::Nbd { reach, .. }) if reach.tls.is_some()));
        assert!(matches!("null:1GiB".parse(), Ok(Target::Device { .. })));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        assert!(error("reflex://localhost").contains("port is missing"));
        assert!(error("reflex://127.0.0.1:1?v=3").contains("?v=3"));
        assert!(error("http://localhost:80").contains("reflex://HOST:PORT"));
        assert!(error("reflex+unix:").contains("path is missing"));
        assert!(error("reflx+unix:/run/a").contains("reflex+unix:PATH"));
        assert!(error("nvme-tcp://127.0.0.1:4420").contains("name is missing"));
        assert!(error("nbd://127.0.0.1").contains("port is missing"));
        assert!(!error("nonsense").is_empty());
        for bare in ["127.0.0.1:7520", "localhost:7520", "[::1]:7520", "server.example:7520"] {
            assert!(error(bare).contains(&format!("did you mean reflex://{bare}?")), "{bare}");
        }
        assert!(error("sum:64").contains("unknown kind of device"));
    }
}
