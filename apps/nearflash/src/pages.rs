//! `nearflash completions` and `nearflash man`: shell completions and manual pages, generated from
//! the description of the command line.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub(crate) fn completions(args: &CompletionArgs) -> Result<ExitCode, String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nearflash", &mut script);
    out!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, String> {
    let say = |error: io::Error| format!("cannot write to {}: {error}", args.output.display());
    fs::create_dir_all(&args.output).map_err(say)?;
    clap_mangen::generate_to(Cli::command(), &args.output).map_err(say)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs { output: folder.path().join("man1") }).unwrap();
        let serve = fs::read_to_string(folder.path().join("man1/nearflash-serve.1")).unwrap();
        assert!(serve.contains(".TH nearflash-serve") && serve.contains("workers"), "{serve}");
        let all = fs::read_to_string(folder.path().join("man1/nearflash.1")).unwrap();
        assert!(all.contains("nearflash\\-serve"), "{all}");
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
