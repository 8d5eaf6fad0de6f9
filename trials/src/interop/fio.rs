//! Tests of the engine for fio. It reads, writes, discards and verifies, also while the server is
//! killed and started again, and the commands of its guide work.

mod compare;
mod engine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::built::{self, target_folder};
use super::chance::Rng;
use super::context::{Context, Verdict};
use super::kill_server;
use super::port::free_port;
use crate::bench::process::Server;
use xtask::shell;

/// The time limit of one run of fio, which waits for servers that are slow to come back.
const LIMIT: Duration = Duration::from_secs(400);

/// The name of the file that a run of fio makes when its requests begin.
const BEGUN: &str = "begun";

/// The guide whose commands are run, and the job files of the paper's figure.
const GUIDE: &str = "docs/how-to/measure-with-fio.md";
const JOBS: [&str; 3] = ["fig7a-local.fio", "fig7a-nbd.fio", "fig7a-nearflash.fio"];

/// Options of `cargo xtask fio-engine`.
#[derive(Args)]
pub(crate) struct EngineOptions {
    /// Put the engine here
    #[arg(short, long, value_name = "FILE", default_value = "target/fio-nearflash.so")]
    output: PathBuf,
    /// Put this archive of the library into it [default: it is built]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Compare with this program [default: it is built]
    #[arg(long, value_name = "PATH", requires = "compare")]
    nearflash: Option<PathBuf>,
    /// Compare the engine with `nearflash bench` on two quiet processors, in so many rounds
    #[arg(long, value_name = "ROUNDS")]
    compare: Option<usize>,
}

/// Builds the engine with the library as it is shipped.
pub(crate) fn build(options: &EngineOptions) -> Result<(), String> {
    let target = target_folder();
    let sources = engine::sources(&target.join("interop-cache"))?;
    let archive = match &options.library {
        Some(archive) => archive.clone(),
        None => engine::archive("dist", &target)?,
    };
    let output = shell::root().join(&options.output);
    engine::compile(&sources, &archive, &output)?;
    println!("{}", output.display());
    let Some(rounds) = options.compare else { return Ok(()) };
    let nearflash = match &options.nearflash {
        Some(program) => program.clone(),
        None => built::build()?,
    };
    compare::compare(&nearflash, &output, rounds.max(1))
}

/// Options of fio for loads without verification, each of which runs once.
const LOADS: &[&str] = &[
    "--rw=randread --bs=4k --iodepth=32 --connections=4 --number_ios=5000",
    "--rw=randread --bs=4k --iodepth=1 --spin=1000 --number_ios=500 --numjobs=2",
    "--rw=write --bs=64k --iodepth=8 --sync=dsync",
    "--rw=randtrim --bs=64k --iodepth=8",
];

/// Options of fio for loads that verify what they have written, each of which runs once.
const VERIFIED: &[&str] = &[
    "--rw=randwrite --bsrange=4k-1m --iodepth=16 --connections=2 --fsync=16",
    "--rw=randrw --bsrange=4k-1m --iodepth=16 --iodepth_batch_submit=4",
    "--rw=trimwrite --bs=64k --iodepth=8 --fdatasync=4",
];

/// Options of fio for the load that is run while the server is killed: many rounds of writes, each
/// verified.
const KILLED: &str = "--rw=randwrite --bsrange=4k-1m --iodepth=16 --connections=2 --loops=20";

/// The number of kills of the server during the [`KILLED`] load.
const KILLS: u32 = 20;

/// Options of fio by which it verifies reads and leaves no file behind.
const VERIFY: &str = "--verify=crc32c --verify_fatal=1 --verify_state_save=0";

/// The installed fio with the engine that was built.
struct Fio<'a> {
    context: &'a Context,
    engine: PathBuf,
}

impl Fio<'_> {
    /// Returns the command that runs fio with the engine on the server at `port`, with these
    /// options.
    fn command(&self, port: u16, words: &[&str]) -> Command {
        let mut command = Command::new("fio");
        command.arg("--name=trial").current_dir(&self.context.folder);
        command.arg(format!("--ioengine=external:{}", self.engine.display()));
        command.arg(format!("--url=reflex://127.0.0.1:{port}")).arg("--outage=300");
        command.arg(format!("--randseed={}", self.context.seed));
        command.args(words.iter().flat_map(|words| words.split(' ')));
        command
    }
}

/// Runs a command that must succeed, and returns its output.
fn succeed(command: &mut Command) -> Result<String, String> {
    let shown = crate::bench::process::show(command);
    let ran = shell::capture(command, LIMIT)?;
    if ran.ok { Ok(ran.output) } else { Err(format!("{shown}:\n{}", ran.output)) }
}

