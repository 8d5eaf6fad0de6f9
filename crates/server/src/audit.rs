//! The file of the audit log: one JSON object a line, with the time.
//!
//! A change is answered once its line is durable. A line that cannot be written is kept as pending,
//! and no other change is made until it is in the file. A line that the disk did not take is
//! written again. The file only grows. To rotate it, rename it and send SIGHUP, which opens a new
//! one.
//!
//! A thread of its own writes the file, and callers wait for it no longer than [`WAIT_MAX`]: while
//! a disk hangs, changes are refused at once instead of each holding a thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use control::admin::{Journal, Outcome, Record};
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The longest time that a caller waits for the writer to make a line durable.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of orders queued for the writer: more than the connections of the admin API, each
/// of which has one change under way.
const ORDERS_MAX: usize = 256;

/// An audit log in a file, with a thread that writes it.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    orders: SyncSender<(WriterCommand, SyncSender<io::Result<()>>)>,
    state: Arc<State>,
    wait_max: Duration,
}

/// The state shared by the writer and its callers.
#[derive(Debug)]
struct State {
    /// The open file, locked by the writer while it writes.
    inner: Mutex<OpenLog>,
    /// `true` if a caller has waited for the disk in vain, and nothing was written since.
    is_hung: AtomicBool,
}

/// An order for the thread that writes the file.
#[derive(Debug)]
enum WriterCommand {
    /// Writes the pending lines.
    Pay,
    /// Writes a line, which stays pending until it is in the file.
    Owe(Vec<u8>),
    /// Writes a line after the pending ones. Drops the line if a pending one cannot be written.
    Append(Vec<u8>),
    /// Opens the file again by its path.
    Reopen,
}

/// The open file, and the lines that are pending.
#[derive(Debug)]
struct OpenLog {
    file: File,
    /// Lines that are not durable in the file, at most one for each change under way.
    owed: Vec<u8>,
    /// Bytes of `owed` that were written to the file.
    written: usize,
}

/// A line of the audit log: a record with its time, in UTC.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    record: &'a Record,
}

impl AuditFile {
    /// Opens a log that continues at the end of a file, and creates the file if it is missing. If a
    /// full disk has cut the last line, its end must be written before any change.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub(crate) fn open(path: &Path) -> Result<Arc<AuditFile>, String> {
        AuditFile::open_with(path, WAIT_MAX)
    }

    /// Checks that an audit log can be opened or created at this path, without creating it.
    ///
    /// # Errors
    /// The file exists and cannot be opened, or its directory does not exist.
    pub(crate) fn foresee(path: &Path) -> Result<(), String> {
        check_kind(path).map_err(|error| say(path, &error))?;
        let opened = OpenOptions::new().append(true).open(path).map(drop);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let could_be_made = folder.is_none_or(Path::is_dir);
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && could_be_made => Ok(()),
            opened => opened.map_err(|error| say(path, &error)),
        }
    }

    fn open_with(path: &Path, wait_max: Duration) -> Result<Arc<AuditFile>, String> {
        let mut inner = OpenLog::open(path).map_err(|error| say(path, &error))?;
        if others_read(&inner.file) {
            let file = path.display();
            tracing::warn!(%file, "everybody on this machine can read the audit log; `chmod o-rwx` it");
        }
        if let Err(error) = inner.pay() {
            let why = say(path, &error);
            tracing::warn!(
                why,
                "the audit log ends within a line; no change is accepted until the line is complete"
            );
        }
        let state = Arc::new(State { inner: Mutex::new(inner), is_hung: AtomicBool::new(false) });
        let (orders, queue) = sync_channel(ORDERS_MAX);
        let (writer, of) = (state.clone(), path.to_owned());
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let started = thread.spawn(move || writer.write(&of, &queue));
        started.map_err(|error| format!("cannot start a thread for the audit log: {error}"))?;
        Ok(Arc::new(AuditFile { path: path.to_owned(), orders, state, wait_max }))
    }

    /// Opens the file again by its path, since it may have been renamed.
    ///
    /// # Errors
    /// The file cannot be opened; then lines go to the same file as before.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        self.order(WriterCommand::Reopen)
    }

    /// Sends an order to the writer, and waits for its result for a limited time.
    fn order(&self, order: WriterCommand) -> Result<(), String> {
        // What changes nothing waits for nobody who hangs; what was done is written when he is
        // back.
        if self.state.is_hung.load(Ordering::Acquire) && !matches!(order, WriterCommand::Owe(_)) {
            return Err(self.hung());
        }
        let (reply, done) = sync_channel(1);
        self.orders.try_send((order, reply)).map_err(|_| self.hung())?;
        match done.recv_timeout(self.wait_max) {
            Ok(done) => done.map_err(|error| say(&self.path, &error)),
            Err(_) => {
                self.state.is_hung.store(true, Ordering::Release);
                // An answer that came just then was given before the writer said that he is there.
                let Ok(done) = done.try_recv() else { return Err(self.hung()) };
                self.state.is_hung.store(false, Ordering::Release);
                done.map_err(|error| say(&self.path, &error))
            }
        }
    }

    fn hung(&self) -> String {
        let (path, seconds) = (self.path.display(), self.wait_max.as_secs());
        format!("the disk of the audit log {path} has not answered for {seconds} s")
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, OpenLog> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Carries out the orders on the writer's thread, until nobody can send any more.
    fn write(&self, path: &Path, orders: &Receiver<(WriterCommand, SyncSender<io::Result<()>>)>) {
        while let Ok((order, reply)) = orders.recv() {
            let done = self.lock().carry_out(order, path);
            let _ = reply.send(done); // he may not wait any more
            self.is_hung.store(false, Ordering::Release);
        }
    }
}

