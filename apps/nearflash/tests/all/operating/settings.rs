//! Tests of settings of devices and listeners that are changed while they serve: the real program.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::{Operator, PATIENCE, Server, ServerFolder, V2, nearflash, wait_until};
use contract::{Command, Range, Status};
use control::admin::{
    ClientError, Code, DevicePatch, ListenerPatch, ListenerState, ListenerStatus,
};
use serde_json::{Value, json};

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a place with the configuration of a device with a model and of a device without.
    fn of_two_devices() -> ServerFolder;
    /// Writes the configuration, with these keys of the device that has a model.
    fn hold_disk(&self, device: &str);
    fn start(&self) -> Server;
    fn device(&self, name: &str) -> Value;
    /// Writes a device model to a file, and returns the file's path.
    fn model_file(&self) -> String;
    fn tokens(&self) -> u64;
}

impl Servers for ServerFolder {
    fn of_two_devices() -> ServerFolder {
        let place = ServerFolder::new();
        place.hold_disk("model = \"a\"\n");
        place
    }

    fn hold_disk(&self, device: &str) {
        self.write_configuration(&format!(
            "[[device]]\nname = \"disk\"\nspec = \"{}\"\n{device}\
             [[device]]\nname = \"plain\"\nspec = \"null:16MiB\"\n\
             [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"8MiB\"\n\
             [[namespace]]\nname = \"spare\"\ndevice = \"disk\"\noffset = \"8MiB\"\nsize = \"8MiB\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
            self.file("disk")
        ));
    }

    fn start(&self) -> Server {
        self.configured().start()
    }

    fn device(&self, name: &str) -> Value {
        self.json(&["device", "show", name])
    }

    fn model_file(&self) -> String {
        let model = qos::ModelFile::of("disk", "a test", &qos::DeviceModel::cloud());
        std::fs::write(self.path("model.toml"), model.to_toml()).unwrap();
        self.path("model.toml").display().to_string()
    }

    fn tokens(&self) -> u64 {
        self.device("disk")["tokens"].as_u64().unwrap()
    }
}

fn refused<T: std::fmt::Debug>(done: Result<T, ClientError>) -> (Option<Code>, String) {
    let error = done.unwrap_err();
    (error.code(), error.to_string())
}

