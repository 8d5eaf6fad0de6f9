//! `[[subsystem]]`: the NVMe subsystems, with the server's own name where the file leaves it out.

use spec::Subsystem;

use super::{Config, Space};

/// Returns the identifiers of a subsystem's namespaces with the server's numbers.
///
/// # Errors
/// Fails if there is no namespace of a name.
pub(crate) fn exports(subsystem: &Subsystem, spaces: &[Space]) -> Result<Vec<(u32, u16)>, String> {
    let named = spaces.iter().map(|space| (space.number.0, space.name.as_str()));
    subsystem.exports(&named.collect::<Vec<_>>())
}

impl Config {
    /// Returns the subsystems with their names, or one subsystem of all namespaces if none is
    /// configured.
    pub(crate) fn named_subsystems(&self) -> Vec<Subsystem> {
        self.subsystems_named(crate::fabric::own_name)
    }

    /// Returns `true` if the first subsystem gets its name from the server.
    pub(crate) fn leaves_name(&self) -> bool {
        self.subsystem.first().is_none_or(|first| first.nqn.is_none())
    }

    /// Returns the subsystems with their names, or one subsystem of all namespaces if none is
    /// configured. `own` makes the name of the first if it has none.
    pub(crate) fn subsystems_named(&self, own: impl FnOnce() -> String) -> Vec<Subsystem> {
        let mut all = match self.subsystem.is_empty() && !self.is_settled {
            true => vec![Subsystem::default()],
            false => self.subsystem.clone(),
        };
        if let Some(first) = all.first_mut() {
            first.nqn.get_or_insert_with(own);
        }
        all
    }
}
