//! Tests that a new process takes over the controllers of NVMe hosts, each with all its connections
//! or none: a verifying load notices nothing but a pause (docs/adr/0015-moving-controllers.md).

use std::process::{Child, Command as Process, Stdio};

use crate::support::{
    Launch, NvmeQueue, PATIENCE, Server, ServerFolder, each, faultless, host_nqn, verifying,
    wait_until,
};
use control::admin::{Code, HostPatch, NamespacePatch, Namespaces, Secret, SubsystemPatch};

const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:tests";

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a server with a listener of each protocol, and with `more` in the configuration of
    /// its subsystem. It is not started.
    fn launch(&self, more: &str) -> Launch;
    fn start(&self) -> Server;
    /// Starts a server that takes over from the running one (`--upgrade`).
    fn take_over(&self) -> Server;
}

impl Servers for ServerFolder {
    fn launch(&self, more: &str) -> Launch {
        let device = self.file("device");
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"{device}\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n{more}"
        );
        self.crewed(Launch::config(&text))
    }

    fn start(&self) -> Server {
        self.launch("").start()
    }

    fn take_over(&self) -> Server {
        self.launch("").with("--upgrade").start()
    }
}

/// Starts a verifying load on the server's subsystem.
fn bench(server: &Server, query: &str, words: &str) -> Child {
    let url = format!("nvme-tcp://{}/{SUBSYSTEM}{query}", server.address());
    verifying(&url, words)
}

/// Returns the number of connections that the server's log says it has taken over.
fn taken(server: &Server) -> usize {
    server.await_log("took over");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("took over")).expect("it was awaited");
    println!("{line}");
    let mut words = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    words.find_map(|word| word.parse().ok()).expect("it says how many")
}

/// Takes a running load of this many connections over twice, the admin queue's among them, and
/// checks that it notices nothing.
fn take_over_twice(query: &str, words: &str, connections: usize) {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let mut load = bench(&old, query, words);
    // One of them is the admin queue.
    let peers = place.await_peers(connections, connections - 1);
    let mut first = place.take_over();
    assert_eq!(first.address(), old.address());
    assert_eq!(taken(&first), connections, "{}", old.log());
    assert!(old.wait().success(), "the older one ends in order");
    let second = place.take_over();
    assert_eq!(taken(&second), connections, "{}", first.log());
    assert!(first.wait().success());
    let now = place.peers();
    assert!(load.try_wait().unwrap().is_none(), "it has ended by itself");
    assert_eq!(now, peers, "nobody has connected again");
    let result = faultless(load);
    for side in ["read", "write"] {
        assert!(result[side]["count"].as_u64().unwrap() > 0, "{words}: {result}");
    }
}

#[test]
fn a_verifying_load_notices_nothing_but_pauses() {
    take_over_twice("", "--connections 3 --queue-depth 8", 4);
}

#[test]
fn a_load_whose_payloads_are_asked_for_notices_nothing_but_pauses() {
    let words = "--connections 2 --queue-depth 16 --block-size 64KiB";
    take_over_twice("?in_capsule=false", words, 3);
}

#[test]
fn a_load_with_digests_notices_nothing_but_pauses() {
    take_over_twice("?digests=both", "--connections 2 --queue-depth 4 --block-size 16KiB", 3);
}

#[test]
fn a_host_keeps_its_controller_its_event_request_and_its_reservation() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let at = old.address();
    let mut admin = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    let mut io = admin.io(at, 1, SUBSYSTEM);
    io.write(1, 7, &[5; 512]).unwrap();
    io.register(1, 77, false).unwrap();
    io.acquire(1, 77).unwrap();
    let new = place.take_over();
    assert_eq!(taken(&new), 2, "{}", old.log());
    assert!(old.wait().success());
    assert_eq!(io.read(1, 7).unwrap(), [5; 512]);
    io.write(1, 7, &[6; 512]).unwrap();
    assert_eq!(admin.namespaces(), [1]);
    let mut other = NvmeQueue::admin(at, 2, SUBSYSTEM).unwrap();
    assert_ne!(other.cntlid, admin.cntlid);
    let mut other_io = other.io(at, 2, SUBSYSTEM);
    assert!(other_io.write(1, 7, &[9; 512]).is_err(), "another host holds the reservation");
    assert_eq!(io.read(1, 7).unwrap(), [6; 512]);
    assert_eq!(other.namespaces(), [1]);
}

