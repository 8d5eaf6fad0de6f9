//! Changes of an open listener: whether it accepts connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inventory::{ListenerState, ListenerStatus};
use super::problem::{Code, Problem};

/// A change of a listener; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetListener")]
pub struct ListenerPatch {
    /// `open`: the listener accepts connections. `draining` or `drained`: it refuses connections,
    /// and its connections end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ListenerState>,
    /// Deadline of a drain in milliseconds, at which connections with requests in flight end in any
    /// case; ten seconds by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Number of the listener, which cannot change: any other number is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// URL of the listener with its access rules, which cannot change: any other URL is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl ListenerPatch {
    /// Checks the members that cannot change while a listener is open.
    ///
    /// # Errors
    /// Fails if one of these members would change.
    pub(super) fn check_fixed(&self, listener: &ListenerStatus) -> Result<(), Problem> {
        let what = match self {
            ListenerPatch { number: Some(number), .. } if *number != listener.number => "number",
            ListenerPatch { url: Some(url), .. } if *url != listener.url => {
                "address, namespace, tenant or mode"
            }
            _ => return Ok(()),
        };
        let ListenerStatus { number, url, .. } = listener;
        let message = format!(
            "another {what} for listener {number} ({url}) takes another listener: add it \
             (`nearflash listener add`) and remove this one (`nearflash listener rm {number}`); \
             connections that came by it stay"
        );
        Err(Problem::new(Code::Fixed, message))
    }
}
