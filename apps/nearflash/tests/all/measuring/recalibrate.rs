//! Tests of devices that are measured again while the server runs: with the real program, its
//! commands, and loads over sockets. No test here depends on what is measured. Virtual time shows
//! that a drift is found and told, what is measured, and what becomes of it
//! (`crates/figures/tests/all/recalibrate.rs`, `crates/server/src/recalibrate/tests.rs`,
//! `crates/server/src/recalibrate/run/tests.rs`).

use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};

use crate::support::{Launch, Operator, PATIENCE, Server, wait_until};
use control::admin::{Client, TenantStatus};
use qos::{DeviceModel, ModelFile};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Device A at a fortieth of its speed, so that stalls of the machine are short beside its
/// latencies, and at twice the age that its model assumes.
const OLD: &str = "sim:a?slow=40&age=2&size=64MiB";

/// A directory for the files of one server.
struct ServerFolder {
    folder: tempfile::TempDir,
}

impl ServerFolder {
    /// Creates a directory with the configuration of an [`OLD`] device, as [`of`](ServerFolder::of)
    /// does.
    fn new(device: &str, rest: &str) -> ServerFolder {
        ServerFolder::of(OLD, device, rest)
    }

    /// Creates a directory with the configuration of the device `disk` with the keys `device`, two
    /// namespaces on it, and `rest`.
    fn of(spec: &str, device: &str, rest: &str) -> ServerFolder {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"{spec}\"\n{device}\n\
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

    /// Writes the state file of a server that has accepted a measured model of its device, by which
    /// a write costs twice as much as on the configured device A.
    fn has_accepted(&self) {
        let digest = |text: &str| -> String {
            Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let configured = DeviceModel::device_a();
        let mut found = ModelFile::of("", "beside tenants", &configured);
        found.write *= 2;
        let over = digest(&ModelFile::of("", "", &configured).to_toml());
        let kept = json!({"models": {"disk": {"model": found.to_toml(), "over": over}}});
        let kept = kept.to_string();
        let state = format!("nearflash-state 2 generation 1 sha256 {}\n{kept}", digest(&kept));
        std::fs::write(self.path("nearflash.state"), state).unwrap();
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

/// Tests the part of an accepted model that needs the whole program. A measurement comes to one in
/// `crates/server/src/recalibrate/run/tests.rs`.
#[test]
fn an_accepted_model_survives_a_crash_until_it_is_undone() {
    let promise = "[[tenant]]\nname = \"writer\"\nlatency_us = 2000\niops = 50000\n\
                   read_percent = 20\n";
    let place = ServerFolder::of("null:64MiB", "model = \"a\"", promise);
    place.has_accepted();
    let told = || {
        let price = place.json(&["device", "model", "disk"])["write_price"].as_f64();
        (price, place.json(&["device", "show", "disk"])["recalibrated"].as_bool())
    };
    let mut server = place.start();
    assert_eq!(told(), (Some(20.0), Some(true)));
    server.kill();
    let mut server = place.start();
    assert_eq!(told(), (Some(20.0), Some(true)));
    let writer = place.json(&["tenant", "show", "writer"]);
    assert_eq!(writer["slo"]["iops"], 50_000, "it does not fit into the model, and stays");
    place.told(&["device", "model", "disk", "--reset"]);
    assert_eq!(told(), (Some(10.0), Some(false)));
    server.kill();
    let _server = place.start();
    assert_eq!(told(), (Some(10.0), Some(false)));
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
