//! The screen of `nearflash top`: a line of totals, a table or a view, and a line of keys.

mod drill;

use control::admin::{Stages, TenantStatus};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, Wrap};

use super::rows::{self, Figure, Rows, Tone};
use super::state::{State, Tab};
use lab::report::{count_text, micros_text, number_text};

const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Maximum length of a histogram's bar, in characters.
const BAR: usize = 24;

/// Width in characters of the column before the histograms' bars, which shows the upper edge of
/// each row's latencies.
const EDGE: usize = 11;

/// The keys and their effects, for the help.
const KEYS: [(&str, &str); 9] = [
    ("1-4, Tab", "another table"),
    ("↑ ↓, PgUp, PgDn, Home, End", "another row"),
    ("Enter, Esc", "open the row, and back"),
    ("← →", "other columns, where they do not all fit"),
    ("/", "rows whose name contains a text; Esc: all rows"),
    ("s S", "sort by the next column, or the one before"),
    ("r", "reverse the order"),
    ("?", "this list"),
    ("q, Ctrl-C", "quit"),
];

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
            frame.render_widget(keys(&[("q", "quit"), ("?", "help"), ("Esc", "back")]), foot);
        }
        None => {
            frame.render_widget(tab_line(state), tabs);
            let hidden = draw_table(frame, body, state);
            frame.render_widget(hidden.style(DIM).alignment(Alignment::Right), tabs);
            let mut help = vec![("q", "quit"), ("?", "help"), ("/", "search"), ("s", "sort")];
            help.extend(state.tab.opens().map(|what| ("Enter", what)));
            frame.render_widget(keys(&help), foot);
        }
    }
    if state.shows_help {
        draw_help(frame);
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines = KEYS.map(|(key, what)| {
        Line::from(vec![Span::styled(format!(" {key:<28}"), BOLD), Span::raw(what)])
    });
    let all = frame.area();
    let (width, height) = (all.width.min(80), all.height.min(KEYS.len() as u16 + 2));
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    let block = Block::bordered().title(" keys ").border_style(DIM);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines.to_vec()).block(block), area);
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

/// Returns the line of the server's totals, or the error's first line if the server does not answer.
fn summary(state: &State, width: u16) -> Line<'static> {
    if let Some(why) = &state.trouble {
        let first = why.lines().next().unwrap_or_default().to_owned();
        return Line::from(Span::styled(first, style_of(Tone::Bad)));
    }
    let tenants = &state.data.tenants;
    let promised = tenants.iter().filter(|tenant| rows::is_promised(tenant)).count();
    let late = rows::tenants(tenants).rows.iter().filter(|row| row[1].text == "late").count();
    let is_idle = |one: &&TenantStatus| rows::is_promised(one) && one.measured.iops == 0.0;
    let idle = tenants.iter().filter(is_idle).count();
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
            0 if idle == promised => Span::styled("all idle", DIM),
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
    if state.is_searching || !state.search.is_empty() {
        let cursor = if state.is_searching { "▏" } else { "" };
        spans.push(Span::styled(format!("/{}{cursor}", state.search), BOLD));
    }
    Line::from(spans)
}

fn keys(keys: &[(&str, &str)]) -> Line<'static> {
    let each = keys.iter().flat_map(|(key, what)| {
        [Span::styled(format!("{key} "), BOLD), Span::styled(format!("{what}   "), DIM)]
    });
    Line::from(each.collect::<Vec<_>>())
}

/// Draws the shown table. Returns a line with the numbers of columns hidden to the left and right.
fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &mut State) -> Line<'static> {
    let (rows, order) = (state.rows(), state.order());
    if rows.rows.is_empty() {
        let text = match state.search.is_empty() {
            true => "nothing here yet".to_owned(),
            false => format!("no name contains {:?}; Esc shows all", state.search),
        };
        let empty = Paragraph::new(text).style(DIM).alignment(Alignment::Center);
        frame.render_widget(empty, area);
        return Line::default();
    }
    let is_left = |n: usize| !rows.columns[n].is_number || rows.columns[n].title == "STATUS";
    let side = |n: usize| if is_left(n) { Alignment::Left } else { Alignment::Right };
    let fits = |scrolled| fitting(&rows, order.column, usize::from(area.width), scrolled);
    let last = |scrolled| fits(scrolled).contains(&(rows.columns.len() - 1));
    let most = (0..rows.columns.len()).find(|scrolled| last(*scrolled)).unwrap_or(0);
    state.scrolled = state.scrolled.min(most);
    let shown = fits(state.scrolled);
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
    let hidden = (0..rows.columns.len()).filter(|n| !shown.contains(n));
    let (left, right): (Vec<usize>, Vec<usize>) = hidden.partition(|n| *n <= state.scrolled);
    let count = |all: &[usize], text: String| if all.is_empty() { String::new() } else { text };
    let before = count(&left, format!("← {} columns", left.len()));
    Line::from(format!("{before}{}", count(&right, format!("  {} columns →", right.len()))))
}

/// Returns the width of column `n` in characters, with room for the mark of the sort order.
fn width(rows: &Rows, n: usize) -> usize {
    let cells = rows.rows.iter().map(|row| row[n].text.chars().count());
    let width = cells.chain([rows.columns[n].title.chars().count() + 1]).max().unwrap_or(1);
    // Names may be long; figures are whole or not there.
    if rows.columns[n].is_number { width } else { width.min(32) }
}

