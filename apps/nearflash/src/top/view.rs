//! The screen: a line of totals, a table, and a line of keys.

mod drill;

use control::admin::{Stages, TenantStatus};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap};

use super::rows::{self, Figure, Rows, Tone};
use super::state::{State, Tab};
use lab::report::{number_text, time_text};

const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Maximum length of a histogram's bar.
const BAR: usize = 24;

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let said = state.data.flows.overcommitted.clone().filter(|_| state.trouble.is_none());
    let said = said.unwrap_or_default();
    let lines = said.len().div_ceil(usize::from(frame.area().width).max(1)) as u16;
    let [head, verdict, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines),
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(summary(state, head.width), head);
    let said = Paragraph::new(said).style(style_of(Tone::Bad)).wrap(Wrap { trim: true });
    frame.render_widget(said, verdict);
    match state.opened().map(str::to_owned) {
        Some(name) => {
            frame.render_widget(Line::from(Span::styled(title(state.tab, &name), BOLD)), tabs);
            let tenant = state.data.tenants.iter().find(|tenant| tenant.name == name);
            match state.tab {
                Tab::Devices => drill::draw_device(frame, body, &state.data, &name),
                Tab::Workers => drill::draw_worker(frame, body, &state.data, &name),
                Tab::Tenants | Tab::Namespaces => {
                    draw_tenant(frame, body, tenant, state.data.stages.as_ref());
                }
            }
            frame.render_widget(keys(&[("Esc", "back"), ("q", "quit")]), foot);
        }
        None => {
            frame.render_widget(tab_line(state), tabs);
            draw_table(frame, body, state);
            let mut help = vec![("1-4", "tables"), ("s S", "sort by"), ("r", "reverse")];
            help.extend(state.tab.opens().map(|what| ("Enter", what)));
            help.push(("q", "quit"));
            frame.render_widget(keys(&help), foot);
        }
    }
}

fn title(tab: Tab, name: &str) -> String {
    match tab {
        Tab::Workers => format!("worker {name}"),
        _ => name.to_owned(),
    }
}

fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Warn => Style::new().fg(Color::Yellow),
        Tone::Dim => DIM,
    }
}

/// Returns a line of the server's totals.
fn summary(state: &State, width: u16) -> Line<'static> {
    if let Some(why) = &state.trouble {
        let first = why.lines().next().unwrap_or_default().to_owned();
        return Line::from(Span::styled(first, style_of(Tone::Bad)));
    }
    let tenants = &state.data.tenants;
    let promised = tenants.iter().filter(|tenant| rows::is_promised(tenant)).count();
    let late = rows::tenants(tenants).rows.iter().filter(|row| row[1].text == "late").count();
    let devices = &state.data.flows.devices;
    let sum = |of: fn(&control::admin::FlowOfDevice) -> f64| devices.iter().map(of).sum::<f64>();
    let mut spans = vec![
        Span::styled("nearflash ", BOLD),
        Span::raw(format!("{} IOPS", number_text(sum(|flow| flow.iops).round()))),
        Span::styled("  read ", DIM),
        Span::raw(rows::rate(sum(|flow| flow.read_bytes)).text),
        Span::styled("  written ", DIM),
        Span::raw(rows::rate(sum(|flow| flow.written_bytes)).text),
        Span::styled("  promises ", DIM),
        Span::raw(promised.to_string()),
        Span::raw("  "),
        match late {
            0 => Span::styled("all kept", style_of(Tone::Good)),
            late => Span::styled(format!("{late} late"), style_of(Tone::Bad)),
        },
    ];
    if promised == 0 {
        spans.truncate(spans.len() - 4);
    }
    let line = Line::from(spans);
    let left = usize::from(width).saturating_sub(line.width());
    // Where it is, if there is room for it.
    match state.address.chars().count() + 2 <= left {
        true => {
            let pad = " ".repeat(left - state.address.chars().count());
            let mut line = line;
            line.push_span(Span::styled(pad + &state.address, DIM));
            line
        }
        false => line,
    }
}

