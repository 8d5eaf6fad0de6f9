//! Tests of devices that are added and removed while the server runs: the real program, clients and
//! hosts over real sockets, and the commands of an operator.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{
    Launch, NvmeQueue, Operator, PATIENCE, SLOW_MODEL, Server, ServerFolder, V2, pattern,
    wait_until,
};
use contract::{Command, Hello, Range, Status};
use wire::nvme::Event;

const READ: Command = Command::Read(Range::new(64, 8));
const SUBSYSTEM: &str = "nqn.2026-11.org.example:disks";

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a place with the configuration of a device in a file, of listeners for clients and
    /// for hosts, and with `rest`.
    fn with(rest: &str) -> ServerFolder;
    fn configure(&self, spec: &str, rest: &str);
    fn launch(&self) -> Launch;
    fn start(&self) -> Server;
    fn devices(&self) -> Vec<String>;
}

impl Servers for ServerFolder {
    fn with(rest: &str) -> ServerFolder {
        let place = ServerFolder::new();
        place.configure(&place.file("first"), rest);
        place
    }

    fn configure(&self, spec: &str, rest: &str) {
        self.write_configuration(&format!(
            "[[device]]\nname = \"first\"\nspec = \"{spec}\"\n\
             [[namespace]]\nname = \"ns1\"\ndevice = \"first\"\nsize = \"8MiB\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n{rest}"
        ));
    }

    fn launch(&self) -> Launch {
        // Of the workers all but the first rest.
        self.configured().with("--workers").with("1..3")
    }

    fn start(&self) -> Server {
        self.launch().start()
    }

