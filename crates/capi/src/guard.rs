//! The checks of every call: pointers are there, the handle is this process's and this thread's, and
//! no panic leaves the library.

// UNSAFETY: reads what the caller's pointers lead to; asks the system to tell of forks.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

use crate::abi::{NF_CHECKSUMS, NF_NAMESPACE, Options};
use crate::failure::Failure;

/// Number of forks between the first process that used the library and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The most connections of a handle.
const CONNECTIONS_MAX: u32 = 1024;

/// The most requests in flight of a handle.
const IN_FLIGHT_MAX: u32 = 65_536;

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that a handle belongs to, as the number of forks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    pub(crate) fn this() -> Process {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the function only adds to a counter, which a child may do after a fork.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Fails if the calling process is a child, made by `fork`, of the process that opened the
    /// handle.
    pub(crate) fn check(self) -> Result<(), Failure> {
        const FOREIGN: Failure =
            Failure::new(libc::ECHILD, c"the handle belongs to the parent process: close it");
        if Process(FORKS.load(Ordering::Relaxed)) == self { Ok(()) } else { Err(FOREIGN) }
    }
}

/// Fails if the calling thread is not `owner`.
pub(crate) fn check_thread(owner: ThreadId) -> Result<(), Failure> {
    const FOREIGN: Failure =
        Failure::new(libc::EPERM, c"the queue belongs to the thread that opened it");
    if std::thread::current().id() == owner { Ok(()) } else { Err(FOREIGN) }
}

/// The failure of a handle in which the library has panicked.
pub(crate) const DEAD: Failure =
    Failure::new(libc::ENOTRECOVERABLE, c"the library has failed in this handle: close it");

/// Calls `f`. If `f` panics, `bury` marks the handle as dead.
pub(crate) fn caught(
    f: impl FnOnce() -> Result<c_int, Failure>,
    bury: impl FnOnce(),
) -> Result<c_int, Failure> {
    // What `f` may have left half done belongs to a handle that nobody uses again.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_panic| {
        bury();
        Err(DEAD)
    })
}

/// Returns the value behind a pointer of the caller; fails for a null pointer.
///
/// # Safety
/// The pointer is null, or leads to a `T` that lives and that nobody changes during `'a`.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller promised it.
    unsafe { pointer.as_ref() }.ok_or(Failure::invalid(c"a pointer is NULL"))
}

/// Returns the memory behind a pointer of the caller, to write to; fails for a null pointer.
///
/// # Safety
/// The pointer is null, or leads to a place for a `T` that nobody else uses during `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller promised it. The places are integers and pointers, which every pattern of
    // bits is a value of.
    unsafe { pointer.as_mut() }.ok_or(Failure::invalid(c"a pointer is NULL"))
}

/// Returns a text of the caller; fails if it is null or not UTF-8.
///
/// # Safety
/// The pointer is null, or leads to a text with a zero at its end that nobody changes during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(c"a text is NULL"));
    }
    // SAFETY: the caller promised it.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(c"a text is not UTF-8"))
}

/// Returns the options of the caller, or the defaults.
///
/// # Safety
/// The pointer is null, or leads to as many bytes of options as their first field says, whose
/// pointers are null or lead to what the header says.
pub(crate) unsafe fn options(pointer: *const Options) -> Result<nearflash::Options, Failure> {
    let mut wanted = nearflash::Options::default();
    if pointer.is_null() {
        return Ok(wanted);
    }
    // SAFETY: the caller promised that the first field is there.
    let size = unsafe { (&raw const (*pointer).size).read() };
    if size < size_of::<usize>() {
        return Err(Failure::invalid(c"the size of the options is missing"));
    }
    let mut given = std::mem::MaybeUninit::<Options>::zeroed();
    // SAFETY: both places have so many bytes. Zeroes are values of all fields, and so is whatever
    // the caller has put there.
    let given = unsafe {
        let from = pointer.cast::<u8>();
        from.copy_to(given.as_mut_ptr().cast(), size.min(size_of::<Options>()));
        given.assume_init()
    };
    if given.flags & !(NF_NAMESPACE | NF_CHECKSUMS) != 0 {
        return Err(Failure::invalid(c"unknown flag among the options"));
    }
    if given.connections > CONNECTIONS_MAX || given.in_flight_max > IN_FLIGHT_MAX {
        return Err(Failure::invalid(c"too many connections or requests in flight"));
    }
    if given.flags & NF_NAMESPACE != 0 {
        let number = u16::try_from(given.nsid);
        let number = number.map_err(|_| Failure::invalid(c"no namespace has this number"))?;
        wanted.namespace = Some(number);
    }
    wanted.checksums = given.flags & NF_CHECKSUMS != 0;
    if given.connections > 0 {
        wanted.connections = given.connections as usize;
    }
    if given.in_flight_max > 0 {
        wanted.in_flight_max = given.in_flight_max as usize;
    }
    let time = |nanos: i64| std::time::Duration::from_nanos(nanos.max(0).unsigned_abs());
    if given.outage_ns != 0 {
        wanted.outage_max = time(given.outage_ns);
    }
    if given.spin_ns != 0 {
        wanted.spin = time(given.spin_ns);
    }
    if !given.tenant.is_null() {
        // SAFETY: the caller promised it.
        wanted.tenant = unsafe { text(given.tenant) }?.to_owned();
    }
    if !given.token.is_null() {
        // SAFETY: the caller promised so many bytes.
        let token = unsafe { std::slice::from_raw_parts(given.token.cast(), given.token_bytes) };
        wanted.token = token.to_vec();
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::told;

    #[test]
    fn a_panic_stays_inside() {
        let mut is_dead = false;
        assert_eq!(told(caught(|| panic!("a mistake of ours"), || is_dead = true)), -131);
        assert!(is_dead);
        assert_eq!(told(caught(|| Ok(3), || unreachable!())), 3);
    }

    #[test]
    fn options_of_older_headers_have_defaults_for_the_rest() {
        // SAFETY: options without pointers.
        let read = |given: &Options| unsafe { options(given) };
        // SAFETY: zeroes are values of all fields.
        let mut given: Options = unsafe { std::mem::zeroed() };
        assert!(read(&given).is_err(), "no size");
        given.size = size_of::<Options>();
        assert_eq!(read(&given).unwrap().in_flight_max, 256);
        (given.connections, given.in_flight_max, given.spin_ns) = (3, 7, -1);
        let all = read(&given).unwrap();
        assert_eq!((all.connections, all.in_flight_max, all.spin.as_nanos()), (3, 7, 0));
        given.size = std::mem::offset_of!(Options, in_flight_max);
        let older = read(&given).unwrap();
        assert_eq!((older.connections, older.in_flight_max), (3, 256));
        given.flags = 4;
        assert!(read(&given).is_err(), "an unknown flag");
    }
}
