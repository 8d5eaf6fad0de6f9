//! `[authentication]`: the hashes and groups that NVMe hosts may authenticate with.

use proto::nvme::auth::{Group, Hash, Methods};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::{GroupName, HashName, Host};

/// The hashes and groups that NVMe hosts may authenticate with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthenticationConfig {
    /// Hashes that hosts may use, the preferred one first.
    hashes: Option<Vec<HashName>>,
    /// Diffie-Hellman groups that hosts may use, the preferred one first. `none` allows hosts to
    /// authenticate without an exchange.
    groups: Option<Vec<GroupName>>,
}

impl AuthenticationConfig {
    /// Returns the hashes and groups that hosts may authenticate with. An absent list allows all.
    ///
    /// # Errors
    /// Fails if a list is empty, since no host could authenticate.
    pub(crate) fn methods(&self) -> Result<Methods, String> {
        let all = Methods::default();
        let hashes = self.hashes.as_ref().map(|names| names.iter().map(|name| hash_of(*name)));
        let groups = self.groups.as_ref().map(|names| names.iter().map(|name| group_of(*name)));
        let methods = Methods {
            hashes: hashes.map_or(all.hashes, Iterator::collect),
            groups: groups.map_or(all.groups, Iterator::collect),
        };
        if methods.hashes.is_empty() || methods.groups.is_empty() {
            return Err(
                "[authentication]: without a hash or without a group no host can authenticate; \
                        leave the list out to allow all"
                    .to_owned(),
            );
        }
        Ok(methods)
    }

    /// Fills in absent lists with all hashes or groups that the server has.
    pub(super) fn say_defaults(&mut self) {
        let all = Methods::default();
        let hash = |hash: &Hash| HashName::ALL.into_iter().find(|name| hash_of(*name) == *hash);
        let group =
            |group: &Group| GroupName::ALL.into_iter().find(|name| group_of(*name) == *group);
        self.hashes.get_or_insert_with(|| all.hashes.iter().filter_map(hash).collect());
        self.groups.get_or_insert_with(|| all.groups.iter().filter_map(group).collect());
    }
}

/// Returns the methods that a host may authenticate with, given those of `[authentication]`;
/// `None` if the host has no lists of its own.
pub(crate) fn methods_of(host: &Host, of_all: &Methods) -> Option<Methods> {
    if host.hashes.is_empty() && host.groups.is_empty() {
        return None;
    }
    let mut own = of_all.clone();
    if !host.hashes.is_empty() {
        own.hashes = host.hashes.iter().map(|name| hash_of(*name)).collect();
    }
    if !host.groups.is_empty() {
        own.groups = host.groups.iter().map(|name| group_of(*name)).collect();
    }
    Some(own)
}

fn hash_of(name: HashName) -> Hash {
    match name {
        HashName::Sha256 => Hash::Sha256,
        HashName::Sha384 => Hash::Sha384,
        HashName::Sha512 => Hash::Sha512,
    }
}

fn group_of(name: GroupName) -> Group {
    match name {
        GroupName::None => Group::Null,
        GroupName::Ffdhe2048 => Group::Ffdhe2048,
        GroupName::Ffdhe3072 => Group::Ffdhe3072,
        GroupName::Ffdhe4096 => Group::Ffdhe4096,
        GroupName::Ffdhe6144 => Group::Ffdhe6144,
        GroupName::Ffdhe8192 => Group::Ffdhe8192,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(text: &str) -> Result<Methods, String> {
        let config: AuthenticationConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.methods()
    }

    #[test]
    fn the_defaults_that_are_said_are_those_that_hold() {
        let mut said = AuthenticationConfig::default();
        said.say_defaults();
        assert_eq!(said.methods(), Ok(Methods::default()));
    }

    #[test]
    fn lists_say_what_is_allowed_and_what_is_wanted_most() {
        assert_eq!(methods(""), Ok(Methods::default()));
        let text = "hashes = [\"sha512\", \"sha384\"]\ngroups = [\"ffdhe4096\"]";
        let expected =
            Methods { hashes: vec![Hash::Sha512, Hash::Sha384], groups: vec![Group::Ffdhe4096] };
        assert_eq!(methods(text), Ok(expected));
        assert!(methods("groups = []").unwrap_err().contains("no host can authenticate"));
        let own = |hashes, groups| {
            let host = Host::of_name("nqn.x".to_owned()).with_methods(Some(hashes), Some(groups));
            methods_of(&host, &methods("hashes = [\"sha512\"]").unwrap())
        };
        assert_eq!(own(vec![], vec![]), None);
        let expected = Methods { hashes: vec![Hash::Sha512], groups: vec![Group::Null] };
        assert_eq!(own(vec![], vec![GroupName::None]), Some(expected));
        let expected = Methods { hashes: vec![Hash::Sha256], groups: Group::ALL.to_vec() };
        assert_eq!(own(vec![HashName::Sha256], vec![]), Some(expected));
        assert!(methods("hashes = [\"md5\"]").unwrap_err().contains("sha256"));
    }
}
