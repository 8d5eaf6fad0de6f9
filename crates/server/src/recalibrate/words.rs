//! Conversions of a recalibration's state to the admin API's answers.

use control::admin::{Found, FoundRate, Phase, Recalibration, StartRecalibration};
use qos::recalibrate::{Findings, Row, StepReading};
use qos::units::TOKEN;

/// Returns the answer for a recalibration that waits to begin.
pub(super) fn waiting(device: &str, asked: StartRecalibration, automatic: bool) -> Recalibration {
    Recalibration {
        device: device.to_owned(),
        phase: Phase::Waiting,
        asked,
        automatic,
        why: None,
        progress_percent: 0.0,
        steps: 0,
        p95_us: None,
        gave_way: 0,
        found: None,
        displaced: Vec::new(),
    }
}

/// Updates the answer with the progress and the results of the last step.
pub(super) fn tell(
    told: &mut Recalibration,
    recalibration: &qos::recalibrate::Recalibration,
    last: Option<&StepReading>,
) {
    let steps = recalibration.curves().iter().map(|curve| curve.points().len());
    told.steps = steps.sum::<usize>() as u32;
    told.progress_percent = (recalibration.progress() * 1_000.0).round() / 10.0;
    told.p95_us = last.map(|reading| reading.p95_us).or(told.p95_us);
}

/// Returns a message with the results of recalibrating a device whose 4 KiB writes cost
/// `write_before` units until now.
pub(super) fn found(findings: &Findings, write_before: u32) -> Found {
    let tokens = |units: u64| units / u64::from(TOKEN);
    let price = |units: u32| f64::from(units) / f64::from(TOKEN);
    let rate = |row: &Row| FoundRate {
        latency_us: row.latency_us,
        mixed_before: tokens(row.before.mixed),
        mixed: tokens(row.after.mixed),
        read_only_before: tokens(row.before.read_only),
        read_only: tokens(row.after.read_only),
        measured: row.is_measured,
    };
    Found {
        write_price_before: price(write_before),
        write_price: price(findings.model.cost().write()),
        write_price_measured: findings.write_cost.is_some(),
        rates: findings.rows.iter().map(rate).collect(),
        off_percent: (findings.off_max * 1_000.0).round() / 10.0,
    }
}

/// Returns a remark on the limits of the new model; `None` if it has none.
pub(super) fn remark(findings: &Findings) -> Option<String> {
    match (findings.write_cost, findings.has_mixed) {
        (Some(_), _) => None,
        (None, true) => Some(
            "only reads were probed: the price of writes is that of the old model, and rates are \
             those of the mix that there was"
                .to_owned(),
        ),
        (None, false) => Some(
            "only reads were probed, and nobody wrote: the rates of reads alone are measured, those \
             of mixes follow where these fall, and the price of writes is that of the old model"
                .to_owned(),
        ),
    }
}
