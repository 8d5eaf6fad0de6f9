//! Tests of a server and its clients in one segment of Ethernet, without the Internet protocol: a
//! verified load, what operators see, the capabilities that the server keeps, and what is refused.

use std::process::{Child, Command, Output, Stdio};

use crate::support::{Launch, Operator, PATIENCE, Server, ServerFolder, faultless, wait_until};

/// The addresses of the cards `left` and `right`, at the ends of the cable.
const SERVER: &str = "02:00:00:00:00:01";
const CLIENT: &str = "02:00:00:00:00:02";

/// A network namespace with a cable between the cards `left` and `right`, which have no IP
/// addresses. Removed on drop. The cards lie over the ends of the cable (`macvlan`), which take the
/// tags of VLANs off.
struct Segment(String);

impl Segment {
    /// Creates the network namespace; `None` if this process may not.
    fn new(name: &str) -> Option<Segment> {
        let segment = Segment(format!("nearflash-{name}-{}", std::process::id()));
        let Segment(network) = &segment;
        let made = [
            "link add cable1 mtu 9000 type veth peer name cable2 mtu 9000".to_owned(),
            format!("link add left link cable1 address {SERVER} type macvlan"),
            format!("link add right link cable2 address {CLIENT} type macvlan"),
        ];
        let cards = ["cable1", "cable2", "left", "right"];
        let up = cards.map(|card| format!("link set {card} up"));
        let lines = made.iter().chain(&up).map(|line| format!("-n {network} {line}"));
        let mut lines = [format!("netns add {network}")].into_iter().chain(lines);
        lines.all(|line| ip(&line)).then_some(segment)
    }

    /// Returns a server with a listener at the card `left`. It is not started.
    fn serve(&self, place: &ServerFolder, options: &str, words: &[&str]) -> Launch {
        let listen = format!("reflex+eth://left?{options}");
        let admin = place.admin();
        let all = ["--device", "mem:16MiB", "--listen", &listen, "--interface", "io_uring"];
        let all = [&all[..], &["--admin", &admin], words].concat();
        Launch::new(&all).after(&["ip", "netns", "exec", &self.0], "true")
    }

    /// Runs `nearflash bench` at the card `right`, and returns its output.
    fn bench(&self, options: &str, words: &[&str]) -> Output {
        self.command(options, words).output().expect("it starts")
    }

    fn command(&self, options: &str, words: &[&str]) -> Command {
        let url = format!("reflex+eth://right/{SERVER}?{options}");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, env!("CARGO_BIN_EXE_nearflash"), "bench", &url]);
        command.args(["--warmup", "0", "--span", "1MiB"]).args(words).stdin(Stdio::null());
        command
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.0));
    }
}

/// Runs the program `ip` with the words of this line. Returns `true` if it succeeds.
fn ip(line: &str) -> bool {
    let ran = Command::new("ip").args(line.split(' ')).stdin(Stdio::null()).output();
    ran.is_ok_and(|output| output.status.success())
}

fn said(ran: &Output) -> String {
    String::from_utf8_lossy(&[&ran.stdout[..], &ran.stderr[..]].concat()).into_owned()
}

/// Returns all capability sets of all threads of a server, each as bits.
fn rights(server: &Server) -> Vec<u64> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    // A thread may end meanwhile.
    let statuses = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok());
    let sets = statuses.flat_map(|status| {
        let of = |line: &str| {
            let bits = line.strip_prefix("Cap").and_then(|line| line.split_once(":\t"));
            bits.map(|(_, bits)| u64::from_str_radix(bits, 16).expect("bits"))
        };
        status.lines().filter_map(of).collect::<Vec<_>>()
    });
    sets.collect()
}

#[test]
fn a_verified_load_goes_over_raw_ethernet_and_rights_are_gone_before_it() {
    const NET_ADMIN_RAW_AND_BPF: u64 = 1 << 12 | 1 << 13 | 1 << 39;
    let Some(segment) = Segment::new("load") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    for via in ["packet", "xdp"] {
        let place = ServerFolder::in_memory();
        let key = place.key_file("own.key", "1f");
        let options = format!("via={via}&key={key}");
        let mut server = segment.serve(&place, &options, &["--insecure"]).start();
        if via == "xdp" {
            // Its successor says that it was killed, before it opens the card.
            server.kill();
            let words = ["--insecure", "--upgrade"];
            server = segment.serve(&place, &options, &words).start();
            server.await_log("the old process was killed");
        }
        let sets = rights(&server);
        assert!(sets.len() >= 5 * 3, "{} sets", sets.len());
        assert!(sets.iter().all(|set| set & NET_ADMIN_RAW_AND_BPF == 0), "{sets:x?}");
        let words = ["--connections", "20", "--queue-depth", "8", "--read-percent", "50"];
        let words = [&words[..], &["--verify", "--seconds", "0.5"]].concat();
        let ran = segment.bench(&options, &words);
        assert!(ran.status.success(), "{via}: {}", said(&ran));
        assert!(place.metric("nearflash_packets_received_total") > 20.0);
        assert!(place.metric("nearflash_packets_sent_total") > 20.0);
        let wrong = segment.bench("via=packet", &["--seconds", "0.1"]);
        let words = "takes sealed packets alone";
        assert!(!wrong.status.success() && said(&wrong).contains(words), "{}", said(&wrong));
    }
}

