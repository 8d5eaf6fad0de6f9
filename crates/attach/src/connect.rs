//! `nearflash connect`: prints the `nvme connect` lines that attach subsystems to a Linux host,
//! with timeouts that suit a file system. With `--run`, runs them as root.
//!
//! Keys are named by their files and never printed. Deliberately left out: other functions of
//! nvme-cli (`nvme disconnect`, `nvme list`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use client::nvme::{NvmeAddress, Secret};

/// The keep-alive timeout in seconds: the host gives up a server that has been silent for this
/// long.
const KEEP_ALIVE_SECONDS: u32 = 5;

/// Seconds between two attempts of the host to reconnect.
const RECONNECT_SECONDS: u32 = 2;

/// The least number of seconds after which the host removes the device of an absent server.
const LOSS_SECONDS_MIN: u32 = 3600;

/// The time limit for a block device to appear after the host has connected.
const APPEAR_MAX: Duration = Duration::from_secs(5);

/// The file through which the kernel takes requests for new NVMe controllers.
const FABRICS: &str = "/dev/nvme-fabrics";

/// The folder in which the kernel lists block devices.
const BLOCKS: &str = "/sys/block";

/// Options of `nearflash connect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Subsystems, as `nvme-tcp://HOST:PORT/NQN[?digests=header|data|both&tls=required&host=NQN]`;
    /// several addresses of one subsystem are several paths
    #[arg(required = true)]
    addresses: Vec<NvmeAddress>,
    /// Number of I/O queues, at most 128 [default: one for each processor of this machine]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=128))]
    queues: Option<u32>,
    /// Seconds for which I/O waits for an absent server before it fails
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    fail_after: u32,
    /// File with this host's key (`DHHC-1:…`), if the server asks for authentication
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// File with the server's key, if the server has to prove itself, too
    #[arg(long, value_name = "FILE")]
    controller_key_file: Option<PathBuf>,
    /// Run the lines (as root), and name the devices that appear
    #[arg(long)]
    run: bool,
}

/// An argument of the `nvme` program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandArgument {
    Plain(String),
    /// The content of this file, a key, which must not be printed.
    Secret(PathBuf),
}

