//! The commands `nearflash mount`, `umount` and `fs`.

use std::process::ExitCode;

use crate::options::{FsArgs, FsCommand, MountArgs, UmountArgs};
use crate::{files, maintain, serve};

/// A command about file systems.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Mount the file system of a volume, and serve it until it is taken off
    Mount(MountArgs),
    /// Take a mounted file system off, and wait until its volume is closed
    Umount(UmountArgs),
    /// Make, check and fill file systems of contiguous files
    Fs(FsArgs),
}

impl Command {
    /// Runs the command, which prints lines by `print`.
    ///
    /// # Errors
    /// Says what failed and what to do.
    pub fn run(&self, print: &dyn Fn(&str)) -> Result<ExitCode, String> {
        match self {
            Command::Mount(args) => serve::mount(args, print),
            Command::Umount(args) => serve::umount(args),
            Command::Fs(FsArgs { command }) => match command {
                FsCommand::Create { spec, files } => maintain::create(spec, *files, print),
                FsCommand::Allocate { spec, path, size } => {
                    files::allocate(spec, path, *size, print)
                }
                FsCommand::List { spec } => files::list(spec, print),
                FsCommand::Check { spec } => maintain::check(spec, print),
            },
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn commands_take_their_words() {
        let parse = |words: &str| {
            let words = words.split_whitespace();
            Words::try_parse_from(words).map(|words| words.command)
        };
        let mount = parse("_ mount ftl:file:/tmp/v /mnt --read-only");
        assert!(matches!(mount, Ok(Command::Mount(args)) if args.read_only && args.spin == 50));
        assert!(matches!(parse("_ umount /mnt"), Ok(Command::Umount(args)) if !args.detach));
        let create = parse("_ fs create ftl:file:/tmp/v --files 64");
        assert!(matches!(create, Ok(Command::Fs(_))));
        let allocate = parse("_ fs allocate ftl:file:/tmp/v /vm/disk 20GiB");
        assert!(matches!(allocate, Ok(Command::Fs(_))));
        assert!(parse("_ fs").is_err() && parse("_ mount ftl:file:/tmp/v").is_err());
    }
}
