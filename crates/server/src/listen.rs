//! The addresses that a server listens on.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

pub use contract::Protocol;
use contract::{EtherAddress, ListenerId, NamespaceId, Prelude};
use io::{Endpoint, Listener, PreludeOf, ServerTls, TcpOptions, TlsPolicy, UnixPath};
use proto::nvme::Security;
use zeroize::Zeroizing;

use crate::credentials::{read_secret, read_text};
use crate::host_keys::HostKeys;

/// A parsed `--listen` argument: `reflex://HOST:PORT[?namespace=N&tenant=NAME]`,
/// `reflex+udp://HOST:PORT[?also=HOST:PORT&window=N&namespace=N&tenant=NAME&key=FILE]`,
/// `reflex+eth://INTERFACE[?also=INTERFACE&port=N&window=N&via=WAY&namespace=N&tenant=NAME&key=FILE]`,
/// `reflexs://HOST:PORT?certificate=FILE&key=FILE[&namespace=N&tenant=NAME]`,
/// `reflex+unix:PATH[?namespace=N&tenant=NAME&mode=MODE]`,
/// `nvme-tcp://HOST:PORT[?tenant=NAME&advertise=HOST:PORT&tls=off|allowed|required]`,
/// `nbd://HOST[:PORT][?namespace=N&tenant=NAME]`,
/// `nbds://HOST[:PORT]?certificate=FILE&key=FILE[&namespace=N&tenant=NAME]` or
/// `nbd+unix:PATH[?namespace=N&tenant=NAME&mode=MODE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAt {
    /// The listener's number, from 1; 0 before it is assigned.
    pub number: u16,
    /// The listener's identifier in the workers of this process: one less than the number, unless
    /// another listener with that identifier existed before.
    pub id: ListenerId,
    /// The address or path to which the listener is bound.
    pub endpoint: Endpoint,
    /// The protocol of the listener's connections.
    pub protocol: Protocol,
    /// The namespace of requests that name none: all of protocol `reflex` version 1. For NBD, the
    /// export with the empty name.
    pub namespace: NamespaceId,
    /// The name of the tenant of clients for which no access rule names one; `None` for the default
    /// tenant.
    pub tenant: Option<String>,
    /// The address for NVMe hosts in the discovery log; `None` for the address of `endpoint`.
    pub advertised: Option<SocketAddr>,
    /// The permission bits of the file, if the listener is a Unix socket.
    pub mode: u32,
    /// The TLS settings of the listener's connections; `None` without TLS.
    pub tls: Option<ListenTls>,
    /// The file of the key with which the listener's packets are sealed; `None` if they are not.
    pub packet_key: Option<PathBuf>,
}

/// The TLS settings of a listener: the peers that must use TLS, and the proofs of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenTls {
    policy: TlsPolicy,
    /// The files of the listener's certificate; `None` if both ends prove that they have the TLS key
    /// of an NVMe host.
    files: Option<TlsFiles>,
}

impl ListenTls {
    fn open(&self, protocol: Protocol, keys: &HostKeys) -> Result<Arc<ServerTls>, String> {
        let Some(files) = &self.files else {
            let opened = ServerTls::with_keys(protocol, self.policy, Arc::new(keys.clone()));
            return opened.map_err(|error| error.to_string());
        };
        let (certificate, key) = files.contents()?;
        let prelude = (protocol == Protocol::Nbd).then_some(prelude_of_nbd as PreludeOf);
        ServerTls::behind(protocol, prelude, self.policy, certificate.as_bytes(), key.as_bytes())
            .map_err(|error| files.say(&error))
    }

    /// Reads certificate and key again, if the listener has them, for new connections.
    ///
    /// # Errors
    /// Fails if the files make no sense; then the old certificate stays.
    pub fn renew(&self, tls: &ServerTls) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        let (certificate, key) = files.contents()?;
        tls.replace(certificate.as_bytes(), key.as_bytes()).map_err(|error| files.say(&error))
    }
}

/// The files of a certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl TlsFiles {
    fn contents(&self) -> Result<(String, Zeroizing<String>), String> {
        Ok((read_text(&self.certificate)?, read_secret(&self.key)?))
    }

    fn say(&self, error: &io::Error) -> String {
        format!("{} and {}: {error}", self.certificate.display(), self.key.display())
    }
}

