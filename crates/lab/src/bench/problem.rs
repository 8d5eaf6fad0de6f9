//! The reasons for a missing measurement, each with its exit code.

/// The reason for a missing measurement.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// The measurement failed: exit code 1.
    Failed(String),
}
