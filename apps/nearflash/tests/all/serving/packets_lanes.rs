//! Tests of associations over several lanes: their packets are shared by the lanes, a lane that is
//! cut costs no request, and a mended one is used again.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Launch, PATIENCE, ServerFolder, faultless, wait_until};

/// Starts a verifying load of `nearflash bench`, by the words of `wrapper` if there are any. It
/// runs until its results are taken.
fn load(wrapper: &[&str], url: &str) -> Child {
    let program = [env!("CARGO_BIN_EXE_nearflash"), "bench", url];
    let words = [wrapper, &program].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--queue-depth", "8", "--connections", "8", "--json"]);
    command.args(["--seconds", "600", "--warmup", "0", "--read-percent", "50", "--verify"]);
    command.args(["--span", "1MiB"]).env("NEARFLASH_BENCH_STOP", "").stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Returns the value of a series of the server's metrics.
fn metric(place: &ServerFolder, series: &str) -> u64 {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let words = format!("nearflash_packets_{series} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&words));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {words:?}: {text}"))
}

/// Returns the packets that each of two lanes has received and sent.
fn carried(place: &ServerFolder) -> [u64; 4] {
    let ways = [("1", "received"), ("1", "sent"), ("2", "received"), ("2", "sent")];
    ways.map(|(lane, way)| {
        metric(place, &format!("of_lanes_total{{lane=\"{lane}\",direction=\"{way}\"}}"))
    })
}

fn paths(place: &ServerFolder, change: &str) -> u64 {
    metric(place, &format!("paths_total{{change=\"{change}\"}}"))
}

/// Returns a server at these lanes. It is not started.
fn serve(place: &ServerFolder, listen: &str) -> Launch {
    let words = ["--device", "mem:16MiB", "--listen", listen, "--interface", "io_uring"];
    place.crewed(Launch::new(&[&words[..], &["--insecure"]].concat()))
}

#[test]
fn requests_go_by_all_lanes_that_the_server_tells() {
    let place = ServerFolder::in_memory();
    let key = place.key_file("packet.key", "1f");
    for option in [String::new(), format!("key={key}")] {
        let listen = format!("reflex+udp://127.0.0.1:0?also=127.0.0.2:0&{option}");
        let server = serve(&place, &listen).start();
        // The client knows one address.
        let url = format!("reflex+udp://{}?{option}", server.address());
        let bench = load(&[], &url);
        let is_shared = || carried(&place).iter().all(|count| *count > 50);
        wait_until("packets of both lanes", PATIENCE, is_shared);
        faultless(bench);
        assert!(paths(&place, "proven") > 0);
    }
}

/// A lane that passes packets between clients and a server, and counts those of the clients. It can
/// be cut.
struct Relay {
    at: SocketAddr,
    is_cut: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
}

impl Relay {
    fn to(server: SocketAddr) -> Relay {
        let near = Arc::new(bind());
        let at = near.local_addr().unwrap();
        let relay = Relay { at, is_cut: Arc::default(), passed: Arc::default() };
        let (is_cut, passed) = (relay.is_cut.clone(), relay.passed.clone());
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            let mut ways = BTreeMap::<SocketAddr, Arc<UdpSocket>>::new();
            while let Ok((count, from)) = near.recv_from(&mut bytes) {
                let far = ways.entry(from).or_insert_with(|| {
                    let far = Arc::new(bind());
                    far.connect(server).unwrap();
                    return_packets(far.clone(), (near.clone(), from), is_cut.clone());
                    far
                });
                if !is_cut.load(Ordering::Relaxed) {
                    passed.fetch_add(1, Ordering::Relaxed);
                    let _ = far.send(&bytes[..count]);
                }
            }
        });
        relay
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Waits until this many further packets have passed.
    fn await_packets(&self, count: u64) {
        let before = self.passed.load(Ordering::Relaxed);
        wait_until("packets of the lane", PATIENCE, || {
            self.passed.load(Ordering::Relaxed) >= before + count
        });
    }
}

/// Returns a socket for packets that gives up after a while, so that its thread ends.
fn bind() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Starts a thread that passes the packets of a server on to a client.
fn return_packets(
    far: Arc<UdpSocket>,
    (near, client): (Arc<UdpSocket>, SocketAddr),
    is_cut: Arc<AtomicBool>,
) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count) = far.recv(&mut bytes) {
            if !is_cut.load(Ordering::Relaxed) {
                let _ = near.send_to(&bytes[..count], client);
            }
        }
    });
}

