//! Checks of a server's limits and of its right to use io_uring. They are read from the server's
//! process, not from this command's, and each finding names the process.

use super::finding::{Finding, Grade};
use super::machine::Machine;
use super::servers::Server;

/// The folders with systemd's units. The first folder that has the unit wins, but the drop-ins of
/// all folders apply.
const UNITS: [&str; 3] = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

const UNIT: &str = "nearflash.service";

/// Minimum number of open files that a server of many connections must be allowed.
const FILES_MIN: u64 = 65_536;

/// Minimum of locked memory in bytes that a server must be allowed: the buffers of a few workers.
const LOCKED_MIN: u64 = 256 << 20;

/// The hard limits of a process or unit on open files and on locked memory in bytes: `None` if
/// unknown, `u64::MAX` for no limit. `whose` is text that follows the name of a limit.
struct ProcessLimits {
    whose: String,
    files: Option<u64>,
    locked: Option<u64>,
}

pub(super) fn all(machine: &Machine, servers: &[Server]) -> Vec<Finding> {
    let mut findings = Vec::from_iter(io_uring_setting(machine));
    match servers {
        [] => findings.extend(next_server(machine).into_iter().flat_map(of)),
        _ => findings.extend(servers.iter().filter_map(running)),
    }
    findings
}

/// Returns one finding about a running server, which combines all that can be seen of it; `None` if
/// nothing can be seen.
fn running(server: &Server) -> Option<Finding> {
    let limits = server.limits.as_deref().map(|text| of_process(String::new(), text));
    let parts: Vec<Finding> =
        ring(server).into_iter().chain(limits.map(of).unwrap_or_default()).collect();
    let grade = parts.iter().map(|part| part.grade).max()?;
    let found: Vec<String> =
        parts.iter().map(|part| format!("{} {}", part.subject, part.found)).collect();
    let advice = parts.iter().map(|part| &*part.advice).filter(|advice| !advice.is_empty());
    let advice: Vec<&str> = advice.collect();
    let server = format!("server {}", server.pid);
    Some(Finding::good(server, found.join(", ")).graded(grade, advice.join("; ")))
}

fn of(ProcessLimits { whose, files, locked }: ProcessLimits) -> Vec<Finding> {
    let files = files.map(|files| open_files(&whose, files));
    files.into_iter().chain(locked.map(|locked| locked_memory(&whose, locked))).collect()
}

fn open_files(whose: &str, files: u64) -> Finding {
    let finding = Finding::good(format!("open files{whose}"), at_most(files, 0, ""));
    match files {
        FILES_MIN.. => finding,
        _ => finding.graded(
            Grade::Advice,
            "each connection is one: LimitNOFILE=1048576 in the service, or ulimit -n",
        ),
    }
}

fn locked_memory(whose: &str, locked: u64) -> Finding {
    let finding = Finding::good(format!("locked memory{whose}"), at_most(locked, 20, " MiB"));
    match locked {
        LOCKED_MIN.. => finding,
        _ => finding.graded(
            Grade::Advice,
            "buffers stay unregistered, which costs the kernel's page look-ups on each request to a \
             device: LimitMEMLOCK=infinity in the service, or ulimit -l",
        ),
    }
}

fn at_most(limit: u64, shift: u32, unit: &str) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        _ => format!("at most {}{unit}", limit >> shift),
    }
}

/// Returns the limits of a server that would be started: those of its systemd unit or, without a
/// unit, of this process.
fn next_server(machine: &Machine) -> Option<ProcessLimits> {
    of_unit(machine).or_else(|| {
        let own = machine.read("proc/self/limits")?;
        Some(of_process(", this shell (no server runs)".to_owned(), &own))
    })
}

fn of_process(whose: String, text: &str) -> ProcessLimits {
    let hard = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_whitespace().nth(1)? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    };
    ProcessLimits { whose, files: hard("Max open files"), locked: hard("Max locked memory") }
}

fn of_unit(machine: &Machine) -> Option<ProcessLimits> {
    let mut text = UNITS.iter().find_map(|folder| machine.read(&format!("{folder}/{UNIT}")))?;
    for folder in UNITS.iter().rev() {
        let folder = format!("{folder}/{UNIT}.d");
        for name in machine.list(&folder).iter().filter(|name| name.ends_with(".conf")) {
            text.push('\n');
            text.push_str(&machine.read(&format!("{folder}/{name}")).unwrap_or_default());
        }
    }
    let last = |key: &str| {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(key));
        let said = lines.filter_map(|line| line.trim_start().strip_prefix('=')).next_back()?.trim();
        limit(said.rsplit_once(':').map_or(said, |(_, hard)| hard))
    };
    let whose = ", the unit's (no server runs)".to_owned();
    Some(ProcessLimits { whose, files: last("LimitNOFILE"), locked: last("LimitMEMLOCK") })
}