/// Returns the server's prelude of an NBD connection.
fn prelude_of_nbd(policy: TlsPolicy) -> Box<dyn Prelude> {
    Box::new(proto::nbd::ServerPrelude::new(policy == TlsPolicy::Required))
}

/// The TLS options of a listener's URL, while the URL is parsed.
#[derive(Default)]
struct TlsOptions {
    /// `true` if the scheme of the URL requires TLS.
    by_scheme: bool,
    policy: Option<&'static str>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl TlsOptions {
    /// Parses one option. Returns `false` if it is not a TLS option.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "tls" => {
                let known = ["off", "allowed", "required"].into_iter().find(|one| *one == value);
                self.policy = Some(known.ok_or_else(|| {
                    format!("tls {value:?} is none of off, allowed and required")
                })?);
                if self.by_scheme && value != "required" {
                    return Err(format!(
                        "reflexs:// and nbds:// require TLS, which tls={value} contradicts; leave \
                         it out, or write reflex:// or nbd://"
                    ));
                }
            }
            "certificate" => self.certificate = Some(PathBuf::from(value)),
            "key" => self.key = Some(PathBuf::from(value)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the TLS settings of a listener; `None` if the listener has no TLS.
    fn finish(self, protocol: Protocol) -> Result<Option<ListenTls>, String> {
        let policy = match self.policy {
            None | Some("off") => None,
            Some("allowed") => Some(TlsPolicy::Allowed),
            Some(_) => Some(TlsPolicy::Required),
        };
        if protocol == Protocol::NvmeTcp {
            return match (self.certificate, self.key) {
                (None, None) => Ok(policy.map(|policy| ListenTls { policy, files: None })),
                _ => Err("NVMe/TCP has no certificates: each [[host]] has a tls_key".to_owned()),
            };
        }
        match (policy, self.certificate, self.key) {
            (Some(policy), Some(certificate), Some(key)) => {
                Ok(Some(ListenTls { policy, files: Some(TlsFiles { certificate, key }) }))
            }
            (Some(_), ..) => Err("TLS needs certificate=FILE and key=FILE, both in PEM".to_owned()),
            (None, None, None) => Ok(None),
            (None, ..) if self.policy == Some("off") => Ok(None),
            (None, ..) => {
                Err("a certificate or key is for tls=required or tls=allowed, and a URL \
                               with reflexs:// or nbds:// requires TLS"
                    .to_owned())
            }
        }
    }
}

/// The highest number of a listener, and the maximum number of listeners in the life of a process.
pub const NUMBER_MAX: u16 = spec::Listener::NUMBER_MAX;

/// The URL of the listener that is used if none is configured.
pub const DEFAULT_URL: &str = "reflex://127.0.0.1:7420";

const FORM: &str = "expected reflex://HOST:PORT[?namespace=N&tenant=NAME], such as \
                    reflex://127.0.0.1:7420, \
                    reflex+udp://HOST:PORT[?also=HOST:PORT&window=N&namespace=N&tenant=NAME&\
                    key=FILE], \
                    reflex+eth://INTERFACE[?also=INTERFACE&port=N&window=N&\
                    via=xdp|native|packet&namespace=N&tenant=NAME&key=FILE], \
                    reflexs://HOST:PORT?certificate=FILE&key=FILE (with TLS), \
                    reflex+unix:PATH[?namespace=N&tenant=NAME&mode=MODE], \
                    nvme-tcp://HOST:PORT[?tenant=NAME&advertise=HOST:PORT&\
                    tls=off|allowed|required], \
                    nbd://HOST[:PORT][?namespace=N&tenant=NAME], \
                    nbds://HOST[:PORT]?certificate=FILE&key=FILE (with TLS) or \
                    nbd+unix:PATH[?namespace=N&tenant=NAME&mode=MODE]";

/// The default TCP port of NBD.
const NBD_PORT: &str = ":10809";

/// The default permissions of a Unix socket's file: access for the server's user alone.
const DEFAULT_MODE: u32 = 0o600;

