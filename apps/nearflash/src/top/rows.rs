//! The rows of the tables of `nearflash top`, for the screen and for plain text.

use std::cmp::Ordering;

use control::admin::{
    self, Class, FlowOfDevice, FlowOfNamespace, FlowOfWorker, StageTails, State, TenantStatus,
};

use super::state::Data;
use super::trend::{self, Trends};
use lab::report::{number_text, time_text};

/// The meaning of a cell's figure, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Warn,
    Dim,
}

/// A cell of a table: its text, and its number for sorting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) text: String,
    pub(super) number: f64,
    pub(super) tone: Tone,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) is_number: bool,
}

const fn words(title: &'static str) -> Column {
    Column { title, is_number: false }
}

const fn numbers(title: &'static str) -> Column {
    Column { title, is_number: true }
}

/// A table as columns and rows of cells.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Figure>>,
}

fn text(text: impl Into<String>) -> Figure {
    Figure { text: text.into(), number: 0.0, tone: Tone::Plain }
}

fn number(number: f64) -> Figure {
    let tone = if number == 0.0 { Tone::Dim } else { Tone::Plain };
    Figure { text: number_text(number.round()), number, tone }
}

fn none() -> Figure {
    Figure { text: "-".to_owned(), number: -1.0, tone: Tone::Dim }
}

fn micros(us: f64) -> Figure {
    Figure { text: time_text(us * 1e3), number: us, tone: Tone::Plain }
}

/// Returns `≤ TIME` for the upper edge of a histogram's bucket in microseconds, or a dash for
/// `None`.
fn at_most(us: Option<f64>) -> Figure {
    us.map_or_else(none, |us| {
        let figure = micros(us);
        Figure { text: format!("≤ {}", figure.text), ..figure }
    })
}

fn percent(share: f64) -> Figure {
    let text = if share >= 99.95 { "100 %".to_owned() } else { format!("{share:.1} %") };
    Figure { text, number: share, tone: Tone::Plain }
}

