//! Listeners and workers that are drained while the server runs.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::{
    Answer, Launch, NvmeQueue, Operator, PATIENCE, Server, V1, V2, now, wait_until,
};
use contract::{Command, Hello, Notice, Range, Status};
use control::admin::{
    AdminAddress, Client, Code, Connection, ListenerState, Listeners, SetWorker, WorkerState,
};

const SUBSYSTEM: &str = "nqn.2026-11.org.example:drained";

/// A server with two listeners for clients and one for hosts, whose device takes its time.
struct Place {
    folder: tempfile::TempDir,
    server: Server,
}

impl Place {
    fn start(spec: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let config = format!(
            "[[device]]\nname = \"slow\"\nspec = \"{spec}\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n"
        );
        let words = ["--workers", "2", "--admin", socket.to_str().unwrap()];
        let server = words.iter().fold(Launch::config(&config), |l, word| l.with(word)).start();
        Place { folder, server }
    }

    fn client(&self) -> Client {
        let socket: PathBuf = self.folder.path().join("admin.sock");
        Client::new(AdminAddress::Unix(socket)).unwrap()
    }

    fn states(&self) -> Vec<ListenerState> {
        self.client().read::<Listeners>().unwrap().listeners.iter().map(|one| one.state).collect()
    }
}

impl Operator for Place {
    fn admin(&self) -> String {
        self.folder.path().join("admin.sock").display().to_string()
    }
}

/// A service manager kills who takes longer than its unit says, unless it is asked for more.
#[test]
fn a_server_asks_its_manager_for_as_much_time_as_it_may_take_to_drain() {
    let folder = tempfile::tempdir().unwrap();
    let notified = folder.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&notified).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = "[limits]\ndrain_seconds = 3600\n\
                  [[device]]\nname = \"disk\"\nspec = \"null:1MiB\"\n\
                  [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
    let variable = format!("export NOTIFY_SOCKET={}", notified.display());
    let mut server = Launch::config(config).after(&[], &variable).start();
    let heard = || {
        let mut words = [0; 256];
        let length = manager.recv(&mut words).expect("it says something");
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    assert!(heard().contains("READY=1"));
    server.terminate();
    assert_eq!(heard().trim(), "EXTEND_TIMEOUT_USEC=3620000000");
    assert!(server.wait().success());
}

const READ: Command = Command::Read(Range::new(0, 8));

#[test]
fn a_drained_listener_ends_who_came_by_it_and_turns_others_away() {
    use ListenerState::{Drained, Open};
    let place = Place::start("mem:16MiB");
    let (first, second) = (place.server.listener(0), place.server.listener(1));
    let mut here: Vec<V2> = (0..4).map(|_| V2::connect(first)).collect();
    let (mut old, mut there) = (V1::connect(first), V2::connect(second));
    assert_eq!(place.states(), [Open; 3]);
    place.client().drain_listener("1", 10_000).unwrap();
    for v2 in &mut here {
        assert_eq!(v2.answer(), Answer::Notice(Notice::Draining));
        v2.expect_end(PATIENCE);
    }
    old.expect_end(PATIENCE);
    wait_until("nobody", PATIENCE, || place.states() == [Drained, Open, Open]);
    V1::connect(first).expect_end(PATIENCE);
    assert_eq!(there.call(READ, &[]).0, Status::Ok);
    assert_eq!(V2::connect(second).call(READ, &[]).0, Status::Ok);
    place.client().resume_listener("1").unwrap();
    assert_eq!(place.states(), [Open; 3]);
    let mut again = V2::connect(first);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(again.call(READ, &[]).0, Status::Ok);
    assert!(place.client().drain_listener("9", 1).is_err());
}

#[test]
fn what_is_in_flight_ends_first_and_not_for_ever() {
    let place = Place::start("mem:16MiB?delay=4s");
    let address = place.server.listener(0);
    for (deadline_ms, is_answered) in [(60_000, true), (1_000, false)] {
        let mut v2 = V2::hello(address, Hello::default()).unwrap();
        v2.send(7, READ, &[]);
        wait_until("a request", PATIENCE, || {
            place.client().connections().unwrap().connections.iter().any(|one| one.in_flight > 0)
        });
        let begun = now();
        let told = place.client().drain_listener("1", deadline_ms).unwrap();
        assert_eq!(told.state, ListenerState::Draining);
        let answered = v2.is_answered_before_its_end(7);
        assert_eq!(answered, is_answered, "{deadline_ms} ms, ended after {:?}", now() - begun);
        place.client().resume_listener("1").unwrap();
    }
}

