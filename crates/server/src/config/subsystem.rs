//! `[[subsystem]]`: the NVMe subsystems, with the server's own name where the file leaves it out.

use spec::Subsystem;

use super::Config;

impl Config {
    /// Returns the subsystems with their names, or one subsystem of all namespaces if none is
    /// configured.
    pub(crate) fn named_subsystems(&self) -> Vec<Subsystem> {
        self.subsystems_named(crate::machine::own_name)
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
