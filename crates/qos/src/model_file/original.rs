//! The parser of the original ReFlex's form: `name = value` and a list of rows in braces, with `#`
//! comments (a subset of libconfig's syntax).
//!
//! The form has a price for writes, and for each latency a rate for mixed and one for read-only
//! loads, in units where a 4 KiB read costs 100. It lacks the price for reads of a read-only load,
//! which becomes the highest that the rows imply, so that no row's read-only rate is exceeded. A
//! maximum rate below the last row's (as in the published model of a cloud device) is raised to it.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::read::line_of;
use super::{ModelFile, ModelFileError, ROWS_MAX};
use crate::units::{RATE_MAX, TOKEN};
use crate::{PRICE_MAX, RatePoint};

const READ_COST: &str = "read_cost_4KB";
const WRITE_COST: &str = "write_cost_4KB";
const RATE_MAX_NAME: &str = "max_token_rate";
const ROWS: &str = "token_limits";
const LATENCY: &str = "p95_latency_limit";
const READ_ONLY_RATE: &str = "max_rdonly_token_rate";

/// Returns `true` if the text is in the original ReFlex's form rather than in TOML.
pub(super) fn is_original(text: &str) -> bool {
    let code = |line: &str| {
        let code = line.split('#').next().unwrap_or("").trim_start();
        code.starts_with(WRITE_COST) || code.starts_with(ROWS)
    };
    text.lines().any(code)
}

pub(super) fn parse(text: &str) -> Result<ModelFile, ModelFileError> {
    let mut reader = Reader { text, at: 0 };
    let (mut read_cost, mut write_cost, mut rate_max) = (None, None, None);
    let mut rows = None;
    while let Some(name) = reader.name()? {
        let line = name.line;
        match name.word {
            READ_COST => set(&mut read_cost, &name, reader.number(u64::from(PRICE_MAX))?)?,
            WRITE_COST => set(&mut write_cost, &name, reader.number(u64::from(PRICE_MAX))?)?,
            RATE_MAX_NAME => set(&mut rate_max, &name, reader.number(RATE_MAX)?)?,
            ROWS => {
                let found = reader.rows()?;
                set(&mut rows, &name, found)?;
            }
            other => {
                return Err(at(
                    line,
                    format!(
                        "`{other}` means nothing here; expected {READ_COST}, {WRITE_COST}, \
                         {RATE_MAX_NAME} or {ROWS}"
                    ),
                ));
            }
        }
    }
    let missing = |name: &str| ModelFileError { line: None, what: format!("`{name}` is missing") };
    let read = read_cost.ok_or_else(|| missing(READ_COST))?;
    let write = write_cost.ok_or_else(|| missing(WRITE_COST))?;
    let most = rate_max.ok_or_else(|| missing(RATE_MAX_NAME))?;
    let rows: Vec<RatePoint> = rows.ok_or_else(|| missing(ROWS))?;
    // Rates and prices in its own units, whatever the read costs there.
    let scaled = |amount: u64| amount.saturating_mul(u64::from(TOKEN)) / read;
    let p95: Vec<RatePoint> = rows
        .iter()
        .map(|row| RatePoint {
            latency_us: row.latency_us,
            mixed: scaled(row.mixed),
            read_only: scaled(row.read_only),
        })
        .collect();
    let dearest =
        p95.iter().map(|row| (row.mixed * u64::from(TOKEN)).div_ceil(row.read_only.max(1)));
    let read_only_read = dearest.max().unwrap_or(0).clamp(1, u64::from(TOKEN)) as u32;
    let last = p95.last().map_or(0, |row| row.mixed);
    Ok(ModelFile {
        device: "a device of the original ReFlex".to_owned(),
        measured: "read from a device model in the form of the original ReFlex".to_owned(),
        write: scaled(write).min(u64::from(PRICE_MAX)) as u32,
        read_only_read,
        sizes: Vec::new(),
        rate_max: scaled(most).max(last),
        p95,
        p99: Vec::new(),
        residuals: Vec::new(),
    })
}

fn at(line: usize, what: String) -> ModelFileError {
    ModelFileError { line: Some(line), what }
}

fn set<V>(place: &mut Option<V>, name: &Word<'_>, value: V) -> Result<(), ModelFileError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(at(name.line, format!("`{}` stands there twice", name.word))),
    }
}

