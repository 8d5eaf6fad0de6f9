//! Tests of changes of a running server that its hosts and clients notice: the real program, hosts
//! over real sockets, and the commands of an operator.

use std::process::{Command as Process, Stdio};
use std::time::Duration;

use crate::support::{
    Launch, NvmeQueue, Operator, PATIENCE, Rng, SUBSYSTEM, Server, ServerFolder, V2, complaint,
    host_nqn, kills, pattern, subsystem, wait_until, words, write_with,
};
use contract::{Command, Hello, Range, Status};
use control::admin::{
    ChangeTenant, ChangeTenants, Client, ClientError, Namespaces, NewNamespace, NewTenant,
    RemoveNamed, RemoveNamespace, TenantStatus,
};
use serde_json::Value;
use wire::nvme::{Event, LogPage, Status as NvmeStatus};

const MIB: u64 = 1 << 20;

/// Starts a server with a subsystem over a device that is a file.
fn started() -> (ServerFolder, Server) {
    let place = ServerFolder::new();
    place.configure_disk(&subsystem());
    let server = place.configured().start();
    (place, server)
}

/// Connects host 1 to the subsystem: its admin queue, and an I/O queue.
fn connected(server: &Server) -> (NvmeQueue, NvmeQueue) {
    let host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    let io = host.io(server.listener(0), 1, SUBSYSTEM);
    (host, io)
}

#[test]
fn a_host_is_told_of_a_namespace_that_grows_and_uses_it() {
    let (place, server) = started();
    let (mut host, mut io) = connected(&server);
    assert_eq!(host.blocks(1), Ok(16 * MIB / 512));
    io.write(1, 16 * MIB / 512 - 1, &[7; 512]).unwrap();
    assert_eq!(io.read(1, 16 * MIB / 512), Err(NvmeStatus::LBA_OUT_OF_RANGE.dnr()));
    assert_eq!(place.told(&["namespace", "resize", "ns1", "32MiB"]), "ns1 has 32 MiB\n");
    assert_eq!(host.event(), Event::NAMESPACE);
    assert_eq!(words(&host.log(LogPage::CHANGED_NAMESPACES, 4096)), [1]);
    assert_eq!(host.blocks(1), Ok(32 * MIB / 512));
    assert_eq!(io.read(1, 16 * MIB / 512), Ok(vec![0; 512]));
    io.write(1, 32 * MIB / 512 - 1, &[9; 512]).unwrap();
    assert_eq!(io.read(1, 16 * MIB / 512 - 1), Ok(vec![7; 512]));
    assert_eq!(std::fs::metadata(place.path("disk")).unwrap().len(), 32 * MIB);
    let listed = &place.json(&["namespace", "list"])["namespaces"][0];
    assert_eq!((&listed["bytes"], &listed["name"]), (&(32 * MIB).into(), &"ns1".into()));
}

#[test]
fn a_namespace_shrinks_only_when_that_is_said_and_forgets_what_lay_behind() {
    let (place, server) = started();
    let (mut host, mut io) = connected(&server);
    let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
    let read = |lba| Command::Read(Range::new(lba, 1));
    io.write(1, 20_000, &[7; 512]).unwrap();
    let said = place.refused(&["namespace", "resize", "1", "8MiB"]);
    assert!(said.contains("--shrink"), "{said}");
    assert_eq!(client.call(read(20_000), &[]).0, Status::Ok);
    place.told(&["namespace", "resize", "1", "8MiB", "--shrink"]);
    assert_eq!(host.event(), Event::NAMESPACE);
    assert_eq!(io.read(1, 20_000), Err(NvmeStatus::LBA_OUT_OF_RANGE.dnr()));
    assert_eq!(client.call(read(20_000), &[]).0, Status::OutOfRange);
    assert_eq!(client.info(1).unwrap().blocks, 8 * MIB / 512);
    assert_eq!(client.call(read(0), &[]).0, Status::Ok);
    place.told(&["namespace", "resize", "1", "16MiB"]);
    assert_eq!(io.read(1, 20_000), Ok(vec![0; 512]));
    assert_eq!(client.call(read(20_000), &[]).0, Status::Ok);
}

