//! The parser of the TOML form.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use contract::REQUEST_BYTES_MAX;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{FORMAT, ModelFile, ModelFileError, ROWS_MAX, Residual};
use crate::units::{RATE_MAX, TOKEN};
use crate::{PAGE_BYTES, PRICE_MAX, RatePoint, SizePoint, WEIGHT_MAX};

/// Maximum number of characters of a value that an error message repeats.
const SHOWN_MAX: usize = 40;

/// The longest latency that a row may name, in microseconds: a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

pub(super) fn parse(text: &str) -> Result<ModelFile, ModelFileError> {
    let document = DeTable::parse(text).map_err(|error| ModelFileError {
        line: error.span().map(|span| line_of(text, span.start)),
        what: format!("this is no TOML: {}", error.message()),
    })?;
    let root = Section { text, path: String::new(), line: 1, entries: document.get_ref() };
    root.know(&["format", "device", "measured", "prices", "sizes", "rates", "residuals"])?;
    root.entry("format")?.whole(FORMAT as u64..=FORMAT as u64, "the version of this form, 1")?;
    let prices = root.entry("prices")?.section("a table of prices")?;
    prices.know(&["write", "read_only_read"])?;
    let rates = root.entry("rates")?.section("a table of rates")?;
    rates.know(&["max", "p95", "p99"])?;
    let price = |key| prices.entry(key)?.hundredths(1..=PRICE_MAX, "tokens, from 0.01 to 1000");
    let p95 = rates.entry("p95")?;
    let file = ModelFile {
        device: root.entry("device")?.words()?,
        measured: root.entry("measured")?.words()?,
        write: price("write")?,
        read_only_read: price("read_only_read")?,
        sizes: match root.find("sizes") {
            Some(entry) => sizes(&entry)?,
            None => Vec::new(),
        },
        p95: rate_rows(&p95)?,
        p99: match rates.find("p99") {
            Some(entry) => rate_rows(&entry)?,
            None => Vec::new(),
        },
        rate_max: rates.entry("max")?.rate()?,
        residuals: match root.find("residuals") {
            Some(entry) => residuals(&entry)?,
            None => Vec::new(),
        },
    };
    let Some(last) = file.p95.last() else {
        return Err(p95.unlike("at least one row of latency_us, mixed and read_only"));
    };
    if file.rate_max < last.mixed {
        let most = last.mixed / u64::from(TOKEN);
        return Err(rates
            .entry("max")?
            .unlike(&format!("at least the mixed rate of the last row, {most}")));
    }
    Ok(file)
}

fn rate_rows(entry: &Entry<'_>) -> Result<Vec<RatePoint>, ModelFileError> {
    let mut rows: Vec<RatePoint> = Vec::new();
    for row in entry.rows("rows of latency_us, mixed and read_only")? {
        row.know(&["latency_us", "mixed", "read_only"])?;
        let latency = row.entry("latency_us")?;
        let latency_us =
            latency.whole(1..=LATENCY_US_MAX, "microseconds, from 1 to 60000000")? as u32;
        let (mixed, read_only) = (row.entry("mixed")?, row.entry("read_only")?);
        let point = RatePoint { latency_us, mixed: mixed.rate()?, read_only: read_only.rate()? };
        if let Some(before) = rows.last() {
            if before.latency_us >= latency_us {
                let least = before.latency_us;
                return Err(latency.unlike(&format!("more than the {least} of the row before")));
            }
            for (entry, now, then) in
                [(mixed, point.mixed, before.mixed), (read_only, point.read_only, before.read_only)]
            {
                if now < then {
                    let least = then / u64::from(TOKEN);
                    return Err(entry.unlike(&format!(
                        "at least the {least} of the row before: more time never costs tokens"
                    )));
                }
            }
        }
        rows.push(point);
    }
    Ok(rows)
}

fn sizes(entry: &Entry<'_>) -> Result<Vec<SizePoint>, ModelFileError> {
    let mut rows: Vec<SizePoint> = Vec::new();
    for row in entry.rows("rows of bytes and weight")? {
        row.know(&["bytes", "weight"])?;
        let (size, weight) = (row.entry("bytes")?, row.entry("weight")?);
        let range = PAGE_BYTES as u64..=REQUEST_BYTES_MAX as u64;
        let point = SizePoint {
            bytes: size.whole(range, "bytes, from 4096 to 1048576")? as usize,
            weight: weight.hundredths(100..=WEIGHT_MAX, "requests of 4 KiB, from 1 to 1000")?,
        };
        if let Some(before) = rows.last() {
            if before.bytes >= point.bytes {
                let least = before.bytes;
                return Err(size.unlike(&format!("more than the {least} of the row before")));
            }
            if before.weight > point.weight {
                return Err(weight.unlike("at least that of the row before"));
            }
        }
        rows.push(point);
    }
    Ok(rows)
}

fn residuals(entry: &Entry<'_>) -> Result<Vec<Residual>, ModelFileError> {
    let mut rows = Vec::new();
    for row in entry.rows("rows of latency_us, read_percent, iops and off_percent")? {
        row.know(&["latency_us", "read_percent", "iops", "off_percent"])?;
        rows.push(Residual {
            latency_us: row.entry("latency_us")?.whole(1..=LATENCY_US_MAX, "microseconds")? as u32,
            read_percent: row.entry("read_percent")?.whole(0..=100, "per cent, 0 to 100")? as u8,
            iops: row.entry("iops")?.whole(0..=RATE_MAX, "requests a second")?,
            off_percent: row.entry("off_percent")?.number("per cent")?,
        });
    }
    Ok(rows)
}

