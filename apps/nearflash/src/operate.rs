//! The commands of an operator, `nearflash tenant` and `nearflash device`: clients of a running
//! server's admin API.
//!
//! Tables are for people; `--json` prints what the API answers, for programs. Exit code 1 when the
//! server says no or is not there, and when a check finds that an SLO would be refused.

mod device;
mod table;
mod tenant;

use std::process::ExitCode;

use clap::Args;
use control::admin::{AdminAddress, Client};
use serde::Serialize;

pub(crate) use device::Command as DeviceCommand;
pub(crate) use tenant::Command as TenantCommand;

/// What all these commands take.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// The admin API of the server: the path of its socket or http://127.0.0.1:PORT [default: the
    /// socket that a server of this user makes, or /run/nearflash/nearflash.sock]
    #[arg(long, value_name = "WHERE", env = "NEARFLASH_ADMIN", global = true)]
    admin: Option<AdminAddress>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

impl Common {
    fn client(&self) -> Result<Client, String> {
        let address = self.admin.clone().unwrap_or_else(crate::admin::where_to_look);
        Client::new(address).map_err(|error| error.to_string())
    }

    /// Prints an answer: as JSON, or as the text that `text` makes of it.
    fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(answer).expect("it has no maps")),
            false => println!("{}", text(answer)),
        }
    }
}

/// `nearflash tenant …`
#[derive(Args, Debug)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: TenantCommand,
}

/// `nearflash device …`
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: DeviceCommand,
}

pub(crate) fn tenant(args: &TenantArgs) -> Result<ExitCode, String> {
    args.command.run(&args.common)
}

pub(crate) fn device(args: &DeviceArgs) -> Result<ExitCode, String> {
    args.command.run(&args.common)
}
