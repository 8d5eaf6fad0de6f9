//! Table 2 of the paper: the latency of a single 4 KiB request, on a local device and over each
//! path to a remote one.

use figures::{Figure, Table};

use super::iscsi;
use super::real::{NO_YARDSTICK, Point, RealTimeSettings, url, url_v1};

/// The specs and names of the devices: simulated flash, and memory, which shows the cost of the
/// path itself.
const DEVICES: [(&str, &str); 2] = [("sim:a?size=256MiB", "flash"), ("mem:256MiB", "memory")];

/// The paper's Table 2 in µs: for each path, mean / p95 of reads, then of writes.
const PAPER: [(&str, &str, &str); 4] = [
    ("local", "78 / 90", "11 / 17"),
    ("iSCSI", "211 / 251", "155 / 215"),
    ("libaio-style server", "183 / 205", "180 / 205"),
    ("nearflash", "117 / 135", "58 / 64"),
];

/// The read and write latencies of one path to one device.
struct PathLatencies {
    name: &'static str,
    device: &'static str,
    read: Point,
    write: Point,
}

pub(super) fn measure(bed: &RealTimeSettings) -> Result<Figure, String> {
    let mut figure = figure();
    let mut paths = Vec::new();
    for (spec, device) in DEVICES {
        paths.push(measured(bed, "local", device, spec)?);
        if let Some(program) = bed.yardstick("naive") {
            let server =
                bed.serve_with(&program, &["--listen", "127.0.0.1:0", "--device", spec])?;
            paths.push(measured(bed, "libaio-style server", device, &url_v1(server.address()))?);
        } else if device == "flash" {
            figure.notes.push(NO_YARDSTICK.to_owned());
        }
        if device == "memory" {
            match iscsi::measure(bed) {
                Ok([read, write]) => {
                    paths.push(PathLatencies { name: "iSCSI", device, read, write })
                }
                Err(why) => figure.notes.push(format!("iSCSI left out: {why}.")),
            }
        }
        let server = bed.serve(spec)?;
        paths.push(measured(bed, "nearflash", device, &url(server.address()))?);
        server.stop()?;
    }
    for path in &paths {
        let paper = PAPER.iter().find(|(name, ..)| *name == path.name);
        let (_, read, write) = paper.expect("every path is in the paper");
        let on_flash =
            |text: &str| if path.device == "flash" { text.to_owned() } else { String::new() };
        figure.table.row(vec![
            path.name.to_owned(),
            path.device.to_owned(),
            text(&path.read),
            on_flash(read),
            text(&path.write),
            on_flash(write),
        ]);
    }
    judge(&mut figure, &paths);
    Ok(figure)
}

fn figure() -> Figure {
    let columns = ["path", "device", "read, µs", "the paper", "write, µs", "the paper"];
    Figure {
        id: "table2",
        title: "unloaded latency of 4 KiB requests, mean / p95".to_owned(),
        x_label: String::new(),
        y_label: String::new(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&columns),
        notes: vec![
            "One request in flight; server and client each poll on a processor of their own, over \
             loopback. Flash is the simulated device A (sim:a) in real time. Over memory stands \
             what the path itself costs; a user-space iSCSI target has no simulated flash to serve, \
             so it is there alone. The paper's rows over the network cross a 10 GbE switch, with \
             Linux clients."
                .to_owned(),
        ],
        verdicts: Vec::new(),
    }
}

fn measured(
    bed: &RealTimeSettings,
    name: &'static str,
    device: &'static str,
    target: &str,
) -> Result<PathLatencies, String> {
    let words = |reads| ["--queue-depth", "1", "--span", "64MiB", "--read-percent", reads];
    let read = bed.measure(target, &words("100"))?;
    let write = bed.measure(target, &words("0"))?;
    Ok(PathLatencies { name, device, read, write })
}

fn text(point: &Point) -> String {
    let places = |value: f64| if value < 20.0 { 1 } else { 0 };
    let (mean, p95) = (point.mean_us, point.p95_us);
    format!("{mean:.0$} / {p95:.1$}", places(mean), places(p95))
}

fn judge(figure: &mut Figure, paths: &[PathLatencies]) {
    let find = |name: &str, device: &str| {
        paths.iter().find(|path| path.name == name && path.device == device)
    };
    let (Some(local), Some(ours)) = (find("local", "flash"), find("nearflash", "flash")) else {
        return;
    };
    let added = ours.read.p95_us - local.read.p95_us;
    let what = "p95 that the network adds to a read of flash";
    figure.judge(
        what,
        "≤ 45 µs (the paper, Linux client)",
        format!("{added:.0} µs"),
        added <= 45.0,
    );
    for other in ["libaio-style server", "iSCSI"] {
        let pair = find(other, "memory").zip(find("nearflash", "memory"));
        if let Some((other_way, ours)) = pair {
            let times = other_way.read.mean_us / ours.read.mean_us;
            let what = format!("mean read over memory, {other} to nearflash");
            figure.judge(&what, "> 1", format!("{times:.1} times"), times > 1.0);
        }
    }
}
