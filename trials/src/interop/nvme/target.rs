//! A server that exports devices by NVMe/TCP on this machine's loopback interface.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::super::Context;
use super::super::guest::HOST;
use super::super::port::{connections_to, free_port};
use crate::bench::process::{Server, open_log};
use xtask::shell;

/// The qualified name of the subsystem in these tests.
pub(super) const NQN: &str = "nqn.2026-11.io.nearflash:interop";

/// The addresses at which the guest reaches the server's machine, one through each of the guest's
/// network cards.
pub(super) const ADDRESSES: [&str; 2] = [HOST, "10.0.3.2"];

/// The time limit for a server to end after another has reported that it took over.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The configuration of a server to start.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    /// The specs of the devices, each of which becomes a namespace.
    pub(super) devices: &'a [&'a str],
    /// The number of listeners for NVMe hosts, 1 or 2.
    pub(super) listeners: usize,
    /// Further parameters of the listeners' URLs, each behind an `&`.
    pub(super) options: &'a str,
    /// Further lines of the configuration, beginning with keys of the subsystem.
    pub(super) more: &'a str,
}

/// An NVMe/TCP server on this machine that can be killed and started again.
pub(super) struct Target {
    /// The ports of the server's listeners.
    pub(super) ports: Vec<u16>,
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    /// The path of the socket at which a successor takes over.
    upgrade: PathBuf,
    /// The port of the server's admin API.
    admin: u16,
    server: Option<Server>,
}

impl Target {
    pub(super) fn start(context: &Context, plan: &Plan) -> Result<Target, String> {
        let ports = (0..plan.listeners).map(|_| free_port()).collect::<Result<_, _>>()?;
        let mut target = Target {
            ports,
            program: context.nearflash.clone(),
            config: context.folder.join("server.toml"),
            log: context.folder.join("server.log"),
            upgrade: context.folder.join("upgrade"),
            admin: free_port()?,
            server: None,
        };
        target.configure(plan)?;
        target.restart()?;
        Ok(target)
    }

    /// Writes the configuration that the server's next start reads.
    pub(super) fn configure(&self, plan: &Plan) -> Result<(), String> {
        let mut text = String::new();
        for (n, spec) in plan.devices.iter().enumerate() {
            text.push_str(&format!("[[device]]\nname = \"d{n}\"\nspec = \"{spec}\"\n"));
        }
        for port in &self.ports {
            // Guests reach this machine's loopback interface by another address.
            let advertised = format!("advertise={}:{port}", ADDRESSES[0]);
            let url = format!("nvme-tcp://127.0.0.1:{port}?{advertised}{}", plan.options);
            text.push_str(&format!("[[listen]]\nurl = \"{url}\"\n"));
        }
        text.push_str(&format!("[[subsystem]]\nnqn = \"{NQN}\"\n{}", plan.more));
        fs::write(&self.config, text).map_err(|e| format!("{}: {e}", self.config.display()))
    }

    /// Kills the server with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    /// Starts the server, and kills the running one before.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        self.kill();
        let mut command = self.command();
        self.server = Some(Server::start_again(&mut command, &self.log)?);
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--admin", &self.admin_url(), "--upgrade-socket"]);
        command.arg(&self.upgrade).arg("--config").arg(&self.config);
        command.env("NEARFLASH_LOG", "info");
        command
    }

    fn said(&self) -> Result<String, String> {
        fs::read_to_string(&self.log).map_err(|e| format!("{}: {e}", self.log.display()))
    }

    /// Starts a successor that takes over from the running server, and waits for that server to
    /// end. Returns the line about the take-over in the successor's log.
    pub(super) fn upgrade(&mut self) -> Result<String, String> {
        let before = self.said()?.len();
        let mut command = self.command();
        let new = Server::start_with(command.arg("--upgrade"), open_log(&self.log)?.into())
            .map_err(|error| format!("{error}:\n{}", self.said().unwrap_or_default()))?;
        let old = self.server.replace(new);
        if !old.ok_or("nobody ran")?.ends_in_order(END_LIMIT)? {
            return Err("the older process has failed".to_owned());
        }
        let started = Instant::now();
        loop {
            let said = self.said()?.split_off(before);
            match said.lines().find(|line| line.contains("took over")) {
                Some(line) => return Ok(line.to_owned()),
                None if started.elapsed() > END_LIMIT => {
                    return Err(format!("nothing was taken over:\n{said}"));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Runs an operator's command such as `namespace resize` against the server, and returns its
    /// output.
    pub(super) fn operate(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--admin", &self.admin_url()]);
        let ran = shell::capture(&mut command, Duration::from_secs(60))?;
        if ran.ok { Ok(ran.output) } else { Err(format!("{words:?}: {}", ran.output.trim())) }
    }

    fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    /// Returns the number of connections that the server's first listener has accepted and that are
    /// open.
    pub(super) fn connections(&self) -> Result<usize, String> {
        connections_to(self.ports[0])
    }
}
