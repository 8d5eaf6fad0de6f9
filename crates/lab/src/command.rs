//! The measuring commands, as subcommands of the program.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{bench, calibrate, demo, ftl, reproduce};

/// A command that measures, demonstrates, or inspects a volume that no server has open.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure or verify a server or a local device
    Bench(Box<bench::Arguments>),
    /// Measure a device and write its device model
    Calibrate(calibrate::Args),
    /// Play four tenants on one drive, without and with promises
    Demo(demo::Args),
    /// Make, check and show volumes of flash translation
    Ftl(ftl::Args),
    /// Reproduce the figures and tables of the ReFlex paper
    Reproduce(reproduce::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Says what failed and what to do.
    pub fn run(self) -> Result<ExitCode, String> {
        match self {
            Command::Bench(arguments) => Ok(bench::main(&arguments)),
            Command::Calibrate(args) => Ok(calibrate::main(&args)),
            Command::Demo(args) => demo::run(&args),
            Command::Ftl(args) => ftl::run(&args),
            Command::Reproduce(args) => reproduce::run(&args),
        }
    }
}
