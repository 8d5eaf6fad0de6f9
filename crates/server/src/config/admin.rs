//! The admin API in a configuration: its address as `admin`, or address and files as `[admin]`.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::admin::AdminAddresses;

/// The admin API as configured: its addresses, its audit log, and its files for `https://`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AdminConfig {
    /// The addresses; `None` for the default Unix socket.
    pub(crate) listen: Option<AdminAddresses>,
    /// The file of the audit log; `None` for no audit log.
    pub(crate) audit: Option<PathBuf>,
    /// The file of the certificate chain for `https://`, in PEM.
    pub(crate) certificate: Option<PathBuf>,
    /// The file of the certificate's private key for `https://`, in PEM.
    pub(crate) key: Option<PathBuf>,
    /// The file of the operators' tokens for `https://`.
    pub(crate) tokens: Option<PathBuf>,
}

/// The forms of `admin` in a configuration file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its form is wanted")]
pub(crate) enum Written {
    /// The address of the admin API.
    Where(String),
    /// The address of the admin API, and its files.
    Table(Table),
}

/// The table `[admin]`: the address of the admin API, and its files.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Address: the path of a Unix socket, `http://127.0.0.1:PORT`, `https://ADDRESS:PORT` or
    /// `none`. By default a Unix socket of the server's user.
    #[schemars(with = "Option<String>")]
    listen: Option<AdminAddresses>,
    /// File of the audit log. By default there is none.
    audit: Option<PathBuf>,
    /// File of the certificate chain, in PEM; required for `https://`.
    certificate: Option<PathBuf>,
    /// File of the certificate's private key, in PEM; required for `https://`.
    key: Option<PathBuf>,
    /// File of the operators' tokens; required for `https://`.
    tokens: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for AdminConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}

/// A visitor that deserializes an address or the table `[admin]`. Its error messages are about the
/// form that the file uses.
struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = AdminConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("where the admin API is, or a table [admin]")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AdminConfig, E> {
        let listen = Some(text.parse().map_err(E::custom)?);
        Ok(AdminConfig { listen, ..AdminConfig::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AdminConfig, A::Error> {
        let Table { listen, audit, certificate, key, tokens } =
            Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(AdminConfig { listen, audit, certificate, key, tokens })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_word_or_a_table() {
        let listen = |text: &str| {
            Config::parse(text).map(|config| config.admin.listen).map_err(|m| m.to_string())
        };
        let none = listen("admin = \"none\"").unwrap();
        assert!(none.is_some() && none == listen("[admin]\nlisten = \"none\"").unwrap());
        assert_eq!(listen("").unwrap(), None);
        let error = listen("[admin]\nlisen = \"none\"").unwrap_err();
        assert!(error.contains("lisen") && error.contains("`audit`"), "{error}");
        assert!(listen("admin = \"ftp://x\"").unwrap_err().contains("or none"));
        assert!(listen("admin = 7").unwrap_err().contains("a table [admin]"));
    }
}
