//! `[[host]]`: the NVMe hosts that have keys or a tenant of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::{GroupName, HashName, TablePosition};

/// An NVMe host, with its keys and its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Qualified name of the host.
    pub nqn: String,
    /// Key by which the host must authenticate. A host without one need not authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// Key before, by which the host may still authenticate while it changes to `key`.
    /// By default only `key` authenticates the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_key: Option<Secret>,
    /// Key by which the server authenticates to the host if the host asks.
    /// By default the server does not authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_key: Option<Secret>,
    /// Key from which those for TLS are derived. A host without one cannot use TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<Secret>,
    /// TLS key before, which the host may still use while it changes to `tls_key`.
    /// By default the host may use only `tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_tls_key: Option<Secret>,
    /// Tenant that the host's I/O is charged to. By default the subsystem's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Hashes that the host may authenticate with, the preferred one first. By default, and if
    /// empty, all of `[authentication]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<HashName>,
    /// Diffie-Hellman groups that the host may authenticate with, the preferred one first.
    /// By default, and if empty, all of `[authentication]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupName>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

/// A secret text, which no log shows. It is wiped from memory when it is dropped. The state file
/// contains it; only its owner may read that file.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::ops::Deref for Secret {
    type Target = str;

    /// Returns the secret.
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    /// Writes a placeholder instead of the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Host {
    /// Returns a host without keys and without a tenant.
    pub fn of_name(nqn: String) -> Host {
        Host {
            nqn,
            key: None,
            former_key: None,
            controller_key: None,
            tls_key: None,
            former_tls_key: None,
            tenant: None,
            hashes: Vec::new(),
            groups: Vec::new(),
            nth: TablePosition::default(),
        }
    }

    /// Returns the host with the changes of another one: fields that are `Some` are replaced, and
    /// an empty text removes a key or the tenant. A new key ends the overlap with a former one.
    #[must_use]
    pub fn with(
        self,
        key: Option<&str>,
        controller_key: Option<&str>,
        tenant: Option<&str>,
    ) -> Host {
        let text = |told: Option<&str>, own| told.map_or(own, |text| some(text).map(str::to_owned));
        let secret = |told: Option<&str>, own| {
            told.map_or(own, |text| some(text).map(|text| Secret(text.to_owned())))
        };
        let former_key = self.former_key.filter(|_| key.is_none());
        Host {
            key: secret(key, self.key),
            former_key,
            controller_key: secret(controller_key, self.controller_key),
            tenant: text(tenant, self.tenant),
            ..self
        }
    }

    /// Returns the host with other hashes and groups to authenticate with. Lists that are `Some`
    /// are replaced; an empty list allows all of `[authentication]`.
    #[must_use]
    pub fn with_methods(
        self,
        hashes: Option<Vec<HashName>>,
        groups: Option<Vec<GroupName>>,
    ) -> Host {
        Host {
            hashes: hashes.unwrap_or(self.hashes),
            groups: groups.unwrap_or(self.groups),
            ..self
        }
    }

    /// Returns the host with a new key. The key before stays valid beside it until the overlap
    /// ends.
    ///
    /// # Errors
    /// Fails if the host has no key yet, or `key` is empty.
    pub fn overlapping(self, key: &str) -> Result<Host, String> {
        match (self.key.clone(), some(key)) {
            (Some(before), Some(key)) if before.0 == key => Ok(self),
            (Some(before), Some(_)) => {
                Ok(Host { former_key: Some(before), ..self.with(Some(key), None, None) })
            }
            (_, None) => Err("an overlap needs a new key".to_owned()),
            (None, _) => Err("the host has no key yet that could go on".to_owned()),
        }
    }

    /// Returns the host with another TLS key; an empty text removes it. The key before ends, unless
    /// the two `overlap`.
    ///
    /// # Errors
    /// Fails if the two are to overlap, and the host has no TLS key yet or `key` is empty.
    pub fn with_tls_key(self, key: &str, overlap: bool) -> Result<Host, String> {
        let (before, tls_key) = (self.tls_key.clone(), some(key).map(|key| Secret(key.to_owned())));
        let former_tls_key = match (overlap, before) {
            (false, _) => None,
            (true, _) if tls_key.is_none() => return Err("an overlap needs a new key".to_owned()),
            (true, None) => return Err("the host has no TLS key yet that could go on".to_owned()),
            (true, before) if before == tls_key => self.former_tls_key.clone(),
            (true, before) => before,
        };
        Ok(Host { tls_key, former_tls_key, ..self })
    }

    /// Returns all keys of the host.
    pub fn secrets(&self) -> [&Option<Secret>; 5] {
        let Host { key, former_key, controller_key, tls_key, former_tls_key, .. } = self;
        [key, former_key, controller_key, tls_key, former_tls_key]
    }

    /// Returns all keys of the host, to be changed. They have the order of [`Host::secrets`].
    pub fn secrets_mut(&mut self) -> [&mut Option<Secret>; 5] {
        let Host { key, former_key, controller_key, tls_key, former_tls_key, .. } = self;
        [key, former_key, controller_key, tls_key, former_tls_key]
    }

    /// Returns the host with the text `hidden` in the place of each of its keys.
    #[must_use]
    pub fn hidden(mut self, hidden: &str) -> Host {
        for secret in self.secrets_mut().into_iter().flatten() {
            *secret = Secret(hidden.to_owned());
        }
        self
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_and_what_is_empty_goes() {
        let host = Host::of_name("nqn.x".to_owned()).with(Some("key"), None, Some("gold"));
        assert_eq!((&host.key, &host.tenant), (&Some(Secret("key".into())), &Some("gold".into())));
        assert_eq!(host.clone().with(None, None, None), host);
        let limited = host.clone().with_methods(Some(vec![HashName::Sha512]), None);
        assert_eq!((&limited.hashes[..], limited.groups.len()), (&[HashName::Sha512][..], 0));
        assert_eq!(limited.clone().with_methods(None, Some(Vec::new())), limited);
        assert_eq!(limited.with_methods(Some(Vec::new()), None), host);
        let cleared = host.clone().with(Some(""), None, Some(""));
        assert_eq!(cleared, Host::of_name("nqn.x".to_owned()));
        let overlaps = host.clone().overlapping("new").unwrap();
        assert_eq!(overlaps.former_key, host.key);
        assert_eq!(overlaps.clone().overlapping("new"), Ok(overlaps.clone()), "told twice");
        assert_eq!(overlaps.with(Some("newer"), None, None).former_key, None);
        assert!(Host::of_name("nqn.x".to_owned()).overlapping("new").is_err());
        assert!(!format!("{host:?}").contains("key\""), "{host:?}");
        assert_eq!(host.hidden("-").key, Some(Secret("-".to_owned())));
    }

    #[test]
    fn a_tls_key_may_overlap_the_one_before() {
        let host = Host::of_name("nqn.x".to_owned());
        assert!(host.clone().with_tls_key("new", true).is_err());
        let host = host.with_tls_key("old", false).unwrap();
        assert!(host.clone().with_tls_key("", true).is_err());
        let overlaps = host.clone().with_tls_key("new", true).unwrap();
        assert_eq!(overlaps.former_tls_key, host.tls_key);
        assert_eq!(overlaps.clone().with_tls_key("new", true), Ok(overlaps.clone()), "told twice");
        assert_eq!(overlaps.secrets()[3..], [&Some(Secret("new".into())), &host.tls_key]);
        assert!(overlaps.clone().hidden("-").secrets().into_iter().flatten().all(|s| s.0 == "-"));
        let alone = overlaps.with_tls_key("newer", false).unwrap();
        assert_eq!(alone.former_tls_key, None);
        assert_eq!(alone.with_tls_key("", false), Ok(Host::of_name("nqn.x".to_owned())));
    }
}
