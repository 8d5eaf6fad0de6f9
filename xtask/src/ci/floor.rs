//! The floor: the minimum number of tests of each step, which may only rise.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The path of the floor's file, from the root of the repository.
pub(super) const FILE: &str = "xtask/floor.toml";

/// The minimum number of tests of each step, by the step's name.
pub(super) struct Floor(BTreeMap<String, u64>);

impl Floor {
    /// Reads the floor from its file.
    pub(super) fn load() -> Result<Floor, String> {
        let text = std::fs::read_to_string(shell::root().join(FILE));
        Floor::parse(&text.map_err(|error| format!("{FILE}: {error}"))?)
    }

    pub(super) fn parse(text: &str) -> Result<Floor, String> {
        toml::from_str(text).map(Floor).map_err(|error| format!("{FILE}: {error}"))
    }

    /// Returns a message if a step of this many tests is below its floor, or `None` if it is not or
    /// has no floor. A full run looks for the name with ` (full)` first, which steps with more
    /// tests there have.
    pub(super) fn trouble(&self, step: &str, is_full: bool, tests: u64) -> Option<String> {
        let full = self.0.get(&format!("{step} (full)")).filter(|_| is_full);
        let least = *full.or_else(|| self.0.get(step))?;
        if tests < least {
            return Some(format!("{step}: {tests} tests, and {FILE} says at least {least}"));
        }
        if tests > least {
            println!("    {tests} tests: the floor of {least} may rise");
        }
        None
    }

    /// Returns a message for each step whose floor is lower than in the earlier floor `before`.
    fn falls_from(&self, before: &Floor) -> Vec<String> {
        let fallen = before.0.iter().filter_map(|(step, was)| {
            let is = self.0.get(step).copied().unwrap_or(0);
            (is < *was).then(|| format!("{FILE}: {step}: {is}, and it was {was}"))
        });
        fallen.collect()
    }
}

/// Fails if a step's floor is lower than in any commit that changed the file. Without a repository,
/// there is nothing to compare with.
pub(super) fn has_only_risen() -> Result<(), String> {
    let floor = Floor::load()?;
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(words).current_dir(shell::root());
        shell::capture(&mut command, Duration::from_secs(60))
    };
    let log = git(&["log", "--format=%H", "--", FILE]);
    let Some(log) = log.ok().filter(|log| log.ok) else { return Ok(()) };
    for commit in log.output.lines() {
        let shown = git(&["show", &format!("{commit}:{FILE}")])?;
        if !shown.ok {
            continue;
        }
        let fallen = floor.falls_from(&Floor::parse(&shown.output)?);
        if !fallen.is_empty() {
            return Err(format!("{}\nat {commit}", fallen.join("\n")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_tests_are_trouble() {
        let floor = Floor::parse("tests = 10\n\"interop (full)\" = 40\ninterop = 8\n").unwrap();
        assert_eq!(floor.trouble("tests", true, 10), None);
        assert!(floor.trouble("tests", false, 9).unwrap().contains("at least 10"));
        assert!(floor.trouble("interop", true, 39).is_some());
        assert!(floor.trouble("interop", false, 8).is_none());
        assert_eq!(floor.trouble("another", false, 0), None);
    }

    #[test]
    fn a_floor_that_falls_is_named() {
        let before = Floor::parse("a = 1\nb = 2\nc = 3\n").unwrap();
        let after = Floor::parse("a = 1\nb = 1\n").unwrap();
        let fallen = after.falls_from(&before);
        assert_eq!(fallen.len(), 2);
        assert!(fallen[0].contains("b: 1, and it was 2"), "{fallen:?}");
    }
}