impl ListenAt {
    /// Parses a URL, and resolves its host name.
    pub fn parse(url: &str) -> Result<ListenAt, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut protocol, mut tls) = (Protocol::Reflex, TlsOptions::default());
        let endpoint: Endpoint = if let Some(host) = place.strip_prefix("nvme-tcp://") {
            protocol = Protocol::NvmeTcp;
            look_up(host.trim_end_matches('/'), url)?.into()
        } else if let Some(host) = place.strip_prefix("reflex://") {
            look_up(host.trim_end_matches('/'), url)?.into()
        } else if let Some(host) = place.strip_prefix("reflex+udp://") {
            Endpoint::Packets(look_up(host.trim_end_matches('/'), url)?.into())
        } else if let Some(at) = place.strip_prefix("reflex+eth://") {
            let parsed = at.parse::<EtherAddress>();
            Endpoint::Ethernet(parsed.map_err(|error| format!("{url:?}: {error}; {FORM}"))?)
        } else if let Some(host) = place.strip_prefix("reflexs://") {
            tls = TlsOptions { by_scheme: true, policy: Some("required"), ..tls };
            look_up(host.trim_end_matches('/'), url)?.into()
        } else if let Some(path) = place.strip_prefix("reflex+unix:") {
            unix(path, url)?.into()
        } else if let Some((scheme, host)) = nbd_host(place) {
            protocol = Protocol::Nbd;
            tls.by_scheme = scheme == "nbds";
            tls.policy = tls.by_scheme.then_some("required");
            let host = host.trim_end_matches('/');
            let port = if host.ends_with(']') || !host.contains(':') { NBD_PORT } else { "" };
            look_up(&format!("{host}{port}"), url)?.into()
        } else if let Some(path) = place.strip_prefix("nbd+unix:") {
            protocol = Protocol::Nbd;
            unix(path, url)?.into()
        } else {
            return Err(format!("{url:?}: {FORM}"));
        };
        let mut at = ListenAt {
            number: 0,
            id: ListenerId(0),
            endpoint,
            protocol,
            namespace: NamespaceId(1),
            tenant: None,
            advertised: None,
            mode: DEFAULT_MODE,
            tls: None,
            packet_key: None,
        };
        let say = |error: String| format!("{url:?}: {error}");
        let is_stream = matches!(at.endpoint, Endpoint::Internet(_));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !is_stream || !tls.take(key, value).map_err(say)? {
                at.take(pair).map_err(say)?;
            }
        }
        at.tls = tls.finish(protocol).map_err(say)?;
        Ok(at)
    }

    /// Parses one option of the URL's query that is not a TLS option.
    fn take(&mut self, pair: &str) -> Result<(), String> {
        if let (Some((key, value)), Endpoint::Ethernet(at)) =
            (pair.split_once('='), &mut self.endpoint)
            && at.take(key, value)
        {
            return Ok(());
        }
        if let (Some(("also", host)), Endpoint::Packets(lanes)) =
            (pair.split_once('='), &mut self.endpoint)
        {
            return lanes.add(look_up(host, pair)?).map_err(|error| error.to_string());
        }
        if let (Some(("window", packets)), Endpoint::Packets(lanes)) =
            (pair.split_once('='), &mut self.endpoint)
        {
            let parsed = packets.parse().ok().filter(|n| *n > 0);
            let wrong = || format!("window {packets:?} is not a number of packets from 1 to 65535");
            lanes.window = Some(parsed.ok_or_else(wrong)?);
            return Ok(());
        }
        match (pair.split_once('='), &self.endpoint) {
            (Some(("namespace", number)), _) if self.protocol != Protocol::NvmeTcp => {
                let parsed = number.parse().ok().filter(|n| *n > 0);
                self.namespace = NamespaceId(parsed.ok_or_else(|| {
                    format!("namespace {number:?} is not a number from 1 to 65535")
                })?);
            }
            (Some(("tenant", name)), _) => self.tenant = Some(name.to_owned()),
            (Some(("advertise", host)), _) if self.protocol == Protocol::NvmeTcp => {
                self.advertised = Some(advertised(host)?);
            }
            (Some(("key", file)), Endpoint::Packets(_) | Endpoint::Ethernet(_))
                if !file.is_empty() =>
            {
                self.packet_key = Some(PathBuf::from(file));
            }
            (Some(("mode", mode)), Endpoint::Unix(_)) => {
                let parsed = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o777);
                self.mode = parsed.ok_or_else(|| {
                    format!("mode {mode:?} is not an octal number from 0 to 777, such as 660")
                })?;
            }
            _ => return Err(format!("unknown option {pair:?}; {FORM}")),
        }
        Ok(())
    }

    /// Binds the listener and starts to listen. `workers` is the number of workers that will share
    /// the queues of a network card, and `keys` are the TLS keys of NVMe hosts.
    pub(crate) fn bind(
        &self,
        options: &TcpOptions,
        workers: usize,
        keys: &HostKeys,
    ) -> Result<Listener, String> {
        let bound = match &self.endpoint {
            Endpoint::Internet(address) => Listener::bind(*address, options),
            Endpoint::Unix(path) => Listener::bind_unix(path, self.mode),
            Endpoint::Packets(lanes) => Listener::bind_packets(lanes),
            Endpoint::Ethernet(at) => Listener::bind_ether(at, workers),
        };
        bound.map_err(|error| error.to_string()).and_then(|listener| self.secure(listener, keys))
    }

    /// Sets up the TLS of a listener's connections, or the seal of its packets.
    ///
    /// # Errors
    /// Fails if the files of certificate and key make no sense, or others may read the key, or if
    /// TLS with pre-shared keys needs OpenSSL, which is missing.
    pub(crate) fn secure(&self, listener: Listener, keys: &HostKeys) -> Result<Listener, String> {
        let tls = self.tls.as_ref().map(|tls| tls.open(self.protocol, keys)).transpose()?;
        let key = self.packet_key.as_deref().map(io::read_packet_key).transpose();
        Ok(listener.with_tls(tls).with_key(key.map_err(|error| error.to_string())?))
    }

    /// Returns the URL at which clients reach the listener, which is bound to `endpoint`.
    pub fn url_at(&self, endpoint: &Endpoint) -> String {
        let url = url(self.protocol, endpoint);
        match &self.tls {
            Some(ListenTls { policy: TlsPolicy::Required, files: Some(_) }) => {
                url.replacen("://", "s://", 1)
            }
            _ => url,
        }
    }

    /// Returns the use of TLS that the discovery log states to NVMe hosts.
    pub(crate) fn security(&self) -> Security {
        match self.tls.as_ref().map(|tls| tls.policy) {
            None => Security::None,
            Some(TlsPolicy::Allowed) => Security::Possible,
            Some(TlsPolicy::Required) => Security::Required,
        }
    }

    /// Returns a warning if the listener's traffic can be read on the network, else `None`.
    pub fn exposure(&self, endpoint: &Endpoint) -> Option<String> {
        let is_encrypted = self.tls.is_some() || self.packet_key.is_some();
        let is_open = endpoint.is_exposed() && !is_encrypted;
        let advice = match (self.protocol, endpoint) {
            (_, Endpoint::Internet(_)) => {
                "encrypt it with TLS (`tls=required`), or use a network that you trust"
            }
            (_, Endpoint::Packets(_) | Endpoint::Ethernet(_)) => {
                "seal it with a key (`key=FILE`), or use a network that you trust"
            }
            _ => "use a network that you trust, or a tunnel",
        };
        is_open.then(|| {
            let url = self.url_at(endpoint);
            format!("nothing that passes by {url} is encrypted; {advice}")
        })
    }
}