#[test]
fn namespaces_come_and_go_under_a_hosts_eyes() {
    let (place, server) = started();
    let (mut host, mut io) = connected(&server);
    let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
    assert_eq!(host.namespaces(), [1]);
    let added = place.told(&["namespace", "add", "logs", "4MiB"]);
    assert_eq!(added, "added logs as number 2, 4 MiB on disk\n");
    assert_eq!(host.event(), Event::NAMESPACE);
    assert_eq!(words(&host.log(LogPage::CHANGED_NAMESPACES, 4096)), [2]);
    assert_eq!(host.namespaces(), [1, 2]);
    io.write(2, 0, &[5; 512]).unwrap();
    // A connection that was open before may use it, too.
    let read = Command::Read(Range::new(0, 1));
    let (status, data) = client.call_in(2, read, &[]);
    assert_eq!((status, data), (Status::Ok, vec![5; 512]));
    let said = place.refused(&["namespace", "add", "logs", "4MiB"]);
    assert!(said.contains("already"), "{said}");
    place.told(&["namespace", "rm", "logs"]);
    assert_eq!(host.event(), Event::NAMESPACE);
    assert_eq!(words(&host.log(LogPage::CHANGED_NAMESPACES, 4096)), [2]);
    assert_eq!(host.namespaces(), [1]);
    assert_eq!(io.read(2, 0), Err(NvmeStatus::INVALID_NAMESPACE.dnr()));
    assert_eq!(client.call_in(2, read, &[]).0, Status::NoNamespace);
    // What takes its place shows nothing of it.
    place.told(&["namespace", "add", "other", "4MiB"]);
    assert_eq!(host.event(), Event::NAMESPACE);
    let nsid = host.namespaces()[1];
    assert_eq!(io.read(nsid, 0), Ok(vec![0; 512]));
    let said = place.refused(&["namespace", "rm", "ns1"]);
    assert!(said.contains("--force"), "{said}");
}

#[test]
fn hosts_are_let_in_and_out_and_discovery_hears_of_it() {
    let (place, server) = started();
    let at = server.listener(0);
    let mut discovery = NvmeQueue::discovery(at, 1);
    let new = "nqn.2026-11.io.nearflash:new";
    place.told(&["subsystem", "add", new, "--namespace", "ns1", "--host", &host_nqn(1)]);
    assert_eq!(discovery.event(), Event::DISCOVERY);
    assert!(NvmeQueue::admin(at, 2, new).is_err());
    let mut first = NvmeQueue::admin(at, 1, new).unwrap();
    assert_eq!(first.namespaces(), [1]);
    place.told(&["subsystem", "allow", new, &host_nqn(2)]);
    NvmeQueue::admin(at, 2, new).unwrap();
    let shown = place.told(&["subsystem", "show", new]);
    assert!(shown.contains(&format!("{} is connected", host_nqn(1))), "{shown}");
    place.told(&["subsystem", "deny", new, &host_nqn(1)]);
    assert!(first.receive().is_err(), "its connection ends");
    assert!(NvmeQueue::admin(at, 1, new).is_err());
    place.told(&["subsystem", "rm", new]);
    assert!(NvmeQueue::admin(at, 2, new).is_err());
    assert_eq!(place.json(&["subsystem", "list"])["subsystems"].as_array().unwrap().len(), 1);
}

#[test]
fn access_through_a_listener_changes_and_hosts_are_told() {
    let (place, server) = started();
    let at = server.listener(0);
    let (mut host, mut io) = connected(&server);
    io.write(1, 0, &[1; 512]).unwrap();
    let said = place.told(&["listener", "ana", "1", "inaccessible"]);
    assert!(said.contains("is inaccessible"), "{said}");
    assert_eq!(host.event(), Event::ANA);
    // Of the first group: state in the second word's place, behind the log's head of 16 bytes.
    assert_eq!(host.log(LogPage::ANA, 64)[16 + 16], 3);
    assert_eq!(io.read(1, 0), Err(NvmeStatus::ANA_INACCESSIBLE));
    place.told(&["listener", "ana", &format!("nvme-tcp://{at}"), "optimized"]);
    assert_eq!(host.event(), Event::ANA);
    assert_eq!(io.read(1, 0), Ok(vec![1; 512]));
    assert!(place.refused(&["listener", "ana", "2", "inaccessible"]).contains("nvme-tcp"));
}

const KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";

#[test]
fn the_key_before_goes_on_until_its_overlap_ends() {
    const NEXT: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    let (place, mut server) = started();
    let file = |name: &str, key: &str| {
        write_with(&place.path(name), key, 0o600);
        place.path(name).display().to_string()
    };
    let (first, next, host) = (file("first", KEY), file("next", NEXT), host_nqn(1));
    let said = place.refused(&["host", "key", &host, &next, "--overlap"]);
    assert!(said.contains("no key yet"), "{said}");
    let overlaps = || place.told(&["host", "show", &host]).contains("the one before");
    place.told(&["host", "key", &host, &first]);
    assert!(!overlaps());
    for _ in 0..2 {
        place.told(&["host", "key", &host, &next, "--overlap"]);
        assert!(overlaps());
    }
    server.kill();
    let _server = place.configured().start();
    assert!(overlaps(), "kept over a restart");
    place.told(&["host", "key", &host, "--end-overlap"]);
    assert!(!overlaps());
    place.told(&["host", "key", &host, &first, "--overlap"]);
    place.told(&["host", "key", &host, &next]);
    assert!(!overlaps(), "a key without an overlap replaces both");
}

#[test]
fn keys_are_kept_and_never_shown() {
    let (place, mut server) = started();
    let at = server.listener(0);
    write_with(&place.path("key"), KEY, 0o600);
    let key = place.path("key").display().to_string();
    NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    place.told(&["host", "add", &host_nqn(1)]);
    place.told(&["host", "key", &host_nqn(1), &key]);
    // Whoever has a key has to prove it: nothing else is served.
    assert!(NvmeQueue::admin(at, 1, SUBSYSTEM).is_err());
    let file = place.path("none");
    let none = file.display().to_string();
    write_with(&file, "none", 0o600);
    let said = place.refused(&["host", "key", &host_nqn(2), &none]);
    assert!(said.contains("its key is not of the form"), "{said}");
    write_with(&file, KEY, 0o640);
    let said = place.refused(&["host", "key", &host_nqn(2), &none])
        + &place.refused(&["host", "add", &host_nqn(3), "--key", &none]);
    assert_eq!(said.matches("others may read").count(), 2, "{said}");
    let listed = place.told(&["host", "list", "--json"]) + &place.told(&["host", "list"]);
    let secret = &KEY[10..30];
    assert!(!listed.contains(secret) && !server.log().contains(secret), "{listed}");
    let state = place.path("nearflash.state");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&state).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&state).unwrap().contains(KEY));
    server.kill();
    let server = place.configured().start();
    assert!(NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).is_err(), "the key is kept");
    place.told(&["host", "rm", &host_nqn(1)]);
    NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
}

#[test]
fn a_note_of_a_tenant_stays_until_it_is_removed() {
    let place = ServerFolder::new();
    let configured = "[[tenant]]\nname = \"gold\"\nnote = \"team storage\"\n";
    place.configure_disk(&format!("{configured}[[tenant]]\nname = \"tin\"\n"));
    let mut server = place.configured().start();
    place.told(&["tenant", "add", "silver", "--note", "ticket 7"]);
    place.told(&["tenant", "set", "tin", "--note", "ask Ana"]);
    let notes = || -> Vec<(String, Option<String>)> {
        let list = place.json(&["tenant", "list"])["tenants"].clone();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let one = |one: &Value| Some((text(&one["name"])?, text(&one["note"])));
        let mut all: Vec<_> = list.as_array().unwrap().iter().filter_map(one).collect();
        all.sort();
        all.retain(|(name, _)| name != "default");
        all
    };
    let expect = |gold: Option<&str>| {
        let each = [("gold", gold), ("silver", Some("ticket 7")), ("tin", Some("ask Ana"))];
        let each = each.map(|(name, note)| (name.to_owned(), note.map(str::to_owned)));
        assert_eq!(notes(), each);
    };
    expect(Some("team storage"));
    server.kill();
    let mut server = place.configured().start();
    expect(Some("team storage"));
    let shown = place.told(&["tenant", "show", "silver"]);
    assert!(shown.contains("note      ticket 7"), "{shown}");
    place.told(&["tenant", "set", "gold", "--note", ""]);
    server.kill();
    let _server = place.configured().start();
    expect(None);
    let said = place.refused(&["tenant", "set", "gold", "--note", &"x".repeat(201)]);
    assert!(said.contains("a note of 201 characters; expected at most 200"), "{said}");
}

