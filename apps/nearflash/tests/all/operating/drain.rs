//! Tests of listeners and workers that are drained while the server runs.

use std::time::Duration;

use crate::support::{
    Answer, Launch, NvmeQueue, Operator, PATIENCE, RunningServer, ServerFolder, V1, V2, now,
    wait_until,
};
use contract::{Command, Hello, Notice, Range, Status};
use control::admin::{Code, Connection, ListenerState, Listeners, SetWorker, WorkerState};

const SUBSYSTEM: &str = "nqn.2026-11.org.example:drained";

/// Starts a server with two listeners for clients and one for hosts, over a device of this spec.
fn start(spec: &str) -> RunningServer {
    let config = format!(
        "[[device]]\nname = \"slow\"\nspec = \"{spec}\"\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n"
    );
    RunningServer::start(ServerFolder::new(), &config)
}

fn states(running: &RunningServer) -> Vec<ListenerState> {
    running.client().read::<Listeners>().unwrap().listeners.iter().map(|one| one.state).collect()
}

/// Checks the time that a draining server asks its service manager for. A manager kills a process
/// that takes longer to stop than its unit allows, unless the process asks for more time.
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
    let running = start("mem:16MiB");
    let (first, second) = (running.server.listener(0), running.server.listener(1));
    let mut here: Vec<V2> = (0..4).map(|_| V2::connect(first)).collect();
    let (mut old, mut there) = (V1::connect(first), V2::connect(second));
    assert_eq!(states(&running), [Open; 3]);
    running.client().drain_listener("1", 10_000).unwrap();
    for v2 in &mut here {
        assert_eq!(v2.answer(), Answer::Notice(Notice::Draining));
        v2.expect_end(PATIENCE);
    }
    old.expect_end(PATIENCE);
    wait_until("nobody", PATIENCE, || states(&running) == [Drained, Open, Open]);
    V1::connect(first).expect_end(PATIENCE);
    assert_eq!(there.call(READ, &[]).0, Status::Ok);
    assert_eq!(V2::connect(second).call(READ, &[]).0, Status::Ok);
    running.client().resume_listener("1").unwrap();
    assert_eq!(states(&running), [Open; 3]);
    let mut again = V2::connect(first);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(again.call(READ, &[]).0, Status::Ok);
    assert!(running.client().drain_listener("9", 1).is_err());
}

#[test]
fn what_is_in_flight_ends_first_and_not_for_ever() {
    let running = start("mem:16MiB?delay=8s");
    let address = running.server.listener(0);
    for (deadline_ms, is_answered) in [(60_000, true), (1_000, false)] {
        let mut v2 = V2::hello(address, Hello::default()).unwrap();
        v2.send(7, READ, &[]);
        wait_until("a request", PATIENCE, || {
            running.client().connections().unwrap().connections.iter().any(|one| one.in_flight > 0)
        });
        let begun = now();
        let told = running.client().drain_listener("1", deadline_ms).unwrap();
        assert_eq!(told.state, ListenerState::Draining);
        let answered = v2.is_answered_before_its_end(7);
        assert_eq!(answered, is_answered, "{deadline_ms} ms, ended after {:?}", now() - begun);
        running.client().resume_listener("1").unwrap();
    }
}

