//! The command lines of the measured servers: nearflash and its yardsticks.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::link::Link;
use super::process::Server;
use super::secrets;
use xtask::shell;

/// The number of the core reserved for servers, as `taskset` and `--cpus` take it.
const SERVER_CPU: &str = "0";

/// The prefix of the default subsystem's qualified name; a colon and the machine's name follow.
const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash";

/// The device behind the measured server. It holds no data, so that only software is measured.
const DEVICE: &str = "null:64GiB";

/// The kind of the requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Read,
    Write,
}

/// The protocol between server and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BenchProtocol {
    /// Protocol `reflex` version 1, the protocol of all yardsticks.
    Reflex1,
    /// Protocol `reflex` version 2.
    Reflex2,
    /// NVMe over TCP without digests.
    Nvme,
    /// NVMe over TCP with data digests.
    NvmeDigest,
    /// Protocol `reflex` version 2 over TLS.
    ReflexTls,
    /// NVMe over TCP and TLS.
    NvmeTls,
}

/// The shape of a load: the kind and the bytes of requests, connections, and requests in flight on
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) op: Op,
    pub(crate) block_size: usize,
    pub(crate) connections: usize,
    pub(crate) queue_depth: usize,
}

/// A configuration of the ceiling: its interface to the kernel, and its limits in bytes of a send
/// and of a socket's buffer; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) interface: &'static str,
    pub(crate) send_cap: usize,
    pub(crate) socket_buffer: usize,
}

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Nearflash(BenchProtocol),
    /// Another build of the server.
    Before(BenchProtocol, &'static Path),
    Ceiling(Ceiling),
    Naive,
}

/// A yardstick that is measured in place of the server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Yardstick {
    Ceiling,
    Naive,
}

impl Op {
    /// Returns the word for the operation in the programs' options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

impl BenchProtocol {
    /// Returns the name of a server with this protocol, for the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchProtocol::Reflex1 => "nearflash",
            BenchProtocol::Reflex2 => "nearflash, reflex version 2",
            BenchProtocol::Nvme => "nearflash, NVMe/TCP",
            BenchProtocol::NvmeDigest => "nearflash, NVMe/TCP with data digests",
            BenchProtocol::ReflexTls => "nearflash, reflex version 2 over TLS",
            BenchProtocol::NvmeTls => "nearflash, NVMe/TCP over TLS",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            BenchProtocol::Reflex1 | BenchProtocol::Reflex2 => "reflex",
            BenchProtocol::ReflexTls => "reflexs",
            BenchProtocol::Nvme | BenchProtocol::NvmeDigest | BenchProtocol::NvmeTls => "nvme-tcp",
        }
    }

    /// Returns the parameters of the listener's URL.
    fn parameters(self) -> String {
        let path = |name| secrets::place(name).display().to_string();
        match self {
            BenchProtocol::ReflexTls => {
                format!("?certificate={}&key={}", path("certificate.pem"), path("key.pem"))
            }
            BenchProtocol::NvmeTls => "?tls=required".to_owned(),
            _ => String::new(),
        }
    }

    /// Returns the URL that clients use for a server that listens at `address`.
    pub(crate) fn url(self, address: &str) -> String {
        let place = address.split_once("://").map_or(address, |(_, place)| place);
        let (scheme, rest) = match self {
            BenchProtocol::Reflex1 => ("reflex", "?v=1".to_owned()),
            BenchProtocol::Reflex2 => ("reflex", "?v=2".to_owned()),
            BenchProtocol::Nvme => ("nvme-tcp", format!("/{}", subsystem())),
            BenchProtocol::NvmeDigest => ("nvme-tcp", format!("/{}?digests=data", subsystem())),
            BenchProtocol::ReflexTls => {
                let certificate = secrets::place("certificate.pem");
                ("reflexs", format!("?v=2&ca={}", certificate.display()))
            }
            BenchProtocol::NvmeTls => {
                ("nvme-tcp", format!("/{}?host={}", subsystem(), secrets::HOST))
            }
        };
        let place = place.split_once('?').map_or(place, |(place, _)| place);
        format!("{scheme}://{place}{rest}")
    }
}

impl Ceiling {
    /// Returns every configuration of the ceiling, or with `quick` the few that are most often the
    /// fastest.
    pub(crate) fn ways(quick: bool) -> Vec<Ceiling> {
        let (caps, buffers): (&[usize], &[usize]) =
            if quick { (&[65_536, 0], &[0]) } else { (&[65_536, 262_144, 0], &[0, 1 << 20]) };
        let mut ways = Vec::new();
        for interface in ["epoll", "io-uring"] {
            for &send_cap in caps {
                for &socket_buffer in buffers {
                    ways.push(Ceiling { interface, send_cap, socket_buffer });
                }
            }
        }
        ways
    }
}

/// Returns the path of a program that cargo has built in the profile `dist`.
pub(crate) fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    shell::root().join(target.unwrap_or_else(|| "target".into())).join("dist").join(name)
}

