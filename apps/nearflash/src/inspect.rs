//! `nearflash config check|show|schema`: inspects a configuration file without a server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

use server::config::{effective::Effective, exposure::exposed, schema};
use server::serve::{self, preview::Preview};

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

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    match &args.command {
        Command::Check { file, kept } => {
            let all = Preview::read(file, kept.state.as_deref())?;
            let Preview { base, config, changes, .. } = &all;
            let text = std::fs::read_to_string(file).unwrap_or_default();
            serve::check_config(base, config).map_err(|found| found.told(Some((file, &text))))?;
            for warning in exposed(base, file).into_iter().chain(changes.dormant(base)) {
                outln!("warning: {warning}");
            }
            outln!("state file: {}", all.state_text());
            outln!("{}: a server would start", file.display());
        }
        Command::Show { file, kept } => {
            let all = Preview::read(file, kept.state.as_deref())?;
            outln!("# state file: {}", all.state_text());
            let Preview { mut config, state, .. } = all;
            config.state = Some(state.map_or("none".into(), |path| path.display().to_string()));
            out!("{}", Effective::of(&config)?.to_toml()?);
        }
        Command::Schema => outln!("{}", schema::text()),
    }
    Ok(ExitCode::SUCCESS)
}
