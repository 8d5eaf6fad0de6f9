//! A log of changes to tenants since the state file was written. Each change appends a line to a
//! file beside the state file, so that the cost of storing one tenant does not depend on their
//! number.
//!
//! A line begins with the version of the state file that it applies to, and a number that counts on
//! from the file's generation. The SHA-256 of the line and the change in JSON follow. So lines for
//! another version of the state file are recognized after any crash. Each line is durable before
//! the next begins: only the last line can be torn, and then its change was not confirmed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Changes;
use super::files::{self, AppendFile, BYTES_MAX, Directory, digest};

/// The beginning of a line of the log: its format and the format's version.
const FORMAT: &str = "nearflash-change 1";

/// The size of a log, in bytes, at which a small state file is written anew. A larger state file is
/// written anew when the log is as large as it is, so that the cost per change stays constant.
const BYTES_MIN: u64 = 256 << 10;

/// A version of the state file, to which the lines of a log apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateVersion {
    pub(super) generation: u64,
    /// The SHA-256 of everything after the file's first line.
    pub(super) sum: String,
}

/// The current state of a tenant.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum TenantState {
    /// The tenant has these settings, whatever the configuration says.
    Is(spec::Tenant),
    /// The tenant was removed, although the configuration has it.
    Gone,
    /// The tenant is as configured.
    AsConfigured,
}

/// The state of one tenant after a change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantRecord {
    tenant: String,
    now: TenantState,
}

impl TenantRecord {
    /// Returns the state that a tenant has in `changes`.
    pub(super) fn of(tenant: &str, changes: &Changes) -> TenantRecord {
        let now = match changes.tenants.get(tenant) {
            Some(Some(config)) => TenantState::Is(config.clone()),
            Some(None) => TenantState::Gone,
            None => TenantState::AsConfigured,
        };
        TenantRecord { tenant: tenant.to_owned(), now }
    }

    fn apply(self, changes: &mut Changes) {
        match self.now {
            TenantState::Is(config) => changes.tenants.insert(self.tenant, Some(config)),
            TenantState::Gone => changes.tenants.insert(self.tenant, None),
            TenantState::AsConfigured => changes.tenants.remove(&self.tenant),
        };
    }
}

/// The log of changes since one version of the state file was written.
#[derive(Debug)]
pub(super) struct ChangeLog {
    path: PathBuf,
    over: StateVersion,
    /// The log's file, open once there is a line.
    file: Option<AppendFile>,
    /// The size of all lines in bytes. At `bytes_max`, the state file is to be written anew.
    bytes: u64,
    bytes_max: u64,
}

impl ChangeLog {
    /// Returns a log without lines, for a state file of this size.
    pub(super) fn new(path: PathBuf, over: StateVersion, state_bytes: u64) -> ChangeLog {
        ChangeLog { path, over, file: None, bytes: 0, bytes_max: state_bytes.max(BYTES_MIN) }
    }

    /// Continues the log's file after the lines that were found in it, which have `bytes` bytes.
    pub(super) fn go_on(&mut self, bytes: u64) -> io::Result<()> {
        self.file = Some(AppendFile::go_on(&self.path)?);
        self.bytes = bytes;
        Ok(())
    }