/// Returns the scheme and the rest of a URL of NBD on a network; `None` for any other URL.
fn nbd_host(place: &str) -> Option<(&str, &str)> {
    place.split_once("://").filter(|(scheme, _)| matches!(*scheme, "nbd" | "nbds"))
}

/// Returns the path of a Unix socket. As in other file URLs, an empty authority may precede it.
fn unix(path: &str, url: &str) -> Result<UnixPath, String> {
    let path = path.strip_prefix("//").filter(|p| p.starts_with('/')).unwrap_or(path);
    UnixPath::new(path).map_err(|error| format!("{url:?}: {error}; {FORM}"))
}

fn look_up(host: &str, url: &str) -> Result<SocketAddr, String> {
    host.to_socket_addrs()
        .map_err(|error| format!("{url:?}: {error}; {FORM}"))?
        .next()
        .ok_or_else(|| format!("{url:?}: the host has no address"))
}

/// Resolves the address for NVMe hosts in the discovery log. It must have a port, and must not be
/// unspecified, so that hosts can use it without change.
fn advertised(host: &str) -> Result<SocketAddr, String> {
    let looked_up = host.to_socket_addrs().ok().and_then(|mut found| found.next());
    let is_usable = |found: &SocketAddr| found.port() != 0 && !found.ip().is_unspecified();
    looked_up.filter(is_usable).ok_or_else(|| {
        format!("advertise {host:?} is not an address at which hosts can connect: HOST:PORT")
    })
}

