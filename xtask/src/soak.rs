//! `cargo xtask soak NAME`: runs tests that take hours, and writes a page with their results.
//!
//! The tests run on an otherwise idle machine, before a release and after changes to the code under
//! test. Each test runs some commands of this repository; the page states the commands, the machine
//! and the counts.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::lists;
use xtask::{page, shell};

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct SoakOptions {
    /// Run the soak of this name; without a name, print the list
    name: Option<String>,
}

/// A run that takes hours, by its name.
struct Soak {
    name: &'static str,
    /// The subject of the run, for the list and the page.
    about: &'static str,
    /// The commands of the run: additional variables of the environment, and the arguments for
    /// cargo.
    commands: &'static [(&'static [(&'static str, &'static str)], &'static str)],
}

#[rustfmt::skip]
const SOAKS: &[Soak] = &[
    Soak { name: "worlds", about: "Simulated worlds of 100 000 seeds.", commands: &[
        (&[], "run --release --package nearflash-sim --bin nearflash-sim -- --seed 1 --count 100000"),
    ] },
    Soak { name: "packets", about: "Simulated worlds over packets, of 20 000 seeds.", commands: &[
        (&[], "run --release --package nearflash-sim --bin nearflash-sim -- --seed 1 --count 20000 --only packets"),
    ] },
    Soak { name: "fuzz", about: "Each fuzz target for an hour.", commands: &[
        (&[("FUZZ_SECONDS", "3600")], "test --release --package nearflash-proto --test all fuzz_"),
        (&[("FUZZ_SECONDS", "3600")], "test --release --package nearflash-packets --test all fuzz_"),
        (&[("FUZZ_SECONDS", "3600")], "test --release --package nearflash-contigfs --test all fuzz_"),
    ] },
    Soak { name: "kills", about: "A thousand kills amid changes, and the tests of killed servers, at full length.", commands: &[
        (&[("NEARFLASH_KILLS", "1000")], "test --release --package nearflash-cli --test all kills:: -- --test-threads 1 --show-output"),
        (&[], "run --package trials -- interop kill-server"),
        (&[], "run --package trials -- interop ublk- --kills 200"),
        (&[], "run --package trials -- interop ublk- ublk-resize --kernel 7"),
        (&[], "run --package trials -- interop mirror-two-servers vm-disk"),
    ] },
    Soak { name: "ftl-kills", about: "A thousand kills of a server of an `ftl:` device under a load that verifies.", commands: &[
        (&[], "run --package trials -- interop kill-server-ftl --kills 1000"),
    ] },
    Soak { name: "power-cuts", about: "Power cuts of every kind of disk, ten times, each from another seed.", commands: &[
        (&[], "run --package trials -- interop power-cut --seed 1"),
        (&[], "run --package trials -- interop power-cut --seed 2"),
        (&[], "run --package trials -- interop power-cut --seed 3"),
        (&[], "run --package trials -- interop power-cut --seed 4"),
        (&[], "run --package trials -- interop power-cut --seed 5"),
        (&[], "run --package trials -- interop power-cut --seed 6"),
        (&[], "run --package trials -- interop power-cut --seed 7"),
        (&[], "run --package trials -- interop power-cut --seed 8"),
        (&[], "run --package trials -- interop power-cut --seed 9"),
        (&[], "run --package trials -- interop power-cut --seed 10"),
    ] },
    Soak { name: "takeover", about: "A hundred take-overs with each protocol under a load that verifies.", commands: &[
        (&[], "run --package trials -- takeover --rounds 100"),
    ] },
    Soak { name: "siege", about: "Attacks of ten minutes on a server, whose other tenants must not notice.", commands: &[
        (&[], "run --package trials -- siege --seconds 600"),
    ] },
    Soak { name: "operating", about: "What operating costs: the ignored tests of the list `ops`.", commands: &[
        (&[], "run --package trials -- bench ops"),
    ] },
    Soak { name: "tests", about: "The ignored tests of the list `soak`.", commands: &[] },
];

/// Maximum number of lines at the end of a command's output that the page shows.
const LINES: usize = 40;

/// Runs the soak that is named, and writes its page. Without a name, prints the list.
pub(crate) fn run(options: &SoakOptions) -> Result<(), String> {
    let Some(name) = &options.name else {
        for soak in SOAKS {
            println!("{:<12}{}", soak.name, soak.about);
        }
        return Ok(());
    };
    let soak = SOAKS.iter().find(|soak| soak.name == name);
    let soak = soak.ok_or_else(|| {
        let names: Vec<&str> = SOAKS.iter().map(|soak| soak.name).collect();
        format!("there is no soak {name}; there are: {}", names.join(", "))
    })?;
    let mut commands: Vec<(Vec<(&str, &str)>, String)> = Vec::new();
    for (environment, words) in soak.commands {
        commands.push((environment.to_vec(), (*words).to_owned()));
    }
    if soak.name == "tests" {
        let names = lists::names("soak", "")?;
        if names.is_empty() {
            return Err("no test stands in the list `soak`".to_owned());
        }
        let words = "test --release --workspace --tests -- --ignored --test-threads 1";
        commands.push((Vec::new(), format!("{words} {}", names.join(" "))));
    }
    let mut page = head(soak)?;
    let mut failed = 0;
    for (environment, words) in &commands {
        failed += usize::from(!perform(environment, words, &mut page)?);
    }
    let path = shell::root().join("docs/results").join(format!("soak-{}.md", soak.name));
    page::write(&path, &page)?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} failed", commands.len())) }
}

/// Returns the beginning of the page: the soak's name, the commit and the machine.
fn head(soak: &Soak) -> Result<String, String> {
    let said = |program: &str, words: &[&str]| -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(words).current_dir(shell::root());
        let ran = shell::capture(&mut command, Duration::from_secs(60))?;
        Ok(ran.output.trim().to_owned())
    };
    let commit = said("git", &["log", "-1", "--format=%h of %cs"])?;
    let kernel = said("uname", &["-srm"])?;
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!(
        "# Soak: {}\n\n{} Made by `cargo xtask soak {}`.\n\nCommit {commit}; {kernel}, {processors} \
         processors.\n",
        soak.name, soak.about, soak.name
    ))
}

/// Runs cargo with the arguments `words`, prints the end of its output, and adds the same lines to
/// the page. Returns `true` if the command succeeded.
fn perform(environment: &[(&str, &str)], words: &str, page: &mut String) -> Result<bool, String> {
    let shown: String =
        environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    let shown = format!("{shown}cargo {words}");
    println!("{shown}");
    let folder = shell::root().join("target/soak");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let log = folder.join("output");
    let file = File::create(&log).map_err(failed)?;
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = shell::cargo(&words);
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    command.stdout(file.try_clone().map_err(failed)?).stderr(file);
    let started = Instant::now();
    let status = command.status().map_err(failed)?;
    let lines: Vec<String> =
        BufReader::new(File::open(&log).map_err(failed)?).lines().map_while(Result::ok).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    println!("{last}");
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let verdict = if status.success() { "passed" } else { "FAILED" };
    write!(page, "\n`{shown}` {verdict} after {minutes:.0} min:\n\n```text\n{last}\n```\n")
        .map_err(|error| error.to_string())?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once_and_have_something_to_run() {
        let mut names: Vec<&str> = SOAKS.iter().map(|soak| soak.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SOAKS.len());
        let empty = SOAKS.iter().filter(|soak| soak.commands.is_empty());
        assert_eq!(empty.map(|soak| soak.name).collect::<Vec<_>>(), ["tests"]);
    }
}
