//! The results of a calibration: the device model, a table for people, JSON for programs.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qos::calibrate::{Calibration, Crossing, Fit, Percentile, Search};
use qos::model_file::ModelFile;
use qos::units::TOKEN;
use serde::Serialize;

use super::output::write_whole;
use super::picture;
use super::stop::CalibrationError;
use crate::report::{micros_text, number_text, time_text};
use flash::size_text;

/// The results of a calibration, and the conditions under which they were measured.
pub(super) struct Findings<'a> {
    pub(super) calibration: &'a Calibration,
    /// The device's name in the model.
    pub(super) device: &'a str,
    /// The specification of the device that was opened.
    pub(super) spec: &'a str,
    pub(super) is_virtual: bool,
    pub(super) seed: u64,
    pub(super) requests: u64,
    pub(super) took: Duration,
    /// `true` if writes were measured, too.
    pub(super) writes: bool,
}

/// The results as one JSON object. Programs rely on its fixed shape.
#[derive(Serialize)]
struct Json<'a> {
    device: &'a str,
    measured: &'a str,
    requests: u64,
    seconds: f64,
    /// The fitted model; `None` if writes were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<JsonModel>,
    curves: Vec<JsonCurve>,
}

#[derive(Serialize)]
struct JsonModel {
    write_cost: f64,
    read_only_cost: f64,
    tokens_max: f64,
    p95: Vec<JsonRow>,
    p99: Vec<JsonRow>,
    sizes: Vec<JsonSize>,
    residuals: Vec<JsonResidual>,
}

#[derive(Serialize)]
struct JsonRow {
    latency_us: u32,
    mixed: u64,
    read_only: u64,
}

#[derive(Serialize)]
struct JsonSize {
    bytes: usize,
    weight: f64,
}

#[derive(Serialize)]
struct JsonResidual {
    latency_us: u32,
    read_percent: u8,
    iops: u64,
    off_percent: f64,
}

#[derive(Serialize)]
struct JsonCurve {
    read_percent: u8,
    bytes: usize,
    probed: bool,
    points: Vec<JsonPoint>,
}

/// A point that was measured: a load and its latencies, which are null if the device was
/// overloaded.
#[derive(Serialize)]
struct JsonPoint {
    offered_iops: f64,
    iops: f64,
    mean_us: Option<f64>,
    p95_us: Option<f64>,
    p99_us: Option<f64>,
}