/// Returns the URL of a listener without TLS and without options.
pub fn url(protocol: Protocol, endpoint: &Endpoint) -> String {
    match (endpoint, protocol) {
        (Endpoint::Internet(address), Protocol::NvmeTcp) => format!("nvme-tcp://{address}"),
        (Endpoint::Internet(address), Protocol::Nbd) => format!("nbd://{address}"),
        (Endpoint::Internet(address), Protocol::Reflex) => format!("reflex://{address}"),
        (Endpoint::Packets(lanes), _) => format!("reflex+udp://{lanes}"),
        (Endpoint::Ethernet(at), _) => format!("reflex+eth://{at}"),
        (Endpoint::Unix(path), Protocol::Nbd) => format!("nbd+unix:{path}"),
        (Endpoint::Unix(path), _) => format!("reflex+unix:{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood_or_explained() {
        let listen = ListenAt::parse("reflex://127.0.0.1:7420?namespace=3").unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), "reflex://127.0.0.1:7420");
        assert_eq!(listen.namespace, NamespaceId(3));
        assert!(ListenAt::parse(DEFAULT_URL).is_ok());
        let listen = ListenAt::parse("reflex+udp://127.0.0.1:7420?tenant=t").unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), "reflex+udp://127.0.0.1:7420");
        let listen = ListenAt::parse("reflex+udp://127.0.0.1:7420?key=/etc/k&tenant=t").unwrap();
        assert_eq!(listen.packet_key.as_deref(), Some(std::path::Path::new("/etc/k")));
        let several = "reflex+udp://127.0.0.1:7420?also=127.0.0.2:7420&also=127.0.0.3:7421";
        let listen = ListenAt::parse(&format!("{several}&tenant=t")).unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), several);
        assert!(ListenAt::parse("reflex+udp://0.0.0.0:7?also=127.0.0.1:8").is_err());
        let windowed = "reflex+udp://127.0.0.1:7420?window=64";
        let listen = ListenAt::parse(windowed).unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), windowed);
        assert!(ListenAt::parse("reflex+udp://127.0.0.1:7?window=0").is_err());
        for bad in [
            "reflex://127.0.0.1:7?also=127.0.0.2:7",
            "reflex+udp://127.0.0.1:7?key=",
            "reflex+unix:/run/a?key=/etc/k",
        ] {
            assert!(ListenAt::parse(bad).unwrap_err().contains("unknown option"), "{bad}");
        }
        for bad in ["127.0.0.1:7420", "reflex://", "reflex://127.0.0.1", "reflex://127.0.0.1:7?x=1"]
        {
            let error = ListenAt::parse(bad).unwrap_err();
            assert!(error.contains("reflex://HOST:PORT"), "{bad}: {error}");
        }
        assert!(ListenAt::parse("reflex://127.0.0.1:1?namespace=0").is_err());
    }

    #[test]
    fn hosts_can_be_told_another_address() {
        let listen = ListenAt::parse("nvme-tcp://0.0.0.0:4420?advertise=192.0.2.7:14420").unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), "nvme-tcp://0.0.0.0:4420");
        assert_eq!(listen.advertised, Some("192.0.2.7:14420".parse().unwrap()));
        let listen = ListenAt::parse("nvme-tcp://[::]:4420?advertise=[2001:db8::7]:4420").unwrap();
        assert_eq!(listen.advertised, Some("[2001:db8::7]:4420".parse().unwrap()));
        for bad in ["192.0.2.7", "192.0.2.7:0", "0.0.0.0:4420", "[::]:4420", "", ":4420"] {
            let error = ListenAt::parse(&format!("nvme-tcp://[::]:1?advertise={bad}")).unwrap_err();
            assert!(error.contains("HOST:PORT"), "{bad}: {error}");
        }
        let error = ListenAt::parse("reflex://127.0.0.1:1?advertise=192.0.2.7:1").unwrap_err();
        assert!(error.contains("unknown option"), "{error}");
    }

    #[test]
    fn tls_needs_a_certificate_and_a_key() {
        let files = "certificate=/c&key=/k";
        let listen = |text: &str| ListenAt::parse(text).map(|at| at.url_at(&at.endpoint.clone()));
        for (text, said) in [
            (format!("reflexs://127.0.0.1:7?{files}"), "reflexs://127.0.0.1:7"),
            (format!("reflex://127.0.0.1:7?tls=required&{files}"), "reflexs://127.0.0.1:7"),
            (format!("reflex://127.0.0.1:7?{files}&tls=allowed"), "reflex://127.0.0.1:7"),
            (format!("reflex://127.0.0.1:7?tls=off&{files}"), "reflex://127.0.0.1:7"),
            (format!("nbds://127.0.0.1?{files}&namespace=2"), "nbds://127.0.0.1:10809"),
            (format!("nbd://127.0.0.1:7?tls=required&{files}"), "nbds://127.0.0.1:7"),
            (format!("nbd://127.0.0.1:7?tls=allowed&{files}"), "nbd://127.0.0.1:7"),
        ] {
            assert_eq!(listen(&text).unwrap(), said);
        }
        for (text, word) in [
            ("reflexs://127.0.0.1:7", "needs certificate=FILE and key=FILE"),
            ("reflexs://127.0.0.1:7?certificate=/c", "needs certificate=FILE and key=FILE"),
            ("reflex://127.0.0.1:7?certificate=/c&key=/k", "is for tls=required"),
            ("reflex://127.0.0.1:7?tls=maybe", "none of off, allowed and required"),
            ("nbds://127.0.0.1:7", "needs certificate=FILE and key=FILE"),
            ("nbds://127.0.0.1:7?tls=allowed", "contradicts"),
            ("reflexs://127.0.0.1:7?tls=off", "contradicts"),
            ("reflex+unix:/run/a?tls=required", "unknown option"),
            ("nbd+unix:/run/a?tls=required", "unknown option"),
        ] {
            let error = listen(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let warning = |text: &str| {
            let at = ListenAt::parse(text).unwrap();
            at.exposure(&at.endpoint.clone())
        };
        assert!(warning("reflex://10.0.0.1:7").unwrap().contains("tls=required"));
        assert!(warning("nbd://10.0.0.1:7").unwrap().contains("tls=required"));
        assert!(warning("nvme-tcp://10.0.0.1:7").unwrap().contains("tls=required"));
        assert!(warning("reflex+udp://10.0.0.1:7").unwrap().contains("key=FILE"));
        assert_eq!(warning("reflex+udp://10.0.0.1:7?key=/k"), None);
        assert_eq!(warning("reflex://127.0.0.1:7"), None);
        assert_eq!(warning(&format!("reflexs://10.0.0.1:7?{files}")), None);
    }

    #[test]
    fn nbd_has_a_port_of_its_own() {
        for (text, said) in [
            ("nbd://127.0.0.1", "nbd://127.0.0.1:10809"),
            ("nbd://127.0.0.1:7/", "nbd://127.0.0.1:7"),
            ("nbd://[::1]?namespace=2", "nbd://[::1]:10809"),
            ("nbd+unix:/run/a?mode=660&tenant=t", "nbd+unix:/run/a"),
        ] {
            let listen = ListenAt::parse(text).unwrap();
            assert_eq!(listen.protocol, Protocol::Nbd);
            assert_eq!(url(listen.protocol, &listen.endpoint), said);
        }
        assert!(ListenAt::parse("nbd://127.0.0.1?advertise=192.0.2.7:1").is_err());
    }

    #[test]
    fn unix_sockets_have_a_mode() {
        let listen = ListenAt::parse("reflex+unix:/run/a?namespace=2&mode=0660").unwrap();
        assert_eq!(url(listen.protocol, &listen.endpoint), "reflex+unix:/run/a");
        assert_eq!((listen.namespace, listen.mode), (NamespaceId(2), 0o660));
        let listen = ListenAt::parse("reflex+unix:///run/a").unwrap();
        assert_eq!(
            (url(listen.protocol, &listen.endpoint).as_str(), listen.mode),
            ("reflex+unix:/run/a", 0o600)
        );
        for (bad, word) in [
            ("reflex+unix:", "needs a path"),
            ("reflex+unix:/a?mode=8", "octal"),
            ("reflex+unix:/a?mode=7777", "octal"),
            ("reflex://127.0.0.1:1?mode=600", "unknown option"),
        ] {
            let error = ListenAt::parse(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
