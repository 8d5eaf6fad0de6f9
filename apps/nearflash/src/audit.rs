//! The file of the audit log: one object of JSON a line, with the time.
//!
//! A line is durable when its change is answered. One that cannot be written is owed: it is kept, and
//! nothing else is changed until it is in the file. The file only grows; who rotates it renames it and
//! sends SIGHUP, which opens it anew.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use control::admin::{Journal, Outcome, Record};
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// See the module.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// Lines that are not in the file, at most one for each change that was under way.
    owed: Vec<u8>,
    /// Bytes of them that are; at most as many as there are.
    written: usize,
}

/// A record with its time, in UTC.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    record: &'a Record,
}

impl AuditFile {
    /// A log that goes on at the end of a file, which is made if it is not there.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub(crate) fn open(path: &Path) -> Result<Arc<AuditFile>, String> {
        let file = open(path).map_err(|error| say(path, &error))?;
        let inner = Mutex::new(Inner { file, owed: Vec::new(), written: 0 });
        Ok(Arc::new(AuditFile { path: path.to_owned(), inner }))
    }

    /// Opens the file anew, because it may have been renamed.
    ///
    /// # Errors
    /// Says why that cannot be; then lines go where they went.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        let file = open(&self.path).map_err(|error| say(&self.path, &error))?;
        let mut inner = self.lock();
        inner.file = file;
        // A line that was begun in the old file is whole in the new one, or behind its own half.
        let begin = inner.owed[..inner.written].iter().rposition(|byte| *byte == b'\n');
        inner.written = begin.map_or(0, |end| end + 1);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

impl Journal for AuditFile {
    fn ready(&self) -> Result<(), String> {
        self.lock().pay().map_err(|error| say(&self.path, &error))
    }

    fn keep(&self, record: &Record) -> Result<(), String> {
        let mut time = String::new();
        // It fails when the writer does, and a text does not.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut line = serde_json::to_vec(&Line { time, record }).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let mut inner = self.lock();
        if !matches!(record.outcome, Outcome::Done | Outcome::Unknown) {
            // Nothing is owed for what changed nothing, so that it cannot become much.
            inner.pay().map_err(|error| say(&self.path, &error))?;
        }
        inner.owed.append(&mut line);
        inner.pay().map_err(|error| say(&self.path, &error))
    }
}

impl Inner {
    /// Writes what is owed, and makes it durable.
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
        self.file.sync_data()?;
        self.owed.clear();
        self.written = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A pipe would wait for its reader, with whoever asked for a change.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is no file"));
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if is_torn(path)? {
        // What a full disk has left of a line is one of its own.
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Whether a file ends in the middle of a line.
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

fn say(path: &Path, error: &io::Error) -> String {
    format!("cannot write the audit log {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::Caller;

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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = AuditFile::open(&path).unwrap();
        log.keep(&record("a")).unwrap();
        // The device that is always full.
        log.lock().file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        assert!(log.keep(&record("b")).unwrap_err().contains("audit"));
        assert!(log.ready().is_err() && log.keep(&record("c")).is_err());
        let refused = Record { outcome: Outcome::Refused, ..record("d") };
        assert!(log.keep(&refused).is_err());
        // As if half a line had found room before.
        log.lock().written = 10;
        log.reopen().unwrap();
        assert_eq!(log.ready(), Ok(()));
        assert_eq!(paths(&path), ["a", "b", "c"]);
    }
}
