//! A test of a server and its clients on a machine whose time of day jumps.

use std::time::Duration;

use super::guest::{Guest, LATER, Machine, SOON};
use super::kill_server::Report;
use super::{Context, Verdict};

/// The time of day before the jumps, and after each of them, with the day that it has.
const TIMES: [(&str, &str); 4] = [
    ("2026-11-20 12:00:00", "2026-11-20"),
    ("2026-11-21 12:00:00", "2026-11-21"),
    ("2026-11-20 12:00:00", "2026-11-20"),
    ("2026-11-19 12:00:00", "2026-11-19"),
];

/// The addresses of the loads: over TCP, and in sealed packets.
const LOADS: [&str; 2] =
    ["reflex://127.0.0.1:7420", "reflex+udp://127.0.0.1:7421?key=/run/packets.key"];

/// The time for which the loads go on after each jump.
const BETWEEN: &str = "sleep 2";

/// Serves loads that verify while the time of day jumps a day forward, and two days back. No
/// connection ends, no promise is broken, and the records have the time of day.
pub(super) fn jumps(context: &Context) -> Result<Verdict, String> {
    let (qemu, kernel) = context.tools()?;
    let (share, forwards) = (&context.folder, Vec::new());
    let mut guest = Machine { qemu, kernel, share, disks: Vec::new(), forwards }.boot("boot")?;
    guest.must(&format!("date -u -s '{}'", TIMES[0].0), SOON)?;
    guest.serve(&serve(context), SOON)?;
    let mut loads = Vec::new();
    for (number, url) in LOADS.iter().enumerate() {
        loads.push(guest.start(&load(context, number, url))?);
    }
    let both = "n=0; until [ $(curl -s --unix-socket /run/admin http://localhost/v1/connections | \
                grep -o '\"id\"' | wc -l) -ge 2 ]; do n=$((n+1)); [ $n -le 600 ] || exit 1; \
                sleep 0.1; done";
    guest.must(both, SOON)?;
    let before = connections(&mut guest)?;
    for (number, (time, _)) in TIMES.iter().enumerate() {
        guest.must(&format!("date -u -s '{time}' && {BETWEEN}"), SOON)?;
        let program = context.nearflash.display();
        let add = format!("{program} tenant add jump{number} --admin /run/admin");
        guest.must(&add, SOON)?;
    }
    let after = connections(&mut guest)?;
    if before != after {
        return Err(format!("connections before: {before}\nand after: {after}"));
    }
    guest.must("kill $(cat /run/holder0) $(cat /run/holder1)", SOON)?;
    let mut done = Vec::new();
    for load in loads {
        let output = guest.finish(&load, LATER)?;
        let report = Report::find(&output)?;
        if report.errors + report.verify_failures > 0 || report.read.count < 10 {
            return Err(format!("{report:?}\n{output}"));
        }
        done.push(report.read.count + report.write.count);
    }
    let told =
        guest.must("curl -s --unix-socket /run/admin http://localhost/v1/violations", SOON)?;
    if !told.contains("\"violations\":[]") {
        return Err(format!("promises were broken: {told}"));
    }
    records(&mut guest)?;
    guest.stop()?;
    Ok(Verdict::Passed(format!("{} and {} requests, both connections stayed", done[0], done[1])))
}

/// Checks the lines of the audit log: one for each change, with the day of its time.
fn records(guest: &mut Guest) -> Result<(), String> {
    let text = guest.must("cat /run/audit.log", SOON)?;
    let lines: Vec<&str> = text.lines().collect();
    let is_right = lines.len() == TIMES.len()
        && lines.iter().zip(TIMES).all(|(line, (_, day))| {
            line.contains(&format!("\"time\":\"{day}T12:")) && line.contains("\"outcome\":\"done\"")
        });
    if is_right { Ok(()) } else { Err(format!("the audit log has:\n{text}")) }
}

/// Returns the identifiers of the server's connections.
fn connections(guest: &mut Guest) -> Result<String, String> {
    let list = "curl -s --unix-socket /run/admin http://localhost/v1/connections | \
                grep -o '\"id\":\"[^\"]*\"' | sort";
    guest.must(list, Duration::from_secs(60))
}

/// Returns the script of a load, which ends when the process `/run/holderN` is killed.
fn load(context: &Context, number: usize, url: &str) -> String {
    let program = context.nearflash.display();
    let offset = number + 1;
    format!(
        "mkfifo /run/stop{number}\nsleep 1000 >/run/stop{number} &\necho $! >/run/holder{number}\n\
         NEARFLASH_BENCH_STOP= exec {program} bench '{url}' --namespace {offset} --verify --json \
         --read-percent 50 --rate 20 --queue-depth 4 --seconds 900 --warmup 0 </run/stop{number}"
    )
}

/// Returns the script that starts the server.
fn serve(context: &Context) -> String {
    let program = context.nearflash.display();
    format!(
        "umask 077\n\
         echo 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef >/run/packets.key\n\
         cat >/run/server.toml <<END\n\
         workers = 1\n\
         state = \"/run/server.state\"\n\
         [admin]\nlisten = \"/run/admin\"\naudit = \"/run/audit.log\"\n\
         [[device]]\nname = \"fast\"\nspec = \"sim:a?size=64MiB\"\n\
         [[namespace]]\nname = \"one\"\ndevice = \"fast\"\nsize = \"32MiB\"\n\
         [[namespace]]\nname = \"two\"\ndevice = \"fast\"\nsize = \"32MiB\"\noffset = \"32MiB\"\n\
         [[tenant]]\nname = \"gold\"\nlatency_us = 1000000\niops = 200\nread_percent = 40\n\
         [[access]]\nfrom = \"anyone\"\ntenant = \"gold\"\nrights = \"read-write\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:7420\"\n\
         [[listen]]\nurl = \"reflex+udp://127.0.0.1:7421?key=/run/packets.key\"\n\
         END\n\
         exec {program} serve --config /run/server.toml"
    )
}
