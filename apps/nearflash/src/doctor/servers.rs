//! The running servers of a machine, as the kernel shows them to other processes.

use super::machine::{Cpus, Machine};

/// A running `nearflash serve` process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) pid: u32,
    /// The processors that the threads of the server's workers may run on.
    pub(super) cpus: Cpus,
    /// The text of the server's `/proc/PID/limits`; `None` if it cannot be read.
    pub(super) limits: Option<String>,
    /// `true` if the server has an io_uring instance; `None` if this user may not read that.
    pub(super) has_ring: Option<bool>,
}

/// Returns the running servers of the machine, in the order of their process ids.
pub(super) fn find(machine: &Machine) -> Vec<Server> {
    let mut pids: Vec<u32> =
        machine.list("proc").iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| look_at(machine, pid)).collect()
}

fn look_at(machine: &Machine, pid: u32) -> Option<Server> {
    let of = |file: &str| format!("proc/{pid}/{file}");
    let words = machine.read(&of("cmdline"))?;
    let mut words = words.split('\0');
    let program = words.next()?.rsplit('/').next()?.to_owned();
    if program != "nearflash" || words.next() != Some("serve") {
        return None;
    }
    let mut cpus = Cpus::new();
    for thread in machine.list(&of("task")) {
        let name = machine.read(&of(&format!("task/{thread}/comm"))).unwrap_or_default();
        if name.starts_with("worker-") {
            let status = machine.read(&of(&format!("task/{thread}/status"))).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cpus.extend(line.and_then(super::machine::parse_cpus).unwrap_or_default());
        }
    }
    let open = machine.links(&of("fd"));
    let has_ring = open.map(|open| open.iter().any(|link| link.contains("[io_uring]")));
    Some(Server { pid, cpus, limits: machine.read(&of("limits")), has_ring })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn servers_are_told_from_other_processes() {
        let (folder, machine) = machine(&[
            ("proc/7/cmdline", "/usr/bin/nearflash\0serve\0--config\0x"),
            ("proc/7/limits", "Limit Soft Hard\nMax open files 1024 4096 files"),
            ("proc/7/task/8/comm", "worker-0"),
            ("proc/7/task/8/status", "Name:\tworker-0\nCpus_allowed_list:\t2"),
            ("proc/7/task/9/comm", "worker-1"),
            ("proc/7/task/9/status", "Cpus_allowed_list:\t4-5"),
            ("proc/7/task/7/comm", "nearflash"),
            ("proc/7/task/7/status", "Cpus_allowed_list:\t0-7"),
            ("proc/10/cmdline", "nearflash\0doctor"),
            ("proc/11/cmdline", "vi\0serve"),
        ]);
        let found = find(&machine);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, &found[0].cpus), (7, &Cpus::from([2, 4, 5])));
        assert_eq!(found[0].has_ring, None);
        std::fs::create_dir(folder.path().join("proc/7/fd")).unwrap();
        let link = folder.path().join("proc/7/fd/5");
        std::os::unix::fs::symlink("anon_inode:[io_uring]", link).unwrap();
        assert_eq!(find(&machine)[0].has_ring, Some(true));
    }
}
