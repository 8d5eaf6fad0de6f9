//! Tables I to VI of the Tyche paper: the parts of one request, measured by the yardstick
//! `crates/io/examples/tyche`, beside nearflash's server over UDP and over NBD.

use std::collections::BTreeMap;
use std::process::Command;

use figures::{Figure, Series, Table};

use super::real::RealTimeSettings;

/// Sizes of requests in KiB.
const SIZES: [u32; 4] = [4, 8, 64, 128];

/// The variants of the yardstick, with the paper's totals in µs of reads and of writes, by size.
const VARIANTS: [(&str, Option<[[f64; 4]; 2]>); 5] = [
    ("base", Some([[73.69, 82.88, 152.75, 221.08], [73.80, 83.66, 163.38, 238.71]])),
    ("rec", Some([[61.63, 73.72, 143.38, 210.98], [60.30, 73.95, 151.76, 231.80]])),
    ("nowq", Some([[53.38, 68.33, 133.43, 203.27], [51.11, 66.27, 143.36, 226.36]])),
    ("turn", None),
    ("parked", None),
];

/// The paper's totals of NBD in µs.
const PAPER_NBD: [[f64; 4]; 2] =
    [[152.35, 162.42, 433.84, 561.48], [151.79, 153.78, 332.23, 520.02]];

/// The components of the table, by the names that the yardstick prints.
const COMPONENTS: [&str; 10] = [
    "in-out", "ty-is", "ty-tr", "ty-ts", "ty-ir", "cs-wq", "cs-rec", "cs-irq", "ramdisk", "network",
];

const NOTE: &str = "\
One request outstanding, over loopback, both ends on this machine, each on a processor of its own. \
Medians of all requests in µs, so components need not add up to the total. The names are the \
paper's Table I. Network is the kernel's work of sending and what lies between; CS-IRQ is from the \
kernel's stamp of a packet to the thread that runs. Switches are voluntary ones of all threads by \
the kernel's counters, a request; the paper's six include CS-Out.

Base, rec and nowq are a yardstick in user space. Turn and parked are nearflash's sockets over \
packets, of which the kernel stamps nothing, so their network includes the wake. The rows of \
nearflash are the whole server and the whole client (`nearflash bench`, spinning), with the mean as \
the total.";

/// The values of one run of the yardstick, by name.
type Values = BTreeMap<String, f64>;

/// Measures the figure `tyche-breakdown`.
pub(super) fn measure(bed: &RealTimeSettings) -> Result<Figure, String> {
    let mut figure = empty();
    let Some(program) = bed.yardstick("tyche") else {
        figure.notes.push(
            "left out: the yardstick is not built (cargo build --release -p nearflash-io --example \
             tyche)"
                .to_owned(),
        );
        return Ok(figure);
    };
    let mut series: Vec<Series> = VARIANTS
        .iter()
        .map(|(name, _)| Series { name: format!("reads, {name}"), points: Vec::new() })
        .collect();
    let mut all: BTreeMap<(bool, u32, &str), Values> = BTreeMap::new();
    for (write, op) in [(false, "read"), (true, "write")] {
        for (place, kib) in SIZES.into_iter().enumerate() {
            for (n, (name, paper)) in VARIANTS.into_iter().enumerate() {
                let values = run(bed, &program, name, kib, write)?;
                let paper = paper.map(|paper| paper[usize::from(write)][place]);
                figure.table.row(cells(op, kib, name, &values, paper));
                if !write {
                    series[n].points.push((f64::from(kib), values["total"]));
                }
                all.insert((write, kib, name), values);
            }
        }
    }
    figure.series = series;
    servers(bed, &mut figure)?;
    for (write, op) in [(false, "reads"), (true, "writes")] {
        judge(&mut figure, op, |kib, name| &all[&(write, kib, name)]);
    }
    Ok(figure)
}

fn empty() -> Figure {
    let mut columns = vec!["request", "KiB", "variant", "total"];
    columns.extend(COMPONENTS);
    columns.extend(["switches", "total in the paper"]);
    Figure {
        id: "tyche-breakdown",
        title: "the parts of one request, beside the Tyche paper".to_owned(),
        x_label: "size of the request (KiB)".to_owned(),
        y_label: "time (µs)".to_owned(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&columns),
        notes: NOTE.split("\n\n").map(str::to_owned).collect(),
        verdicts: Vec::new(),
    }
}

