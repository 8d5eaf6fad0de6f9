//! Addresses of subsystems: `nvme-tcp://HOST:PORT/NQN`, with options after a `?`.

use core::fmt;
use core::str::FromStr;

use proto::nvme_tcp::Digests;

/// The form of an address, as shown in messages.
const FORM: &str = "nvme-tcp://HOST:PORT/NQN, such as \
                    nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.nearflash:myhost";

/// The prefix of every qualified name.
const NQN_PREFIX: &str = "nqn.";

/// The address of a subsystem, in its text form. Parsing does not look up the host's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeAddress {
    /// The endpoint at which the server listens, `HOST:PORT`; an IPv6 address is in brackets.
    pub place: String,
    /// The qualified name of the subsystem to connect to.
    pub subsystem: String,
    /// The namespace identifier (`nsid=N`); 1 by default.
    pub nsid: u32,
    /// The digests to ask the controller for (`digests=header`, `digests=data` or `digests=both`).
    pub digests: Digests,
    /// If `true` (the default), writes travel in the capsules of their commands where they fit.
    /// With `in_capsule=false`, the server asks for the data of every write.
    pub in_capsule: bool,
    /// `true` if the connection must use TLS (`tls=required`); false by default.
    pub tls: bool,
    /// The host's qualified name for the connection (`host=NQN`); `None` if the address has none.
    pub host: Option<String>,
}

/// The reason that a text is not the address of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmeAddressError {
    /// The text does not begin with `nvme-tcp://`.
    Scheme,
    /// The port is missing or invalid.
    Port,
    /// The qualified name is missing, or does not begin with `nqn.`.
    Name,
    /// The contained text after `?` is not a known option.
    Query(String),
}

impl fmt::Display for NvmeAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NvmeAddressError::Scheme => write!(f, "a subsystem is written {FORM}"),
            NvmeAddressError::Port => write!(f, "a port is missing: {FORM}"),
            NvmeAddressError::Name => {
                write!(f, "the subsystem's name is missing: {FORM}")
            }
            NvmeAddressError::Query(query) => write!(
                f,
                "`{query}` is not understood; there are nsid=N, digests=header|data|both, \
                 in_capsule=true|false, tls=off|required and host=NQN"
            ),
        }
    }
}

impl std::error::Error for NvmeAddressError {}

impl FromStr for NvmeAddress {
    type Err = NvmeAddressError;

    fn from_str(text: &str) -> Result<Self, NvmeAddressError> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let place = place.strip_prefix("nvme-tcp://").ok_or(NvmeAddressError::Scheme)?;
        let (place, subsystem) = place.split_once('/').unwrap_or((place, ""));
        match place.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {}
            _ => return Err(NvmeAddressError::Port),
        }
        if !subsystem.starts_with(NQN_PREFIX) {
            return Err(NvmeAddressError::Name);
        }
        let mut address = NvmeAddress {
            place: place.to_owned(),
            subsystem: subsystem.to_owned(),
            nsid: 1,
            digests: Digests::default(),
            in_capsule: true,
            tls: false,
            host: None,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            address.set(option).ok_or_else(|| NvmeAddressError::Query(option.to_owned()))?;
        }
        Ok(address)
    }
}

impl NvmeAddress {
    fn set(&mut self, option: &str) -> Option<()> {
        match option.split_once('=')? {
            ("nsid", number) => {
                self.nsid = number.parse().ok().filter(|nsid| (1..u32::MAX).contains(nsid))?;
            }
            ("digests", "header") => self.digests.header = true,
            ("digests", "data") => self.digests.data = true,
            ("digests", "both") => self.digests = Digests { header: true, data: true },
            ("in_capsule", is) => self.in_capsule = is.parse().ok()?,
            ("tls", "off") => self.tls = false,
            ("tls", "required") => self.tls = true,
            ("host", name) if name.starts_with(NQN_PREFIX) => self.host = Some(name.to_owned()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_an_address_is_understood() {
        let plain: NvmeAddress = "nvme-tcp://[::1]:4420/nqn.2026-11.x:a".parse().unwrap();
        assert_eq!((&*plain.place, &*plain.subsystem), ("[::1]:4420", "nqn.2026-11.x:a"));
        assert_eq!((plain.nsid, plain.in_capsule, plain.host), (1, true, None));
        assert!(!plain.tls);
        assert_eq!(plain.digests, Digests::default());
        let text =
            "nvme-tcp://h:1/nqn.x?nsid=3&digests=data&in_capsule=false&host=nqn.y:z&tls=required";
        let full: NvmeAddress = text.parse().unwrap();
        assert_eq!((full.nsid, full.in_capsule, full.tls), (3, false, true));
        assert_eq!(full.digests, Digests { header: false, data: true });
        assert_eq!(full.host.as_deref(), Some("nqn.y:z"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<NvmeAddress>().unwrap_err();
        assert_eq!(error("reflex://h:1"), NvmeAddressError::Scheme);
        assert_eq!(error("nvme-tcp://h/nqn.x"), NvmeAddressError::Port);
        assert_eq!(error("nvme-tcp://h:1"), NvmeAddressError::Name);
        assert_eq!(error("nvme-tcp://h:1/x"), NvmeAddressError::Name);
        for query in ["nsid=0", "digests=all", "host=x", "key=DHHC-1:00::", "nsid", "tls=yes"] {
            let text = format!("nvme-tcp://h:1/nqn.x?{query}");
            assert_eq!(error(&text), NvmeAddressError::Query(query.to_owned()));
        }
    }
}