fn tab_line(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for (n, tab) in Tab::ALL.into_iter().enumerate() {
        let style = match tab == state.tab {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => DIM,
        };
        spans.push(Span::styled(format!(" {} {} ", n + 1, tab.title()), style));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

fn keys(keys: &[(&str, &str)]) -> Line<'static> {
    let each = keys.iter().flat_map(|(key, what)| {
        [Span::styled(format!("{key} "), BOLD), Span::styled(format!("{what}   "), DIM)]
    });
    Line::from(each.collect::<Vec<_>>())
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    let (rows, order) = (state.rows(), state.order());
    if rows.rows.is_empty() {
        let empty = Paragraph::new("nothing here yet").style(DIM).alignment(Alignment::Center);
        return frame.render_widget(empty, area);
    }
    let is_left = |n: usize| !rows.columns[n].is_number || rows.columns[n].title == "STATUS";
    let side = |n: usize| if is_left(n) { Alignment::Left } else { Alignment::Right };
    let shown = fitting(&rows, order.column, usize::from(area.width));
    let title = |n: usize| match (n == order.column, order.is_reversed) {
        (true, false) => format!("{}▾", rows.columns[n].title),
        (true, true) => format!("{}▴", rows.columns[n].title),
        (false, _) => rows.columns[n].title.to_owned(),
    };
    let widths = shown.iter().map(|n| Constraint::Length(width(&rows, *n) as u16));
    let widths: Vec<Constraint> = widths.collect();
    let head = shown.iter().map(|n| {
        let style = if *n == order.column { BOLD } else { DIM };
        Cell::from(Text::from(title(*n)).alignment(side(*n))).style(style)
    });
    let body = rows.rows.iter().map(|row| {
        Row::new(shown.iter().map(|n| {
            let figure: &Figure = &row[*n];
            let text = Text::from(figure.text.clone()).alignment(side(*n));
            Cell::from(text).style(style_of(figure.tone))
        }))
    });
    let table = Table::new(body, widths)
        .header(Row::new(head))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut state.selected);
}

/// Returns the width of a column, with a mark behind its title.
fn width(rows: &Rows, n: usize) -> usize {
    let cells = rows.rows.iter().map(|row| row[n].text.chars().count());
    let width = cells.chain([rows.columns[n].title.chars().count() + 1]).max().unwrap_or(1);
    // Names may be long; figures are whole or not there.
    if rows.columns[n].is_number { width } else { width.min(32) }
}

/// Returns the columns that fit: the first, the one sorted by, and as many others as there is room
/// for. Columns are never cut, since a figure without its first digits would mislead.
fn fitting(rows: &Rows, sorted: usize, room: usize) -> Vec<usize> {
    let gap = 2;
    let needed = |n: usize| width(rows, n) + gap;
    let mut left = room + gap;
    left = left.saturating_sub(needed(0));
    if sorted > 0 {
        left = left.saturating_sub(needed(sorted));
    }
    let mut shown = vec![0];
    for n in 1..rows.columns.len() {
        if n == sorted {
            shown.push(n);
        } else if needed(n) <= left {
            left -= needed(n);
            shown.push(n);
        }
    }
    shown
}

fn draw_tenant(
    frame: &mut Frame<'_>,
    area: Rect,
    tenant: Option<&TenantStatus>,
    stages: Option<&Stages>,
) {
    let Some(tenant) = tenant else { return draw_gone(frame, area, "the tenant is gone") };
    let [facts, times] = Layout::vertical([Constraint::Length(8), Constraint::Min(3)]).areas(area);
    frame.render_widget(Paragraph::new(facts_of(tenant)), facts);
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(DIM)
        .title("reads since it was made, and where their time went (of one in 64)");
    let inner = block.inner(times);
    frame.render_widget(block, times);
    if let Some(stages) = stages {
        frame.render_widget(Paragraph::new(histograms(stages)), inner);
    }
}

