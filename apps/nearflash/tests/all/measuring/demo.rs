//! Tests of `nearflash demo` and `nearflash reproduce` as commands. Other tests check in virtual
//! time that promises are kept.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn nearflash(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(words).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

/// Checks the demo's output. Act 1 gives equal results on every machine. A machine that runs other
/// tests may break promises of act 2, but never keeps those that are broken without the scheduler.
#[test]
#[ignore = "full: measures a real server in real time"]
fn the_demo_shows_promises_without_the_scheduler_and_with_it() {
    let output = nearflash(&["demo", "--seconds", "1"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    let parts: Vec<&str> = said.split("\n\n").filter(|part| part.contains("   tokens/s")).collect();
    assert_eq!(parts.len(), 6, "{said}");
    let of = |part: &str, word| part.lines().filter(|line| line.ends_with(word)).count();
    let kept: Vec<usize> = parts.iter().map(|part| of(part, "   kept")).collect();
    assert_eq!(kept[..4], [0, 2, 2, 0], "{said}");
    for part in &parts {
        let words = ["   kept", "   BROKEN", "   not judged"];
        assert_eq!(words.map(|word| of(part, word)).iter().sum::<usize>(), 2, "{said}");
    }
    let code = match said.lines().find_map(|line| line.strip_prefix("Live, ")) {
        Some(line) if line.starts_with("A and B got") => 0,
        Some(line) if line.ends_with("BROKEN.") => 1,
        Some(line) if line.contains("paused too often") => 2,
        _ => panic!("no judgement: {said}"),
    };
    assert_eq!(output.status.code(), Some(code), "the exit code says the same: {said}");
    assert!(!said.contains('\x1b'), "plain lines where there is no terminal");
}

#[test]
fn a_figure_is_printed_and_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let words = ["reproduce", "fig1", "--virtual-only", "--quick", "--seed", "3", "-o", &path];
    let output = nearflash(&words);
    let said = text(&output.stdout);
    assert!(said.contains("fig1: ") && said.contains("the paper"), "{said}");
    let read = |name: &str| std::fs::read_to_string(Path::new(&path).join(name)).expect(name);
    assert!(read("fig1.csv").starts_with("reads,"));
    assert!(read("fig1-points.csv").contains("paper: 90 % reads,"));
    assert!(read("fig1.svg").contains("hollow: the paper"));
    let report = read("report.html");
    assert!(report.contains("<svg") && report.contains("id=\"fig1\""));
    assert!(!report.contains("<script") && !report.contains("src="), "it needs nothing else");
}

#[test]
fn an_unknown_figure_is_answered_with_those_there_are() {
    let output = nearflash(&["reproduce", "fig2", "-o", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("fig6c"));
}
