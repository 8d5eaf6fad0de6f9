//! The figure `flashnet-wa`: the write amplification of flash translation by spare space, skew and
//! policy, compared with the values of the FlashNet paper.
//!
//! The translation under test is the real one, over members that store no data. Its metadata counts
//! as written: headers, checkpoints, superblocks.

use ftl::Policy;
use ftl::amplification::{Case, Oracle, Skew, measure, measure_oracle};

use super::text::off;
use super::{Figure, Options, Series, Table};

/// Number of pages of a segment.
const SEGMENT_PAGES: u32 = 64;
/// Number of page writes of the host in flight.
const DEPTH: u32 = 128;
/// The relative changes of the amplification under skew that the paper reports (section 7.1.4),
/// without saying its spare space or its window.
const PAPER: [(&str, f64); 2] = [("80/20", -0.38), ("95/20", -0.83)];

/// The note below the table.
const NOTE: &str = "\
Random writes of 4 KiB, 128 under way, in the steady state; segments of 64 pages. 80/20 and 95/20
are Zipf distributions whose most frequent fifth of the pages gets 80 and 95 % of the writes. All
columns have the spare space, the headers and the checkpoints of the row.

The paper (FlashNet, section 7.1.4) compares with greedy collection in a window, and states neither
its window nor its spare space. Its two savings are not of one curve: at a spare space where 95/20
saves 83 %, 80/20 saves far more than 38 %.

The oracle knows the true rank of each page by its frequency, and fixes by it which pages are hot,
warm and cold. It has the same three streams and choice of victims. Shown is the best of its cuts,
each of the shares of hot and of warm pages, in per cent:
CUTS.";

/// The spare space at which three streams are compared with those of an oracle.
const ORACLE_SPARE_PER_MILLE: u32 = 100;

/// The shares of hot and warm pages, in thousandths, of which the best is the oracle's.
const CUTS: [(u32, u32); 9] =
    [(2, 48), (5, 95), (10, 90), (10, 190), (20, 130), (20, 280), (50, 150), (50, 350), (100, 300)];

/// The distributions of page writes, with their names in the table.
const SKEWS: [(&str, Skew); 3] =
    [("80/20", Skew::Zipf(0.8)), ("95/20", Skew::Zipf(0.95)), ("uniform", Skew::Uniform)];

/// The collection policies that a row of the table compares, in the order of its columns.
const POLICIES: [Policy; 5] = [
    Policy::baseline(10),
    Policy::baseline(2),
    Policy::baseline(100),
    Policy::HEAT3,
    Policy::HEAT6,
];

/// The write amplifications of all policies for one distribution of writes at one spare space.
#[derive(Clone, Copy, Debug)]
struct Row {
    spare_per_mille: u32,
    skew: &'static str,
    /// The amplification with greedy collection among the oldest tenth of the segments.
    baseline: f64,
    /// The amplification with greedy collection among the oldest fiftieth of the segments.
    narrow: f64,
    /// The amplification with greedy collection among all segments.
    greedy: f64,
    heat3: f64,
    heat6: f64,
    /// The least amplification of three streams by the true ranks of pages, where it is measured.
    oracle: Option<f64>,
}

