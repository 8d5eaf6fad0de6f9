//! `nearflash worker list|show|add|retire|drain`.

use std::process::ExitCode;

use clap::Subcommand;
use control::admin::{SetWorker, Worker, WorkerState};
use serde_json::json;

use super::table::{Side, facts, table, text};
use super::{Common, Failure};
use lab::report::number_text;

/// Show, add, drain and retire workers of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List all workers with their load and moved connections
    List,
    /// Show one worker
    Show {
        /// Number of the worker
        number: usize,
    },
    /// Add a worker: it takes new connections and a part of the existing ones
    Add {
        /// Number of the worker [default: the first parked one]
        number: Option<usize>,
    },
    /// Drain a worker: move its connections to the others, end the rest at the deadline, and park
    /// it
    Drain {
        /// Number of the worker
        number: usize,
        /// Deadline in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        deadline: u64,
    },
    /// Retire a worker: move all its connections to the others, and park it
    Retire {
        /// Number of the worker
        number: usize,
    },
}

impl WorkerCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        match self {
            WorkerCommand::List => {
                let workers = client.workers()?;
                common.print(&workers, |workers| list(&workers.workers));
            }
            WorkerCommand::Show { number } => {
                common.print(&client.get::<Worker>(&number.to_string())?, show)
            }
            WorkerCommand::Add { number } => {
                let number = match number {
                    Some(number) => *number,
                    None => {
                        let workers = client.workers()?.workers;
                        let rests = workers.iter().find(|w| w.state != WorkerState::Active);
                        let rests = rests.ok_or("every worker serves already".to_owned())?;
                        rests.number
                    }
                };
                client.set_worker(number, WorkerState::Active)?;
                common.print(&json!({ "added": number }), |_| format!("added worker {number}"));
            }
            WorkerCommand::Drain { number, deadline } => {
                let deadline_ms = Some(deadline.saturating_mul(1_000));
                let parked = SetWorker { state: WorkerState::Parked, deadline_ms };
                client.send_to(&number.to_string(), &parked)?;
                common.print(&json!({ "drained": number }), |_| {
                    format!(
                        "drained worker {number}: its connections move to the others, and those that \
                         cannot end in {deadline} s"
                    )
                });
            }
            WorkerCommand::Retire { number } => {
                client.set_worker(*number, WorkerState::Parked)?;
                common.print(&json!({ "retired": number }), |_| {
                    format!("retired worker {number}: its connections move to the others")
                });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(worker: &Worker) -> String {
    let number = |n: u32| number_text(f64::from(n));
    let pause = match worker.moved {
        0 => String::new(),
        _ => format!("; the longest pause was {} µs", number(worker.pause_us_max)),
    };
    let moves = format!(
        "{} left for others, {} came, {} were to leave and stayed{pause}",
        number(worker.moved),
        number(worker.arrived),
        number(worker.stayed)
    );
    facts(
        &format!("worker {}", worker.number),
        &[
            ("state", state_word(worker.state).to_owned()),
            ("processor", worker.cpu.map_or("any".to_owned(), |cpu| cpu.to_string())),
            ("busy", format!("{:.1} %", worker.busy_percent)),
            ("connections", number(worker.connections as u32)),
            ("moves", moves),
        ],
    )
}

fn state_word(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Active => "active",
        WorkerState::Retiring => "retiring",
        WorkerState::Parked => "parked",
    }
}

fn list(workers: &[Worker]) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("WORKER", Right),
        ("STATE", Left),
        ("CPU", Right),
        ("BUSY", Right),
        ("WAITED", Right),
        ("CONNECTIONS", Right),
        ("LEFT", Right),
        ("CAME", Right),
        ("STAYED", Right),
        ("LONGEST PAUSE", Right),
    ]);
    for worker in workers {
        let number = |n: u32| number_text(f64::from(n));
        table.add_row([
            worker.number.to_string(),
            state_word(worker.state).to_owned(),
            worker.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
            format!("{:.0} %", worker.busy_percent),
            format!("{:.1} %", worker.waited_percent),
            number(worker.connections as u32),
            number(worker.moved),
            number(worker.arrived),
            number(worker.stayed),
            match worker.moved {
                0 => "-".to_owned(),
                _ => format!("{} µs", number(worker.pause_us_max)),
            },
        ]);
    }
    text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_stand_in_columns() {
        let worker = |number, state, moved| Worker {
            number,
            cpu: Some(number + 2),
            state,
            connections: 1_200,
            busy_percent: 61.3,
            waited_percent: 0.4,
            moved,
            stayed: 0,
            arrived: 3,
            pause_us_max: 412,
        };
        assert_eq!(
            show(&worker(1, WorkerState::Retiring, 7)),
            "worker 1\n  state        retiring\n  processor    3\n  busy         61.3 %\n  \
             connections  1 200\n  moves        7 left for others, 3 came, 0 were to leave and \
             stayed; the longest pause was 412 µs"
        );
        let text = list(&[worker(0, WorkerState::Active, 0), worker(1, WorkerState::Retiring, 7)]);
        assert_eq!(
            text,
            "WORKER  STATE     CPU  BUSY  WAITED  CONNECTIONS  LEFT  CAME  STAYED  LONGEST PAUSE\n\
             \x20    0  active      2  61 %   0.4 %        1 200     0     3       0              -\n\
             \x20    1  retiring    3  61 %   0.4 %        1 200     7     3       0         412 µs"
        );
    }
}
