//! Tests of connections over several cards: pairs of cards at two cables, which do not see each
//! other, over packet sockets and AF_XDP.

use std::time::Duration;

use contract::{ListenerId, Mac};
use nearflash_io::{Endpoint, Listener, Network};

use crate::ether::{SERVER, at, dial, exchange, in_segment, ip, keep_tags, wakes};
use crate::packets::{EventLog, Packets, end, until};

/// The server's card at the second cable.
const FURTHER: Mac = Mac([2, 0, 0, 0, 1, 1]);

/// Runs a test in a network of its own with two cables: between the cards `left` (the server's) and
/// `right`, and between `left2` and `right2`.
fn in_segments(test: impl FnOnce() + Send) {
    in_segment(9000, || {
        let made = format!("link add left2 address {FURTHER} mtu 9000 type veth peer name right2");
        assert!(ip(&made) && ip("link set right2 mtu 9000 up") && ip("link set left2 up"));
        assert!(["left2", "right2"].into_iter().all(keep_tags));
        test();
    });
}

/// Returns a server at both cards.
fn server(via: &str) -> Packets {
    let mut place = at("left", via);
    assert!(place.take("also", "left2"));
    let listener = Listener::bind_ether(&place, 1).unwrap();
    let bound = listener.endpoint().to_string();
    assert!(bound.starts_with(&format!("left/{SERVER}?also=left2/{FURTHER}")), "{bound}");
    let mut server = end();
    server.sockets.listen(ListenerId(7), listener).unwrap();
    server
}

/// Returns a client whose URL has these further cards.
fn client(via: &str, also: &[String]) -> Packets {
    let mut place = at(&format!("right/{SERVER}"), via);
    assert!(also.iter().all(|card| place.take("also", card)));
    let mut client = end();
    client.sockets.dial_to(Endpoint::Ethernet(place));
    client
}

/// Returns the frames that a card has received so far.
fn received(card: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{card}:")));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn connected(
    server: &mut Packets,
    client: &mut Packets,
    seen: &mut [EventLog; 2],
) -> contract::ConnId {
    let conn = dial(client, 1)[0];
    until(server, client, seen, |seen| seen.iter().all(|end| end.opened.len() == 1));
    conn
}

/// Exchanges bytes until the second card has received so many more frames.
fn until_second_carries(
    (server, client): (&mut Packets, &mut Packets),
    conn: contract::ConnId,
    seen: &mut [EventLog; 2],
) {
    let before = received("left2");
    let limit = client.clock.now() + Duration::from_secs(60);
    while received("left2") < before + 20 {
        exchange(server, client, &[conn], seen);
        assert!(client.clock.now() < limit, "the second card carries nothing");
    }
}

#[test]
fn pairs_of_cards_carry_one_connection_and_a_card_that_is_down_costs_nothing() {
    let named = format!("right2/{FURTHER}");
    for (via, also) in [
        ("packet", named.as_str()),
        ("packet", "right2"),
        ("xdp", named.as_str()),
        ("native", "right2"),
        ("", named.as_str()),
    ] {
        in_segments(|| {
            let (mut server, mut client) = (server(via), client(via, &[also.to_owned()]));
            let mut seen = <[EventLog; 2]>::default();
            let conn = connected(&mut server, &mut client, &mut seen);
            until_second_carries((&mut server, &mut client), conn, &mut seen);
            for card in ["left2", "right2"] {
                assert!(ip(&format!("link set {card} down")));
                exchange(&mut server, &mut client, &[conn], &mut seen);
                assert!(ip(&format!("link set {card} up")));
                until_second_carries((&mut server, &mut client), conn, &mut seen);
            }
            assert!(seen.iter().all(|end| end.closed.is_empty()), "{via}");
        });
    }
}

#[test]
fn a_dead_first_pair_and_a_missing_card_leave_the_others() {
    in_segments(|| {
        let named = format!("right2/{FURTHER}");
        let mut server = server("");
        // A card that is not there costs nothing.
        let mut client = client("", &["nosuchcard".to_owned(), named]);
        let mut seen = <[EventLog; 2]>::default();
        assert!(ip("link set left down"));
        let first = dial(&mut client, 1)[0];
        until(&mut server, &mut client, &mut seen, |seen| !seen[1].closed.is_empty());
        assert_eq!(seen[1].closed[0].0, first);
        // The end of the association follows that of its last connection.
        seen[1].follow(&mut client);
        seen[1].follow(&mut client);
        let conn = connected(&mut server, &mut client, &mut seen);
        exchange(&mut server, &mut client, &[conn], &mut seen);
    });
}

#[test]
fn a_server_names_each_card_once() {
    in_segment(9000, || {
        let mut place = at("left", "packet");
        assert!(place.take("also", &format!("left/{SERVER}")));
        let error = Listener::bind_ether(&place, 1).unwrap_err().to_string();
        assert!(error.contains("also=left is another lane, too"), "{error}");
    });
}

/// The sockets of all cards, and the claims of their ports, are passed to a successor.
#[test]
fn a_successor_gets_the_sockets_of_all_cards() {
    in_segments(|| {
        let mut place = at("left", "packet");
        assert!(place.take("also", "left2"));
        let mut listener = Listener::bind_ether(&place, 1).unwrap();
        listener.widen(2).unwrap();
        let kept = listener.keep();
        let sockets = kept.sockets().unwrap();
        assert_eq!(sockets.len(), 6, "two for workers, and a claim, for each card");
        let mut passed = sockets.iter().map(|socket| socket.try_clone().unwrap());
        // A card may be down for the moment.
        assert!(ip("link set left2 down"));
        let first = passed.next().unwrap();
        let mut adopted = Listener::adopt(first, listener.endpoint().clone()).unwrap();
        adopted.adopt_others(passed.collect()).unwrap();
        drop((listener, sockets));
        let again = Listener::bind_ether(&at("left2", "packet"), 1);
        assert!(ip("link set left2 up"));
        assert!(again.is_err(), "the port is held, and the card down");
        let again = Listener::bind_ether(&at("left2", "packet"), 1).unwrap_err().to_string();
        assert!(again.contains("is another server running there?"), "{again}");
        assert_eq!(adopted.keep().sockets().unwrap().len(), 6);
        let parts = adopted.divide(2).unwrap();
        let mut server = end();
        let mut parts = parts.into_iter();
        server.sockets.listen(ListenerId(7), parts.next().unwrap()).unwrap();
        // The other worker's part is not needed here: a hello that comes to it is repeated.
        drop(parts);
    });
}

/// A thread that waits in its ring must wake for frames of each card.
#[test]
fn frames_of_a_further_card_wake_a_parked_thread() {
    for via in ["packet", "xdp", "native"] {
        in_segments(|| {
            wakes(server(via), || {
                // The client reaches the second card alone.
                let mut client = end();
                let place = at(&format!("right2/{FURTHER}"), via);
                client.sockets.dial_to(Endpoint::Ethernet(place));
                client
            });
        });
    }
}