/// Parses a limit of a systemd unit (systemd.exec(5)), such as `64K`; `None` if it is not
/// understood, `u64::MAX` for `infinity`.
fn limit(text: &str) -> Option<u64> {
    if text == "infinity" {
        return Some(u64::MAX);
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Checks the kernel's setting that disables io_uring; `None` for a kernel without the setting.
fn io_uring_setting(machine: &Machine) -> Option<Finding> {
    let disabled = machine.number("proc/sys/kernel/io_uring_disabled")?;
    let finding = Finding::good("io_uring_disabled", disabled.to_string());
    let group = machine.read("proc/sys/kernel/io_uring_group").unwrap_or_default();
    Some(match disabled {
        0 => finding,
        1 => finding.graded(
            Grade::Advice,
            format!(
                "only root and members of group {group} (kernel.io_uring_group) may use io_uring; \
                 the server's user has to be one (SupplementaryGroups= in the service)"
            ),
        ),
        _ => finding.graded(
            Grade::Problem,
            "nobody may use io_uring, so servers serve over epoll, at more processor time a \
             request: sysctl -w kernel.io_uring_disabled=0",
        ),
    })
}

/// Checks whether a running server uses io_uring. Returns `None` if this user may not see that.
fn ring(server: &Server) -> Option<Finding> {
    let finding = Finding::good("io_uring", "used");
    Some(match server.has_ring? {
        true => finding,
        false => Finding { found: "not used".to_owned(), ..finding }.graded(
            Grade::Advice,
            "the server's log says why it serves over epoll; filters of system calls, and limits of \
             its user, forbid io_uring",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    const SHELL: (&str, &str) =
        ("proc/self/limits", "Max open files 1024 4096 files\nMax locked memory 65536 65536 bytes");

    const RUNS: (&str, &str) = ("proc/7/cmdline", "nearflash\0serve");

    fn found(files: &[(&str, &str)]) -> Vec<(Grade, String, String)> {
        let (_folder, machine) = machine(files);
        let servers = super::super::servers::find(&machine);
        let findings = all(&machine, &servers).into_iter();
        findings.map(|finding| (finding.grade, finding.subject, finding.found)).collect()
    }

    #[test]
    fn limits_are_those_of_the_server_that_runs() {
        let of_server = "Max open files 9 1048576 files\nMax locked memory 1 unlimited bytes";
        let unit = ("etc/systemd/system/nearflash.service", "LimitNOFILE=1");
        let said = found(&[SHELL, RUNS, ("proc/7/limits", of_server), unit]);
        let expected = (
            Grade::Good,
            "server 7".to_owned(),
            "open files at most 1048576, locked memory unlimited".to_owned(),
        );
        assert_eq!(said, [expected]);
    }

    #[test]
    fn each_server_has_one_line_with_all_its_advice() {
        let small = "Max open files 9 4096 files\nMax locked memory 1 65536 bytes";
        let large = "Max open files 9 1048576 files\nMax locked memory 1 unlimited bytes";
        let other = ("proc/9/cmdline", "nearflash\0serve");
        let files = [RUNS, ("proc/7/limits", small), other, ("proc/9/limits", large)];
        let (folder, machine) = machine(&files);
        std::fs::create_dir(folder.path().join("proc/7/fd")).unwrap();
        let findings = all(&machine, &super::super::servers::find(&machine));
        let subjects: Vec<&str> = findings.iter().map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, ["server 7", "server 9"]);
        let (bad, good) = (&findings[0], &findings[1]);
        assert_eq!((bad.grade, good.grade), (Grade::Advice, Grade::Good));
        assert_eq!(
            bad.found,
            "io_uring not used, open files at most 4096, locked memory at most 0 MiB"
        );
        for part in ["epoll", "LimitNOFILE", "LimitMEMLOCK"] {
            assert!(bad.advice.contains(part), "{bad:?}");
        }
        assert_eq!(good.advice, "");
    }

    #[test]
    fn limits_are_the_units_where_no_server_runs() {
        let unit =
            ("usr/lib/systemd/system/nearflash.service", "LimitNOFILE=1024:2048\nLimitMEMLOCK=8M");
        let said = found(&[SHELL, unit]);
        assert_eq!((said[0].0, &*said[0].2), (Grade::Advice, "at most 2048"));
        assert_eq!((said[1].0, &*said[1].2), (Grade::Advice, "at most 8 MiB"));
        assert!(said.iter().all(|one| one.1.contains("the unit's")), "{said:?}");
        let own =
            ("etc/systemd/system/nearflash.service.d/own.conf", "[Service]\nLimitMEMLOCK=infinity");
        assert_eq!(found(&[SHELL, unit, own])[1].2, "unlimited", "an operator's word counts more");
    }

    #[test]
    fn limits_are_the_shells_only_where_there_is_nothing_else() {
        let said = found(&[SHELL]);
        assert_eq!((said[0].0, &*said[0].2), (Grade::Advice, "at most 4096"));
        assert_eq!((said[1].0, &*said[1].2), (Grade::Advice, "at most 0 MiB"));
        assert!(said.iter().all(|one| one.1.contains("this shell")), "{said:?}");
    }

    #[test]
    fn who_may_use_io_uring_is_told() {
        for (value, grade) in [("0", Grade::Good), ("1", Grade::Advice), ("2", Grade::Problem)] {
            let said = found(&[("proc/sys/kernel/io_uring_disabled", value)]);
            assert_eq!(said[0].0, grade, "{value}");
        }
    }
}
