//! `nearflash config check|show|schema`: what a configuration file says, without a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

use crate::config::Config;
use crate::live::Changes;
use crate::serve;

/// `nearflash config …`
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Says what a configuration file means, and what is wrong with it
#[derive(Debug, Subcommand)]
enum Command {
    /// Check a whole file: what it says, what that needs of this machine, and what was changed since
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Print the configuration that a server would have: with what was changed while servers ran, and
    /// every default. Keys and tokens are not shown
    Show {
        /// The configuration file
        file: PathBuf,
    },
    /// Print the JSON Schema of configuration files, for editors
    Schema,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    match &args.command {
        Command::Check { file } => {
            let (base, changes) = read(file)?;
            let config = base.with(&changes);
            let text = std::fs::read_to_string(file).unwrap_or_default();
            serve::check_config(&base, &config).map_err(|found| found.told(Some((file, &text))))?;
            for warning in base.exposed(file).into_iter().chain(changes.dormant(&base)) {
                outln!("warning: {warning}");
            }
            outln!("{}: a server would start", file.display());
        }
        Command::Show { file } => {
            let (base, changes) = read(file)?;
            let mut config = base.with(&changes);
            let state = serve::state_of(file).display().to_string();
            config.state.get_or_insert(state);
            out!("{}", config.to_toml()?);
        }
        Command::Schema => outln!("{}", Config::schema()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration of a file, and the changes that were made since.
fn read(file: &Path) -> Result<(Config, Changes), String> {
    let base = Config::read(file)?;
    let (_, changes) = serve::open_state_of(None, false, Some(file), &base)?;
    Ok((base, changes))
}
