//! Where threads run, and how many descriptors the process may hold.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Error;

/// Pins the calling thread to one processor.
///
/// # Errors
/// When the machine has no such processor or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> Result<(), Error> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::new(format!("there is no processor {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|e| Error::system(format!("cannot run on processor {cpu} (see `nproc`)"), e))
}

/// Whether a thread may be [pinned](pin_to_cpu) to a processor: tried by one that ends.
///
/// # Errors
/// As there.
pub fn check_cpu(cpu: usize) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let tried = scope.spawn(|| pin_to_cpu(cpu)).join();
        tried.unwrap_or_else(|_| Err(Error::new(format!("cannot try processor {cpu}"))))
    })
}

/// Raises the soft limit of open descriptors to the hard one and returns what it is now.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.map_or(usize::MAX, |n| n as usize)
}
