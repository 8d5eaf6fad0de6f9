//! The machine on which a result was measured.

use std::fmt;

/// The machine on which figures are measured, as the report describes it.
pub(super) struct Machine {
    cpu: String,
    cpus: usize,
    memory_gib: f64,
    kernel: String,
    /// The load average over the last minute, read before the measurements.
    load: f64,
}

impl Machine {
    /// Reads the description of this machine from `/proc`.
    pub(super) fn describe() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        let load = read("/proc/loadavg");
        Machine {
            cpu: name.map_or("unknown processor", |(_, name)| name).to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.unwrap_or(0.0) / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        let Machine { cpu, cpus, memory_gib, kernel, load } = self;
        write!(f, "nearflash {version}; {cpus} × {cpu}, {memory_gib:.0} GiB, Linux {kernel}")?;
        if *load > 0.5 {
            write!(
                f,
                "; load average {load:.1} before the run: other work clouds what is measured in \
                 real time"
            )?;
        }
        Ok(())
    }
}
