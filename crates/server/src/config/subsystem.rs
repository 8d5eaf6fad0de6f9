//! `[[subsystem]]` and `[[host]]`: what hosts find over NVMe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::nvme::AnaState;

use super::{Config, Nth, Space};

/// A subsystem of NVMe: namespaces under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubsystemConfig {
    /// Its qualified name; one with the machine's name unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nqn: Option<String>,
    /// Its namespaces, which are numbered from 1 in their order unless they say so; all under the
    /// server's numbers unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces: Option<Vec<Exported>>,
    /// The qualified names of hosts that may connect; all unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<String>>,
    /// The tenant that its I/O is charged to; whomever the connection belongs to unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Whether hosts without a key are refused.
    #[serde(default)]
    pub(crate) authenticate: bool,
    /// How groups of its namespaces are reached through listeners; optimized unless told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ana: Vec<AnaConfig>,
    /// Which it is in the file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Exported {
    /// By the server's number.
    Number(u16),
    /// By its name.
    Name(String),
    /// By the server's number, under one of the subsystem's own.
    As {
        /// The subsystem's number of it.
        nsid: u32,
        /// The server's.
        namespace: u16,
    },
}

/// How a group of namespaces is reached through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnaConfig {
    /// The listener, counted from 1 in the order of configuration.
    pub(crate) listener: u16,
    /// The group; 1 unless told, to which all namespaces belong.
    #[serde(default = "one")]
    pub(crate) group: u32,
    /// The state.
    pub(crate) state: AnaWord,
}

fn one() -> u32 {
    1
}

/// The states of asymmetric namespace access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnaWord {
    /// The best way.
    Optimized,
    /// A way that hosts take when there is no better one.
    NonOptimized,
    /// No way, for now.
    Inaccessible,
    /// No way, for good.
    PersistentLoss,
    /// No way while something changes.
    Change,
}

impl AnaWord {
    /// In the protocol's words.
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

/// An NVMe host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostConfig {
    /// Its qualified name.
    pub(crate) nqn: String,
    /// Its key: with one, it has to prove that it has it; without one it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<HiddenText>,
    /// The key by which we prove to it who we are, when it asks; without one we do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller_key: Option<HiddenText>,
    /// The tenant that its I/O is charged to; the subsystem's unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Which it is in the file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// A text that no log shows. The state file has it, which nobody else may read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct HiddenText(pub(crate) String);

impl std::fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl HostConfig {
    /// A host of which nothing is known but its name.
    pub(crate) fn of_name(nqn: String) -> HostConfig {
        HostConfig { nqn, key: None, controller_key: None, tenant: None, nth: Nth::default() }
    }
}

impl SubsystemConfig {
    /// The identifiers of its namespaces with the server's numbers.
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
    /// The subsystems with their names; one of everything unless told.
    pub(crate) fn named_subsystems(&self) -> Vec<SubsystemConfig> {
        self.subsystems_named(crate::fabric::own_name)
    }

    /// Whether the name of the first subsystem is left to the server.
    pub(crate) fn leaves_name(&self) -> bool {
        self.subsystem.first().is_none_or(|first| first.nqn.is_none())
    }

    /// The same with this name for the first, if it has none.
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
