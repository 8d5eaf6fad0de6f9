//! The operators' commands, such as `nearflash tenant` and `nearflash namespace`: clients of a
//! running server's admin API.
//!
//! Tables are for people; `--json` prints the API's answers, including refusals, for programs. The
//! exit code is 1 if the server refuses or cannot be reached, and if a check finds that an SLO
//! would be refused.

mod conn;
mod device;
mod drain;
mod namespace;
mod settings;
mod subsystem;
mod table;
mod tenant;
mod why;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use control::admin::{Client, ClientError};
use serde::Serialize;
use serde_json::json;
use server::inspect::{CommandContext, ConfigCommand, StateCommand};

use server::reach::AdminOptions;

/// The options that all operator commands take.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    #[command(flatten)]
    reach: AdminOptions,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

impl Common {
    fn client(&self) -> Result<Client, ClientError> {
        self.reach.client()
    }

    /// Returns the exit code of a command or its error text. With `--json`, prints a server's
    /// refusal like other answers.
    fn end(&self, ended: Result<ExitCode, Failure>) -> Result<ExitCode, String> {
        match ended {
            Ok(code) => Ok(code),
            Err(Failure::Api(ClientError::Refused(problem))) if self.json => {
                self.print(&json!({ "error": problem }), |_| unreachable!("it is JSON"));
                Ok(ExitCode::FAILURE)
            }
            Err(Failure::Api(error)) => Err(error.to_string()),
            Err(Failure::Words(text)) => Err(text),
        }
    }

    /// Prints the warning that came with the server's last answer, if there was one.
    fn warn(&self, client: &Client) {
        if let Some(warning) = client.warning() {
            errln!("nearflash: warning: {warning}");
        }
    }

    /// Prints an answer: as JSON with `--json`, otherwise as the text that `text` returns.
    fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) {
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(answer).expect("it has no maps")),
            false => outln!("{}", text(answer)),
        }
    }

    /// Prints that the server has removed what has this name.
    fn removed(&self, name: &str) {
        self.print(&json!({ "removed": name }), |_| format!("removed {name}"));
    }

    /// Prints the progress of a command as text. Prints nothing with `--json`.
    fn note<T>(&self, answer: &T, text: impl FnOnce(&T) -> String) {
        if !self.json {
            outln!("{}", text(answer));
        }
    }
}

/// Reads a file, or the standard input for `-`.
fn read_text(file: &Path) -> Result<String, String> {
    let text = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    text.map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// The reason for which a command failed.
#[derive(Debug)]
enum Failure {
    /// The server refused the request, or could not be reached.
    Api(ClientError),
    /// Another failure, as text for the user.
    Words(String),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Api(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Words(text)
    }
}

/// Defines commands, by their arguments and type that runs them: subcommands or more arguments.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident, $args:ident, $how:ident $command:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Args, Debug)]
        pub(crate) struct $args {
            #[command(flatten)]
            common: Common,
            #[command($how)]
            command: $command,
        }

        pub(crate) fn $name(args: &$args) -> Result<ExitCode, String> {
            args.common.end(args.command.run(&args.common))
        }
    )*};
}

/// Defines commands of the server's library, which may do without a running server.
macro_rules! library_commands {
    ($($name:ident, $args:ident, $command:ty;)*) => {$(
        #[derive(Args, Debug)]
        pub(crate) struct $args {
            #[command(flatten)]
            common: Common,
            #[command(subcommand)]
            command: $command,
        }

        pub(crate) fn $name($args { common, command }: &$args) -> Result<ExitCode, String> {
            let (client, print) = (|| common.client(), |line: &str| outln!("{line}"));
            command.run(&CommandContext { client: &client, print: &print, json: common.json })
        }
    )*};
}

library_commands! {
    config, ConfigArgs, ConfigCommand;
    state, StateArgs, StateCommand;
}

commands! {
    /// `nearflash tenant …`
    tenant, TenantArgs, subcommand tenant::TenantCommand;
    /// `nearflash device …`
    device, DeviceArgs, subcommand device::DeviceCommand;
    /// `nearflash worker …`
    worker, WorkerArgs, subcommand worker::WorkerCommand;
    /// `nearflash conn …`
    conn, ConnArgs, subcommand conn::ConnCommand;
    /// `nearflash namespace …`
    namespace, NamespaceArgs, subcommand namespace::NamespaceCommand;
    /// `nearflash subsystem …`
    subsystem, SubsystemArgs, subcommand subsystem::SubsystemCommand;
    /// `nearflash host …`
    host, HostArgs, subcommand subsystem::HostCommand;
    /// `nearflash listener …`
    listener, ListenerArgs, subcommand subsystem::ListenerCommand;
    /// `nearflash drain`
    drain, DrainArgs, flatten drain::DrainCommand;
    /// `nearflash why`
    why, WhyArgs, flatten why::WhyCommand;
}
