//! Tests of listeners that are opened and closed while the server runs: the real program, clients
//! and hosts over real sockets, and the commands of an operator.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{
    Answer, Launch, NvmeQueue, Operator, PATIENCE, Rng, Server, ServerFolder, V1, V2, free_port,
    kills, pattern, wait_until,
};
use contract::{Command, Hello, Range, Status};
use control::admin::{AddListener, Listeners, RemoveListener};
use wire::nvme::{Event, LogPage};

const READ: Command = Command::Read(Range::new(64, 8));
const SUBSYSTEM: &str = "nqn.2026-11.org.example:listeners";

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a place with the configuration of a device in a file, of a listener, and with
    /// `rest`.
    fn with(rest: &str) -> ServerFolder;
    fn configure(&self, rest: &str);
    fn launch(&self) -> Launch;
    fn start(&self) -> Server;
    /// Opens a listener at `url`, and returns the address at which it listens.
    fn add(&self, url: &str) -> SocketAddr;
    /// Returns the number and the address of each listener.
    fn listed(&self) -> Vec<(u64, String)>;
}

impl Servers for ServerFolder {
    fn with(rest: &str) -> ServerFolder {
        let place = ServerFolder::new();
        place.configure(&format!("[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n{rest}"));
        place
    }

    fn configure(&self, rest: &str) {
        let disk = self.file("disk");
        self.write_configuration(&format!(
            "[[device]]\nname = \"disk\"\nspec = \"{disk}\"\n{rest}"
        ));
    }

    fn launch(&self) -> Launch {
        self.configured().with("--workers").with("2")
    }

    fn start(&self) -> Server {
        self.launch().start()
    }

    fn add(&self, url: &str) -> SocketAddr {
        address(self.json(&["listener", "add", url])["url"].as_str().unwrap())
    }

    fn listed(&self) -> Vec<(u64, String)> {
        let all = self.json(&["listener", "list"]);
        let each = all["listeners"].as_array().unwrap().iter();
        each.map(|one| (one["number"].as_u64().unwrap(), one["url"].as_str().unwrap().to_owned()))
            .collect()
    }
}

fn address(url: &str) -> SocketAddr {
    url.split_once("://").expect("a URL").1.parse().expect("an address")
}

/// Returns `true` if nobody listens at an address.
fn is_closed(at: SocketAddr) -> bool {
    TcpStream::connect(at).is_err()
}

#[test]
fn a_listener_that_is_added_serves_and_is_there_again() {
    let place = ServerFolder::with("");
    let mut server = place.start();
    let told = place.told(&["listener", "add", &format!("reflex://{}", free_port())]);
    assert!(told.starts_with("listens at reflex://127.0.0.1:"), "{told}");
    assert!(told.ends_with(" (number 2)\n"), "{told}");
    let at = address(told.split_whitespace().nth(2).unwrap());
    let mut by_it = V2::hello(at, Hello::default()).unwrap();
    by_it.write_blocks(64, &pattern(64, 8, 1), true);
    assert_eq!(V2::connect(server.address()).read_blocks(64, 8), pattern(64, 8, 1));
    let socket = place.path("clients.sock").display().to_string();
    let url = format!("reflex+unix:{socket}");
    assert_eq!(place.json(&["listener", "add", &format!("{url}?mode=660")])["url"], url);
    let listed = place.listed();
    assert_eq!(listed.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&listed[1].1, &listed[2].1), (&format!("reflex://{at}"), &url));
    server.kill();
    let server = place.start();
    assert_eq!(place.listed()[1..], listed[1..], "they are where they were, after a crash");
    assert_eq!(V2::connect(at).read_blocks(64, 8), pattern(64, 8, 1));
    assert_eq!(server.listener(1), at, "it says so when it is ready");
}