#[test]
fn a_lane_that_is_cut_costs_no_request_and_is_used_again() {
    let place = ServerFolder::in_memory();
    let server = serve(&place, "reflex+udp://127.0.0.1:0").start();
    let (other, relay) = (Relay::to(server.address()), Relay::to(server.address()));
    let url = format!("reflex+udp://{}?also={}", other.at, relay.at);
    let bench = load(&[], &url);
    relay.await_packets(200);
    let before = paths(&place, "proven");
    relay.cut(true);
    wait_until("the server leaves the path", PATIENCE, || paths(&place, "left") > 0);
    relay.cut(false);
    // A probe is due a second later.
    wait_until("the server uses the path again", PATIENCE, || paths(&place, "proven") > before);
    let used_again = relay.passed.load(Ordering::Relaxed);
    wait_until("packets of the mended lane", PATIENCE, || {
        relay.passed.load(Ordering::Relaxed) > used_again + 200
    });
    faultless(bench);
}

/// The network namespaces of a client and a server with two cables between them. Removed on drop.
struct Networks {
    client: String,
    server: String,
}

impl Networks {
    /// Creates the network namespaces; `None` if this process may not.
    fn new(name: &str) -> Option<Networks> {
        let id = std::process::id();
        let [client, server] = ["near", "far"].map(|side| format!("nearflash-{name}-{side}-{id}"));
        let networks = Networks { client, server };
        let Networks { client, server } = &networks;
        let mut lines = vec![format!("netns add {client}"), format!("netns add {server}")];
        for n in [1, 2] {
            let ends = format!("netns {client} mtu 9000 type veth peer name c{n} netns {server}");
            lines.push(format!("link add c{n} {ends} mtu 9000"));
            for (network, host) in [(client, 2), (server, 1)] {
                lines.push(format!("-n {network} address add 10.97.{n}.{host}/24 dev c{n}"));
                lines.push(format!(
                    "-n {network} link set c{n} address 02:00:00:00:0{n}:0{host} up"
                ));
            }
        }
        lines.iter().all(|line| ip(line)).then_some(networks)
    }

    /// Takes the server's card `c2` down, or up again.
    fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        assert!(ip(&format!("-n {} link set c2 {state}", self.server)));
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.client));
        ip(&format!("netns delete {}", self.server));
    }
}

/// Runs the program `ip` with the words of this line. Returns `true` if it succeeds.
fn ip(line: &str) -> bool {
    let ran = Command::new("ip").args(line.split(' ')).stdin(Stdio::null()).output();
    ran.is_ok_and(|output| output.status.success())
}

/// Starts a server and a load in two networks, takes the server's second card away and brings it
/// back, and checks that this costs no request.
fn cut_and_mend(networks: &Networks, listen: &str, url: &str) {
    let place = ServerFolder::in_memory();
    let launch = serve(&place, listen);
    let _server = launch.after(&["ip", "netns", "exec", &networks.server], "true").start();
    let wrapper = ["ip", "netns", "exec", &networks.client];
    let bench = load(&wrapper, url);
    let await_second = |more: u64| {
        let before = carried(&place)[2];
        wait_until("packets of the second card", PATIENCE, || carried(&place)[2] > before + more);
    };
    await_second(200);
    let before = paths(&place, "proven");
    networks.cut(true);
    wait_until("the server leaves the path", PATIENCE, || paths(&place, "left") > 0);
    networks.cut(false);
    wait_until("the server uses the path again", PATIENCE, || paths(&place, "proven") > before);
    await_second(200);
    faultless(bench);
}

#[test]
fn a_card_that_goes_away_costs_no_request_and_is_used_again() {
    let Some(networks) = Networks::new("udp") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    let listen = "reflex+udp://10.97.1.1:7420?also=10.97.2.1:7420";
    cut_and_mend(&networks, listen, "reflex+udp://10.97.1.1:7420");
}

#[test]
fn a_card_of_ethernet_that_goes_away_costs_no_request_and_is_used_again() {
    let Some(networks) = Networks::new("eth") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    // One client names the server's second card, and the other one its own.
    for also in ["c2/02:00:00:00:02:01", "c2"] {
        let url = format!("reflex+eth://c1/02:00:00:00:01:01?also={also}&window=4");
        cut_and_mend(&networks, "reflex+eth://c1?also=c2&window=4", &url);
    }
}
