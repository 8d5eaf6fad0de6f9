//! The structure of a figure: series to plot, a table to print, and verdicts on its targets.

use std::fmt::{self, Write as _};

/// The options of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed: the same seed gives the same figure on every machine.
    pub seed: u64,
    /// `true` for shorter runs with fewer points, for tests.
    pub quick: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, quick: false }
    }
}

/// A line of points in a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points (x, y), ascending in x, in the units of the figure's axes.
    pub points: Vec<(f64, f64)>,
}

/// A table of text. Each row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The headings of the columns.
    pub columns: Vec<String>,
    /// The rows of cells, in order.
    pub rows: Vec<Vec<String>>,
}

/// A target of a figure, and whether the measured value meets the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the measured quantity that the target is about.
    pub what: String,
    /// The condition that the quantity has to meet.
    pub target: String,
    /// The measured value, as text with its unit.
    pub measured: String,
    /// `true` if the target was met.
    pub met: bool,
}

/// A figure; its series and table are from the same runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The short name: `fig1`, …
    pub id: &'static str,
    /// The title of the figure.
    pub title: String,
    /// The quantity of the x axis, with the unit.
    pub x_label: String,
    /// The quantity of the y axis, with the unit.
    pub y_label: String,
    /// `true` if the y axis is logarithmic.
    pub log_y: bool,
    /// The series of values that the figure shows as lines or bars.
    pub series: Vec<Series>,
    /// The table of results beside the paper's.
    pub table: Table,
    /// Notes for the reader, in Markdown, one a paragraph.
    pub notes: Vec<String>,
    /// The targets of the figure, and whether they were met.
    pub verdicts: Vec<Verdict>,
}

impl Table {
    /// Creates a table with these headings and no rows.
    pub fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|text| text.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the row does not have one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column: {cells:?}");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    /// Writes the table in Markdown, with aligned columns.
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
    /// Returns `true` if every target was met.
    pub fn is_met(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.met)
    }

    /// Adds a verdict: the measured quantity, its target, its value, and whether the target was
    /// met.
    pub fn judge(&mut self, what: &str, target: &str, measured: String, met: bool) {
        let (what, target) = (what.to_string(), target.to_string());
        self.verdicts.push(Verdict { what, target, measured, met });
    }

    /// Returns the figure as a section of a Markdown document, without the plot.
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