/// Checks that a client that asks for much and reads nothing is ended, and that other clients are
/// not.
#[test]
fn one_abusive_client_is_ended_and_the_others_stay() {
    let running = start("mem:16MiB");
    let address = running.server.listener(0);
    let mut others: Vec<V2> = (0..3).map(|_| V2::connect(address)).collect();
    let mut rude = V1::connect(running.server.listener(1));
    (1..=100).for_each(|handle| rude.get(handle, 1024, 2048));
    let find = || {
        let all = running.client().connections().unwrap().connections;
        all.into_iter().find(|one| one.listener == 2 && one.messages > 0)
    };
    let mut found = None;
    wait_until("its requests", PATIENCE, || {
        found = find();
        found.is_some()
    });
    let id = found.unwrap().id;
    let shown = running.client().get::<Connection>(&id).unwrap();
    assert_eq!((shown.id.as_str(), shown.listener, shown.ending), (id.as_str(), 2, false));
    assert!(running.told(&["conn", "show", &id]).starts_with(&format!("connection {id}\n  peer ")));
    let ending = running.client().end_connection(&id, 300).unwrap();
    assert!(ending.ending && ending.id == id);
    wait_until("its end", PATIENCE, || running.client().get::<Connection>(&id).is_err());
    // What its socket had taken is still there for it to read.
    drop(rude);
    let error = running.client().end_connection(&id, 1).unwrap_err();
    assert_eq!(error.code(), Some(Code::NoConnection));
    assert!(error.to_string().starts_with(&format!("there is no connection {id} (any more)")));
    let code = |id| running.client().get::<Connection>(id).unwrap_err().code();
    assert_eq!(code("0:9999999.0"), Some(Code::NoConnection));
    assert_eq!((code("9:0.0"), code("x")), (Some(Code::NoWorker), Some(Code::Invalid)));
    others.iter_mut().for_each(|v2| assert_eq!(v2.call(READ, &[]).0, Status::Ok));
    // It may come again.
    assert_eq!(V2::connect(running.server.listener(1)).call(READ, &[]).0, Status::Ok);
}

#[test]
fn the_last_requests_of_a_connection_that_is_ended_are_answered_in_time() {
    let running = start("mem:16MiB?delay=6s");
    for (deadline, is_answered) in [("60", true), ("0", false)] {
        let mut v2 = V2::hello(running.server.listener(0), Hello::default()).unwrap();
        v2.send(7, READ, &[]);
        let find = || {
            let all = running.client().connections().unwrap().connections;
            all.into_iter().find(|one| one.in_flight > 0).map(|one| one.id)
        };
        let mut id = None;
        wait_until("a request", PATIENCE, || {
            id = find();
            id.is_some()
        });
        let said = running.told(&["conn", "end", &id.unwrap(), "--deadline", deadline]);
        assert!(said.contains(&format!("its 1 request in flight, or in {deadline} s")), "{said}");
        let answered = v2.is_answered_before_its_end(7);
        assert_eq!(answered, is_answered, "{deadline} s");
    }
}

/// Checks that a drained worker ends a connection that cannot move: replies to a client that does
/// not read them hold the worker's buffers.
#[test]
fn a_drained_worker_ends_what_cannot_move() {
    let running = start("mem:16MiB");
    let mut clients: Vec<V2> = (0..4).map(|_| V2::connect(running.server.listener(0))).collect();
    // Of those by one listener each worker gets one.
    let mut hosts: Vec<NvmeQueue> = (1..=2)
        .map(|n| NvmeQueue::admin(running.server.listener(2), n, SUBSYSTEM).unwrap())
        .collect();
    let rude: Vec<V1> = (0..2)
        .map(|_| {
            let mut rude = V1::connect(running.server.listener(1));
            (1..=100).for_each(|handle| rude.get(handle, 1024, 2048));
            rude
        })
        .collect();
    // Before its worker has met its requests such a client is as quiet as the others, and moves.
    wait_until("replies that nobody reads", PATIENCE, || {
        let all = running.client().connections().unwrap().connections;
        all.iter().filter(|one| one.listener == 2 && one.messages > 0).count() == rude.len()
    });
    let worker = || running.client().workers().unwrap().workers.swap_remove(1);
    let held = worker().connections;
    assert!(held >= 3, "{held}");
    running
        .client()
        .send_to(
            &1.to_string(),
            &SetWorker { state: WorkerState::Parked, deadline_ms: Some(600_000) },
        )
        .unwrap();
    wait_until("the rude one alone", PATIENCE, || worker().connections == 1);
    assert_eq!(worker().state, WorkerState::Retiring);
    running
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
