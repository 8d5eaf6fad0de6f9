//! The names of the hashes and groups that NVMe hosts authenticate with.

use schemars::JsonSchema;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Serialize};

/// A hash of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashName {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// A Diffie-Hellman group of DH-HMAC-CHAP. `none` is authentication without an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupName {
    /// No exchange.
    None,
    /// The group of 2 048 bits of RFC 7919.
    Ffdhe2048,
    /// The group of 3 072 bits.
    Ffdhe3072,
    /// The group of 4 096 bits.
    Ffdhe4096,
    /// The group of 6 144 bits.
    Ffdhe6144,
    /// The group of 8 192 bits.
    Ffdhe8192,
}

impl HashName {
    /// All hashes.
    pub const ALL: [HashName; 3] = [HashName::Sha256, HashName::Sha384, HashName::Sha512];

    /// Returns the name as configurations have it.
    pub fn name(self) -> &'static str {
        match self {
            HashName::Sha256 => "sha256",
            HashName::Sha384 => "sha384",
            HashName::Sha512 => "sha512",
        }
    }
}

impl GroupName {
    /// All groups.
    pub const ALL: [GroupName; 6] = [
        GroupName::None,
        GroupName::Ffdhe2048,
        GroupName::Ffdhe3072,
        GroupName::Ffdhe4096,
        GroupName::Ffdhe6144,
        GroupName::Ffdhe8192,
    ];

    /// Returns the name as configurations have it.
    pub fn name(self) -> &'static str {
        match self {
            GroupName::None => "none",
            GroupName::Ffdhe2048 => "ffdhe2048",
            GroupName::Ffdhe3072 => "ffdhe3072",
            GroupName::Ffdhe4096 => "ffdhe4096",
            GroupName::Ffdhe6144 => "ffdhe6144",
            GroupName::Ffdhe8192 => "ffdhe8192",
        }
    }
}

/// Reads a list of names with commas between them, such as `sha512,sha384`. The word `all` is the
/// empty list, which leaves the choice to the server.
///
/// # Errors
/// Fails for an unknown name, and says which names there are.
pub fn named_methods<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    if text == "all" {
        return Ok(Vec::new());
    }
    let one = |name: &str| {
        let name: StrDeserializer<'_, Error> = name.trim().into_deserializer();
        T::deserialize(name).map_err(|error| format!("{error}, or `all` alone"))
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_with_commas_and_all_is_the_empty_list() {
        let hashes = named_methods("sha512, sha256");
        assert_eq!(hashes, Ok(vec![HashName::Sha512, HashName::Sha256]));
        assert_eq!(named_methods::<GroupName>("all"), Ok(Vec::new()));
        assert_eq!(named_methods("none"), Ok(vec![GroupName::None]));
        let all = GroupName::ALL.map(GroupName::name).join(",");
        assert_eq!(named_methods(&all), Ok(GroupName::ALL.to_vec()));
        let all = HashName::ALL.map(HashName::name).join(",");
        assert_eq!(named_methods(&all), Ok(HashName::ALL.to_vec()));
        for wrong in ["md5", "", "sha256,", "sha256,all"] {
            let error = named_methods::<HashName>(wrong).unwrap_err();
            assert!(error.contains("`sha384`") && error.contains("`all`"), "{wrong}: {error}");
        }
    }
}
