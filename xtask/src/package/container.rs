//! A trial of the image that `packaging/Containerfile` describes, without a container engine: an
//! empty root that holds only the copied files, entered as the image's user.
//!
//! The trial supports only the instructions that the file uses. Any other instruction is an error,
//! so that the trial matches what an engine would build. Cgroups, system call filters and networks
//! are left out, because the engine sets them up.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::files::{checked, say};
use xtask::shell;

/// The container file, by its path in the repository.
const FILE: &str = "packaging/Containerfile";

/// The directories in the container that its user may write to.
const DIRECTORIES: &[&str] = &["data", "run/nearflash"];

/// The time that the server of the container has to end after the signal to do so.
const END_MAX: Duration = Duration::from_secs(20);

/// Makes the empty directories that the container file copies, in the folder of packages `out`.
pub(super) fn directories(out: &Path) -> Result<(), String> {
    DIRECTORIES.iter().try_for_each(|name| {
        let folder = out.join("container").join(name);
        fs::create_dir_all(&folder).map_err(|e| say(&folder, e))
    })
}

/// Starts the server in a container of the packages in `out`, operates it from inside, and ends it.
/// Returns `None` on success, or the reason that no container could be tried.
pub(super) fn try_out(out: &Path) -> Result<Option<&'static str>, String> {
    if !shell::is_root() || !shell::has_program("unshare") {
        return Ok(Some("only root, with unshare, can enter an empty root as another user"));
    }
    let file = shell::root().join(FILE);
    let text = fs::read_to_string(&file).map_err(|e| say(&file, e))?;
    let recipe = Recipe::parse(&text)?;
    let root = &out.join("container-root");
    recipe.lay_out(root)?;
    let words: Vec<String> =
        recipe.command.iter().map(|word| word.replace(":7420", ":0")).collect();
    let mut server = ServerProcess(
        recipe
            .enter(root, &words)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?,
    );
    let mut line = String::new();
    let output = server.0.stdout.take().expect("it is piped");
    let read = BufReader::new(output).read_line(&mut line);
    let url = line.trim().strip_prefix("ready ").filter(|_| read.is_ok());
    let url = url.ok_or("the server of the container did not start (its message is above)")?;
    for words in [&["tenant", "add", "gold"][..], &["tenant", "list"], &["worker", "list"]] {
        checked(&mut recipe.enter(root, &recipe.program(words)))?;
    }
    let bench = ["bench", url, "--seconds", "0.5", "--warmup", "0", "--read-percent", "50"];
    checked(&mut recipe.enter(root, &recipe.program(&[&bench[..], &["--verify"]].concat())))?;
    server.end()?;
    fs::remove_dir_all(root).map_err(|e| say(root, e))?;
    Ok(None)
}

/// The parsed instructions of a container file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recipe {
    /// The copied files: path in the repository, path in the container, and the number of the
    /// owner.
    copies: Vec<(String, String, u32)>,
    environment: Vec<(String, String)>,
    directory: String,
    uid: u32,
    gid: u32,
    entry: Vec<String>,
    /// The default command: the entry point with its default arguments.
    command: Vec<String>,
}

impl Recipe {
    fn parse(text: &str) -> Result<Recipe, String> {
        let mut recipe = Recipe { directory: "/".to_owned(), ..Recipe::default() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let understood = recipe.take(line);
            understood.ok_or_else(|| format!("{FILE}: {line:?} is not understood"))?;
        }
        let entry = recipe.entry.clone();
        recipe.command.splice(0..0, entry);
        Ok(recipe)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (instruction, rest) = line.split_once(' ')?;
        match instruction {
            "FROM" => (rest == "scratch").then_some(())?,
            "ENV" => {
                let (name, value) = rest.split_once('=')?;
                self.environment.push((name.to_owned(), value.to_owned()));
            }
            "WORKDIR" => self.directory = rest.to_owned(),
            "USER" => (self.uid, self.gid) = owner(rest)?,
            "ENTRYPOINT" => self.entry = serde_json::from_str(rest).ok()?,
            "CMD" => self.command = serde_json::from_str(rest).ok()?,
            "COPY" => {
                let mut words: VecDeque<&str> = rest.split_whitespace().collect();
                let flag = words.front().and_then(|word| word.strip_prefix("--chown="));
                let uid = flag.map(owner).unwrap_or(Some((0, 0)))?.0;
                if flag.is_some() {
                    words.pop_front();
                }
                let [from, to] = words.make_contiguous() else { return None };
                self.copies.push((from.to_owned(), to.to_owned(), uid));
            }
            _ => return None,
        }
        Some(())
    }

