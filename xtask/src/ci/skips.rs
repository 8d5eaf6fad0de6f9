//! The list of tests and steps that a run may skip on some machine without failing.

use serde::Deserialize;

use xtask::shell;

/// The path of the list, from the root of the repository.
const FILE: &str = "xtask/skips.toml";

/// The skips that do not fail a run, as their file lists them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Skips {
    allowed: Vec<AllowedSkip>,
}

/// An entry of the list: a skip, and why it is allowed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedSkip {
    /// A part of the line that names the step and the reason of the skip.
    skip: String,
    /// The reason that the skip is allowed: the tool or feature that the machine lacks.
    because: String,
}

impl Skips {
    /// Reads the list from its file.
    pub(super) fn load() -> Result<Skips, String> {
        let text = std::fs::read_to_string(shell::root().join(FILE));
        Skips::parse(&text.map_err(|error| format!("{FILE}: {error}"))?)
    }

    pub(super) fn parse(text: &str) -> Result<Skips, String> {
        let skips: Skips = toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?;
        let is_empty = |text: &str| text.trim().is_empty();
        match skips.allowed.iter().find(|one| is_empty(&one.skip) || is_empty(&one.because)) {
            Some(one) => Err(format!("{FILE}: {:?} says too little", one.skip)),
            None => Ok(skips),
        }
    }

    /// Returns `true` if the list allows the skip that `line` names.
    pub(super) fn allow(&self, line: &str) -> bool {
        self.allowed.iter().any(|one| line.contains(&one.skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_understood_and_allows_no_more_than_it_says() {
        let skips = Skips::load().unwrap();
        assert!(!skips.allow("tests: there was no time"));
        let nothing = "[[allowed]]\nskip = \"\"\nbecause = \"x\"\n";
        assert!(Skips::parse(nothing).is_err(), "an empty text would allow everything");
    }
}