    fn devices(&self) -> Vec<String> {
        let all = self.json(&["device", "list"]);
        let each = all["devices"].as_array().unwrap().iter();
        each.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Reads eight blocks of a namespace over a new connection. Returns the status and the data.
fn read(server: &Server, namespace: u16) -> (Status, Vec<u8>) {
    V2::connect(server.address()).call_in(namespace, READ, &[])
}

fn write(server: &Server, namespace: u16, version: u8) {
    let mut client = V2::connect(server.address());
    let write = Command::Write { range: Range::new(64, 8), fua: true };
    assert_eq!(client.call_in(namespace, write, &pattern(64, 8, version)).0, Status::Ok);
}

#[test]
fn a_disk_is_added_without_a_restart_and_is_there_again() {
    let place = ServerFolder::with("");
    let mut server = place.start();
    let mut before = V2::connect(server.address());
    let mut host = NvmeQueue::admin(server.listener(1), 1, SUBSYSTEM).unwrap();
    let told = place.told(&["device", "add", "second", &place.file("second")]);
    assert_eq!(told, "added second, 16 MiB, without a model\n");
    assert_eq!(place.devices(), ["first", "second"]);
    let told = place.told(&["namespace", "add", "logs", "4MiB", "--device", "second"]);
    assert_eq!(told, "added logs as number 2, 4 MiB on second\n");
    assert_eq!(host.event(), Event::NAMESPACE);
    // By a connection that was there before, by a host, and by workers that rested.
    let put = Command::Write { range: Range::new(64, 8), fua: true };
    assert_eq!(before.call_in(2, put, &pattern(64, 8, 3)).0, Status::Ok);
    let mut io = host.io(server.listener(1), 1, SUBSYSTEM);
    assert_eq!(io.read(2, 65).unwrap(), pattern(65, 1, 3));
    for _ in 0..2 {
        place.told(&["worker", "add"]);
    }
    let mut clients: Vec<V2> = (0..6).map(|_| V2::connect(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.call_in(2, READ, &[]), (Status::Ok, pattern(64, 8, 3)));
    }
    let workers = place.json(&["worker", "list"]);
    let spread = workers["workers"].as_array().unwrap().iter();
    assert!(spread.filter(|one| one["connections"] != 0).count() == 3, "{workers}");
    assert_eq!(before.call(READ, &[]).0, Status::Ok, "the first device is as it was");
    assert_eq!(std::fs::metadata(place.path("second")).unwrap().len(), 16 << 20);
    server.kill();
    let server = place.start();
    assert_eq!(place.devices(), ["first", "second"]);
    assert_eq!(read(&server, 2), (Status::Ok, pattern(64, 8, 3)));
}

#[test]
fn the_first_disk_goes_when_its_tenants_have_moved() {
    let place = ServerFolder::with("");
    let mut server = place.start();
    let model = place.path("slow.toml");
    std::fs::write(&model, SLOW_MODEL).unwrap();
    let model = model.display().to_string();
    place.told(&["device", "add", "second", &place.file("second"), "--model", &model]);
    place.told(&["namespace", "add", "logs", "4MiB", "--device", "second"]);
    place.told(&["tenant", "add", "gold"]);
    place.told(&["namespace", "rm", "ns1", "--force"]);
    let said = place.refused(&["device", "rm", "first"]);
    assert!(said.contains("tenant"), "{said}");
    let said = place.refused(&["tenant", "set", "gold", "--device", "third"]);
    assert!(said.contains("second"), "{said}");
    for tenant in ["default", "gold"] {
        let told = place.told(&["tenant", "set", tenant, "--device", "second"]);
        assert!(told.starts_with(&format!("changed {tenant} on second: ")), "{told}");
    }
    place.told(&["device", "rm", "first"]);
    let stands = || {
        let all = place.json(&["tenant", "list"]);
        let each = all["tenants"].as_array().unwrap().iter();
        each.map(|one| one["device"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let second = || (vec!["second".to_owned()], vec!["second".to_owned(); 2]);
    assert_eq!((place.devices(), stands()), second());
    write(&server, 2, 5);
    server.kill();
    let server = place.start();
    assert_eq!((place.devices(), stands()), second());
    assert_eq!(read(&server, 2), (Status::Ok, pattern(64, 8, 5)));
}

#[test]
fn promises_hold_on_a_new_disk_and_keep_it_there() {
    let place = ServerFolder::with("");
    let _server = place.start();
    place.told(&["tenant", "add", "old"]);
    let model = place.path("slow.toml");
    std::fs::write(&model, SLOW_MODEL).unwrap();
    let (spec, model) = (place.file("second"), model.display().to_string());
    let told = place.told(&["device", "add", "second", &spec, "--model", &model]);
    assert_eq!(told, "added second, 16 MiB\n");
    let gold = ["tenant", "add", "gold", "--latency", "500us", "--iops", "3000"];
    place.told(&[&gold[..], &["--device", "second"]].concat());
    let said = place.refused(&[
        "tenant",
        "add",
        "more",
        "--latency",
        "500us",
        "--iops",
        "3000",
        "--device",
        "second",
    ]);
    assert!(said.contains("second") || said.contains("tokens"), "{said}");
    let said = place.refused(&["device", "rm", "second"]);
    assert!(said.contains("tenant \"gold\" is on it"), "{said}");
    place.told(&["tenant", "rm", "gold"]);
    wait_until("its end", PATIENCE, || place.run(&["device", "rm", "second"]).status.success());
    assert_eq!(place.devices(), ["first"]);
    let said = place.refused(&[&gold[..], &["--device", "second"]].concat());
    assert!(said.contains("there is no device \"second\""), "{said}");
}

#[test]
fn a_disk_goes_when_nothing_is_on_it() {
    let place = ServerFolder::with("");
    let mut server = place.start();
    place.told(&["device", "add", "second", &place.file("second")]);
    place.told(&["device", "add", "third", &place.file("third")]);
    place.told(&["namespace", "add", "logs", "4MiB", "--device", "second"]);
    place.told(&["namespace", "add", "more", "4MiB", "--device", "third"]);
    write(&server, 2, 4);
    write(&server, 3, 5);
    let said = place.refused(&["device", "rm", "second"]);
    assert!(said.contains("namespace \"logs\" is on it"), "{said}");
    place.told(&["namespace", "rm", "logs"]);
    assert_eq!(place.told(&["device", "rm", "second"]), "removed second\n");
    assert_eq!(place.devices(), ["first", "third"]);
    // Nobody has it open or locked any more: not this process, and another one may.
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let leads = |link: std::fs::DirEntry| std::fs::read_link(link.path()).unwrap_or_default();
    assert!(open.flatten().map(leads).all(|path| path != place.path("second")));
    let other = Launch::device(&place.file("second")).start();
    assert_eq!(V2::connect(other.address()).read_blocks(64, 8), pattern(64, 8, 4));
    drop(other);
    assert_eq!(read(&server, 3), (Status::Ok, pattern(64, 8, 5)), "the others are as they were");
    let said = place.refused(&["device", "rm", "first"]);
    assert!(said.contains("namespace \"ns1\" is on it"), "{said}");
    let said = place.refused(&["device", "rm", "nothing"]);
    assert!(said.contains("there is no device \"nothing\"") && said.contains("third"), "{said}");
    // The disk comes back, under its old name.
    place.told(&["device", "add", "second", &place.file("second")]);
    place.told(&["namespace", "add", "again", "4MiB", "--device", "second"]);
    write(&server, 4, 6);
    server.kill();
    let server = place.start();
    assert_eq!(place.devices(), ["first", "second", "third"]);
    assert_eq!(read(&server, 3), (Status::Ok, pattern(64, 8, 5)));
    assert_eq!(read(&server, 4), (Status::Ok, pattern(64, 8, 6)));
}

#[test]
fn a_device_that_cannot_be_is_refused_with_the_reason_and_leaves_nothing() {
    let place = ServerFolder::with("");
    let server = place.start();
    std::fs::create_dir(place.path("folder")).unwrap();
    let folder = format!("file:{}", place.path("folder").display());
    let first = place.file("first");
    for (name, spec, word) in [
        ("first", "null:1MiB", "there is a device \"first\" already"),
        ("7", "null:1MiB", "not digits alone"),
        ("a", "disk:1MiB", "disk"),
        ("b", "null:1", "512"),
        ("c", "file:/nowhere/at/all", "/nowhere/at/all"),
        ("d", folder.as_str(), "folder"),
        ("e", first.as_str(), "first"),
    ] {
        let said = place.refused(&["device", "add", name, spec]);
        assert!(said.contains(word), "{name}: {said}");
    }
    let said = place.refused(&["device", "add", "f", "null:1MiB", "--model", "/nowhere"]);
    assert!(said.contains("device model \"/nowhere\""), "{said}");
    assert_eq!(place.devices(), ["first"]);
    // Places of refused ones are not taken.
    for n in 1..64 {
        place.told(&["device", "add", &format!("d{n}"), "null:1MiB"]);
    }
    let said = place.refused(&["device", "add", "d64", "null:1MiB"]);
    assert!(said.contains("64 devices"), "{said}");
    let told = place.told(&["namespace", "add", "last", "512KiB", "--device", "d63"]);
    assert!(told.contains("on d63"), "{told}");
    assert_eq!(read(&server, 2).0, Status::Ok);
    // The place of one that is gone is another's, for everybody.
    for n in 64..68 {
        place.told(&["device", "rm", &format!("d{}", n - 10)]);
        let spec = format!("{}?size=1MiB", place.path(&format!("file{n}")).display());
        let spec = format!("file:{spec}");
        place.told(&["device", "add", &format!("d{n}"), &spec]);
        let name = format!("on{n}");
        place.told(&["namespace", "add", &name, "512KiB", "--device", &format!("d{n}")]);
        let number = n - 61;
        assert_eq!(read(&server, number), (Status::Ok, vec![0; 4096]));
        write(&server, number, number as u8);
        assert_eq!(read(&server, number), (Status::Ok, pattern(64, 8, number as u8)));
    }
    assert_eq!(place.devices().len(), 64);
}

#[test]
fn clients_that_write_all_the_time_notice_nothing_of_disks_that_come_and_go() {
    let place = ServerFolder::with("");
    let server = place.start();
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = |first: u64| {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut client = V2::hello(server.address(), Hello::default()).unwrap();
                let mut version = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    version += 1;
                    let lba = first + u64::from(version % 500) * 8;
                    client.write_blocks(lba, &pattern(lba, 8, version as u8), false);
                    assert_eq!(client.read_blocks(lba, 8), pattern(lba, 8, version as u8));
                }
                version
            })
        };
        let writers = [writer(0), writer(8192)];
        for n in 0..6 {
            place.told(&["device", "add", "more", &place.file("more")]);
            place.told(&["namespace", "add", &format!("n{n}"), "1MiB", "--device", "more"]);
            place.told(&["namespace", "rm", &format!("n{n}")]);
            place.told(&["device", "rm", "more"]);
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).min().unwrap()
    });
    assert!(written > 24, "{written} writes beside 24 changes");
}

