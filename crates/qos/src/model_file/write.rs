//! The writer of the TOML form, with comments for people.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

use super::{FORMAT, ModelFile};
use crate::RatePoint;
use crate::units::TOKEN;

impl ModelFile {
    /// Returns the file's text. [`parse`](ModelFile::parse) reads the same file from it, except
    /// that rates are written in whole tokens a second.
    pub fn to_toml(&self) -> String {
        format!("{}", Text(self))
    }
}

/// Returns the file of a device that was measured without writes: the latencies in microseconds,
/// and the rates of 4 KiB reads that reach them. The file is not a complete device model, since
/// prices and mixed rates are missing, and its parser says so.
pub fn reads_only_toml(device: &str, measured: &str, rows: &[(u32, u64)]) -> String {
    let mut text = format!(
        "# Measured without writes: prices.write, and `mixed` of every row, are missing.\n\
         format = {FORMAT}\ndevice = {}\nmeasured = {}\n\n[prices]\n\n[rates]\np95 = [\n",
        quoted(device),
        quoted(measured)
    );
    for (latency_us, read_only) in rows {
        let row = format!("    {{ latency_us = {latency_us}, read_only = {read_only} }},\n");
        text.push_str(&row);
    }
    text.push_str("]\n");
    text
}

struct Text<'a>(&'a ModelFile);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.0;
        f.write_str(
            "# A device model of nearflash (docs/reference/device-models.md), for `nearflash serve --model`.\n\
             # A token is what one random read of 4 KiB costs while reads and writes are mixed.\n",
        )?;
        writeln!(f, "format = {FORMAT}")?;
        writeln!(f, "device = {}", quoted(&file.device))?;
        writeln!(f, "measured = {}", quoted(&file.measured))?;
        f.write_str("\n# Tokens of a request of 4 KiB.\n[prices]\n")?;
        writeln!(f, "write = {}", Hundredths(file.write))?;
        writeln!(
            f,
            "read_only_read = {} # a read while the device serves nothing but reads",
            Hundredths(file.read_only_read)
        )?;
        f.write_str("\n# Tokens a second at which reads reach a latency.\n[rates]\n")?;
        writeln!(f, "max = {} # without any bound of latency", tokens(file.rate_max))?;
        rows(f, "p95", &file.p95)?;
        if !file.p99.is_empty() {
            rows(f, "p99", &file.p99)?;
        }
        if !file.sizes.is_empty() {
            f.write_str("\n# What a larger request costs, in requests of 4 KiB.\n")?;
            for point in &file.sizes {
                let weight = Hundredths(point.weight);
                write!(f, "[[sizes]]\nbytes = {}\nweight = {weight}\n", point.bytes)?;
            }
        }
        if !file.residuals.is_empty() {
            f.write_str(
                "\n# What was measured at p95, and by how much it is more than the model grants.\n",
            )?;
        }
        for residual in &file.residuals {
            writeln!(
                f,
                "[[residuals]]\nlatency_us = {}\nread_percent = {}\niops = {}\noff_percent = {:.1}",
                residual.latency_us, residual.read_percent, residual.iops, residual.off_percent
            )?;
        }
        Ok(())
    }
}

fn rows(f: &mut fmt::Formatter<'_>, name: &str, rows: &[RatePoint]) -> fmt::Result {
    writeln!(f, "{name} = [")?;
    for row in rows {
        writeln!(
            f,
            "    {{ latency_us = {}, mixed = {}, read_only = {} }},",
            row.latency_us,
            tokens(row.mixed),
            tokens(row.read_only)
        )?;
    }
    f.write_str("]\n")
}

fn tokens(rate: u64) -> u64 {
    (rate / u64::from(TOKEN)).max(1)
}

/// A number of hundredths, shown with two decimals.
struct Hundredths(u32);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Returns the text as a basic string of TOML, with its quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for sign in text.chars() {
        match sign {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            sign if sign.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(sign)).expect("text grows");
            }
            sign => quoted.push(sign),
        }
    }
    quoted.push('"');
    quoted
}
