//! Failures for Python: the name of an exception of `nearflash`, and a text.

use nearflash::{Error, Status};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The reason that a request failed.
#[derive(Debug)]
pub(crate) struct Failure {
    name: &'static str,
    text: String,
}

impl Failure {
    pub(crate) fn new(name: &'static str, text: impl Into<String>) -> Failure {
        Failure { name, text: text.into() }
    }

    /// Returns the failure of a call with `count` requests, of which the one at `index` failed.
    pub(crate) fn among(mut self, index: usize, count: usize) -> Failure {
        if count > 1 {
            self.text = format!("request {index} of {count} (from 0): {}", self.text);
        }
        self
    }

    /// Returns the exception, which the package's Python code creates.
    pub(crate) fn exception(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let find = || Ok::<_, PyErr>(py.import("nearflash._errors")?.getattr("of")?.unbind());
        OF.get_or_try_init(py, find)?.bind(py).call1((self.name, self.text))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| failure.exception(py).map_or_else(|error| error, PyErr::from_value))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { name: name_of(&error), text: error.to_string() }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Error::from(status).into()
    }
}

fn name_of(error: &Error) -> &'static str {
    match error {
        Error::Address(_) => "AddressError",
        Error::Connect(_) => "ConnectError",
        Error::System(_) => "ResourceError",
        Error::Length { .. } => "LengthError",
        Error::TooLarge { .. } => "TooLarge",
        Error::CompareFailed => "CompareFailed",
        Error::ConnectionLost => "ConnectionLost",
        Error::Failed(status) => name_of_status(*status),
        Error::Closed => "Closed",
        _ => "Error",
    }
}

fn name_of_status(status: Status) -> &'static str {
    match status {
        Status::Unsupported => "Unsupported",
        Status::BadLength => "LengthError",
        Status::OutOfRange => "OutOfRange",
        Status::Denied => "Denied",
        Status::NoNamespace | Status::NoTenant => "NotFound",
        Status::NoResources => "ResourceError",
        Status::CompareFailed => "CompareFailed",
        Status::BadChecksum | Status::MediaError | Status::WritesLost => "MediaError",
        Status::NoSpace => "NoSpace",
        Status::ReadOnly => "ReadOnly",
        Status::Retry => "Busy",
        Status::AtomicTooLarge => "TooLarge",
        Status::ConnectionLost => "ConnectionLost",
        _ => "Error",
    }
}
