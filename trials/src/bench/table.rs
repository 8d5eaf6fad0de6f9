//! The table of results of `cargo xtask bench`, for the terminal and for `docs/results/`.

use super::load::Figure;
use super::machine::Machine;
use super::rows::{MeasuredRow, RowSide};

/// The share of the time that a server must be busy for its figure to count. Below it, the server
/// waited for its client.
const BUSY_MIN: f64 = 0.85;

/// The largest number of cores kept busy by other programs at which a figure is not marked as
/// doubtful.
const OTHERS_MAX: f64 = 0.1;

const HEADINGS: [&str; 10] = [
    "row",
    "unit",
    "figure (min–max)",
    "against",
    "its figure (min–max)",
    "result",
    "target",
    "verdict",
    "server ns/request: it, other",
    "busy: server, client, others; the same of the other side",
];

/// Returns the measured rows as a Markdown table that is also readable as plain text.
pub(crate) fn markdown(rows: &[MeasuredRow]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    lines.insert(1, rule);
    let mut text = String::new();
    for cells in lines {
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("| {cell:<width$} "));
        }
        text.push_str("|\n");
    }
    text.push_str(
        "\nFigures are medians of the repetitions. A row marked `server idle` does not count: the \
         server waited\nfor its client. Nor does one marked `disturbed`: other programs kept cores \
         busy.\n",
    );
    text
}

/// Returns a page of results in Markdown: the machine, the table and the command lines.
pub(crate) fn document(machine: &Machine, table: &str, commands: &str) -> String {
    format!(
        "# Speed beside the yardsticks\n\nMade by `cargo xtask bench`: server on core 0, client on \
         core 1, both sides of each ratio in turns in one run.\n\n```\n{machine}\n```\n\n\
         {table}\nThe command lines (ports differ from run to run):\n\n```sh\n{commands}\n```\n"
    )
}

fn cells(row: &MeasuredRow) -> Vec<String> {
    let sign = if row.at_least { "≥" } else { "≤" };
    let result = if row.result.abs() < 100.0 {
        format!("{:.2}", row.result)
    } else {
        format!("{:.0}", row.result)
    };
    let theirs = row.theirs.as_ref();
    let mut busy = shares(&row.ours);
    if let Some(theirs) = theirs {
        busy = format!("{busy}; {}", shares(theirs));
    }
    vec![
        row.name.to_owned(),
        row.unit.to_owned(),
        range(&row.ours, row.of),
        theirs.map_or("–".to_owned(), |side| side.what.clone()),
        theirs.map_or("–".to_owned(), |side| range(side, row.of)),
        result,
        format!("{sign} {}", row.target),
        verdict(row),
        theirs
            .map_or(nanos(&row.ours), |theirs| format!("{}, {}", nanos(&row.ours), nanos(theirs))),
        busy,
    ]
}

fn verdict(row: &MeasuredRow) -> String {
    let sides = [Some(&row.ours), row.theirs.as_ref()];
    let disturbed =
        sides.iter().flatten().any(|side| side.median(|figure| figure.others_busy) > OTHERS_MAX);
    let idle = row.is_rate && row.ours.median(|figure| figure.server_busy) < BUSY_MIN;
    let met = if row.is_met() { "met" } else { "MISSED" };
    let but = match (disturbed, idle) {
        (true, _) => ", disturbed",
        (false, true) => ", server idle",
        (false, false) => "",
    };
    format!("{met}{but}")
}

fn nanos(side: &RowSide) -> String {
    format!("{:.0}", side.median(|figure| figure.server_nanos))
}

fn shares(side: &RowSide) -> String {
    let server = side.median(|figure| figure.server_busy) * 100.0;
    let client = side.median(|figure| figure.client_busy) * 100.0;
    let others = side.median(|figure| figure.others_busy) * 100.0;
    format!("{server:.0}, {client:.0}, {others:.0} %")
}

fn range(side: &RowSide, of: fn(&Figure) -> f64) -> String {
    let sorted = side.sorted(of);
    let (least, most) = (sorted.first().copied(), sorted.last().copied());
    let short = |value: f64| {
        if value >= 10_000.0 {
            format!("{:.0} k", value / 1000.0)
        } else if value >= 100.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.1}")
        }
    };
    let (least, most) = (short(least.unwrap_or(0.0)), short(most.unwrap_or(0.0)));
    format!("{} ({least}–{most})", short(side.median(of)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(what: &str, rates: &[f64], server_busy: f64) -> RowSide {
        let figure = |rate: &f64| Figure { rate: *rate, server_busy, ..Figure::default() };
        RowSide { what: what.to_owned(), figures: rates.iter().map(figure).collect() }
    }

    fn row(ours: f64, server_busy: f64) -> MeasuredRow {
        let of = |figure: &Figure| figure.rate;
        let ours = side("nearflash", &[ours * 1e6, 1e6, 3e6], server_busy);
        let theirs = side("ceiling", &[3e6, 4e6, 5e6], 1.0);
        let result = ours.median(of) / theirs.median(of);
        let (name, unit, theirs) = ("row", "requests/s", Some(theirs));
        let (target, at_least, is_rate) = (0.5, true, true);
        MeasuredRow { name, unit, of, ours, theirs, result, target, at_least, is_rate }
    }

    #[test]
    fn medians_ranges_and_verdicts_are_shown() {
        let text = markdown(&[row(2.0, 0.99)]);
        assert!(text.contains("2000 k (1000 k–3000 k)"), "{text}");
        assert!(text.contains("| 0.50 ") && text.contains("| met "), "{text}");
        assert_eq!(verdict(&row(1.5, 0.99)), "MISSED");
        assert_eq!(verdict(&row(2.0, 0.5)), "met, server idle");
        let mut disturbed = row(2.0, 0.5);
        disturbed.ours.figures.iter_mut().for_each(|figure| figure.others_busy = 0.5);
        assert_eq!(verdict(&disturbed), "met, disturbed");
    }

    #[test]
    fn all_lines_of_the_table_have_one_length() {
        let text = markdown(&[row(2.0, 0.99), row(1.5, 0.2)]);
        let lengths: Vec<usize> =
            text.lines().filter(|l| l.starts_with('|')).map(|l| l.chars().count()).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
    }
}
