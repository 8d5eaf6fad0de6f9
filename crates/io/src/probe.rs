//! The features of io_uring that nearflash needs: checked at start, and named if missing.

// UNSAFETY: a trial receive fills memory of ours.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use contract::SizeClass;
use io_uring::types::BufRingEntry;
use io_uring::{Builder, IoUring, Probe, cqueue, opcode, types};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::{Error, carve};

/// The required operations, by their names in `io_uring_enter(2)`.
const OPERATIONS: [(&str, u8); 12] = [
    ("ACCEPT", opcode::AcceptMulti::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel2::CODE),
    ("CONNECT", opcode::Connect::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("READ", opcode::Read::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("RECV", opcode::RecvMulti::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("WRITE", opcode::Write::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
];

/// A set-up flag of io_uring: its name in `io_uring_setup(2)`, and the function that sets the flag
/// together with the flags that it requires.
type Setup = (&'static str, fn(&mut Builder) -> &mut Builder);

/// The required set-up flags.
const SETUPS: [Setup; 4] = [
    ("SUBMIT_ALL", |b| b.setup_submit_all()),
    ("SINGLE_ISSUER", |b| b.setup_single_issuer()),
    ("DEFER_TASKRUN", |b| b.setup_single_issuer().setup_defer_taskrun()),
    ("TASKRUN_FLAG", |b| b.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag()),
];

/// The time limit of the receive that tests a new ring, far longer than such a receive takes.
const TRIAL_MAX: Duration = Duration::from_secs(2);

/// The number of the trial's group of provided buffers, freed before the sockets use theirs.
const GROUP: u16 = 0;

/// Returns the error of a ring's set-up with its reason, such as the set-up flags that the kernel
/// lacks.
pub(crate) fn explain_setup(error: io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EINVAL) {
        let missing = missing_setups(|(_, set)| set(&mut IoUring::builder()).build(1).map(drop));
        if !missing.is_empty() {
            return lacking(&missing);
        }
    }
    Error::system(hint(error.raw_os_error()), error)
}

/// Returns the names of the set-up flags that `attempt` refuses with `EINVAL`.
fn missing_setups(attempt: impl Fn(&Setup) -> io::Result<()>) -> Vec<&'static str> {
    let refused = |setup: &&Setup| {
        attempt(setup).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
    };
    SETUPS.iter().filter(refused).map(|(name, _)| *name).collect()
}

/// Returns the meaning of an error number of `io_uring_setup(2)`, and the remedy.
fn hint(errno: Option<i32>) -> &'static str {
    match errno {
        Some(libc::ENOSYS) => "this kernel has no io_uring, or a sandbox hides it",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a seccomp filter as \
             container engines install by default)"
        }
        Some(libc::EINVAL) => "this kernel's io_uring is too old (Linux 6.1 or later suffices)",
        Some(libc::ENOMEM) => "not enough locked memory for io_uring (raise `ulimit -l`)",
        Some(libc::EMFILE | libc::ENFILE) => "too few file descriptors (raise `ulimit -n`)",
        _ => "cannot set io_uring up",
    }
}

fn lacking(missing: &[&str]) -> Error {
    let names = missing.join(", ");
    Error::new(format!("this kernel's io_uring lacks {names} (Linux 6.1 or later has them)"))
}

/// Queries a new ring for everything that nearflash needs, and tries features that cannot be
/// queried.
///
/// # Errors
/// Fails if a feature is missing; the error names all that are.
pub(crate) fn check(uring: &mut IoUring) -> Result<(), Error> {
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|e| Error::system("cannot ask the kernel for its io_uring operations", e))?;
    let mut missing = missing_operations(|code| probe.is_supported(code));
    let params = uring.params();
    let features = [
        ("NODROP", params.is_feature_nodrop()),
        ("EXT_ARG", params.is_feature_ext_arg()),
        ("FAST_POLL", params.is_feature_fast_poll()),
    ];
    missing.extend(features.iter().filter(|(_, there)| !there).map(|(name, _)| *name));
    missing.extend(missing_receive(uring)?);
    if missing.is_empty() { Ok(()) } else { Err(lacking(&missing)) }
}

fn missing_operations(is_supported: impl Fn(u8) -> bool) -> Vec<&'static str> {
    let missing = OPERATIONS.iter().filter(|(_, code)| !is_supported(*code));
    missing.map(|(name, _)| *name).collect()
}

