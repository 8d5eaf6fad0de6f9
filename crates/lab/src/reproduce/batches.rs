//! Figures 1, 5, 7 and 8 of the Tyche paper, live: the share of a link of 10 Gbit/s that each rule
//! of batches uses, over lanes that are shaped to that rate (docs/adr/0051-shaped-lanes.md).

use std::process::{Command, Stdio};
use std::time::Duration;

use figures::{Figure, Series, Table};

use super::real::RealTimeSettings;
use crate::child::Server;
use crate::stalls::StallTime;

/// The environment variable of the shape, at both ends.
const LINK: &str = "NEARFLASH_PACKET_LINK";

/// Bytes that the link carries in a second, as the paper has it: 315 000 requests of 4 KiB.
const LINK_BYTES: f64 = 315e3 * 4096.0;

/// The rules of batches, by their names in the variable, with the headings of their columns.
const RULES: [(&str, &str); 6] = [
    ("never", "no batches"),
    ("2", "2"),
    ("8", "8"),
    ("64", "64"),
    ("tyche", "Tyche"),
    ("turn", "turn"),
];

/// Requests outstanding on each connection, as on each thread of the paper.
const DEPTH: u32 = 4;

/// The share of a measurement's time without a processor from which on it is marked.
const DISTURBED: f64 = 0.05;

const NOTE: &str = "\
Over loopback, UDP in frames of 9 000 bytes, or of 4 500 where a frame holds the data of one \
request. Each end sends at 10 Gbit/s at the most, by a token bucket. Shares are of 315 000 requests \
of 4 KiB a second, which is 10.3 Gbit/s, so the whole of the link is 97 % without any head. A * \
marks a point during which the server had no processor, or the host ran others, for 5 % of the \
time or more. The server and the client spin; on a machine with two processors all else disturbs \
them.";

/// A kind of load on the link.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// Bytes that a frame carries.
    frame: u32,
    reads: &'static str,
    kib: u32,
    outstanding: u32,
    /// Connections with one request of 128 KiB each, beside the others.
    large: u32,
    /// The paper's shares without batches and with Tyche's, where it states them.
    paper: Option<(f64, f64)>,
}

const READS: Load = Load {
    name: "reads, two a frame",
    frame: 9000,
    reads: "100",
    kib: 4,
    outstanding: 128,
    large: 0,
    paper: None,
};

/// The share of the link, and whether the machine disturbed the measurement.
#[derive(Clone, Copy)]
struct LinkShare(f64, bool);

/// Measures the figure `tyche-live`.
pub(super) fn measure(bed: &RealTimeSettings) -> Result<Figure, String> {
    let mut figure = empty();
    let loads = loads(bed.quick);
    let mut series: Vec<Series> = Vec::new();
    let mut target: Option<[LinkShare; 2]> = None;
    for load in &loads {
        let mut shares = Vec::new();
        for (rule, _) in RULES {
            shares.push(share(bed, load, rule)?);
        }
        let mut cells = vec![load.name.to_owned(), load.outstanding.to_string()];
        cells.extend(shares.iter().map(|share| text(*share)));
        cells.push(load.paper.map_or("–".to_owned(), |(alone, tyche)| {
            format!("{:.0} % / {:.0} %", 100.0 * alone, 100.0 * tyche)
        }));
        figure.table.row(cells);
        if load.name == READS.name {
            series.resize_with(RULES.len(), Series::default);
            for (n, line) in series.iter_mut().enumerate() {
                line.name = format!("{}, {}", load.name, RULES[n].1);
                line.points.push((f64::from(load.outstanding), 100.0 * shares[n].0));
            }
            if load.outstanding == 128 {
                target = Some([shares[5], shares[4]]);
            }
        }
    }
    figure.series = series;
    if let Some([turn, tyche]) = target {
        let what = "reads, two a frame, 128 outstanding, turn";
        figure.judge(what, "≥ 85 % of 315 K", text(turn), turn.0 >= 0.85);
        figure.judge(
            what,
            "≥ Tyche",
            format!("{} of {}", text(turn), text(tyche)),
            turn.0 >= tyche.0,
        );
    }
    Ok(figure)
}

