//! The state of a server as one document, which is exported and imported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::Secret;

/// The state of a server: its devices, namespaces, tenants, subsystems, hosts, listeners and access
/// rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerState {
    /// The document, in the form of a configuration file (TOML). It has `(hidden)` in place of keys
    /// and tokens.
    pub document: String,
}

/// A document to import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportState {
    /// The document, as exported. The server keeps the objects of tables that it leaves out.
    // It may have keys and tokens.
    #[schemars(with = "String")]
    pub document: Secret,
    /// `true` to return the changes without making them.
    #[serde(default)]
    pub dry_run: bool,
}

/// The outcome of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The differences between the server and the document, one a line.
    pub changes: Vec<String>,
    /// The differences that remain, with the reasons.
    pub left: Vec<String>,
}
