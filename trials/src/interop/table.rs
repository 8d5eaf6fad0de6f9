//! The table of the results of end-to-end tests, by kernel.

use std::fmt;

use super::kernel::Series;

/// The columns of the table: runs without a guest (`None`), then those with each kernel.
const COLUMNS: [Option<Series>; 4] =
    [None, Some(Series::V6_1), Some(Series::V6_12), Some(Series::V7)];

/// A table with one row for each test, in the order in which the tests first ran.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<(&'static str, [String; COLUMNS.len()])>,
}

impl Table {
    /// Records the result of a test's run on a kernel; `None` for a run without a guest.
    pub(super) fn set(&mut self, name: &'static str, series: Option<Series>, result: String) {
        let place = self.rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
            self.rows.push((name, Default::default()));
            self.rows.len() - 1
        });
        let column = COLUMNS.iter().position(|column| *column == series);
        self.rows[place].1[column.expect("every kernel has a column")] = result;
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = |series: Option<Series>| series.map_or("no guest", Series::name);
        let width = self.rows.iter().map(|row| row.0.len()).max().unwrap_or(0).max("test".len());
        write!(f, "{:<width$}", "test")?;
        COLUMNS.iter().try_for_each(|column| write!(f, "  {:>8}", head(*column)))?;
        for (name, results) in &self.rows {
            write!(f, "\n{name:<width$}")?;
            results.iter().try_for_each(|result| write!(f, "  {result:>8}"))?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_one_row_whatever_its_kernels() {
        let mut table = Table::default();
        table.set("kills", None, "3 s".to_owned());
        table.set("mounts", Some(Series::V6_12), "12 s".to_owned());
        table.set("mounts", Some(Series::V6_1), "FAILED".to_owned());
        assert_eq!(
            table.to_string(),
            "test    no guest       6.1      6.12         7\n\
             kills        3 s                              \n\
             mounts              FAILED      12 s          \n"
        );
    }
}