const FRIEND: &str = "nqn.2026-11.io.nearflash:friend";

/// The key of a host, for tests only: it is published here.
const KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";

#[test]
fn a_host_that_has_proven_who_it_is_need_not_do_so_again() {
    let place = ServerFolder::in_memory();
    let more = format!("authenticate = true\n[[host]]\nnqn = \"{FRIEND}\"\nkey = \"{KEY}\"\n");
    let mut old = place.launch(&more).start();
    let mut program = Process::new(env!("CARGO_BIN_EXE_nearflash"));
    let url = format!("nvme-tcp://{}/{SUBSYSTEM}?host={FRIEND}", old.address());
    program.args(["bench", &url, "--verify", "--read-percent", "50", "--json", "--warmup", "0.1"]);
    program.args(["--seconds", "20", "--connections", "2", "--queue-depth", "8"]);
    program.env("NEARFLASH_NVME_KEY", KEY).env_remove("NEARFLASH_ADMIN");
    let load = program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    // Its admin queue and two that carry requests, on each of which it has proven who it is.
    let peers = place.await_peers(3, 2);
    let new = place.launch(&more).with("--upgrade").start();
    assert_eq!(taken(&new), 3, "{}", old.log());
    assert!(old.wait().success());
    assert_eq!(place.peers(), peers, "nobody has connected again");
    faultless(load);
    assert!(!new.log().contains("DHHC") && !old.log().contains("DHHC"));
}

/// A host with an admin queue and an I/O queue, which has written a block.
struct Disk {
    admin: NvmeQueue,
    io: NvmeQueue,
}

impl Disk {
    fn connect(server: &Server) -> Disk {
        let at = server.address();
        let admin = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
        let mut io = admin.io(at, 1, SUBSYSTEM);
        io.write(1, 7, &[5; 512]).unwrap();
        Disk { admin, io }
    }

    /// Returns `true` if both queues answer. Asserts that both do or neither does, and that the
    /// answers are right.
    fn is_alive(&mut self) -> bool {
        let sees = self.admin.blocks(1).is_ok();
        let read = self.io.read(1, 7);
        assert_eq!(read.is_ok(), sees, "both or none: {read:?}");
        read.is_ok_and(|data| {
            assert_eq!(data, [5; 512], "it was acknowledged");
            self.io.write(1, 7, &[5; 512]).unwrap();
            true
        })
    }
}

#[test]
fn the_older_goes_on_with_a_controller_that_is_its_own_if_the_newer_is_killed() {
    let cases = [
        ("predecessor:controller", true),
        ("predecessor:leaves", true),
        ("predecessor:yours", false),
        ("successor:controller", true),
    ];
    each(8, &cases, |&(at, survives)| {
        let place = ServerFolder::in_memory();
        let launch = |of: &str| place.staying_as(of, place.launch(""), at);
        let old = launch("predecessor").start();
        let mut disk = Disk::connect(&old);
        let mut new = launch("successor").with("--upgrade").begin();
        let stays = format!("stays at {at} ");
        wait_until(&stays, PATIENCE, || old.log().contains(&stays) || new.log().contains(&stays));
        new.kill();
        place.go_on();
        old.await_log("this server goes on");
        assert_eq!(disk.is_alive(), survives, "{at}: {}", old.log());
        assert!(Disk::connect(&old).is_alive(), "{at}: {}", old.log());
    });
}

