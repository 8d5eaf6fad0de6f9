//! The addresses that a server listens on.

use std::net::{SocketAddr, ToSocketAddrs};

use contract::NamespaceId;

/// One `--listen` argument: `reflex://HOST:PORT[?namespace=N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAt {
    pub(crate) address: SocketAddr,
    /// The namespace of requests that name none: all of version 1.
    pub(crate) namespace: NamespaceId,
}

/// The port that nothing else says otherwise.
pub(crate) const DEFAULT_URL: &str = "reflex://127.0.0.1:7420";

const FORM: &str = "expected reflex://HOST:PORT[?namespace=N], such as reflex://127.0.0.1:7420";

impl ListenAt {
    /// Understands a URL; a host name is looked up.
    pub(crate) fn parse(url: &str) -> Result<ListenAt, String> {
        let Some(rest) = url.strip_prefix("reflex://") else {
            return Err(format!("{url:?}: {FORM}"));
        };
        let (host, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut namespace = NamespaceId(1);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("namespace", number)) => {
                    let parsed = number.parse().ok().filter(|n| *n > 0);
                    namespace = NamespaceId(parsed.ok_or_else(|| {
                        format!("{url:?}: namespace {number:?} is not a number from 1 to 65535")
                    })?);
                }
                _ => return Err(format!("{url:?}: unknown option {pair:?}; {FORM}")),
            }
        }
        let address = host
            .trim_end_matches('/')
            .to_socket_addrs()
            .map_err(|error| format!("{url:?}: {error}; {FORM}"))?
            .next()
            .ok_or_else(|| format!("{url:?}: the host has no address"))?;
        Ok(ListenAt { address, namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood_or_explained() {
        let listen = ListenAt::parse("reflex://127.0.0.1:7420?namespace=3").unwrap();
        assert_eq!(listen.address, "127.0.0.1:7420".parse().unwrap());
        assert_eq!(listen.namespace, NamespaceId(3));
        assert!(ListenAt::parse(DEFAULT_URL).is_ok());
        for bad in ["127.0.0.1:7420", "reflex://", "reflex://127.0.0.1", "reflex://127.0.0.1:7?x=1"]
        {
            let error = ListenAt::parse(bad).unwrap_err();
            assert!(error.contains("reflex://HOST:PORT"), "{bad}: {error}");
        }
        assert!(ListenAt::parse("reflex://127.0.0.1:1?namespace=0").is_err());
    }
}
