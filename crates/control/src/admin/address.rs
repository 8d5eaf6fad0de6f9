//! Where the admin API is: a Unix socket, or a port of loopback.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of an admin API, as people write it: a path, or `http://127.0.0.1:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of loopback.
    Tcp(SocketAddr),
}

/// Why a text is no address of an admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It is neither a path nor `http://ADDRESS:PORT`.
    Form(String),
    /// Other machines could reach it.
    Exposed(SocketAddr),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Form(text) => write!(
                f,
                "{text:?} is no address of an admin API; expected the path of a socket, such as \
                 /run/nearflash/nearflash.sock, or http://127.0.0.1:PORT"
            ),
            AddressError::Exposed(address) => write!(
                f,
                "{address} is not loopback, and the admin API lets in whoever reaches it; use the \
                 socket, or loopback and a tunnel such as `ssh -L`"
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
            // A name is not looked up: what it leads to can change behind our back.
            let host = host.replacen("localhost:", "127.0.0.1:", 1);
            let address: SocketAddr = host.parse().map_err(|_| form())?;
            return match address.ip().is_loopback() {
                true => Ok(AdminAddress::Tcp(address)),
                false => Err(AddressError::Exposed(address)),
            };
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_ports_of_loopback() {
        for text in
            ["/run/nearflash/nearflash.sock", "./a", "http://127.0.0.1:80", "http://[::1]:80"]
        {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), text);
        }
        let local: AdminAddress = "http://localhost:7421/".parse().unwrap();
        assert_eq!(local.to_string(), "http://127.0.0.1:7421");
        for bad in ["", "https://127.0.0.1:1", "http://127.0.0.1", "reflex://127.0.0.1:1"] {
            let error = bad.parse::<AdminAddress>().unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:PORT"), "{bad}: {error}");
        }
        let error = "http://10.0.0.1:80".parse::<AdminAddress>().unwrap_err();
        assert!(error.to_string().contains("not loopback"), "{error}");
    }
}
