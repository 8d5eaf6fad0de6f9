//! The paper's Figures 1 and 3 for one device, in one picture.

use figures::{Figure, Series, Table};
use qos::calibrate::{Calibration, Fit, Percentile, Search};

use crate::plot;

/// The smallest distance of two drawn points in the natural logarithm of the load. The search
/// measures often where a curve is steep; points that are closer are drawn as one. Crossings are
/// always drawn.
const APART: f64 = 0.1;

/// Width and height in pixels of each of the two figures.
const SIZE: (u32, u32) = (1600, 1000);

/// Returns the picture as an SVG document: p95 against requests a second above, against tokens a
/// second below. `fit` is `None` if writes were not measured.
pub(super) fn svg(
    device: &str,
    calibration: &Calibration,
    fit: Option<&Fit>,
) -> Result<String, String> {
    let requests = figure(
        calibration,
        format!("{device}: p95 read latency against load"),
        "requests of 4 KiB, thousands a second",
        |_| 1.0,
    );
    let mut parts = vec![plot::svg(&requests)?];
    if let Some(fit) = fit {
        let tokens = |percent: u8| match percent {
            100 => fit.read_only_cost,
            percent => {
                let reads = f64::from(percent) / 100.0;
                reads + (1.0 - reads) * fit.write_cost
            }
        };
        let title = format!(
            "{device}: the same against tokens (a write {:.1}, a read without writes {:.2})",
            fit.write_cost, fit.read_only_cost
        );
        parts.push(plot::svg(&figure(calibration, title, "thousands of tokens a second", tokens))?);
    }
    Ok(stacked(&parts))
}

fn figure(
    calibration: &Calibration,
    title: String,
    x_label: &str,
    weight: impl Fn(u8) -> f64,
) -> Figure {
    let loads = calibration.curves().iter().filter(|curve| !curve.mix().is_probed);
    let series = loads.map(|curve| {
        let percent = curve.mix().read_percent;
        Series { name: format!("{percent} % reads"), points: points(curve, weight(percent) / 1e3) }
    });
    Figure {
        id: "calibration",
        title,
        x_label: x_label.to_owned(),
        y_label: "p95 read latency, µs".to_owned(),
        log_y: false,
        series: series.collect(),
        table: Table::default(),
        notes: Vec::new(),
        verdicts: Vec::new(),
    }
}

/// Returns the (load, p95 in µs) points of a curve, with loads times `scale`: the points measured
/// below the highest latency goal, and the crossings of all p95 goals. A point below its
/// predecessor, from noise or a short run, is left out, so the curve never falls.
fn points(curve: &Search, scale: f64) -> Vec<(f64, f64)> {
    let goals = || curve.goals().iter().filter(|goal| goal.percentile == Percentile::P95);
    let highest = goals().map(|goal| goal.latency_us).max().map_or(f64::INFINITY, f64::from);
    let crossings =
        goals().filter_map(|goal| Some((curve.crossing(*goal)?, f64::from(goal.latency_us))));
    let mut points: Vec<(f64, f64)> = crossings.collect();
    let first = points.iter().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let measured = curve.points().iter().filter(|point| {
        let is_apart = |other: &(f64, f64)| (point.offer.iops / other.0).ln().abs() > APART;
        let is_rung = point.offer.is_long || point.offer.iops < first;
        is_rung && point.outcome.p95_us < highest && points.iter().all(is_apart)
    });
    let mut drawn = Vec::new();
    for point in measured {
        let iops = point.offer.iops;
        if drawn.last().is_none_or(|last: &(f64, f64)| (iops / last.0).ln() > APART) {
            drawn.push((iops, point.outcome.p95_us));
        }
    }
    points.extend(drawn);
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut risen: Vec<(f64, f64)> = Vec::new();
    for (iops, p95_us) in points {
        if risen.last().is_none_or(|last| p95_us >= last.1 && iops * scale > last.0) {
            risen.push((iops * scale, p95_us));
        }
    }
    risen
}

/// Returns one SVG document that shows the SVG documents in `parts` above each other.
fn stacked(parts: &[String]) -> String {
    let (width, height) = SIZE;
    let all = height * parts.len() as u32;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{all}\" \
         viewBox=\"0 0 {width} {all}\">\n"
    );
    for (n, part) in parts.iter().enumerate() {
        let y = height * n as u32;
        text.push_str(&part.replacen("<svg ", &format!("<svg y=\"{y}\" "), 1));
        text.push('\n');
    }
    text.push_str("</svg>\n");
    text
}
