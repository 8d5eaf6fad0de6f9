//! The command line of `nearflash attach`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::options::AttachOptions;
use crate::record::FOLDER;
use crate::{daemon, devices};

/// Options of `nearflash attach`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    attach: Option<AttachOptions>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the attached volumes
    List,
    /// Show an attached volume
    Show(Number),
    /// Serve a device whose process has ended
    Recover(Number),
    /// Give a device the size that its namespace has now
    Resize(Number),
    /// Take a device off that nobody uses
    Detach {
        /// Number of the device: N of /dev/ublkbN
        #[arg(value_name = "N")]
        device: u32,
        /// Also a device whose process has ended; requests that wait for another one fail
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Parser)]
struct Number {
    /// Number of the device: N of /dev/ublkbN
    #[arg(value_name = "N")]
    device: u32,
}

/// Runs the command, which prints lines by `print`.
///
/// # Errors
/// Says what failed and what to do.
pub fn run(args: &Args, print: &dyn Fn(&str)) -> Result<ExitCode, String> {
    let folder = Path::new(FOLDER);
    match (&args.command, &args.attach) {
        (Some(Command::List), _) => devices::list(folder, print),
        (Some(Command::Show(number)), _) => devices::show(folder, number.device, print),
        (Some(Command::Recover(number)), _) => daemon::recover(folder, number.device, print),
        (Some(Command::Resize(number)), _) => devices::resize(folder, number.device, print),
        (Some(Command::Detach { device, force }), _) => {
            devices::detach(folder, *device, *force, print)
        }
        (None, Some(attach)) => daemon::attach(folder, attach, print),
        (None, None) => Err("name the server, as reflex://HOST:PORT".to_owned()),
    }?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("attach").chain(words.split_whitespace());
        Words::try_parse_from(words).map(|words| words.args)
    }

    #[test]
    fn a_url_attaches_and_a_word_is_a_command() {
        let args = parse("reflex://h:1 --dev 3 --read-only").unwrap();
        let attach = args.attach.unwrap();
        assert_eq!((attach.device, attach.depth, attach.queues), (Some(3), 128, None));
        let volume = attach.volume();
        assert_eq!((volume.url.as_str(), volume.fail_after), ("reflex://h:1", 600));
        assert!(volume.read_only);
        assert!(matches!(parse("list").unwrap().command, Some(Command::List)));
        let detach = parse("detach 3").unwrap().command;
        assert!(matches!(detach, Some(Command::Detach { device: 3, force: false })));
        assert!(parse("").is_err() && parse("detach").is_err());
        assert!(parse("reflex://h:1 --queues 0").is_err());
    }
}
