//! `[authentication]`: the hashes and groups that NVMe hosts may authenticate with.

use proto::nvme::auth::{Group, Hash, Methods};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum HashName {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum GroupName {
    None,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

impl AuthenticationConfig {
    /// Returns the hashes and groups that hosts may authenticate with. An absent list allows all.
    ///
    /// # Errors
    /// Fails if a list is empty, since no host could authenticate.
    pub(crate) fn methods(&self) -> Result<Methods, String> {
        let all = Methods::default();
        let hashes = self.hashes.as_ref().map(|names| names.iter().map(|name| name.hash()));
        let groups = self.groups.as_ref().map(|names| names.iter().map(|name| name.group()));
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
}

impl AuthenticationConfig {
    /// Fills in absent lists with all hashes or groups that the server has.
    pub(super) fn say_defaults(&mut self) {
        let all = Methods::default();
        let hash = |hash: &Hash| HashName::ALL.into_iter().find(|name| name.hash() == *hash);
        let group = |group: &Group| GroupName::ALL.into_iter().find(|name| name.group() == *group);
        self.hashes.get_or_insert_with(|| all.hashes.iter().filter_map(hash).collect());
        self.groups.get_or_insert_with(|| all.groups.iter().filter_map(group).collect());
    }
}

impl HashName {
    const ALL: [HashName; 3] = [HashName::Sha256, HashName::Sha384, HashName::Sha512];

    fn hash(self) -> Hash {
        match self {
            HashName::Sha256 => Hash::Sha256,
            HashName::Sha384 => Hash::Sha384,
            HashName::Sha512 => Hash::Sha512,
        }
    }
}

impl GroupName {
    const ALL: [GroupName; 6] = [
        GroupName::None,
        GroupName::Ffdhe2048,
        GroupName::Ffdhe3072,
        GroupName::Ffdhe4096,
        GroupName::Ffdhe6144,
        GroupName::Ffdhe8192,
    ];

    fn group(self) -> Group {
        match self {
            GroupName::None => Group::Null,
            GroupName::Ffdhe2048 => Group::Ffdhe2048,
            GroupName::Ffdhe3072 => Group::Ffdhe3072,
            GroupName::Ffdhe4096 => Group::Ffdhe4096,
            GroupName::Ffdhe6144 => Group::Ffdhe6144,
            GroupName::Ffdhe8192 => Group::Ffdhe8192,
        }
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
        assert!(methods("hashes = [\"md5\"]").unwrap_err().contains("sha256"));
    }
}
