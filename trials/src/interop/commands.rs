//! Runs every command of the program once against a server, and checks that it succeeds or says why
//! it cannot.
//!
//! The program's own tests check what each command does. This walk checks that no command is left
//! out: it takes the list of commands from the program's own help.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::context::{Context, Verdict};
use crate::bench::process::Server;
use xtask::shell;

/// The time limit of one command, well above its duration on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The qualified name of the subsystem that the server exports.
const NQN: &str = "nqn.2026-11.io.nearflash:commands";

/// The expected end of a command: success or failure, with this text in its output.
enum Expected {
    Done(&'static str),
    Refused(&'static str),
}
use Expected::{Done, Refused};

/// The commands, in the order in which they run, with their expected ends. `DIR`, `URL` and `NQN`
/// stand for the test's folder, the server's address and the subsystem.
#[rustfmt::skip]
const WALK: &[(&str, Expected)] = &[
    ("config check DIR/server.toml", Done("")),
    ("config show DIR/server.toml", Done("drive")),
    ("config schema", Done("$schema")),
    ("state export", Done("[[device]]")),
    ("state import DIR/state.toml --dry-run", Done("would change: nothing")),
    ("doctor --no-measure", Done("")),
    ("completions bash", Done("nearflash")),
    ("man -o DIR/man", Done("")),
    ("connect nvme-tcp://127.0.0.1:4420/NQN", Done("nvme connect")),
    ("attach URL --fail-after 0", Refused("--fail-after")),
    ("attach list", Done("no volume")),
    ("attach show 4095", Refused("nothing is attached")),
    ("attach recover 4095", Refused("")),
    ("attach resize 4095", Refused("nothing is attached")),
    ("attach detach 4095", Refused("")),
    ("calibrate sim:nothing -o DIR/model.toml", Refused("nothing")),
    ("reproduce --virtual-only --quick fig1 -o DIR/figures", Done("")),
    ("demo --seconds 0", Refused("--seconds")),
    ("serve --check --config DIR/server.toml", Done("")),
    ("bench URL --seconds 0.5 --warmup 0 --verify --read-percent 50", Done("")),
    ("tenant add gold", Done("gold")),
    ("tenant set gold --best-effort", Done("gold")),
    ("tenant check --latency 2ms --iops 1k", Done("")),
    ("tenant apply DIR/changes.json", Done("")),
    ("tenant show gold", Done("gold")),
    ("tenant list", Done("gold")),
    ("why gold --seconds 1", Done("connected")),
    ("tenant rm gold", Done("gold")),
    ("namespace add logs 16MiB --device more --uuid 6f2b1a4e-0c6d-4c58-9a51-1d6f8f1f0c11", Done("logs")),
    ("namespace resize logs 32MiB", Done("logs")),
    ("namespace set logs --read-only true", Done("logs")),
    ("namespace show logs", Done("logs")),
    ("namespace list", Done("logs")),
    ("subsystem add NQN2 --namespace logs", Done("")),
    ("subsystem set NQN2 --authenticate false", Done("")),
    ("subsystem allow NQN2 nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001", Done("")),
    ("subsystem deny NQN2 nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001", Done("")),
    ("subsystem detach NQN2 logs", Done("")),
    ("subsystem attach NQN2 logs", Done("")),
    ("subsystem show NQN2", Done("logs")),
    ("subsystem list", Done("NQN2")),
    ("subsystem rm NQN2", Done("")),
    ("namespace rm logs --discard", Done("logs")),
    ("host add nqn.2026-11.org.example:two", Done("")),
    ("host set nqn.2026-11.org.example:two --tenant none", Done("")),
    ("host set nqn.2026-11.org.example:two --hashes sha512 --groups all", Done("")),
    ("host key nqn.2026-11.org.example:two --none", Done("")),
    ("host key nqn.2026-11.org.example:two --end-overlap", Done("")),
    ("host key nqn.2026-11.org.example:two --tls --none", Done("")),
    ("host show nqn.2026-11.org.example:two", Done("example:two")),
    ("host list", Done("example:two")),
    ("host rm nqn.2026-11.org.example:two", Done("")),
    ("listener add reflex://127.0.0.1:0", Done("")),
    ("listener list", Done("reflex://")),
    ("listener show 1", Done("reflex")),
    ("listener drain 1", Done("")),
    ("listener resume 1", Done("")),
    ("listener ana 2 inaccessible", Done("")),
    ("listener rm 3", Done("")),
    ("device add spare mem:16MiB", Done("spare")),
    ("device set drive --fail-fast true --promise-windows true", Done("")),
    ("device show spare", Done("spare")),
    ("device list", Done("drive")),
    ("device model drive", Done("")),
    ("device recalibrate spare", Refused("spare")),
    ("device rm spare", Done("spare")),
    ("ftl create ftl:file:DIR/flash?size=64MiB", Done("")),
    ("ftl create ftl:file:DIR/thin?size=64MiB&ftl.virtual=1TiB", Done("1 TiB")),
    ("ftl check ftl:file:DIR/flash", Done("")),
    ("ftl show ftl:file:DIR/flash", Done("")),
    ("ftl create ftl:file:DIR/files?size=1GiB", Done("")),
    ("fs create ftl:file:DIR/files", Done("files")),
    ("fs allocate ftl:file:DIR/files /vm/disk 8MiB", Done("/vm/disk")),
    ("fs list ftl:file:DIR/files", Done("/vm/disk")),
    ("fs check ftl:file:DIR/files", Done("faults: 0")),
    ("mount ftl:file:DIR/files DIR/missing --durable-names", Refused("cannot mount at")),
    ("umount /", Refused("no file system of nearflash")),
    ("worker list", Done("")),
    ("worker show 0", Done("")),
    ("worker add", Done("")),
    ("worker drain 1", Done("")),
    ("worker retire 0", Refused("")),
    ("conn list", Done("")),
    ("conn show 1", Refused("")),
    ("conn end 1", Refused("")),
    ("conn move 1 0", Refused("")),
    ("top --once", Done("drive")),
    ("trace --seconds 0.2 -o DIR/trace.json", Done("")),
    ("upgrade --config DIR/missing.toml", Refused("missing.toml")),
    ("drain --show", Done("")),
    ("drain --deadline 1 --no-wait", Done("")),
];

/// The configuration of the server that the commands operate; `DIR` stands for the test's folder.
const CONFIG: &str = "workers = \"1..2\"\n\
    [[device]]\nname = \"drive\"\nspec = \"sim:a?size=64MiB\"\nmodel = \"a\"\n\
    [[device]]\nname = \"more\"\nspec = \"file:DIR/more?size=64MiB\"\n\
    [[namespace]]\nname = \"all\"\ndevice = \"drive\"\n\
    [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n";

/// Runs every row of [`WALK`], and fails if the help lists a command that no row runs.
pub(super) fn all(context: &Context) -> Result<Verdict, String> {
    let folder = &context.folder;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    write("server.toml", &CONFIG.replace("DIR", &folder.display().to_string()))?;
    write("changes.json", "{\"changes\": []}")?;
    write("state.toml", "host = []\n")?;
    let missing = missing(&context.nearflash)?;
    if !missing.is_empty() {
        return Err(format!("no row for: {}", missing.join(", ")));
    }
    let mut serve = Command::new(&context.nearflash);
    serve.arg("serve").arg("--config").arg(folder.join("server.toml"));
    let server = Server::start_with(serve.arg("--admin").arg(folder.join("admin")), Stdio::null())?;
    let url = server.address.split(' ').next().unwrap_or_default();
    let wrong: Vec<String> = WALK
        .iter()
        .filter_map(|(words, expected)| walk(context, url, words, expected).err())
        .collect();
    if wrong.is_empty() {
        return Ok(Verdict::Passed(format!("{} commands", WALK.len())));
    }
    Err(wrong.join("\n"))
}

/// Runs one command in the test's folder, and fails unless it ends as `expected`.
fn walk(context: &Context, url: &str, words: &str, expected: &Expected) -> Result<(), String> {
    let folder = context.folder.display().to_string();
    let fill = |text: &str| {
        let text = text.replace("NQN2", &format!("{NQN}2")).replace("NQN", NQN);
        text.replace("DIR", &folder).replace("URL", url)
    };
    let filled = fill(words);
    let mut command = Command::new(&context.nearflash);
    command.args(filled.split(' ')).current_dir(&context.folder);
    command.env("NEARFLASH_ADMIN", context.folder.join("admin"));
    let ran = shell::capture(&mut command, LIMIT)?;
    let (should, word) = match expected {
        Done(word) => (true, fill(word)),
        Refused(word) => (false, fill(word)),
    };
    let what = if should { "succeed" } else { "be refused" };
    if ran.ok != should || !ran.output.contains(&word) {
        let said = ran.output.trim();
        return Err(format!("`nearflash {filled}` has to {what} and say {word:?}:\n{said}"));
    }
    Ok(())
}

/// Returns the commands that the help lists and no row of [`WALK`] runs.
fn missing(program: &Path) -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    for name in listed(program, &[])? {
        let below = listed(program, &[&name])?;
        let all = below.iter().map(|sub| format!("{name} {sub}"));
        let all: Vec<String> = if below.is_empty() { vec![name] } else { all.collect() };
        missing.extend(all.into_iter().filter(|command| !has_row(command)));
    }
    Ok(missing)
}

fn has_row(command: &str) -> bool {
    let begins = |words: &str| words.strip_prefix(command).is_some_and(is_end);
    WALK.iter().any(|(words, _)| begins(words))
}

fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(' ')
}

/// Returns the subcommands that the help of a command lists.
fn listed(program: &Path, words: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new(program);
    let ran = shell::capture(command.args(words).arg("--help"), LIMIT)?;
    if !ran.ok {
        return Err(ran.output);
    }
    Ok(commands_in(&ran.output))
}

fn commands_in(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        let rest = line.strip_prefix("  ")?;
        (!rest.starts_with(' ')).then(|| rest.split(' ').next().unwrap_or_default().to_owned())
    });
    names.filter(|name| name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_help() {
        let help = "Shares\n\nUsage: nearflash <COMMAND>\n\nCommands:\n  serve    Export\n           \
                    devices\n  tenant   Make\n  help     Print\n\nOptions:\n  -h, --help\n";
        assert_eq!(commands_in(help), ["serve", "tenant"]);
        assert_eq!(commands_in("Usage: nearflash top\n"), [""; 0]);
    }

    #[test]
    fn a_command_without_a_row_is_missing() {
        assert!(has_row("tenant rm") && has_row("doctor"));
        assert!(!has_row("tenant frobnicate") && !has_row("tenant r"));
    }
}
