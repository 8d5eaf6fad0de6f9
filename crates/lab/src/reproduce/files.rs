//! The files of a figure: its table and its points as CSV, its plot as SVG.

use std::fmt::Write as _;
use std::path::Path;

use figures::Figure;

use crate::plot;

/// Writes a figure's files into `folder`: `ID.csv` and, if there are points, `ID-points.csv` and
/// `ID.svg`.
pub(super) fn write(folder: &Path, figure: &Figure) -> Result<(), String> {
    let write = |name: String, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    let id = figure.id;
    write(format!("{id}.csv"), table(figure))?;
    if figure.series.iter().any(|series| !series.points.is_empty()) {
        write(format!("{id}-points.csv"), points(figure))?;
        write(format!("{id}.svg"), plot::svg(figure)?)?;
    }
    Ok(())
}

fn table(figure: &Figure) -> String {
    let mut text = String::new();
    for row in std::iter::once(&figure.table.columns).chain(&figure.table.rows) {
        let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

fn points(figure: &Figure) -> String {
    let (x, y) = (quoted(&figure.x_label), quoted(&figure.y_label));
    let mut text = format!("series,{x},{y}\n");
    for series in &figure.series {
        for (x, y) in &series.points {
            let _ = writeln!(text, "{},{x},{y}", quoted(&series.name));
        }
    }
    text
}

/// Returns a cell of CSV, in quotes if it needs them (RFC 4180).
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::{Series, Table};

    #[test]
    fn tables_and_points_are_written() {
        let mut table = Table::new(&["reads, %", "p95"]);
        table.row(vec!["say \"99\"".to_owned(), "500".to_owned()]);
        let figure = Figure {
            id: "fig1",
            title: "a".to_owned(),
            x_label: "IOPS".to_owned(),
            y_label: "µs".to_owned(),
            log_y: true,
            series: vec![Series { name: "one, two".to_owned(), points: vec![(1.0, 2.5)] }],
            table,
            notes: Vec::new(),
            verdicts: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &figure).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("fig1.csv"), "\"reads, %\",p95\n\"say \"\"99\"\"\",500\n");
        assert_eq!(read("fig1-points.csv"), "series,IOPS,µs\n\"one, two\",1,2.5\n");
        assert!(read("fig1.svg").starts_with("<svg"));
    }
}
