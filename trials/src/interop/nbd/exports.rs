//! A server with two NBD exports, and helpers that run clients against it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::super::Context;
use super::super::chance::Rng;
use super::super::port::free_port;
use crate::bench::process::{Server, show};
use xtask::shell;

/// The size in bytes of each namespace: more than the largest request, and no multiple of it.
pub(super) const BYTES: usize = (40 << 20) + 4096;

/// The time limit of one client.
const LIMIT: Duration = Duration::from_secs(120);

/// A server with the NBD exports `first` and `second`.
pub(super) struct Exports {
    _server: Server,
    pub(super) port: u16,
    pub(super) socket: PathBuf,
    folder: PathBuf,
}

impl Exports {
    pub(super) fn start(context: &Context) -> Result<Exports, String> {
        Exports::start_with(context, "")
    }

    /// Starts a server whose TCP listener has these options in its URL.
    pub(super) fn start_with(context: &Context, options: &str) -> Result<Exports, String> {
        let port = free_port()?;
        // The kernel may hold a killed server's socket for some seconds.
        let socket = context.folder.join(format!("nbd-{port}.sock"));
        let config = context.folder.join("nearflash.toml");
        let text = format!(
            "[[device]]\nname = \"m\"\nspec = \"mem:128MiB\"\n\
             [[namespace]]\nname = \"first\"\ndevice = \"m\"\nsize = \"{BYTES}B\"\n\
             [[namespace]]\nname = \"second\"\ndevice = \"m\"\noffset = \"64MiB\"\n\
             size = \"{BYTES}B\"\n\
             [[listen]]\nurl = \"nbd://127.0.0.1:{port}{options}\"\n\
             [[listen]]\nurl = \"nbd+unix:{}?namespace=2\"\n",
            socket.display()
        );
        fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut command = Command::new(&context.nearflash);
        command.args(["serve", "--admin", "none", "--state", "none", "--config"]).arg(config);
        let server = Server::start(&mut command)?;
        Ok(Exports { _server: server, port, socket, folder: context.folder.clone() })
    }

    /// Returns the URL of an export over TCP.
    pub(super) fn url(&self, export: &str) -> String {
        format!("nbd://127.0.0.1:{}/{export}", self.port)
    }

    /// Returns the URL of the default export of the listener at the Unix socket.
    pub(super) fn local_url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Makes a file of pseudo-random bytes, as large as an export, and returns its path.
    pub(super) fn image(&self, seed: u64) -> Result<String, String> {
        let mut chance = Rng::new(seed);
        let mut bytes = Vec::with_capacity(BYTES);
        while bytes.len() < BYTES {
            bytes.extend_from_slice(&chance.below(u64::MAX).to_le_bytes());
        }
        let path = self.path("image");
        fs::write(&path, &bytes).map_err(|error| format!("{path}: {error}"))?;
        Ok(path)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

/// Runs a client that must succeed, and returns what it printed.
pub(super) fn run(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let ran = shell::capture(&mut command, LIMIT)?;
    if ran.ok { Ok(ran.output) } else { Err(format!("{}:\n{}", show(&command), ran.output)) }
}

pub(super) fn check_same(first: &str, second: &str) -> Result<(), String> {
    let read = |path: &str| fs::read(path).map_err(|error| format!("{path}: {error}"));
    match read(first)? == read(second)? {
        true => Ok(()),
        false => Err(format!("{first} and {second} differ")),
    }
}
