//! The progress bar: the present measurement and the remaining time.

use flash::size_text;
use indicatif::{ProgressBar, ProgressStyle};
use qos::calibrate::{Calibration, OfferedLoad};

use crate::report::number_text;

/// The number of steps of the progress bar.
const STEPS: u64 = 1_000;

/// The progress bar of a calibration on standard error.
pub(super) struct CalibrationProgress {
    bar: ProgressBar,
}

impl CalibrationProgress {
    pub(super) fn new(spec: &str) -> CalibrationProgress {
        let bar = ProgressBar::new(STEPS);
        let template = "{prefix} {bar:30.cyan/dim} {percent:>3} % · {eta} left · {msg}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("the template is sound"));
        bar.set_prefix(spec.to_owned());
        CalibrationProgress { bar }
    }

    /// Displays which load is offered next, and how much of the calibration is done.
    pub(super) fn show(&self, calibration: &Calibration, offer: &OfferedLoad) {
        let (done, all) = calibration.curves_done();
        let mix = match offer.mix.read_percent {
            100 => "reads alone".to_owned(),
            percent => format!("{percent} % reads"),
        };
        let size = size_text(offer.mix.bytes as u64);
        let iops = number_text(offer.iops.round());
        // Estimates may go back; a bar that does confuses.
        let step = (calibration.progress() * STEPS as f64) as u64;
        self.bar.set_position(step.max(self.bar.position()));
        self.bar.set_message(format!(
            "curve {} of {all}: {mix} of {size}, {iops} IOPS",
            (done + 1).min(all)
        ));
    }

    /// Removes the progress bar from the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
