//! The texts of names and sizes, as people write them.

use contract::BLOCK_BYTES;
use flash::parse_size;

/// The most bytes of a name of a device, a namespace or a tenant.
pub(crate) const NAME_BYTES_MAX: usize = 64;

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