/// Receives a byte as the sockets do, by a multishot receive into a provided buffer. Returns the
/// name of the feature that the kernel lacks, if any.
fn missing_receive(uring: &mut IoUring) -> Result<Option<&'static str>, Error> {
    let fail = |e: io::Error| Error::system("cannot try a receive through io_uring", e);
    // One page holds the ring of one entry, another its buffer.
    let mut memory = carve(&[SizeClass { bytes: 4096, count: 2 }])?;
    let entries = memory.base.cast::<BufRingEntry>();
    let target = memory.bufs[1].bytes_mut();
    // SAFETY: the entry is the first of zeroed, page-aligned memory that lives as long as the
    // process and that nobody else touches; the kernel does not know of it yet.
    let entry = unsafe { &mut *entries };
    entry.set_addr(target.as_mut_ptr().addr() as u64);
    entry.set_len(target.len() as u32);
    entry.set_bid(0);
    // SAFETY: the tail lies within the first entry; the kernel does not know of it yet.
    unsafe { BufRingEntry::tail(entries).cast_mut().write(1) };
    // SAFETY: as above; it stays registered until it is unregistered below.
    let registered = unsafe {
        uring.submitter().register_buf_ring_with_flags(entries.addr() as u64, 1, GROUP, 0)
    };
    if registered.is_err() {
        return Ok(Some("PBUF_RING (provided buffer rings)"));
    }
    let outcome = try_receive(uring).map_err(fail);
    uring.submitter().unregister_buf_ring(GROUP).map_err(fail)?;
    Ok(if outcome? { None } else { Some("RECV_MULTISHOT") })
}

/// Returns whether a multishot receive continues after its first byte. Both ends are closed
/// afterwards, and every completion has come.
fn try_receive(uring: &mut IoUring) -> io::Result<bool> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::send(&theirs, &[1], SendFlags::empty())?;
    let entry = opcode::RecvMulti::new(types::Fd(ours.as_raw_fd()), GROUP).build();
    // SAFETY: the entry points to nothing; the kernel receives into the provided buffer.
    unsafe { uring.submission().push(&entry) }.map_err(io::Error::other)?;
    let limit = types::Timespec::from(TRIAL_MAX);
    let limit = types::SubmitArgs::new().timespec(&limit);
    uring.submitter().submit_with_args(1, &limit)?;
    let first = uring.completion().next().map(|done| (done.result(), done.flags()));
    let goes_on = first.is_some_and(|(result, flags)| result == 1 && cqueue::more(flags));
    if goes_on {
        drop(theirs); // ends the receive
        uring.submitter().submit_with_args(1, &limit)?;
        let _ = uring.completion().next();
    }
    Ok(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_number_says_what_is_in_the_way_and_what_to_do() {
        let cases = [
            (libc::ENOSYS, ["no io_uring", "sandbox"]),
            (libc::EPERM, ["forbidden", "kernel.io_uring_disabled"]),
            (libc::EACCES, ["forbidden", "seccomp"]),
            (libc::ENOMEM, ["locked memory", "ulimit -l"]),
            (libc::EMFILE, ["descriptors", "ulimit -n"]),
            (libc::ENFILE, ["descriptors", "ulimit -n"]),
            (libc::EIO, ["cannot set io_uring up", "os error 5"]),
        ];
        for (errno, words) in cases {
            let error = explain_setup(io::Error::from_raw_os_error(errno));
            assert_eq!(error.errno(), Some(errno));
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn a_kernel_that_knows_every_setup_is_not_called_lacking() {
        let text = explain_setup(io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert!(text.contains("too old") || text.contains("lacks"), "{text}");
    }

    #[test]
    fn missing_setups_are_named_one_by_one() {
        let old = |(name, _): &Setup| match *name {
            "SUBMIT_ALL" | "SINGLE_ISSUER" => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        assert_eq!(missing_setups(old), ["DEFER_TASKRUN", "TASKRUN_FLAG"]);
        let forbidden = |_: &Setup| Err(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(missing_setups(forbidden), [""; 0], "forbidden is not missing");
    }

    #[test]
    fn missing_operations_are_named() {
        let all_but = |code: u8| code != opcode::SendMsg::CODE && code != opcode::Connect::CODE;
        let missing = missing_operations(all_but);
        assert_eq!(missing, ["CONNECT", "SENDMSG"]);
        let text = lacking(&missing).to_string();
        assert!(text.contains("lacks CONNECT, SENDMSG") && text.contains("6.1"), "{text}");
    }

    /// Does nothing where io_uring is forbidden.
    #[test]
    fn the_trial_leaves_a_ring_as_it_was() {
        let Ok(mut uring) = IoUring::builder().build(8) else { return };
        for _ in 0..3 {
            assert!(missing_receive(&mut uring).unwrap().is_none());
            assert!(uring.completion().next().is_none() && uring.submission().is_empty());
        }
    }
}