/// Checks that a closed listener whose connections have all ended gives its number back, so that a
/// process cannot run out of numbers.
#[test]
fn a_number_is_free_when_nobody_is_left_who_came_by_its_listener() {
    let place = ServerFolder::with("");
    let _server = place.start();
    let numbers = || place.listed().iter().map(|one| one.0).collect::<Vec<_>>();
    let remove = |at: SocketAddr| place.told(&["listener", "rm", &format!("reflex://{at}")]);
    let first = place.add("reflex://127.0.0.1:0");
    let mut here = V2::connect(first);
    remove(first);
    let mut last = place.add("reflex://127.0.0.1:0");
    assert_eq!(numbers(), [1, 3], "somebody is there who came by 2");
    here.write_blocks(64, &pattern(64, 8, 1), true);
    drop(here);
    wait_until("the number that is free", PATIENCE, || {
        remove(last);
        last = place.add("reflex://127.0.0.1:0");
        numbers() == [1, 2]
    });
    // By another name for workers, and it serves.
    let mut by_it = V2::connect(last);
    assert_eq!(by_it.read_blocks(64, 8), pattern(64, 8, 1));
    let listed = place.client().connections().unwrap().connections;
    assert_eq!(listed.iter().map(|one| one.listener).collect::<Vec<_>>(), [2]);
}