/// One client that asks for much and reads nothing, among others.
#[test]
fn one_abusive_client_is_ended_and_the_others_stay() {
    let place = Place::start("mem:16MiB");
    let address = place.server.listener(0);
    let mut others: Vec<V2> = (0..3).map(|_| V2::connect(address)).collect();
    let mut rude = V1::connect(place.server.listener(1));
    (1..=100).for_each(|handle| rude.get(handle, 1024, 2048));
    let find = || {
        let all = place.client().connections().unwrap().connections;
        all.into_iter().find(|one| one.listener == 2 && one.messages > 0)
    };
    wait_until("its requests", PATIENCE, || find().is_some());
    let id = find().unwrap().id;
    let shown = place.client().get::<Connection>(&id).unwrap();
    assert_eq!((shown.id.as_str(), shown.listener, shown.ending), (id.as_str(), 2, false));
    assert!(place.told(&["conn", "show", &id]).starts_with(&format!("connection {id}\n  peer ")));
    let ending = place.client().end_connection(&id, 300).unwrap();
    assert!(ending.ending && ending.id == id);
    wait_until("its end", PATIENCE, || place.client().get::<Connection>(&id).is_err());
    // What its socket had taken is still there for it to read.
    drop(rude);
    let error = place.client().end_connection(&id, 1).unwrap_err();
    assert_eq!(error.code(), Some(Code::NoConnection));
    assert!(error.to_string().starts_with(&format!("there is no connection {id} (any more)")));
    let code = |id| place.client().get::<Connection>(id).unwrap_err().code();
    assert_eq!(code("0:9999999.0"), Some(Code::NoConnection));
    assert_eq!((code("9:0.0"), code("x")), (Some(Code::NoWorker), Some(Code::Invalid)));
    others.iter_mut().for_each(|v2| assert_eq!(v2.call(READ, &[]).0, Status::Ok));
    // It may come again.
    assert_eq!(V2::connect(place.server.listener(1)).call(READ, &[]).0, Status::Ok);
}

#[test]
fn the_last_requests_of_a_connection_that_is_ended_are_answered_in_time() {
    let place = Place::start("mem:16MiB?delay=700ms");
    for (deadline, is_answered) in [("10", true), ("0", false)] {
        let mut v2 = V2::hello(place.server.listener(0), Hello::default()).unwrap();
        v2.send(7, READ, &[]);
        let find = || {
            let all = place.client().connections().unwrap().connections;
            all.into_iter().find(|one| one.in_flight > 0).map(|one| one.id)
        };
        wait_until("a request", PATIENCE, || find().is_some());
        let said = place.told(&["conn", "end", &find().unwrap(), "--deadline", deadline]);
        assert!(said.contains(&format!("its 1 request in flight, or in {deadline} s")), "{said}");
        let answered = v2.is_answered_before_its_end(7);
        assert_eq!(answered, is_answered, "{deadline} s");
    }
}

/// Who does not read what it asked for has its replies in the worker's buffers.
#[test]
fn a_drained_worker_ends_what_cannot_move() {
    let place = Place::start("mem:16MiB");
    let mut clients: Vec<V2> = (0..4).map(|_| V2::connect(place.server.listener(0))).collect();
    // Of those by one listener each worker gets one.
    let mut hosts: Vec<NvmeQueue> = (1..=2)
        .map(|n| NvmeQueue::admin(place.server.listener(2), n, SUBSYSTEM).unwrap())
        .collect();
    let rude: Vec<V1> = (0..2)
        .map(|_| {
            let mut rude = V1::connect(place.server.listener(1));
            (1..=100).for_each(|handle| rude.get(handle, 1024, 2048));
            rude
        })
        .collect();
    // Before its worker has met its requests such a client is as quiet as the others, and moves.
    wait_until("replies that nobody reads", PATIENCE, || {
        let all = place.client().connections().unwrap().connections;
        all.iter().filter(|one| one.listener == 2 && one.messages > 0).count() == rude.len()
    });
    let worker = || place.client().workers().unwrap().workers.swap_remove(1);
    let held = worker().connections;
    assert!(held >= 3, "{held}");
    place
        .client()
        .send_to(
            &1.to_string(),
            &SetWorker { state: WorkerState::Parked, deadline_ms: Some(600_000) },
        )
        .unwrap();
    wait_until("the rude one alone", PATIENCE, || worker().connections == 1);
    assert_eq!(worker().state, WorkerState::Retiring);
    place
        .client()
        .send_to(
            &1.to_string(),
            &SetWorker { state: WorkerState::Parked, deadline_ms: Some(1_000) },
        )
        .unwrap();
    wait_until("its end", PATIENCE, || worker().state == WorkerState::Parked);
    assert_eq!(worker().connections, 0);
    clients.iter_mut().for_each(|v2| assert_eq!(v2.call(READ, &[]).0, Status::Ok));
    for host in &mut hosts {
        host.namespaces();
    }
    drop(rude);
}
