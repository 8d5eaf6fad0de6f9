//! Keeping the process's memory from the rest of the machine.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::Error;

/// Keeps the memory of this process out of core dumps, and prevents other processes of its user
/// from tracing or reading it (`PR_SET_DUMPABLE`, prctl(2)). Root still can.
///
/// # Errors
/// Fails if the system does not know how, as some sandboxes.
pub fn keep_memory_secret() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Error::system("cannot keep secrets out of core dumps".to_owned(), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::dumpable_behavior;

    #[test]
    fn the_process_is_not_dumpable_afterwards() {
        keep_memory_secret().unwrap();
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