#[test]
fn a_merge_patch_changes_what_a_put_changes_and_null_removes() {
    let place = ServerFolder::of_two_devices();
    let _server = place.start();
    let patched = |patch: &str| {
        let mut stream = UnixStream::connect(place.admin()).unwrap();
        let head = "PATCH /v1/devices/disk HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                    content-type: application/merge-patch+json\r\ncontent-length:";
        write!(stream, "{head} {}\r\n\r\n{patch}", patch.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        place.device("disk")["settings"].clone()
    };
    let settings = patched(r#"{"fail_fast": true, "recalibrate_scratch": "spare"}"#);
    let told = (&settings["fail_fast"], &settings["recalibrate_scratch"]);
    assert_eq!(told, (&json!(true), &json!("spare")));
    let settings = patched(r#"{"recalibrate_scratch": null}"#);
    let told = (&settings["fail_fast"], &settings["recalibrate_scratch"]);
    assert_eq!(told, (&json!(true), &Value::Null));
}

#[test]
fn what_a_device_does_is_changed_while_it_serves_and_stays() {
    let place = ServerFolder::of_two_devices();
    let mut server = place.start();
    let mut client = V2::connect(server.address());
    let read = Command::Read(Range::new(0, 8));
    assert_eq!(place.device("disk")["correction"], json!(null));
    let words = ["--correct-online", "true", "--fail-fast", "true", "--recalibrate", "idle"];
    let words = [&["device", "set", "disk"], &words[..]].concat();
    let scratch = ["--recalibrate-scratch", "spare", "--recalibrate-idle-seconds", "600"];
    let said = place.told(&[&words[..], &scratch].concat());
    for word in
        ["changed disk", "correct_online, fail_fast", "600 s", "overwriting namespace spare"]
    {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert_eq!(client.call(read, &[]).0, Status::Ok);
    let check = || {
        let device = place.device("disk");
        assert_eq!(device["correction"]["rate_percent"], 100.0);
        let said = &device["settings"];
        assert_eq!((&said["fail_fast"], &said["bound_depth"]), (&json!(true), &json!(false)));
        assert_eq!(
            (&said["recalibrate"], &said["recalibrate_scratch"]),
            (&json!("idle"), &json!("spare"))
        );
        assert!(place.told(&["device", "show", "disk"]).contains("correct_online, fail_fast"));
    };
    check();
    assert!(place.refused(&["namespace", "rm", "spare"]).contains("recalibrate_scratch"));
    server.kill();
    let config = place.path("nearflash.toml").display().to_string();
    let shown = place.shown();
    assert!(
        shown.contains("fail_fast = true") && shown.contains("recalibrate = \"idle\""),
        "{shown}"
    );
    assert!(nearflash(&["config", "check", &config]).status().unwrap().success());
    let mut old = place.start();
    check();
    let _new = place.configured().with("--upgrade").start();
    assert!(old.wait().success());
    check();
    place.told(&["device", "set", "disk", "--correct-online", "false", "--recalibrate", "off"]);
    place.told(&["device", "set", "disk", "--recalibrate-scratch", "none"]);
    assert_eq!(place.device("disk")["correction"], json!(null));
    place.told(&["namespace", "rm", "spare"]);
}

#[test]
fn what_cannot_be_said_of_a_device_is_refused_with_what_to_do() {
    let place = ServerFolder::of_two_devices();
    let _server = place.start();
    let mut client = place.client();
    let before = place.device("disk")["settings"].clone();
    let none = DevicePatch::default;
    let spec = DevicePatch { spec: Some("null:1GiB".to_owned()), ..none() };
    let name = DevicePatch { name: Some("other".to_owned()), ..none() };
    let model = |model: &str| DevicePatch { model: Some(model.to_owned()), ..none() };
    for (to, what) in [(spec, "the spec"), (name, "the name"), (model(""), "keeps a model")] {
        let (code, message) = refused(client.send_to("disk", &to));
        assert_eq!(code, Some(Code::Fixed), "{message}");
        assert!(message.contains(what) && message.contains("remove it and add it"), "{message}");
    }
    let (code, message) = refused(client.send_to("plain", &model("a")));
    assert_eq!(code, Some(Code::Fixed), "{message}");
    let fast = DevicePatch { fail_fast: Some(true), ..none() };
    let (code, message) = refused(client.send_to("plain", &fast));
    assert!(code == Some(Code::Invalid) && message.contains("needs a device model"), "{message}");
    assert_eq!(refused(client.send_to("gone", &fast)).0, Some(Code::NoDevice));
    assert_eq!(refused(client.send_to("disk", &model("/nowhere"))).0, Some(Code::Invalid));
    let scratch = DevicePatch { recalibrate_scratch: Some("x".to_owned()), ..none() };
    assert_eq!(refused(client.send_to("disk", &scratch)).0, Some(Code::NoNamespace));
    assert!(place.refused(&["device", "set", "disk"]).contains("nothing to change"));
    assert_eq!(place.device("disk")["settings"], before);
    // What is as it is may be named.
    let spec = before["spec"].as_str().map(str::to_owned);
    client.send_to("disk", &DevicePatch { spec, ..none() }).unwrap();
}

#[test]
fn a_model_is_exchanged_if_all_fits_that_is_promised_and_stays() {
    let place = ServerFolder::of_two_devices();
    let mut server = place.start();
    place.told(&["tenant", "add", "gold", "--latency", "500us", "--iops", "300k"]);
    let tokens = place.tokens();
    let said = place.refused(&["device", "set", "disk", "--model", "cloud"]);
    assert!(said.contains("does not fit") && said.contains("gold"), "{said}");
    assert_eq!(place.tokens(), tokens);
    place.told(&["tenant", "set", "gold", "--iops", "50k"]);
    place.told(&["device", "set", "disk", "--model", "cloud"]);
    let other = place.tokens();
    assert!(other < tokens, "{other} of {tokens}");
    assert_eq!(place.device("disk")["settings"]["model"], "cloud");
    assert_eq!(place.device("disk")["recalibrated"], false);
    server.kill();
    let mut server = place.start();
    assert_eq!(place.tokens(), other);
    place.told(&["device", "set", "disk", "--model", "a"]);
    assert_eq!(place.tokens(), tokens);
    assert!(server.runs());
}

#[test]
fn a_model_that_was_named_is_as_it_was_read_when_its_file_is_gone() {
    let place = ServerFolder::of_two_devices();
    let mut server = place.start();
    let named = place.model_file();
    place.told(&["device", "set", "disk", "--model", &named]);
    place.told(&["device", "add", "more", "null:16MiB", "--model", &named]);
    let tokens = || ["disk", "more"].map(|name| place.device(name)["tokens"].clone());
    let before = tokens();
    server.kill();
    std::fs::remove_file(&named).unwrap();
    let server = place.start();
    server.await_log("the model as it was last read");
    assert_eq!(tokens(), before);
    let said = place.refused(&["device", "set", "disk", "--model", &named]);
    assert!(said.contains("No such file"), "{said}");
}

/// Checks that the model that a device had is kept when both the configuration's name of it and its
/// file are gone: a change of another setting has stored the model, too.
#[test]
fn a_model_that_only_the_file_named_is_as_it_was_read_when_both_are_gone() {
    let place = ServerFolder::of_two_devices();
    let named = place.model_file();
    place.hold_disk(&format!("model = \"{named}\"\n"));
    let mut server = place.start();
    let before = place.tokens();
    place.told(&["device", "set", "disk", "--fail-fast", "true"]);
    server.kill();
    place.hold_disk("model = \"a\"\n");
    std::fs::remove_file(&named).unwrap();
    let server = place.start();
    server.await_log("the model as it was last read");
    assert_eq!(place.tokens(), before);
}

#[test]
fn a_reload_says_other_things_of_a_device_that_no_operator_has_changed() {
    let place = ServerFolder::of_two_devices();
    let server = place.start();
    let corrects = || place.device("disk")["correction"] != json!(null);
    place.hold_disk("model = \"a\"\ncorrect_online = true\n");
    server.hang_up();
    wait_until("the reload", PATIENCE, corrects);
    place.hold_disk("model = \"cloud\"\ncorrect_online = true\n");
    server.hang_up();
    server.await_log("(device \"disk\" would be another)");
    place.hold_disk("model = \"a\"\nrecalibrate_scratch = \"nothing\"\n");
    server.hang_up();
    server.await_log("there is no namespace \"nothing\"");
    assert!(corrects(), "all of it or none");
    place.told(&["device", "set", "disk", "--bound-depth", "true"]);
    place.hold_disk("model = \"a\"\n");
    server.hang_up();
    server.await_log("the configuration is reloaded\n");
    assert!(corrects(), "the operator's word holds");
}

#[test]
fn a_listener_is_drained_and_opened_by_its_state_and_keeps_its_address() {
    let place = ServerFolder::of_two_devices();
    let server = place.start();
    let mut client = place.client();
    let url = client.get::<ListenerStatus>("1").unwrap().url;
    let to = |state| ListenerPatch { state: Some(state), ..ListenerPatch::default() };
    let drained = client.send_to("1", &to(ListenerState::Draining)).unwrap();
    assert_ne!(drained.state, ListenerState::Open);
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)), "nobody is let in");
    let same =
        ListenerPatch { number: Some(1), url: Some(url.clone()), ..ListenerPatch::default() };
    client.send_to("1", &same).unwrap();
    let opened = client.send_to(&url, &to(ListenerState::Open)).unwrap();
    assert_eq!(opened.state, ListenerState::Open);
    let read = Command::Read(Range::new(0, 8));
    assert_eq!(V2::connect(server.address()).call(read, &[]).0, Status::Ok);
    let moved =
        ListenerPatch { url: Some(format!("{url}?namespace=2")), ..ListenerPatch::default() };
    let other = ListenerPatch { number: Some(7), ..ListenerPatch::default() };
    for to in [moved, other] {
        let (code, message) = refused(client.send_to("1", &to));
        assert!(code == Some(Code::Fixed) && message.contains("listener add"), "{message}");
    }
    assert_eq!(refused(client.send_to("9", &same)).0, Some(Code::NoListener));
}