impl Journal for AuditFile {
    fn ready(&self) -> Result<(), String> {
        self.order(WriterCommand::Pay)
    }

    fn keep(&self, record: &Record) -> Result<(), String> {
        let mut time = String::new();
        // It fails when the writer does, and a text does not.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut line = serde_json::to_vec(&Line { time, record }).map_err(|e| e.to_string())?;
        line.push(b'\n');
        // Nothing is owed for what changed nothing, so that it cannot become much.
        self.order(match record.outcome {
            Outcome::Done | Outcome::Unknown => WriterCommand::Owe(line),
            _ => WriterCommand::Append(line),
        })
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<OpenLog> {
        let (file, is_torn) = open(path)?;
        // What a full disk has left of a line is one of its own.
        let owed = if is_torn { vec![b'\n'] } else { Vec::new() };
        Ok(OpenLog { file, owed, written: 0 })
    }

    fn carry_out(&mut self, order: WriterCommand, path: &Path) -> io::Result<()> {
        match order {
            WriterCommand::Pay => {}
            WriterCommand::Owe(mut line) => self.owed.append(&mut line),
            WriterCommand::Append(mut line) => {
                self.pay()?;
                self.owed.append(&mut line);
            }
            WriterCommand::Reopen => {
                let mut new = OpenLog::open(path)?;
                // A line that was begun in the old file is whole in the new one, or behind its own
                // half.
                let begin = self.owed[..self.written].iter().rposition(|byte| *byte == b'\n');
                let lines = &self.owed[begin.map_or(0, |end| end + 1)..];
                // The end of the old file's half line is not the new one's.
                new.owed.extend_from_slice(lines.strip_prefix(b"\n").unwrap_or(lines));
                *self = new;
                return Ok(());
            }
        }
        self.pay()
    }

    /// Writes the pending lines, and makes them durable.
    fn pay(&mut self) -> io::Result<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        while self.written < self.owed.len() {
            match self.file.write(&self.owed[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Err(error) = self.file.sync_data() {
            self.write_again(&error);
            return Err(error);
        }
        self.owed.clear();
        self.written = 0;
        Ok(())
    }

    /// Marks all lines that may be lost to be written again. When a disk fails to take pages, the
    /// kernel drops them, reports the error once, and has nothing to write the next time. The
    /// rewritten lines begin on a line of their own, because the state of the bytes before them is
    /// unknown.
    fn write_again(&mut self, error: &io::Error) {
        let bytes = self.owed.len();
        tracing::error!(
            bytes,
            %error,
            "the disk did not take lines of the audit log; they are written again, and may be there twice"
        );
        self.written = 0;
        if !self.owed.starts_with(b"\n") {
            self.owed.insert(0, b'\n');
        }
    }
}

/// Returns an error if something else than a regular file is at the path: with a pipe, every change
/// would wait for a reader.
fn check_kind(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is no file")),
        _ => Ok(()),
    }
}

/// Opens the file of an audit log for appending. Returns `true` with it if the file ends in the
/// middle of a line.
fn open(path: &Path) -> io::Result<(File, bool)> {
    check_kind(path)?;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // Its name has to be durable as well. Who may not read the directory has been given the file.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
        directory.sync_all()?;
    }
    Ok((file, is_torn(path)?))
}

/// Returns `true` if a file ends in the middle of a line; `false` too if the server may not read
/// it.
fn is_torn(path: &Path) -> io::Result<bool> {
    // One that its writer may not read is taken for whole.
    let Ok(mut file) = File::open(path) else { return Ok(false) };
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Returns `true` if users besides the owner and the group may read or write a file.
fn others_read(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.permissions().mode() & 0o006 != 0)
}

fn say(path: &Path, error: &io::Error) -> String {
    format!("cannot write the audit log {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::Caller;

    #[test]
    fn a_log_that_everybody_can_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (file, _) = open(&path).unwrap();
        assert!(!others_read(&file), "the server makes it for its owner");
        for (mode, is_open) in [(0o640, false), (0o644, true), (0o602, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(others_read(&file), is_open, "{mode:o}");
        }
    }

    /// Returns a folder, and a log in its file `audit` that has one record, `a`.
    fn log_of_one() -> (tempfile::TempDir, PathBuf, Arc<AuditFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = AuditFile::open(&path).unwrap();
        log.keep(&record("a")).unwrap();
        (folder, path, log)
    }

    fn record(about: &str) -> Record {
        let who = Caller::Signal { signal: "SIGHUP" };
        Record::beside_http(who, "RELOAD", about, Outcome::Done)
    }

    fn paths(file: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(file).unwrap();
        let path = |line: &str| -> String {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
            line["path"].as_str().unwrap().to_owned()
        };
        text.lines().map(path).collect()
    }

    #[test]
    fn a_renamed_file_is_followed_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let log = AuditFile::open(&path).unwrap();
        log.keep(&record("a")).unwrap();
        std::fs::rename(&path, &old).unwrap();
        log.keep(&record("b")).unwrap();
        log.reopen().unwrap();
        log.keep(&record("c")).unwrap();
        assert_eq!((paths(&old), paths(&path)), (vec!["a".into(), "b".into()], vec!["c".into()]));
        drop(log);
        AuditFile::open(&path).unwrap().keep(&record("d")).unwrap();
        assert_eq!(paths(&path), ["c", "d"]);
        assert!(AuditFile::open(folder.path()).unwrap_err().contains("no file"));
    }

    #[test]
    fn half_a_line_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::fs::write(&path, "{\"half\":").unwrap();
        AuditFile::open(&path).unwrap().keep(&record("a")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "{\"half\":"));
        assert!(serde_json::from_str::<serde_json::Value>(lines[1]).is_ok(), "{text}");
    }

    #[test]
    fn what_cannot_be_written_is_owed() {
        let (_folder, path, log) = log_of_one();
        // The device that is always full.
        log.state.lock().file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        assert!(log.keep(&record("b")).unwrap_err().contains("audit"));
        assert!(log.ready().is_err() && log.keep(&record("c")).is_err());
        let refused = Record { outcome: Outcome::Refused, ..record("d") };
        assert!(log.keep(&refused).is_err());
        // As if half a line had found room before.
        log.state.lock().written = 10;
        log.reopen().unwrap();
        assert_eq!(log.ready(), Ok(()));
        assert_eq!(paths(&path), ["a", "b", "c"]);
    }

    /// Tests that lines are written again after a failed sync: the kernel reports the failure once,
    /// and the next sync finds nothing to do.
    #[test]
    fn what_the_disk_did_not_take_is_written_again() {
        let (_folder, path, log) = log_of_one();
        // It takes all that is written, and cannot be synced.
        let null = OpenOptions::new().append(true).open("/dev/null").unwrap();
        let file = std::mem::replace(&mut log.state.lock().file, null);
        assert!(log.keep(&record("b")).is_err() && log.ready().is_err());
        assert!(log.keep(&record("c")).is_err());
        log.state.lock().file = file;
        assert_eq!(log.ready(), Ok(()));
        log.keep(&record("d")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\n\n", "\n")).unwrap();
        assert_eq!(paths(&path), ["a", "b", "c", "d"]);
    }

    /// Tests that a server whose log ends in half a line starts and answers questions, though it
    /// refuses changes.
    #[test]
    fn half_a_line_on_a_full_disk_does_not_keep_a_server_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::fs::write(&path, "{\"half\":").unwrap();
        let mut inner = OpenLog::open(&path).unwrap();
        assert_eq!(inner.owed, b"\n");
        inner.file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        assert!(inner.pay().is_err() && inner.carry_out(WriterCommand::Pay, &path).is_err());
        // As when there is room again.
        inner.carry_out(WriterCommand::Reopen, &path).unwrap();
        inner.carry_out(WriterCommand::Owe(b"{}\n".to_vec()), &path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"half\":\n{}\n");
    }

    #[test]
    fn a_disk_that_hangs_refuses_changes_and_holds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = AuditFile::open_with(&path, Duration::from_secs(3)).unwrap();
        log.keep(&record("a")).unwrap();
        let disk = log.state.lock();
        assert!(log.keep(&record("b")).unwrap_err().contains("has not answered"));
        #[expect(clippy::disallowed_methods, reason = "a test of how long is waited")]
        let begun = std::time::Instant::now();
        for _ in 0..1_000 {
            assert!(log.ready().unwrap_err().contains("has not answered"));
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "each waited");
        drop(disk);
        // What was done has its line, and changes are made again.
        #[expect(clippy::disallowed_methods, reason = "a test of how long is waited")]
        let begun = std::time::Instant::now();
        while log.ready().is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        log.keep(&record("c")).unwrap();
        assert_eq!(paths(&path), ["a", "b", "c"]);
    }
}
