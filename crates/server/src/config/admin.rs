//! `admin`: where the admin API is, in a word; or `[admin]`, with what belongs to it.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::admin::Wanted;

/// The admin API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AdminConfig {
    /// Where it is; in the default place unless told.
    pub(crate) listen: Option<Wanted>,
    /// The file of the audit log; none unless told.
    pub(crate) audit: Option<PathBuf>,
    /// Of `https://`: its chain of certificates, in PEM.
    pub(crate) certificate: Option<PathBuf>,
    /// Of `https://`: their private key, in PEM.
    pub(crate) key: Option<PathBuf>,
    /// Of `https://`: the tokens of those who may come.
    pub(crate) tokens: Option<PathBuf>,
}

/// How it stands in a file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its form is wanted")]
pub(crate) enum Written {
    /// Where it is.
    Where(String),
    /// And what belongs to it.
    Table(Table),
}

/// `[admin]`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Where it is: the path of a socket, `http://127.0.0.1:PORT`, `https://ADDRESS:PORT` or `none`; a
    /// socket of this user's unless told.
    #[schemars(with = "Option<String>")]
    listen: Option<Wanted>,
    /// The file of the audit log; without one there is none.
    audit: Option<PathBuf>,
    /// Of `https://`, and needed there: its chain of certificates, in PEM.
    certificate: Option<PathBuf>,
    /// Of `https://`, and needed there: their private key, in PEM.
    key: Option<PathBuf>,
    /// Of `https://`, and needed there: the tokens of those who may come.
    tokens: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for AdminConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}

/// With messages that say what is wrong in the form that was chosen.
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