#[test]
fn what_was_changed_stays_over_a_restart() {
    let place = ServerFolder::new();
    place.configure_disk(&format!("{}[[tenant]]\nname = \"gold\"\n", subsystem()));
    let mut server = place.configured().start();
    place.told(&["namespace", "resize", "ns1", "32MiB"]);
    place.told(&["namespace", "add", "logs", "4MiB"]);
    place.told(&["tenant", "add", "silver"]);
    place.told(&["tenant", "rm", "gold"]);
    place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", "silver"]);
    let said = place.refused(&["tenant", "rm", "silver"]);
    assert!(said.contains(SUBSYSTEM), "{said}");
    let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    let uuid = host.uuid(2);
    let mut io = host.io(server.listener(0), 1, SUBSYSTEM);
    io.write(2, 7, &[3; 512]).unwrap();
    server.kill();
    let server = place.configured().start();
    let names = |list: &Value| -> Vec<(String, u64)> {
        let one = |one: &Value| {
            (one["name"].as_str().unwrap().to_owned(), one["bytes"].as_u64().unwrap_or_default())
        };
        list.as_array().unwrap().iter().map(one).collect()
    };
    let listed = names(&place.json(&["namespace", "list"])["namespaces"]);
    assert_eq!(listed, [("ns1".to_owned(), 32 * MIB), ("logs".to_owned(), 4 * MIB)]);
    let tenants = names(&place.json(&["tenant", "list"])["tenants"]);
    assert!(tenants.iter().any(|(name, _)| name == "silver"), "{tenants:?}");
    assert!(!tenants.iter().any(|(name, _)| name == "gold"), "{tenants:?}");
    let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    assert_eq!(host.uuid(2), uuid);
    let mut io = host.io(server.listener(0), 1, SUBSYSTEM);
    assert_eq!(io.read(2, 7), Ok(vec![3; 512]));
}

#[test]
fn a_connected_host_that_belongs_to_no_tenant_any_more_lets_it_go() {
    let (place, server) = started();
    let (host, mut io) = connected(&server);
    for set in [["subsystem", "set", SUBSYSTEM], ["host", "set", &host_nqn(1)]] {
        place.told(&["tenant", "add", "gold"]);
        place.told(&[&set[..], &["--tenant", "gold"]].concat());
        io.write(1, 0, &[1; 512]).unwrap();
        place.told(&[&set[..], &["--tenant", "none"]].concat());
        io.write(1, 0, &[2; 512]).unwrap();
        place.told(&["tenant", "rm", "gold"]);
        wait_until("the end of the tenant", PATIENCE, || {
            !place.told(&["tenant", "list"]).contains("gold")
        });
        assert_eq!(io.read(1, 0), Ok(vec![2; 512]));
    }
    // Removed while the host says nothing: by its next command it belongs to another, or to none.
    for next in ["silver", "none"] {
        place.told(&["tenant", "add", "gold"]);
        place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", "gold"]);
        io.write(1, 0, &[3; 512]).unwrap();
        if next == "silver" {
            place.told(&["tenant", "add", "silver"]);
        }
        place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", next]);
        place.told(&["tenant", "rm", "gold"]);
        assert_eq!(io.read(1, 0), Ok(vec![3; 512]));
    }
    // Another tenant may have its number by then.
    place.told(&["tenant", "add", "gold"]);
    place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", "gold"]);
    io.write(1, 0, &[4; 512]).unwrap();
    place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", "none"]);
    place.told(&["tenant", "rm", "gold"]);
    wait_until("the end of the tenant", PATIENCE, || {
        !place.told(&["tenant", "list"]).contains("gold")
    });
    place.told(&["tenant", "add", "copper"]);
    place.told(&["subsystem", "set", SUBSYSTEM, "--tenant", "copper"]);
    assert_eq!(io.read(1, 0), Ok(vec![4; 512]));
    drop((host, io));
    place.told(&["tenant", "rm", "silver"]);
    NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
}

