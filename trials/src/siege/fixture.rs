//! The besieged server: a process with two workers, three tenants beside the attackers' one, and
//! the probes of those three.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::probe::{Pace, Probe, ProbeRead, Target};
use crate::bench::process::{Server, show};
use crate::interop::port::free_port;

/// The reads a second of the tenant with a promise, beside those of its probe. The promise is of
/// 1 000 requests a second, a fifth of them writes.
const RATE: u32 = 600;

/// The neighbours of the attackers, in the order of [`BesiegedServer::end`].
pub(super) const NEIGHBOURS: [&str; 3] = ["promised", "TCP", "Unix"];

/// The metric of connections that have ended, by worker and cause.
const ENDED: &str = "nearflash_worker_connections_ended_total{";

/// The time limit for the metrics of a besieged server.
const METRICS_LIMIT: Duration = Duration::from_secs(20);

/// A besieged server with its probes. It is killed on drop.
pub(super) struct BesiegedServer {
    server: Server,
    probes: Vec<Probe>,
    paced: Probe,
    admin: PathBuf,
    pub(super) port: u16,
    pub(super) nvme_port: u16,
    /// The command line of the server.
    pub(super) command: String,
}

/// The reads of all probes.
pub(super) struct ProbeReads {
    /// The reads of the neighbours' probes, one at a time each.
    pub(super) alone: Vec<Vec<ProbeRead>>,
    /// The reads of the load of the tenant with a promise.
    pub(super) paced: Vec<ProbeRead>,
}

impl BesiegedServer {
    /// Starts the server with its files in `folder`, and then the probes.
    pub(super) fn start(program: &Path, folder: &Path) -> Result<BesiegedServer, String> {
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let config = folder.join("server.toml");
        fs::write(&config, configuration(folder, ports)).map_err(failed)?;
        let log = fs::File::create(folder.join("log")).map_err(failed)?;
        let admin = folder.join("admin");
        let mut serve = Command::new(program);
        serve.args(["serve", "--config"]).arg(&config);
        serve.arg("--admin").arg(&admin).args(["--state", "none"]);
        let server = Server::start_with(&mut serve, Stdio::from(log))?;
        let [port, nvme_port, promised, by_tcp] = ports;
        let tcp = |port: u16| Target::Tcp(format!("127.0.0.1:{port}"));
        let targets = [tcp(promised), tcp(by_tcp), Target::Unix(socket(folder))];
        let id = server.id();
        let probe = |(name, target)| Probe::start(name, target, Pace::Alone, id);
        let probes = NEIGHBOURS.into_iter().zip(targets).map(probe);
        let probes = probes.collect::<Result<Vec<Probe>, String>>()?;
        let paced = Probe::start("the load", tcp(promised), Pace::Rate(RATE), id)?;
        Ok(BesiegedServer { server, probes, paced, admin, port, nvme_port, command: show(&serve) })
    }

    /// Returns the server's process id.
    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Returns the connections that have ended so far, by the cause that the server gives.
    pub(super) fn ended(&self) -> Result<BTreeMap<String, u64>, String> {
        let failed = |error: std::io::Error| format!("the metrics: {error}");
        let mut stream = UnixStream::connect(&self.admin).map_err(failed)?;
        stream.set_read_timeout(Some(METRICS_LIMIT)).map_err(failed)?;
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(failed)?;
        Ok(causes(&text))
    }

    /// Ends the probes and the server.
    pub(super) fn end(self) -> Result<ProbeReads, String> {
        let paced = self.paced.end();
        let alone: Vec<_> = self.probes.into_iter().map(Probe::end).collect();
        let alone = alone.into_iter().collect::<Result<Vec<_>, String>>()?;
        Ok(ProbeReads { alone, paced: paced? })
    }
}

/// Returns the sums over all workers of the connections that have ended, by cause, without zeroes.
fn causes(metrics: &str) -> BTreeMap<String, u64> {
    let mut causes = BTreeMap::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix(ENDED)) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let Some((_, cause)) = labels.split_once("cause=\"") else { continue };
        let cause = cause.split('"').next().unwrap_or_default();
        match count.trim().parse() {
            Ok(0) | Err(_) => {}
            Ok(count) => *causes.entry(cause.to_owned()).or_insert(0) += count,
        }
    }
    causes
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("data.sock")
}

/// Returns the server's configuration. The attackers and the tenant with a promise share a slow
/// simulated drive; the two without a promise have another one, so that they do not share the
/// drive's time with the attackers.
pub(super) fn configuration(folder: &Path, [port, nvme, promised, by_tcp]: [u16; 4]) -> String {
    let socket = socket(folder);
    let socket = socket.display();
    format!(
        "workers = 2\n\
         [limits]\nconnections = 15000\n\
         [[device]]\nname = \"drive\"\nspec = \"sim:a?size=1GiB&slow=20\"\n\
         [[device]]\nname = \"other\"\nspec = \"sim:a?size=128MiB&slow=20\"\n\
         [[namespace]]\ndevice = \"drive\"\nsize = \"512MiB\"\n\
         [[namespace]]\ndevice = \"drive\"\noffset = \"512MiB\"\n\
         [[namespace]]\ndevice = \"other\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.io.nearflash:siege\"\nnamespaces = [1]\n\
         [[tenant]]\nname = \"promised\"\nlatency_us = 20000\niops = 1000\nread_percent = 80\n\
         [[tenant]]\nname = \"by-tcp\"\n\
         [[tenant]]\nname = \"by-unix\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:{port}\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:{nvme}\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:{promised}?tenant=promised&namespace=2\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:{by_tcp}?tenant=by-tcp&namespace=3\"\n\
         [[listen]]\nurl = \"reflex+unix:{socket}?tenant=by-unix&namespace=3\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_of_all_workers_are_added() {
        let text = "HTTP/1.1 200 OK\r\n\r\n# TYPE nearflash_worker_connections_ended counter\n\
                    nearflash_worker_connections_ended_total{worker=\"0\",cause=\"stuck\"} 3\n\
                    nearflash_worker_connections_ended_total{worker=\"1\",cause=\"stuck\"} 4\n\
                    nearflash_worker_connections_ended_total{worker=\"1\",cause=\"peer\"} 0\n";
        assert_eq!(causes(text), BTreeMap::from([("stuck".to_owned(), 7)]));
    }
}
