//! The reasons for which there is no model, each with its exit code.

/// The reason that a calibration found no model.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line makes no sense.
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
    /// Returns the reason of a device that fails: so many requests ended in errors.
    pub(super) fn of_errors(count: u64) -> Stop {
        Stop::Failed(format!(
            "{count} requests ended in errors: a device that fails cannot be calibrated"
        ))
    }
}
