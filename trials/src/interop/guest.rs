//! An emulated machine with a stock kernel that can be booted, given scripts to run, and cut from
//! power.
//!
//! The guest's root is the host's root file system, read-only beneath a layer in memory, so every
//! program of the host is there at its path. Writes are lost at the end, except those to the
//! guest's disks and its shared folder. The machine is emulated (it needs no hardware
//! virtualisation) and has one processor: with more, the emulator and the kernel's patching of its
//! own text interfere.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};

use super::kernel::{Kernel, Qemu};

/// The address at which a guest reaches the host's loopback interface, through its card `eth0`.
pub(super) const HOST: &str = "10.0.2.2";

/// The time limit for things that a guest does quickly on an idle machine.
pub(super) const SOON: Duration = Duration::from_secs(120);

/// The time limit for work that keeps the guest's emulated processor busy.
pub(super) const LATER: Duration = Duration::from_secs(400);

/// The parts of a guest that is to be booted.
pub(crate) struct Machine<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) kernel: &'a Kernel,
    /// A folder of the host that both guest and host write to, at the same path in the guest.
    pub(crate) share: &'a Path,
    /// The disks of the guest in order. They become `/dev/nvme0n1` or `/dev/vda` and so on, by
    /// controller.
    pub(crate) disks: Vec<Disk>,
    /// Pairs of a port on the host's loopback interface and the guest's port that it leads to. The
    /// guest reaches the host's loopback interface at [`HOST`] through its network card `eth0`, and
    /// at 10.0.3.2 through `eth1`, which a test brings up if it needs a second path.
    pub(crate) forwards: Vec<(u16, u16)>,
}

/// A disk of a guest.
pub(crate) struct Disk {
    pub(crate) controller: Controller,
    pub(crate) backing: Backing,
}

/// The kind of controller through which a guest sees a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// `/dev/nvmeXn1`, without a volatile cache: the emulated controller of QEMU 10 acknowledges
    /// forced unit access without passing it on, so losses of a cache behind it would be the
    /// emulator's fault.
    Nvme,
    /// `/dev/vdX`, with a volatile cache.
    Virtio,
}

/// The storage on the host behind a guest's disk.
pub(crate) enum Backing {
    /// A file of the host. Writes that the controller has completed survive the guest.
    Image(PathBuf),
    /// An NBD server of the host that listens at this Unix socket.
    Nbd(PathBuf),
    /// The export `ns1` of an NBD server at this port of the host's loopback interface. The server
    /// may be away for a minute.
    Export(u16),
}

/// A running guest, whose emulator is killed on drop.
pub(crate) struct Guest {
    emulator: Child,
    control: BufReader<UnixStream>,
    share: PathBuf,
    commands: u32,
}

/// The exit status and the output of a script that ran in a guest.
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) text: String,
}

const MEMORY_MIB: u32 = 1024;

/// The time limit for the start of the emulator.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The time limit for the guest to accept scripts. Booting takes four seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// Parts of console lines that report a problem of the guest's kernel.
const TROUBLE: [&str; 5] = ["BUG:", "WARNING:", "Oops", "Kernel panic", "interop: "];

