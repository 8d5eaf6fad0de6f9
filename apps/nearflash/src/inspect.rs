//! `nearflash config check|show|schema`: inspects a configuration file without a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

use server::config::{Config, effective::Effective, exposure::exposed, schema};
use server::live::Changes;
use server::serve::{self, state_file};

/// `nearflash config …`
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Check and show configuration files
#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether a server would start with a file, and with the live changes since
    Check {
        /// Configuration file
        file: PathBuf,
        #[command(flatten)]
        kept: Kept,
    },
    /// Print the configuration that a server would have, with live changes and defaults, without
    /// keys and tokens
    Show {
        /// Configuration file
        file: PathBuf,
        #[command(flatten)]
        kept: Kept,
    },
    /// Print the JSON Schema of configuration files, for editors
    Schema,
}

/// The options that name the place of live changes.
#[derive(ClapArgs, Debug)]
struct Kept {
    /// State file, or none [default: as the configuration says; for /etc/nearflash/nearflash.toml
    /// the service's, else beside the file]
    #[arg(long, value_name = "FILE")]
    state: Option<String>,
}

/// The contents of a configuration file.
struct Read {
    base: Config,
    /// The configuration with the live changes.
    config: Config,
    changes: Changes,
    /// The path of the state file, if there is one.
    state: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    match &args.command {
        Command::Check { file, kept } => {
            let Read { base, config, changes, state } = read(file, kept)?;
            let text = std::fs::read_to_string(file).unwrap_or_default();
            serve::check_config(&base, &config).map_err(|found| found.told(Some((file, &text))))?;
            for warning in exposed(&base, file).into_iter().chain(changes.dormant(&base)) {
                outln!("warning: {warning}");
            }
            outln!("state file: {}", told(state.as_deref()));
            outln!("{}: a server would start", file.display());
        }
        Command::Show { file, kept } => {
            let Read { mut config, state, .. } = read(file, kept)?;
            let path = state.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
            config.state = Some(path);
            outln!("# state file: {}", told(state.as_deref()));
            out!("{}", Effective::of(&config)?.to_toml()?);
        }
        Command::Schema => outln!("{}", schema::text()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes the path of the state file and whether it exists.
fn told(state: Option<&Path>) -> String {
    match state {
        None => "none".to_owned(),
        Some(path) if path.exists() => path.display().to_string(),
        Some(path) => format!("{}, where nothing is kept yet", path.display()),
    }
}

/// Reads the configuration of a file, without and with the live changes.
fn read(file: &Path, kept: &Kept) -> Result<Read, String> {
    let base = Config::read(file)?;
    let state = state_file::path_of_others(kept.state.as_deref(), file, &base)?;
    let (_, changes) = state_file::open(state.as_deref(), false)?;
    let config = changes.made_to(&base);
    Ok(Read { base, config, changes, state })
}