#[test]
fn who_came_by_a_listener_that_is_removed_stays_unless_it_is_drained() {
    let place = ServerFolder::with("");
    let server = place.start();
    let first = place.add(&format!("reflex://{}", free_port()));
    let mut here: Vec<V2> = (0..4).map(|_| V2::connect(first)).collect();
    let mut old = V1::connect(first);
    old.set(1, 64, &pattern(64, 8, 2));
    old.expect_written(1, 64);
    let told = place.told(&["listener", "rm", &format!("reflex://{first}")]);
    let stay = format!("removed reflex://{first}; 5 connections that came by it stay\n");
    assert_eq!(told, stay);
    assert!(is_closed(first), "nobody listens there");
    // Also at another worker, and when they say who they are only now.
    let connections = place.client().connections().unwrap().connections;
    for one in connections.iter().filter(|one| one.listener == 2) {
        let to = 1 - one.worker;
        place.client().move_connection(&one.id, to).unwrap();
    }
    for v2 in &mut here {
        assert_eq!(v2.read_blocks(64, 8), pattern(64, 8, 2));
    }
    old.get(2, 64, 8);
    assert_eq!(old.expect_data(2, 64, 8), pattern(64, 8, 2));
    // Its number is not used again, or its connections would count as another's.
    let second = place.add(&format!("reflex://{}", free_port()));
    assert_eq!(place.listed()[1], (3, format!("reflex://{second}")));
    let mut there = V2::connect(second);
    let told = place.told(&["listener", "rm", "3", "--drain"]);
    assert!(told.starts_with(&format!("removed reflex://{second}")), "{told}");
    loop {
        match there.answer() {
            Answer::Notice(_) => {}
            Answer::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(is_closed(second));
    assert_eq!(here[0].call(READ, &[]).0, Status::Ok);
    place.told(&["listener", "rm", "1"]);
    assert!(is_closed(server.address()));
    assert_eq!(place.told(&["listener", "list"]), "there is no listener\n");
    // And the same address once more.
    assert_eq!(place.add(&format!("reflex://{first}")), first);
    assert_eq!(V2::connect(first).call(READ, &[]).0, Status::Ok);
}

#[test]
fn a_listener_that_cannot_be_is_refused_with_the_reason() {
    let place = ServerFolder::with("");
    let server = place.start();
    let before = place.listed();
    let taken = format!("reflex://{}", server.address());
    for (url, word) in [
        (taken.as_str(), "is another server running there?"),
        ("reflex://127.0.0.1:0?namespace=9", "there is no namespace 9"),
        ("reflex://127.0.0.1:0?tenant=gold", "there is no tenant \"gold\""),
        ("reflex://0.0.0.0:0", "no [[access]] rule"),
        ("http://127.0.0.1:1", "expected reflex://HOST:PORT"),
        ("reflex+unix:/nowhere/at/all.sock", "/nowhere/at/all.sock"),
        // The card is not looked for.
        ("reflex+eth://nosuchcard", "where it did at its start"),
        ("reflex+udp://127.0.0.1:0", "where it did at its start"),
    ] {
        let said = place.refused(&["listener", "add", url]);
        assert!(said.contains(word), "{url}: {said}");
    }
    let address = server.address().to_string();
    assert!(place.told(&["listener", "show", &address]).contains(&taken), "without its protocol");
    let said = place.refused(&["listener", "rm", "7"]);
    assert!(said.contains("there is no listener \"7\"") && said.contains(&taken), "{said}");
    assert_eq!(place.listed(), before);
    assert_eq!(place.add("reflex://127.0.0.1:0").ip(), server.address().ip());
}

#[test]
fn the_first_listener_of_hosts_may_be_a_new_one() {
    let place = ServerFolder::with(&format!("[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n"));
    let _server = place.start();
    let first = place.add(&format!("nvme-tcp://{}", free_port()));
    let slip = "nqn.2014-08.org.nvmexpress:uuid:…";
    for words in [&["subsystem", "allow", SUBSYSTEM, slip][..], &["host", "add", slip]] {
        let said = place.refused(words);
        assert!(said.contains("a UUID behind"), "{said}");
    }
    let mut host = NvmeQueue::admin(first, 1, SUBSYSTEM).unwrap();
    let mut io = host.io(first, 1, SUBSYSTEM);
    assert_eq!(host.namespaces(), [1]);
    io.write(1, 3, &[7; 512]).unwrap();
    let mut discovery = NvmeQueue::discovery(first, 2);
    let entries = |discovery: &mut NvmeQueue| {
        let log = discovery.log(LogPage::DISCOVERY, 8192);
        let own = |entry: &&[u8]| entry[256..].starts_with(SUBSYSTEM.as_bytes());
        log[1024..].chunks_exact(1024).filter(own).count()
    };
    assert_eq!(entries(&mut discovery), 1);
    let second = place.add("nvme-tcp://127.0.0.1:0");
    assert_eq!(discovery.event(), Event::DISCOVERY);
    assert_eq!(entries(&mut discovery), 2);
    // Ways have states by their listeners' numbers.
    let mut other = NvmeQueue::admin(second, 1, SUBSYSTEM).unwrap();
    place.told(&["listener", "ana", "3", "inaccessible"]);
    assert_eq!(other.event(), Event::ANA);
    assert!(!host.has_event(), "its way is another");
    place.told(&["listener", "rm", "2"]);
    assert_eq!(discovery.event(), Event::DISCOVERY);
    assert_eq!(entries(&mut discovery), 1);
    assert!(is_closed(first));
    assert_eq!(io.read(1, 3), Ok(vec![7; 512]), "who is connected stays");
    let listed = place.json(&["listener", "list"]);
    assert_eq!(listed["listeners"][1]["ana"][0]["state"], "inaccessible");
    // What was said of a way goes with it.
    place.told(&["listener", "rm", "3", "--drain"]);
    let shown = place.json(&["subsystem", "show", SUBSYSTEM]);
    assert_eq!(shown["ana"], serde_json::json!([]));
    let third = place.add("nvme-tcp://127.0.0.1:0");
    assert_eq!(NvmeQueue::admin(third, 3, SUBSYSTEM).unwrap().namespaces(), [1]);
}

/// Checks that a server starts whose state file contains ANA states of a listener that the
/// configuration no longer has. No operator can edit that file.
#[test]
fn what_was_said_of_a_listener_that_the_configuration_has_no_more_holds_up_no_start() {
    let place = ServerFolder::with("");
    let subsystem = format!("[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n");
    let of_hosts = "[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n".repeat(2);
    let (with, without) = (format!("{of_hosts}{subsystem}"), &of_hosts[..of_hosts.len() / 2]);
    let without = format!("{without}{subsystem}");
    place.configure(&with);
    let states = || {
        let shown = place.json(&["subsystem", "show", SUBSYSTEM]);
        let ana = shown["ana"].as_array().unwrap().iter();
        let each = ana.map(|one| (one["listener"].as_u64().unwrap(), one["state"].to_string()));
        each.collect::<Vec<_>>()
    };
    let inaccessible = vec![(2, "\"inaccessible\"".to_owned())];
    let mut server = place.start();
    place.told(&["listener", "ana", "2", "inaccessible"]);
    assert_eq!(states(), inaccessible);
    // A reload takes it as a start does.
    place.configure(&without);
    server.hang_up();
    server.await_log("listener 2");
    wait_until("the reload", PATIENCE, || place.listed().len() == 1);
    assert_eq!(states(), []);
    server.kill();
    let mut server = place.start();
    server.await_log("what was said of listener 2");
    assert_eq!((states(), place.listed().len()), (vec![], 1));
    // It is said of no other listener, and of it when it is back.
    place.add("nvme-tcp://127.0.0.1:0");
    assert_eq!(place.listed().iter().map(|one| one.0).collect::<Vec<_>>(), [1, 3]);
    place.configure(&with);
    server.kill();
    let _server = place.start();
    assert_eq!(states(), inaccessible);
}

#[test]
fn a_tenant_stays_while_a_listener_or_who_came_by_it_is_there() {
    let place = ServerFolder::with("[[tenant]]\nname = \"other\"\n");
    let _server = place.start();
    place.told(&["tenant", "add", "gold"]);
    let at = place.add("reflex://127.0.0.1:0?tenant=gold");
    let mut client = V2::connect(at);
    let said = place.refused(&["tenant", "rm", "gold"]);
    assert!(said.contains(&format!("the listener {at}")), "{said}");
    place.told(&["listener", "rm", "2"]);
    let said = place.refused(&["tenant", "rm", "gold"]);
    assert!(said.contains("which was removed"), "{said}");
    assert_eq!(client.call(READ, &[]).0, Status::Ok);
    drop(client);
    wait_until("the end of the connection", PATIENCE, || {
        place.run(&["tenant", "rm", "gold"]).status.success()
    });
}

#[test]
fn a_reload_opens_and_closes_listeners_and_says_what_it_cannot() {
    let (one, two) = (free_port().port(), free_port().port());
    let listen = |ports: &[u16]| {
        let one = |port: &u16| format!("[[listen]]\nurl = \"reflex://127.0.0.1:{port}\"\n");
        ports.iter().map(one).collect::<String>()
    };
    let place = ServerFolder::with("");
    place.configure(&listen(&[one]));
    let server = place.start();
    let added = place.add("reflex://127.0.0.1:0");
    let mut client = V2::connect(server.address());
    place.configure(&listen(&[one, two]));
    server.hang_up();
    let there = SocketAddr::from(([127, 0, 0, 1], two));
    wait_until("the new listener", PATIENCE, || !is_closed(there));
    assert_eq!(V2::connect(there).call(READ, &[]).0, Status::Ok);
    let numbers: Vec<u64> = place.listed().iter().map(|one| one.0).collect();
    assert_eq!(numbers, [1, 2, 3], "the one that was added keeps its number");
    // At the address of the first would be another now.
    let url = format!("reflex://127.0.0.1:{one}?tenant=default");
    place.configure(&format!("[[listen]]\nurl = \"{url}\"\n{}", listen(&[two])));
    server.hang_up();
    server.await_log("these need an upgrade or a restart: [[listen]] (listener 1 at");
    assert_eq!(V2::connect(server.address()).call(READ, &[]).0, Status::Ok);
    // The second is the first in the file, and is numbered so.
    place.configure(&listen(&[two, one]));
    server.hang_up();
    let numbered = |port: u16| {
        let all = place.listed().into_iter();
        all.filter(|(_, url)| url.ends_with(&format!(":{port}"))).map(|(n, _)| n).next()
    };
    wait_until("the other numbers", PATIENCE, || numbered(two) == Some(1));
    assert_eq!((numbered(one), numbered(added.port())), (Some(3), Some(2)));
    assert_eq!(client.call(READ, &[]).0, Status::Ok);
    place.configure(&listen(&[one]));
    server.hang_up();
    wait_until("its end", PATIENCE, || is_closed(there));
    assert_eq!(client.call(READ, &[]).0, Status::Ok);
    assert_eq!(V2::connect(added).call(READ, &[]).0, Status::Ok);
    place.configure(&listen(&[one, two]));
    server.hang_up();
    wait_until("it again", PATIENCE, || !is_closed(there));
    let mut again = V2::connect(there);
    assert_eq!(again.call(READ, &[]).0, Status::Ok);
    let connections = place.client().connections().unwrap().connections;
    assert!(connections.iter().any(|one| one.listener == 3), "{connections:?}");
    place.configure(&listen(&[one]));
    server.hang_up();
    wait_until("its end again", PATIENCE, || is_closed(there));
    // What cannot be bound leaves everything as it was.
    place.configure(&listen(&[one, two, added.port()]));
    server.hang_up();
    server.await_log("nothing has changed");
    assert!(is_closed(there), "the one that could be bound neither");
}

#[test]
fn a_reload_opens_a_listener_that_leads_to_a_namespace_of_the_same_reload() {
    let space = |n: u32| {
        let offset = 4 * (n - 1);
        format!("[[namespace]]\ndevice = \"disk\"\noffset = \"{offset}MiB\"\nsize = \"4MiB\"\n")
            .replace("\"0MiB\"", "\"0\"")
    };
    let place = ServerFolder::with(&space(1));
    let server = place.start();
    let there = free_port();
    let first = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
    let listen = |n: u32| format!("{first}[[listen]]\nurl = \"reflex://{there}?namespace={n}\"\n");
    place.configure(&format!("{}{}{}", listen(2), space(1), space(2)));
    server.hang_up();
    wait_until("the new listener", PATIENCE, || !is_closed(there));
    assert_eq!(V2::connect(there).call(READ, &[]).0, Status::Ok);
    // To one that is nowhere.
    place.configure(&format!("{}{}", listen(3), space(1)));
    server.hang_up();
    server.await_log("there is no namespace 3");
}

#[test]
fn an_upgrade_takes_them_over_and_who_came_by_one_that_is_gone() {
    let place = ServerFolder::with("[[tenant]]\nname = \"gold\"\n[[tenant]]\nname = \"default\"\n");
    let mut old = place.start();
    let stays = place.add("reflex://127.0.0.1:0?tenant=gold");
    let goes = place.add(&format!("reflex://{}?tenant=gold", free_port()));
    let mut clients = [V2::connect(stays), V2::connect(goes)];
    let mut silent = V1::connect(goes);
    clients[0].write_blocks(64, &pattern(64, 8, 5), true);
    place.told(&["listener", "rm", "3"]);
    for _ in 0..2 {
        let new = place.launch().with("--upgrade").start();
        assert!(old.wait().success(), "it ends in order");
        for client in &mut clients {
            assert_eq!(client.read_blocks(64, 8), pattern(64, 8, 5), "the same connections");
        }
        silent.get(2, 64, 8);
        assert_eq!(silent.expect_data(2, 64, 8), pattern(64, 8, 5));
        let tenants = place.client().connections().unwrap().connections;
        assert!(tenants.iter().all(|one| one.tenant.as_deref() == Some("gold")), "{tenants:?}");
        assert_eq!(V2::connect(stays).read_blocks(64, 8), pattern(64, 8, 5));
        assert!(is_closed(goes));
        let said = place.refused(&["tenant", "rm", "gold"]);
        assert!(said.contains(&format!("the listener {stays}")), "{said}");
        old = new;
    }
    let again = place.add(&format!("reflex://{goes}"));
    assert_eq!(V2::connect(again).call(READ, &[]).0, Status::Ok);
}

#[test]
fn opening_and_closing_is_put_on_record() {
    let place = ServerFolder::with("");
    let log = place.path("audit.log");
    place.configure(&format!(
        "[admin]\naudit = \"{}\"\n[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
        log.display()
    ));
    let _server = place.start();
    let at = place.add("reflex://127.0.0.1:0");
    place.told(&["listener", "rm", "2"]);
    let records = std::fs::read_to_string(log).unwrap();
    let about = |method: &str| {
        let line = records.lines().find(|line| line.contains(method)).expect(method).to_owned();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let (opened, closed) = (about("\"POST\""), about("\"DELETE\""));
    let url = format!("reflex://{at}");
    assert_eq!(
        (&opened["outcome"], &opened["after"]["url"]),
        (&"done".into(), &url.clone().into())
    );
    assert_eq!((&closed["outcome"], &closed["before"]["url"]), (&"done".into(), &url.into()));
}

/// Kills the server at random instants of changes. At its next start the listeners must be as after
/// the last change that was answered, or after the one that was in progress. `NEARFLASH_KILLS` is
/// the number of kills.
#[test]
fn a_kill_at_any_instant_leaves_the_listeners_before_or_after_a_change() {
    let place = ServerFolder::with("");
    let config = "[[device]]\nname = \"disk\"\nspec = \"null:1MiB\"\n\
                  [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
    place.write_configuration(config);
    let (kills, mut dice) = (kills(6), Rng::of(0x9e37_79b9_7f4a_7c15));
    // Numbers of listeners besides the first, as answered and as asked for.
    let (mut answered, mut asked): (Vec<u16>, Option<Vec<u16>>) = (Vec::new(), None);
    let (mut old, mut new) = (0_u32, 0_u32);
    // Not ports, which other programs may take between two servers.
    let socket = |n: u32| place.path(&format!("{n}.sock")).display().to_string();
    let mut added = 0;
    for _ in 0..kills {
        let mut server = place.start();
        let mut client = place.client();
        let there: Vec<u16> = client.read::<Listeners>().unwrap().listeners[1..]
            .iter()
            .map(|one| one.number)
            .collect();
        // One that was added has a number that was not answered.
        let is_new = asked.as_ref().is_some_and(|asked| {
            there.len() == asked.len()
                && asked.iter().all(|number| *number == 0 || there.contains(number))
        });
        answered.sort_unstable();
        assert!(there == answered || is_new, "{there:?}: neither {answered:?} nor {asked:?}");
        if asked.take().is_some() {
            *(if is_new { &mut new } else { &mut old }) += 1;
        }
        answered = there;
        let window = if dice.roll(4) == 0 { 60_000 } else { 6_000 };
        let delay = Duration::from_micros(dice.roll(window));
        std::thread::scope(|scope| {
            let (answered, asked, added) = (&mut answered, &mut asked, &mut added);
            let socket = &socket;
            let changes = scope.spawn(move || {
                loop {
                    let mut after = answered.clone();
                    let done = match after.len() < 3 {
                        true => {
                            after.push(0);
                            *asked = Some(after.clone());
                            *added += 1;
                            let url = format!("reflex+unix:{}", socket(*added));
                            let made = client.send(&AddListener::from_argument(&url));
                            made.map(|one| *after.last_mut().expect("pushed") = one.number)
                        }
                        false => {
                            let number = after.remove(0).to_string();
                            *asked = Some(after.clone());
                            client.send_to(&number, &RemoveListener::default()).map(drop)
                        }
                    };
                    match done {
                        Ok(()) => (*answered, *asked) = (after, None),
                        Err(_) => return, // it was killed
                    }
                }
            });
            std::thread::sleep(delay);
            server.kill();
            changes.join().unwrap();
        });
    }
    println!("{kills} kills: {old} found the state before a change, {new} the one after it");
}
