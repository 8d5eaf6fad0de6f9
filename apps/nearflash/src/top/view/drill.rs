//! Views of one device, with its tokens and the tenants that spend them, and of one worker, with
//! the parts of its time.

use control::admin::{self, DriftState, FlowOfDevice, FlowOfWorker, StageTails};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::{BAR, BOLD, DIM, bar, draw_gone, fact};
use crate::top::rows;
use crate::top::state::Data;
use lab::report::{count_text, micros_text, number_text};

/// The parts of a worker's busy time, in the order in which the admin API lists them.
const PARTS: [&str; 6] = ["network", "protocol", "scheduling", "device", "kernel", "upkeep"];

fn whole(number: f64) -> String {
    number_text(number.round())
}

/// Draws lines of facts above, and a list with a title below.
fn draw_both(
    frame: &mut Frame<'_>,
    area: Rect,
    facts: Vec<Line<'static>>,
    title: &'static str,
    list: Vec<Line<'static>>,
) {
    let heights = [Constraint::Length(facts.len() as u16 + 1), Constraint::Min(3)];
    let [above, below] = Layout::vertical(heights).areas(area);
    frame.render_widget(Paragraph::new(facts), above);
    let block = Block::new().borders(Borders::TOP).border_style(DIM).title(title);
    let inner = block.inner(below);
    frame.render_widget(block, below);
    frame.render_widget(Paragraph::new(list), inner);
}

/// Returns the text about a tenant's tokens in the last second: reserved, spent, donated and
/// borrowed.
pub(super) fn tokens_of(tenant: &admin::TenantStatus) -> String {
    let measured = &tenant.measured;
    format!(
        "{} reserved, {} spent, {} donated, {} borrowed",
        number_text(tenant.tokens_needed as f64),
        whole(measured.tokens),
        whole(measured.donated),
        whole(measured.borrowed)
    )
}

pub(super) fn draw_device(frame: &mut Frame<'_>, area: Rect, data: &Data, name: &str) {
    let flow = data.flows.devices.iter().find(|flow| flow.name == name);
    let device = data.devices.iter().find(|device| device.name == name);
    let (Some(device), Some(flow)) = (device, flow) else {
        return draw_gone(frame, area, "the device is gone");
    };
    let facts = device_facts(device, flow);
    let list = tenants_on(&data.tenants, name);
    draw_both(
        frame,
        area,
        facts,
        "its tenants, those that spend most first; tokens a second",
        list,
    );
}

fn device_facts(device: &admin::DeviceStatus, flow: &FlowOfDevice) -> Vec<Line<'static>> {
    let tokens = |n: Option<u64>| n.map_or("unlimited".to_owned(), |n| number_text(n as f64));
    let limited = match (&device.strictest, device.has_model) {
        (_, false) => "no model, nothing can be promised".to_owned(),
        (None, true) => "no latency is promised".to_owned(),
        (Some(limit), true) => {
            let latency = micros_text(limit.latency_us.into());
            format!("limited by {latency} of {}", limit.tenant)
        }
    };
    let model = match device.drift.as_ref().map(|drift| (drift.state, drift.percent)) {
        None if device.has_model => "not known whether it fits".to_owned(),
        None => "none".to_owned(),
        Some((DriftState::Drifted, Some(percent))) => {
            format!("drifted: serves {percent:.0} % of what it says")
        }
        Some((DriftState::Fits, Some(percent))) => format!("fits ({percent:.0} %)"),
        Some(_) => "not known whether it fits".to_owned(),
    };
    let tail = flow.p95_us.map_or("-".to_owned(), |us| format!("≤ {}", micros_text(us)));
    let own = &flow.tokens;
    vec![
        fact("makes", format!("{} tokens/s: {limited}", tokens(device.tokens))),
        fact(
            "reserved",
            format!(
                "{} tokens/s, {} left",
                number_text(device.tokens_promised as f64),
                tokens(device.tokens_left)
            ),
        ),
        fact(
            "tokens",
            format!(
                "{} made, {} spent, {} donated, {} borrowed, {} expired, a second",
                whole(own.generated),
                whole(own.spent),
                whole(own.donated),
                whole(own.borrowed),
                whole(own.expired)
            ),
        ),
        fact(
            "now",
            format!(
                "{} IOPS, read {}, written {}, p95 at it {tail}",
                whole(flow.iops),
                rows::rate(flow.read_bytes).text,
                rows::rate(flow.written_bytes).text
            ),
        ),
        fact("holds", format!("{} requests, {} wait for it", flow.depth, flow.queued)),
        fact("model", model),
    ]
}

