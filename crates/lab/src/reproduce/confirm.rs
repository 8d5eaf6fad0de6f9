//! Confirmation in real time of points of figures that were computed in virtual time.

use figures::Figure;
use flash::sim_flash::Preset;
use flash::sim_flash::sweep::{Load, offer};

use super::real::RealTimeSettings;
use super::tenants;
use crate::demo;

/// The largest ratio between the p95 in real time and that in virtual time, in either direction.
/// Other work of the machine takes the processor away for milliseconds.
const RATIO_MOST: f64 = 1.25;

/// Measures a point of the figure in real time and adds a verdict on it. Does nothing for figures
/// that have no such point.
pub(super) fn confirm(figure: &mut Figure, bed: &RealTimeSettings) -> Result<(), String> {
    match figure.id {
        "fig1" => device(figure, bed, 90, 100e3),
        "fig3" => device(figure, bed, 50, 50e3),
        "fig5" => figure_5(figure, bed),
        "fig6a" => tenants::core(figure, bed),
        "fig6b" => tenants::many(figure, bed),
        "hostile-be" => tenants::hostile(figure, bed),
        _ => Ok(()),
    }
}

/// Measures simulated device A without a server in real time, at a load that any machine can drive,
/// and compares its p95 with that in virtual time.
fn device(figure: &mut Figure, bed: &RealTimeSettings, reads: u8, iops: f64) -> Result<(), String> {
    outln!("{}: a point in real time …", figure.id);
    let share = f64::from(reads) / 100.0;
    let load = Load { iops, reads: share, requests: 300_000, pages: 1, seed: bed.seed };
    let meant = offer(&Preset::A.model(), 1.0, load).read_p95_us;
    let (percent, rate) = (reads.to_string(), iops.to_string());
    let words = ["--read-percent", &percent, "--rate", &rate, "--queue-depth", "1024"];
    let point = bed.measure("sim:a?size=256MiB", &words)?;
    let ratio = point.p95_us / meant;
    figure.judge(
        &format!("in real time: p95 at {:.0} K IOPS, {reads} % reads", iops / 1e3),
        &format!("{meant:.0} µs in virtual time, to within a quarter"),
        format!("{:.0} µs at {:.1} K IOPS", point.p95_us, point.iops / 1e3),
        (1.0 / RATIO_MOST..=RATIO_MOST).contains(&ratio),
    );
    Ok(())
}

/// Measures Figure 5 with a real server and real clients, on the small drive.
fn figure_5(figure: &mut Figure, bed: &RealTimeSettings) -> Result<(), String> {
    outln!("{}: in real time …", figure.id);
    let seconds = if bed.quick { 2 } else { 5 };
    let seen = demo::play(seconds, false)?;
    for (what, target, measured, met) in seen.checks() {
        let what = format!("in real time, small drive: {what}");
        figure.judge(&what, &target, measured, met);
    }
    Ok(())
}
