//! An operator of a server: the program's commands against its admin API.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// An operator of a server, who knows the address of its admin API.
pub(crate) trait Operator {
    /// Returns the value of `--admin`.
    fn admin(&self) -> String;

    /// Runs `nearflash WORDS --admin …`, and returns its output and exit code.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = nearflash(words);
        command.args(["--admin", &self.admin()]).output().expect("the program starts")
    }

    /// Runs a command that must succeed, and returns its output.
    fn told(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert!(ran.status.success(), "{words:?}: {}", complaint(&ran));
        String::from_utf8(ran.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[words, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that must fail, and returns its error message.
    fn refused(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert!(!ran.status.success(), "{words:?} was done");
        complaint(&ran)
    }
}

/// Returns the command `nearflash WORDS`, without the address of a server in its environment.
pub(crate) fn nearflash(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(words).stdin(Stdio::null()).env_remove("NEARFLASH_ADMIN");
    command
}

pub(crate) fn complaint(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}
