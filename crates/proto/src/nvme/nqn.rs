//! The names and identifiers of hosts and subsystems.

use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use super::refusal::Refusal;
use wire::nvme::{DISCOVERY_NQN, NQN_BYTES};

/// The longest qualified name in bytes (Base 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// The prefix of the name that stands for a host which connects without a name.
const ANONYMOUS: &str = "anonymous:";

/// An NVMe qualified name (Base 4.5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

impl Nqn {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// Returns [`Refusal::Name`] if the text does not begin with `nqn.`, has control characters, or
    /// is too long.
    pub fn new(text: &str) -> Result<Nqn, Refusal> {
        let good = text.starts_with("nqn.")
            && text.len() > "nqn.".len()
            && text.len() <= NQN_BYTES_MAX
            && !text.chars().any(char::is_control);
        if good { Ok(Nqn(text.into())) } else { Err(Refusal::Name(text.into())) }
    }

    /// Returns the name of a host that gives none, and this identifier. No list of hosts has it, so
    /// only subsystems that admit every host admit this one.
    pub fn anonymous(id: HostId) -> Nqn {
        Nqn(format!("{ANONYMOUS}{id:?}").into())
    }

    /// Checks and wraps the name of a host, which may be [`anonymous`](Nqn::anonymous).
    ///
    /// # Errors
    /// Fails like [`new`](Nqn::new).
    pub fn of_host(text: &str) -> Result<Nqn, Refusal> {
        let id = text.strip_prefix(ANONYMOUS);
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if id.is_some_and(is_id) { Ok(Nqn(text.into())) } else { Nqn::new(text) }
    }

    /// Returns the name in a zero-terminated field, if it is valid.
    pub fn from_field(field: &[u8; NQN_BYTES]) -> Option<Nqn> {
        let end = field.iter().position(|byte| *byte == 0)?;
        Nqn::new(core::str::from_utf8(&field[..end]).ok()?).ok()
    }

    /// Returns the name as a zero-terminated field.
    pub fn to_field(&self) -> [u8; NQN_BYTES] {
        let mut field = [0; NQN_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// Returns the name of every discovery subsystem.
    pub fn discovery() -> Nqn {
        Nqn(DISCOVERY_NQN.into())
    }

    /// Returns `true` if this is the name of every discovery subsystem.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A host's 128-bit identifier, which the host uses on all of its connections (Base 5.27.1.25).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
