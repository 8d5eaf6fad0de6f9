//! `nearflash doctor`: examines this machine as a flash server, and recommends changes.
//!
//! The advice is that of Klimovic et al., "Flash Storage Disaggregation" (EuroSys 2016, section
//! 3.3), and of the measurements in docs/results. Settings are read, never guessed. `--apply`
//! writes settings that a restart of the machine undoes and that harm no other program.

mod advice;
mod disks;
mod finding;
mod interrupts;
mod listeners;
mod machine;
mod measure;
mod network;
mod nodes;
mod power;
mod processors;
mod servers;
mod service;

use std::path::Path;
use std::process::ExitCode;

use finding::{Finding, Fix, Grade};
use machine::Machine;
use server::config::{Config, exposure::exposed};
use server::interface::Interface;
use server::serve::state_file::SERVICE_CONFIG;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make the safe changes, which last until the machine restarts (as root)
    #[arg(long)]
    apply: bool,
    /// Skip the measurements
    #[arg(long)]
    no_measure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let machine = Machine::this();
    let mut findings = vec![interface()];
    findings.extend(advice::all(&machine));
    findings.extend(configuration(Path::new(SERVICE_CONFIG)));
    if !args.no_measure {
        findings.extend(measure::all()?);
    }
    let applied = if args.apply { apply(&machine, &mut findings) } else { Vec::new() };
    for line in applied.iter().map(|applied| applied.as_ref().unwrap_or_else(|failed| failed)) {
        // What programs read is the JSON alone.
        if args.json { errln!("{line}") } else { outln!("{line}") }
    }
    if !applied.is_empty() && !args.json {
        outln!();
    }
    if args.json {
        let text = serde_json::to_string_pretty(&findings).map_err(|e| e.to_string())?;
        outln!("{text}");
    } else {
        print(&findings);
    }
    let bad = findings.iter().any(|finding| finding.grade == Grade::Problem);
    let bad = bad || applied.iter().any(Result::is_err);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks whether others can read the configuration of the system's server in `file`, which may
/// hold secrets. Returns `None` if there is no such file, or this user may not read it.
fn configuration(file: &Path) -> Option<Finding> {
    let config = Config::read(file).ok()?;
    let good = Finding::good("configuration", format!("{} keeps its secrets", file.display()));
    Some(match exposed(&config, file) {
        None => good,
        Some(exposed) => Finding { found: exposed, ..good }.graded(
            Grade::Problem,
            "tokens and keys let in whoever has them; `nearflash config check FILE` says the same of \
             other files",
        ),
    })
}

/// Checks by a trial that io_uring can be used.
fn interface() -> Finding {
    let good = Finding::good("io_uring, for this user", "all that nearflash uses is there");
    match Interface::IoUring.choose() {
        Ok(_) => good,
        Err(error) => Finding { found: error, ..good }.graded(
            Grade::Problem,
            "nearflash serves over epoll instead, at more processor time a request",
        ),
    }
}

/// Writes the settings that are safe to write, and goes on after failures. A finding whose setting
/// was written becomes good. Returns a line for each success and failure.
fn apply(machine: &Machine, findings: &mut [Finding]) -> Vec<Result<String, String>> {
    let mut lines = Vec::new();
    for finding in findings.iter_mut() {
        let Some(Fix { file, value }) = finding.fix.clone() else { continue };
        match machine.write(&file, &value) {
            Ok(()) => {
                let found = format!("{}, now {value} until the machine restarts", finding.found);
                *finding = Finding::good(finding.subject.clone(), found);
                lines.push(Ok(format!("wrote {value} to /{file}")));
            }
            Err(error) => {
                let error = format!("cannot write {value} to /{file}: {error}");
                lines.push(Err(format!("{error} (--apply needs root, and a kernel that lets it)")));
            }
        }
    }
    lines
}

fn print(findings: &[Finding]) {
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    for finding in findings {
        let mark = match finding.grade {
            Grade::Good => "good   ",
            Grade::Advice => "advice ",
            Grade::Problem => "PROBLEM",
        };
        outln!("{mark}  {:width$}  {}", finding.subject, finding.found);
        let indent = " ".repeat(11 + width);
        for line in wrapped(&finding.advice, 88_usize.saturating_sub(width)) {
            outln!("{indent}{line}");
        }
        if let Some(Fix { file, value }) = &finding.fix {
            outln!("{indent}echo {value} > /{file}");
        }
    }
    let fixes = findings.iter().filter(|finding| finding.fix.is_some()).count();
    if fixes > 0 {
        let changes = if fixes == 1 { "change" } else { "changes" };
        outln!(
            "\n`nearflash doctor --apply`, as root, makes the {fixes} {changes} shown as `echo`."
        );
    }
}

/// Returns the text as lines of at most `width` characters; only a longer word exceeds that.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), Vec::<String>::new());
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }

    #[test]
    fn a_configuration_that_shows_its_secrets_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nearflash.toml");
        assert_eq!(configuration(&file), None);
        std::fs::write(&file, "[[access]]\ntoken = \"t\"\nrights = \"read\"\n").unwrap();
        for (mode, grade) in [(0o644, Grade::Problem), (0o640, Grade::Good)] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(configuration(&file).unwrap().grade, grade);
        }
    }

    #[test]
    fn what_is_applied_is_written_and_good() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("setting"), "1\n").unwrap();
        let machine = Machine::at(folder.path());
        let bad = Finding::good("it", "1").graded(Grade::Advice, "should be 2");
        let mut findings = [bad.with_fix("setting", "2")];
        let lines = apply(&machine, &mut findings);
        assert_eq!(lines, [Ok("wrote 2 to /setting".to_owned())]);
        assert_eq!(machine.read("setting").as_deref(), Some("2"));
        assert_eq!((findings[0].grade, findings[0].fix.as_ref()), (Grade::Good, None));
    }

    #[test]
    fn what_cannot_be_applied_stops_nothing_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("setting"), "1\n").unwrap();
        let machine = Machine::at(folder.path());
        let bad = || Finding::good("it", "1").graded(Grade::Advice, "should be 2");
        let mut findings =
            [bad().with_fix("gone/setting", "2"), bad(), bad().with_fix("setting", "2")];
        let lines = apply(&machine, &mut findings);
        assert!(lines[0].as_ref().unwrap_err().contains("cannot write 2 to /gone/setting"));
        assert_eq!(lines[1], Ok("wrote 2 to /setting".to_owned()));
        assert_eq!(
            findings.each_ref().map(|one| one.grade),
            [Grade::Advice, Grade::Advice, Grade::Good]
        );
        assert!(findings[0].fix.is_some(), "it is still to be done");
    }
}
