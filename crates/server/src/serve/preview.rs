//! The configuration that a server would have: its file with the live changes since.

use std::path::{Path, PathBuf};

use super::state_file;
use crate::config::Config;
use crate::live::{Changes, Setup};

/// The configuration that a server would have.
#[derive(Debug)]
pub struct Preview {
    /// The configuration of the file.
    pub base: Config,
    /// The configuration with the live changes.
    pub config: Config,
    /// The live changes.
    pub changes: Changes,
    /// The path of the state file; `None` if the server has none.
    pub state: Option<PathBuf>,
}

impl Preview {
    /// Reads a configuration file and its live changes, from the state file at the path `state`
    /// (`none` for no changes) or, by default, from the place that the configuration names.
    ///
    /// # Errors
    /// A file cannot be read, or is wrong.
    pub fn read(file: &Path, state: Option<&str>) -> Result<Preview, String> {
        let base = Config::read(file)?;
        let state = state_file::path_of_others(state, file, &base)?;
        let (_, changes) = state_file::open(state.as_deref(), false)?;
        let config = changes.made_to(&base);
        Ok(Preview { base, config, changes, state })
    }

    /// Returns the server's set-up, as `nearflash state` exports it.
    pub(crate) fn setup(&self) -> Setup {
        Setup::of(&self.config)
    }

    /// Describes the path of the state file and whether it exists.
    pub fn state_text(&self) -> String {
        match &self.state {
            None => "none".to_owned(),
            Some(path) if path.exists() => path.display().to_string(),
            Some(path) => format!("{}, where nothing is kept yet", path.display()),
        }
    }
}
