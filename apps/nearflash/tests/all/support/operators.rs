//! Operators on other machines: a server with a certificate, and people with tokens.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use control::admin::{Client, ClientCredentials};

use super::{Launch, Server, free_port};

pub(crate) const ANN: &str = "ann-may-change-everything-0123456789";
pub(crate) const BOB: &str = "bob-may-read-everything-0123456789";

/// A directory for the files of a server and its operators.
pub(crate) struct OperatorFiles {
    folder: tempfile::TempDir,
    pub(crate) at: SocketAddr,
}

impl OperatorFiles {
    pub(crate) fn new() -> OperatorFiles {
        let operators = OperatorFiles { folder: tempfile::tempdir().unwrap(), at: free_port() };
        operators.certify();
        operators.put("tokens", &format!("ann change {ANN}\nbob read {BOB}\n"), 0o600);
        operators.put("ann", ANN, 0o600);
        operators.put("bob", BOB, 0o600);
        operators
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), permissions).unwrap();
    }

    /// Writes a new self-signed certificate and its key.
    pub(crate) fn certify(&self) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        self.put("certificate", &made.cert.pem(), 0o644);
        self.put("key", &made.signing_key.serialize_pem(), 0o600);
    }

    pub(crate) fn launch(&self) -> Launch {
        let path = |name: &str| self.path(name).display().to_string();
        let config = format!(
            "[admin]\nlisten = \"{},https://{}\"\naudit = \"{}\"\ncertificate = \"{}\"\n\
             key = \"{}\"\ntokens = \"{}\"\n\
             [[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
            path("admin.sock"),
            self.at,
            path("audit"),
            path("certificate"),
            path("key"),
            path("tokens"),
        );
        std::fs::write(self.path("nearflash.toml"), config).unwrap();
        let launch = Launch::new(&["--config", &path("nearflash.toml"), "--state", "none"]);
        // The tests' servers are told that they have no admin API.
        launch.after(&[], "unset NEARFLASH_ADMIN")
    }

    pub(crate) fn start(&self) -> Server {
        self.launch().start()
    }

    /// Returns a client that presents this token.
    pub(crate) fn client(&self, token: &str) -> Client {
        let authorities = std::fs::read(self.path("certificate")).unwrap();
        let pass = ClientCredentials::new(&authorities, token).unwrap();
        Client::with_pass(format!("https://{}", self.at).parse().unwrap(), Some(pass)).unwrap()
    }

    /// Runs `nearflash WORDS` as an operator on another machine, with the token in the file `who`.
    pub(crate) fn run(&self, who: &str, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        command.args(words).env("NEARFLASH_ADMIN", format!("https://{}", self.at));
        command.env("NEARFLASH_ADMIN_CA", self.path("certificate"));
        command.env("NEARFLASH_ADMIN_TOKEN", self.path(who)).stdin(Stdio::null());
        command.output().expect("the program starts")
    }
}
