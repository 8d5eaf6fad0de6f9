//! `nearflash namespace add|resize|set|rm|show|list`.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use clap::Subcommand;
use control::admin::{
    Client, GIVE_BACK_MAX, NamespacePatch, NamespaceStatus, Namespaces, NewNamespace,
    RemoveNamespace,
};
use flash::{parse_size, size_text};

use lab::errln;

use super::table::{Side, facts, rows_or};
use super::{Common, Failure};

/// The time after which a removal says what it waits for.
const NOTE_AFTER: Duration = Duration::from_secs(2);

/// Add, change, remove and show namespaces of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// Add a namespace, which reads as zeroes. Connected hosts are told
    Add {
        /// Name of the namespace: letters, digits, `-`, `_` and `.`
        name: String,
        /// Size: 2GiB
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Device that has the blocks [default: the first]
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
        /// Subsystem in which hosts find the namespace; repeatable [default: those that have all
        /// namespaces]
        #[arg(long, value_name = "NQN")]
        subsystem: Vec<String>,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        /// UUID by which NVMe hosts know the namespace [default: a new one]
        #[arg(long, value_name = "UUID")]
        uuid: Option<String>,
    },
    /// Grow or shrink a namespace. Connected hosts are told
    Resize {
        /// Name or number of the namespace
        name: String,
        /// New size: 2GiB
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Allow shrinking: data behind the new end is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Rename a namespace, or make it read-only or writable. Connected hosts are told
    Set {
        /// Name or number of the namespace
        name: String,
        /// New name: letters, digits, `-`, `_` and `.`
        #[arg(long = "name", value_name = "NAME")]
        rename: Option<String>,
        /// Refuse writes, or accept them
        #[arg(long, value_name = "BOOL")]
        read_only: Option<bool>,
    },
    /// Remove a namespace. Connected hosts are told
    Rm {
        /// Name or number of the namespace
        name: String,
        /// Remove the namespace even if a listener leads to it
        #[arg(long)]
        force: bool,
        /// Give the space back to the file system, the disk or memory: THE DATA IS LOST. The command
        /// waits four minutes at most, and the server goes on afterwards
        #[arg(long)]
        discard: bool,
    },
    /// Show one namespace
    Show {
        /// Name or number of the namespace
        name: String,
    },
    /// List all namespaces
    List,
}

impl NamespaceCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        match self {
            NamespaceCommand::Add { name, size, device, subsystem, read_only, uuid } => {
                let made = client.send(&NewNamespace {
                    name: name.clone(),
                    bytes: *size,
                    device: device.clone(),
                    read_only: *read_only,
                    uuid: uuid.clone(),
                    subsystems: (!subsystem.is_empty()).then(|| subsystem.clone()),
                })?;
                common.print(&made, |one| {
                    let size = size_text(one.bytes);
                    format!("added {} as number {}, {size} on {}", one.name, one.number, one.device)
                });
            }
            NamespaceCommand::Rm { name, force, discard } => {
                let _note = discard.then(|| note_of_discard(client, name));
                client.send_to(name, &RemoveNamespace { force: *force, discard: *discard })?;
                common.removed(name);
            }
            NamespaceCommand::Resize { name, size, shrink } => {
                let to =
                    NamespacePatch { bytes: Some(*size), shrink: *shrink, ..Default::default() };
                let resized = client.send_to(name, &to)?;
                common.print(&resized, |one| format!("{} has {}", one.name, size_text(one.bytes)));
            }
            NamespaceCommand::Set { name, rename, read_only } => {
                if rename.is_none() && read_only.is_none() {
                    let text = "nothing to change: name --name or --read-only";
                    return Err(text.to_owned().into());
                }
                let (name_now, read_only) = (rename.clone(), *read_only);
                let to = NamespacePatch { name: name_now, read_only, ..Default::default() };
                let changed = client.send_to(name, &to)?;
                common.print(&changed, |one| format!("changed {}: {}", one.name, access(one)));
            }
            NamespaceCommand::Show { name } => common.print(&client.get(name)?, show),
            NamespaceCommand::List => {
                common.print(&client.read::<Namespaces>()?, |all| list(&all.namespaces))
            }
        }
        common.warn(client);
        Ok(ExitCode::SUCCESS)
    }
}