/// Returns the loads of the figure, those with the same name by rising numbers of requests.
fn loads(quick: bool) -> Vec<Load> {
    let at = |load: Load, depths: &[u32]| {
        depths.iter().map(|&outstanding| Load { outstanding, ..load }).collect::<Vec<_>>()
    };
    if quick {
        return at(READS, &[4, 128]);
    }
    let single = Load { name: "reads", frame: 4500, ..READS };
    let writes = Load { name: "writes, two a frame", reads: "0", ..READS };
    let of = |name, kib| Load { name, kib, ..READS };
    let beside = |name, large| Load { name, large, ..READS };
    let mut loads = at(single, &[4, 32, 128]);
    loads.push(Load { outstanding: 512, paper: Some((0.56, 0.807)), ..single });
    loads.extend(at(READS, &[4, 32, 128]));
    loads.push(Load { outstanding: 512, paper: Some((0.561, 0.88)), ..READS });
    loads.extend(at(writes, &[4, 128]));
    loads.push(Load { outstanding: 512, paper: Some((0.53, 0.811)), ..writes });
    loads.push(Load { paper: Some((0.90, 0.90)), ..of("reads of 8 KiB", 8) });
    loads.push(of("reads of 64 KiB", 64));
    loads.extend([beside("reads, one of 128 KiB", 1), beside("reads, five of 128 KiB", 5)]);
    loads
}

fn empty() -> Figure {
    let mut columns = vec!["requests", "outstanding"];
    columns.extend(RULES.map(|(_, name)| name));
    columns.push("the paper: no batches / Tyche");
    Figure {
        id: "tyche-live",
        title: "share of a 10 Gbit/s link by the rule of batches, in real time".to_owned(),
        x_label: "outstanding requests".to_owned(),
        y_label: "share of the link (%)".to_owned(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&columns),
        notes: vec![NOTE.to_owned()],
        verdicts: Vec::new(),
    }
}

fn text(LinkShare(share, is_disturbed): LinkShare) -> String {
    format!("{:.1} %{}", 100.0 * share, if is_disturbed { "*" } else { "" })
}

/// Measures a load under a rule of batches. Tyche's rule has its time to find its level.
fn share(bed: &RealTimeSettings, load: &Load, rule: &str) -> Result<LinkShare, String> {
    let (warmup, seconds) = match (rule, bed.quick) {
        ("tyche", true) => ("3", "2"),
        ("tyche", false) => ("12", "4"),
        (_, true) => ("0.3", "1"),
        (_, false) => ("0.5", "3"),
    };
    let link = format!("rate=10Gbit,frame={},batch={rule}", load.frame);
    let server = bed.serve_linked("mem:256MiB", (LINK, &link))?;
    let before = StallTime::until_now(server.id());
    let connections = load.outstanding.div_ceil(DEPTH);
    let main =
        Client { kib: load.kib, connections, depth: DEPTH.min(load.outstanding), link: &link };
    let mut clients = vec![main.start(&server, load.reads, (warmup, seconds))?];
    if load.large > 0 {
        // The paper's rule is for small requests.
        let link = format!("rate=10Gbit,frame={},batch=turn", load.frame);
        let large = Client { kib: 128, connections: load.large, depth: 1, link: &link };
        clients.push(large.start(&server, load.reads, (warmup, seconds))?);
    }
    let mut bytes = 0.0;
    for (client, kib) in clients.into_iter().zip([load.kib, 128]) {
        bytes += iops(client)? * f64::from(kib << 10);
    }
    let kept = StallTime::until_now(server.id()).since(&before);
    server.stop()?;
    let time = |text: &str| text.parse().map_or(Duration::ZERO, Duration::from_secs_f64);
    let whole = time(warmup) + time(seconds);
    let is_disturbed = (kept.server + kept.host).as_secs_f64() > DISTURBED * whole.as_secs_f64();
    Ok(LinkShare(bytes / LINK_BYTES, is_disturbed))
}

/// A process that makes load.
struct Client<'a> {
    kib: u32,
    connections: u32,
    depth: u32,
    link: &'a str,
}

impl Client<'_> {
    fn start(
        &self,
        server: &Server,
        reads: &str,
        (warmup, seconds): (&str, &str),
    ) -> Result<std::process::Child, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let url = format!("reflex+udp://{}", server.address());
        let (block, depth) = (format!("{}KiB", self.kib), self.depth.to_string());
        let connections = self.connections.to_string();
        let mut command = Command::new(program);
        command.env(LINK, self.link).env("NEARFLASH_LOG", "error");
        command.args(["bench", &url, "--json", "--spin", "--span", "64MiB"]);
        command.args(["--seconds", seconds, "--warmup", warmup, "--read-percent", reads]);
        command.args(["--block-size", &block, "--queue-depth", &depth]);
        command.args(["--connections", &connections]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|e| format!("cannot start the load: {e}"))
    }
}

/// Waits for a client. Returns its requests a second.
fn iops(client: std::process::Child) -> Result<f64, String> {
    let output = client.wait_with_output().map_err(|e| format!("the load: {e}"))?;
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("the load failed: {e}"))?;
    match (json["iops"].as_f64(), json["errors"].as_u64()) {
        (Some(iops), Some(0)) => Ok(iops),
        (_, errors) => Err(format!("the load had {errors:?} errors")),
    }
}
