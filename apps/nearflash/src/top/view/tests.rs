//! Tests that the screen is drawn as in `screens.txt`, which `UPDATE_SNAPSHOTS=1` writes anew.

use super::*;

use control::admin::{
    Class, Compliance, DeviceStatus, FlowOfDevice, FlowOfNamespace, FlowOfWorker, Flows, Measured,
    Origin, Share, Slo, StageTails, TokenRates,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::top::state::Data;

fn tenant(name: &str, iops: f64, promise: Option<(u32, f64, f64)>) -> TenantStatus {
    let slo = promise.map(|(latency_us, ..)| Slo {
        latency_us,
        percentile: 95.0,
        iops: 120_000,
        read_percent: 100,
        request_bytes: 4096,
    });
    let compliance = promise.map_or(Compliance::default(), |(_, _, minute)| Compliance {
        second: Some(minute),
        minute: Some(minute),
        kept: Some(1.0),
    });
    let us = promise.map(|(_, us, _)| us);
    let is_promised = slo.is_some();
    TenantStatus {
        name: name.to_owned(),
        number: 1,
        state: control::admin::State::Active,
        origin: Origin::Operator,
        class: if is_promised { Class::LatencyCritical } else { Class::BestEffort },
        device: "fast".to_owned(),
        tokens_needed: if is_promised { 120_000 } else { 0 },
        slo,
        share: Share { weight: 1, cap_tokens: None },
        note: None,
        measured: Measured {
            iops,
            tokens: iops,
            donated: if name == "gold" { 1_750.0 } else { 0.0 },
            borrowed: if is_promised { 0.0 } else { iops / 2.0 },
            p95_us: us.or(Some(2_310.0)).filter(|_| iops > 0.0),
            slo_percentile_us: us.filter(|_| iops > 0.0),
            read_bytes: iops * 4096.0,
            written_bytes: if is_promised { 0.0 } else { 12_300_000.0 },
            failures: if name == "silver" { 3.0 } else { 0.0 },
            compliance,
            ..Measured::default()
        },
        connections: 2,
        in_flight: 17,
    }
}

fn data() -> Data {
    let device = DeviceStatus {
        name: "fast".to_owned(),
        has_model: true,
        tokens: Some(420_000),
        tokens_promised: 240_000,
        tokens_left: Some(180_000),
        tokens_headroom: 0,
        strictest: None,
        correction: None,
        drift: None,
        recalibrated: false,
        settings: None,
    };
    let flow = FlowOfDevice {
        name: "fast".to_owned(),
        iops: 300_123.0,
        read_bytes: 1.2e9,
        written_bytes: 12.3e6,
        p95_us: Some(262.144),
        depth: 64,
        queued: 9,
        tokens: TokenRates { spent: 410_000.0, borrowed: 12_000.0, ..TokenRates::default() },
    };
    let stages = StageTails { scheduler_us: Some(8.192), device_us: Some(262.144), reply_us: None };
    let worker = |number, busy_percent| FlowOfWorker {
        number,
        busy_percent,
        waited_percent: 0.4,
        turns: 51_234.0,
        iops: 150_061.0,
        read_bytes: 0.6e9,
        written_bytes: 6.2e6,
        stages,
        connections: 1,
        in_flight: 40,
        buffers: 38,
        parts: [20.4, 24.0, 6.1, 3.5, 45.0, 1.0],
    };
    let namespace = FlowOfNamespace {
        number: 1,
        iops: 300_123.0,
        read_bytes: 1.2e9,
        written_bytes: 12.3e6,
        stages,
    };
    let mut latency = vec![0; 18];
    latency[5..9].copy_from_slice(&[120, 9_000, 2_000, 90]);
    let mut short = vec![0; 18];
    short[0..3].copy_from_slice(&[300, 40, 2]);
    Data {
        tenants: vec![
            tenant("gold", 118_250.0, Some((500, 412.0, 0.998))),
            tenant("silver", 99_000.0, Some((500, 731.0, 0.912))),
            tenant("batch", 61_000.0, None),
            tenant("idle one", 0.0, None),
        ],
        devices: vec![device],
        flows: Flows {
            devices: vec![flow],
            workers: vec![worker(0, 96.2), worker(1, 41.0)],
            namespaces: vec![namespace],
            overcommitted: None,
        },
        stages: Some(Stages {
            edges_us: (0..17).map(|n| 4.096 * f64::from(1 << n)).collect(),
            scheduler: short.clone(),
            device: latency.iter().map(|count| count / 32).collect(),
            latency,
            reply: short,
        }),
    }
}

fn screen(state: &mut State, width: u16) -> String {
    screen_of(state, width, 18)
}

fn screen_of(state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let text = terminal.backend().to_string();
    // The backend's lines stand in quotes.
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn press(state: &mut State, codes: &[KeyCode]) {
    for code in codes {
        assert!(state.press(KeyEvent::new(*code, KeyModifiers::NONE)).is_continue(), "{code:?}");
    }
}

fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn a_search_shows_the_rows_whose_name_contains_it_and_digits_are_letters_of_it() {
    let mut state = State::new("/run/x".to_owned(), data());
    press(&mut state, &typed("/S"));
    assert_eq!(state.rows().rows.len(), 1);
    press(&mut state, &typed("4q?"));
    assert_eq!((state.tab, state.rows().rows.len()), (Tab::Tenants, 0));
    assert!(screen(&mut state, 80).contains("no name contains \"S4q?\"; Esc shows all"));
    press(&mut state, &[KeyCode::Backspace; 3]);
    press(&mut state, &[KeyCode::Enter, KeyCode::Enter]);
    assert_eq!(state.opened(), Some("silver"));
    press(&mut state, &[KeyCode::Esc]);
    assert!(screen(&mut state, 80).contains("/S") && state.rows().rows.len() == 1);
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(state.rows().rows.len(), 4);
    assert!(state.press(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)).is_break());
}

#[test]
fn every_column_and_row_that_matters_can_be_seen_on_80_by_24() {
    let mut state = State::new("/run/x".to_owned(), data());
    for digit in ['1', '2', '3', '4'] {
        press(&mut state, &[KeyCode::Char(digit)]);
        let mut seen = screen_of(&mut state, 80, 24);
        for _ in 0..12 {
            press(&mut state, &[KeyCode::Right]);
            seen += &screen_of(&mut state, 80, 24);
        }
        for column in &state.rows().columns {
            assert!(seen.contains(column.title), "{}: {seen}", column.title);
        }
        press(&mut state, &[KeyCode::Left; 12]);
        assert_eq!(state.scrolled, 0);
    }
    press(&mut state, &typed("1"));
    press(&mut state, &[KeyCode::Enter]);
    // Rows of few reads become one; those of many stay.
    let mut wide = data();
    let stages = wide.stages.as_mut().unwrap();
    stages.latency = vec![1, 1, 1, 1, 1, 1, 1, 1, 5, 9, 70, 900, 80_000, 9_000, 700, 3, 1, 0];
    state.take(Ok(wide));
    let shown = screen_of(&mut state, 80, 24);
    assert!(
        shown.contains("≤ 16.8 ms  ███████████████") && shown.contains("seconds kept"),
        "{shown}"
    );
    assert!(shown.lines().all(|line| line.chars().count() <= 80));
    assert!(screen_of(&mut state, 50, 12).contains("q quit"));
}

#[test]
fn the_trend_of_latencies_is_drawn_up_to_the_bound() {
    let mut state = State::new("/run/x".to_owned(), data());
    let trend = |state: &State, name: &str| {
        let rows = state.rows().rows;
        rows.into_iter().find(|row| row[0].text == name).unwrap()[6].text.clone()
    };
    // The bound is 500 µs: 412 µs are seven eighths, and 731 µs are more than all.
    assert_eq!([trend(&state, "gold"), trend(&state, "silver")], ["▇", "█"]);
    assert_eq!([trend(&state, "batch"), trend(&state, "idle one")], ["█", "·"]);
    for us in [60.0, 130.0, 499.0] {
        let mut later = data();
        later.tenants[0].measured.slo_percentile_us = Some(us);
        later.tenants[2].measured.p95_us = Some(us);
        state.take(Ok(later));
    }
    assert_eq!([trend(&state, "gold"), trend(&state, "batch")], ["▇▁▃█", "█▁▁▂"]);
    let mut gone = data();
    gone.tenants.remove(0);
    state.take(Ok(gone));
    (0..9).for_each(|_| state.take(Ok(data())));
    assert_eq!([trend(&state, "gold"), trend(&state, "silver")], ["▇▇▇▇▇▇▇▇", "████████"]);
    // All of a promise is in sight on a small screen.
    let shown = screen_of(&mut state, 80, 24);
    assert!(shown.contains("TREND") && shown.contains("IN BOUND"), "{shown}");
    assert!(!rows::plain(&data()).contains("TREND"), "one look has no trend");
}

#[test]
fn the_keys_are_explained_until_the_next_key() {
    let mut state = State::new("/run/x".to_owned(), data());
    press(&mut state, &[KeyCode::Char('?')]);
    let shown = screen_of(&mut state, 80, 24);
    for (key, _) in KEYS {
        assert!(shown.contains(key), "{key}: {shown}");
    }
    press(&mut state, &[KeyCode::Char('q')]);
    assert!(!state.shows_help && !screen_of(&mut state, 80, 24).contains("PgUp"));
}

#[test]
fn screens_look_as_they_did() {
    let mut state = State::new("/run/nearflash/nearflash.sock".to_owned(), data());
    let mut all = String::new();
    let mut show = |title: &str, state: &mut State, width| {
        all += &format!("== {title}\n{}\n\n", screen(state, width));
    };
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    show("tenants, those in trouble first", &mut state, 132);
    assert!(state.press(key(KeyCode::Char('s'))).is_continue());
    assert!(state.press(key(KeyCode::Char('r'))).is_continue());
    show("tenants, the least requests first", &mut state, 132);
    show("tenants on a narrow screen", &mut state, 80);
    press(&mut state, &[KeyCode::Right; 3]);
    show("tenants on a narrow screen, other columns", &mut state, 80);
    press(&mut state, &[KeyCode::Left; 3]);
    press(&mut state, &[KeyCode::Char('?')]);
    show("the keys", &mut state, 80);
    press(&mut state, &typed("?/l"));
    show("a search", &mut state, 80);
    press(&mut state, &[KeyCode::Esc]);
    for (digit, title) in [('2', "devices"), ('3', "workers"), ('4', "namespaces")] {
        assert!(state.press(key(KeyCode::Char(digit))).is_continue());
        show(title, &mut state, 132);
        assert!(state.press(key(KeyCode::Enter)).is_continue());
        assert!(!state.is_stale() && state.opened_tenant().is_none(), "{title}");
        if state.opened().is_some() {
            show(&format!("one of the {title}"), &mut state, 132);
            assert!(state.press(key(KeyCode::Esc)).is_continue());
        }
    }
    assert!(state.press(key(KeyCode::Char('1'))).is_continue());
    for code in [KeyCode::Down, KeyCode::Down, KeyCode::Down, KeyCode::Enter] {
        assert!(state.press(key(code)).is_continue());
    }
    assert_eq!((state.opened(), state.is_stale()), (Some("gold"), true));
    state.take(Ok(data()));
    show("one tenant", &mut state, 132);
    show("one tenant on a narrow screen", &mut state, 80);
    assert!(state.press(key(KeyCode::Esc)).is_continue());
    let mut starved = data();
    starved.flows.workers[1].waited_percent = 37.4;
    let verdict = "the machine is overcommitted: worker 1 was ready to run and did not for 37 % of the \
                   last second";
    starved.flows.overcommitted = Some(verdict.to_owned());
    state.take(Ok(starved));
    show("workers that wait for processors", &mut state, 132);
    show("workers that wait for processors, on a narrow screen", &mut state, 80);
    state.take(Err("no answer from /run/nearflash/nearflash.sock: refused".to_owned()));
    show("a server that is gone", &mut state, 132);
    assert!(state.press(key(KeyCode::Char('q'))).is_break());
    all += &format!("== once\n{}\n", rows::plain(&data()));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/view/screens.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let before = std::fs::read_to_string(path).unwrap_or_default();
    assert!(all == before, "the screens are not those of {path}; they are\n{all}");
}
