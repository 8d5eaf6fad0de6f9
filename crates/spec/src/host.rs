//! `[[host]]`: the NVMe hosts that have keys or a tenant of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GroupName, HashName, Nth};

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
    pub nth: Nth,
}

/// A secret text, which no log shows. The state file contains it; only its owner may read that file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

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
            tenant: None,
            hashes: Vec::new(),
            groups: Vec::new(),
            nth: Nth::default(),
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
        let secret = |told: Option<&str>, own: Option<Secret>| {
            text(told, own.map(|secret| secret.0)).map(Secret)
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

    /// Returns the host with the text `hidden` in the place of each of its keys.
    #[must_use]
    pub fn hidden(self, hidden: &str) -> Host {
        let hide = |key: Option<Secret>| key.map(|_| Secret(hidden.to_owned()));
        Host {
            key: hide(self.key),
            former_key: hide(self.former_key),
            controller_key: hide(self.controller_key),
            ..self
        }
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
}
