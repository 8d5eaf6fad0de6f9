//! Output of commands to standard output, for people and for pipes.
//!
//! The reader may stop early, as `head` does. The command then ends: it cleans up as on any other
//! early end, prints nothing more, and exits with the status of a program that SIGPIPE has ended.
//! `println!` would panic instead. Servers use `log.rs`, because they outlive the readers of their
//! output.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

/// The exit status of a program that SIGPIPE (13) has ended, used when the output is closed.
const UNREAD: u8 = 128 + 13;

/// The error of a write to standard output, thrown by [`print()`] and caught by [`run`].
struct PrintError(io::Error);

/// Prints like `print!`, in a command that [`run`] runs.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => { $crate::print::print(format_args!($($words)*)) };
}

/// Prints like `println!`, in a command that [`run`] runs.
#[macro_export]
macro_rules! outln {
    () => { $crate::print::print(format_args!("\n")) };
    ($($words:tt)*) => { $crate::print::print(format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints like `eprintln!`, but ignores a closed standard error instead of panicking.
#[macro_export]
macro_rules! errln {
    ($($words:tt)*) => { $crate::print::complain(format_args!($($words)*)) };
}

/// Prints to standard output. If the output is closed, unwinds to [`run`], which ends the command.
pub fn print(words: Arguments<'_>) {
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_fmt(words) {
        drop(output);
        // No panic: nothing is wrong with the program.
        resume_unwind(Box::new(PrintError(error)));
    }
}

/// Writes a line to standard error. Ignores errors, such as a closed output.
pub fn complain(words: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{words}");
}

/// Runs a command until it ends or its standard output is closed. For a closed output, returns the
/// exit code of SIGPIPE.
///
/// # Errors
/// Returns the error of the command, or another error of standard output.
pub fn run(command: impl FnOnce() -> Result<ExitCode, String>) -> Result<ExitCode, String> {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|thrown| {
        let PrintError(error) = match thrown.downcast::<PrintError>() {
            Ok(unprinted) => *unprinted,
            Err(panic) => resume_unwind(panic),
        };
        match error.kind() {
            ErrorKind::BrokenPipe => Ok(ExitCode::from(UNREAD)),
            _ => Err(format!("cannot write to standard output: {error}")),
        }
    })
}
