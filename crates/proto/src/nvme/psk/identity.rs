//! The identities of pre-shared keys (TCP 1.1, 3.6.1.3): the host that offers a key, and the
//! subsystem.

use core::fmt;

use wire::nvme::ConnectData;
use zerocopy::FromBytes;

use super::super::auth::Hash;
use super::super::nqn::Nqn;
use super::super::refusal::Refusal;

/// Maximum length of an identity in bytes: two names, the digest of a version 1 identity, and the
/// separators.
pub(super) const IDENTITY_BYTES_MAX: usize = 10 + 223 + 1 + 223 + 1 + 64;

/// The version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// `NVMe0R01 HOST SUBSYSTEM`, of TCP 1.0.
    Zero,
    /// `NVMe1R01 HOST SUBSYSTEM DIGEST`, of TCP 1.1. The digest distinguishes several keys of one
    /// host and subsystem.
    One,
}

impl Version {
    pub(super) const ALL: [Version; 2] = [Version::One, Version::Zero];

    pub(super) const fn number(self) -> u8 {
        match self {
            Version::Zero => 0,
            Version::One => 1,
        }
    }
}

/// The names in the identity of a pre-shared key: the host that has the key, and the subsystem that
/// the connection leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The host's name.
    pub host: Nqn,
    /// The subsystem's name, which may be that of discovery.
    pub subsystem: Nqn,
}

impl TlsIdentity {
    /// Wraps the names of a host and a subsystem.
    ///
    /// # Errors
    /// Returns [`Refusal::Name`] if one of them is no qualified name.
    pub fn new(host: &str, subsystem: &str) -> Result<TlsIdentity, Refusal> {
        Ok(TlsIdentity { host: Nqn::new(host)?, subsystem: Nqn::new(subsystem)? })
    }

    /// Parses an identity as a peer sent it; `None` if it is not one of a retained key. The digest
    /// is not checked: [`TlsKey::psks`](super::TlsKey::psks) compares whole identities.
    pub fn parse(identity: &[u8]) -> Option<TlsIdentity> {
        if identity.len() > IDENTITY_BYTES_MAX {
            return None;
        }
        let mut parts = core::str::from_utf8(identity).ok()?.split(' ');
        let [kind, host, subsystem, digest, none] = core::array::from_fn(|_| parts.next());
        let has_digest = match kind? {
            "NVMe0R01" | "NVMe0R02" => false,
            "NVMe1R01" | "NVMe1R02" => true,
            _ => return None,
        };
        if digest.is_some() != has_digest || none.is_some() {
            return None;
        }
        TlsIdentity::new(host?, subsystem?).ok()
    }

    /// Returns the name in the data of a Connect that is not the identity's; `None` if both are.
    pub(crate) fn differs_from(&self, payload: &[u8]) -> Option<IdentityMismatch> {
        // Data that is not of a Connect is refused as such.
        let connect = ConnectData::ref_from_bytes(payload).ok()?;
        if Nqn::from_field(&connect.host_nqn).as_ref() != Some(&self.host) {
            return Some(IdentityMismatch::Host);
        }
        let subsystem = Nqn::from_field(&connect.subsystem_nqn);
        (subsystem.as_ref() != Some(&self.subsystem)).then_some(IdentityMismatch::Subsystem)
    }
}

/// The name in a Connect that is not the name in the identity of its connection's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityMismatch {
    Host,
    Subsystem,
}

/// The beginning of an identity: its version, and the hash of its key.
pub(super) struct IdentityPrefix(pub(super) Version, pub(super) Hash);

impl fmt::Display for IdentityPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVMe{}R{:02}", self.0.number(), self.1.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn identities_of_both_versions_are_parsed() {
        let parsed = TlsIdentity::parse(b"NVMe0R02 nqn.a nqn.b").unwrap();
        assert_eq!((parsed.host.as_str(), parsed.subsystem.as_str()), ("nqn.a", "nqn.b"));
        assert_eq!(TlsIdentity::parse(b"NVMe1R01 nqn.a nqn.b digest="), Some(parsed));
        for bad in [
            "",
            "Client_identity",
            "NVMe0R01",
            "NVMe0R01 nqn.a",
            "NVMe0R01 nqn.a nqn.b digest",
            "NVMe1R01 nqn.a nqn.b",
            "NVMe1R01 nqn.a nqn.b digest more",
            "NVMe1R03 nqn.a nqn.b digest",
            "NVMe1G01 nqn.a nqn.b digest",
            "NVMe2R01 nqn.a nqn.b digest",
            "NVMe0R01  nqn.a nqn.b",
            "NVMe0R01 host nqn.b",
            "NVMe0R01 nqn.a nqn.\u{7}",
        ] {
            assert_eq!(TlsIdentity::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(TlsIdentity::parse(&[0xff; 20]), None);
        let long = format!("NVMe1R01 nqn.a nqn.b {}", "d".repeat(600));
        assert_eq!(TlsIdentity::parse(long.as_bytes()), None);
    }

    #[test]
    fn a_connect_for_others_is_told() {
        let identity = TlsIdentity::parse(b"NVMe0R01 nqn.a nqn.b").unwrap();
        let connect = |host: &str, subsystem: &str| {
            let mut data = ConnectData::new_zeroed();
            data.host_nqn[..host.len()].copy_from_slice(host.as_bytes());
            data.subsystem_nqn[..subsystem.len()].copy_from_slice(subsystem.as_bytes());
            identity.differs_from(data.as_bytes())
        };
        assert_eq!(connect("nqn.a", "nqn.b"), None);
        assert_eq!(connect("nqn.c", "nqn.b"), Some(IdentityMismatch::Host));
        assert_eq!(connect("", "nqn.b"), Some(IdentityMismatch::Host));
        assert_eq!(connect("nqn.a", "nqn.c"), Some(IdentityMismatch::Subsystem));
        assert_eq!(identity.differs_from(&[0; 3]), None);
    }
}
