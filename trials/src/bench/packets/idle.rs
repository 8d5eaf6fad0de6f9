//! The row of idle connections over packets: the processor time that they take from the server, and
//! the memory that each of them holds there.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{Cable, Shape};
use super::judge::{Bound, ComparedSide, Comparison, verdict};
use super::transport::Transport;
use super::watch::ran;
use crate::bench::process::{STOP, Server, private_bytes};

const CONNECTIONS: usize = 5000;

/// The most that idle connections may take: a share of a core, and bytes for each of them.
const CORE_MAX: f64 = 0.005;
const BYTES_MAX: f64 = 1024.0;

/// The transports of the idle connections.
const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::XdpFixed];

/// The time limit for all connections to open.
const OPEN_MAX: Duration = Duration::from_secs(20);

/// The server's share of a core below which all connections have been opened, and the time for
/// which it is looked at.
const QUIET_CORE: f64 = 0.05;
const LOOK: Duration = Duration::from_millis(500);

/// The time for which idle connections are looked at, at least.
const IDLE_MIN: Duration = Duration::from_secs(2);

/// Measures the idle connections over each transport.
pub(super) fn measure(bed: &mut Cable) -> Vec<Comparison> {
    let mut cores = TRANSPORTS.map(|transport| ComparedSide::new(transport.to_string()));
    let mut bytes = TRANSPORTS.map(|transport| ComparedSide::new(transport.to_string()));
    for _ in 0..bed.rounds {
        for (nth, transport) in TRANSPORTS.into_iter().enumerate() {
            let idle = once(bed, transport);
            // An idle server and an idle client lose nothing to other work.
            cores[nth].add(idle.clone().map(|idle| (100.0 * idle.core, 0.0)));
            bytes[nth].add(idle.map(|idle| (idle.bytes, 0.0)));
        }
    }
    let core = ("% of a core", Bound::AtMost(100.0 * CORE_MAX));
    let byte = ("bytes of memory a connection", Bound::AtMost(BYTES_MAX));
    [(cores, core), (bytes, byte)]
        .map(|(sides, (unit, bound))| {
            let judged = sides.iter().map(|side| {
                let result = side.median().map_or(String::new(), |value| format!("{value:.2}"));
                verdict(format!("{}, {unit}", side.name), bound, side.median(), result, &[side])
            });
            let judged = judged.collect();
            let about = format!("{CONNECTIONS} idle connections of one client");
            Comparison { name: "idle", about, unit, sides: sides.into(), judged }
        })
        .into()
}

/// The share of a server that idle connections take.
#[derive(Clone, Debug)]
struct IdleShare {
    /// The processor time of the whole server, as a share of a core.
    core: f64,
    /// Bytes of private resident memory for each connection.
    bytes: f64,
}

fn once(bed: &mut Cable, transport: Transport) -> Result<IdleShare, String> {
    let port = bed.port();
    let server = bed.serve(&[transport.server_url(&bed.places, port)])?;
    let url = transport.client_url(&bed.places, port);
    // One connection comes and goes first, so that the pools' first pages count for none.
    Client::start(bed, &url, 1)?.end()?;
    settle(&server)?;
    let memory = || private_bytes(server.id()).ok_or("the server is gone".to_owned());
    let before = memory()?;
    let client = Client::start(bed, &url, CONNECTIONS)?;
    settle(&server)?;
    let (began, earlier) = (Instant::now(), ran(server.id()));
    std::thread::sleep(IDLE_MIN.max(Duration::from_secs_f64(bed.seconds)));
    let core =
        ran(server.id()).saturating_sub(earlier).as_secs_f64() / began.elapsed().as_secs_f64();
    let bytes = memory()?.saturating_sub(before) as f64 / CONNECTIONS as f64;
    client.end()?;
    Ok(IdleShare { core, bytes })
}

/// Waits until the server has little to do for half a second, after it had something to do.
fn settle(server: &Server) -> Result<(), String> {
    let began = Instant::now();
    let mut before = ran(server.id());
    // A client needs a moment to start.
    std::thread::sleep(LOOK);
    while began.elapsed() < OPEN_MAX {
        std::thread::sleep(LOOK);
        let now = ran(server.id());
        if now.saturating_sub(before).as_secs_f64() < QUIET_CORE * LOOK.as_secs_f64() {
            return Ok(());
        }
        before = now;
    }
    Err(format!("the server is busy after {} s", OPEN_MAX.as_secs()))
}

/// A client whose connections are idle, but for one request a second over all of them. It is killed
/// on drop.
struct Client(Option<Child>);

impl Client {
    fn start(bed: &mut Cable, url: &str, connections: usize) -> Result<Client, String> {
        let shape = Shape { block_size: 512, connections, queue_depth: 1 };
        let mut command: Command = bed.calm_load(url, shape);
        command.args(["--rate", "1", "--seconds", "600"]).env(STOP, "");
        bed.remember(&command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.spawn().map_err(|error| format!("the client: {error}"))?;
        Ok(Client(Some(spawned)))
    }

    /// Ends the client. Fails if one of its connections was never open, or was lost.
    fn end(mut self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the client: {error}");
        let child = self.0.as_mut().expect("it runs");
        // A load ends with its standard input, once all its connections were open.
        drop(child.stdin.take());
        let began = Instant::now();
        while child.try_wait().map_err(failed)?.is_none() {
            if began.elapsed() > OPEN_MAX {
                return Err(format!("the client does not end within {} s", OPEN_MAX.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = self.0.take().expect("it has ended");
        let output = ended.wait_with_output().map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || said.contains("dialling again") {
            return Err(format!("the client: {} {}", output.status, said.trim()));
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both calls fail only if the process has ended by itself.
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}
