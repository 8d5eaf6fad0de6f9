//! The execution of other programs: with captured output, a time limit, and no processes left
//! behind.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The result of a program that has ended or was stopped, with all of its output.
pub struct CapturedOutput {
    /// `true` if the program ended within its time limit with exit code 0.
    pub ok: bool,
    /// The output of both streams, in order, with an additional line if the program was stopped.
    pub output: String,
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the chores live one level below the root").to_path_buf()
}

/// Returns the command that runs cargo with these arguments at the root of the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs `command` and captures its output. When `limit` has passed, the command and all its
/// children are killed.
pub fn capture(command: &mut Command, limit: Duration) -> Result<CapturedOutput, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.process_group(0).spawn().map_err(failed)?;
    // The command holds copies of the pipe's writing end, and the reader ends only when all are
    // gone.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        if read.is_ok() {
            // The other end is gone only when the time limit has passed.
            let _unheard = sender.send(bytes);
        }
    });
    let started = Instant::now();
    let received = receiver.recv_timeout(limit).ok();
    if received.is_none() {
        kill_group(child.id());
    }
    add_cpu_seconds(child.id());
    let status = child.wait().map_err(failed)?;
    let stopped = received.is_none();
    let bytes =
        received.or_else(|| receiver.recv_timeout(Duration::from_secs(5)).ok()).unwrap_or_default();
    let mut output = String::from_utf8_lossy(&bytes).into_owned();
    if stopped {
        output.push_str(&format!("\nstopped after {:.0} s\n", started.elapsed().as_secs_f64()));
    }
    Ok(CapturedOutput { ok: status.success() && !stopped, output })
}

thread_local! {
    static CPU_SECONDS: Cell<f64> = const { Cell::new(0.0) };
}

/// Returns the processor seconds, in user mode and in the kernel, of all programs that this thread
/// has [captured](capture) so far, their children included.
pub fn cpu_seconds() -> f64 {
    CPU_SECONDS.get()
}

/// Adds the processor time of a child that is about to be waited for to the sum of this thread. If
/// the kernel does not report the time, the sum stays.
fn add_cpu_seconds(id: u32) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let child = i32::try_from(id).ok().and_then(Pid::from_raw);
    // Between its end and the wait for it, a child's processor time is complete.
    let ended =
        child.map(|id| waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
    if ended.is_some_and(|ended| ended.is_ok())
        && let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/stat"))
    {
        count_cpu_seconds(stat_seconds(&text));
    }
}

/// Adds processor seconds to the sum of this thread, such as the seconds of another thread that has
/// done a part of its work.
pub fn count_cpu_seconds(seconds: f64) {
    CPU_SECONDS.set(CPU_SECONDS.get() + seconds);
}

/// Returns the processor seconds in a line of `/proc/ID/stat`: in user mode and in the kernel, of
/// the process and of its ended children.
fn stat_seconds(text: &str) -> f64 {
    // The second field is the program's name in brackets, which may contain any character.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = rest.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}

/// Runs `command`, whose output goes to this process's output. Fails if its exit code is not 0.
pub fn show(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed: {status}")) }
}

/// Returns `true` if a program of this name is in a folder of `PATH`, or in those of programs for
/// root.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ["/usr/sbin", "/sbin"].into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(places).any(|folder| folder.join(name).is_file())
}

/// Returns `true` if this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn kill_group(id: u32) {
    let leader = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        // The process group may have ended in the meantime.
        let _gone = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_status_come_back() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ran = capture(&mut command, Duration::from_secs(20)).unwrap();
        assert!(!ran.ok);
        assert_eq!(ran.output, "one\ntwo\n");
    }

    #[test]
    fn a_hanging_program_is_stopped_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600 & sleep 600"]);
        let started = Instant::now();
        let ran = capture(&mut command, Duration::from_millis(300)).unwrap();
        assert!(!ran.ok);
        assert!(ran.output.starts_with("begun\n") && ran.output.contains("stopped after"));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_programs_compute_is_counted() {
        let before = cpu_seconds();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut command = Command::new("sh");
        capture(command.args(["-c", script]), Duration::from_secs(60)).unwrap();
        assert!(cpu_seconds() > before, "{before}");
        assert_eq!(stat_seconds("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 50 25 25 9"), 2.0);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(has_program("sh"));
        assert!(!has_program("surely-no-such-program"));
    }
}
