//! Child processes, and the figures that the system has about a process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The time limit for a server to print that it is ready.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// The time for which a server that does not start is started again.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The environment variable with which a load of `nearflash bench` ends when its standard input
/// ends.
pub(crate) const STOP: &str = "NEARFLASH_BENCH_STOP";

/// The environment variable that tells a client among how many associations it divides its
/// connections (docs/adr/0051-shaped-lanes.md).
pub(crate) const PACKET_LINK: &str = "NEARFLASH_PACKET_LINK";

/// Opens a log to append to, which is created if it does not exist.
pub(crate) fn open_log(path: &Path) -> Result<File, String> {
    let log = File::options().create(true).append(true).open(path);
    log.map_err(|error| format!("{}: {error}", path.display()))
}

/// A server process, which is killed on drop.
pub(crate) struct Server {
    child: Child,
    /// The listening address that the server printed.
    pub(crate) address: String,
    /// The last line that the server printed, on which some servers report figures.
    last_line: Arc<Mutex<String>>,
}

impl Server {
    /// Starts the server and waits for its line `ready ADDRESS`, or `ready: FOLDER` of a program
    /// that mounts.
    pub(crate) fn start(command: &mut Command) -> Result<Server, String> {
        Server::start_with(command, Stdio::null())
    }

    /// Starts the server with its error output appended to the file `log`. A server that does not
    /// start is started again, since its port may be in use for some seconds.
    ///
    /// # Errors
    /// Returns the last error, with the log, if the server has not started within a minute.
    pub(crate) fn start_again(command: &mut Command, log: &Path) -> Result<Server, String> {
        let started = Instant::now();
        loop {
            match Server::start_with(command, open_log(log)?.into()) {
                Err(error) if started.elapsed() > START_LIMIT => {
                    let log = fs::read_to_string(log).unwrap_or_default();
                    return Err(format!("{error}:\n{log}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
                server => return server,
            }
        }
    }

    /// Starts the server with its error output sent to `errors`, and waits for its line `ready
    /// ADDRESS`.
    pub(crate) fn start_with(command: &mut Command, errors: Stdio) -> Result<Server, String> {
        let shown = show(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
        let output = child.stdout.take().expect("it was asked for");
        let last_line = Arc::new(Mutex::new(String::new()));
        let (sender, receiver) = mpsc::channel();
        let last = Arc::clone(&last_line);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let ready = line.strip_prefix("ready ").or_else(|| line.strip_prefix("ready: "));
                if let Some(address) = ready {
                    // After the time limit, the receiver no longer exists.
                    let _unheard = sender.send(address.to_owned());
                }
                *last.lock().expect("no thread panics with it") = line;
            }
        });
        let mut server = Server { child, address: String::new(), last_line };
        server.address = receiver
            .recv_timeout(READY_LIMIT)
            .map_err(|_| format!("{shown}: not ready within {} s", READY_LIMIT.as_secs()))?;
        Ok(server)
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns `true` if the process has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, String> {
        let ended = self.child.try_wait().map_err(|error| format!("waiting: {error}"))?;
        Ok(ended.is_some())
    }

    /// Waits at most `limit` for the process to end. Returns `true` if it exited successfully.
    pub(crate) fn ends_in_order(mut self, limit: Duration) -> Result<bool, String> {
        let started = Instant::now();
        loop {
            let ended = self.child.try_wait().map_err(|error| format!("waiting: {error}"))?;
            match ended {
                Some(status) => return Ok(status.success()),
                None if started.elapsed() > limit => {
                    return Err(format!("it still runs after {} s", limit.as_secs()));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns the number that follows the word `name` in the last line that the server printed;
    /// `None` if there is none.
    pub(crate) fn says(&self, name: &str) -> Option<f64> {
        let line = self.last_line.lock().expect("no thread panics with it");
        let mut words = line.split(' ');
        words.find(|word| *word == name)?;
        words.next()?.parse().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Returns the command line as text for a shell, with paths relative to the repository.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let root = format!("{}/", xtask::shell::root().display());
    let words: Vec<String> =
        words.map(|word| quoted(word.to_string_lossy().replace(&root, ""))).collect();
    words.join(" ")
}

fn quoted(word: String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(plain) { word } else { format!("'{word}'") }
}

/// The nanoseconds of one tick, the unit of the processor times in `/proc`.
const TICK_NANOS: u64 = 10_000_000;

/// Returns the processor time of all threads of the process, including ended ones, in nanoseconds
/// with the resolution of a tick. Returns `None` if the process is gone.
pub(crate) fn cpu_nanos(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name, the second field, is in brackets and may contain any character.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_NANOS)
}

/// Returns the time for which all processors were busy since boot, in nanoseconds with the
/// resolution of a tick.
pub(crate) fn machine_cpu_nanos() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).map_while(|f| f.parse().ok()).collect();
    // user, nice, system, (idle, I/O wait,) interrupts, soft interrupts, stolen
    let ticks: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|place| fields.get(*place)).sum();
    Some(ticks * TICK_NANOS)
}

/// Returns the bytes of private resident memory of the process, without shared pages; `None` if the
/// process is gone.
pub(crate) fn private_bytes(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let mut sum = 0;
    for line in text.lines().filter(|line| line.starts_with("Private_")) {
        sum += line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    }
    Some(sum)
}

/// Raises the limit of open files of this process and its later children to the hard limit.
pub(crate) fn raise_descriptor_limit() -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("descriptor limit: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_process() {
        let id = std::process::id();
        let before = cpu_nanos(id).unwrap();
        let spun = std::thread::spawn(move || {
            while cpu_nanos(id).unwrap() < before + 2 * TICK_NANOS {
                std::hint::spin_loop();
            }
        });
        spun.join().unwrap();
        assert!(cpu_nanos(id).unwrap() >= before + 2 * TICK_NANOS, "an ended thread counts");
        assert!(private_bytes(id).unwrap() > 4096);
        assert_eq!(cpu_nanos(u32::MAX), None);
        assert!(machine_cpu_nanos().unwrap() > 0);
    }

    #[test]
    fn a_server_says_where_it_listens_and_how_it_does() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready reflex://x:1; echo busy 0.5 count 7; exec sleep 60"]);
        let server = Server::start(&mut command).unwrap();
        assert_eq!(server.address, "reflex://x:1");
        let mut waited = 0;
        while server.says("count").is_none() && waited < 200 {
            std::thread::sleep(Duration::from_millis(10));
            waited += 1;
        }
        assert_eq!((server.says("busy"), server.says("count")), (Some(0.5), Some(7.0)));
        assert_eq!(server.says("none"), None);
        assert!(server.ends_in_order(Duration::ZERO).is_err(), "it goes on");
        for (end, is_success) in [("exit 0", true), ("exit 1", false)] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo ready x; {end}")]);
            let server = Server::start(&mut command).unwrap();
            assert_eq!(server.ends_in_order(Duration::from_secs(60)), Ok(is_success));
        }
    }

    #[test]
    fn shown_commands_can_be_pasted() {
        let mut command = Command::new("a");
        command.args(["--b", "reflex://c:1?v=1"]);
        assert_eq!(show(&command), "a --b 'reflex://c:1?v=1'");
    }

    #[test]
    fn a_server_that_ends_is_not_ready() {
        let error = Server::start(&mut Command::new("true")).err().unwrap();
        assert!(error.contains("not ready"), "{error}");
    }
}