impl Row {
    fn measure(options: &Options, spare_per_mille: u32, (name, skew): (&'static str, Skew)) -> Row {
        let (pages, overwrites) = if options.quick { (32_768, 2) } else { (262_144, 4) };
        let case = |policy| Case {
            pages,
            segment_pages: SEGMENT_PAGES,
            spare_per_mille,
            skew,
            policy,
            depth: DEPTH,
            overwrites,
        };
        let [baseline, narrow, greedy, heat3, heat6] =
            POLICIES.map(|policy| measure(&case(policy)).amplification());
        let is_compared = spare_per_mille == ORACLE_SPARE_PER_MILLE && skew != Skew::Uniform;
        let oracle = is_compared.then(|| {
            let of = |(hot_per_mille, warm_per_mille)| {
                let oracle = Oracle { hot_per_mille, warm_per_mille };
                measure_oracle(&case(Policy::HEAT3), oracle).amplification()
            };
            CUTS.map(of).into_iter().fold(f64::INFINITY, f64::min)
        });
        Row { spare_per_mille, skew: name, baseline, narrow, greedy, heat3, heat6, oracle }
    }

    /// Returns the relative difference between the amplification of three streams and that of the
    /// baseline: -0.38 is 38 % less.
    fn change(&self) -> f64 {
        self.heat3 / self.baseline - 1.0
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: f64| format!("{value:.2}");
        let paper = PAPER.iter().find(|(skew, _)| *skew == self.skew);
        vec![
            spare(self.spare_per_mille),
            self.skew.to_string(),
            number(self.baseline),
            number(self.narrow),
            number(self.greedy),
            number(self.heat3),
            number(self.heat6),
            self.oracle.map_or("–".to_string(), number),
            off(self.change()),
            paper.map_or("–".to_string(), |(_, change)| format!("{:+.0} %", 100.0 * change)),
        ]
    }
}

/// Returns the cuts of the oracle as text.
fn cuts() -> String {
    let share = |per_mille: u32| f64::from(per_mille) / 10.0;
    let cut = |(hot, warm)| format!("{} + {}", share(hot), share(warm));
    CUTS.map(cut).join(", ")
}

fn spare(per_mille: u32) -> String {
    format!("{} %", per_mille / 10)
}

/// Makes the figure `flashnet-wa`: pages written to members for each page that hosts wrote.
pub fn flashnet_wa(options: &Options) -> Figure {
    let spares: &[u32] = if options.quick { &[100, 200] } else { &[50, 70, 100, 200, 280] };
    let mut figure = empty();
    let mut rows = Vec::new();
    for skew in SKEWS {
        for &spare_per_mille in spares {
            let row = Row::measure(options, spare_per_mille, skew);
            figure.table.row(row.cells());
            rows.push(row);
        }
        let line = |name: &str, of: fn(&Row) -> f64| Series {
            name: format!("{}, {name}", skew.0),
            points: rows
                .iter()
                .filter(|row| row.skew == skew.0)
                .map(|row| (f64::from(row.spare_per_mille) / 10.0, of(row)))
                .collect(),
        };
        figure.series.push(line("greedy, oldest 10 %", |row| row.baseline));
        figure.series.push(line("Heat(3)", |row| row.heat3));
    }
    judge(&mut figure, &rows);
    figure
}

fn empty() -> Figure {
    Figure {
        id: "flashnet-wa",
        title: "write amplification of flash translation, metadata included".to_string(),
        x_label: "spare space (%)".to_string(),
        y_label: "pages written to members a page of hosts".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "spare",
            "skew",
            "greedy, oldest 10 %",
            "greedy, oldest 2 %",
            "greedy",
            "Heat(3)",
            "Heat(6)",
            "oracle",
            "Heat(3) to the first",
            "the paper",
        ]),
        notes: vec![NOTE.replace("CUTS", &cuts())],
        verdicts: Vec::new(),
    }
}

/// Adds verdicts that compare the rows with the project's goals.
fn judge(figure: &mut Figure, rows: &[Row]) {
    let of = |skew: &'static str| rows.iter().filter(move |row| row.skew == skew);
    let worst = of("80/20").map(Row::change).fold(f64::MIN, f64::max);
    figure.judge("80/20, at every spare space", "-38 % or less", off(worst), worst <= -0.38);
    for (spare_per_mille, goal) in [(50, -0.82), (70, -0.79), (100, -0.76), (200, -0.69)] {
        let row = of("95/20").find(|row| row.spare_per_mille == spare_per_mille);
        if let Some(row) = row {
            let what = format!("95/20, {} spare", spare(spare_per_mille));
            let target = format!("{:+.0} % or less", 100.0 * goal);
            figure.judge(&what, &target, off(row.change()), row.change() <= goal);
        }
    }
    if let Some(row) = of("95/20").find(|row| row.spare_per_mille == 50) {
        let change = row.heat3 / row.narrow - 1.0;
        let what = "95/20, 5 % spare, to greedy among the oldest 2 %";
        figure.judge(what, "-83 % or less", off(change), change <= -0.83);
    }
    let worst = of("uniform").map(|row| row.heat3 / row.greedy - 1.0).fold(f64::MIN, f64::max);
    let what = "uniform writes, to greedy, at every spare space";
    figure.judge(what, "+2 % or less", off(worst), worst <= 0.02);
    for row in rows {
        let Some(oracle) = row.oracle else { continue };
        let change = row.heat3 / oracle - 1.0;
        let what = format!("{}, {} spare, to the oracle", row.skew, spare(row.spare_per_mille));
        figure.judge(&what, "+10 % or less", off(change), change <= 0.1);
    }
}