    /// Returns `true` if the log has room for another line, `false` if the state file is to be
    /// written anew.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.bytes_max
    }

    /// Stores a change under this number. Once this has returned, a restart finds the change. After
    /// an error the log must not be used again, and a restart may find the change or not.
    pub(super) fn append(&mut self, number: u64, steps: &[TenantRecord]) -> io::Result<()> {
        let line = self.line(number, steps)?;
        if let Some(file) = &mut self.file {
            let kept = file.write_all(line.as_bytes()).and_then(|()| file.sync());
            if kept.is_err() {
                // As far as the disk still does anything: what was not kept is not to be found.
                let _ = file.set_len(self.bytes);
            }
            kept?;
        } else {
            self.file = Some(begin(&self.path, line.as_bytes())?);
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn line(&self, number: u64, steps: &[TenantRecord]) -> io::Result<String> {
        let head = head(&self.over, number);
        let body = serde_json::to_string(steps)?;
        let sum = digest(format!("{head} {body}").as_bytes());
        Ok(format!("{head} sha256 {sum} {body}\n"))
    }
}

fn head(over: &StateVersion, number: u64) -> String {
    format!("{FORMAT} over {} {} number {number}", over.generation, over.sum)
}

/// Creates the log's file with its first line. An older file with lines for another version of the
/// state file is removed.
fn begin(path: &Path, line: &[u8]) -> io::Result<AppendFile> {
    files::remove_if_there(path)?;
    let directory = Directory::of(path)?;
    let mut file = AppendFile::create(path)?;
    let kept = file.write_all(line).and_then(|()| file.sync());
    let kept = kept.and_then(|()| directory.sync());
    if kept.is_err() {
        let _ = files::remove_if_there(path); // as far as the disk still does anything
    }
    kept.map(|()| file)
}

/// The contents of a log, as far as they apply to the present state file.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    steps: Vec<TenantRecord>,
    /// The number of whole lines for the present state file. `bytes` is their size.
    pub(super) lines: u64,
    pub(super) bytes: u64,
    /// `true` if text follows that is no line: a crash has cut a line, or the log belongs to
    /// another state file.
    pub(super) has_rest: bool,
    /// `true` if a whole line for the present state file is not where it belongs: after other text,
    /// or with another number than the next one.
    pub(super) is_broken: bool,
}

impl LogContents {
    /// Applies the found changes of tenants to `changes`.
    pub(super) fn apply(self, changes: &mut Changes) {
        self.steps.into_iter().for_each(|step| step.apply(changes));
    }
}

/// Reads the lines for a version of the state file.
///
/// # Errors
/// Fails if the file cannot be read, if it is too large, or if a whole line of it needs another
/// version of the program.
pub(super) fn read(path: &Path, over: &StateVersion) -> Result<LogContents, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LogContents::default()),
        Ok(found) if found.len() > BYTES_MAX => return Err("it is too large".to_owned()),
        _ => {}
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot read it: {error}"))?;
    let mut found = LogContents::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let next = over.generation + found.lines + 1;
        let Some((found_head, body)) = whole(line).filter(|(head, _)| is_over(head, over)) else {
            found.has_rest = true;
            continue;
        };
        let steps: Option<Vec<TenantRecord>> = serde_json::from_str(body).ok();
        let Some(steps) = steps.filter(|_| found_head.starts_with(FORMAT)) else {
            return Err(format!("change {next} is of another version, which understands it"));
        };
        if found_head == head(over, next) && !found.has_rest {
            found.steps.extend(steps);
            found.lines += 1;
            found.bytes += line.len() as u64;
        } else {
            // Of this state file, but not where it belongs.
            found.is_broken = true;
        }
    }
    Ok(found)
}

/// Returns true if a line's head, in any format version, applies to this version of the state file.
fn is_over(found: &str, over: &StateVersion) -> bool {
    let StateVersion { generation, sum } = over;
    found.contains(&format!(" over {generation} {sum} number "))
}

