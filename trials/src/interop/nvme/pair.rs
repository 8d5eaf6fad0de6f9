//! A guest as the NVMe host, and the server on this machine that it connects to.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::super::guest::{Guest, LATER, SOON};
use super::super::{Context, Verdict};
use super::target::{ADDRESSES, NQN, Plan, Target};
use xtask::needs::{self, Need};

/// The programs that the guest needs beyond those of every guest.
const NEEDS: &[Need] =
    &[Need { program: "nvme", package: "nvme-cli" }, Need { program: "fio", package: "fio" }];

/// The file in the guest whose existence ends the load.
const ENOUGH: &str = "/run/enough";

/// A guest with the kernel's NVMe/TCP host, and a server on this machine.
pub(super) struct HostAndServer<'a> {
    context: &'a Context,
    pub(super) guest: Guest,
    pub(super) target: Target,
}

/// Installs the programs that the guest needs. Returns the verdict that skips the test if that
/// fails; `None` if not.
pub(super) fn provide(more: &[Need]) -> Option<Verdict> {
    needs::provide(&[NEEDS, more].concat()).err().map(Verdict::Skipped)
}

impl<'a> HostAndServer<'a> {
    /// Starts a server with these devices, and takes a guest with the host's driver loaded.
    pub(super) fn start(
        context: &'a Context,
        devices: &[&str],
    ) -> Result<HostAndServer<'a>, String> {
        HostAndServer::of(context, &Plan { devices, listeners: 1, options: "", more: "" })
    }

    /// Starts a server by this plan, and takes a guest with the host's driver loaded.
    pub(super) fn of(context: &'a Context, plan: &Plan) -> Result<HostAndServer<'a>, String> {
        let target = Target::start(context, plan)?;
        let (qemu, kernel) = context.tools()?;
        let mut guest = context.standby.take(qemu, kernel)?;
        guest.must("modprobe nvme-tcp && dmesg --clear", SOON)?;
        Ok(HostAndServer { context, guest, target })
    }

    /// Returns the options of `nvme` for path `way`: an address of the server's machine, and the
    /// port of a listener.
    pub(super) fn at(&self, way: usize) -> String {
        let (address, port) = (ADDRESSES[way], self.target.ports[way]);
        format!("-t tcp -a {address} -s {port}")
    }

    /// Connects over the first path with these options of `nvme connect`. The first namespace
    /// becomes `/dev/nvme0n1`.
    pub(super) fn connect(&mut self, options: &str) -> Result<(), String> {
        let at = self.at(0);
        self.must(&format!(
            "nvme connect {at} -n {NQN} -i 1 {options} || exit 1\n\
             for n in $(seq 400); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.05; done; exit 1"
        ))?;
        Ok(())
    }

    /// Asserts that the server refuses a host that connects with these options.
    pub(super) fn refused(&mut self, options: &str) -> Result<(), String> {
        let at = self.at(0);
        let script = format!("! nvme connect {at} -n {NQN} -i 1 {options}");
        self.must(&script).map_err(|error| format!("{options:?} was let in: {error}"))?;
        Ok(())
    }

    pub(super) fn must(&mut self, script: &str) -> Result<String, String> {
        self.guest.must(script, SOON)
    }

    /// Runs a script, and asserts that its output contains each of `words`. Returns the output.
    pub(super) fn says(&mut self, script: &str, words: &[&str]) -> Result<String, String> {
        let text = self.must(script)?;
        match words.iter().find(|word| !text.contains(**word)) {
            None => Ok(text),
            Some(word) => Err(format!("`{script}` does not say {word:?}:\n{text}")),
        }
    }

    /// Starts a load in the background that repeats `round`, and waits until it writes to the
    /// device. Returns the load's output file.
    pub(super) fn start_load(&mut self, round: &str) -> Result<PathBuf, String> {
        let count = "cat /sys/block/nvme*/stat | awk '{ s += $7 } END { print s }'";
        let before = self.must(&format!("rm -f {ENOUGH}; {count}"))?;
        let rounds = format!("while :; do {round} || exit 1; [ -e {ENOUGH} ] && exit 0; done");
        let load = self.guest.start(&rounds)?;
        self.must(&format!(
            "for n in $(seq 1000); do \
               [ $({count}) -gt $(({before} + 200)) ] && exit 0; sleep 0.05; \
             done; exit 1",
            before = before.trim(),
        ))?;
        Ok(load)
    }

    /// Ends the load after its current round, and asserts that no round ended in an error.
    pub(super) fn end_load(&mut self, load: &Path) -> Result<(), String> {
        self.must(&format!("touch {ENOUGH}"))?;
        self.guest.finish(load, LATER)?;
        Ok(())
    }

    /// Waits until exactly `paths` paths of the subsystem exist, all of them live.
    pub(super) fn await_paths(&mut self, paths: usize) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let states = self.must("cat /sys/class/nvme/nvme*/state 2>/dev/null; true")?;
            if states.lines().count() == paths && states.lines().all(|state| state == "live") {
                return Ok(());
            }
            if started.elapsed() > SOON {
                let log = self.must("dmesg | tail -n 30")?;
                return Err(format!("not {paths} live paths but:\n{states}{log}"));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Disconnects the host, and asserts that no device is left.
    pub(super) fn disconnect(&mut self) -> Result<(), String> {
        self.must(&format!(
            "nvme disconnect -n {NQN} || exit 1\n\
             for n in $(seq 200); do [ -e /dev/nvme0 ] || exit 0; sleep 0.05; done; exit 1"
        ))?;
        Ok(())
    }

    /// Ends the load and the connection, and gives the guest back. Returns the verdict with the
    /// text of what has passed.
    pub(super) fn pass(mut self, load: &Path, text: String) -> Result<Verdict, String> {
        self.end_load(load)?;
        self.disconnect()?;
        self.end()?;
        Ok(Verdict::Passed(text))
    }

    /// Gives the guest back for the next test. Asserts that no controller is left in it.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.must("[ -z \"$(ls /sys/class/nvme)\" ]")?;
        self.context.standby.give(self.guest)
    }
}
