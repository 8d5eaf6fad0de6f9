//! The machine and the commit, which every page of results states.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The machine, its kernel and the commit of a result.
pub(crate) struct Machine {
    commit: String,
    cpu: String,
    cpus: usize,
    kernel: String,
    /// The load average over the last minute when the run began.
    load: f64,
}

/// Reads the description of the machine from `/proc`, and the commit from git.
pub(crate) fn describe() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let load = read("/proc/loadavg");
    Machine {
        commit: commit(),
        cpu: model.map_or("unknown", |(_, name)| name).to_owned(),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(shell::root());
        match shell::capture(&mut command, Duration::from_secs(20)) {
            Ok(ran) if ran.ok => Some(ran.output.trim().to_owned()),
            _ => None,
        }
    };
    let Some(name) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|text| !text.is_empty()) { format!("{name} with changes") } else { name }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "commit {}", self.commit)?;
        write!(f, "{} × {}, Linux {}", self.cpus, self.cpu, self.kernel)?;
        if self.load > 0.5 {
            let load = self.load;
            write!(f, "\nload average {load:.1} before the run: other work may cloud the figures")?;
        }
        Ok(())
    }
}
