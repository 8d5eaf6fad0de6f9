//! Tests of the watchdog messages to a service manager: a server sends them, and its successor goes
//! on sending them although the manager tells it no interval.

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};

use crate::support::{Launch, PATIENCE, ServerFolder};

/// Receives the messages of servers at a service manager's socket, in a thread that reads all of
/// them: a full socket would hold servers up.
fn manager(place: &ServerFolder) -> Receiver<String> {
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut words = [0; 256];
        while let Ok(length) = socket.recv(&mut words) {
            if sender.send(String::from_utf8_lossy(&words[..length]).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn launch(place: &ServerFolder) -> Launch {
    place.crewed(Launch::device(&place.file("device")))
}

#[test]
fn signs_of_life_come_while_workers_run_and_go_on_after_an_upgrade() {
    let place = ServerFolder::in_memory();
    let heard = manager(&place);
    let notify = format!("export NOTIFY_SOCKET={}", place.path("notify").display());
    let watched = format!("{notify} WATCHDOG_USEC=8000");
    let await_words = |words: &str| while !heard.recv_timeout(PATIENCE).unwrap().contains(words) {};
    let mut old = launch(&place).after(&[], &watched).start();
    await_words("READY=1");
    await_words("WATCHDOG=1");
    let new = launch(&place).with("--upgrade").after(&[], &notify).start();
    await_words(&format!("MAINPID={}", new.pid()));
    assert!(old.wait().success());
    // More than the socket holds of what the older one said.
    (0..600).for_each(|_| await_words("WATCHDOG=1"));
}

#[test]
fn a_server_that_is_not_watched_gives_no_sign() {
    let place = ServerFolder::in_memory();
    let heard = manager(&place);
    let notify = format!("export NOTIFY_SOCKET={}", place.path("notify").display());
    // The interval is another process's.
    let of_another = format!("{notify} WATCHDOG_USEC=1 WATCHDOG_PID=1");
    let mut server = launch(&place).after(&[], &of_another).start();
    server.terminate();
    assert!(server.wait().success());
    let all: Vec<String> = heard.try_iter().collect();
    assert!(all.iter().all(|words| !words.contains("WATCHDOG")), "{all:?}");
}
