//! Tests that an `ftl:` device is taken over: a verifying load notices nothing but pauses, the
//! volume is not opened again, and either process may be killed at any step
//! (docs/adr/0055-hand-over-of-volumes.md).

use std::process::Child;

use crate::support::{
    Launch, PATIENCE, SUBSYSTEM, Server, ServerFolder, StartingServer, each, nearflash, result,
    verifying, wait_until,
};
use serde_json::Value;

/// Options of the loads. Requests that come while the volume is handed over are in flight when a
/// process is killed.
const REFLEX: &str = "--connections 4 --queue-depth 8";
const NVME: &str = "--connections 3 --queue-depth 8";

trait Servers {
    /// Makes a volume on a file of this place.
    fn create(&self);
    fn spec(&self) -> String;
    /// Runs a command of `nearflash ftl` on the volume, which no server serves.
    fn ftl(&self, command: &str, options: &str) -> String;
    fn launch(&self) -> Launch;
}

impl Servers for ServerFolder {
    fn create(&self) {
        self.ftl("create", "?size=64MiB&ftl.segment=256KiB");
    }

    fn spec(&self) -> String {
        format!("ftl:file:{}", self.path("flash").display())
    }

    fn ftl(&self, command: &str, options: &str) -> String {
        let spec = format!("{}{options}", self.spec());
        let ran = nearflash(&["ftl", command, &spec]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    fn launch(&self) -> Launch {
        let text = format!(
            "[[device]]\nname = \"flash\"\nspec = \"{}\"\n\
             [[namespace]]\nnumber = 1\ndevice = \"flash\"\nsize = \"20MiB\"\n\
             [[namespace]]\nnumber = 2\ndevice = \"flash\"\noffset = \"20MiB\"\nsize = \"20MiB\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n",
            self.spec()
        );
        self.crewed(Launch::config(&text))
    }
}

/// Starts a load of each protocol, and waits until the connections of both are open.
fn load(place: &ServerFolder, server: &Server, rate: &str) -> (Vec<Child>, Vec<String>) {
    let nvme = format!("nvme-tcp://{}/{SUBSYSTEM}?nsid=1", server.listener(1));
    let reflex = format!("reflex://{}", server.address());
    let reflex = verifying(&reflex, &format!("--namespace 2 {REFLEX} {rate}"));
    let loads = vec![reflex, verifying(&nvme, &format!("{NVME} {rate}"))];
    (loads, place.await_peers(4 + 4, 4 + 3))
}

#[test]
fn a_verifying_load_on_a_volume_notices_nothing() {
    let place = ServerFolder::in_memory().of_workers("1");
    place.create();
    let mut old = place.launch().start();
    let (loads, peers) = load(&place, &old, "");
    for _ in 0..3 {
        let new = place.launch().with("--upgrade").start();
        new.await_log("took over");
        assert!(old.wait().success(), "the older one ends in order");
        assert_eq!(place.peers(), peers, "nobody has connected again");
        old = new;
    }
    for load in loads {
        let result = result(load);
        assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
        assert!(result["write"]["count"].as_u64().unwrap() > 0, "{result}");
    }
    old.terminate();
    assert!(old.wait().success());
    let said = place.ftl("show", "");
    assert!(said.contains("stopped: in order"), "{said}");
    assert!(said.contains("openings: 1\n"), "it was never read again: {said}");
    let said = place.ftl("check", "");
    assert!(said.contains("pages damaged: 0"), "{said}");
}

/// Takes a server over, and kills the older or the newer process while one waits at step `at`. The
/// other one serves, and has all that was acknowledged.
fn kill(at: &str, kills_newer: bool) {
    let place = ServerFolder::in_memory().of_workers("1");
    place.create();
    let mut old = place.staying_as("predecessor", place.launch(), at).start();
    let (loads, _) = load(&place, &old, "--rate 400");
    let new = place.launch().with("--upgrade");
    let mut new: StartingServer = place.staying_as("successor", new, at).begin();
    let stays = format!("stays at {at} ");
    wait_until(&stays, PATIENCE, || old.log().contains(&stays) || new.log().contains(&stays));
    if kills_newer {
        new.kill();
        place.go_on();
        old.await_log("this server goes on");
    } else {
        old.kill();
        place.go_on();
        old = new.await_ready();
    }
    wait_until("the connections", PATIENCE, || place.peers().len() == 8);
    for (mut load, unknown) in loads.into_iter().zip([0, 3 * 8]) {
        assert!(load.try_wait().unwrap().is_none(), "{at}: the load has ended by itself");
        let output = load.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!(result["verify_failures"], 0, "{at}: {result}");
        assert!(result["errors"].as_u64().unwrap() <= unknown, "{at}: {result}");
    }
    old.terminate();
    assert!(old.wait().success());
    let said = place.ftl("check", "");
    assert!(said.contains("pages damaged: 0"), "{at}: {said}");
}

#[test]
fn a_volume_is_served_if_the_newer_process_is_killed() {
    const STEPS: [&str; 7] = [
        "predecessor:prepare",
        "predecessor:volumes",
        "predecessor:still",
        "predecessor:yours",
        "predecessor:given",
        "successor:still",
        "successor:commit",
    ];
    each(4, &STEPS, |at| kill(at, true));
}

#[test]
fn a_volume_is_served_if_the_older_process_is_killed() {
    const STEPS: [&str; 6] = [
        "predecessor:still",
        "predecessor:yours",
        "predecessor:given",
        "predecessor:commit",
        "predecessor:committed",
        "successor:still",
    ];
    each(4, &STEPS, |at| kill(at, false));
}