/// A word or a sign of the text, and the number of its line.
struct Word<'a> {
    word: &'a str,
    line: usize,
}

struct Reader<'a> {
    text: &'a str,
    /// The number of bytes of `text` that were parsed.
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next word or sign without taking it; its text is empty at the end.
    fn peek(&mut self) -> Word<'a> {
        let text: &'a str = self.text;
        loop {
            let rest = &text[self.at..];
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            if !text[self.at..].starts_with('#') {
                break;
            }
            self.at = text[self.at..].find('\n').map_or(text.len(), |end| self.at + end);
        }
        let rest = &text[self.at..];
        let is_word = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '-' | '.');
        let end = rest.find(|sign| !is_word(sign)).unwrap_or(rest.len());
        let end = if end == 0 { rest.chars().next().map_or(0, char::len_utf8) } else { end };
        Word { word: &rest[..end], line: line_of(text, self.at) }
    }

    fn next(&mut self) -> Word<'a> {
        let word = self.peek();
        self.at += word.word.len();
        word
    }

    fn expect(&mut self, signs: &[&str]) -> Result<Word<'a>, ModelFileError> {
        let found = self.next();
        if signs.contains(&found.word) {
            return Ok(found);
        }
        let found_text = if found.word.is_empty() { "the end" } else { found.word };
        let expected = signs.join("` or `");
        Err(at(found.line, format!("found `{found_text}`, expected `{expected}`")))
    }

    /// Takes the name of the next setting, and the `=` or `:` behind it. Returns `None` at the end
    /// of the text.
    fn name(&mut self) -> Result<Option<Word<'a>>, ModelFileError> {
        while self.peek().word == ";" {
            self.next();
        }
        let name = self.next();
        if name.word.is_empty() {
            return Ok(None);
        }
        self.expect(&["=", ":"])?;
        Ok(Some(name))
    }

    fn number(&mut self, most: u64) -> Result<u64, ModelFileError> {
        let found = self.next();
        let number = found.word.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| {
            let what = format!("found `{}`, expected a whole number from 1 to {most}", found.word);
            at(found.line, what)
        })
    }

    fn rows(&mut self) -> Result<Vec<RatePoint>, ModelFileError> {
        let mut rows: Vec<RatePoint> = Vec::new();
        self.expect(&["("])?;
        loop {
            let open = self.expect(&["{"])?;
            let row = self.row(open.line)?;
            if let Some(before) = rows.last()
                && (before.latency_us >= row.latency_us
                    || before.mixed > row.mixed
                    || before.read_only > row.read_only)
            {
                return Err(at(
                    open.line,
                    format!(
                        "the row of {} µs: expected a longer latency than the row before, and \
                         rates that do not fall",
                        row.latency_us
                    ),
                ));
            }
            rows.push(row);
            if rows.len() > ROWS_MAX {
                return Err(at(open.line, format!("expected at most {ROWS_MAX} rows")));
            }
            if self.expect(&[",", ")"])?.word == ")" {
                return Ok(rows);
            }
        }
    }

    fn row(&mut self, line: usize) -> Result<RatePoint, ModelFileError> {
        let (mut latency_us, mut mixed, mut read_only) = (None, None, None);
        while self.peek().word != "}" {
            let Some(name) = self.name()? else { break };
            match name.word {
                LATENCY => set(&mut latency_us, &name, self.number(u64::from(u32::MAX))?)?,
                RATE_MAX_NAME => set(&mut mixed, &name, self.number(RATE_MAX)?)?,
                READ_ONLY_RATE => set(&mut read_only, &name, self.number(RATE_MAX)?)?,
                other => {
                    return Err(at(
                        name.line,
                        format!(
                            "`{other}` means nothing here; expected {LATENCY}, {RATE_MAX_NAME} or \
                             {READ_ONLY_RATE}"
                        ),
                    ));
                }
            }
            while matches!(self.peek().word, "," | ";") {
                self.next();
            }
        }
        self.expect(&["}"])?;
        let missing = |name: &str| at(line, format!("`{name}` is missing in the row of this line"));
        let mixed = mixed.ok_or_else(|| missing(RATE_MAX_NAME))?;
        Ok(RatePoint {
            latency_us: latency_us.ok_or_else(|| missing(LATENCY))? as u32,
            mixed,
            // Without a rate of its own, a read-only load has the rate of all loads.
            read_only: read_only.unwrap_or(mixed),
        })
    }
}
