//! What a figure is: series to plot, a table to print, and verdicts to check.

use std::fmt::{self, Write as _};

/// How a figure is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where chance starts: the same seed gives the same figure on every machine.
    pub seed: u64,
    /// Shorter runs with fewer points, for tests.
    pub quick: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, quick: false }
    }
}

/// One line of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// Rows of text under headings; every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Headings.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// A target and whether it was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What was measured.
    pub what: String,
    /// What it should be.
    pub target: String,
    /// What it was.
    pub measured: String,
    /// Whether that is as it should be.
    pub met: bool,
}

/// A figure: its series and table stand for the same runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its short name: `fig1`, …
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// What the x axis counts, with the unit.
    pub x_label: String,
    /// What the y axis counts, with the unit.
    pub y_label: String,
    /// Whether the y axis is logarithmic.
    pub log_y: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// The figures beside the paper's.
    pub table: Table,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// What was to be shown.
    pub verdicts: Vec<Verdict>,
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|text| text.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column: {cells:?}");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    /// In Markdown, with columns that stand below each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let wide = |n: usize| lines().map(|line| line[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(|n| wide(n).max(3)).collect();
        for (number, line) in lines().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            f.write_str("|\n")?;
            if number == 0 {
                for width in &widths {
                    write!(f, "|{}", "-".repeat(width + 2))?;
                }
                f.write_str("|\n")?;
            }
        }
        Ok(())
    }
}

impl Figure {
    /// Whether every target was met.
    pub fn is_met(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.met)
    }

    /// Adds a verdict.
    pub fn judge(&mut self, what: &str, target: &str, measured: String, met: bool) {
        let (what, target) = (what.to_string(), target.to_string());
        self.verdicts.push(Verdict { what, target, measured, met });
    }

    /// The figure as a section of a Markdown document, without the plot.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("## {}: {}\n\n{}", self.id, self.title, self.table);
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        if !self.verdicts.is_empty() {
            let mut table = Table::new(&["measure", "target", "measured", "verdict"]);
            for verdict in &self.verdicts {
                let Verdict { what, target, measured, met } = verdict;
                let met = if *met { "met" } else { "MISSED" };
                table.row(vec![what.clone(), target.clone(), measured.clone(), met.to_string()]);
            }
            let _ = write!(text, "\n{table}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&["a", "µs"]);
        table.row(vec!["long one".to_string(), "1".to_string()]);
        let lines = ["| a        | µs  |", "|----------|-----|", "| long one | 1   |", ""];
        assert_eq!(table.to_string(), lines.join("\n"));
    }
}