/// Runs the command, which says lines by `print` and warnings by `warn`.
///
/// # Errors
/// Fails if the machine has no NVMe/TCP host, the kernel refuses to connect, or no device appears.
pub fn run(args: &Args, print: &dyn Fn(&str), warn: &dyn Fn(&str)) -> Result<ExitCode, String> {
    let lines: Vec<Vec<CommandArgument>> =
        args.addresses.iter().map(|address| line(args, address)).collect();
    if !args.run {
        lines.iter().for_each(|line| print(&shown(line)));
        return Ok(ExitCode::SUCCESS);
    }
    check_machine()?;
    for (line, address) in lines.iter().zip(&args.addresses) {
        print(&shown(line));
        let before = devices(Path::new(BLOCKS), &address.subsystem);
        connect(line)?;
        fail_after(Path::new("/sys/class/nvme"), &address.subsystem, args.fail_after)
            .unwrap_or_else(|warning| warn(&format!("connected, but {warning}")));
        match appeared(&address.subsystem, &before) {
            found if !found.is_empty() => {
                for name in found {
                    print(&format!("/dev/{name} ({})", address.subsystem));
                }
            }
            _ if !before.is_empty() => {
                print(&format!("one more path to /dev/{}", before.join(", /dev/")));
            }
            _ => {
                return Err(format!(
                    "connected, but no device of {} appeared within {} s: does the subsystem have \
                     namespaces for this host? `nvme list-subsys` and `dmesg` say more",
                    address.subsystem,
                    APPEAR_MAX.as_secs()
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the `nvme connect` line for the subsystem and the path in `address`, as words.
fn line(args: &Args, address: &NvmeAddress) -> Vec<CommandArgument> {
    let mut words = Vec::new();
    let mut plain = |word: &str| words.push(CommandArgument::Plain(word.to_owned()));
    let (host, port) = address.place.rsplit_once(':').expect("an address has a port");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let queues = args.queues.unwrap_or_else(|| {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        processors.min(128) as u32
    });
    let loss = LOSS_SECONDS_MIN.max(args.fail_after.saturating_mul(2));
    for word in ["nvme", "connect", "--transport=tcp"] {
        plain(word);
    }
    plain(&format!("--traddr={host}"));
    plain(&format!("--trsvcid={port}"));
    plain(&format!("--nqn={}", address.subsystem));
    if let Some(name) = &address.host {
        plain(&format!("--hostnqn={name}"));
    }
    plain(&format!("--nr-io-queues={queues}"));
    plain(&format!("--keep-alive-tmo={KEEP_ALIVE_SECONDS}"));
    plain(&format!("--reconnect-delay={RECONNECT_SECONDS}"));
    if !args.run {
        plain(&format!("--fast_io_fail_tmo={}", args.fail_after));
    }
    plain(&format!("--ctrl-loss-tmo={loss}"));
    let asked = [
        (address.digests.header, "--hdr-digest"),
        (address.digests.data, "--data-digest"),
        (address.tls, "--tls"),
    ];
    asked.iter().filter(|(is_asked, _)| *is_asked).for_each(|(_, word)| plain(word));
    let keys =
        [("--dhchap-secret", &args.key_file), ("--dhchap-ctrl-secret", &args.controller_key_file)];
    for (option, file) in keys {
        if let Some(file) = file {
            words.push(CommandArgument::Plain(option.to_owned()));
            words.push(CommandArgument::Secret(file.clone()));
        }
    }
    words
}

/// Sets how many seconds I/O waits for an absent server, for all controllers of the subsystem below
/// the folder `controllers`. Debian 12's nvme-cli has no option for it.
fn fail_after(controllers: &Path, subsystem: &str, seconds: u32) -> Result<(), String> {
    let mut set = Err(format!("{} shows no controller of it", controllers.display()));
    for entry in fs::read_dir(controllers).into_iter().flatten().flatten() {
        let [name, path] = ["subsysnqn", "fast_io_fail_tmo"].map(|file| entry.path().join(file));
        if fs::read_to_string(name).is_ok_and(|name| name.trim() == subsystem) {
            let done = fs::write(&path, seconds.to_string());
            set = done.map_err(|error| format!("{}: {error}", path.display()));
        }
    }
    set
}

/// Returns a command line as text for a shell, in which a key is read from its file.
fn shown(line: &[CommandArgument]) -> String {
    let words: Vec<String> = line
        .iter()
        .map(|word| match word {
            CommandArgument::Plain(text) => quoted(text),
            CommandArgument::Secret(file) => {
                format!("\"$(cat {})\"", quoted(&file.display().to_string()))
            }
        })
        .collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,%".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Checks that this machine can connect to NVMe/TCP: root, nvme-cli and the kernel's initiator. An
/// error says what to do.
fn check_machine() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(
            "only root may connect: use sudo, or leave --run out and see the line".to_owned()
        );
    }
    if Command::new("nvme").arg("version").output().is_err() {
        return Err(
            "there is no `nvme` program: install nvme-cli (apt install nvme-cli)".to_owned()
        );
    }
    if Path::new(FABRICS).exists() && Path::new("/sys/module/nvme_tcp").exists() {
        return Ok(());
    }
    let loaded = Command::new("modprobe").arg("nvme-tcp").output();
    if loaded.is_ok_and(|output| output.status.success()) && Path::new(FABRICS).exists() {
        return Ok(());
    }
    Err(format!(
        "this kernel has no NVMe/TCP initiator: there is no {FABRICS}, and `modprobe nvme-tcp` does \
         not bring one; install the modules of the running kernel (on Debian and Ubuntu \
         linux-modules-extra-$(uname -r) or the distribution's own kernel), or use another machine"
    ))
}

/// Runs the `nvme connect` line. A key is on the command line of `nvme` while that runs, as
/// nvme-cli has no other input for it.
fn connect(line: &[CommandArgument]) -> Result<(), String> {
    let word = |word: &CommandArgument| match word {
        CommandArgument::Plain(text) => Ok(text.clone()),
        CommandArgument::Secret(file) => {
            let key = io::read_secret(file).map_err(|error| error.to_string())?;
            let key = key.trim().to_owned();
            Secret::parse(&key).map_err(|e| format!("the key of {} is {e}", file.display()))?;
            Ok(key)
        }
    };
    let words = line.iter().map(word).collect::<Result<Vec<String>, String>>()?;
    let output = Command::new(&words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("cannot run nvme: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "nvme connect failed: {}\n`dmesg` has the kernel's reason; `nearflash bench` with the same \
         address says what the server has against it",
        said.trim()
    ))
}

/// Waits until the kernel lists block devices of the subsystem that are not in `before`, and
/// returns their names. Does not wait if `before` has any, and gives up after `APPEAR_MAX`.
fn appeared(subsystem: &str, before: &[String]) -> Vec<String> {
    let step = Duration::from_millis(100);
    for _ in 0..APPEAR_MAX.as_millis() / step.as_millis() {
        let mut found = devices(Path::new(BLOCKS), subsystem);
        found.retain(|name| !before.contains(name));
        if !found.is_empty() || !before.is_empty() {
            return found;
        }
        std::thread::sleep(step);
    }
    Vec::new()
}

/// Returns the sorted names of the subsystem's block devices, as the folder `blocks` lists them.
fn devices(blocks: &Path, subsystem: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(blocks) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let name = fs::read_to_string(entry.path().join("device/subsysnqn"));
            name.is_ok_and(|name| name.trim() == subsystem)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        // Of a device with several paths, the paths' own have a controller's number inside.
        .filter(|name| !name.trim_start_matches("nvme").contains('c'))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: Args,
    }

    fn lines(words: &str) -> Vec<String> {
        let words = std::iter::once("connect").chain(words.split_whitespace());
        let args = Words::try_parse_from(words).unwrap().args;
        args.addresses.iter().map(|address| shown(&line(&args, address))).collect()
    }

    #[test]
    fn lines_can_be_pasted_and_hold_no_key() {
        let lines = lines(
            "nvme-tcp://[::1]:4420/nqn.x:a?digests=both&host=nqn.y:b nvme-tcp://10.0.0.2:4421/nqn.x:a?tls=required \
             --queues 4 --key-file ./it's --fail-after 5000",
        );
        assert_eq!(
            lines[0],
            "nvme connect --transport=tcp --traddr=::1 --trsvcid=4420 --nqn=nqn.x:a \
             --hostnqn=nqn.y:b --nr-io-queues=4 --keep-alive-tmo=5 --reconnect-delay=2 \
             --fast_io_fail_tmo=5000 --ctrl-loss-tmo=10000 --hdr-digest --data-digest \
             --dhchap-secret \"$(cat './it'\\''s')\""
        );
        assert!(
            lines[1].contains("--traddr=10.0.0.2 --trsvcid=4421 --nqn=nqn.x:a --nr-io-queues=4")
        );
        assert!(!lines[1].contains("digest") && !lines[0].contains("--tls"));
        assert!(lines[1].contains("--tls --dhchap-secret"), "{}", lines[1]);
    }

    #[test]
    fn io_fails_before_the_device_goes() {
        let lines = lines("nvme-tcp://h:1/nqn.x");
        assert!(lines[0].contains("--fast_io_fail_tmo=600 --ctrl-loss-tmo=3600"), "{}", lines[0]);
        assert!(lines[0].contains("--nr-io-queues="));
    }

    #[test]
    fn controllers_are_told_how_long_io_waits() {
        assert!(!lines("nvme-tcp://h:1/nqn.x --run")[0].contains("fast_io_fail"));
        let directory = tempfile::tempdir().unwrap();
        let controller = directory.path().join("nvme0");
        fs::create_dir(&controller).unwrap();
        fs::write(controller.join("subsysnqn"), "nqn.x\n").unwrap();
        fail_after(directory.path(), "nqn.x", 5).unwrap();
        assert!(fail_after(directory.path(), "nqn.y", 6).unwrap_err().contains("no controller"));
        assert_eq!(fs::read(controller.join("fast_io_fail_tmo")).unwrap(), b"5");
    }

    #[test]
    fn devices_are_found_by_their_subsystem() {
        let directory = tempfile::tempdir().unwrap();
        for (name, nqn) in
            [("nvme0n1", "nqn.x:a\n"), ("nvme0c0n1", "nqn.x:a\n"), ("nvme1n1", "nqn.x:b\n")]
        {
            let device = directory.path().join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("subsysnqn"), nqn).unwrap();
        }
        fs::create_dir(directory.path().join("sda")).unwrap();
        assert_eq!(devices(directory.path(), "nqn.x:a"), ["nvme0n1"]);
        assert!(devices(directory.path(), "nqn.x:c").is_empty());
    }
}