/// Returns a rate, given in bytes a second, with a fitting unit: `1.5 MB/s`.
pub(super) fn rate(bytes: f64) -> Figure {
    let units = [("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)];
    let (unit, size) = units.into_iter().find(|(_, size)| bytes >= *size).unwrap_or(("B/s", 1.0));
    let value = bytes / size;
    let places = if size == 1.0 || value >= 100.0 { 0 } else { 1 };
    let tone = if bytes == 0.0 { Tone::Dim } else { Tone::Plain };
    Figure { text: format!("{value:.places$} {unit}"), number: bytes, tone }
}

impl Figure {
    fn toned(self, tone: Tone) -> Figure {
        Figure { tone, ..self }
    }
}

/// The place of the column of trends in the table of tenants, behind the latency and its bound.
const TREND: usize = 6;

impl Rows {
    /// Adds the column of recent tail latencies to the table of these tenants.
    pub(super) fn with_trends(mut self, tenants: &[TenantStatus], trends: &Trends) -> Rows {
        self.columns.insert(TREND, numbers("TREND"));
        for (row, tenant) in self.rows.iter_mut().zip(tenants) {
            let tail = trend::tail(tenant).unwrap_or(-1.0);
            let bars =
                Figure { text: trends.bars(tenant), number: tail, tone: status(tenant).tone };
            row.insert(TREND, bars);
        }
        self
    }

    /// Sorts the rows by a column: numbers descending, words ascending; the other way round if
    /// `is_reversed`.
    pub(super) fn sort(&mut self, column: usize, is_reversed: bool) {
        let is_number = self.columns[column].is_number;
        self.rows.sort_by(|a, b| {
            let (a, b) = (&a[column], &b[column]);
            let order = match is_number {
                true => b.number.partial_cmp(&a.number).unwrap_or(Ordering::Equal),
                false => a.text.cmp(&b.text),
            };
            if is_reversed { order.reverse() } else { order }
        });
    }
}

/// Returns the tenant's status in one or two words, with a rank for sorting.
fn status(tenant: &TenantStatus) -> Figure {
    let measured = &tenant.measured;
    let (word, tone, rank) = match (&tenant.slo, measured.slo_percentile_us) {
        _ if tenant.state == State::Leaving => ("leaving", Tone::Dim, 0.0),
        _ if measured.iops == 0.0 => ("idle", Tone::Dim, 1.0),
        (None, _) => ("best effort", Tone::Plain, 2.0),
        (Some(_), _) if measured.tokens > tenant.tokens_needed as f64 * control::BURST => {
            ("over its SLO", Tone::Warn, 4.0)
        }
        (Some(slo), Some(us)) if us > slo.latency_us.into() => ("late", Tone::Bad, 5.0),
        _ => ("kept", Tone::Good, 3.0),
    };
    Figure { text: word.to_owned(), number: rank, tone }
}

/// Returns the table of tenants: their promised and their measured service.
pub(super) fn tenants(tenants: &[TenantStatus]) -> Rows {
    const COLUMNS: [Column; 11] = [
        words("TENANT"),
        numbers("STATUS"),
        numbers("IOPS"),
        numbers("SLO"),
        numbers("p95 READ"),
        numbers("SLO"),
        numbers("IN BOUND"),
        numbers("TOKENS/S"),
        numbers("READ"),
        numbers("WRITTEN"),
        numbers("FAILED/S"),
    ];
    let row = |tenant: &TenantStatus| {
        let (measured, slo) = (&tenant.measured, tenant.slo.as_ref());
        let tail = trend::tail(tenant);
        let state = status(tenant);
        let within = measured.compliance.minute.map_or_else(none, |share| {
            let wanted = slo.map_or(0.0, |slo| slo.percentile / 100.0);
            let tone = if share < wanted { Tone::Bad } else { Tone::Good };
            percent(share * 100.0).toned(tone)
        });
        let failures = number(measured.failures);
        vec![
            text(&tenant.name),
            state.clone(),
            number(measured.iops),
            slo.map_or_else(none, |slo| number(slo.iops.into())),
            tail.map_or_else(none, |us| micros(us).toned(state.tone)),
            slo.map_or_else(none, |slo| micros(slo.latency_us.into())),
            within,
            number(measured.tokens),
            rate(measured.read_bytes),
            rate(measured.written_bytes),
            if measured.failures > 0.0 { failures.toned(Tone::Bad) } else { failures },
        ]
    };
    Rows { columns: COLUMNS.to_vec(), rows: tenants.iter().map(row).collect() }
}

/// Returns the table of devices with their rates and tokens.
pub(super) fn devices(devices: &[admin::DeviceStatus], flows: &[FlowOfDevice]) -> Rows {
    const COLUMNS: [Column; 11] = [
        words("DEVICE"),
        numbers("IOPS"),
        numbers("READ"),
        numbers("WRITTEN"),
        numbers("p95 AT IT"),
        numbers("DEPTH"),
        numbers("WAITING"),
        numbers("SPENT/S"),
        numbers("MADE/S"),
        numbers("PROMISED"),
        numbers("LENT/S"),
    ];
    let row = |(device, flow): (&admin::DeviceStatus, &FlowOfDevice)| {
        let tokens = &flow.tokens;
        vec![
            text(&device.name),
            number(flow.iops),
            rate(flow.read_bytes),
            rate(flow.written_bytes),
            at_most(flow.p95_us),
            number(flow.depth.into()),
            number(flow.queued.into()),
            number(tokens.spent),
            device.tokens.map_or_else(none, |made| number(made as f64)),
            number(device.tokens_promised as f64),
            number(tokens.borrowed),
        ]
    };
    Rows { columns: COLUMNS.to_vec(), rows: devices.iter().zip(flows).map(row).collect() }
}

/// Returns the table of workers with the parts of their time.
pub(super) fn workers(flows: &[FlowOfWorker]) -> Rows {
    const COLUMNS: [Column; 13] = [
        words("WORKER"),
        numbers("BUSY"),
        numbers("WAITED"),
        numbers("TURNS/S"),
        numbers("CONNS"),
        numbers("IN FLIGHT"),
        numbers("BUFFERS"),
        numbers("NETWORK"),
        numbers("PROTOCOL"),
        numbers("SCHEDULING"),
        numbers("DEVICE"),
        numbers("KERNEL"),
        numbers("UPKEEP"),
    ];
    let row = |flow: &FlowOfWorker| {
        let busy = match flow.busy_percent {
            90.0.. => Tone::Bad,
            70.0.. => Tone::Warn,
            _ => Tone::Plain,
        };
        let waited = if flow.is_starved() { Tone::Bad } else { Tone::Plain };
        let mut row = vec![
            text(flow.number.to_string()),
            percent(flow.busy_percent).toned(busy),
            percent(flow.waited_percent).toned(waited),
            number(flow.turns),
            number(flow.connections.into()),
            number(flow.in_flight.into()),
            number(flow.buffers.into()),
        ];
        row.extend(flow.parts.map(|share| if share > 0.0 { percent(share) } else { none() }));
        row
    };
    Rows { columns: COLUMNS.to_vec(), rows: flows.iter().map(row).collect() }
}

/// Returns the table of namespaces with their rates.
pub(super) fn namespaces(flows: &[FlowOfNamespace]) -> Rows {
    const COLUMNS: [Column; 7] = [
        words("NAMESPACE"),
        numbers("IOPS"),
        numbers("READ"),
        numbers("WRITTEN"),
        numbers("p95 QUEUED"),
        numbers("AT DEVICE"),
        numbers("IN REPLY"),
    ];
    let row = |flow: &FlowOfNamespace| {
        let name = text(flow.number.to_string());
        let StageTails { scheduler_us, device_us, reply_us } = flow.stages;
        let mut row =
            vec![name, number(flow.iops), rate(flow.read_bytes), rate(flow.written_bytes)];
        row.extend([scheduler_us, device_us, reply_us].map(at_most));
        row
    };
    Rows { columns: COLUMNS.to_vec(), rows: flows.iter().map(row).collect() }
}

/// Returns `true` if the tenant has an SLO.
pub(super) fn is_promised(tenant: &TenantStatus) -> bool {
    tenant.class == Class::LatencyCritical
}

/// Returns all four tables as plain text, for `--once`.
pub(super) fn plain(data: &Data) -> String {
    let tables = [
        tenants(&data.tenants),
        devices(&data.devices, &data.flows.devices),
        workers(&data.flows.workers),
        namespaces(&data.flows.namespaces),
    ];
    let filled = tables.iter().filter(|table| !table.rows.is_empty());
    filled.map(plain_table).collect::<Vec<_>>().join("\n\n")
}

fn plain_table(table: &Rows) -> String {
    let width = |n: usize| {
        let cells = table.rows.iter().map(|row| row[n].text.chars().count());
        cells.chain([table.columns[n].title.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for ((cell, width), column) in cells.into_iter().zip(&widths).zip(&table.columns) {
            let pad = " ".repeat(width - cell.chars().count());
            // The state is sorted like a number and read like a word.
            let is_left = !column.is_number || column.title == "STATUS";
            line += &if is_left { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        line.trim_end().to_owned()
    };
    let head = line(table.columns.iter().map(|column| column.title).collect());
    let rows = table.rows.iter().map(|row| line(row.iter().map(|f| f.text.as_str()).collect()));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}
