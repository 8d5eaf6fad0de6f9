//! The texts of names and sizes, as people write them.

use contract::BLOCK_BYTES;
use flash::{SizeError, parse_size};

/// The maximum length of the name of a device, a namespace or a tenant, in bytes.
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

/// Parses a size such as `16MiB`, and returns it in blocks of 512 bytes.
///
/// # Errors
/// Fails with the text, and with what was expected.
pub fn size_in_blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| format!("{text:?}: {error}"))?;
    Ok(bytes / BLOCK_BYTES as u64)
}

/// Parses an offset such as `16MiB` or `0`, and returns it in blocks of 512 bytes.
///
/// # Errors
/// Fails with the text, and with what was expected.
pub(crate) fn offset_in_blocks(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Err(SizeError::Zero) => Ok(0),
        _ => size_in_blocks(text),
    }
}

/// The beginning of the names that contain the UUID of a host or a subsystem.
const NQN_OF_UUID: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Checks a qualified name that a person has written. A wrong name locks the host out, so obvious
/// slips are refused: an invalid UUID, blanks, and the dots of an example.
///
/// # Errors
/// Fails with the name, and with what was expected.
pub fn check_nqn(nqn: &str) -> Result<(), String> {
    let expected = match nqn.strip_prefix(NQN_OF_UUID) {
        Some(uuid) if !is_uuid(uuid) => {
            "a UUID behind `uuid:`, like 01234567-89ab-cdef-0123-456789abcdef; on the host, `cat \
             /etc/nvme/hostnqn` prints its name"
        }
        _ if nqn.contains(char::is_whitespace) => "a name without blanks",
        _ if nqn.contains('…') || nqn.contains("...") => "the whole name, not that of an example",
        _ => return Ok(()),
    };
    Err(format!("NQN {nqn:?}; expected {expected}"))
}

/// Returns `true` if the text is a UUID: hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn is_uuid(text: &str) -> bool {
    let mut groups = text.split('-');
    let is_group = |group: &str, digits| {
        group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    [8, 4, 4, 4, 12].into_iter().all(|digits| groups.next().is_some_and(|g| is_group(g, digits)))
        && groups.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_may_be_zero_with_and_without_a_unit() {
        for zero in ["0", "0B", "0MiB", "00"] {
            assert_eq!(offset_in_blocks(zero), Ok(0), "{zero}");
            assert!(size_in_blocks(zero).is_err(), "{zero}");
        }
        assert_eq!(offset_in_blocks("1MiB"), Ok(2048));
        assert!(offset_in_blocks("513").is_err() && offset_in_blocks("").is_err());
    }

    #[test]
    fn a_slip_in_a_qualified_name_is_found() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let good = [&format!("{NQN_OF_UUID}{uuid}"), "nqn.x", "nqn.2026-11.org.example:fast"];
        for nqn in good {
            assert_eq!(check_nqn(nqn), Ok(()));
        }
        let slips =
            ["…", "1b4e28ba", "", &uuid[1..], &format!("{uuid}-0"), &uuid.replace('a', "g")];
        for slip in slips {
            let said = check_nqn(&format!("{NQN_OF_UUID}{slip}")).unwrap_err();
            assert!(said.contains("a UUID behind"), "{said}");
        }
        assert!(check_nqn("nqn.2026-11.org.example:fast ").unwrap_err().contains("blanks"));
        assert!(check_nqn("nqn.2026-11.org.example:...").unwrap_err().contains("whole name"));
    }
}
