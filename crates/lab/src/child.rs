//! Child processes: servers and helpers for the commands that measure a server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The process ids of the running children, which are ended when a signal ends this program.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Starts a thread that ends the children, and then the program, when a signal to stop arrives.
pub(crate) fn end_with_us() -> Result<(), String> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| format!("cannot take signals: {e}"))?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            for &child in RUNNING.lock().expect("no holder panics").iter() {
                let _ = kill_process(child, Signal::TERM); // it may have ended already
            }
            std::process::exit(130);
        }
    });
    Ok(())
}

/// A server in a child process, which prints `ready URL …` when it serves and ends on SIGTERM.
pub(crate) struct Server {
    helper: Helper,
    /// The addresses where the server listens, in the order of its arguments.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Server {
    /// Starts `nearflash serve` with the arguments `words` and without the admin API.
    pub(crate) fn start(words: &[String]) -> Result<Server, String> {
        Server::start_with_admin("none", words)
    }

    /// Starts `nearflash serve` with the arguments `words` and the admin API at `admin`, a URL or
    /// `none`.
    pub(crate) fn start_with_admin(admin: &str, words: &[String]) -> Result<Server, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let mut command = Command::new(program);
        if std::env::var_os("NEARFLASH_LOG").is_none() {
            // Whoever measures overload does not want to be warned of it.
            command.env("NEARFLASH_LOG", "error");
        }
        Server::start_other(command.args(["serve", "--admin", admin]).args(words))
    }

    /// Starts a program other than this one, and waits for its output line `ready URL …`, which
    /// reports that it serves.
    pub(crate) fn start_other(command: &mut Command) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut helper = Helper::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        let output = helper.child.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut line);
        let mut server = Server { helper, addresses: Vec::new() };
        let urls = line.trim().strip_prefix("ready ").filter(|_| read.is_ok()).unwrap_or_default();
        for url in urls.split(' ') {
            // The yardsticks name no protocol.
            let place = url.split_once("://").map_or(url, |(_, place)| place);
            let address: Option<SocketAddr> = place.parse().ok();
            server.addresses.extend(address);
        }
        if server.addresses.is_empty() {
            return Err(format!("{name} did not start (its message is above)"));
        }
        Ok(server)
    }

    /// Returns the first listening address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.helper.child.id()
    }

    /// Stops the server, and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let child = &mut self.helper.child;
        kill_process(Pid::from_child(child), Signal::TERM)
            .map_err(|error| format!("cannot stop the server: {error}"))?;
        let status = child.wait().map_err(|e| format!("cannot wait for the server: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

/// A child process that is ended, at the latest, when this value is dropped.
pub(crate) struct Helper {
    child: Child,
}

impl Helper {
    /// Starts the process, with an empty standard input.
    pub(crate) fn start(command: &mut Command) -> Result<Helper, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        RUNNING.lock().expect("no holder panics").push(Pid::from_child(&child));
        Ok(Helper { child })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        RUNNING.lock().expect("no holder panics").retain(|&other| other != pid);
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
