//! Where a server is: `reflex://HOST:PORT`, with `?v=1` for version 1 of the protocol.

use core::fmt;
use core::str::FromStr;

use crate::Version;

/// The address of a server, as people write it. The host's name is not looked up here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT`; an IPv6 address stands in brackets.
    pub host_and_port: String,
    /// The protocol's version.
    pub version: Version,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It does not begin with `reflex://`.
    Scheme,
    /// There is no port, or it is not one.
    Port,
    /// What stands behind `?` is not understood.
    Query(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Scheme => f.write_str("a server is written reflex://HOST:PORT"),
            AddressError::Port => f.write_str("a port is missing, as in reflex://127.0.0.1:7420"),
            AddressError::Query(query) => {
                write!(f, "`?{query}` is not understood; only ?v=1 and ?v=2 are")
            }
        }
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix("reflex://").ok_or(AddressError::Scheme)?;
        let (host, query) = rest.split_once('?').unwrap_or((rest, ""));
        let version = match query {
            "" | "v=2" => Version::Two,
            "v=1" => Version::One,
            _ => return Err(AddressError::Query(query.to_owned())),
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        match host.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Address { host_and_port: host.to_owned(), version })
            }
            _ => Err(AddressError::Port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.version == Version::One { "?v=1" } else { "" };
        write!(f, "reflex://{}{query}", self.host_and_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_write_the_same() {
        for text in ["reflex://127.0.0.1:7420", "reflex://[::1]:7420?v=1", "reflex://host:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("reflex://h:1/?v=2".parse::<Address>().unwrap().host_and_port, "h:1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert_eq!(error("http://localhost:80"), AddressError::Scheme);
        assert_eq!(error("reflex://localhost"), AddressError::Port);
        assert_eq!(error("reflex://:80"), AddressError::Port);
        assert_eq!(error("reflex://h:99999"), AddressError::Port);
        assert_eq!(error("reflex://h:1?v=3"), AddressError::Query("v=3".to_owned()));
    }
}
