//! Addresses of servers: `reflex://HOST:PORT`, `reflexs://HOST:PORT` over TLS,
//! `reflex+udp://HOST:PORT` for packets instead of TCP (sealed with `?key=FILE`),
//! `reflex+eth://INTERFACE/MAC` for packets in frames of Ethernet, or `reflex+unix:PATH` on the same
//! machine, with `?v=1` for version 1 of the protocol.

use core::fmt;
use core::str::FromStr;

use contract::{EtherAddress, PacketHosts, PacketReading, ServerEndpoint};

use crate::Version;

/// Maximum number of lanes that an address names.
const LANES_MAX: usize = PacketReading::LANES_MAX;

/// The address of a server, in its text form. Parsing does not look up the host's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The endpoint at which the server listens.
    pub place: ServerEndpoint,
    /// The version of protocol `reflex` (`?v=1` for version 1).
    pub version: Version,
    /// The trusted certificates of a TLS connection; `None` without TLS.
    pub trust: Option<Trust>,
    /// The file of the key with which packets are sealed; `None` if they are not.
    pub key: Option<String>,
}

/// The certificates that are trusted for a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The file with the authorities' certificates; `None` for the machine's own.
    pub authorities: Option<String>,
    /// The SHA-256 fingerprint of the only certificate that is trusted; `None` to trust
    /// certificates of the authorities.
    pub fingerprint: Option<String>,
    /// The host name in the server's certificate, if it differs from the host name in the address.
    pub name: Option<String>,
}

impl Trust {
    /// Sets an option about certificates from a URL. Returns `false` if `key` is no such option.
    pub(crate) fn take(&mut self, key: &str, value: &str) -> bool {
        let field = match key {
            "ca" => &mut self.authorities,
            "fingerprint" => &mut self.fingerprint,
            "name" => &mut self.name,
            _ => return false,
        };
        *field = Some(value.to_owned());
        true
    }

    /// Returns the name that the certificate of the server at `place` must have.
    pub fn certified_name<'a>(&'a self, place: &'a ServerEndpoint) -> &'a str {
        let host = match place {
            ServerEndpoint::Network(host) => host.rsplit_once(':').map_or("", |(name, _)| name),
            ServerEndpoint::Unix(_) | ServerEndpoint::Packets(_) | ServerEndpoint::Ethernet(_) => {
                ""
            }
        };
        self.name.as_deref().unwrap_or(host)
    }
}

impl Address {
    /// Returns the name that the server's certificate is to have; empty without TLS.
    pub fn certified_name(&self) -> &str {
        self.trust.as_ref().map_or("", |trust| trust.certified_name(&self.place))
    }
}

/// Sets an option of `endpoint` from a URL. Returns `false` if `key` is no option of such an
/// endpoint, or the value is invalid.
fn take(endpoint: &mut ServerEndpoint, key: &str, value: &str) -> bool {
    match endpoint {
        ServerEndpoint::Ethernet(at) => at.take(key, value),
        ServerEndpoint::Packets(PacketHosts { lanes, window }) => match key {
            "also" if lanes.len() < LANES_MAX => {
                network(value).map(|lane| lanes.push(lane)).is_ok()
            }
            "window" => {
                *window = value.parse().ok().filter(|packets| *packets > 0);
                window.is_some()
            }
            _ => false,
        },
        _ => false,
    }
}