/// Returns the table of a device's tenants in the last second, the largest spender of tokens first.
fn tenants_on(tenants: &[admin::TenantStatus], device: &str) -> Vec<Line<'static>> {
    let mut own: Vec<_> = tenants.iter().filter(|one| one.device == device).collect();
    own.sort_by(|a, b| b.measured.tokens.total_cmp(&a.measured.tokens));
    let columns = |name: &str, figures: [String; 5]| {
        let figures: String = figures.iter().map(|figure| format!("{figure:>12}")).collect();
        format!("{name:<24.24}{figures}")
    };
    let titles = ["IOPS", "RESERVED", "SPENT", "DONATED", "BORROWED"].map(str::to_owned);
    let mut lines = vec![Line::from(Span::styled(columns("TENANT", titles), BOLD))];
    lines.extend(own.into_iter().map(|one| {
        let of = &one.measured;
        let reserved = number_text(one.tokens_needed as f64);
        let [iops, spent, donated, borrowed] =
            [of.iops, of.tokens, of.donated, of.borrowed].map(whole);
        Line::from(columns(&one.name, [iops, reserved, spent, donated, borrowed]))
    }));
    lines
}

pub(super) fn draw_worker(frame: &mut Frame<'_>, area: Rect, data: &Data, name: &str) {
    let Some(flow) = data.flows.workers.iter().find(|flow| flow.number.to_string() == name) else {
        return draw_gone(frame, area, "the worker is gone");
    };
    let StageTails { scheduler_us, device_us, reply_us } = flow.stages;
    let [queued, at_device, in_reply] = [scheduler_us, device_us, reply_us]
        .map(|us| us.map_or("-".to_owned(), |us| format!("≤ {}", micros_text(us))));
    let requests = count_text(flow.in_flight.into(), "request");
    let buffers = count_text(flow.buffers.into(), "buffer");
    let facts = vec![
        fact("busy", format!("{:.1} %, {} turns/s", flow.busy_percent, whole(flow.turns))),
        fact("waits", format!("{:.1} % for a processor", flow.waited_percent)),
        fact("serves", count_text(flow.connections.into(), "connection")),
        fact(
            "now",
            format!(
                "{} IOPS, read {}, written {}",
                whole(flow.iops),
                rows::rate(flow.read_bytes).text,
                rows::rate(flow.written_bytes).text
            ),
        ),
        fact("p95", format!("{queued} queued, {at_device} at a device, {in_reply} in reply")),
        fact("holds", format!("{requests} in flight, {buffers}")),
    ];
    draw_both(frame, area, facts, "what its busy time goes into", shares(flow));
}

/// Returns a line with a bar for each part of a worker's busy time.
fn shares(flow: &FlowOfWorker) -> Vec<Line<'static>> {
    let line = |(what, share): (&str, f64)| {
        let eighths = (share / 100.0 * (2 * BAR * 8) as f64).ceil() as usize;
        Line::from(vec![
            Span::styled(format!("{what:<12}"), DIM),
            Span::raw(format!("{share:>6.1} %  ")),
            Span::styled(bar(eighths), Style::new().fg(Color::Cyan)),
        ])
    };
    PARTS.into_iter().zip(flow.parts).map(line).collect()
}