/// Builds the engine, and runs fio with it: the guide's commands, the options of rights, and the
/// loads.
pub(super) fn engine(context: &Context) -> Result<Verdict, String> {
    let sources = match engine::sources(&target_folder().join("interop-cache")) {
        Ok(sources) => sources,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    // Whoever has built the program by the workspace has built the library beside it.
    let beside = context.nearflash.with_file_name("libnearflash_capi.a");
    let archive = if beside.exists() { beside } else { engine::archive("dev", &target_folder())? };
    let fio = Fio { context, engine: context.folder.join("fio-nearflash.so") };
    engine::compile(&sources, &archive, &fio.engine)?;
    guide(&fio)?;
    rights(&fio)?;
    kill_server::in_memory(|folder| runs(&fio, &folder.join("volume")))
}

/// Runs the loads against a server, the last one while the server is killed and started again.
fn runs(fio: &Fio, volume: &Path) -> Result<Verdict, String> {
    let context = fio.context;
    let port = free_port()?;
    let mut server = kill_server::start(context, volume, port)?;
    for words in LOADS {
        succeed(&mut fio.command(port, &[words]))?;
    }
    for words in VERIFIED {
        succeed(&mut fio.command(port, &[words, VERIFY]))?;
    }
    let mut chance = Rng::new(context.seed ^ 77);
    let mut hits = 0;
    for _ in 0..KILLS {
        let begun = context.folder.join(BEGUN);
        let mut command = fio.command(port, &[KILLED, VERIFY]);
        command.arg(format!("--exec_prerun=touch {BEGUN}"));
        let load = thread::spawn(move || succeed(&mut command));
        let started = Instant::now();
        while !begun.exists() && !load.is_finished() && started.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(chance.below(400)));
        hits += u32::from(!load.is_finished());
        drop(server);
        thread::sleep(Duration::from_millis(chance.below(200)));
        server = kill_server::start(context, volume, port)?;
        load.join().expect("running a command does not panic")?;
        fs::remove_file(&begun).map_err(|error| format!("{}: {error}", begun.display()))?;
    }
    drop(server);
    if hits == 0 {
        return Err("no run of fio was under way when the server died".to_owned());
    }
    let loads = LOADS.len() + VERIFIED.len();
    Ok(Verdict::Passed(format!(
        "{loads} loads, and {KILLS} kills, {hits} of them under a load: none lost, none wrong"
    )))
}

/// Runs the commands of the guide and the job files. The job file of a local device is only parsed.
fn guide(fio: &Fio) -> Result<(), String> {
    let (context, root) = (fio.context, shell::root());
    let text = fs::read_to_string(root.join(GUIDE)).map_err(|e| format!("{GUIDE}: {e}"))?;
    let commands = commands_of(&text);
    let (port, nbd) = (free_port()?, free_port()?);
    let mut serve = Command::new(&context.nearflash);
    serve.args(["serve", "--admin", "none", "--device", "mem:256MiB"]);
    serve.args(["--listen", &format!("reflex://127.0.0.1:{port}")]);
    let _server = Server::start(serve.args(["--listen", &format!("nbd://127.0.0.1:{nbd}")]))?;
    let engine = fio.engine.display().to_string();
    let (ours, theirs) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{nbd}"));
    let program = context.nearflash.display().to_string();
    for command in &commands {
        let command = command.replace("target/fio-nearflash.so", &engine);
        let command = command.replace("127.0.0.1:7420", &ours).replace("127.0.0.1:10809", &theirs);
        let command = command.replace("--runtime=10", "--runtime=1");
        let command = command.replace("nearflash bench", &format!("{program} bench --seconds 1"));
        succeed(Command::new("sh").args(["-euc", &command]).current_dir(&context.folder))?;
    }
    if commands.len() < 3 {
        return Err(format!("{GUIDE} has {} commands for fio and bench", commands.len()));
    }
    let local = context.folder.join("local");
    for job in JOBS {
        let mut run = Command::new("fio");
        if job == JOBS[0] {
            run.arg("--parse-only");
        }
        run.arg(root.join("packaging/fio").join(job)).current_dir(&context.folder);
        run.env("ENGINE", &engine).env("URL", format!("reflex://{ours}")).env("RUNTIME", "1");
        succeed(run.env("URI", format!("nbd://{theirs}")).env("FILE", &local))?;
    }
    Ok(())
}

/// Checks that fio's options of rights work: a server admits only clients with a token, which are
/// charged to one tenant.
fn rights(fio: &Fio) -> Result<(), String> {
    let (folder, port) = (&fio.context.folder, free_port()?);
    let config = folder.join("rights.toml");
    let text = format!(
        "[[device]]\nname = \"m\"\nspec = \"mem:16MiB\"\n[[tenant]]\nname = \"gold\"\n\
         [[access]]\ntoken = \"secret\"\ntenant = \"gold\"\nrights = \"read-write\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:{port}\"\n"
    );
    fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut serve = Command::new(&fio.context.nearflash);
    serve.args(["serve", "--admin", "none", "--state", "none", "--config"]).arg(&config);
    let _server = Server::start(&mut serve)?;
    let words = "--rw=randread --bs=4k --number_ios=50";
    succeed(&mut fio.command(port, &[words, "--tenant=gold --token=secret"]))?;
    for wrong in ["--tenant=gold", "--tenant=other --token=secret"] {
        let ran = shell::capture(&mut fio.command(port, &[words, wrong]), LIMIT)?;
        if ran.ok || !ran.output.contains("access denied") {
            return Err(format!("fio with {wrong} was not refused:\n{}", ran.output));
        }
    }
    Ok(())
}

/// Returns the commands in the `sh` blocks of a guide that run fio or the bench, each in one line.
fn commands_of(guide: &str) -> Vec<String> {
    let joined = guide.replace("\\\n", " ");
    let mut inside = false;
    let mut found = Vec::new();
    for line in joined.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside && (line.starts_with("fio ") || line.starts_with("nearflash bench ")) => {
                found.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_engine_is_in_the_guide() {
        let read = |path: &str| fs::read_to_string(shell::root().join(path)).unwrap();
        let (source, guide) = (read("contrib/fio/nearflash.c"), read(GUIDE));
        let names = source.lines().filter_map(|line| line.split_once(".name = \""));
        let names: Vec<&str> = names.filter_map(|(_, rest)| rest.split('"').next()).collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names.iter().filter(|name| **name != "nearflash") {
            assert!(guide.contains(&format!("\n| `{name}` |")), "{name} is not in {GUIDE}");
        }
    }

    #[test]
    fn commands_of_a_guide_are_found() {
        let guide = "fio no\n```sh\nfio --a \\\n    --b\ncargo c\nnearflash bench x\n```\nfio no\n";
        assert_eq!(commands_of(guide), ["fio --a --b", "nearflash bench x"]);
    }
}
