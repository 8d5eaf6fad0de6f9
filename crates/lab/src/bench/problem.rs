//! The reasons for which there is no measurement, each with its exit code.

/// Why there is no measurement.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// Something did not work: exit code 1.
    Failed(String),
}