#[test]
fn ethernet_without_a_key_needs_to_be_asked_for() {
    let Some(segment) = Segment::new("open") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    let place = ServerFolder::in_memory();
    let (code, error) = segment.serve(&place, "via=packet", &[]).fail();
    assert!(code != 0 && error.contains("seal them with a key"), "{error}");
    // Several workers share the frames, over packet sockets.
    let words = ["--insecure", "--workers", "2"];
    let server = segment.serve(&place, "port=7421", &words).start();
    server.await_log("frames go through a packet socket");
    let ran = segment.bench("port=7421", &["--seconds", "0.2", "--verify"]);
    assert!(ran.status.success(), "{}", said(&ran));
    // Chance gives each client a worker.
    let words = ["--seconds", "300", "--rate", "10"];
    let begin = || segment.command("port=7421&via=packet", &words).stdout(Stdio::null()).spawn();
    let mut clients: Vec<_> = (0..16).map(|_| begin().expect("it starts")).collect();
    wait_until("clients of both workers, known by their cards", PATIENCE, || {
        let all = place.client().connections().unwrap().connections;
        assert!(all.iter().all(|one| one.transport == "eth" && one.peer.contains(CLIENT)));
        [0, 1].iter().all(|worker| all.iter().any(|one| one.worker == *worker))
    });
    for client in &mut clients {
        client.kill().and_then(|()| client.wait()).expect("it is our child");
    }
}

/// Returns a server with a device that a successor takes over, not started.
fn heir(segment: &Segment, place: &ServerFolder) -> Launch {
    let device = place.file("device");
    let words = ["--device", &device, "--listen", "reflex+eth://left", "--insecure"];
    let admin = place.admin();
    let words = [&words[..], &["--interface", "io_uring", "--admin", &admin]].concat();
    Launch::new(&words).log("info").after(&["ip", "netns", "exec", &segment.0], "true")
}

/// Starts a load that goes by AF_XDP, and waits for its connections.
fn begin_load(segment: &Segment, place: &ServerFolder) -> Child {
    let words = ["--connections", "8", "--queue-depth", "8", "--read-percent", "50", "--verify"];
    let mut load = segment.command("", &[&words[..], &["--json", "--seconds", "600"]].concat());
    load.env("NEARFLASH_BENCH_STOP", "").stdin(Stdio::piped()).stdout(Stdio::piped());
    let load = load.stderr(Stdio::piped()).spawn().expect("it starts");
    place.await_peers(8, 8);
    load
}

/// Checks that clients find the successor of their server, and the server that is started after a
/// kill. The load uses AF_XDP; the successor receives by the packet socket that was passed to it,
/// and the last server has the card again.
#[test]
fn clients_in_a_segment_find_the_successor_and_the_next_after_a_kill() {
    let Some(segment) = Segment::new("heir") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    let place = ServerFolder::in_memory();
    let by_xdp = "frames pass the network stack by";
    let mut first = heir(&segment, &place).start();
    first.await_log(by_xdp);
    let load = begin_load(&segment, &place);
    let mut second = heir(&segment, &place).with("--upgrade").start();
    assert!(first.wait().success(), "the older one ends in order");
    place.await_peers(8, 8);
    assert!(!second.log().contains(by_xdp), "{}", second.log());
    second.kill();
    let third = heir(&segment, &place).start();
    third.await_log(by_xdp);
    place.await_peers(8, 8);
    faultless(load);
}

/// Neither of the two has the rights any more with which the port was opened. Whichever is killed,
/// the other one starts anew with the sockets that it has.
#[test]
fn clients_in_a_segment_find_whichever_is_left_of_two_servers() {
    let Some(segment) = Segment::new("left") else {
        return println!("SKIPPED: making networks needs root and `ip`");
    };
    for (at, is_older_killed) in [("predecessor:ready", true), ("predecessor:rest", false)] {
        let place = ServerFolder::in_memory();
        let until = place.path("go-on");
        let netns = ["ip", "netns", "exec", &segment.0];
        let stay = format!("export NEARFLASH_UPGRADE_STAY={at}:{}", until.display());
        let mut older = heir(&segment, &place).after(&netns, &stay).start();
        let load = begin_load(&segment, &place);
        let mut newer = heir(&segment, &place).with("--upgrade").begin();
        older.await_log(&format!("stays at {at} "));
        let left = if is_older_killed {
            older.kill();
            newer.await_ready()
        } else {
            newer.kill();
            place.go_on();
            older
        };
        left.await_log("starts as after a crash");
        place.await_peers(8, 8);
        faultless(load);
    }
}