#[test]
fn reservations_that_persist_are_there_after_a_crash() {
    let (place, mut server) = started();
    place.told(&["namespace", "add", "logs", "4MiB"]);
    let (_host, mut io) = connected(&server);
    io.register(1, 77, true).unwrap();
    io.acquire(1, 77).unwrap();
    io.register(2, 88, false).unwrap();
    io.acquire(2, 88).unwrap();
    server.kill();
    let server = place.configured().start();
    let other = NvmeQueue::admin(server.listener(0), 2, SUBSYSTEM).unwrap();
    let mut other_io = other.io(server.listener(0), 2, SUBSYSTEM);
    assert_eq!(other_io.write(1, 0, &[1; 512]), Err(NvmeStatus::RESERVATION_CONFLICT.dnr()));
    assert_eq!(other_io.write(2, 0, &[1; 512]), Ok(()), "that one did not persist");
    let (_host, mut io) = connected(&server);
    assert_eq!(io.write(1, 0, &[2; 512]), Ok(()), "the holder still holds it");
}

#[test]
fn a_broken_state_file_is_refused_and_there_is_a_way_back() {
    let (place, mut server) = started();
    place.told(&["namespace", "resize", "ns1", "32MiB"]);
    place.told(&["namespace", "resize", "ns1", "48MiB"]);
    server.kill();
    let state = place.path("nearflash.state");
    let mut bytes = std::fs::read(&state).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&state, bytes).unwrap();
    let (code, said) = place.configured().fail();
    assert_eq!(code, 1);
    assert!(said.contains("broken") && said.contains("--previous-state"), "{said}");
    let server = place.configured().with("--previous-state").start();
    let listed = &place.json(&["namespace", "list"])["namespaces"][0];
    assert_eq!(listed["bytes"], 32 * MIB);
    drop(server);
}

#[test]
fn a_kill_at_any_instant_leaves_the_old_state_or_the_new() {
    // Whose memory the kernel lets go of at once.
    let config = "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n\
                  [[namespace]]\ndevice = \"disk\"\nsize = \"1MiB\"\n\
                  [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n";
    let namespace = |n| NewNamespace {
        name: format!("more{n}"),
        bytes: 1 << 20,
        device: None,
        read_only: false,
        uuid: None,
        subsystems: None,
    };
    kill_at_random(
        config,
        |client| client.read::<Namespaces>().unwrap().namespaces.len() as u64 - 1,
        |client, n| client.send(&namespace(n)).map(drop),
        |client, n| client.send_to(&format!("more{n}"), &RemoveNamespace::default()),
    );
}

#[test]
fn a_kill_at_any_instant_leaves_the_old_tenants_or_the_new() {
    let config = "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n\
                  [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
    // Of names that are as long as they may be, so that the log is full now and then.
    let name = |n| format!("{n:064}");
    let tenant = |n| NewTenant { name: name(n), device: None, slo: None, share: None, note: None };
    kill_at_random(
        config,
        |client| {
            let tenants = client.tenants().unwrap();
            tenants.iter().filter(|tenant| tenant.name.starts_with('0')).count() as u64
        },
        |client, n| client.send(&tenant(n)).map(drop),
        |client, n| client.delete::<TenantStatus>(&name(n)),
    );
}

