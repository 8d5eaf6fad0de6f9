//! The configured number of workers: `4`, or `1..4` for as many as the load needs.

use std::fmt;
use std::str::FromStr;

use qos::WORKERS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The least and the largest number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct WorkerCountRange {
    /// The minimum number of workers, at least one.
    pub(crate) least: usize,
    /// The maximum number of workers: `least ≤ most ≤ WORKERS_MAX`.
    pub(crate) most: usize,
}

/// The number of workers as written in a configuration file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Written {
    /// A fixed number of workers.
    Number(usize),
    /// A range, such as `1..4`.
    Text(String),
}

impl WorkerCountRange {
    /// Returns a fixed number of workers.
    pub(crate) fn fixed(count: usize) -> Result<WorkerCountRange, String> {
        WorkerCountRange::new(count, count)
    }

    fn new(least: usize, most: usize) -> Result<WorkerCountRange, String> {
        if !(1..=WORKERS_MAX).contains(&least) || !(least..=WORKERS_MAX).contains(&most) {
            let size = WorkerCountRange { least, most };
            return Err(format!(
                "{size} workers; expected a number from 1 to {WORKERS_MAX}, or two with .. between \
                 them, such as 1..4"
            ));
        }
        Ok(WorkerCountRange { least, most })
    }
}

impl fmt::Display for WorkerCountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.most {
            true => write!(f, "{}", self.least),
            false => write!(f, "{}..{}", self.least, self.most),
        }
    }
}

impl FromStr for WorkerCountRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse().map_err(|_| {
                format!("{text:?} is no number of workers; expected 4, or 1..4, for instance")
            })
        };
        match text.split_once("..") {
            Some((least, most)) => WorkerCountRange::new(number(least)?, number(most)?),
            None => WorkerCountRange::fixed(number(text)?),
        }
    }
}

impl TryFrom<Written> for WorkerCountRange {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(count) => WorkerCountRange::fixed(count),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<WorkerCountRange> for Written {
    fn from(size: WorkerCountRange) -> Written {
        match size.least == size.most {
            true => Written::Number(size.least),
            false => Written::Text(size.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_or_explained() {
        assert_eq!("3".parse(), Ok(WorkerCountRange { least: 3, most: 3 }));
        assert_eq!("1..4".parse(), Ok(WorkerCountRange { least: 1, most: 4 }));
        for (bad, word) in [
            ("0", "from 1 to"),
            ("4..2", "such as 1..4"),
            ("1..99", "from 1 to"),
            ("many", "\"many\""),
            ("1..", "\"\""),
        ] {
            let error = bad.parse::<WorkerCountRange>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
