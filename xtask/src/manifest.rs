//! What `cargo metadata` says: packages, their targets, licences and dependencies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use xtask::shell;

/// The part of `cargo metadata --format-version 1` that the chores read.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    /// Ours and everybody else's.
    pub(crate) packages: Vec<Package>,
    /// The identifiers of ours.
    pub(crate) workspace_members: Vec<String>,
}

/// One package.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) license: Option<String>,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

/// A dependency as the package's manifest declares it.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    #[serde(default)]
    pub(crate) kind: Option<String>,
}

/// Something that cargo builds: a library, a program, a test, an example.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Manifest {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Manifest, String> {
        let mut command = shell::cargo(&["metadata", "--format-version", "1", "--quiet"]);
        let ran = shell::capture(&mut command, Duration::from_secs(300))?;
        // Warnings of cargo come first, the object is one line.
        let object = ran.output.lines().find(|line| line.starts_with('{'));
        match object {
            Some(text) if ran.ok => Manifest::parse(text),
            _ => Err(format!("cargo metadata failed:\n{}", ran.output)),
        }
    }

    /// From the text that cargo prints.
    pub(crate) fn parse(text: &str) -> Result<Manifest, String> {
        serde_json::from_str(text).map_err(|error| format!("cargo metadata: {error}"))
    }

    /// Our packages by name.
    pub(crate) fn ours(&self) -> BTreeMap<&str, &Package> {
        let ours = self.packages.iter().filter(|p| self.workspace_members.contains(&p.id));
        ours.map(|package| (package.name.as_str(), package)).collect()
    }

    /// The targets of our packages of this kind (`bin`, `test`, `example`), with their packages.
    pub(crate) fn targets(&self, kind: &str) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        for (name, package) in self.ours() {
            for target in &package.targets {
                if target.kind.iter().any(|k| k == kind) {
                    found.push((name, target.name.as_str()));
                }
            }
        }
        found
    }
}
