//! `nearflash conn list|move`.

use std::process::ExitCode;

use clap::Subcommand;
use control::admin::Connection;

use super::table::{Side, table, text};
use super::{Common, Failure};
use crate::report::number_text;

/// Shows and moves the connections of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all connections, with the workers that serve them
    List,
    /// Move a connection to another worker, while it is used
    Move {
        /// The connection, as `nearflash conn list` shows it; it has another name afterwards
        id: String,
        /// The worker that is to serve it
        #[arg(long, value_name = "WORKER")]
        to: usize,
    },
}

impl Command {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        match self {
            Command::List => {
                let all = client.connections()?;
                common.print(&all, |all| list(&all.connections));
            }
            Command::Move { id, to } => {
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

fn list(connections: &[Connection]) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("CONNECTION", Left),
        ("WORKER", Right),
        ("PEER", Left),
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
            connection.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            number(connection.in_flight),
            number(connection.messages),
            if connection.can_move { "" } else { "cannot move" }.to_owned(),
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
            tenant: tenant.map(str::to_owned),
            listener: 1,
            in_flight: 32,
            messages: 12_345,
            can_move,
        };
        let text =
            list(&[connection("1:0.0", Some("gold"), true), connection("1:17.3", None, false)]);
        assert_eq!(
            text,
            "CONNECTION  WORKER  PEER            TENANT  IN FLIGHT  MESSAGES\n\
             1:0.0            1  127.0.0.1:4000  gold           32    12 345\n\
             1:17.3           1  127.0.0.1:4000  -              32    12 345  cannot move"
        );
    }
}
