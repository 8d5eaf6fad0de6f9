//! `[[listen]]`: the addresses at which clients connect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mistake, TablePosition};

/// A listener: an address at which clients connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddListener")]
pub struct Listener {
    /// URL of the listener: protocol, address and options (docs/reference/configuration.md).
    pub url: String,
    /// Number of the listener, by which operators and `ana` refer to it.
    /// By default its position among the listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

impl Listener {
    /// The largest number of a listener.
    pub const NUMBER_MAX: u16 = 4096;

    /// Returns the listener at a URL of a command line, without a number.
    pub fn from_argument(url: &str) -> Listener {
        Listener { url: url.to_owned(), number: None, nth: TablePosition::default() }
    }

    /// Checks the listener's number.
    ///
    /// # Errors
    /// Fails if the number is out of its range.
    pub fn validate(&self) -> Result<(), Mistake> {
        let most = Listener::NUMBER_MAX;
        match self.number {
            Some(number) if !(1..=most).contains(&number) => {
                Err(("number", format!("number {number}; expected a number from 1 to {most}")))
            }
            _ => Ok(()),
        }
    }
}
