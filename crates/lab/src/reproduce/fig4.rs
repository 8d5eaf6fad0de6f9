//! Figure 4 of the paper: tail latency against throughput of 1 KiB reads, on one core.

use figures::{Figure, Series, Table};

use super::real::{NO_YARDSTICK, Point, RealTimeSettings, url, url_v1};

const DEVICE: &str = "sim:a?size=256MiB";

/// The offered loads in thousands of requests a second. A curve ends at the first load that its
/// path does not keep up with.
const RATES: [u32; 11] = [25, 50, 100, 150, 200, 300, 400, 500, 600, 700, 850];

/// The number of connections of the load, and the requests in flight on each.
const CONNECTIONS: &str = "8";
const DEPTH: &str = "128";

/// The latencies of one path to the device, at each load up to the first that the path does not
/// keep up with.
struct Curve {
    name: &'static str,
    points: Vec<Point>,
    paper: &'static str,
}

pub(super) fn measure(bed: &RealTimeSettings) -> Result<Figure, String> {
    let mut figure = figure();
    let mut curves = vec![curve(bed, "local", DEVICE, "870 K")?];
    let server = bed.serve(DEVICE)?;
    curves.push(curve(bed, "nearflash", &url(server.address()), "850 K")?);
    server.stop()?;
    match bed.yardstick("naive") {
        Some(program) => {
            let words = ["--listen", "127.0.0.1:0", "--device", DEVICE];
            let server = bed.serve_with(&program, &words)?;
            let target = url_v1(server.address());
            curves.push(curve(bed, "libaio-style server", &target, "75 K")?);
        }
        None => figure.notes.push(NO_YARDSTICK.to_owned()),
    }
    figure.notes.push(ceiling(bed)?);
    for curve in &curves {
        let points = curve.points.iter().map(|point| (point.iops / 1e3, point.p95_us));
        figure.series.push(Series { name: curve.name.to_owned(), points: points.collect() });
        let (first, best) = (&curve.points[0], most(curve));
        figure.table.row(vec![
            curve.name.to_owned(),
            format!("{:.0}", first.p95_us),
            format!("{:.0}", best.iops / 1e3),
            format!("{:.0}", best.p95_us),
            curve.paper.to_owned(),
        ]);
    }
    let iops = |name| curves.iter().find(|curve| curve.name == name).map(|curve| most(curve).iops);
    if let (Some(ours), Some(theirs)) = (iops("nearflash"), iops("libaio-style server")) {
        let times = ours / theirs;
        let target = "≥ 3 (the paper: 11)";
        figure.judge(
            "throughput over the libaio-style server's",
            target,
            format!("{times:.1} times"),
            times >= 3.0,
        );
    }
    Ok(figure)
}

fn figure() -> Figure {
    let columns =
        ["way", "p95 at 25 K IOPS, µs", "most K IOPS", "p95 there, µs", "the paper, one core"];
    Figure {
        id: "fig4",
        title: "p95 latency against throughput, 1 KiB reads, one core".to_owned(),
        x_label: "IOPS (thousands)".to_owned(),
        y_label: "p95 read latency (µs)".to_owned(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&columns),
        notes: vec![
            "Open loop at random times over 8 connections, latency from when a request was meant \
             to be sent; the simulated device A in real time; server and client on one processor \
             each, over loopback. A way is followed until it serves less than it is offered."
                .to_owned(),
        ],
        verdicts: Vec::new(),
    }
}

/// Measures a path at rising rates, up to the first rate of which it serves less than 97 %.
fn curve(
    bed: &RealTimeSettings,
    name: &'static str,
    target: &str,
    paper: &'static str,
) -> Result<Curve, String> {
    let mut points: Vec<Point> = Vec::new();
    for thousands in RATES {
        let rate = (thousands * 1000).to_string();
        let words = ["--block-size", "1KiB", "--span", "256MiB", "--rate", &rate];
        let depth = ["--connections", CONNECTIONS, "--queue-depth", DEPTH];
        let point = bed.measure(target, &[&words[..], &depth].concat())?;
        let keeps_up = point.iops >= 0.97 * f64::from(thousands) * 1e3;
        points.push(point);
        if !keeps_up {
            break;
        }
    }
    Ok(Curve { name, points, paper })
}

/// Returns the point of a curve with the most requests a second.
fn most(curve: &Curve) -> &Point {
    let by_iops = |a: &&Point, b: &&Point| a.iops.total_cmp(&b.iops);
    curve.points.iter().max_by(by_iops).expect("every way has a point")
}

/// Measures the server on a null device over loopback, and returns a note with its IOPS.
fn ceiling(bed: &RealTimeSettings) -> Result<String, String> {
    let server = bed.serve("null:1GiB")?;
    let words = ["--block-size", "1KiB", "--connections", "4", "--queue-depth", "32"];
    let point = bed.measure(&url(server.address()), &words)?;
    server.stop()?;
    Ok(format!(
        "Without any device the same server, loopback and client come to {:.0} K IOPS of 1 KiB (4 \
         connections, 32 in flight on each, closed loop).",
        point.iops / 1e3
    ))
}
