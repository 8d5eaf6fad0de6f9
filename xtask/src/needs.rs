//! Programs that steps need beyond Rust, and the Debian packages they come from.

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::shell;

/// A program of another project that a step needs.
#[derive(Clone, Copy)]
pub struct Need {
    /// The name by which the program is found on the path.
    pub program: &'static str,
    /// The Debian package that contains the program.
    pub package: &'static str,
}

/// Installs the packages of the programs that are missing, which only root can do. The error is the
/// reason to skip the step that needs them. Steps that run at the same time install one after the
/// other, since apt-get refuses a second one.
pub fn provide(needs: &[Need]) -> Result<(), String> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().expect("nobody panics with it");
    let missing: Vec<Need> =
        needs.iter().copied().filter(|need| !shell::has_program(need.program)).collect();
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(obstacle) = obstacle(shell::is_root(), shell::has_program("apt-get")) {
        let names: Vec<&str> = missing.iter().map(|need| need.program).collect();
        let (names, packages) = (names.join(", "), packages.join(", "));
        return Err(format!("{names} missing (Debian: {packages}), {obstacle}"));
    }
    println!("installing Debian packages: {}", packages.join(" "));
    install(&packages).or_else(|_| {
        apt(&["update", "-q"])?;
        install(&packages)
    })
}

fn obstacle(is_root: bool, has_apt: bool) -> Option<&'static str> {
    match (is_root, has_apt) {
        (_, false) => Some("and there is no apt-get"),
        (false, true) => Some("and only root may install them"),
        (true, true) => None,
    }
}

fn install(packages: &[&str]) -> Result<(), String> {
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let ran = shell::capture(&mut command, Duration::from_secs(600))?;
    let last = ran.output.lines().last().unwrap_or("no output");
    if ran.ok { Ok(()) } else { Err(format!("apt-get {}: {last}", arguments[0])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_named() {
        assert_eq!(obstacle(true, true), None);
        assert!(obstacle(false, true).unwrap().contains("root"));
        assert!(obstacle(true, false).unwrap().contains("apt-get"));
    }

    #[test]
    fn what_is_there_is_not_installed() {
        assert_eq!(provide(&[Need { program: "sh", package: "no-such-package" }]), Ok(()));
    }
}
