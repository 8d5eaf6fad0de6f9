//! `nearflash demo` and `nearflash reproduce` as people run them. Whether promises are kept on real
//! time is not asked here: the figures hold that in virtual time.

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

/// A machine that runs other tests may break the promises that the scheduler keeps on an idle one, but
/// never keeps those that are broken without it.
#[test]
#[ignore = "full: measures a real server in real time"]
fn the_demo_shows_promises_without_the_scheduler_and_with_it() {
    let output = nearflash(&["demo", "--slow", "100", "--seconds", "1"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    let parts: Vec<&str> = said.split("\n\n").filter(|part| part.contains("tenant ")).collect();
    assert_eq!(parts.len(), 3, "{said}");
    let of = |part: &str, word| part.lines().filter(|line| line.ends_with(word)).count();
    assert_eq!(of(parts[0], "   BROKEN"), 2, "{said}");
    let mut kept = 0;
    for part in &parts[1..] {
        assert_eq!(of(part, "   kept") + of(part, "   BROKEN"), 2, "{said}");
        kept += of(part, "   kept");
    }
    assert_eq!(output.status.success(), kept == 4, "the exit code says the same: {said}");
    assert!(said.contains("On, A and B got"), "{said}");
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
