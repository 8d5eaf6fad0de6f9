//! The reasons for which a calibration made no model, each with its exit code.

/// The reason that a calibration made no model.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// The calibration failed: exit code 1.
    Failed(String),
    /// The operator interrupted the calibration: exit code 130.
    Interrupted,
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Failed(text)
    }
}

impl Stop {
    /// Returns the reason for a device on which `count` requests ended in errors.
    pub(super) fn of_errors(count: u64) -> Stop {
        Stop::Failed(format!(
            "{count} requests ended in errors: a device that fails cannot be calibrated"
        ))
    }
}
