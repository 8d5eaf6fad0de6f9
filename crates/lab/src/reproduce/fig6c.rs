//! Figure 6c of the paper: the number of TCP connections that one core serves.

use figures::{Figure, Series, Table};

use super::real::{Point, RealTimeSettings, url};

const DEVICE: &str = "sim:a?size=256MiB";

/// The requests a second on each connection, the numbers of connections to try, and the paper's
/// maximum.
const LOADS: [(u32, &[u32], &str); 2] = [
    (100, &[100, 250, 500, 1_000, 1_500, 2_000, 3_000, 5_000], "5 000 connections, 500 K IOPS"),
    (1_000, &[25, 50, 100, 150, 200, 300, 500, 850], "850 connections, 780 K IOPS"),
];

/// The share of the offered requests that must be served for a load to count as kept up with.
const SERVED_LEAST: f64 = 0.97;

pub(super) fn measure(bed: &RealTimeSettings) -> Result<Figure, String> {
    let mut figure = figure();
    for (each, counts, paper) in LOADS {
        let mut points = Vec::new();
        let mut best: Option<(u32, Point)> = None;
        for &count in counts {
            let server = bed.serve(DEVICE)?;
            let point = load(bed, &url(server.address()), each, count)?;
            server.stop()?;
            points.push((f64::from(count), point.iops / 1e3));
            let served = point.iops / f64::from(each * count);
            let keeps_up = served >= SERVED_LEAST;
            figure.table.row(vec![
                each.to_string(),
                count.to_string(),
                format!("{:.1}", f64::from(each * count) / 1e3),
                format!("{:.1}", point.iops / 1e3),
                format!("{:.0}", point.p95_us),
                if keeps_up { "yes".to_owned() } else { "no".to_owned() },
            ]);
            if !keeps_up {
                break;
            }
            best = Some((count, point));
        }
        figure.series.push(Series { name: format!("{each} IOPS each"), points });
        let measured = match best {
            Some((count, point)) => {
                format!("{count} connections, {:.0} K IOPS", point.iops / 1e3)
            }
            None => "none".to_owned(),
        };
        figure.notes.push(format!("{each} IOPS each: {measured}; the paper: {paper}."));
    }
    Ok(figure)
}

fn figure() -> Figure {
    let columns = ["IOPS each", "connections", "K IOPS offered", "served", "p95, µs", "keeps up"];
    Figure {
        id: "fig6c",
        title: "connections that one core serves".to_owned(),
        x_label: "connections".to_owned(),
        y_label: "IOPS (thousands)".to_owned(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&columns),
        notes: vec![
            "1 KiB reads at random times on every connection; one tenant, one worker; the \
             simulated device A in real time, over loopback, one client thread. Requests that come \
             one by one on many connections cannot leave together, so here every one costs the \
             kernel its own segment on both sides: this, and not the server's tables, is what ends \
             the curves on a machine with two processors."
                .to_owned(),
        ],
        verdicts: Vec::new(),
    }
}

fn load(bed: &RealTimeSettings, target: &str, each: u32, count: u32) -> Result<Point, String> {
    let (rate, connections) = ((each * count).to_string(), count.to_string());
    let words = ["--block-size", "1KiB", "--span", "256MiB", "--rate", &rate];
    let depth = ["--connections", &connections, "--queue-depth", "4"];
    bed.measure(target, &[&words[..], &depth].concat())
}