impl Machine<'_> {
    /// Boots the guest. `name` distinguishes boots that share a folder.
    pub(crate) fn boot(&self, name: &str) -> Result<Guest, String> {
        self.start(name, true, None)
    }

    /// Boots the guest with a plug-in of the emulator, given as path and arguments.
    pub(crate) fn boot_with(&self, name: &str, plugin: &str) -> Result<Guest, String> {
        self.start(name, true, Some(plugin))
    }

    /// Boots the guest from its first disk by its firmware. The disk has a boot loader that starts a
    /// kernel with [`kernel_words`](Machine::kernel_words).
    pub(crate) fn boot_from_disk(&self, name: &str) -> Result<Guest, String> {
        self.start(name, false, None)
    }

    fn start(&self, name: &str, hands_kernel: bool, plugin: Option<&str>) -> Result<Guest, String> {
        let socket = self.share.join(format!("{name}.control"));
        let console = self.share.join(format!("{name}.console"));
        let failed = |error: io::Error| format!("{}: {error}", socket.display());
        if socket.exists() {
            fs::remove_file(&socket).map_err(failed)?;
        }
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let messages = self.share.join(format!("{name}.emulator"));
        let errors = fs::File::create(&messages).map_err(failed)?;
        let mut command = self.command(&socket, &console, hands_kernel);
        command.args(plugin.iter().flat_map(|plugin| ["-plugin", plugin]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut emulator = command.spawn().map_err(|error| format!("the emulator: {error}"))?;
        let stream = match accept(&listener, &mut emulator) {
            Ok(stream) => stream,
            Err(error) => {
                end(&mut emulator);
                let said = fs::read_to_string(&messages).unwrap_or_default();
                return Err(format!("{error}: {}", said.trim()));
            }
        };
        let control = BufReader::new(stream);
        let share = self.share.to_path_buf();
        let mut guest = Guest { emulator, control, share, commands: 0 };
        guest.answer("ready", BOOT_LIMIT).map_err(|error| {
            let text = fs::read_to_string(&console).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(15).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!("the guest did not boot: {error}\n{}", last.join("\n"))
        })?;
        Ok(guest)
    }

    /// Returns the command of the emulator, which starts the kernel itself if `hands_kernel`, and
    /// otherwise leaves that to the firmware.
    fn command(&self, socket: &Path, console: &Path, hands_kernel: bool) -> Command {
        // The host's kernel ends the emulator together with this process, even after a crash.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.qemu.program);
        for folder in &self.qemu.data {
            command.arg("-L").arg(folder);
        }
        let memory = MEMORY_MIB.to_string();
        command.args(["-machine", "q35", "-accel", "tcg,tb-size=256", "-cpu", "max,la57=off"]);
        command.args(["-smp", "1", "-m", &memory, "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        if hands_kernel {
            command.arg("-kernel").arg(&self.kernel.image);
            command.arg("-initrd").arg(&self.kernel.initramfs);
            command.arg("-append").arg(self.kernel_words());
        }
        self.add_devices(&mut command, socket);
        command
    }

    fn add_devices(&self, command: &mut Command, socket: &Path) {
        command.args(["-object", "rng-random,id=random,filename=/dev/urandom"]);
        command.args(["-device", "virtio-rng-pci,rng=random"]);
        for (tag, path, access) in
            [("host", Path::new("/"), ",readonly=on"), ("share", self.share, "")]
        {
            let path = path.display();
            command.arg("-fsdev").arg(format!(
                "local,id={tag},path={path},security_model=none,multidevs=remap{access}"
            ));
            command.arg("-device").arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
        }
        command.args(["-device", "virtio-serial-pci", "-chardev"]);
        command.arg(format!("socket,id=interop,path={}", socket.display()));
        command.args(["-device", "virtserialport,chardev=interop,name=interop"]);
        let mut network = "user,id=network,ipv6=off".to_owned();
        for (host, guest) in &self.forwards {
            network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
        }
        let second = "user,id=second,ipv6=off,net=10.0.3.0/24,host=10.0.3.2,dhcpstart=10.0.3.15";
        for (name, network) in [("network", network.as_str()), ("second", second)] {
            command.args(["-netdev", network]);
            command.arg("-device").arg(format!("virtio-net-pci,netdev={name},romfile="));
        }
        for (number, disk) in self.disks.iter().enumerate() {
            command.arg("-blockdev").arg(disk.backing(number));
            command.arg("-device").arg(disk.device(number));
        }
    }

    /// Returns the kernel's command line. Words that the kernel does not know become the
    /// environment of its first program.
    pub(super) fn kernel_words(&self) -> String {
        let quick = "panic=-1 loglevel=4 nokaslr mitigations=off audit=0 nowatchdog no_timer_check \
                     tsc=reliable rcupdate.rcu_expedited=1 cryptomgr.notests random.trust_cpu=on";
        let (share, modules) = (self.share.display(), self.kernel.modules.display());
        let release = &self.kernel.release;
        format!(
            "console=ttyS0 {quick} interop_share={share} interop_modules={modules} \
             interop_release={release}"
        )
    }
}

impl Disk {
    fn backing(&self, number: usize) -> String {
        match &self.backing {
            Backing::Image(path) => format!(
                "driver=raw,node-name=disk{number},file.driver=file,file.filename={},\
                 file.aio=threads,discard=unmap",
                path.display()
            ),
            Backing::Nbd(socket) => format!(
                "driver=raw,node-name=disk{number},file.driver=nbd,file.server.type=unix,\
                 file.server.path={},discard=unmap",
                socket.display()
            ),
            Backing::Export(port) => format!(
                "driver=nbd,node-name=disk{number},export=ns1,reconnect-delay=60,\
                 server.type=inet,server.host=127.0.0.1,server.port={port},discard=unmap"
            ),
        }
    }

    fn device(&self, number: usize) -> String {
        match self.controller {
            // Disable shadow doorbells: emulated controllers are less reliable with them.
            Controller::Nvme => {
                format!("nvme,drive=disk{number},serial=disk{number},dbcs=off,write-cache=off")
            }
            Controller::Virtio => {
                format!("virtio-blk-pci,drive=disk{number},write-cache=on,discard=on")
            }
        }
    }
}

fn accept(listener: &UnixListener, emulator: &mut Child) -> Result<UnixStream, String> {
    let started = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|error| error.to_string())?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        if let Ok(Some(status)) = emulator.try_wait() {
            return Err(format!("the emulator ended ({status})"));
        }
        if started.elapsed() > START_LIMIT {
            return Err("the emulator did not start".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(emulator: &mut Child) {
    // Both calls fail only if the emulator has ended by itself.
    let _gone = emulator.kill();
    let _status = emulator.wait();
}

impl Guest {
    /// Runs a shell script in the guest's shared folder to its end, and returns its exit status and
    /// output.
    pub(crate) fn run(&mut self, script: &str, limit: Duration) -> Result<Output, String> {
        let name = self.script(script)?;
        let status = self.ask(&format!("run {name}"), limit)?;
        let path = self.share.join(format!("{name}.out"));
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Output { status, text: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Runs a script that must succeed, and returns its output.
    pub(crate) fn must(&mut self, script: &str, limit: Duration) -> Result<String, String> {
        let Output { status, text } = self.run(script, limit)?;
        if status == 0 { Ok(text) } else { Err(format!("`{script}` ended with {status}:\n{text}")) }
    }

    /// Waits until the guest's block device `disk` has written `sectors` sectors more.
    pub(crate) fn await_writes(&mut self, disk: &str, sectors: u64) -> Result<(), String> {
        let script = format!(
            "count() {{ awk '{{ print $7 }}' /sys/block/{disk}/stat; }}\n\
             before=$(count)\n\
             for n in $(seq 1000); do \
               [ $(count) -gt $((before + {sectors})) ] && exit 0; sleep 0.05; \
             done\n\
             echo nothing is written; exit 1"
        );
        self.must(&script, SOON).map(drop)
    }

    /// Makes ext4 on the block device at `path`, and mounts it at `/mnt/volume`.
    pub(crate) fn mount_ext4(&mut self, path: &str) -> Result<(), String> {
        let script = format!(
            "set -e\nmodprobe ext4\nmkfs.ext4 -q -F {path}\n\
             mkdir -p /mnt/volume\nmount {path} /mnt/volume"
        );
        self.must(&script, LATER).map(drop)
    }

    /// Starts a script in the background. Returns the path of the file that its output goes to.
    pub(crate) fn start(&mut self, script: &str) -> Result<PathBuf, String> {
        let name = self.script(script)?;
        self.ask(&format!("start {name}"), Duration::from_secs(20))?;
        Ok(self.share.join(format!("{name}.out")))
    }

    /// Starts a server by a script in the background, and waits for its line that begins with
    /// `ready`. Returns that line.
    pub(crate) fn serve(&mut self, script: &str, limit: Duration) -> Result<String, String> {
        let path = self.start(script)?;
        let started = Instant::now();
        loop {
            // The file does not exist until the guest creates it.
            let text = fs::read_to_string(&path).unwrap_or_default();
            let mut lines = text.lines();
            if let Some(line) = lines.find(|line| line.starts_with("ready")) {
                return Ok(line.to_owned());
            }
            if started.elapsed() > limit {
                return Err(format!("`{script}` was not ready within {limit:?}:\n{text}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the script that was started with the output file `started` has succeeded.
    /// Returns its output.
    pub(crate) fn finish(&mut self, started: &Path, limit: Duration) -> Result<String, String> {
        let begun = Instant::now();
        let shown = started.with_extension("sh");
        loop {
            let text = fs::read(started).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            match ended(started)? {
                Some(0) => return Ok(text.into_owned()),
                Some(status) => {
                    return Err(format!("{} ended with {status}:\n{text}", shown.display()));
                }
                None if begun.elapsed() > limit => {
                    return Err(format!(
                        "{} did not end within {limit:?}:\n{text}",
                        shown.display()
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Stops the guest's processor and network, as if the machine slept, or lets them go on.
    pub(crate) fn freeze(&self, is_frozen: bool) -> Result<(), String> {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let id = i32::try_from(self.emulator.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or("the emulator has no number")?;
        kill_process(id, signal).map_err(|error| format!("the emulator: {error}"))
    }

    /// Cuts the power: the contents of the guest's memory are lost.
    pub(crate) fn cut(mut self) {
        end(&mut self.emulator);
    }

    /// Flushes everything to the disks and switches the guest off.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("the guest's port: {error}");
        self.control.get_mut().write_all(b"stop -\n").map_err(failed)?;
        let started = Instant::now();
        while self.emulator.try_wait().map_err(failed)?.is_none() {
            if started.elapsed() > Duration::from_secs(30) {
                return Err("the guest did not switch off".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Writes the script to the shared folder and returns its name there, without `.sh`.
    fn script(&mut self, script: &str) -> Result<String, String> {
        self.commands += 1;
        let name = format!("guest{}-{}", self.emulator.id(), self.commands);
        let path = self.share.join(format!("{name}.sh"));
        let written = fs::write(&path, format!("{script}\n"));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(name)
    }

    fn ask(&mut self, line: &str, limit: Duration) -> Result<i32, String> {
        let written = self.control.get_mut().write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| format!("the guest's port: {error}"))?;
        let answer = self.answer("done", limit)?;
        let status = answer.rsplit(' ').next().and_then(|word| word.parse().ok());
        status.ok_or_else(|| format!("the guest said {answer:?}"))
    }

    /// Waits for the guest's line that begins with `word`, and returns it. Prints other lines of
    /// the guest.
    fn answer(&mut self, word: &str, limit: Duration) -> Result<String, String> {
        let started = Instant::now();
        let mut line = String::new();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(format!("no answer within {} s", limit.as_secs()));
            }
            self.control.get_ref().set_read_timeout(Some(left)).map_err(|e| e.to_string())?;
            match self.control.read_line(&mut line) {
                Ok(0) => return Err("the guest is gone".to_owned()),
                Ok(_) if line.starts_with(word) => return Ok(line.trim().to_owned()),
                Ok(_) => {
                    println!("    guest: {}", line.trim());
                    line.clear();
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(format!("the guest's port: {error}")),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.emulator);
    }
}

/// Returns the exit status of a script that was started in the background; `None` while it runs.
fn ended(started: &Path) -> Result<Option<i32>, String> {
    let path = started.with_extension("status");
    match fs::read_to_string(&path) {
        // The guest creates the file before it writes the status to it.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => text.trim().parse().map(Some).map_err(|_| format!("the status is {text:?}")),
        Err(_) => Ok(None),
    }
}

/// Returns the lines of the guests' consoles in this folder that report a problem of a kernel.
pub(crate) fn trouble(share: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(share).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "console") {
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let bad = text.lines().filter(|line| TROUBLE.iter().any(|word| line.contains(word)));
            found.extend(bad.map(|line| format!("{}: {line}", path.display())));
        }
    }
    found
}
