//! The reasons for which a calibration made no model, each with its exit code.

/// The reason that a calibration made no model.
#[derive(Debug)]
pub(crate) enum CalibrationError {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// The calibration failed: exit code 1.
    Failed(String),
    /// The operator interrupted the calibration: exit code 130.
    Interrupted,
}

impl From<String> for CalibrationError {
    fn from(text: String) -> CalibrationError {
        CalibrationError::Failed(text)
    }
}

impl CalibrationError {
    /// Returns the reason for a device on which `count` requests ended in errors.
    pub(super) fn of_errors(count: u64) -> CalibrationError {
        CalibrationError::Failed(format!(
            "{count} requests ended in errors: a device that fails cannot be calibrated"
        ))
    }
}
