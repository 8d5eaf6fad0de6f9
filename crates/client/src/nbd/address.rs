//! Addresses of exports: `nbd://HOST:PORT/EXPORT`, `nbds://HOST:PORT/EXPORT` over TLS, and
//! `nbd+unix:PATH?export=EXPORT`.

use core::fmt;
use core::str::FromStr;

use contract::ServerEndpoint;

use crate::Trust;

/// The form of an address, as shown in messages.
const FORM: &str = "nbd://HOST:PORT/EXPORT, such as nbd://127.0.0.1:10809/ns1";

/// The longest name of an export, in bytes (the specification's "Conventions").
const NAME_BYTES_MAX: usize = 4096;

/// The address of an export, in its text form. Parsing does not look up the host's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    /// The endpoint at which the server listens.
    pub place: ServerEndpoint,
    /// The export's name; the server's default export if it is empty.
    pub export: String,
    /// Certificates that are trusted, if the connection is over TLS.
    pub trust: Option<Trust>,
}

/// The reason that a text is not the address of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddressError {
    /// The text begins with none of `nbd://`, `nbds://` and `nbd+unix:`.
    Scheme,
    /// The port is missing or invalid.
    Port,
    /// The path of the socket is missing.
    Path,
    /// The export's name is too long.
    Name,
    /// The contained option after `?` is not understood.
    Query(String),
}

impl fmt::Display for NbdAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddressError::Scheme => {
                write!(f, "an export is written {FORM}, nbds:// (over TLS) or nbd+unix:PATH")
            }
            NbdAddressError::Port => write!(f, "a port is missing: {FORM}"),
            NbdAddressError::Path => {
                f.write_str("the socket's path is missing: nbd+unix:PATH?export=EXPORT")
            }
            NbdAddressError::Name => {
                write!(f, "the export's name has more than {NAME_BYTES_MAX} bytes")
            }
            NbdAddressError::Query(query) => {
                write!(
                    f,
                    "`{query}` is not understood: {FORM}, or nbd+unix:PATH?export=EXPORT; only \
                     nbds:// takes ca=FILE, fingerprint=SHA256 and name=NAME, separated by `&`"
                )
            }
        }
    }
}

impl std::error::Error for NbdAddressError {}

impl FromStr for NbdAddress {
    type Err = NbdAddressError;

    fn from_str(text: &str) -> Result<Self, NbdAddressError> {
        let (place, query) = match text.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (text, None),
        };
        let over_tls = place.strip_prefix("nbds://");
        let mut trust = over_tls.map(|_| Trust::default());
        let (place, export) = if let Some(place) = over_tls.or(place.strip_prefix("nbd://")) {
            for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                if !trust.as_mut().is_some_and(|trust| trust.take(key, value)) {
                    return Err(NbdAddressError::Query(pair.to_owned()));
                }
            }
            let (place, export) = place.split_once('/').unwrap_or((place, ""));
            match place.rsplit_once(':') {
                Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {}
                _ => return Err(NbdAddressError::Port),
            }
            (ServerEndpoint::Network(place.to_owned()), export)
        } else {
            let path = place.strip_prefix("nbd+unix:").ok_or(NbdAddressError::Scheme)?;
            if path.is_empty() {
                return Err(NbdAddressError::Path);
            }
            let export = match query.map(|query| (query, query.strip_prefix("export="))) {
                None => "",
                Some((_, Some(export))) => export,
                Some((query, None)) => return Err(NbdAddressError::Query(query.to_owned())),
            };
            (ServerEndpoint::Unix(path.into()), export)
        };
        match export.len() > NAME_BYTES_MAX {
            true => Err(NbdAddressError::Name),
            false => Ok(NbdAddress { place, export: export.to_owned(), trust }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_place_and_an_export() {
        let address: NbdAddress = "nbd://[::1]:10809/first".parse().unwrap();
        assert_eq!(address.place, ServerEndpoint::Network("[::1]:10809".to_owned()));
        assert_eq!(address.export, "first");
        let address: NbdAddress = "nbds://a:1/x?ca=/c&name=b".parse().unwrap();
        assert_eq!(
            (&*address.export, &address.place),
            ("x", &ServerEndpoint::Network("a:1".into()))
        );
        assert_eq!(address.trust.unwrap().certified_name(&address.place), "b");
        assert_eq!("nbd://a:1".parse::<NbdAddress>().unwrap().export, "");
        let address: NbdAddress = "nbd+unix:/run/a.sock?export=x".parse().unwrap();
        assert_eq!(address.place, ServerEndpoint::Unix("/run/a.sock".into()));
        assert_eq!(address.export, "x");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<NbdAddress>().unwrap_err();
        assert_eq!(error("reflex://a:1"), NbdAddressError::Scheme);
        assert_eq!(error("nbd://a/x"), NbdAddressError::Port);
        assert_eq!(error("nbd://:1/x"), NbdAddressError::Port);
        assert_eq!(error("nbd+unix:"), NbdAddressError::Path);
        assert_eq!(error("nbd+unix:/a?x=1"), NbdAddressError::Query("x=1".to_owned()));
        assert_eq!(error("nbd://a:1/x?y"), NbdAddressError::Query("y".to_owned()));
        assert_eq!(error("nbd://a:1/x?ca=f"), NbdAddressError::Query("ca=f".to_owned()));
        assert_eq!(error("nbds://a/x"), NbdAddressError::Port);
        assert_eq!(error(&format!("nbd://a:1/{}", "x".repeat(4097))), NbdAddressError::Name);
    }
}