/// Adds two devices and a namespace of the last one, and removes the device between.
fn remove_in_the_middle(place: &ServerFolder, namespace: &str) {
    for name in ["second", "third"] {
        place.told(&["device", "add", name, &place.file(name)]);
    }
    place.told(&["namespace", "add", namespace, "4MiB", "--device", "third"]);
    place.told(&["device", "rm", "second"]);
}

#[test]
fn an_upgrade_takes_them_over_wherever_they_are() {
    let place = ServerFolder::with("");
    let mut old = place.start();
    remove_in_the_middle(&place, "more");
    write(&old, 2, 8);
    let mut client = V2::connect(old.address());
    for _ in 0..2 {
        let new = place.launch().with("--upgrade").start();
        assert!(old.wait().success(), "it ends in order");
        assert_eq!(client.call_in(2, READ, &[]), (Status::Ok, pattern(64, 8, 8)));
        assert_eq!(place.devices(), ["first", "third"]);
        old = new;
    }
    // Its place in this process is another than in the first.
    place.told(&["namespace", "rm", "more"]);
    place.told(&["device", "rm", "third"]);
    place.told(&["device", "add", "third", &place.file("third")]);
}

#[test]
fn a_reload_opens_and_closes_devices_and_says_what_it_cannot() {
    let place = ServerFolder::with("");
    let server = place.start();
    let more = |size: &str, namespace: bool| {
        let spec = place.file("second").replace("16MiB", size);
        let device = format!("[[device]]\nname = \"second\"\nspec = \"{spec}\"\n");
        let space = "[[namespace]]\nname = \"logs\"\ndevice = \"second\"\nsize = \"4MiB\"\n\
                     [[tenant]]\nname = \"tin\"\ndevice = \"second\"\n";
        place.configure(
            &place.file("first"),
            &format!("{device}{}", if namespace { space } else { "" }),
        );
        server.hang_up();
    };
    more("16MiB", true);
    wait_until("the new namespace", PATIENCE, || read(&server, 2).0 == Status::Ok);
    write(&server, 2, 9);
    assert!(place.told(&["tenant", "list"]).contains("second"));
    more("8MiB", true);
    server.await_log(
        "these need an upgrade or a restart: [[device]] (device \"second\" would be another)",
    );
    assert_eq!(read(&server, 2), (Status::Ok, pattern(64, 8, 9)));
    more("16MiB", false);
    wait_until("the end of the namespace", PATIENCE, || read(&server, 2).0 != Status::Ok);
    place.configure(&place.file("first"), "");
    server.hang_up();
    wait_until("the end of the device", PATIENCE, || place.devices() == ["first"]);
    // One that cannot be opened leaves everything as it was.
    place.configure(
        &place.file("first"),
        "[[device]]\nname = \"a\"\nspec = \"null:1MiB\"\n[[device]]\nname = \"b\"\nspec = \"file:/nowhere\"\n",
    );
    server.hang_up();
    server.await_log("nothing has changed");
    assert_eq!(place.devices(), ["first"]);
}

