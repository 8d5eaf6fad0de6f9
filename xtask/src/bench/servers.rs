//! The command lines of the servers that are measured.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;

use super::link::Link;
use super::process::Server;
use crate::shell;

/// The core that servers have to themselves.
const SERVER_CPU: &str = "0";

/// The device behind the server: no data, so that software is measured.
const DEVICE: &str = "null:64GiB";

/// Reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Read,
    Write,
}

/// What the load looks like to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) op: Op,
    pub(crate) block_size: usize,
    pub(crate) connections: usize,
    pub(crate) queue_depth: usize,
}

/// A way of running the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) interface: &'static str,
    pub(crate) send_cap: usize,
    pub(crate) socket_buffer: usize,
}

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Nearflash,
    Ceiling(Ceiling),
    Naive,
}

/// A yardstick in the place of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StandIn {
    Ceiling,
    Naive,
}

impl Op {
    /// As the programs' options spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

impl Ceiling {
    /// Every way, or the few that are most often the best.
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

/// A program that cargo has built.
pub(crate) fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    shell::root().join(target.unwrap_or_else(|| "target".into())).join("release").join(name)
}

impl Contender {
    /// The command that serves this shape on `port`.
    pub(crate) fn command(self, shape: Shape, link: &Link, port: u16) -> Command {
        let listen = format!("{}:{port}", link.server_address());
        let program = |name: &str| link.server_side(&built(name).display().to_string());
        match self {
            Contender::Nearflash => {
                let mut command = program("nearflash");
                command.args(["serve", "--device", DEVICE, "--workers", "1"]);
                command.args(["--admin", "none"]);
                command.args(["--cpus", SERVER_CPU, "--listen", &format!("reflex://{listen}")]);
                if matches!(link, Link::Veth(_)) {
                    // Beyond loopback it asks for access rules, and leaves congestion to the system.
                    command.args(["--insecure", "--congestion", "cubic"]);
                }
                command
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

    /// Starts it on a port that was free just now.
    pub(crate) fn start(self, shape: Shape, link: &Link) -> Result<Server, String> {
        Server::start(&mut self.command(shape, link, free_port()?))
    }
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
    fn commands_carry_the_shape() {
        let shape = Shape { op: Op::Write, block_size: 4096, connections: 4, queue_depth: 32 };
        let way = Ceiling { interface: "epoll", send_cap: 7, socket_buffer: 9 };
        let shown = process::show(&Contender::Ceiling(way).command(shape, &Link::Loopback, 81));
        assert!(shown.ends_with(
            "ceiling --listen 127.0.0.1:81 --cpu 0 --interface epoll --op write \
             --block-size 4096 --send-cap 7 --socket-buffer 9"
        ));
        let shown = process::show(&Contender::Nearflash.command(shape, &Link::Loopback, 82));
        assert!(
            shown.contains("--workers 1 --admin none --cpus 0 --listen reflex://127.0.0.1:82"),
            "{shown}"
        );
    }
}