fn draw_gone(frame: &mut Frame<'_>, area: Rect, text: &'static str) {
    frame.render_widget(Paragraph::new(text).style(DIM).alignment(Alignment::Center), area);
}

/// Returns a line with a name and a value.
fn fact(name: &str, value: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<16}"), DIM), Span::raw(value)])
}

fn facts_of(tenant: &TenantStatus) -> Vec<Line<'static>> {
    let measured = &tenant.measured;
    let micros = |us: Option<f64>| us.map_or("-".to_owned(), |us| time_text(us * 1e3));
    let share = |share: Option<f64>| {
        share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
    };
    let promise = tenant.slo.as_ref().map_or("none: best effort".to_owned(), |slo| {
        format!(
            "p{} ≤ {} at {} IOPS, {} % reads, {} tokens/s",
            slo.percentile,
            time_text(f64::from(slo.latency_us) * 1e3),
            number_text(slo.iops.into()),
            slo.read_percent,
            number_text(tenant.tokens_needed as f64)
        )
    });
    let compliance = &measured.compliance;
    vec![
        fact("device", tenant.device.clone()),
        fact("promise", promise),
        fact(
            "reads in bound",
            format!(
                "{} of the last second, {} of the last minute; kept in {} of the seconds",
                share(compliance.second),
                share(compliance.minute),
                share(compliance.kept)
            ),
        ),
        fact(
            "now",
            format!(
                "{} IOPS, p95 {}, {} tokens/s, throttled {:.0} %",
                number_text(measured.iops.round()),
                micros(measured.p95_us),
                number_text(measured.tokens.round()),
                measured.throttled * 100.0
            ),
        ),
        fact("tokens", drill::tokens_of(tenant)),
        fact(
            "not done",
            format!(
                "{} failed, {} told to try again, a second",
                number_text(measured.failures.round()),
                number_text(measured.retries.round())
            ),
        ),
        fact(
            "holds",
            format!("{} connections, {} requests in flight", tenant.connections, tenant.in_flight),
        ),
    ]
}

/// Returns a bar with a length in eighths of a character.
fn bar(eighths: usize) -> String {
    let mut bar = "█".repeat(eighths / 8);
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][rest]);
    }
    bar
}

/// Returns the bars of the latency and of each stage, side by side.
fn histograms(stages: &Stages) -> Vec<Line<'static>> {
    let columns =
        [&stages.latency, &stages.scheduler, &stages.device, &stages.reply].map(|column| {
            let most = column.iter().copied().max().unwrap_or(0).max(1);
            (column, most)
        });
    let title = |text: &str| Span::styled(format!("{text:<width$}", width = BAR + 2), BOLD);
    let mut lines = vec![Line::from(vec![
        Span::raw(format!("{:>9}  ", "")),
        title("latency"),
        title("scheduler"),
        title("device"),
        title("reply"),
    ])];
    let used = |n: &usize| columns.iter().any(|(column, _)| column.get(*n).is_some_and(|c| *c > 0));
    let last = stages.latency.len();
    let first = (0..last).find(used).unwrap_or(0);
    let end = (0..last).rfind(used).map_or(first, |n| n + 1);
    for n in first..end {
        let edge = match stages.edges_us.get(n) {
            Some(us) => format!("≤ {}", time_text(us * 1e3)),
            None => "more".to_owned(),
        };
        let mut spans = vec![Span::styled(format!("{edge:>9}  "), DIM)];
        for (column, most) in &columns {
            let count = column.get(n).copied().unwrap_or(0);
            let bar = bar((count * BAR as u64 * 8).div_ceil(*most) as usize);
            let pad = " ".repeat(BAR + 2 - bar.chars().count());
            spans.push(Span::styled(bar, Style::new().fg(Color::Cyan)));
            spans.push(Span::raw(pad));
        }
        lines.push(Line::from(spans));
    }
    lines
}

#[cfg(test)]
mod tests;
