//! The program under test, run as `nearflash serve` in a child process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{PATIENCE, wait_until};

/// The options of a server to start.
pub(crate) struct Launch {
    arguments: Vec<String>,
    config: Option<tempfile::NamedTempFile>,
    wrapper: Vec<String>,
    before: String,
    log: &'static str,
}

impl Launch {
    /// Returns `nearflash serve` with these arguments.
    pub(crate) fn new(arguments: &[&str]) -> Launch {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Launch { arguments, config: None, wrapper: Vec::new(), before: String::new(), log: "warn" }
    }

    /// Returns a server of the device `spec` on a free local port.
    pub(crate) fn device(spec: &str) -> Launch {
        Launch::new(&["--device", spec, "--listen", "reflex://127.0.0.1:0"])
    }

    /// Returns a server with this configuration file. It listens on a free local port unless the
    /// file has listeners.
    pub(crate) fn config(text: &str) -> Launch {
        let mut launch = Launch::new(&[]);
        if !text.contains("[[listen]]") {
            launch.arguments = ["--listen", "reflex://127.0.0.1:0"].map(str::to_owned).to_vec();
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("the file can be written");
        let path = file.path().display().to_string();
        // Which would lie about when the file is gone.
        launch.arguments.extend(["--config", &path, "--state", "none"].map(str::to_owned));
        launch.config = Some(file);
        launch
    }

    /// Adds an argument to the server's command line.
    pub(crate) fn with(mut self, argument: &str) -> Launch {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Limits the number of the server's file descriptors.
    pub(crate) fn descriptors(self, most: u32) -> Launch {
        self.after(&[], &format!("ulimit -n {most}"))
    }

    /// Makes the server wait at a step of a take-over until the file `until` exists.
    pub(crate) fn staying(self, at: &str, until: &Path) -> Launch {
        self.after(&[], &format!("export NEARFLASH_UPGRADE_STAY={at}:{}", until.display()))
    }

    /// Makes the server start from a shell that has run `script` before. The shell is started by
    /// `wrapper`.
    pub(crate) fn after(mut self, wrapper: &[&str], script: &str) -> Launch {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self.before = script.to_owned();
        self
    }

    /// Sets the filter of the server's log.
    pub(crate) fn log(mut self, filter: &'static str) -> Launch {
        self.log = filter;
        self
    }

    fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_nearflash");
        let mut command = Command::new(program);
        if !self.before.is_empty() {
            let script = format!("{} && exec \"$0\" \"$@\"", self.before);
            let words: Vec<&str> = self.wrapper.iter().map(String::as_str).collect();
            let words = [&words[..], &["sh", "-c", &script, program]].concat();
            command = Command::new(words[0]);
            command.args(&words[1..]);
        }
        command.arg("serve").args(&self.arguments).env("NEARFLASH_LOG", self.log);
        // Servers of tests that run at the same time must not meet in the default place.
        command.env("NEARFLASH_ADMIN", "none");
        // A test that chooses its own interface keeps it.
        let chooses = self.arguments.iter().any(|argument| argument == "--interface");
        if let (Ok(way), false) = (std::env::var("NEARFLASH_TEST_INTERFACE"), chooses) {
            command.args(["--interface", &way]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the server, and waits until it accepts connections.
    pub(crate) fn start(self) -> Server {
        self.begin().await_ready()
    }

    /// Starts the server, and does not wait until it accepts connections.
    pub(crate) fn begin(self) -> StartingServer {
        let mut child = self.command().spawn().expect("the program starts");
        let lines = lines_of(child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let log_lines = lines_of(child.stderr.take().expect("piped"));
        let collected = log.clone();
        std::thread::spawn(move || {
            for line in log_lines {
                let mut log = collected.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let server = Server { child, log, addresses: Vec::new(), config: self.config };
        StartingServer { server, lines }
    }

    /// Starts a server that must end with an error. Returns its exit code and its standard error.
    pub(crate) fn fail(self) -> (i32, String) {
        let mut child = self.command().spawn().expect("the program starts");
        let mut said = child.stderr.take().expect("piped");
        let status = wait_or_kill(&mut child, PATIENCE);
        let mut text = String::new();
        said.read_to_string(&mut text).expect("its words are text");
        (status.code().unwrap_or_else(|| panic!("ended by a signal: {text}")), text)
    }
}

/// A server that may not accept connections yet. It is killed when this value is dropped.
pub(crate) struct StartingServer {
    server: Server,
    lines: Receiver<String>,
}

impl StartingServer {
    /// Waits until the server accepts connections.
    pub(crate) fn await_ready(mut self) -> Server {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.server.addresses = parse_ready(&line),
            Err(_) => panic!("no `ready` line; its log: {}", self.server.log()),
        }
        self.server
    }
}

impl std::ops::Deref for StartingServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl std::ops::DerefMut for StartingServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

fn lines_of(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the addresses of a server's listeners from its `ready` line. Leaves out Unix sockets and
/// Ethernet, whose addresses the tests choose.
fn parse_ready(line: &str) -> Vec<SocketAddr> {
    let urls = line.strip_prefix("ready ").unwrap_or_else(|| panic!("not a ready line: {line:?}"));
    let address = |url: &str| {
        // Further lanes follow the first address.
        let place = url.split_once("://").and_then(|(_, place)| place.split('?').next());
        place.and_then(|place| place.parse().ok())
    };
    urls.split(' ')
        .filter(|url| !url.contains("+unix:") && !url.contains("+eth:"))
        .map(|url| address(url).unwrap_or_else(|| panic!("no URL: {url:?}")))
        .collect()
}

/// Waits for the end of a child process. A child that outlives `limit` is killed and fails the
/// test.
fn wait_or_kill(child: &mut Child, limit: Duration) -> ExitStatus {
    let mut status = None;
    let end = super::now() + limit;
    while status.is_none() && super::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        status = child.try_wait().expect("it is our child");
    }
    status.unwrap_or_else(|| {
        let _ = child.kill(); // it may have ended just now
        let _ = child.wait();
        panic!("the program still ran after {limit:?}");
    })
}

/// A server that accepts connections. It is killed when this value is dropped.
pub(crate) struct Server {
    child: Child,
    log: Arc<Mutex<String>>,
    addresses: Vec<SocketAddr>,
    config: Option<tempfile::NamedTempFile>,
}

impl Server {
    /// Returns the address of the first listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the address of the `n`-th listener, counted from zero.
    pub(crate) fn listener(&self, n: usize) -> SocketAddr {
        self.addresses[n]
    }

    /// Returns what the server has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the server's log contains these words.
    pub(crate) fn await_log(&self, words: &str) {
        wait_until(&format!("a log of {words:?}"), PATIENCE, || self.log().contains(words));
    }

    /// Returns the server's process identifier.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the server's process, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }

    /// Returns the processor time that the server's threads have used so far, as the scheduler
    /// measures it. The times in `stat` are useless here: they count whole ticks of the kernel's
    /// timer, and threads that wake by that timer always meet a tick.
    pub(crate) fn processor_time(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let used = threads.expect("it runs").filter_map(|thread| -> Option<u64> {
            let clocked = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            clocked.split(' ').next()?.parse().ok()
        });
        let used = Duration::from_nanos(used.sum::<u64>());
        assert!(!used.is_zero(), "this kernel does not clock threads");
        used
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Asks the server to stop, by `SIGTERM`.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Aborts the server, as a broken invariant would.
    pub(crate) fn abort(&self) {
        self.signal(Signal::ABORT);
    }

    /// Tells the server to read its configuration again, by `SIGHUP`.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Suspends the server's process, by `SIGSTOP`.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the suspended server, by `SIGCONT`.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server, as a crash would, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Waits for the server's end, and returns its exit status.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_or_kill(&mut self.child, PATIENCE)
    }

    /// Returns `true` while the server runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log:\n{}---", self.log());
        }
    }
}
