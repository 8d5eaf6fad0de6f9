//! The output of `cargo metadata`: packages, their targets, licences and dependencies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use xtask::shell;

/// The members of the output of `cargo metadata --format-version 1` that the chores read.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    /// The workspace's packages and all packages that they depend on, directly or not.
    pub(crate) packages: Vec<Package>,
    /// The identifiers of the workspace's packages.
    pub(crate) workspace_members: Vec<String>,
}

/// A package of the workspace or of a registry.
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
    /// The kind of the dependency: `None` for a normal one, else `dev` or `build`.
    #[serde(default)]
    pub(crate) kind: Option<String>,
}

/// A target that cargo builds: a library, a program, a test, an example.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Manifest {
    /// Runs `cargo metadata` and parses its output.
    pub(crate) fn load() -> Result<Manifest, String> {
        let mut command = shell::cargo(&["metadata", "--format-version", "1", "--quiet"]);
        let ran = shell::capture(&mut command, Duration::from_secs(300))?;
        // Cargo prints warnings first; the object is one line.
        let object = ran.output.lines().find(|line| line.starts_with('{'));
        match object {
            Some(text) if ran.ok => Manifest::parse(text),
            _ => Err(format!("cargo metadata failed:\n{}", ran.output)),
        }
    }

    /// Parses the JSON object that `cargo metadata` prints.
    pub(crate) fn parse(text: &str) -> Result<Manifest, String> {
        serde_json::from_str(text).map_err(|error| format!("cargo metadata: {error}"))
    }

    /// Returns the workspace's packages, by name.
    pub(crate) fn ours(&self) -> BTreeMap<&str, &Package> {
        let ours = self.packages.iter().filter(|p| self.workspace_members.contains(&p.id));
        ours.map(|package| (package.name.as_str(), package)).collect()
    }

    /// Returns the workspace's targets of the kind `kind` (`bin`, `test`, `example`), as pairs of
    /// the package's name and the target's.
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
