//! `[[subsystem]]` and `[[host]]`: the NVMe subsystems, and the hosts that connect to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::nvme::AnaState;

use super::{Config, Nth, Space};

/// An NVMe subsystem: namespaces under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubsystemConfig {
    /// Qualified name of the subsystem. By default a name that contains the machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nqn: Option<String>,
    /// Namespaces of the subsystem. An entry without an `nsid` has its position, from 1, as identifier.
    /// By default all namespaces, under the server's numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces: Option<Vec<Exported>>,
    /// Qualified names of the hosts that may connect. By default all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<String>>,
    /// Tenant that I/O to the subsystem is charged to. By default the tenant of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Refuses hosts without a key.
    #[serde(default)]
    pub(crate) authenticate: bool,
    /// Access states of groups of namespaces by listener. By default all are optimized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ana: Vec<AnaConfig>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Exported {
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
pub(crate) struct AnaConfig {
    /// Number of the listener.
    pub(crate) listener: u16,
    /// Number of the group. All namespaces belong to group 1.
    #[serde(default = "one")]
    pub(crate) group: u32,
    /// State of the group through the listener.
    pub(crate) state: AnaWord,
}

fn one() -> u32 {
    1
}

/// The states of asymmetric namespace access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnaWord {
    /// The preferred path.
    Optimized,
    /// A path that hosts take if no optimized one exists.
    NonOptimized,
    /// A path that cannot be used for now.
    Inaccessible,
    /// A path that can never be used again.
    PersistentLoss,
    /// A path that cannot be used while its state changes.
    Change,
}

impl AnaWord {
    /// Returns the state as the protocol has it.
    pub(crate) fn state(self) -> AnaState {
        match self {
            AnaWord::Optimized => AnaState::OPTIMIZED,
            AnaWord::NonOptimized => AnaState::NON_OPTIMIZED,
            AnaWord::Inaccessible => AnaState::INACCESSIBLE,
            AnaWord::PersistentLoss => AnaState::PERSISTENT_LOSS,
            AnaWord::Change => AnaState::CHANGE,
        }
    }
}

/// An NVMe host, with its keys and its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostConfig {
    /// Qualified name of the host.
    pub(crate) nqn: String,
    /// Key by which the host must authenticate. A host without one need not authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<HiddenText>,
    /// Key by which the server authenticates to the host if the host asks.
    /// By default the server does not authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller_key: Option<HiddenText>,
    /// Tenant that the host's I/O is charged to. By default the subsystem's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// A secret text, which no log shows. The state file contains it; only its owner may read that file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct HiddenText(pub(crate) String);

impl std::fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl HostConfig {
    /// Returns a host without keys and without a tenant.
    pub(crate) fn of_name(nqn: String) -> HostConfig {
        HostConfig { nqn, key: None, controller_key: None, tenant: None, nth: Nth::default() }
    }
}

impl SubsystemConfig {
    /// Returns the identifiers of the subsystem's namespaces with the server's numbers.
    pub(crate) fn exports(&self, spaces: &[Space]) -> Result<Vec<(u32, u16)>, String> {
        let Some(listed) = &self.namespaces else {
            return Ok(spaces
                .iter()
                .map(|space| (space.number.0.into(), space.number.0))
                .collect());
        };
        let each = listed.iter().zip(1..).map(|(exported, position)| match exported {
            Exported::Number(number) => Ok((position, *number)),
            Exported::As { nsid, namespace } => Ok((*nsid, *namespace)),
            Exported::Name(name) => {
                let found = spaces.iter().find(|space| space.name == *name);
                let unknown = || format!("there is no namespace {name:?}");
                Ok((position, found.ok_or_else(unknown)?.number.0))
            }
        });
        each.collect()
    }
}

impl Config {
    /// Returns the subsystems with their names, or one subsystem of all namespaces if none is
    /// configured.
    pub(crate) fn named_subsystems(&self) -> Vec<SubsystemConfig> {
        self.subsystems_named(crate::fabric::own_name)
    }

    /// Returns `true` if the first subsystem gets its name from the server.
    pub(crate) fn leaves_name(&self) -> bool {
        self.subsystem.first().is_none_or(|first| first.nqn.is_none())
    }

    /// Returns the subsystems with their names, or one subsystem of all namespaces if none is
    /// configured. `own` makes the name of the first if it has none.
    pub(crate) fn subsystems_named(&self, own: impl FnOnce() -> String) -> Vec<SubsystemConfig> {
        let mut all = match self.subsystem.is_empty() && !self.is_settled {
            true => vec![SubsystemConfig::default()],
            false => self.subsystem.clone(),
        };
        if let Some(first) = all.first_mut() {
            first.nqn.get_or_insert_with(own);
        }
        all
    }
}