/// Checks that requests reach the right device after another one was removed. A device's place in
/// the worker's table then differs from its position among the remaining devices.
#[test]
fn who_is_behind_a_removed_disk_goes_on() {
    let place = ServerFolder::with("");
    let mut server = place.start();
    remove_in_the_middle(&place, "logs");
    write(&server, 2, 7);
    assert_eq!(read(&server, 2), (Status::Ok, pattern(64, 8, 7)));
    let said = place.refused(&["device", "recalibrate", "third", "--now"]);
    assert!(said.contains("model"), "{said}");
    assert!(server.runs());
}

/// Checks that a reload moves no namespace to another device. If the configuration has no
/// namespaces, their numbers follow the order of the devices.
#[test]
fn a_reload_lets_no_namespace_be_on_another_disk() {
    let place = ServerFolder::with("");
    let configure = |names: &[&str]| {
        let device = |name: &&str| {
            format!("[[device]]\nname = \"{name}\"\nspec = \"{}\"\n", place.file(name))
        };
        let devices: String = names.iter().map(device).collect();
        let listen = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
        place.write_configuration(&(devices + listen));
    };
    configure(&["a", "b"]);
    let server = place.start();
    write(&server, 1, 1);
    write(&server, 2, 2);
    let refused = |server: &Server| server.log().matches("would be on another device").count();
    for (n, names) in [&["new", "a", "b"][..], &["b", "a"], &["b"]].into_iter().enumerate() {
        configure(names);
        server.hang_up();
        wait_until("a refusal", PATIENCE, || refused(&server) > n);
        assert_eq!(read(&server, 1), (Status::Ok, pattern(64, 8, 1)), "{names:?}");
        assert_eq!(read(&server, 2), (Status::Ok, pattern(64, 8, 2)), "{names:?}");
        assert_eq!(place.devices(), ["a", "b"], "{names:?}");
    }
    configure(&["a", "b", "new"]);
    server.hang_up();
    wait_until("the new one", PATIENCE, || read(&server, 3).0 == Status::Ok);
    assert_eq!(place.devices(), ["a", "b", "new"]);
}
