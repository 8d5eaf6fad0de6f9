//! The table of `cargo xtask bench packets`, for the terminal and for `docs/results/`.

use std::collections::BTreeSet;

use super::judge::{Bound, ComparedSide, Comparison, TargetResult, Verdict};

/// Returns the figures and the verdicts of the measured rows, as two tables in Markdown. `sides` is
/// the word for what the rows compare.
pub(crate) fn markdown(rows: &[Comparison], sides: &str) -> String {
    let mut text = format!(
        "| row | load | unit | {sides} | median (least–most) | ratio | taken |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let first = row.sides.first().and_then(ComparedSide::median);
        for side in &row.sides {
            let ratio = match (side.median(), first) {
                (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
                _ => "–".to_owned(),
            };
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {ratio} | {:.0} % |\n",
                row.name,
                row.about,
                row.unit,
                side.name,
                range(side),
                100.0 * side.taken(),
            ));
        }
    }
    text.push_str("\n| row | target | measured | verdict |\n|---|---|---|---|\n");
    for row in rows {
        for judged in &row.judged {
            text.push_str(&format!("| {} | {}\n", row.name, cells(judged)));
        }
    }
    text.push_str(&format!(
        "\nRatios are of medians, to the first {sides} of the row. `taken` is the share of the \
         time that other work\ntook from the server or the client, in the middle one of the \
         rounds; above 5 % nothing is decided.\n",
    ));
    text
}

/// Returns a page of results in Markdown: the machine, the tables and the command lines.
pub(super) fn document(
    machine: &str,
    mtu: u32,
    table: &str,
    commands: &BTreeSet<String>,
) -> String {
    let commands: String = commands.iter().map(|command| format!("{command}\n")).collect();
    format!(
        "# Packets beside TCP\n\nMade by `cargo xtask bench packets`: two network namespaces with \
         a veth pair, MTU {mtu}, server on\ncore 0, client on core 1, all sides of a row in turns \
         in one run.\n\n```text\n{machine}\n```\n\n{table}\nThe command lines (each server has a \
         port of its own):\n\n```sh\n{commands}```\n"
    )
}

fn cells(judged: &TargetResult) -> String {
    let bound = match judged.bound {
        Bound::AtLeast(least) => format!("≥ {least}"),
        Bound::AtMost(most) => format!("≤ {most}"),
    };
    let verdict = match &judged.verdict {
        Verdict::Met => "met".to_owned(),
        Verdict::Missed => "MISSED".to_owned(),
        Verdict::NotDecided(why) => format!("not decided: {why}"),
    };
    format!("{} {bound} | {} | {verdict} |", judged.what, judged.result)
}

fn range(side: &ComparedSide) -> String {
    let Some(median) = side.median() else { return "not measured".to_owned() };
    let least = side.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = side.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let short = |value: f64| {
        if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
    };
    format!("{} ({}–{})", short(median), short(least), short(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::packets::judge::ratio;

    fn side(name: &str, values: &[f64]) -> ComparedSide {
        let taken = vec![0.0; values.len()];
        ComparedSide { name: name.to_owned(), values: values.to_vec(), taken, obstacle: None }
    }

    #[test]
    fn figures_ratios_and_verdicts_are_shown() {
        let sides = vec![side("TCP", &[10.0, 12.0, 11.0]), side("UDP", &[220.0, 230.0, 210.0])];
        let what = "UDP beside TCP".to_owned();
        let judged = vec![ratio(what, &sides[1], &sides[0], Bound::AtLeast(4.0))];
        let about = "a load".to_owned();
        let row = Comparison { name: "deep", about, unit: "µs", sides, judged };
        let text = markdown(&[row], "transport");
        assert!(text.contains("| TCP | 11.0 (10.0–12.0) | 1.00 | 0 % |"), "{text}");
        assert!(text.contains("| UDP | 220 (210–230) | 20.00 | 0 % |"), "{text}");
        assert!(text.contains("| deep | UDP beside TCP ≥ 4 | 20.00 | met |"), "{text}");
    }
}
