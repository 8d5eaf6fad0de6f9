//! The delegation of commands to the package `trials`, which is built only when one of its commands
//! is used.

use clap::Args;

use xtask::shell;

/// Arguments that are passed on to a command of `trials` unchanged.
#[derive(Args)]
pub(crate) struct TrialArgs {
    /// The words of the command; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Returns the arguments for cargo that run the command `name` of `trials` with the arguments
/// `words`.
pub(crate) fn arguments<'a>(name: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let cargo = ["run", "--quiet", "--package", "trials", "--", name];
    [&cargo[..], words].concat()
}

/// Runs the command `name` of `trials`, whose output goes to this process's output.
pub(crate) fn run(name: &str, words: &TrialArgs) -> Result<(), String> {
    let words: Vec<&str> = words.words.iter().map(String::as_str).collect();
    shell::show(&mut shell::cargo(&arguments(name, &words)))
}
