//! Tests of devices that differ from their models, and are measured again while the server runs:
//! with the real program, its commands, and loads over sockets. That a drift is found and told
//! shows in virtual time (`crates/figures/tests/all/recalibrate.rs`,
//! `crates/server/src/recalibrate/tests.rs`).

use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use crate::support::{Launch, Operator, PATIENCE, Server, V2, now, pattern, wait_until};
use contract::Hello;
use control::admin::{Client, TenantStatus};

/// Device A at a fortieth of its speed, so that stalls of the machine are short beside its
/// latencies, and at twice the age that its model assumes.
const OLD: &str = "sim:a?slow=40&age=2&size=64MiB";

/// The time limit for a recalibration to end: four curves of at most some twenty steps each, and
/// waits for tenants.
const MEASURED_WITHIN: Duration = Duration::from_secs(240);

/// A directory for the files of one server.
struct ServerFolder {
    folder: tempfile::TempDir,
}

impl ServerFolder {
    /// Creates a directory with the configuration of the device `disk` with the keys `device`, two
    /// namespaces on it, and `rest`.
    fn new(device: &str, rest: &str) -> ServerFolder {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"{OLD}\"\n{device}\n\
             [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"32MiB\"\n\
             [[namespace]]\nname = \"scratch\"\ndevice = \"disk\"\noffset = \"32MiB\"\nsize = \"32MiB\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n{rest}"
        );
        std::fs::write(folder.path().join("nearflash.toml"), text).unwrap();
        ServerFolder { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Server {
        let config = self.path("nearflash.toml").display().to_string();
        Launch::new(&["--config", &config, "--admin", &self.admin()]).start()
    }

    /// Returns what `device show` prints, which includes the last recalibration.
    fn shown(&self) -> String {
        self.told(&["device", "show", "disk"])
    }
}

impl Operator for ServerFolder {
    fn admin(&self) -> String {
        self.path("admin.sock").display().to_string()
    }
}

/// A load of `nearflash bench`. Dropping this value ends the load.
struct Load(Child);

impl Load {
    fn start(server: &Server, words: &str) -> Load {
        let mut command = Process::new(env!("CARGO_BIN_EXE_nearflash"));
        let url = format!("reflex://{}", server.address());
        command.args(["bench", &url, "--seconds", "300", "--warmup", "0"]);
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
        Load(command.stderr(Stdio::null()).spawn().expect("the program starts"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// Number of blocks of the namespace `data`, which only its clients may change. A recalibration may
/// overwrite the namespace `scratch`, which lies behind.
const KEPT_BLOCKS: u64 = (32 << 20) / 512;

/// Writes a page of 4 KiB to every 256 KiB of the namespace `data`, and its last page. Returns the
/// whole contents of the namespace.
fn fill(client: &mut V2) -> Vec<u8> {
    let mut all = vec![0; KEPT_BLOCKS as usize * 512];
    for lba in (0..KEPT_BLOCKS).step_by(512).chain([KEPT_BLOCKS - 8]) {
        let page = pattern(lba, 8, 3);
        client.write_blocks(lba, &page, false);
        all[lba as usize * 512..][..page.len()].copy_from_slice(&page);
    }
    all
}

fn expect_kept(client: &mut V2, all: &[u8]) {
    const PIECE: usize = 128 << 10;
    for (n, piece) in all.chunks(PIECE).enumerate() {
        let found = client.read_blocks((n * PIECE / 512) as u64, (PIECE / 512) as u32);
        assert!(found == piece, "somebody wrote to the {n}-th 128 KiB of what is to be kept");
    }
}

#[test]
#[ignore = "full: measures four curves of a device in real time, which takes minutes"]
fn a_device_is_measured_in_idle_time_held_accepted_kept_and_undone() {
    let promises = "[[tenant]]\nname = \"gold\"\nlatency_us = 20000\niops = 500\n\
                    [[tenant]]\nname = \"writer\"\nlatency_us = 20000\niops = 1200\nread_percent = 40\n\
                    [[access]]\nfrom = \"anyone\"\nrights = \"read-write\"\n\
                    [[access]]\ntoken = \"g\"\ntenant = \"gold\"\nrights = \"read-write\"\n";
    let place = ServerFolder::new("recalibrate_idle_seconds = 2", promises);
    let mut server = place.start();
    let mut client = V2::hello(server.address(), Hello::default()).unwrap();
    let kept = fill(&mut client);
    let begun = now();
    let words = ["device", "recalibrate", "disk", "--when-idle", "--scratch", "scratch"];
    place.told(&words);

    // It overwrites what it was given and nothing else.
    let mut asked = 1;
    wait_until("the end of the measurement", 3 * MEASURED_WITHIN, || {
        let shown = place.shown();
        if shown.contains("without a model") {
            // Others on this machine may have disturbed it, and an operator asks again.
            asked += 1;
            assert!(asked < 7, "{shown}");
            println!("{shown}");
            place.told(&words);
            return false;
        }
        shown.contains("held back")
    });
    let shown = place.shown();
    println!("held after {:?}:\n{shown}", begun.elapsed());
    assert!(shown.contains("have to go: writer"), "{shown}");
    expect_kept(&mut client, &kept);
    let price =
        |place: &ServerFolder| place.json(&["device", "model", "disk"])["write_price"].as_f64();
    assert_eq!(price(&place), Some(10.0), "what was found is not used");
    let used = place.json(&["device", "recalibrate", "disk", "--accept"]);
    assert_eq!((&used["phase"], &used["automatic"]), (&"accepted".into(), &false.into()));
    // How right the model is shows in virtual time, which no other program on this machine disturbs
    // (`crates/figures/tests/all/recalibrate.rs`).
    let found = price(&place).unwrap();

    // It survives a crash, with a tenant that does not fit into it.
    server.kill();
    let server = place.start();
    assert_eq!(price(&place), Some(found));
    assert_eq!(place.json(&["device", "show", "disk"])["recalibrated"], true);
    assert!(place.told(&["tenant", "list"]).contains("writer"));
    place.told(&["device", "model", "disk", "--reset"]);
    assert_eq!(price(&place), Some(10.0));
    assert_eq!(place.json(&["device", "show", "disk"])["recalibrated"], false);
    drop(server);
}

#[test]
#[ignore = "full: no probe is sent while the machine is overcommitted"]
fn scratch_stays_while_a_probe_may_still_write_there() {
    let place = ServerFolder::new("", "");
    let config = std::fs::read_to_string(place.path("nearflash.toml")).unwrap();
    let slow = config.replace(OLD, &format!("{OLD}&delay=6s"));
    std::fs::write(place.path("nearflash.toml"), slow).unwrap();
    let server = place.start();
    place.told(&["device", "recalibrate", "disk", "--scratch", "scratch"]);
    let mut client = Client::new(place.admin().parse().unwrap()).unwrap();
    // What probes have been sent is at the device for long.
    wait_until("probes that are paid for", PATIENCE, || {
        let probes = |one: &TenantStatus| one.name.starts_with("(recalibration");
        let tenants = client.tenants().unwrap_or_default();
        tenants.iter().any(|one| probes(one) && one.measured.tokens > 0.0)
    });
    let said = place.refused(&["namespace", "rm", "scratch"]);
    assert!(said.contains("still at the device"), "{said}");
    let names = place.told(&["namespace", "list"]);
    assert!(names.contains("scratch"), "it is as it was: {names}");
    let goes = || place.run(&["namespace", "rm", "scratch"]).status.success();
    wait_until("the end of the probes", PATIENCE, goes);
    drop(server);
}

#[test]
#[ignore = "full: no probe is sent while the machine is overcommitted"]
fn a_measurement_gives_way_to_load_and_is_cancelled() {
    let promises = "[[tenant]]\nname = \"gold\"\nlatency_us = 20000\niops = 500\n\
                    [[access]]\nfrom = \"anyone\"\nrights = \"read-write\"\n";
    let place = ServerFolder::new("recalibrate_idle_seconds = 1", promises);
    let server = place.start();
    let recalibrate =
        |more: &[&str]| place.json(&[&["device", "recalibrate", "disk"], more].concat());
    assert_eq!(recalibrate(&["--when-idle"])["phase"], "waiting");
    assert!(place.refused(&["device", "recalibrate", "disk"]).contains("already"));
    wait_until("probes", PATIENCE, || place.shown().contains("measures"));
    let list = place.told(&["tenant", "list"]);
    assert!(list.contains("(recalibration of device 0)"), "{list}");
    let said = place.refused(&["device", "model", "disk", "--reset"]);
    assert!(said.contains("cancel"), "{said}");
    let load = Load::start(&server, "--read-percent 100 --queue-depth 64 --connections 2");
    wait_until("that it gives way", PATIENCE, || place.shown().contains("load has come"));
    let gone = || !place.told(&["tenant", "list"]).contains("(recalibration");
    wait_until("that the tenant of the probes has gone", PATIENCE, gone);
    drop(load);
    wait_until("probes again", PATIENCE, || place.shown().contains("measures"));
    place.told(&["device", "recalibrate", "disk", "--cancel"]);
    wait_until("the end", PATIENCE, || place.shown().contains("was cancelled"));
    assert!(place.refused(&["device", "recalibrate", "disk", "--cancel"]).contains("not being"));
    wait_until("that the tenant of the probes has gone", PATIENCE, gone);
}

#[test]
fn what_makes_no_sense_is_refused_and_scratch_that_goes_ends_it() {
    let rest = "[[device]]\nname = \"plain\"\nspec = \"mem:64MiB\"\n\
                [[namespace]]\nname = \"other\"\ndevice = \"plain\"\nsize = \"1MiB\"\n\
                [[namespace]]\nname = \"across\"\ndevice = \"disk\"\noffset = \"1MiB\"\nsize = \"1MiB\"\n";
    let place = ServerFolder::new("", rest);
    let server = place.start();
    let refused = |words: &[&str]| place.refused(&[&["device", "recalibrate"], words].concat());
    assert!(refused(&["nowhere"]).contains("nowhere"));
    assert!(refused(&["plain"]).contains("model"));
    assert!(refused(&["disk", "--scratch", "none"]).contains("none"));
    assert!(refused(&["disk", "--scratch", "other"]).contains("not on device"));
    assert!(refused(&["disk", "--scratch", "data"]).contains("shares blocks"));
    // What is not held back is not begun instead, with the loss of what is in a namespace.
    for words in [&["disk", "--accept"][..], &["disk", "--accept", "--scratch", "scratch"]] {
        let said = refused(words);
        assert!(said.contains("without --now or --when-idle"), "{said}");
    }
    assert!(place.refused(&["device", "recalibrate", "disk", "--cancel"]).contains("not being"));
    place.told(&["device", "recalibrate", "disk", "--scratch", "scratch"]);
    wait_until("probes", PATIENCE, || place.shown().contains("measures"));
    place.told(&["namespace", "rm", "scratch"]);
    wait_until("the end", PATIENCE, || place.shown().contains("was cancelled"));
    drop(server);
}