/// Kills the server at random instants of changes. At its next start it must have as many things as
/// after the last change that was answered, or after the one that was in progress.
/// `NEARFLASH_KILLS` is the number of kills. `count` returns the number of things; `add` adds the
/// next one, and `remove` removes the last.
fn kill_at_random(
    config: &str,
    count: impl Fn(&mut Client) -> u64,
    add: impl Fn(&mut Client, u64) -> Result<(), ClientError> + Sync,
    remove: impl Fn(&mut Client, u64) -> Result<(), ClientError> + Sync,
) {
    let place = ServerFolder::new();
    place.write_configuration(config);
    let (kills, mut dice) = (kills(6), Rng::of(0x9e37_79b9_7f4a_7c15));
    // How many there are; of one more a change may be under way.
    let (mut answered, mut asked) = (0_u64, 0_u64);
    let (mut old, mut new, mut done) = (0_u32, 0_u32, 0_u64);
    for _ in 0..kills {
        let mut server = place.configured().start();
        let mut client = place.client();
        let there = count(&mut client);
        assert!(there == answered || there == asked, "{there}: neither {answered} nor {asked}");
        if answered != asked {
            *(if there == asked { &mut new } else { &mut old }) += 1;
        }
        (answered, asked) = (there, there);
        // Most of them while the change is being kept, which is over before workers have taken it.
        let window = if dice.roll(4) == 0 { 60_000 } else { 4_000 };
        let delay = Duration::from_micros(dice.roll(window));
        let state = std::sync::Mutex::new((&mut answered, &mut asked, &mut done));
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                loop {
                    let (answered, asked, done) = &mut *state.lock().unwrap();
                    let is_low = **answered < 4;
                    **asked = if is_low { **answered + 1 } else { **answered - 1 };
                    let changed = match is_low {
                        true => add(&mut client, **asked),
                        false => remove(&mut client, **answered),
                    };
                    match changed {
                        Ok(()) => (**answered, **done) = (**asked, **done + 1),
                        Err(_) => return, // it was killed
                    }
                }
            });
            std::thread::sleep(delay);
            server.kill();
            changes.join().unwrap();
        });
    }
    println!(
        "{kills} kills in {done} changes: {old} found the state before a change, {new} the one after it"
    );
    assert!(kills < 6 || old + new > 0, "none of {kills} kills met a change");
}

#[test]
fn a_configuration_is_checked_and_shown_without_a_server() {
    let place = ServerFolder::new();
    place.configure_disk("[[access]]\ntoken = \"very secret\"\nrights = \"read\"\n");
    let file = place.path("nearflash.toml").display().to_string();
    let run = |words: &[&str]| {
        let mut command = Process::new(env!("CARGO_BIN_EXE_nearflash"));
        command.arg("config").args(words).stdin(Stdio::null()).output().unwrap()
    };
    assert!(run(&["check", &file]).status.success());
    let shown = String::from_utf8(run(&["show", &file]).stdout).unwrap();
    assert!(shown.contains("in_flight = ") && !shown.contains("very secret"), "{shown}");
    place.configure_disk("[[namespace]]\ndevice = \"disc\"\n");
    let said = complaint(&run(&["check", &file]));
    assert!(said.contains("nearflash.toml:9: ") && said.contains("there are: disk"), "{said}");
    place.configure_disk("[[namespace]]\ndevise = \"disk\"\n");
    let said = complaint(&run(&["check", &file]));
    assert!(said.contains("nearflash.toml:9: ") && said.contains("devise"), "{said}");
    place.configure_disk("");
    let said = |words: &[&str]| String::from_utf8(run(words).stdout).unwrap();
    let beside = place.path("nearflash.state").display().to_string();
    let other = place.path("other.state").display().to_string();
    let nothing = format!("state file: {beside}, where nothing is kept yet\n");
    assert!(said(&["check", &file]).starts_with(&nothing));
    // What servers have kept elsewhere.
    let mut server = place.configured().with("--state").with(&other).start();
    place.told(&["namespace", "add", "logs", "1MiB"]);
    server.kill();
    let found = format!("state file: {other}\n");
    assert!(said(&["check", &file, "--state", &other]).starts_with(&found));
    let shown = said(&["show", &file, "--state", &other]);
    assert!(
        shown.contains("name = \"logs\"") && shown.starts_with(&format!("# {found}")),
        "{shown}"
    );
    assert!(!said(&["show", &file]).contains("name = \"logs\""));
    assert!(said(&["show", &file, "--state", "none"]).contains("state = \"none\""));
    let schema = run(&["schema"]).stdout;
    assert!(serde_json::from_slice::<Value>(&schema).unwrap()["properties"]["device"].is_object());
}

