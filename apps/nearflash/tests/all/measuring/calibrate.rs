//! Tests of `nearflash calibrate`: the files that it writes, the arguments that it refuses, and the
//! files that it leaves behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{PATIENCE, wait_until};
use qos::Load;
use qos::model_file::ModelFile;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command(words: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.arg("calibrate").args(words.split_whitespace()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &str, folder: &Path) -> Output {
    command(words, folder).output().expect("the program starts")
}

fn complaint(words: &str, code: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(words, folder.path());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words}: {text}");
    assert_eq!(names(folder.path()), Vec::<String>::new(), "{words}: nothing is left behind");
    text
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

/// Options for a short calibration of one latency and three mixes, which takes a second or two.
const FAST: &str = "--quick --latency 500us";

#[test]
fn a_simulated_device_gets_a_model_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&format!("sim:a -o a.toml --name drive {FAST}"), folder.path());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(folder.path()), ["a.svg", "a.toml"]);
    assert!(told.contains("4 KiB write") && told.contains("wrote a.toml and a.svg"), "{told}");

    let file =
        ModelFile::parse(&fs::read_to_string(folder.path().join("a.toml")).unwrap()).unwrap();
    assert_eq!(file.device, "drive");
    assert!(file.measured.contains("on sim:a, in virtual time, seed 0"), "{}", file.measured);
    let model = file.model().unwrap();
    let tokens = model.rate(500, Load::Mixed).unwrap() / 100;
    assert!((378_000..462_000).contains(&tokens), "{tokens} tokens/s, the paper has 420 000");
    assert!((900..1_100).contains(&file.write), "a write costs {} units", file.write);
    assert!((45..=55).contains(&file.read_only_read), "{}", file.read_only_read);

    let plot = fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert_eq!(plot.matches("<svg").count(), 3, "two figures in a frame");
    assert!(plot.contains("90 % reads") && plot.trim_end().ends_with("</svg>"));
}

/// Runs the commands of the first example in docs/how-to/calibrate-a-drive.md. The server only
/// checks whether it would start.
#[test]
fn the_walk_through_works() {
    let folder = tempfile::tempdir().unwrap();
    let document =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/calibrate-a-drive.md");
    let text = fs::read_to_string(document).unwrap();
    let example = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(example.lines().count(), 2);
    for line in example.lines() {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("nearflash"));
        let is_server = line.contains(" serve ");
        let output = Command::new(env!("CARGO_BIN_EXE_nearflash"))
            .args(words)
            .args(is_server.then_some("--check"))
            .current_dir(folder.path())
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(names(folder.path()), ["a.svg", "a.toml"]);
}

#[test]
fn programs_get_json_and_the_same_seed_gives_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!("sim:b -o b.toml --json {FAST}");
    let output = run(&words, folder.path());
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let model = &json["model"];
    assert!(model["write_cost"].as_f64().unwrap() > 15.0, "{model}");
    assert_eq!(model["p95"][0]["latency_us"], 500);
    assert!(model["p95"][0]["mixed"].as_u64().unwrap() > 200_000, "{model}");
    assert_eq!(json["curves"].as_array().unwrap().len(), 4);
    let points = json["curves"][0]["points"].as_array().unwrap();
    assert!(points.len() > 5 && points[0]["p95_us"].as_f64().unwrap() > 50.0);

    let first = fs::read_to_string(folder.path().join("b.toml")).unwrap();
    assert!(run(&words, folder.path()).status.success());
    assert_eq!(fs::read_to_string(folder.path().join("b.toml")).unwrap(), first);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    for (words, code, reason) in [
        ("sim:z -o a.toml", 2, "unknown model `z`"),
        ("disk -o a.toml", 2, "does not say its kind"),
        ("sim:a", 2, "--output"),
        ("sim:a -o a.svg", 2, "name the model otherwise"),
        ("sim:a -o nowhere/a.toml", 1, "cannot write nowhere/a.toml"),
        ("sim:a -o /usr", 1, "cannot write /usr: is a directory"),
        ("sim:a?size=1MiB -o a.toml", 2, "has 1 MiB, and calibration needs"),
        ("mem:1MiB -o a.toml", 2, "at least 16 MiB"),
        ("file:missing -o a.toml", 1, "missing"),
        ("sim:a -o a.toml --latency 5s", 2, "10us to 1s"),
        ("sim:a -o a.toml --reads 100", 2, "0..=99"),
        ("mem:64MiB -o a.toml --precondition", 2, "--allow-writes"),
    ] {
        let said = complaint(words, code);
        assert!(said.contains(reason), "{words}: {said}");
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    // One mix says nothing about the cost of a write.
    let text = complaint("sim:a -o a.toml --quick --latency 500us --reads 90", 1);
    assert!(text.contains("too little to fit") && text.contains("no device model was written"));
}

#[test]
fn a_device_that_is_never_fast_enough_is_told_so() {
    let text = complaint("sim:a -o a.toml --quick --latency 50us", 1);
    assert!(text.contains("meets none of these latencies") && text.contains("p95 of 9"), "{text}");
}

#[test]
fn a_device_that_fails_is_not_calibrated() {
    let text = complaint("sim:a?fail_reads=0.01 -o a.toml --quick", 1);
    assert!(text.contains("requests ended in errors"), "{text}");
}

#[test]
fn a_file_is_only_read_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..16 << 20).map(|n| (n % 251) as u8).collect();
    fs::write(folder.path().join("disk"), &content).unwrap();
    let output = run("file:disk -o d.toml --quick --run-seconds 0.5 --latency 1s", folder.path());
    let (told, notes) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(notes.contains("without --allow-writes only reads"), "{notes}");
    assert!(fs::read(folder.path().join("disk")).unwrap() == content, "it was not written to");
    if notes.contains("all of them at any load") {
        eprintln!("the file below the test is too slow, or too fast, to be overloaded: no model");
        return;
    }
    assert!(output.status.success(), "{notes}");
    assert!(told.contains("missing: the write cost and the mixed rates"), "{told}");
    let text = fs::read_to_string(folder.path().join("d.toml")).unwrap();
    let error = ModelFile::parse(&text).unwrap_err().to_string();
    assert!(
        error.contains("`prices.write` is missing: was this measured without writes?"),
        "{error}"
    );
}

#[test]
fn preconditioning_writes_everything() {
    let folder = tempfile::tempdir().unwrap();
    let words = "file:disk?size=16MiB -o d.toml --allow-writes --precondition --quick \
                 --run-seconds 0.1 --latency 1s --reads 50";
    let output = run(words, folder.path());
    // One mix is too little for a model.
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let content = fs::read(folder.path().join("disk")).unwrap();
    let empty = content.chunks(4096).filter(|page| page.iter().all(|&byte| byte == 0)).count();
    assert_eq!((content.len(), empty), (16 << 20, 0));
}

/// Returns `true` if the process has a handler of its own for the signal.
fn catches(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("it is told");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
    caught >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn an_interrupt_leaves_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let child = command("sim:a -o a.toml", folder.path()).spawn().expect("the program starts");
    wait_until("that it takes signals", PATIENCE, || catches(child.id(), Signal::INT));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no device model was written"));
    assert_eq!(names(folder.path()), Vec::<String>::new());
}
