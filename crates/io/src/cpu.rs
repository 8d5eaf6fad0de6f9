//! The processors and the priority of threads, and the process's limit of descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;

/// Pins the calling thread to one processor.
///
/// # Errors
/// Fails if the machine has no such processor or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> Result<(), Error> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::new(format!("there is no processor {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|e| Error::system(format!("cannot run on processor {cpu} (see `nproc`)"), e))
}

/// Checks that a thread may be [pinned](pin_to_cpu) to a processor, by a trial on a short-lived
/// thread.
///
/// # Errors
/// Fails as [`pin_to_cpu`] does.
pub fn check_cpu(cpu: usize) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let tried = scope.spawn(|| pin_to_cpu(cpu)).join();
        tried.unwrap_or_else(|_| Err(Error::new(format!("cannot try processor {cpu}"))))
    })
}

/// Keeps the calling thread, and threads that it starts later, off these processors, which belong
/// to workers. Returns `false`, and changes nothing, if the thread may use no other processors.
///
/// # Errors
/// Fails if the process may not choose where its threads run, as a filter of system calls forbids
/// it.
pub fn keep_off_cpus(cpus: &[usize]) -> Result<bool, Error> {
    let say = |e| Error::system("cannot keep threads off the processors of others", e);
    let mut left = sched_getaffinity(None).map_err(say)?;
    for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        left.unset(cpu);
    }
    if left.count() == 0 {
        return Ok(false);
    }
    sched_setaffinity(None, &left).map_err(say).map(|()| true)
}

/// Lowers the priority of the calling thread, and of threads that it starts later, by so many steps
/// of `nice`. With ten steps, a thread gets a tenth of the time of a competing thread, and waking
/// threads preempt it (sched(7), "The nice value"). On Linux the nice value belongs to the thread.
/// Lowering needs no privilege, raising it again does.
///
/// # Errors
/// Fails if the process may not change its priority, as a filter of system calls forbids it.
pub fn lower_priority(steps: u8) -> Result<(), Error> {
    let lowered = nice(i32::from(steps)).map(drop);
    lowered.map_err(|e| Error::system("cannot lower a thread's priority", e))
}

/// Raises the process's soft limit of open descriptors to the hard one. Returns the limit that
/// holds now, or `usize::MAX` if there is none.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.map_or(usize::MAX, |n| n as usize)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn a_thread_and_those_it_starts_are_lowered_and_no_other() {
        let own = || getpriority_process(None).unwrap();
        let before = own();
        let lowered = std::thread::spawn(move || {
            lower_priority(3).unwrap();
            (own(), std::thread::spawn(own).join().unwrap())
        });
        let below = (before + 3).min(19);
        assert_eq!(lowered.join().unwrap(), (below, below));
        assert_eq!(own(), before);
    }

    #[test]
    fn a_thread_keeps_off_processors_unless_it_has_no_others() {
        let own = || sched_getaffinity(None).unwrap();
        let all = own();
        let named: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        let kept_off = move || {
            let kept = keep_off_cpus(&named[1..]).unwrap();
            assert_eq!(kept, named.len() == 1 || own().count() == 1);
            assert!(own().is_set(named[0]), "it is where it may be");
            assert!(!keep_off_cpus(&named).unwrap(), "there are no others");
            pin_to_cpu(*named.last().unwrap())
                .expect("a thread of its own goes there all the same");
            own().count()
        };
        assert_eq!(std::thread::spawn(kept_off).join().unwrap(), 1);
        assert_eq!(own().count(), all.count());
    }
}
