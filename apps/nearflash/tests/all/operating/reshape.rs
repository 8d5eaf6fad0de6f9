//! Tests of namespaces of the real program that are made read-only, made writable and renamed while
//! hosts and clients use them.

use crate::support::{
    Answer, NvmeQueue, Operator, PATIENCE, SUBSYSTEM, Server, ServerFolder, V2, wait_until, words,
};
use contract::{Command, Hello, Range, Status};
use control::admin::NamespacePatch;
use serde_json::Value;
use wire::nvme::{Event, LogPage, Status as NvmeStatus};

const MIB: u64 = 1 << 20;
const WRITE: Command = Command::Write { range: Range::new(0, 1), fua: false };
const READ: Command = Command::Read(Range::new(0, 1));

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a place with the configuration of a namespace `data` of 16 MiB on a device of this
    /// spec, and of a listener of each protocol.
    fn of(device: &str) -> ServerFolder;
    fn of_file() -> ServerFolder;
    /// Writes the configuration, with these keys of the device and of the namespace `data`.
    fn hold_data(&self, device: &str, namespace: &str);
    fn start(&self) -> Server;
    fn namespace(&self, name: &str) -> Value;
}

impl Servers for ServerFolder {
    fn of(device: &str) -> ServerFolder {
        let place = ServerFolder::new();
        place.hold_data(device, "");
        place
    }

    fn of_file() -> ServerFolder {
        let place = ServerFolder::new();
        place.hold_data(&place.file("disk"), "");
        place
    }

    fn hold_data(&self, device: &str, namespace: &str) {
        self.write_configuration(&format!(
            "[admin]\naudit = \"{}\"\n[[device]]\nname = \"disk\"\nspec = \"{device}\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"16MiB\"\n{namespace}\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\nnamespaces = [\"data\"]\n",
            self.path("audit.log").display(),
        ));
    }

    fn start(&self) -> Server {
        self.configured().start()
    }

    fn namespace(&self, name: &str) -> Value {
        self.json(&["namespace", "show", name])
    }
}

#[test]
fn a_namespace_that_is_closed_to_writes_is_so_for_hosts_and_clients_at_once() {
    let place = ServerFolder::of_file();
    let server = place.start();
    let at = server.listener(0);
    let mut host = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    let mut io = host.io(at, 1, SUBSYSTEM);
    let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
    io.write(1, 0, &[7; 512]).unwrap();
    for closed in [true, false] {
        let said = place.told(&["namespace", "set", "data", "--read-only", &closed.to_string()]);
        let access = if closed { "read" } else { "read, write" };
        assert_eq!(said, format!("changed data: {access}\n"));
        assert_eq!(host.event(), Event::NAMESPACE);
        assert_eq!(words(&host.log(LogPage::CHANGED_NAMESPACES, 4096)), [1]);
        assert_eq!(host.is_protected(1), closed);
        assert_eq!(place.namespace("data")["read_only"], closed);
        assert_eq!(client.info(1).unwrap().rights.write, !closed);
        let refused = |ok: bool| if ok { Ok(()) } else { Err(NvmeStatus::WRITE_PROTECTED.dnr()) };
        assert_eq!(io.write(1, 0, &[8; 512]), refused(!closed));
        let status = if closed { Status::ReadOnly } else { Status::Ok };
        assert_eq!(client.call(WRITE, &[8; 512]).0, status);
        let held = if closed { 7 } else { 8 };
        assert_eq!(io.read(1, 0), Ok(vec![held; 512]));
        assert_eq!(client.call(READ, &[]), (Status::Ok, vec![held; 512]));
    }
    assert!(place.refused(&["namespace", "set", "data"]).contains("nothing to change"));
}

