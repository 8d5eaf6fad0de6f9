//! Tables of text without ruled lines: columns are two blanks apart, and numbers are on the right.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// The alignment of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// Returns a table without rows, with these column titles and alignments.
pub(super) fn table(columns: &[(&str, Side)]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(title, _)| *title));
    for (column, (n, (_, side))) in table.column_iter_mut().zip(columns.iter().enumerate()) {
        column.set_padding((0, if n + 1 == columns.len() { 0 } else { 2 }));
        column.set_cell_alignment(match side {
            Side::Left => CellAlignment::Left,
            Side::Right => CellAlignment::Right,
        });
    }
    table
}

/// Returns the table of these columns with a row for each item, or the text `none` without any item.
pub(super) fn rows_or<T, const N: usize>(
    none: &str,
    columns: [(&str, Side); N],
    items: &[T],
    row: impl Fn(&T) -> [String; N],
) -> String {
    let mut table = table(&columns);
    table.add_rows(items.iter().map(row));
    if items.is_empty() { none.to_owned() } else { text(&table) }
}

/// Returns the table as lines of text, without trailing blanks.
pub(super) fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns a title and, below it, a line with the name and the value of each fact.
pub(super) fn facts(title: &str, facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    let each = facts.iter().map(|(what, value)| format!("\n  {what:width$}  {value}"));
    title.to_owned() + &each.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        let mut table = table(&[("NAME", Side::Left), ("IOPS", Side::Right), ("NOTE", Side::Left)]);
        table.add_row(["gold", "120 000", ""]);
        table.add_row(["größer", "9", "late"]);
        assert_eq!(
            text(&table),
            "NAME       IOPS  NOTE\n\
             gold    120 000\n\
             größer        9  late"
        );
    }
}
