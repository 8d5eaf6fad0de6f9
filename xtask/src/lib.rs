//! Functions shared by chores and trials: running programs, and installing missing ones.

#![allow(clippy::disallowed_methods, reason = "chores measure how long they take")]

use std::process::ExitCode;

pub mod needs;
pub mod page;
pub mod shell;

/// Returns the exit code of a program with this outcome, whose message it prints.
pub fn exit_code(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