impl Findings<'_> {
    /// Fits the device model, writes the model file to `output` and the SVG plot to `plot`, and
    /// prints the results.
    pub(super) fn write(
        &self,
        output: &Path,
        plot: &Path,
        json: bool,
    ) -> Result<(), CalibrationError> {
        let measured = self.measured();
        let crossings = self.calibration.crossings();
        if !crossings.iter().any(|c| c.percentile == Percentile::P95) {
            return Err(CalibrationError::Failed(self.too_slow()));
        }
        let fit = match self.writes {
            true => Some(self.calibration.findings().map_err(|misfit| {
                CalibrationError::Failed(format!("{misfit}\nno device model was written"))
            })?),
            false => None,
        };
        let file = fit.as_ref().map(|fit| {
            let tokens_max = self.calibration.tokens_max(fit);
            fit.to_file(self.device, &measured, self.calibration.sizes(), tokens_max)
        });
        let text = match &file {
            Some(file) => file.to_toml(),
            None => self.reads_only(&measured),
        };
        let svg = picture::svg(self.device, self.calibration, fit.as_ref());
        write_whole(plot, &svg?)?;
        write_whole(output, &text)?;
        if json {
            outln!("{}", self.json(&measured, fit.as_ref(), file.as_ref()));
        } else {
            out!("{}", self.table(fit.as_ref(), file.as_ref()));
            outln!("\nwrote {} and {}", output.display(), plot.display());
            match fit {
                Some(_) => outln!(
                    "next: nearflash serve --device {} --model {}",
                    self.spec,
                    output.display()
                ),
                None => outln!(
                    "missing: the write cost and the mixed rates; calibrate again with \
                     --allow-writes, which overwrites the device"
                ),
            }
        }
        Ok(())
    }

    /// Returns the text of the error that no rate crosses a requested latency: reads alone miss all
    /// of them, or meet all at any load.
    fn too_slow(&self) -> String {
        let curve = self.calibration.curves().first();
        let unloaded = curve.and_then(|curve| curve.points().first());
        let p95_us = unloaded.map_or(f64::INFINITY, |point| point.outcome.p95_us);
        let p95 = micros_text(p95_us);
        format!(
            "the device meets none of these latencies, or all of them at any load: unloaded, reads \
             have a p95 of {p95}; name others with --latency"
        )
    }

    /// Returns one line for the model file: the date, the program's version, the device, the clock
    /// and the seed.
    #[expect(clippy::disallowed_methods, reason = "the model says when it was made")]
    fn measured(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = if self.is_virtual { "in virtual time" } else { "in real time" };
        format!(
            "{} by nearflash {} on {}, {time}, seed {}",
            date(since.as_secs() / 86_400),
            env!("CARGO_PKG_VERSION"),
            self.spec,
            self.seed
        )
    }

    /// Returns the incomplete model file of a device that was measured without writes.
    fn reads_only(&self, measured: &str) -> String {
        let rows: Vec<(u32, u64)> = self
            .calibration
            .crossings()
            .iter()
            .filter(|c| c.percentile == Percentile::P95)
            .map(|c| (c.latency_us, c.iops as u64))
            .collect();
        qos::model_file::reads_only_toml(self.device, measured, &rows)
    }

    fn table(&self, fit: Option<&Fit>, file: Option<&ModelFile>) -> String {
        let mut text = format!("{}: {}\n\n", self.device, self.effort());
        let (Some(fit), Some(file)) = (fit, file) else {
            text.push_str(&self.reads_table());
            return text;
        };
        let cost = |units: u32| number_text(f64::from(units) / f64::from(TOKEN));
        let _ = writeln!(text, "tokens of a request (a 4 KiB read of a mixed load is one)");
        let _ = writeln!(text, "  4 KiB write                  {:>8}", cost(file.write));
        let _ = writeln!(text, "  4 KiB read, nothing but reads {:>7}", cost(file.read_only_read));
        for size in file.sizes.iter().skip(1) {
            let weight = number_text(f64::from(size.weight) / 100.0);
            let bytes = size_text(size.bytes as u64);
            let _ = writeln!(text, "  {bytes:>8} read               {weight:>8}");
        }
        for (name, rows) in [("p95", &file.p95), ("p99", &file.p99)] {
            if rows.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{name:<10}{:>16}{:>18}", "tokens/s, mixed", "reads/s, alone");
            for row in rows {
                let latency = micros_text(row.latency_us.into());
                let mixed = number_text((row.mixed / u64::from(TOKEN)) as f64);
                let reads = number_text((row.read_only / u64::from(TOKEN)) as f64);
                let _ = writeln!(text, "{latency:<10}{mixed:>16}{reads:>18}");
            }
        }
        let off = || fit.points.iter().map(|point| point.off * 100.0);
        let _ = writeln!(
            text,
            "\nthe curves fall together within {:+.0} % and {:+.0} %",
            off().fold(0.0, f64::min),
            off().fold(0.0, f64::max)
        );
        for (latency_us, off) in &fit.left_out {
            let latency = micros_text((*latency_us).into());
            let off = off * 100.0;
            let _ = writeln!(
                text,
                "note: no rate for {latency}: the curves are {off:.0} % apart there"
            );
        }
        if let Some((latency_us, excess)) = fit.read_only_excess.last() {
            let latency = micros_text((*latency_us).into());
            let _ = writeln!(
                text,
                "note: where all bounds are as long as {latency}, a load of reads alone is sold {:.0} % \
                 more than the device serves",
                excess * 100.0
            );
        }
        text
    }

    fn effort(&self) -> String {
        let requests = number_text(self.requests as f64);
        format!("{requests} requests in {}", time_text(self.took.as_nanos() as f64))
    }

    fn reads_table(&self) -> String {
        let mut text = format!("{:<10}{:>18}\n", "p95", "reads/s, alone");
        for crossing in self.calibration.crossings() {
            let Crossing { percentile, latency_us, iops, .. } = crossing;
            if percentile == Percentile::P95 {
                let latency = micros_text(latency_us.into());
                let _ = writeln!(text, "{latency:<10}{:>18}", number_text(iops.round()));
            }
        }
        text
    }

    fn json(&self, measured: &str, fit: Option<&Fit>, file: Option<&ModelFile>) -> String {
        let model = fit.zip(file).map(|(fit, file)| {
            let row = |row: &qos::RatePoint| JsonRow {
                latency_us: row.latency_us,
                mixed: row.mixed / u64::from(TOKEN),
                read_only: row.read_only / u64::from(TOKEN),
            };
            let size = |size: &qos::SizePoint| JsonSize {
                bytes: size.bytes,
                weight: f64::from(size.weight) / 100.0,
            };
            let residual = |residual: &qos::Residual| JsonResidual {
                latency_us: residual.latency_us,
                read_percent: residual.read_percent,
                iops: residual.iops,
                off_percent: residual.off_percent,
            };
            JsonModel {
                write_cost: fit.write_cost,
                read_only_cost: fit.read_only_cost,
                tokens_max: (file.rate_max / u64::from(TOKEN)) as f64,
                p95: file.p95.iter().map(row).collect(),
                p99: file.p99.iter().map(row).collect(),
                sizes: file.sizes.iter().map(size).collect(),
                residuals: file.residuals.iter().map(residual).collect(),
            }
        });
        let json = Json {
            device: self.device,
            measured,
            requests: self.requests,
            seconds: self.took.as_secs_f64(),
            model,
            curves: self.calibration.curves().iter().map(curve).collect(),
        };
        serde_json::to_string(&json).expect("numbers and words are JSON")
    }
}

fn curve(curve: &Search) -> JsonCurve {
    let known = |us: f64| us.is_finite().then_some(us);
    let points = curve.points().iter().map(|point| JsonPoint {
        offered_iops: point.offer.iops,
        iops: point.outcome.iops,
        mean_us: known(point.outcome.mean_us),
        p95_us: known(point.outcome.p95_us),
        p99_us: known(point.outcome.p99_us),
    });
    JsonCurve {
        read_percent: curve.mix().read_percent,
        bytes: curve.mix().bytes,
        probed: curve.mix().is_probed,
        points: points.collect(),
    }
}

/// Returns the date of a day since 1970-01-01, by arithmetic of 400-year cycles that begin in
/// March.
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) =
        (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (day, text) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_778, "2026-11-21"),
        ] {
            assert_eq!(date(day), text);
        }
    }
}
