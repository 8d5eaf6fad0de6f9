//! The specification of a server: what an operator asks it to be, as one struct for each noun.
//!
//! A [`Tenant`], [`Device`], [`Namespace`], [`Subsystem`], [`Host`], [`Listener`], [`AccessRule`]
//! and [`Limits`] are written as the entries of a configuration file and of the state file, and
//! everything that derives from a specification takes these structs. [`diff`] compares two lists of
//! such objects, and [`over`] makes the difference; a start, a reload, a live change and a hand-over
//! all use both.
//!
//! This crate deliberately leaves out files, sockets and the state of a running server: it is
//! arithmetic on values.
#![forbid(unsafe_code)]

mod access;
mod device;
mod diff;
mod host;
mod limits;
mod listener;
mod namespace;
mod place;
mod subsystem;
mod tenant;

pub use access::{AccessRule, Clients};
pub use device::{Automatic, Device, Switches};
pub use diff::{Changed, diff, over};
pub use host::{Host, Secret};
pub use limits::Limits;
pub use listener::Listener;
pub use namespace::Namespace;
pub use place::{Mistake, Nth, Place};
pub use subsystem::{Ana, AnaState, Exported, Subsystem};
pub use tenant::Tenant;

use contract::BLOCK_BYTES;
use flash::parse_size;

/// The most bytes of a name of a device, a namespace or a tenant.
const NAME_BYTES_MAX: usize = 64;

/// Checks whether a device or a namespace may have this name. A name of digits alone would be taken
/// for a number.
///
/// # Errors
/// Fails with the name, and with what was expected.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.bytes().all(|byte| byte.is_ascii_digit());
    if good {
        return Ok(());
    }
    Err(format!(
        "name {name:?}; expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, not \
         digits alone"
    ))
}

/// Parses a size such as `16MiB`; returns it in blocks.
///
/// # Errors
/// Fails with the text, and with what was expected.
pub fn size_in_blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| format!("{text:?}: {error}"))?;
    Ok(bytes / BLOCK_BYTES as u64)
}