/// A table of the file, and its position: the path of its name, and its line.
struct Section<'a> {
    text: &'a str,
    path: String,
    line: usize,
    entries: &'a DeTable<'a>,
}

/// A value of the file, and the path of its name.
struct Entry<'a> {
    text: &'a str,
    path: String,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// Returns an error if the table has a key that is not among `keys`, since a typing error would
    /// silently leave a default in place.
    fn know(&self, keys: &[&str]) -> Result<(), ModelFileError> {
        match self.entries.iter().find(|(key, _)| !keys.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some((key, _)) => Err(ModelFileError {
                line: Some(line_of(self.text, key.span().start)),
                what: format!(
                    "`{}` means nothing here; expected {}",
                    self.path_of(key.get_ref()),
                    keys.join(", ")
                ),
            }),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    fn find(&self, key: &str) -> Option<Entry<'a>> {
        let value = self.entries.get(key)?;
        Some(Entry { text: self.text, path: self.path_of(key), value })
    }

    fn entry(&self, key: &str) -> Result<Entry<'a>, ModelFileError> {
        self.find(key).ok_or_else(|| ModelFileError {
            line: Some(self.line),
            what: match key {
                "write" | "mixed" => format!(
                    "`{}` is missing: was this measured without writes? \
                     calibrate again with --allow-writes",
                    self.path_of(key)
                ),
                _ => format!("`{}` is missing", self.path_of(key)),
            },
        })
    }
}

impl<'a> Entry<'a> {
    fn line(&self) -> usize {
        line_of(self.text, self.value.span().start)
    }

    /// Returns an error with the text that was found and the text that was expected.
    fn unlike(&self, expected: &str) -> ModelFileError {
        let found = shown(self.text, self.value.span());
        ModelFileError {
            line: Some(self.line()),
            what: format!("`{} = {found}`: expected {expected}", self.path),
        }
    }

    fn section(&self, expected: &str) -> Result<Section<'a>, ModelFileError> {
        let entries = self.value.get_ref().as_table().ok_or_else(|| self.unlike(expected))?;
        Ok(Section { text: self.text, path: self.path.clone(), line: self.line(), entries })
    }

    fn rows(&self, expected: &str) -> Result<Vec<Section<'a>>, ModelFileError> {
        let rows = self.value.get_ref().as_array().ok_or_else(|| self.unlike(expected))?;
        if rows.len() > ROWS_MAX {
            return Err(self.unlike(&format!("at most {ROWS_MAX} rows")));
        }
        let row = |(n, value)| {
            let path = format!("{}[{n}]", self.path);
            Entry { text: self.text, path, value }.section(expected)
        };
        rows.iter().enumerate().map(row).collect()
    }

    fn words(&self) -> Result<String, ModelFileError> {
        let text = self.value.get_ref().as_str().ok_or_else(|| self.unlike("words in quotes"))?;
        Ok(text.to_string())
    }

    fn whole(
        &self,
        range: core::ops::RangeInclusive<u64>,
        expected: &str,
    ) -> Result<u64, ModelFileError> {
        let number = self.value.get_ref().as_integer();
        let number = number.and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        number.filter(|n| range.contains(n)).ok_or_else(|| self.unlike(expected))
    }

    fn number(&self, expected: &str) -> Result<f64, ModelFileError> {
        let value = self.value.get_ref();
        let number = match (value.as_float(), value.as_integer()) {
            (Some(number), _) => number.as_str().parse::<f64>().ok(),
            (None, Some(number)) if number.radix() == 10 => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        number.filter(|n| n.is_finite()).ok_or_else(|| self.unlike(expected))
    }

    /// Returns the entry's number in hundredths, rounded. Fails if it is outside of `range`, which
    /// is in hundredths, too.
    fn hundredths(
        &self,
        range: core::ops::RangeInclusive<u32>,
        expected: &str,
    ) -> Result<u32, ModelFileError> {
        let hundredths = libm::round(self.number(expected)? * 100.0);
        let (low, high) = (f64::from(*range.start()), f64::from(*range.end()));
        if !(low..=high).contains(&hundredths) {
            return Err(self.unlike(expected));
        }
        Ok(hundredths as u32)
    }

    /// Returns a rate in units a second. The file has it in tokens a second.
    fn rate(&self) -> Result<u64, ModelFileError> {
        let most = RATE_MAX / u64::from(TOKEN);
        let tokens = self.whole(1..=most, &format!("tokens a second, from 1 to {most}"))?;
        Ok(tokens * u64::from(TOKEN))
    }
}

/// Returns the line number of a byte offset, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count()
}

/// Returns the beginning of the first line of the text in `span`, for a message.
fn shown(text: &str, span: Range<usize>) -> String {
    let found = text.get(span).unwrap_or("").lines().next().unwrap_or("");
    match found.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &found[..end]),
        None => found.to_string(),
    }
}
