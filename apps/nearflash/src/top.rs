//! `nearflash top`: a running server on one screen, over its admin API.
//!
//! The screen has tables of tenants with their promises, devices, workers and namespaces, each
//! sorted by a column of choice. Detailed views show a tenant with the time that its reads spend in
//! each stage, a device with its tokens and the tenants that spend them, and a worker with the
//! parts of its time. `view.rs` draws the state of `state.rs`, so that tests can draw to a terminal
//! in memory.

mod rows;
mod state;
mod trend;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use control::admin::{Client, ClientError, Devices, Flows, Stages};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use server::reach::AdminOptions;
use state::{Data, State};

/// Watch tenants, devices, workers and namespaces of a running server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: AdminOptions,
    /// Print each table once and exit
    #[arg(long)]
    once: bool,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let say = |error: ClientError| error.to_string();
    let mut client = args.reach.client().map_err(say)?;
    let data = look(&mut client, None).map_err(say)?;
    if args.once || !std::io::stdout().is_terminal() {
        outln!("{}", rows::plain(&data));
        return Ok(ExitCode::SUCCESS);
    }
    if !(0.1..=3600.0).contains(&args.every) {
        return Err(format!("--every is {}; expected 0.1 to 3600 seconds", args.every));
    }
    let mut terminal = ratatui::init();
    let state = State::new(args.reach.address().to_string(), data);
    let ended = watch(&mut terminal, &mut client, state, Duration::from_secs_f64(args.every));
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS).map_err(|error| format!("the terminal failed: {error}"))
}

/// Draws the screen, queries the server every `every`, and handles keys until the user quits.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    client: &mut Client,
    mut state: State,
    every: Duration,
) -> std::io::Result<()> {
    let mut looked_at = now();
    loop {
        terminal.draw(|frame| view::draw(frame, &mut state))?;
        let left = every.saturating_sub(looked_at.elapsed());
        if event::poll(left)? {
            let pressed = match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => Some(key),
                _ => None,
            };
            if pressed.is_some_and(|key| state.press(key).is_break()) {
                return Ok(());
            }
        }
        if looked_at.elapsed() >= every || state.is_stale() {
            let looked = look(client, state.opened_tenant());
            state.take(looked.map_err(|error| error.to_string()));
            looked_at = now();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a screen is drawn again in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Queries what the screen shows from the server, including the stages of the tenant that is
/// opened.
fn look(client: &mut Client, opened: Option<&str>) -> Result<Data, ClientError> {
    Ok(Data {
        tenants: client.tenants()?,
        devices: client.read::<Devices>()?.devices,
        flows: client.read::<Flows>()?,
        // It may have gone meanwhile.
        stages: opened.and_then(|name| client.get::<Stages>(name).ok()),
    })
}
