//! `cargo xtask siege`: attacks a built server with the connections of one tenant, and times the
//! reads of three others.
//!
//! The siege of the simulated world (`crates/sim/src/siege`) proves that nobody waits for what an
//! attacker holds. This trial shows it of a program with sockets and a kernel. Each row starts a
//! server, which is left alone, attacked, and left alone again. As root, all of it happens in a
//! network namespace of its own.

pub(crate) mod account;
mod attack_kind;
mod attackers;
mod fixture;
mod judge;
mod probe;
mod rows;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use account::{Accounts, Reading};
use attackers::{Plan, RunningAttack};
use clap::Args;
use fixture::{BesiegedServer, NEIGHBOURS};
use judge::{Figures, Phases, Verdict};
use rows::Row;
use table::{MeasuredAttack, StolenTime};

use crate::bench::{machine, process};
use crate::interop::built::target_folder;
use xtask::{page, shell};

/// The time after an attack in which the server still ends what is left of it.
const AFTERMATH: Duration = Duration::from_secs(3);

/// The time that the machine takes from a worker in a second that is counted as taken.
const SECOND_TAKEN: Duration = Duration::from_millis(25);

/// The descriptors of this process beside those of attacking connections.
const OTHER_DESCRIPTORS: usize = 64;

/// Options of `cargo xtask siege`.
#[derive(Args)]
pub(crate) struct SiegeOptions {
    /// Run only the rows whose names contain one of these
    rows: Vec<String>,
    /// Attack for this many seconds in each row. The table is of 600
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Make at most this many attacking connections a second
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Besiege this program [default: it is built]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Build the program in this profile of cargo
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Seed the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the table, with the machine and the command lines, to this Markdown file
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Use the network as it is: the process has one of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Besieges the server with each row, and prints the table. Fails if a bound is broken.
pub(crate) fn run(options: &SiegeOptions) -> Result<(), String> {
    let program = match &options.program {
        Some(path) => {
            path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => build(&options.profile)?,
    };
    let separable = shell::is_root() && shell::has_program("unshare") && shell::has_program("ip");
    let network = match (options.inside, separable) {
        (false, true) => return run_inside(&program),
        (true, _) => "in a network namespace of its own",
        (false, false) => "on this machine's loopback: only root can make a network namespace",
    };
    if options.inside {
        shell::show(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    }
    process::raise_descriptor_limit()?;
    let machine = machine::describe();
    println!("{machine}\n{network}\n");
    let is_chosen = |row: &&Row| {
        options.rows.is_empty() || options.rows.iter().any(|word| row.name.contains(word.as_str()))
    };
    let mut measured = Vec::new();
    for row in rows::ALL.iter().filter(is_chosen) {
        println!("{}: {} …", row.name, row.about());
        let one = besiege(row, options, &program)?;
        println!("{}", one.summary());
        measured.push(one);
    }
    if measured.is_empty() {
        let names: Vec<&str> = rows::ALL.iter().map(|row| row.name).collect();
        return Err(format!("no such row; there are: {}", names.join(", ")));
    }
    let text = table::markdown(&measured);
    println!("\n{text}");
    if let Some(path) = &options.output {
        let document = table::document(&machine.to_string(), network, options.seconds, &measured);
        page::write(path, &document)?;
    }
    let count =
        |is_one: fn(&Verdict) -> bool| measured.iter().filter(|m| is_one(&m.verdict)).count();
    let broken = count(|verdict| matches!(verdict, Verdict::Broken(_)));
    let undecided = count(|verdict| matches!(verdict, Verdict::Undecided(_)));
    println!("{} met, {broken} broken, {undecided} undecided", measured.len() - broken - undecided);
    match (broken, undecided) {
        (0, 0) => Ok(()),
        (0, _) => Err("the machine took too much time to tell".to_owned()),
        _ => Err("neighbours of the attackers notice them".to_owned()),
    }
}

/// Builds the program, and returns its path.
fn build(profile: &str) -> Result<PathBuf, String> {
    let words = ["build", "--quiet", "--profile", profile, "--package", "nearflash-cli"];
    shell::show(&mut shell::cargo(&words))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_folder().join(folder).join("nearflash"))
}

/// Runs this program again with the same arguments in a new network namespace, which ends with it.
fn run_inside(program: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(own).args(std::env::args_os().skip(1));
    command.arg("--inside");
    if !std::env::args().any(|word| word == "--program" || word.starts_with("--program=")) {
        command.arg("--program").arg(program);
    }
    shell::show(&mut command).map_err(|_| "the siege failed".to_owned())
}

/// Runs one row in a folder in memory, which is removed afterwards.
fn besiege(row: &Row, options: &SiegeOptions, program: &Path) -> Result<MeasuredAttack, String> {
    let folder = PathBuf::from(format!("/dev/shm/nearflash-siege-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let measured = besiege_in(&folder, row, options, program);
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    std::fs::remove_dir_all(&folder).map_err(failed)?;
    measured.map_err(|error| {
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        format!("{}: {error}\nthe server's log ends with:\n{last}", row.name)
    })
}

fn besiege_in(
    folder: &Path,
    row: &Row,
    options: &SiegeOptions,
    program: &Path,
) -> Result<MeasuredAttack, String> {
    let quiet = Duration::from_secs((options.seconds / 2).clamp(5, 60));
    let bed = BesiegedServer::start(program, folder)?;
    let mut watch = Watch::new(&bed)?;
    // The first reads come while caches fill and threads start.
    watch.wait(Duration::from_secs(1));
    let begins = Instant::now();
    let before = watch.wait(quiet);
    let memory = process::private_bytes(bed.id()).unwrap_or(0);
    let attack_begins = Instant::now();
    let raiders = RunningAttack::start(plan(row, options, &bed)?);
    let during = watch.wait(Duration::from_secs(options.seconds));
    let counts = raiders.end()?;
    let aftermath = watch.wait(AFTERMATH);
    let attack_over = Instant::now();
    let after = watch.wait(quiet);
    let ends = Instant::now();
    let memory_after = process::private_bytes(bed.id()).unwrap_or(0);
    let ended = bed.ended()?;
    let command = bed.command.clone();
    let reads = bed.end()?;
    let phases = Phases { begins, attack_begins, attack_over, ends };
    let attack = during.and(&aftermath);
    let figures = Figures::new(&reads, &phases, attack.share());
    let verdict = figures.verdict(&NEIGHBOURS);
    Ok(MeasuredAttack {
        name: row.name,
        about: row.about(),
        figures,
        verdict,
        counts,
        ended,
        memory: (memory, memory_after),
        attack,
        quiet: before.and(&after),
        command,
    })
}

/// Returns the plan of a row's attack. Where the limit of descriptors allows fewer connections, it
/// has fewer, and says so.
fn plan(row: &Row, options: &SiegeOptions, bed: &BesiegedServer) -> Result<Plan, String> {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let room = limit.saturating_sub(OTHER_DESCRIPTORS);
    let wanted = row.connections();
    if room == 0 {
        return Err(format!("the limit of descriptors is {limit}"));
    }
    if wanted > room {
        println!("    {room} of {wanted} connections: the limit of descriptors is {limit}");
    }
    let scaled = |count: usize| if wanted > room { (count * room / wanted).max(1) } else { count };
    Ok(Plan {
        attacks: row.attacks.iter().map(|(attack, count)| (*attack, scaled(*count))).collect(),
        port: bed.port,
        nvme_port: bed.nvme_port,
        rate: options.rate,
        seed: options.seed,
    })
}

/// The reading of the workers' accounts, second by second.
struct Watch {
    accounts: Accounts,
    last: Reading,
}

impl Watch {
    fn new(bed: &BesiegedServer) -> Result<Watch, String> {
        let accounts = Accounts::of_workers(bed.id())?;
        let last = accounts.read();
        Ok(Watch { accounts, last })
    }

    /// Waits for this time, and returns what the machine took meanwhile.
    fn wait(&mut self, time: Duration) -> StolenTime {
        let (begun, mut taken) = (Instant::now(), StolenTime::default());
        let mut second_began = begun;
        while begun.elapsed() < time {
            let left = time.saturating_sub(begun.elapsed());
            std::thread::sleep(left.min(Duration::from_secs(1)));
            let now = self.accounts.read();
            let lost = now.taken_since(&self.last);
            taken.seconds += 1;
            taken.taken += u64::from(lost >= SECOND_TAKEN);
            taken.lost += lost;
            taken.workers += now.ran_since(&self.last);
            taken.time += second_began.elapsed();
            (self.last, second_began) = (now, Instant::now());
        }
        taken
    }
}
