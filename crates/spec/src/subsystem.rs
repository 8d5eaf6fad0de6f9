//! `[[subsystem]]`: the NVMe subsystems that hosts connect to.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TablePosition;

/// An NVMe subsystem: namespaces under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subsystem {
    /// Qualified name of the subsystem. By default a name that contains the machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// Namespaces of the subsystem. An entry without an `nsid` has its position, from 1, as
    /// identifier. By default all namespaces, under the server's numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<Exported>>,
    /// Qualified names of the hosts that may connect. By default all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Tenant that I/O to the subsystem is charged to. By default the tenant of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Refuses hosts without a key.
    #[serde(default)]
    pub authenticate: bool,
    /// Access states of groups of namespaces by listener. By default all are optimized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ana: Vec<Ana>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Exported {
    /// The server's number of the namespace.
    Number(u16),
    /// The name of the namespace.
    Name(String),
    /// The server's number of the namespace, and the subsystem's identifier for it.
    As {
        /// Identifier of the namespace in the subsystem.
        nsid: u32,
        /// Number of the namespace on the server.
        namespace: u16,
    },
}

/// The access state of a group of namespaces through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ana {
    /// Number of the listener.
    pub listener: u16,
    /// Number of the group. All namespaces belong to group 1.
    #[serde(default = "one")]
    pub group: u32,
    /// State of the group through the listener.
    pub state: AnaState,
}

fn one() -> u32 {
    1
}

/// A state of asymmetric namespace access (ANA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnaState {
    /// The preferred path.
    Optimized,
    /// A path that hosts use if there is no better one.
    NonOptimized,
    /// No access, for the time being.
    Inaccessible,
    /// No access, permanently.
    PersistentLoss,
    /// No access during a transition.
    Change,
}

impl Subsystem {
    /// Returns the qualified name of the subsystem; empty if it has none yet. The server gives the
    /// first subsystem a default name.
    pub fn name(&self) -> String {
        self.nqn.clone().unwrap_or_default()
    }

    /// Returns the subsystem with these namespaces instead of its own. A pair is the identifier in
    /// the subsystem (NSID) and the server's number of a namespace.
    pub fn with_namespaces(&self, listed: Vec<(u32, u16)>) -> Subsystem {
        let each = listed.into_iter().map(|(nsid, namespace)| Exported::As { nsid, namespace });
        Subsystem { namespaces: Some(each.collect()), ..self.clone() }
    }

    /// Returns the identifiers of the subsystem's namespaces with the server's numbers. `named` has
    /// the number and the name of each namespace of the server.
    ///
    /// # Errors
    /// Fails if there is no namespace of a name.
    pub fn exports(&self, named: &[(u16, &str)]) -> Result<Vec<(u32, u16)>, String> {
        let Some(listed) = &self.namespaces else {
            return Ok(named.iter().map(|(number, _)| ((*number).into(), *number)).collect());
        };
        let by_name: HashMap<&str, u16> =
            named.iter().rev().map(|(number, name)| (*name, *number)).collect();
        let each = listed.iter().zip(1..).map(|(exported, position)| match exported {
            Exported::Number(number) => Ok((position, *number)),
            Exported::As { nsid, namespace } => Ok((*nsid, *namespace)),
            Exported::Name(name) => {
                let unknown = || format!("there is no namespace {name:?}");
                Ok((position, *by_name.get(name.as_str()).ok_or_else(unknown)?))
            }
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_listed_by_number_by_name_or_under_another_identifier() {
        let named = [(1, "logs"), (9, "archive")];
        let exports = |text: &str| toml::from_str::<Subsystem>(text).unwrap().exports(&named);
        assert_eq!(exports(""), Ok(vec![(1, 1), (9, 9)]));
        let listed = "namespaces = [9, \"logs\", { nsid = 7, namespace = 9 }]";
        assert_eq!(exports(listed), Ok(vec![(1, 9), (2, 1), (7, 9)]));
        assert_eq!(exports("namespaces = [\"x\"]"), Err("there is no namespace \"x\"".to_owned()));
        let again = Subsystem::default().with_namespaces(vec![(7, 9)]);
        assert_eq!(again.exports(&named), Ok(vec![(7, 9)]));
    }
}