/// The reason that a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The text begins with none of `reflex://`, `reflexs://`, `reflex+udp://`, `reflex+eth://` and
    /// `reflex+unix:`.
    Scheme,
    /// The port is missing or invalid.
    Port,
    /// The path of the Unix socket is missing.
    Path,
    /// The interface or the address of the server's card is missing or invalid.
    Ethernet,
    /// The text after `?` is not a known option.
    Query(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Scheme => f.write_str(
                "a server is written reflex://HOST:PORT, reflexs://HOST:PORT (over TLS), \
                 reflex+udp://HOST:PORT, reflex+eth://INTERFACE/MAC or reflex+unix:PATH",
            ),
            AddressError::Ethernet => f.write_str(
                "expected a network interface of this machine and the address of the server's \
                 card, as in reflex+eth://eth1/02:00:00:00:00:02",
            ),
            AddressError::Port => f.write_str("a port is missing, as in reflex://127.0.0.1:7420"),
            AddressError::Path => {
                f.write_str("a path is missing, as in reflex+unix:/run/nearflash/data.sock")
            }
            AddressError::Query(query) => {
                write!(
                    f,
                    "`?{query}` is not understood; only ?v=1 and ?v=2 are, of reflex+udp:// and \
                     reflex+eth:// also key=FILE, of reflex+udp:// also also=HOST:PORT and \
                     window=N, of reflex+eth:// also also=INTERFACE/MAC, port=N, window=N and \
                     via=xdp|native|packet, and of reflexs:// also ca=FILE, fingerprint=SHA256 and \
                     name=NAME, separated by `&`"
                )
            }
        }
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let mut trust = None;
        let place = if let Some(host) = place.strip_prefix("reflex://") {
            ServerEndpoint::Network(network(host)?)
        } else if let Some(host) = place.strip_prefix("reflexs://") {
            trust = Some(Trust::default());
            ServerEndpoint::Network(network(host)?)
        } else if let Some(host) = place.strip_prefix("reflex+udp://") {
            ServerEndpoint::Packets(PacketHosts { lanes: vec![network(host)?], window: None })
        } else if let Some(place) = place.strip_prefix("reflex+eth://") {
            let at = place.parse().ok().filter(|at: &EtherAddress| at.first().mac.is_some());
            ServerEndpoint::Ethernet(at.ok_or(AddressError::Ethernet)?)
        } else if let Some(path) = place.strip_prefix("reflex+unix:") {
            unix(path)?
        } else {
            return Err(AddressError::Scheme);
        };
        let (mut version, mut file, mut place) = (Version::Two, None, place);
        let in_packets = place.is_of_packets();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (key, value) {
                ("v", "1") => version = Version::One,
                ("v", "2") => version = Version::Two,
                ("key", path) if in_packets && !path.is_empty() => file = Some(path.to_owned()),
                _ if trust.as_mut().is_some_and(|trust| trust.take(key, value)) => {}
                _ if take(&mut place, key, value) => {}
                _ => return Err(AddressError::Query(query.to_owned())),
            }
        }
        Ok(Address { place, version, trust, key: file })
    }
}

/// Parses `HOST:PORT`, which a slash may follow.
fn network(host: &str) -> Result<String, AddressError> {
    let host = host.strip_suffix('/').unwrap_or(host);
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(host.to_owned())
        }
        _ => Err(AddressError::Port),
    }
}