/// Has a client wait while the server gives the space of a namespace back. Prints after a while that
/// this goes on without the command, unless the returned sender is dropped before.
fn note_of_discard(client: &mut Client, name: &str) -> Sender<()> {
    client.wait_longer(GIVE_BACK_MAX);
    let (done, ended) = mpsc::channel();
    let most = GIVE_BACK_MAX.as_secs();
    let note = format!(
        "the server gives the space of {name} back; this command waits for it, {most} s at most \
         (Ctrl-C ends the command alone: the server goes on)"
    );
    std::thread::spawn(move || {
        if ended.recv_timeout(NOTE_AFTER) == Err(RecvTimeoutError::Timeout) {
            errln!("{note}");
        }
    });
    done
}

fn show(one: &NamespaceStatus) -> String {
    let exported = one.subsystems.iter();
    let exported = exported.map(|exported| format!("{} as {}", exported.subsystem, exported.nsid));
    let exported = exported.collect::<Vec<_>>().join(", ");
    facts(
        &format!("namespace {}", one.name),
        &[
            ("number", one.number.to_string()),
            ("size", size_text(one.bytes)),
            ("device", one.device.clone()),
            ("offset", size_text(one.offset)),
            ("access", access(one).to_owned()),
            ("uuid", one.uuid.clone().unwrap_or_else(|| "another in each subsystem".to_owned())),
            ("subsystems", if exported.is_empty() { "none".to_owned() } else { exported }),
        ],
    )
}

fn access(one: &NamespaceStatus) -> &'static str {
    if one.read_only { "read" } else { "read, write" }
}

fn list(namespaces: &[NamespaceStatus]) -> String {
    use Side::{Left, Right};
    rows_or(
        "there is no namespace",
        [
            ("NUMBER", Right),
            ("NAME", Left),
            ("SIZE", Right),
            ("DEVICE", Left),
            ("OFFSET", Right),
            ("ACCESS", Left),
            ("SUBSYSTEMS", Left),
        ],
        namespaces,
        |one| {
            let exported = one.subsystems.iter();
            let exported =
                exported.map(|exported| format!("{} as {}", exported.subsystem, exported.nsid));
            [
                one.number.to_string(),
                one.name.clone(),
                size_text(one.bytes),
                one.device.clone(),
                size_text(one.offset),
                access(one).to_owned(),
                exported.collect::<Vec<_>>().join(", "),
            ]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::Exported;

    #[test]
    fn namespaces_stand_in_columns() {
        let one = NamespaceStatus {
            number: 1,
            name: "logs".to_owned(),
            device: "fast".to_owned(),
            offset: 0,
            bytes: 2 << 30,
            read_only: false,
            uuid: Some("6f2b1a4e-0c6d-4c58-9a51-1d6f8f1f0c11".to_owned()),
            subsystems: vec![Exported { subsystem: "nqn.x".to_owned(), nsid: 3 }],
        };
        assert_eq!(
            show(&one),
            "namespace logs\n  number      1\n  size        2 GiB\n  device      fast\n  \
             offset      0 B\n  access      read, write\n  \
             uuid        6f2b1a4e-0c6d-4c58-9a51-1d6f8f1f0c11\n  subsystems  nqn.x as 3"
        );
        assert_eq!(
            list(&[one]),
            "NUMBER  NAME   SIZE  DEVICE  OFFSET  ACCESS       SUBSYSTEMS\n     \
             1  logs  2 GiB  fast       0 B  read, write  nqn.x as 3"
        );
        assert_eq!(list(&[]), "there is no namespace");
    }
}
