//! A server on this machine, and a guest that attaches the server's volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::guest::{Guest, HOST, LATER, Output, SOON};
use super::super::port::free_port;
use super::super::{Context, Verdict};
use crate::bench::process::{Server, open_log};
use xtask::needs::{self, Need};

/// The file in the guest whose existence ends the load.
const ENOUGH: &str = "/run/enough";

/// The transport between the guest and the server, as the scheme of their URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkTransport {
    /// TCP.
    Streams,
    /// Packets over UDP.
    Packets,
}

impl UblkTransport {
    fn scheme(self) -> &'static str {
        match self {
            UblkTransport::Streams => "reflex",
            UblkTransport::Packets => "reflex+udp",
        }
    }
}

/// A server that can be killed, and a guest with the driver ublk_drv loaded.
pub(super) struct UblkSetup<'a> {
    context: &'a Context,
    pub(super) guest: Guest,
    over: UblkTransport,
    /// The server's arguments behind `serve`, without its listener.
    arguments: Vec<String>,
    port: u16,
    log: PathBuf,
    server: Option<Server>,
}

/// Installs the programs that the guest needs. Returns the verdict that skips the test if that
/// fails; `None` if not.
pub(super) fn provide(more: &[Need]) -> Option<Verdict> {
    let fio = Need { program: "fio", package: "fio" };
    needs::provide(&[&[fio], more].concat()).err().map(Verdict::Skipped)
}

impl<'a> UblkSetup<'a> {
    /// Starts a server with this device and without the admin API, and takes a guest.
    pub(super) fn start(context: &'a Context, device: &str) -> Result<UblkSetup<'a>, String> {
        UblkSetup::over(context, UblkTransport::Streams, device)
    }

    /// Starts a server with this device and without the admin API, and takes a guest that reaches
    /// it by this transport.
    pub(super) fn over(
        context: &'a Context,
        over: UblkTransport,
        device: &str,
    ) -> Result<UblkSetup<'a>, String> {
        UblkSetup::of(context, over, &["--admin", "none", "--device", device])
    }

    /// Starts a server with these arguments, and takes a guest that reaches it by this transport.
    pub(super) fn of(
        context: &'a Context,
        over: UblkTransport,
        arguments: &[&str],
    ) -> Result<UblkSetup<'a>, String> {
        let (qemu, kernel) = context.tools()?;
        let guest = context.standby.take(qemu, kernel)?;
        let mut bed = UblkSetup {
            context,
            guest,
            over,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            port: free_port()?,
            log: context.folder.join("server.log"),
            server: None,
        };
        bed.serve()?;
        bed.must("modprobe ublk_drv && dmesg --clear")?;
        Ok(bed)
    }

    /// Returns the guest's command that attaches the volume, with these options of `nearflash
    /// attach`.
    pub(super) fn attach(&self, options: &str) -> String {
        let program = self.context.nearflash.display();
        let scheme = self.over.scheme();
        format!("exec {program} attach {scheme}://{HOST}:{} {options}", self.port)
    }

    /// Attaches the volume in the guest with these options, and waits until its device can be used.
    pub(super) fn attached(&mut self, options: &str) -> Result<(), String> {
        let script = self.attach(options);
        self.guest.serve(&script, SOON).map(drop)
    }

    /// Runs `nearflash WORDS` in the guest, which must succeed. Returns the output.
    pub(super) fn program(&mut self, words: &str) -> Result<String, String> {
        let program = self.context.nearflash.display().to_string();
        self.must(&format!("{program} {words}"))
    }

    /// Runs a script in the guest, which must fail with `text` in its output.
    pub(super) fn refused(&mut self, script: &str, text: &str) -> Result<(), String> {
        let Output { status, text: said } = self.guest.run(script, SOON)?;
        match status != 0 && said.contains(text) {
            true => Ok(()),
            false => Err(format!("`{script}` ended with {status}, without {text:?}:\n{said}")),
        }
    }

    /// Returns `true` if the guest's kernel can change the size of a device (`UBLK_F_UPDATE_SIZE`):
    /// from Linux 6.16 on.
    pub(super) fn can_resize(&mut self) -> Result<bool, String> {
        let release = self.must("uname -r")?;
        let mut numbers = release.split('.').map(|word| word.parse().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok((major, minor) >= (6, 16))
    }

    /// Returns the path of the program under test.
    pub(super) fn path(&self) -> &Path {
        &self.context.nearflash
    }

    pub(super) fn must(&mut self, script: &str) -> Result<String, String> {
        self.guest.must(script, SOON)
    }

    /// Kills the server with SIGKILL.
    pub(super) fn kill_server(&mut self) {
        self.server = None;
    }

    /// Starts the server, and kills the running one before.
    pub(super) fn serve(&mut self) -> Result<(), String> {
        self.kill_server();
        let mut command = self.server_command();
        self.server = Some(Server::start_again(&mut command, &self.log)?);
        Ok(())
    }

    /// Starts a server that takes over from the running one, and waits until that one has ended.
    pub(super) fn upgrade(&mut self) -> Result<(), String> {
        let mut command = self.server_command();
        let successor = Server::start_with(command.arg("--upgrade"), open_log(&self.log)?.into())?;
        let predecessor = self.server.replace(successor).ok_or("no server is running")?;
        match predecessor.ends_in_order(SOON)? {
            true => Ok(()),
            false => Err("the server that was upgraded ended with an error".to_owned()),
        }
    }

    /// Returns what all servers of the test have logged.
    pub(super) fn server_log(&self) -> Result<String, String> {
        fs::read_to_string(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))
    }

    fn server_command(&self) -> Command {
        let mut command = Command::new(&self.context.nearflash);
        command.arg("serve").args(&self.arguments);
        let listener = format!("{}://127.0.0.1:{}", self.over.scheme(), self.port);
        command.args(["--listen", &listener]);
        command
    }

    /// Starts a load in the background that repeats `round`, and waits until it writes. The device
    /// stays open between rounds: one that nobody uses is removed when its process is told to end,
    /// and the next round would write to a file of its name.
    pub(super) fn start_load(&mut self, round: &str) -> Result<PathBuf, String> {
        self.must(&format!("rm -f {ENOUGH}"))?;
        let rounds = format!(
            "exec 9</dev/ublkb0; while :; do {round} || exit 1; [ -e {ENOUGH} ] && exit 0; done"
        );
        let load = self.guest.start(&rounds)?;
        self.await_writes(200)?;
        Ok(load)
    }

    /// Waits until the device has written `sectors` sectors more.
    pub(super) fn await_writes(&mut self, sectors: u64) -> Result<(), String> {
        self.guest.await_writes("ublkb0", sectors)
    }

    /// Ends the load after its current round, and asserts that no round ended in an error.
    pub(super) fn end_load(&mut self, load: &Path) -> Result<(), String> {
        self.must(&format!("touch {ENOUGH}"))?;
        self.guest.finish(load, LATER)?;
        Ok(())
    }

    /// Detaches the device and gives the guest back. Asserts that nothing of the device is left and
    /// that the kernel has not complained.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.program("attach detach 0")?;
        self.must(
            "[ ! -e /dev/ublkb0 ] && [ ! -e /dev/ublkc0 ] && [ ! -e /run/nearflash-attach/0.json ]",
        )?;
        // The process that has served the device may still have the driver open.
        self.must("for n in $(seq 400); do rmmod ublk_drv && exit 0; sleep 0.05; done; exit 1")?;
        self.context.standby.give(self.guest)
    }
}
