//! Tests of packets over a network path with a smaller MTU than its ends: packets are not
//! fragmented, the path's MTU is found, and no request fails.

use std::process::{Command, Output, Stdio};

use crate::support::{Launch, PATIENCE, wait_until};

/// The network namespaces of a client, of a server, and of a router between them. Removed on drop.
struct Networks {
    client: String,
    router: String,
    server: String,
}

impl Networks {
    /// Creates the network namespaces, with an MTU of 1500 bytes; `None` if this process may not.
    fn new() -> Option<Networks> {
        let name = |side: &str| format!("nearflash-{side}-{}", std::process::id());
        let [client, router, server] = ["client", "router", "server"].map(name);
        let networks = Networks { client, router, server };
        let Networks { client, router, server } = &networks;
        let lines = [
            format!("netns add {client}"),
            format!("netns add {router}"),
            format!("netns add {server}"),
            format!("link add out netns {client} type veth peer name to-client netns {router}"),
            format!("link add out netns {server} type veth peer name to-server netns {router}"),
            format!("-n {client} address add 10.98.1.2/24 dev out"),
            format!("-n {router} address add 10.98.1.1/24 dev to-client"),
            format!("-n {router} address add 10.98.2.1/24 dev to-server"),
            format!("-n {server} address add 10.98.2.2/24 dev out"),
            format!("-n {client} link set out up"),
            format!("-n {router} link set to-client up"),
            format!("-n {router} link set to-server up"),
            format!("-n {server} link set out up"),
            format!("-n {client} route add default via 10.98.1.1"),
            format!("-n {server} route add default via 10.98.2.1"),
        ];
        let routes = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let is_made = lines.iter().all(|line| ip(&line.split(' ').collect::<Vec<_>>()))
            && ip(&["netns", "exec", router, "sh", "-c", routes]);
        is_made.then_some(networks)
    }

    /// Lets the router drop packets larger than `bytes` on the way to the server.
    fn narrow(&self, bytes: u32) {
        let line = format!("-n {} link set to-server mtu {bytes}", self.router);
        assert!(ip(&line.split(' ').collect::<Vec<_>>()), "{line}");
    }

    /// Starts `nearflash bench` in the client's network namespace.
    fn bench(&self, url: &str, seconds: &str) -> std::process::Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.client, env!("CARGO_BIN_EXE_nearflash")]);
        command.args(["bench", url, "--queue-depth", "8", "--connections", "4"]);
        command.args(["--seconds", seconds, "--warmup", "0", "--read-percent", "50", "--verify"]);
        command.args(["--span", "1MiB"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in [&self.client, &self.router, &self.server] {
            ip(&["netns", "delete", name]);
        }
    }
}

/// Runs the program `ip`. Returns `true` if it succeeds.
fn ip(words: &[&str]) -> bool {
    let ran = Command::new("ip").args(words).stdin(Stdio::null()).output();
    ran.is_ok_and(|output| output.status.success())
}

/// Returns a counter of a network namespace, by its group and name in `/proc/net/snmp`.
fn counted(network: &str, group: &str, name: &str) -> u64 {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", network, "cat", "/proc/net/snmp"]);
    let text = String::from_utf8(command.output().expect("it starts").stdout).expect("text");
    let mut lines = text.lines().filter(|line| line.split(':').next() == Some(group));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("a pair of lines"));
    let found = names.split(' ').zip(values.split(' ')).find(|(found, _)| *found == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
}

fn assert_good(ran: &Output) {
    let said = [&ran.stdout[..], &ran.stderr[..]].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_path_for_smaller_packets_is_found_without_fragments_and_without_errors() {
    let Some(networks) = Networks::new() else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    let words = ["--device", "mem:16MiB", "--listen", "reflex+udp://10.98.2.2:7420"];
    let launch = Launch::new(&[&words[..], &["--interface", "io_uring", "--insecure"]].concat());
    let server = launch.after(&["ip", "netns", "exec", &networks.server], "true").start();
    let url = format!("reflex+udp://{}", server.address());
    // The path becomes narrow under a load, if the load has lasted until then.
    let mut load = networks.bench(&url, "1.5");
    wait_until("packets of the load", PATIENCE, || {
        let has_ended = load.try_wait().expect("it is our child").is_some();
        has_ended || counted(&networks.server, "Udp", "InDatagrams") > 100
    });
    networks.narrow(1300);
    assert_good(&load.wait_with_output().expect("it ends"));
    // Another client begins with packets that the path does not carry: its kernel has forgotten what
    // the router said.
    assert!(ip(&["-n", &networks.client, "route", "flush", "cache"]));
    let dropped = counted(&networks.router, "Ip", "FragFails");
    assert_good(&networks.bench(&url, "0.5").wait_with_output().expect("it ends"));
    assert!(counted(&networks.router, "Ip", "FragFails") > dropped, "there was nothing to find");
    for network in [&networks.client, &networks.router, &networks.server] {
        for name in ["FragCreates", "ReasmReqds"] {
            assert_eq!(counted(network, "Ip", name), 0, "{name} in {network}");
        }
    }
}
