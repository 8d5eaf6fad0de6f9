//! Addresses of the admin API: a Unix socket, a loopback port, or a port of another machine with
//! TLS.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The address of an admin API. Its text form is a path, `http://127.0.0.1:PORT`, or
/// `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address and port of the loopback interface, without TLS.
    Tcp(SocketAddr),
    /// A port of any host, with TLS.
    Tls {
        /// The host's name, which its certificate must contain, or its address.
        host: String,
        /// The port of the admin API on the host.
        port: u16,
    },
}

/// The reason that a text is not an address of an admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The text, which is neither a path nor `http://ADDRESS:PORT` nor `https://HOST:PORT`.
    Form(String),
    /// An address and port without `http://`, which no socket has for a path.
    Bare(SocketAddr),
    /// The address after `http://`, which is not loopback, so that other machines could reach it.
    Exposed(SocketAddr),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Form(text) => write!(
                f,
                "{text:?} is no address of an admin API; expected the path of a socket, such as \
                 /run/nearflash/nearflash.sock, http://127.0.0.1:PORT, or https://HOST:PORT"
            ),
            AddressError::Bare(address) if address.ip().is_loopback() => {
                write!(f, "{address} names no protocol: did you mean http://{address}?")
            }
            AddressError::Bare(address) => {
                write!(f, "{address} names no protocol: did you mean https://{address}?")
            }
            AddressError::Exposed(address) => write!(
                f,
                "{address} is not loopback, and without TLS the admin API lets in whoever reaches it; \
                 use https://{address} with a certificate and tokens, or the socket"
            ),
        }
    }
}

impl std::error::Error for AddressError {}

impl FromStr for AdminAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(text.to_owned());
        if let Some(host) = text.strip_prefix("http://") {
            let host = host.strip_suffix('/').unwrap_or(host);
            // A name is not resolved, since its address could change later.
            let host = host.replacen("localhost:", "127.0.0.1:", 1);
            let address: SocketAddr = host.parse().map_err(|_| form())?;
            return match address.ip().is_loopback() {
                true => Ok(AdminAddress::Tcp(address)),
                false => Err(AddressError::Exposed(address)),
            };
        }
        if let Some(place) = text.strip_prefix("https://") {
            let place = place.strip_suffix('/').unwrap_or(place);
            let (host, port) = place.rsplit_once(':').ok_or_else(form)?;
            let port = port.parse().map_err(|_| form())?;
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let is_v6 = bare.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            if !is_v6 && (host.is_empty() || !host.bytes().all(is_name)) {
                return Err(form());
            }
            return Ok(AdminAddress::Tls { host: bare.unwrap_or(host).to_owned(), port });
        }
        if let Ok(address) = text.parse() {
            return Err(AddressError::Bare(address));
        }
        match text.is_empty() || text.contains("://") {
            true => Err(form()),
            false => Ok(AdminAddress::Unix(text.into())),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Unix(path) => path.display().fmt(f),
            AdminAddress::Tcp(address) => write!(f, "http://{address}"),
            AdminAddress::Tls { host, port } if host.contains(':') => {
                write!(f, "https://[{host}]:{port}")
            }
            AdminAddress::Tls { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_ports_of_loopback() {
        for text in [
            "/run/nearflash/nearflash.sock",
            "./a",
            "http://127.0.0.1:80",
            "http://[::1]:80",
            "https://10.0.0.1:7443",
            "https://[2001:db8::1]:7443",
            "https://flash-1.example.org:7443",
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), text);
        }
        let local: AdminAddress = "http://localhost:7421/".parse().unwrap();
        assert_eq!(local.to_string(), "http://127.0.0.1:7421");
        for bad in ["", "https://a b:1", "https://x", "http://127.0.0.1", "reflex://127.0.0.1:1"] {
            let error = bad.parse::<AdminAddress>().unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:PORT"), "{bad}: {error}");
        }
        let error = "http://10.0.0.1:80".parse::<AdminAddress>().unwrap_err();
        assert!(error.to_string().contains("not loopback"), "{error}");
        assert!(error.to_string().contains("https://10.0.0.1:80"), "{error}");
        for (bare, meant) in
            [("127.0.0.1:80", "http://127.0.0.1:80"), ("[::2]:80", "https://[::2]:80")]
        {
            let error = bare.parse::<AdminAddress>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean {meant}?")), "{error}");
        }
    }
}