/// Returns the indices of the columns to draw in `room` characters: the first, the one sorted by,
/// and the columns behind the first `scrolled` ones that fit whole. Figures without their first
/// digits would mislead.
fn fitting(rows: &Rows, sorted: usize, room: usize, scrolled: usize) -> Vec<usize> {
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
        } else if n > scrolled && needed(n) <= left {
            left -= needed(n);
            shown.push(n);
        } else if n > scrolled {
            left = 0;
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
        .title("reads since it was made, and where their time went (one in 64)");
    let inner = block.inner(times);
    frame.render_widget(block, times);
    if let Some(stages) = stages {
        let lines = histograms(stages, inner.width.into(), inner.height.into());
        frame.render_widget(Paragraph::new(lines), inner);
    }
}

fn draw_gone(frame: &mut Frame<'_>, area: Rect, text: &'static str) {
    frame.render_widget(Paragraph::new(text).style(DIM).alignment(Alignment::Center), area);
}

/// Returns a line with a name in a column of its own, and a value.
fn fact(name: &str, value: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<16}"), DIM), Span::raw(value)])
}

fn facts_of(tenant: &TenantStatus) -> Vec<Line<'static>> {
    let measured = &tenant.measured;
    let micros = |us: Option<f64>| us.map_or("-".to_owned(), micros_text);
    let share = |share: Option<f64>| {
        share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
    };
    let promise = tenant.slo.as_ref().map_or("none: best effort".to_owned(), |slo| {
        format!(
            "p{} ≤ {} at {} IOPS, {} % reads, {} tokens/s",
            slo.percentile,
            micros_text(slo.latency_us.into()),
            number_text(slo.iops.into()),
            slo.read_percent,
            number_text(tenant.tokens_needed as f64)
        )
    });
    let compliance = &measured.compliance;
    let connections = count_text(tenant.connections.into(), "connection");
    let requests = count_text(tenant.in_flight.into(), "request");
    vec![
        fact("device", tenant.device.clone()),
        fact("promise", promise),
        fact(
            "reads in bound",
            format!(
                "last second {}, minute {}; {} of seconds kept",
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
        fact("tokens/s", drill::tokens_of(tenant)),
        fact(
            "not done",
            format!(
                "{} failed, {} refused as busy, a second",
                number_text(measured.failures.round()),
                number_text(measured.retries.round())
            ),
        ),
        fact("holds", format!("{connections}, {requests} in flight")),
    ]
}

/// Returns a horizontal bar of `eighths` / 8 characters.
fn bar(eighths: usize) -> String {
    let mut bar = "█".repeat(eighths / 8);
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][rest]);
    }
    bar
}

/// Returns the rows of the histograms of a tenant's reads: the upper edge in microseconds (`None`:
/// no bound), and the counts of latency, scheduler, device and reply. If there are more than `most`
/// rows, neighbours with the fewest counts become one.
fn bars_of(stages: &Stages, most: usize) -> Vec<(Option<f64>, [u64; 4])> {
    let columns = [&stages.latency, &stages.scheduler, &stages.device, &stages.reply];
    let counts = |n: usize| columns.map(|column| column.get(n).copied().unwrap_or(0));
    let all = (0..stages.latency.len()).map(|n| (stages.edges_us.get(n).copied(), counts(n)));
    let all: Vec<_> = all.collect();
    let is_used = |row: &(_, [u64; 4])| row.1.iter().any(|count| *count > 0);
    let first = all.iter().position(is_used).unwrap_or(0);
    let end = all.iter().rposition(is_used).map_or(first, |n| n + 1);
    let mut rows = all[first..end].to_vec();
    let sums = columns.map(|column| column.iter().sum::<u64>().max(1) as f64);
    let weight =
        |row: &(_, [u64; 4])| row.1.iter().zip(sums).map(|(n, sum)| *n as f64 / sum).sum::<f64>();
    while rows.len() > most.max(1) {
        let pairs = rows.windows(2).map(|pair| weight(&pair[0]) + weight(&pair[1]));
        let least = pairs.enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
        let Some((n, _)) = least else { break };
        let (_, fewer) = rows.remove(n);
        rows[n].1.iter_mut().zip(fewer).for_each(|(count, more)| *count += more);
    }
    rows
}

/// Returns the lines of four histograms side by side, of the latency and of each stage, in an area
/// of `width` times `height` characters.
fn histograms(stages: &Stages, width: usize, height: usize) -> Vec<Line<'static>> {
    let longest = (width.saturating_sub(EDGE) / 4).saturating_sub(2).clamp(4, BAR);
    let title = |text: &str| Span::styled(format!("{text:<width$}", width = longest + 2), BOLD);
    let mut lines = vec![Line::from(" ".repeat(EDGE))];
    let titles = ["latency", "scheduler", "device", "reply"].map(title);
    titles.into_iter().for_each(|title| lines[0].push_span(title));
    let rows = bars_of(stages, height.saturating_sub(1));
    let most = [0, 1, 2, 3].map(|n| rows.iter().map(|row| row.1[n]).max().unwrap_or(0).max(1));
    for (edge, counts) in &rows {
        let edge = edge.map_or("more".to_owned(), |us| format!("≤ {}", micros_text(us)));
        let mut spans = vec![Span::styled(format!("{edge:>9}  "), DIM)];
        for (count, most) in counts.iter().zip(most) {
            let bar = bar((count * longest as u64 * 8).div_ceil(most) as usize);
            let pad = " ".repeat(longest + 2 - bar.chars().count());
            spans.push(Span::styled(bar, Style::new().fg(Color::Cyan)));
            spans.push(Span::raw(pad));
        }
        lines.push(Line::from(spans));
    }
    lines
}

#[cfg(test)]
mod tests;
