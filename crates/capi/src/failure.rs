//! Failures: an error number for the caller, and a text that the thread keeps.

// UNSAFETY: exports a function under its own name.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use libc::{
    EACCES, EADDRNOTAVAIL, EAGAIN, ECONNRESET, EDQUOT, EILSEQ, EINVAL, EIO, EMSGSIZE, ENOENT,
    ENOMEM, ENOSPC, ENOTCONN, ENOTRECOVERABLE, ENOTSUP, ERANGE, EREMOTEIO, EROFS,
};
use nearflash::{Error, Status};

/// The reason that a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    text: Text,
}

#[derive(Debug)]
enum Text {
    Constant(&'static CStr),
    Made(CString),
}

impl Failure {
    /// Returns a failure without an allocation.
    pub(crate) const fn new(errno: c_int, text: &'static CStr) -> Failure {
        Failure { errno, text: Text::Constant(text) }
    }

    pub(crate) const fn invalid(text: &'static CStr) -> Failure {
        Failure::new(EINVAL, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
        Failure { errno: errno_of(&error), text: Text::Made(text) }
    }
}

fn errno_of(error: &Error) -> c_int {
    match error {
        Error::Address(_) => EADDRNOTAVAIL,
        Error::Connect(_) => ENOTCONN,
        Error::System(_) => ENOMEM,
        Error::Length { .. } | Error::NoStreams => EINVAL,
        Error::TooLarge { .. } => EMSGSIZE,
        Error::CompareFailed => EILSEQ,
        Error::ConnectionLost => ECONNRESET,
        Error::Failed(status) => errno_of_status(*status),
        Error::Refused(refused) => errno_of_status(refused.status),
        Error::Full => EAGAIN,
        _ => ENOTRECOVERABLE,
    }
}

/// Returns the error number (`errno(3)`) that stands for a request's status; zero for success.
pub(crate) fn errno_of_status(status: Status) -> c_int {
    match status {
        Status::Ok => 0,
        Status::Unsupported => ENOTSUP,
        Status::Invalid | Status::BadLength => EINVAL,
        Status::OutOfRange => ERANGE,
        Status::Denied => EACCES,
        Status::NoNamespace | Status::NoTenant => ENOENT,
        Status::NoResources => EDQUOT,
        Status::CompareFailed => EILSEQ,
        Status::BadChecksum | Status::MediaError | Status::WritesLost => EIO,
        Status::NoSpace => ENOSPC,
        Status::ReadOnly => EROFS,
        Status::Retry => EAGAIN,
        Status::AtomicTooLarge => EMSGSIZE,
        Status::ConnectionLost => ECONNRESET,
        _ => EREMOTEIO,
    }
}

thread_local! {
    /// The text of the thread's last failure.
    static LAST: RefCell<Text> = const { RefCell::new(Text::Constant(c"nothing has failed")) };
}

/// Returns the C result of a call: its value, or minus the error number of a failure, whose text is
/// kept for `nf_error`.
pub(crate) fn told(result: Result<c_int, Failure>) -> c_int {
    match result {
        Ok(value) => value,
        Err(Failure { errno, text }) => {
            LAST.set(text);
            -errno
        }
    }
}

/// Returns the text of the last failure in this thread, which is valid until the next one.
// SAFETY: no other function of the program has this name, as C's rules for names ask.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub extern "C" fn nf_error() -> *const c_char {
    LAST.with_borrow(|text| match text {
        Text::Constant(text) => text.as_ptr(),
        Text::Made(text) => text.as_ptr(),
    })
}