    /// Creates the container's files and directories in `root`, which must not exist.
    fn lay_out(&self, root: &Path) -> Result<(), String> {
        fs::create_dir(root).map_err(|e| say(root, e))?;
        open_to_all(root)?;
        for (from, to, uid) in &self.copies {
            let (from, to) = (shell::root().join(from), below(root, to));
            match from.is_dir() {
                true => copy_below(&from, &to, *uid)?,
                false => drop(fs::copy(&from, &to).map_err(|e| say(&from, e))?),
            }
        }
        let directory = below(root, &self.directory);
        fs::create_dir_all(&directory).map_err(|e| say(&directory, e))
    }

    /// Returns the words of a command of the container: its entry point with the arguments `words`.
    fn program(&self, words: &[&str]) -> Vec<String> {
        self.entry.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Returns a command that runs `words` in the container whose files are in `root`.
    fn enter(&self, root: &Path, words: &[String]) -> Command {
        let mut command = Command::new("unshare");
        command.arg("--mount").arg("--root").arg(root).arg("--wd").arg(&self.directory);
        command.arg("--setgid").arg(self.gid.to_string());
        command.arg("--setuid").arg(self.uid.to_string()).args(words);
        command.env_clear().envs(self.environment.iter().cloned()).stdin(Stdio::null());
        command
    }
}

fn owner(text: &str) -> Option<(u32, u32)> {
    let (uid, gid) = text.split_once(':')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

fn below(root: &Path, place: &str) -> PathBuf {
    root.join(place.trim_start_matches('/'))
}

/// Copies the directories below `from` to `to` as engines do: those that exist already keep their
/// owner. A file below `from` is an error.
fn copy_below(from: &Path, to: &Path, uid: u32) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|e| say(from, e))? {
        let entry = entry.map_err(|e| say(from, e))?;
        let (source, place) = (entry.path(), to.join(entry.file_name()));
        if !source.is_dir() {
            return Err(format!("{}: only directories are expected", source.display()));
        }
        if !place.is_dir() {
            fs::create_dir(&place).map_err(|e| say(&place, e))?;
            open_to_all(&place)?;
            chown(&place, Some(uid), Some(uid)).map_err(|e| say(&place, e))?;
        }
        copy_below(&source, &place, uid)?;
    }
    Ok(())
}

fn open_to_all(folder: &Path) -> Result<(), String> {
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder, mode).map_err(|e| say(folder, e))
}

/// The server of the container, a process that is killed on drop.
struct ServerProcess(Child);

impl ServerProcess {
    fn end(mut self) -> Result<(), String> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| format!("the server of the container: {error}"))?;
        for _ in 0..END_MAX.as_millis() / 20 {
            if let Some(status) = self.0.try_wait().map_err(|e| e.to_string())? {
                let ended = format!("the server of the container ended with {status}");
                return if status.success() { Ok(()) } else { Err(ended) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the server of the container still runs {END_MAX:?} after it was told to end"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_file_is_understood_and_other_instructions_are_not() {
        let text = fs::read_to_string(shell::root().join(FILE)).unwrap();
        let recipe = Recipe::parse(&text).unwrap();
        assert_eq!((recipe.uid, recipe.gid, &*recipe.directory), (65_534, 65_534, "/data"));
        assert_eq!(recipe.command[..2], ["/nearflash", "serve"]);
        let state =
            recipe.command.iter().position(|word| word == "--state").expect("it keeps changes");
        let state = Path::new(&recipe.command[state + 1]);
        assert!(state.starts_with(&recipe.directory), "{state:?} is in the volume");
        assert_eq!(recipe.copies[1].2, 65_534, "the user's own directories");
        for line in ["RUN true", "COPY a", "USER nobody", "FROM debian"] {
            assert!(Recipe::parse(line).unwrap_err().contains(line), "{line}");
        }
    }

    #[test]
    fn what_is_copied_is_the_users() {
        let folder = tempfile::tempdir().unwrap();
        directories(folder.path()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        copy_below(&folder.path().join("container"), &root, own).unwrap();
        for name in DIRECTORIES {
            assert!(root.join(name).is_dir(), "{name}");
        }
    }
}