/// Checks that writes in flight are carried out before the answer that a namespace is read-only. A
/// namespace is made read-only to copy it, and the copy must contain every acknowledged write.
#[test]
fn a_write_that_a_device_has_is_carried_out_before_the_change_is_answered() {
    let place = ServerFolder::of("mem:16MiB?delay=8s");
    let server = place.start();
    let mut writer = V2::hello(server.listener(1), Hello::default()).unwrap();
    let in_flight = || {
        let all = place.json(&["conn", "list"])["connections"].take();
        all.as_array().unwrap().iter().map(|one| one["in_flight"].as_u64().unwrap()).sum::<u64>()
    };
    writer.send(1, WRITE, &[5; 512]);
    wait_until("the write at the device", PATIENCE, || in_flight() == 1);
    place.told(&["namespace", "set", "data", "--read-only", "true"]);
    assert_eq!(in_flight(), 0);
    match writer.answer() {
        Answer::Done { tag: 1, status: Status::Ok, .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(writer.call(WRITE, &[6; 512]).0, Status::ReadOnly);
    assert_eq!(writer.call(READ, &[]), (Status::Ok, vec![5; 512]));
}

#[test]
fn a_renamed_namespace_is_the_same_one_to_hosts_and_after_a_restart() {
    let place = ServerFolder::of_file();
    let mut server = place.start();
    place.told(&["namespace", "add", "logs", "1MiB"]);
    let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    let uuid = host.uuid(1);
    for (name, why) in [("logs", "already"), ("12", "digits alone"), ("a b", "letters")] {
        let said = place.refused(&["namespace", "set", "data", "--name", name]);
        assert!(said.contains(why), "{name}: {said}");
    }
    let said = place.told(&["namespace", "set", "data", "--name", "gold", "--read-only", "true"]);
    assert_eq!(said, "changed gold: read\n");
    assert!(place.refused(&["namespace", "show", "data"]).contains("there is no namespace"));
    // Its old name is free.
    place.told(&["namespace", "set", "logs", "--name", "data"]);
    let check = |server: &Server| {
        let gold = place.namespace("gold");
        assert_eq!((&gold["number"], &gold["read_only"]), (&1.into(), &true.into()));
        assert_eq!(gold["subsystems"][0]["subsystem"], SUBSYSTEM);
        assert_eq!(place.namespace("data")["bytes"], MIB);
        let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
        assert_eq!((host.namespaces(), host.uuid(1)), (vec![1], uuid.clone()));
        assert!(host.is_protected(1));
    };
    check(&server);
    server.kill();
    let shown = place.shown();
    assert!(shown.contains("name = \"gold\"") && shown.contains("read_only = true"), "{shown}");
    check(&place.start());
    let audit = std::fs::read_to_string(place.path("audit.log")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let renamed = lines.iter().find(|line| line["after"]["name"] == "gold").unwrap();
    assert_eq!(
        (&renamed["path"], &renamed["outcome"]),
        (&"/v1/namespaces/data".into(), &"done".into())
    );
    assert_eq!(
        (&renamed["before"]["name"], &renamed["before"]["read_only"]),
        (&"data".into(), &false.into())
    );
}

#[test]
fn size_and_access_change_in_one_go() {
    let place = ServerFolder::of_file();
    let server = place.start();
    let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    let mut client = place.client();
    let to = |mib: u64, read_only| NamespacePatch {
        bytes: Some(mib * MIB),
        shrink: true,
        read_only: Some(read_only),
        ..NamespacePatch::default()
    };
    for (mib, closed) in [(32, true), (24, false), (8, true), (16, false)] {
        let made = client.send_to("data", &to(mib, closed)).unwrap();
        assert_eq!((made.bytes, made.read_only), (mib * MIB, closed));
        assert_eq!((host.blocks(1), host.is_protected(1)), (Ok(mib * MIB / 512), closed));
    }
}

#[test]
fn a_reload_closes_and_opens_a_namespace_that_no_operator_has_changed() {
    let place = ServerFolder::of_file();
    let server = place.start();
    let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
    assert_eq!(client.call(WRITE, &[1; 512]).0, Status::Ok);
    for closed in [true, false] {
        place.hold_data(&place.file("disk"), &format!("read_only = {closed}"));
        server.hang_up();
        wait_until("the reload", PATIENCE, || place.namespace("data")["read_only"] == closed);
        let status = if closed { Status::ReadOnly } else { Status::Ok };
        assert_eq!(client.call(WRITE, &[1; 512]).0, status);
    }
    place.told(&["namespace", "set", "data", "--read-only", "true"]);
    server.hang_up();
    server.await_log("the configuration is reloaded");
    assert_eq!(client.call(WRITE, &[1; 512]).0, Status::ReadOnly, "the operator's word holds");
}

#[test]
fn who_takes_over_keeps_what_was_changed() {
    let place = ServerFolder::of_file();
    let mut old = place.start();
    let mut client = V2::hello(old.listener(1), Hello::default()).unwrap();
    let mut host = NvmeQueue::admin(old.listener(0), 1, SUBSYSTEM).unwrap();
    assert_eq!(client.call(WRITE, &[3; 512]).0, Status::Ok);
    place.told(&["namespace", "set", "1", "--name", "gold", "--read-only", "true"]);
    let _new = place.configured().with("--upgrade").start();
    assert!(old.wait().success());
    assert_eq!(client.call(WRITE, &[4; 512]).0, Status::ReadOnly);
    assert_eq!(client.call(READ, &[]), (Status::Ok, vec![3; 512]));
    assert!(host.is_protected(1));
    place.told(&["namespace", "set", "gold", "--read-only", "false"]);
    assert_eq!(client.call(WRITE, &[4; 512]).0, Status::Ok);
    assert!(!host.is_protected(1));
}

#[test]
fn a_namespace_that_a_device_names_as_scratch_keeps_its_name() {
    let place = ServerFolder::of("mem:16MiB\"\nmodel = \"a\"\nrecalibrate_scratch = \"data");
    let _server = place.start();
    let said = place.refused(&["namespace", "set", "data", "--name", "gold"]);
    assert!(said.contains("recalibrate_scratch"), "{said}");
}