#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let place = ServerFolder::new();
    place.configure_disk(&subsystem());
    let state = place.path("gone/state").display().to_string();
    std::fs::create_dir(place.path("gone")).unwrap();
    let server = place.configured().with("--state").with(&state).start();
    place.told(&["tenant", "add", "stays"]);
    std::fs::remove_dir_all(place.path("gone")).unwrap();
    std::fs::create_dir(place.path("gone")).unwrap();
    std::fs::remove_dir(place.path("gone")).unwrap();
    let mut host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    for words in [
        &["namespace", "resize", "ns1", "32MiB"][..],
        &["namespace", "add", "more", "1MiB"],
        &["tenant", "add", "gold"],
        &["tenant", "rm", "stays"],
        &["subsystem", "rm", SUBSYSTEM],
    ] {
        let said = place.refused(words);
        assert!(said.contains("cannot keep the change"), "{words:?}: {said}");
    }
    assert_eq!((host.namespaces(), host.blocks(1)), (vec![1], Ok(16 * MIB / 512)));
    // A namespace without a size would have more at the next start.
    assert_eq!(std::fs::metadata(place.path("disk")).unwrap().len(), 16 * MIB);
    wait_until("the end of the tenant", PATIENCE, || {
        !place.told(&["tenant", "list"]).contains("gold")
    });
    assert!(place.told(&["tenant", "list"]).contains("stays"));
    std::fs::create_dir(place.path("gone")).unwrap();
    place.told(&["namespace", "resize", "ns1", "32MiB"]);
    assert_eq!(host.event(), Event::NAMESPACE);
}

#[test]
fn a_server_that_keeps_nothing_says_so() {
    let place = ServerFolder::new();
    place.configure_disk("");
    let disk = format!("file:{}?size=16MiB", place.path("disk").display());
    let admin = place.admin();
    let arguments = ["--device", &disk, "--listen", "reflex://127.0.0.1:0", "--admin", &admin];
    let changes: [&[&str]; 5] = [
        &["namespace", "add", "more", "1MiB"],
        &["namespace", "resize", "more", "2MiB"],
        &["device", "add", "other", "null:1MiB"],
        &["device", "set", "other", "--fail-fast", "false"],
        &["namespace", "rm", "more"],
    ];
    let warned = |words: &[&str]| {
        let ran = place.run(words);
        assert!(ran.status.success(), "{words:?}: {}", complaint(&ran));
        complaint(&ran).contains("keeps no changes")
    };
    let mut server = Launch::new(&arguments).start();
    server.await_log("are lost when it ends; keep them with `--state FILE`");
    assert!(changes.iter().all(|words| warned(words)));
    assert!(!warned(&["namespace", "list"]) && !warned(&["tenant", "add", "gold"]));
    server.kill();
    let state = place.path("state").display().to_string();
    let server = Launch::new(&arguments).with("--state").with(&state).start();
    assert!(!changes.iter().any(|words| warned(words)));
    assert!(!server.log().contains("forgotten"), "{}", server.log());
}