#[test]
fn the_newer_goes_on_with_a_controller_that_it_was_given_if_the_older_is_killed() {
    let cases = [
        ("predecessor:controller", false),
        ("predecessor:leaves", false),
        ("predecessor:yours", true),
        ("predecessor:commit", true),
        ("predecessor:rest", true),
    ];
    each(8, &cases, |&(at, survives)| {
        let place = ServerFolder::in_memory();
        let mut old = place.staying(place.launch(""), at).start();
        let mut disk = Disk::connect(&old);
        let new = place.launch("").with("--upgrade").begin();
        old.await_log(&format!("stays at {at}"));
        old.kill();
        let new = new.await_ready();
        assert_eq!(disk.is_alive(), survives, "{at}: {}", new.log());
        assert!(Disk::connect(&new).is_alive(), "{at}: {}", new.log());
    });
}

#[test]
fn a_controller_that_the_new_configuration_does_not_have_ends_in_order() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let mut disk = Disk::connect(&old);
    let nobody = "hosts = [\"nqn.2026-11.io.nearflash:nobody\"]\n";
    let new = place.launch(nobody).with("--upgrade").start();
    assert_eq!(taken(&new), 0);
    old.await_log("a controller stays");
    assert!(old.wait().success());
    assert!(!disk.is_alive());
    assert!(NvmeQueue::admin(new.address(), 1, SUBSYSTEM).is_err(), "nobody lets it in");
}

/// Checks that a controller is asked once more if a command of it takes longer than the first time
/// that it gets to become quiet.
#[test]
fn a_controller_that_is_busy_at_first_is_asked_again() {
    let place = ServerFolder::in_memory();
    let device = format!("{}&delay=3s", place.file("device"));
    let text = format!(
        "[[device]]\nname = \"disk\"\nspec = \"{device}\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n"
    );
    let launch = || place.crewed(Launch::config(&text));
    let mut old = launch().start();
    let mut disk = Disk::connect(&old);
    let new = std::thread::scope(|scope| {
        let reading = scope.spawn(|| disk.io.read(1, 7));
        let new = launch().with("--upgrade").start();
        assert_eq!(reading.join().unwrap().unwrap(), [5; 512]);
        new
    });
    assert_eq!(taken(&new), 2, "{}", old.log());
    assert!(old.wait().success());
    assert!(disk.is_alive(), "{}", new.log());
}

/// Checks that the access of hosts does not change until the older process is at rest. Writes of a
/// host that loses its access, or to a namespace that is taken from it, may still be at that
/// process's devices.
#[test]
fn what_hosts_may_reach_does_not_change_before_the_older_is_at_rest() {
    let place = ServerFolder::in_memory();
    let hosts = format!("hosts = [\"{}\", \"{FRIEND}\"]\n", host_nqn(1));
    let mut old = place.staying(place.launch(&hosts), "predecessor:committed").start();
    let mut disk = Disk::connect(&old);
    let new = place.launch(&hosts).with("--upgrade").start();
    assert_eq!(taken(&new), 2, "{}", old.log());
    let mut client = place.client();
    let key = HostPatch { key: Some(Secret(KEY.to_owned())), ..HostPatch::default() };
    let without = SubsystemPatch { deny: vec![host_nqn(1)], ..SubsystemPatch::default() };
    let smaller = NamespacePatch { bytes: Some(8 << 20), shrink: true, ..Default::default() };
    let name = client.read::<Namespaces>().unwrap().namespaces[0].name.clone();
    let refused = [
        client.send_to(FRIEND, &key).unwrap_err(),
        client.send_to(SUBSYSTEM, &without).unwrap_err(),
        client.send_to(&name, &smaller).unwrap_err(),
    ];
    for refused in refused {
        assert_eq!(refused.code(), Some(Code::Busy), "{refused}");
        assert!(refused.to_string().contains("try again"), "{refused}");
    }
    assert_eq!(disk.io.read(1, 7).unwrap(), [5; 512], "nothing was changed");
    old.kill();
    wait_until("the older one's end to be known", PATIENCE, || {
        client.send_to(SUBSYSTEM, &without).is_ok()
    });
    assert!(!disk.is_alive(), "its host is shut out");
}
