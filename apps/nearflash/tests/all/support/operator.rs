//! An operator of a server: the program's commands against its admin API.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Who knows where the admin API is.
pub(crate) trait Operator {
    /// What `--admin` is told.
    fn admin(&self) -> String;

    /// `nearflash WORDS --admin …`
    fn run(&self, words: &[&str]) -> Output {
        let mut command = nearflash(words);
        command.args(["--admin", &self.admin()]).output().expect("the program starts")
    }

    /// What the command prints; it must succeed.
    fn told(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert!(ran.status.success(), "{words:?}: {}", complaint(&ran));
        String::from_utf8(ran.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[words, &["--json"]].concat())).unwrap()
    }

    /// What the command complains of; it must fail.
    fn refused(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert!(!ran.status.success(), "{words:?} was done");
        complaint(&ran)
    }
}

/// A command that knows of no server but what it is told.
pub(crate) fn nearflash(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(words).stdin(Stdio::null()).env_remove("NEARFLASH_ADMIN");
    command
}

pub(crate) fn complaint(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}