/// Runs the yardstick several times. Returns the median of each value.
fn run(
    bed: &RealTimeSettings,
    program: &std::path::Path,
    variant: &str,
    kib: u32,
    write: bool,
) -> Result<Values, String> {
    let (bytes, requests) = ((kib << 10).to_string(), if bed.quick { "1500" } else { "5000" });
    let mut runs: Vec<Values> = Vec::new();
    for _ in 0..bed.repetitions() {
        let mut command = Command::new(program);
        command.args([variant, "--bytes", &bytes, "--requests", requests]);
        command.args(write.then_some("--write"));
        if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
            command.args(["--cpus", "0,1"]);
        }
        let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        runs.push(parse(&String::from_utf8_lossy(&output.stdout))?);
    }
    let median = |name: &String| {
        let mut values: Vec<f64> = runs.iter().map(|run| run[name]).collect();
        values.sort_by(f64::total_cmp);
        (name.clone(), values[values.len() / 2])
    };
    Ok(runs[0].keys().map(median).collect())
}

/// Parses the yardstick's output: lines of a name and a number.
fn parse(text: &str) -> Result<Values, String> {
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let values: Option<Values> = text.lines().map(line).collect();
    let wanted = COMPONENTS.iter().chain(&["total", "switches"]);
    let complete = values.filter(|values| wanted.clone().all(|name| values.contains_key(*name)));
    complete.ok_or_else(|| format!("the yardstick said {text:?}"))
}

fn cells(op: &str, kib: u32, variant: &str, values: &Values, paper: Option<f64>) -> Vec<String> {
    let mut cells = vec![op.to_owned(), kib.to_string(), variant.to_owned()];
    cells.push(format!("{:.1}", values["total"]));
    cells.extend(COMPONENTS.map(|name| format!("{:.1}", values[name])));
    cells.push(format!("{:.2}", values["switches"]));
    cells.push(paper.map_or("–".to_owned(), |paper| format!("{paper:.1}")));
    cells
}

/// Adds the rows of nearflash's own server, over UDP and over NBD.
fn servers(bed: &RealTimeSettings, figure: &mut Figure) -> Result<(), String> {
    for (name, scheme) in [("nearflash", "reflex+udp"), ("nearflash, NBD", "nbd")] {
        let server = bed.serve_at("mem:256MiB", &format!("{scheme}://127.0.0.1:0"))?;
        let target = format!("{scheme}://{}", server.address());
        for (write, op, reads) in [(false, "read", "100"), (true, "write", "0")] {
            for (place, kib) in SIZES.into_iter().enumerate() {
                let block = format!("{kib}KiB");
                let words = ["--block-size", &block, "--read-percent", reads, "--span", "64MiB"];
                let point = bed.measure(&target, &words)?;
                let mut cells = vec![op.to_owned(), kib.to_string(), name.to_owned()];
                cells.push(format!("{:.1}", point.mean_us));
                cells.extend((0..=COMPONENTS.len()).map(|_| "–".to_owned()));
                cells.push(match scheme {
                    "nbd" => format!("{:.1}", PAPER_NBD[usize::from(write)][place]),
                    _ => "–".to_owned(),
                });
                figure.table.row(cells);
            }
        }
        server.stop()?;
    }
    Ok(())
}

fn judge<'a>(figure: &mut Figure, op: &str, values: impl Fn(u32, &'static str) -> &'a Values) {
    let switches = |name| values(4, name)["switches"];
    let [base, rec, nowq, turn] = ["base", "rec", "nowq", "turn"].map(switches);
    let text = |value: f64| format!("{value:.2}");
    let near = |a: f64, b: f64| (a - b).abs() < 0.1;
    let mut check = |what: &str, target: &str, measured: f64, met: bool| {
        figure.judge(&format!("{op}, {what}"), target, text(measured), met);
    };
    check("4 KiB, switches of base", "≥ 5", base, base >= 5.0);
    check("4 KiB, switches of rec", "base − 2", rec, near(rec, base - 2.0));
    check("4 KiB, switches of nowq", "rec − 1", nowq, near(nowq, rec - 1.0));
    check("4 KiB, switches of turn", "0", turn, turn < 0.01);
    let share = |kib| values(kib, "nowq")["total"] / values(kib, "base")["total"];
    let (small, large) = (share(4), share(128));
    check("4 KiB, total of nowq to base", "≤ 0.75", small, small <= 0.75);
    check("128 KiB, total of nowq to base", "more than with 4 KiB", large, large > small);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardsticks_words_are_understood() {
        let mut text: String = COMPONENTS.map(|name| format!("{name} 1.5\n")).concat();
        assert!(parse(&text).is_err(), "the total is missing");
        text += "total 20.25\nswitches 6.001\n";
        let values = parse(&text).unwrap();
        assert_eq!((values["total"], values["switches"], values["cs-wq"]), (20.25, 6.001, 1.5));
        assert!(parse("total\n").is_err());
    }
}