impl Contender {
    /// Returns the command that serves loads of this shape on `port`.
    pub(crate) fn command(self, shape: Shape, link: &Link, port: u16) -> Command {
        let listen = format!("{}:{port}", link.server_address());
        let program = |name: &str| link.server_side(&built(name).display().to_string());
        match self {
            Contender::Nearflash(speech) => serve(program("nearflash"), speech, link, &listen),
            Contender::Before(speech, path) => {
                serve(link.server_side(&path.display().to_string()), speech, link, &listen)
            }
            Contender::Ceiling(way) => {
                let mut command = program("examples/ceiling");
                command.args(["--listen", &listen, "--cpu", SERVER_CPU]);
                command.args(["--interface", way.interface, "--op", shape.op.name()]);
                command.args(["--block-size", &shape.block_size.to_string()]);
                command.args(["--send-cap", &way.send_cap.to_string()]);
                command.args(["--socket-buffer", &way.socket_buffer.to_string()]);
                command
            }
            Contender::Naive => {
                let mut command = program("examples/naive");
                command.args(["--listen", &listen, "--cpu", SERVER_CPU]);
                command
            }
        }
    }

    /// Returns the protocol that clients of the contender must speak.
    pub(crate) fn speech(self) -> BenchProtocol {
        match self {
            Contender::Nearflash(speech) | Contender::Before(speech, _) => speech,
            Contender::Ceiling(_) | Contender::Naive => BenchProtocol::Reflex1,
        }
    }

    /// Starts the contender on a free port, and waits until it is ready.
    pub(crate) fn start(self, shape: Shape, link: &Link) -> Result<Server, String> {
        Server::start(&mut self.command(shape, link, free_port()?))
    }
}

/// Completes the command of a build of the server, which serves over a protocol at `listen`.
fn serve(mut command: Command, speech: BenchProtocol, link: &Link, listen: &str) -> Command {
    command.args(["serve", "--device", DEVICE, "--workers", "1"]);
    command.args(["--admin", "none", "--cpus", SERVER_CPU]);
    let (scheme, parameters) = (speech.scheme(), speech.parameters());
    command.args(["--listen", &format!("{scheme}://{listen}{parameters}")]);
    if speech == BenchProtocol::NvmeTls {
        command.arg("--config").arg(secrets::place("host.toml"));
    }
    if matches!(link, Link::Veth(_)) {
        // Off loopback, the server demands access rules and leaves congestion control to the
        // system.
        command.args(["--insecure", "--congestion", "cubic"]);
    }
    command
}

/// Returns the qualified name of a server's default subsystem on this machine.
fn subsystem() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{SUBSYSTEM}:{}", if name.trim().is_empty() { "server" } else { name.trim() })
}

fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|a| a.port()).map_err(|error| format!("no free port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::process;

    #[test]
    fn the_search_covers_interfaces_caps_and_buffers() {
        let all = Ceiling::ways(false);
        assert_eq!(all.len(), 12);
        for way in Ceiling::ways(true) {
            assert!(all.contains(&way), "{way:?}");
        }
    }

    #[test]
    fn clients_speak_what_the_server_does() {
        let url = |speech: BenchProtocol| speech.url("nvme-tcp://127.0.0.1:4420");
        assert_eq!(url(BenchProtocol::Reflex1), "reflex://127.0.0.1:4420?v=1");
        assert!(url(BenchProtocol::Nvme).starts_with("nvme-tcp://127.0.0.1:4420/nqn."));
        assert!(url(BenchProtocol::NvmeDigest).ends_with("?digests=data"));
        assert_eq!(Contender::Naive.speech(), BenchProtocol::Reflex1);
        let secure = BenchProtocol::ReflexTls.url("reflexs://127.0.0.1:7420?certificate=a&key=b");
        assert!(secure.starts_with("reflexs://127.0.0.1:7420?v=2&ca=/"), "{secure}");
        assert!(url(BenchProtocol::NvmeTls).ends_with(":bench"));
    }

    #[test]
    fn commands_carry_the_shape() {
        let shape = Shape { op: Op::Write, block_size: 4096, connections: 4, queue_depth: 32 };
        let way = Ceiling { interface: "epoll", send_cap: 7, socket_buffer: 9 };
        let shown = process::show(&Contender::Ceiling(way).command(shape, &Link::Loopback, 81));
        assert!(shown.ends_with(
            "ceiling --listen 127.0.0.1:81 --cpu 0 --interface epoll --op write \
             --block-size 4096 --send-cap 7 --socket-buffer 9"
        ));
        let shown = process::show(&Contender::Nearflash(BenchProtocol::Reflex1).command(
            shape,
            &Link::Loopback,
            82,
        ));
        assert!(
            shown.contains("--workers 1 --admin none --cpus 0 --listen reflex://127.0.0.1:82"),
            "{shown}"
        );
        let before = Contender::Before(BenchProtocol::Nvme, Path::new("/opt/before"));
        let shown = process::show(&before.command(shape, &Link::Loopback, 83));
        assert!(shown.contains("/opt/before serve --device"), "{shown}");
        assert!(shown.ends_with("--listen nvme-tcp://127.0.0.1:83"), "{shown}");
        assert_eq!(before.speech(), BenchProtocol::Nvme);
    }
}
