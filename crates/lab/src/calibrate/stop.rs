//! The reasons for which there is no model, each with its exit code.

/// The reason that a calibration made no model.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is invalid.
    Usage(String),
    /// The calibration failed.
    Failed(String),
    /// The operator ended the calibration.
    Interrupted,
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Failed(text)
    }
}

impl Stop {
    /// Returns the reason for a failing device: so many requests ended in errors.
    pub(super) fn of_errors(count: u64) -> Stop {
        Stop::Failed(format!(
            "{count} requests ended in errors: a device that fails cannot be calibrated"
        ))
    }
}