#[test]
fn a_batch_of_tenants_is_made_whole_or_not_at_all() {
    let place = ServerFolder::new();
    place.configure_disk("[limits]\ntenants = 4096\n");
    let mut server = place.configured().start();
    place.told(&["tenant", "add", "first"]);
    let client = || place.client();
    let add = |n: u32| {
        let name = format!("t{n}");
        ChangeTenant::Add(NewTenant { name, device: None, slo: None, share: None, note: None })
    };
    let remove = |name: &str| ChangeTenant::Remove(RemoveNamed { name: name.to_owned() });
    let apply = |changes: Vec<ChangeTenant>| client().send(&ChangeTenants { changes });
    let names = || -> Vec<String> {
        let all = client().tenants().unwrap().into_iter();
        let there = all.filter(|tenant| tenant.state != control::admin::State::Leaving);
        there.map(|tenant| tenant.name).filter(|name| name != "default").collect()
    };
    let counts = apply((0..2_000).map(add).collect()).unwrap();
    assert_eq!((counts.added, counts.changed, counts.removed), (2_000, 0, 0));
    let lines = std::fs::read_to_string(place.path("nearflash.state.log")).unwrap();
    assert_eq!(lines.lines().count(), 1, "all of it is one line");
    assert_eq!(names().len(), 2_001);
    // The last of many is refused, and what was made before it is undone.
    let taken = (3_000..3_100).map(add).chain([remove("t1"), add(7)]).collect();
    let said = apply(taken).unwrap_err().to_string();
    assert!(said.contains("changes[101]") && said.contains("\"t7\""), "{said}");
    let said = apply(vec![add(3_000), remove("t3000")]).unwrap_err().to_string();
    assert!(said.contains("changes[1]") && said.contains("one change"), "{said}");
    let said = apply(vec![remove("t1"), remove("nobody")]).unwrap_err().to_string();
    assert!(said.contains("changes[1]") && said.contains("nobody"), "{said}");
    let most = apply((0..10_001).map(add).collect()).unwrap_err().to_string();
    assert!(most.contains("10000"), "{most}");
    assert_eq!(names().len(), 2_001);
    let counts = apply((0..1_999).map(|n| remove(&format!("t{n}"))).collect()).unwrap();
    assert_eq!(counts.removed, 1_999);
    assert_eq!(names(), ["first", "t1999"]);
    server.kill();
    let _server = place.configured().start();
    assert_eq!(names(), ["first", "t1999"]);
    std::fs::write(place.path("many.json"), "{\"changes\": [{\"remove\": {\"name\": \"t1999\"}}]}")
        .unwrap();
    let file = place.path("many.json").display().to_string();
    place.told(&["tenant", "apply", &file]);
}

#[test]
fn a_client_that_writes_all_the_time_loses_nothing_by_changes() {
    let (place, server) = started();
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
            let mut version = 0_u32;
            while !done.load(order) {
                version += 1;
                let lba = u64::from(version % 1000) * 8;
                client.write_blocks(lba, &pattern(lba, 8, version as u8), false);
                assert_eq!(client.read_blocks(lba, 8), pattern(lba, 8, version as u8));
            }
            version
        });
        for step in 0..6 {
            place.told(&["namespace", "resize", "ns1", &format!("{}MiB", 17 + step)]);
            place.told(&["namespace", "resize", "ns1", "16MiB", "--shrink"]);
            place.told(&["namespace", "add", "other", "1MiB"]);
            place.told(&["namespace", "rm", "other"]);
        }
        done.store(true, order);
        writer.join().unwrap()
    });
    assert!(written > 24, "{written} writes beside 24 changes");
}

#[test]
fn a_reservation_is_not_that_of_a_namespace_that_gets_the_number_later() {
    let (place, mut server) = started();
    place.told(&["namespace", "add", "logs", "1MiB"]);
    let (_host, mut io) = connected(&server);
    io.register(2, 77, true).unwrap();
    io.acquire(2, 77).unwrap();
    place.told(&["namespace", "rm", "logs"]);
    server.kill();
    let mut server = place.configured().start();
    place.told(&["namespace", "add", "other", "1MiB"]);
    server.kill();
    let server = place.configured().start();
    let mut other = NvmeQueue::admin(server.listener(0), 2, SUBSYSTEM).unwrap();
    assert_eq!(other.namespaces(), [1, 2]);
    let mut io = other.io(server.listener(0), 2, SUBSYSTEM);
    assert_eq!(io.write(2, 0, &[1; 512]), Ok(()));
}