/// Returns the head and the content of a line; `None` if the line is not whole.
fn whole(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (head, rest) = line.split_once(" sha256 ")?;
    let (sum, body) = rest.split_once(' ')?;
    (sum == digest(format!("{head} {body}").as_bytes())).then_some((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(generation: u64) -> StateVersion {
        StateVersion { generation, sum: digest(&generation.to_le_bytes()) }
    }

    fn changes(names: &[&str]) -> Changes {
        let one = |name: &&str| {
            let config = crate::config::Config::parse(&format!("[[tenant]]\nname = {name:?}\n"));
            ((*name).to_owned(), Some(config.unwrap().tenant.remove(0)))
        };
        Changes { tenants: names.iter().map(one).collect(), ..Changes::default() }
    }

    /// Writes a log of three changes: `a` is added, `b` is removed, `a` is as configured.
    fn three(path: &Path) -> Vec<u8> {
        let mut log = ChangeLog::new(path.to_owned(), over(7), 0);
        let with = changes(&["a"]);
        let without = Changes { tenants: [("b".to_owned(), None)].into(), ..Changes::default() };
        log.append(8, &[TenantRecord::of("a", &with)]).unwrap();
        log.append(9, &[TenantRecord::of("b", &without)]).unwrap();
        log.append(10, &[TenantRecord::of("a", &Changes::default())]).unwrap();
        fs::read(path).unwrap()
    }

    fn found(path: &Path) -> (Changes, LogContents) {
        let mut changes = changes(&["c"]);
        read(path, &over(7)).unwrap().apply(&mut changes);
        (changes, read(path, &over(7)).unwrap())
    }

    #[test]
    fn what_is_appended_is_found_wherever_the_last_line_is_cut() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("log");
        let bytes = three(&path);
        let ends: Vec<usize> = (0..bytes.len()).filter(|n| bytes[*n] == b'\n').collect();
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (changes, found) = found(&path);
            let whole = ends.iter().filter(|end| **end < cut).count();
            assert_eq!((found.lines, found.is_broken), (whole as u64, false), "cut at {cut}");
            let is_whole = cut == 0 || bytes[cut - 1] == b'\n';
            assert_eq!(found.has_rest, !is_whole, "cut at {cut}");
            let names: Vec<_> =
                changes.tenants.iter().map(|(n, is)| (&n[..], is.is_some())).collect();
            let expected = [
                &[("c", true)][..],
                &[("a", true), ("c", true)],
                &[("a", true), ("b", false), ("c", true)],
                &[("b", false), ("c", true)],
            ];
            assert_eq!(names, expected[whole], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_is_not_the_last_must_be_whole() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("log");
        let bytes = three(&path);
        let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        for at in (0..bytes.len()).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let found = found(&path).1;
            // Without the end of the line before it, the last line is part of one that was cut.
            assert_eq!(found.is_broken, at < last, "flipped at {at}");
            assert!(found.has_rest || found.is_broken);
        }
        // One that is missing, or is there twice.
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for order in [&[0, 2][..], &[0, 0, 1], &[1, 2], &[1, 0]] {
            fs::write(&path, order.iter().map(|n| lines[*n]).collect::<Vec<_>>().concat()).unwrap();
            assert!(found(&path).1.is_broken, "{order:?}");
        }
    }

    #[test]
    fn lines_of_another_state_file_change_nothing() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("log");
        three(&path);
        for other in [over(8), StateVersion { sum: over(8).sum, ..over(7) }] {
            let found = read(&path, &other).unwrap();
            assert!(found.has_rest && !found.is_broken && found.lines == 0);
        }
        // The first change over another state file begins the log anew.
        let mut log = ChangeLog::new(path.clone(), over(8), 0);
        log.append(9, &[TenantRecord::of("a", &changes(&["a"]))]).unwrap();
        let found = read(&path, &over(8)).unwrap();
        assert_eq!((found.lines, found.has_rest), (1, false));
    }

    #[test]
    fn the_lines_together_are_no_more_than_the_state_file() {
        let log = |state_bytes| ChangeLog::new(PathBuf::new(), over(1), state_bytes);
        assert!(ChangeLog { bytes: BYTES_MIN - 1, ..log(0) }.has_room());
        assert!(!ChangeLog { bytes: BYTES_MIN, ..log(0) }.has_room());
        assert!(ChangeLog { bytes: BYTES_MIN, ..log(1 << 20) }.has_room());
        assert!(!ChangeLog { bytes: 1 << 20, ..log(1 << 20) }.has_room());
    }

    #[test]
    fn a_line_of_another_version_is_not_taken_for_what_a_crash_left() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("log");
        let lines = three(&path);
        let put = |head: &str, body: &str| {
            let sum = digest(format!("{head} {body}").as_bytes());
            let line = format!("{head} sha256 {sum} {body}\n");
            fs::write(&path, [&lines[..], line.as_bytes()].concat()).unwrap();
        };
        let newer = head(&over(7), 11).replace("change 1", "change 2");
        for (head, body) in [(&*head(&over(7), 11), "[{\"new\": 1}]"), (&*newer, "[]")] {
            put(head, body);
            let error = read(&path, &over(7)).unwrap_err();
            assert!(error.contains("another version"), "{error}");
        }
        // Over another writing of the state file it is nobody's.
        put(&head(&over(6), 11), "[{\"new\": 1}]");
        let found = read(&path, &over(7)).unwrap();
        assert_eq!((found.lines, found.has_rest, found.is_broken), (3, true, false));
    }
}
