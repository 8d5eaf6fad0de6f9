//! The reasons for which there is no measurement, each with its exit code.

/// The reason that there is no measurement.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// The measurement failed: exit code 1.
    Failed(String),
}