/// Parses the path of a Unix socket, which follows `reflex+unix:`. As in other URLs of files, an
/// empty authority (`//`) may precede an absolute path.
fn unix(path: &str) -> Result<ServerEndpoint, AddressError> {
    let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    if path.is_empty() {
        Err(AddressError::Path)
    } else {
        Ok(ServerEndpoint::Unix(path.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.trust) {
            (ServerEndpoint::Network(host), Some(_)) => write!(f, "reflexs://{host}")?,
            (place, _) => write!(f, "{place}")?,
        }
        let version = (self.version == Version::One).then_some(("v", "1"));
        let trust = self.trust.as_ref();
        let of = |value: Option<&'_ Option<String>>| value.and_then(|value| value.clone());
        let trusted = [
            ("ca", of(trust.map(|trust| &trust.authorities))),
            ("fingerprint", of(trust.map(|trust| &trust.fingerprint))),
            ("name", of(trust.map(|trust| &trust.name))),
            ("key", self.key.clone()),
        ];
        let trusted = trusted.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let of_place: Vec<_> = match &self.place {
            ServerEndpoint::Ethernet(at) => at.options().collect(),
            ServerEndpoint::Packets(PacketHosts { lanes, window }) => {
                let also = lanes[1..].iter().map(|lane| ("also", lane.clone()));
                also.chain(window.map(|packets| ("window", packets.to_string()))).collect()
            }
            _ => Vec::new(),
        };
        let of_place = of_place.iter().map(|(key, value)| (*key, value.as_str()));
        for (n, (key, value)) in version.into_iter().chain(of_place).chain(trusted).enumerate() {
            let before = if n == 0 { '?' } else { '&' };
            write!(f, "{before}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_write_the_same() {
        for text in [
            "reflex://127.0.0.1:7420",
            "reflex://[::1]:7420?v=1",
            "reflex://host:1",
            "reflex+udp://host:1",
            "reflex+udp://[::1]:7420?v=1",
            "reflex+udp://host:1?v=1&key=/etc/packet.key",
            "reflex+udp://host:1?v=1&also=other:2&also=[::1]:3&window=64&key=/etc/packet.key",
            "reflex+eth://eth1/02:00:00:00:00:02",
            "reflex+eth://eth1/02:00:00:00:00:02?v=1&port=7421&key=/etc/packet.key",
            "reflex+eth://eth1/02:00:00:00:00:02?also=eth2/02:00:00:00:00:03&also=eth3&window=64",
            "reflex+unix:/run/a.sock",
            "reflex+unix:./a:b?v=1",
            "reflexs://h:1",
            "reflexs://h:1?v=1&ca=/etc/ca.pem&name=other",
            "reflexs://[::1]:2?fingerprint=ab",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let place = |text: &str| text.parse::<Address>().unwrap().place;
        assert_eq!(place("reflex://h:1/?v=2"), ServerEndpoint::Network("h:1".to_owned()));
        assert_eq!(place("reflex+unix:///run/a"), ServerEndpoint::Unix("/run/a".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert_eq!(error("http://localhost:80"), AddressError::Scheme);
        assert_eq!(error("reflex://localhost"), AddressError::Port);
        assert_eq!(error("reflex+udp://localhost"), AddressError::Port);
        assert_eq!(error("reflex://:80"), AddressError::Port);
        assert_eq!(error("reflex://h:99999"), AddressError::Port);
        assert_eq!(error("reflex+unix:"), AddressError::Path);
        assert_eq!(error("reflex+unix:?v=1"), AddressError::Path);
        assert_eq!(error("reflex://h:1?v=3"), AddressError::Query("v=3".to_owned()));
        assert_eq!(error("reflex://h:1?ca=/a"), AddressError::Query("ca=/a".to_owned()));
        assert_eq!(error("reflex://h:1?key=/a"), AddressError::Query("key=/a".to_owned()));
        assert_eq!(error("reflex+udp://h:1?key="), AddressError::Query("key=".to_owned()));
        for bad in ["reflex+eth://", "reflex+eth://eth1", "reflex+eth://eth1/ff:ff:ff:ff:ff:ff"] {
            assert_eq!(error(bad), AddressError::Ethernet, "{bad}");
        }
        let ether = "reflex+eth://eth1/02:00:00:00:00:02?port=0";
        assert_eq!(error(ether), AddressError::Query("port=0".to_owned()));
        let also = "also=a:1&also=b:2&also=c:3&also=d:4";
        for bad in ["also=other", also, "window=0"] {
            let error = error(&format!("reflex+udp://h:1?{bad}"));
            assert_eq!(error, AddressError::Query(bad.to_owned()));
        }
        assert_eq!(error("reflexs://h"), AddressError::Port);
        let name = |text: &str| text.parse::<Address>().unwrap().certified_name().to_owned();
        assert_eq!([name("reflexs://h:1"), name("reflexs://h:1?name=n")], ["h", "n"]);
    }
}
