//! Tests of the drain of the whole server, ordered over its admin API.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{
    Answer, Launch, Operator, PATIENCE, RunningServer, ServerFolder, V2, nearflash, wait_until,
};
use contract::{Command, Hello, Notice, Range};
use control::admin::{AdminAddress, Client, Code, Drain, DrainServer, DrainState};

const READ: Command = Command::Read(Range::new(0, 8));

/// Starts a server with a device of this spec, which drains for at most a second.
fn start(spec: &str) -> RunningServer {
    let place = ServerFolder::new();
    let config = format!(
        "[admin]\naudit = \"{}\"\n[limits]\ndrain_seconds = 1\n\
         [[device]]\nname = \"slow\"\nspec = \"{spec}\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
        place.path("audit.log").display()
    );
    RunningServer::start(place, &config)
}

/// Connects a client with a read in flight at the device, and a client that is idle.
fn clients(running: &RunningServer) -> (V2, V2) {
    let mut busy = V2::hello(running.server.address(), Hello::default()).unwrap();
    let idle = V2::hello(running.server.address(), Hello::default()).unwrap();
    busy.send(7, READ, &[]);
    wait_until("a request", PATIENCE, || {
        let all = running.client().connections().unwrap().connections;
        all.iter().any(|one| one.in_flight > 0) && all.len() == 2
    });
    (busy, idle)
}

#[test]
fn a_server_that_is_drained_answers_what_it_has_and_ends_and_says_how_far_it_is() {
    let mut running = start("mem:16MiB?delay=9s");
    let (mut busy, mut idle) = clients(&running);
    assert!(running.told(&["drain", "--show"]).starts_with("serving: 2 connections, "));
    let mut command = nearflash(&["drain", "--deadline", "600", "--admin", &running.admin()]);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(idle.answer(), Answer::Notice(Notice::Draining));
    idle.expect_end(PATIENCE);
    let mut drain = None;
    wait_until("the idle one's end", PATIENCE, || {
        drain = running.client().read::<Drain>().ok();
        drain.is_none_or(|drain| drain.connections == 1)
    });
    let Drain { state, in_flight, left_ms, .. } = drain.expect("one is busy still");
    assert_eq!((state, in_flight), (DrainState::Draining, 1));
    assert!(left_ms.is_some_and(|ms| (500_000..=600_000).contains(&ms)), "{left_ms:?}");
    // Nobody else is let in, and nothing is begun that would not last.
    let knock = || std::net::TcpStream::connect(running.server.address());
    wait_until("nobody gets in", PATIENCE, || knock().is_err());
    let added = running.run(&["listener", "add", "reflex://127.0.0.1:0"]);
    assert!(crate::support::complaint(&added).contains("this server is draining"));
    assert!(busy.is_answered_before_its_end(7));
    assert!(running.server.wait().success());
    assert!(watching.wait().unwrap().success());
    let mut said = String::new();
    watching.stdout.unwrap().read_to_string(&mut said).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("draining: ") && lines[0].ends_with(" s left"), "{said}");
    assert_eq!(lines.last(), Some(&"the server has ended"));
    let audit = std::fs::read_to_string(running.place.path("audit.log")).unwrap();
    let line: serde_json::Value = serde_json::from_str(audit.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["method"], &line["path"], &line["outcome"]),
        (&"POST".into(), &"/v1/drain".into(), &"done".into())
    );
    assert_eq!(line["after"]["state"], "draining");
}

#[test]
fn what_takes_too_long_ends_with_the_time_of_the_order_or_else_of_the_configuration() {
    for words in [&["drain", "--deadline", "1"][..], &["drain"]] {
        let mut running = start("mem:16MiB?delay=6s");
        let (mut busy, _idle) = clients(&running);
        let said = running.json(words);
        assert_eq!(said["ended"], true);
        assert!(!busy.is_answered_before_its_end(7), "{words:?}");
        assert!(running.server.wait().success());
    }
}

#[test]
fn a_drain_that_is_asked_for_again_has_another_time_and_a_signal_a_short_one() {
    let mut running = start("mem:16MiB?delay=8s");
    let (mut busy, _idle) = clients(&running);
    let left = |drain: Drain| Duration::from_millis(drain.left_ms.unwrap()).as_secs();
    assert!(left(running.client().send(&DrainServer { deadline_ms: Some(20_000) }).unwrap()) < 21);
    assert!(
        left(running.client().send(&DrainServer { deadline_ms: Some(900_000) }).unwrap()) > 600
    );
    // Somebody else would wait as long as that.
    let upgrade = running.run(&["drain", "--no-wait", "--deadline", "800"]);
    assert!(upgrade.status.success());
    running.server.terminate();
    wait_until("the short time", PATIENCE, || {
        // A second later it has ended.
        running.client().read::<Drain>().map_or(true, |drain| left(drain) < 2)
    });
    assert!(!busy.is_answered_before_its_end(7), "it has a second");
    assert!(running.server.wait().success(), "it ends in order");
}

#[test]
fn no_process_takes_over_from_one_that_drains() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let device = format!("file:{}?size=4MiB&delay=9s", path("disk"));
    let admin = path("admin.sock");
    let launch = || Launch::device(&device).with("--admin").with(&admin);
    let mut server = launch().start();
    let mut busy = V2::hello(server.address(), Hello::default()).unwrap();
    busy.send(7, READ, &[]);
    let mut client = Client::new(AdminAddress::Unix(admin.clone().into())).unwrap();
    wait_until("a request", PATIENCE, || client.read::<Drain>().unwrap().in_flight == 1);
    client.send(&DrainServer { deadline_ms: Some(600_000) }).unwrap();
    let (_, said) = launch().with("--upgrade").fail();
    assert!(said.contains("this server is draining"), "{said}");
    assert!(busy.is_answered_before_its_end(7));
    assert!(server.wait().success());
    assert_eq!(client.read::<Drain>().unwrap_err().code(), None::<Code>);
}
