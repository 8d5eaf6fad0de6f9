//! `nearflash conn list|show|move|end`.

use std::process::ExitCode;

use clap::Subcommand;
use control::admin::Connection;

use super::table::{Side, facts, table, text};
use super::{Common, Failure};
use lab::report::number_text;

/// Show, move and end connections of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum ConnCommand {
    /// List all connections with their workers
    List,
    /// Show one connection
    Show {
        /// Name of the connection, from `nearflash conn list`
        id: String,
    },
    /// End a connection when its requests in flight have ended. Its client may connect again
    End {
        /// Name of the connection, from `nearflash conn list`
        id: String,
        /// Deadline in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        deadline: u64,
    },
    /// Move a connection to another worker while it is used
    Move {
        /// Name of the connection, from `nearflash conn list`; its name changes
        id: String,
        /// Number of the worker that takes it
        #[arg(long, value_name = "WORKER")]
        to: usize,
    },
}

impl ConnCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        match self {
            ConnCommand::List => common.print(&client.connections()?, |all| list(&all.connections)),
            ConnCommand::Show { id } => common.print(&client.get::<Connection>(id)?, show),
            ConnCommand::End { id, deadline } => {
                let ending = client.end_connection(id, deadline.saturating_mul(1_000))?;
                common.print(&ending, |one| ends(one, *deadline));
            }
            ConnCommand::Move { id, to } => {
                let moved = client.move_connection(id, *to)?;
                common.print(&moved, |moved| {
                    let pause = number_text(moved.pause_us as f64);
                    format!("moved {id}: it is {} now, after a pause of {pause} µs", moved.id)
                });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn ends(one: &Connection, deadline: u64) -> String {
    let Connection { id, peer, in_flight, .. } = one;
    match in_flight {
        0 => format!("ended {id}, of {peer}"),
        1 => format!("{id}, of {peer}, ends with its 1 request in flight, or in {deadline} s"),
        n => format!("{id}, of {peer}, ends with its {n} requests in flight, or in {deadline} s"),
    }
}

/// Returns the state of a connection: as a sentence, and as a word or two for a table.
fn state(one: &Connection) -> (&'static str, &'static str) {
    match (one.ending, one.can_move) {
        (true, _) => ("ends: no more requests are taken from it", "ends"),
        (false, true) => ("open, can move to other workers", ""),
        (false, false) => ("open, cannot move to other workers", "cannot move"),
    }
}

fn show(one: &Connection) -> String {
    let number = |n: u32| number_text(f64::from(n));
    facts(
        &format!("connection {}", one.id),
        &[
            ("peer", one.peer.clone()),
            ("transport", one.transport.clone()),
            ("listener", one.listener.to_string()),
            ("worker", one.worker.to_string()),
            ("tenant", one.tenant.clone().unwrap_or_else(|| "none yet".to_owned())),
            ("in flight", number(one.in_flight)),
            ("messages", number(one.messages)),
            ("state", state(one).0.to_owned()),
        ],
    )
}

fn list(connections: &[Connection]) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("CONNECTION", Left),
        ("WORKER", Right),
        ("PEER", Left),
        ("BY", Left),
        ("TENANT", Left),
        ("IN FLIGHT", Right),
        ("MESSAGES", Right),
        ("", Left),
    ]);
    for connection in connections {
        let number = |n: u32| number_text(f64::from(n));
        table.add_row([
            connection.id.clone(),
            connection.worker.to_string(),
            connection.peer.clone(),
            connection.transport.clone(),
            connection.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            number(connection.in_flight),
            number(connection.messages),
            state(connection).1.to_owned(),
        ]);
    }
    text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stand_in_columns() {
        let connection = |id: &str, tenant: Option<&str>, can_move| Connection {
            id: id.to_owned(),
            worker: 1,
            peer: "127.0.0.1:4000".to_owned(),
            transport: "tcp".to_owned(),
            tenant: tenant.map(str::to_owned),
            listener: 1,
            in_flight: 32,
            messages: 12_345,
            can_move,
            ending: false,
        };
        let ending = Connection { ending: true, ..connection("1:9.0", Some("gold"), true) };
        assert_eq!(
            show(&ending),
            "connection 1:9.0\n  peer       127.0.0.1:4000\n  transport  tcp\n  listener   1\n  worker     1\n  \
             tenant     gold\n  in flight  32\n  messages   12 345\n  \
             state      ends: no more requests are taken from it"
        );
        assert_eq!(
            ends(&ending, 10),
            "1:9.0, of 127.0.0.1:4000, ends with its 32 requests in flight, or in 10 s"
        );
        let text =
            list(&[connection("1:0.0", Some("gold"), true), connection("1:17.3", None, false)]);
        assert_eq!(
            text,
            "CONNECTION  WORKER  PEER            BY   TENANT  IN FLIGHT  MESSAGES\n\
             1:0.0            1  127.0.0.1:4000  tcp  gold           32    12 345\n\
             1:17.3           1  127.0.0.1:4000  tcp  -              32    12 345  cannot move"
        );
    }
}
