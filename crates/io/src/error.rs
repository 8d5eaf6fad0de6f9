//! Errors of set-up: each message names the failed action, its object, and the remedy.

use std::fmt;
use std::io;

/// The reason that an object of the operating system could not be set up.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: Option<io::Error>,
}

impl Error {
    /// Returns an error without a cause in the system.
    pub fn new(what: impl Into<String>) -> Self {
        Error { what: what.into(), source: None }
    }

    /// Creates an error of the system for the action `what`.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error { what: what.into(), source: Some(source.into()) }
    }

    /// Returns the system's error number, if it reported one.
    pub fn errno(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
