//! Tests of the initiator against a network that the test controls.

use crate::support::{ReceivedRequest, World, filled};
use contract::{
    CloseReason, Command, ControlRequest, NamespaceInfo, Notice, ProtocolError, Range, Reply,
    Rights, SessionEvent, Status,
};
use nearflash_client::{Loss, Op, Options, Report, Version};

fn options() -> Options {
    Options { client: 7, in_flight_max: 64, ..Options::default() }
}

fn read(lba: u64) -> Command {
    Command::Read(Range::new(lba, 1))
}

fn write(lba: u64) -> Command {
    Command::Write { range: Range::new(lba, 1), fua: false }
}

fn submit(world: &mut World, command: Command) -> usize {
    let buf = (command.buffer_bytes() > 0).then(|| filled(command.buffer_bytes(), 3));
    let ticket = world.initiator.submit(world.now, Op::new(command, buf)).expect("there is room");
    ticket.index()
}

#[test]
fn a_read_comes_back_with_its_data_however_it_is_cut() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(5));
    let seen = world.seen(conn);
    assert_eq!(seen.len(), 1);
    let reply = Reply::Done { tag: seen[0].tag, command: read(5), status: Status::Ok };
    let data: Vec<u8> = (0..512).map(|n| n as u8).collect();
    // The reply arrives byte by byte.
    let mut session = proto::reflex::ServerSession::new();
    prepare(&mut session);
    let head = contract::Session::reply(&mut session, &reply, &data).unwrap();
    let bytes: Vec<u8> = head.bytes().iter().chain(&data).copied().collect();
    for byte in bytes {
        assert!(world.done.is_empty());
        world.receive(conn, &[byte]);
    }
    assert_eq!(world.done.len(), 1);
    assert_eq!(&world.done[0].buf.as_ref().unwrap().bytes()[..512], &data[..]);
    assert_eq!(world.wire.borrow().lent, 0, "receive buffers went back");
    assert_eq!(world.initiator.in_flight(), 0);
}

/// Makes a server session read a hello, so that it can encode replies.
fn prepare(session: &mut proto::reflex::ServerSession) {
    use contract::Session;
    let hello = contract::Hello::default();
    let mut client = proto::reflex::ClientSession::v2(hello);
    for head in client.greeting() {
        let mut input = head.bytes();
        while session.next_event(&mut input).unwrap().is_some() {}
    }
    let reply = contract::HelloReply::default();
    session.reply(&Reply::Hello { tag: 0, status: Status::Ok, reply }, &[]).unwrap();
}

#[test]
fn a_read_without_a_buffer_throws_its_data_away() {
    let (mut world, conn) = World::connected(options());
    world.initiator.submit(world.now, Op::new(read(1), None)).unwrap();
    let seen = world.seen(conn);
    world.end(conn, &seen[0], Status::Ok, &[9; 512]);
    assert_eq!(world.ends(), [(read(1), Status::Ok)]);
}

#[test]
fn replies_come_in_any_order_and_errors_carry_no_data() {
    let (mut world, conn) = World::connected(options());
    for lba in 0..3 {
        submit(&mut world, read(lba));
    }
    let seen = world.seen(conn);
    world.end(conn, &seen[2], Status::Ok, &[0; 512]);
    world.end(conn, &seen[0], Status::MediaError, &[]);
    world.end(conn, &seen[1], Status::Ok, &[0; 512]);
    let ends = [(read(2), Status::Ok), (read(0), Status::MediaError), (read(1), Status::Ok)];
    assert_eq!(world.ends(), ends);
}

#[test]
fn requests_wait_for_the_hello_and_for_room() {
    let mut world = World::new(options());
    submit(&mut world, read(1));
    submit(&mut world, read(2));
    world.turn();
    let conn = world.last();
    world.open(conn);
    assert_eq!(world.commands(conn), [], "only the hello was sent");
    // `commands` has consumed the hello; answer it by hand.
    let reply = contract::HelloReply::default();
    world.wire.borrow_mut().room = 1;
    world.reply(conn, &Reply::Hello { tag: 0, status: Status::Ok, reply }, &[]);
    assert_eq!(world.commands(conn), [read(1), read(2)]);
    world.wire.borrow_mut().room = 0;
    submit(&mut world, read(3));
    world.turn();
    assert_eq!(world.commands(conn), []);
    world.wire.borrow_mut().room = 1;
    world.turn();
    assert_eq!(world.commands(conn), [read(3)]);
}

#[test]
fn the_table_is_bounded() {
    let (mut world, _) = World::connected(Options { in_flight_max: 2, ..options() });
    submit(&mut world, read(1));
    submit(&mut world, read(2));
    let refused = world.initiator.submit(world.now, Op::new(write(3), Some(filled(512, 1))));
    assert!(refused.unwrap_err().0.buf.is_some(), "the buffer comes back");
}

#[test]
fn a_payload_is_ours_again_before_its_write_ends() {
    let (mut world, conn) = World::connected(options());
    world.wire.borrow_mut().hold_payloads = true;
    submit(&mut world, write(1));
    let seen = world.seen(conn);
    assert_eq!(seen[0].payload, [3; 512]);
    // The reply overtakes the transport's report that the bytes have left.
    world.end(conn, &seen[0], Status::Ok, &[]);
    assert_eq!(world.ends(), []);
    world.give_back();
    world.turn();
    assert_eq!(world.done.len(), 1);
    assert_eq!(world.done[0].buf.as_ref().unwrap().bytes(), [3; 512]);
}

#[test]
fn payloads_may_come_back_in_another_order() {
    let (mut world, conn) = World::connected(options());
    world.wire.borrow_mut().hold_payloads = true;
    for lba in 0..3 {
        submit(&mut world, write(lba));
    }
    let seen = world.seen(conn);
    world.give_back(); // last first
    for request in &seen {
        world.end(conn, request, Status::Ok, &[]);
    }
    assert_eq!(world.ends().len(), 3);
}

#[test]
fn what_is_safe_is_sent_again_in_the_original_order() {
    let (mut world, conn) = World::connected(options());
    let range = Range::new(9, 1);
    let safe = [
        write(1),
        Command::Barrier,
        read(2),
        Command::Flush,
        Command::Discard(range),
        Command::WriteZeroes { range, fua: true },
        Command::Barrier,
        write(3),
    ];
    let unsafe_ones = [Command::CompareAndWrite(range), Command::WriteAtomic(range)];
    submit(&mut world, safe[0]);
    submit(&mut world, unsafe_ones[0]);
    for &command in &safe[1..6] {
        submit(&mut world, command);
    }
    submit(&mut world, unsafe_ones[1]);
    for &command in &safe[6..] {
        submit(&mut world, command);
    }
    assert_eq!(world.commands(conn).len(), 10);
    world.reset(conn);
    assert_eq!(world.ends(), unsafe_ones.map(|command| (command, Status::ConnectionLost)));
    // Submitted without a connection: queued after the others.
    submit(&mut world, read(77));
    world.pass(20);
    let again = world.come_up();
    assert_ne!(again, conn);
    let seen = world.seen(again);
    let commands: Vec<_> = seen.iter().map(|seen| seen.command).collect();
    let expected: Vec<_> = safe.into_iter().chain([read(77)]).collect();
    assert_eq!(commands, expected);
    assert_eq!(seen[0].payload, [3; 512], "the payload was kept");
    for request in &seen {
        let body = vec![1; request.command.reply_bytes()];
        world.end(again, request, Status::Ok, &body);
    }
    assert!(world.ends().iter().all(|(_, status)| status.is_ok()));
    assert_eq!(world.initiator.in_flight(), 0);
}

#[test]
fn without_a_fence_only_reads_are_sent_again() {
    for options in
        [Options { client: 0, ..options() }, Options { version: Version::One, ..options() }]
    {
        let (mut world, conn) = World::connected(options);
        submit(&mut world, write(1));
        submit(&mut world, read(2));
        assert_eq!(world.commands(conn), [write(1), read(2)]);
        world.reset(conn);
        assert_eq!(world.ends(), [(write(1), Status::ConnectionLost)]);
        world.pass(20);
        let again = world.come_up();
        assert_eq!(world.commands(again), [read(2)]);
    }
}

#[test]
fn what_was_never_sent_is_sent_even_if_it_could_not_be_repeated() {
    let (mut world, conn) = World::connected(options());
    world.wire.borrow_mut().room = 0;
    let command = Command::CompareAndWrite(Range::new(1, 1));
    submit(&mut world, command);
    world.reset(conn);
    world.wire.borrow_mut().room = 9;
    world.pass(20);
    let again = world.come_up();
    assert_eq!(world.commands(again), [command]);
}

#[test]
fn a_payload_that_returns_behind_the_end_takes_its_place_in_the_order() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(1));
    world.turn();
    // The transport has seen the end; the initiator sends before it hears of it.
    let closed = contract::NetEvent::Closed { conn, reason: CloseReason::Peer };
    world.wire.borrow_mut().events.push_back(closed);
    submit(&mut world, write(2));
    submit(&mut world, read(3));
    world.turn();
    assert_eq!(world.ends(), []);
    world.seen(conn);
    world.pass(20);
    let again = world.come_up();
    assert_eq!(world.commands(again), [read(1), write(2), read(3)]);
}

#[test]
fn a_half_received_read_starts_over() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(1));
    let seen = world.seen(conn);
    let mut session = proto::reflex::ServerSession::new();
    prepare(&mut session);
    let reply = Reply::Done { tag: seen[0].tag, command: read(1), status: Status::Ok };
    let head = contract::Session::reply(&mut session, &reply, &[5; 512]).unwrap();
    let mut bytes = head.bytes().to_vec();
    bytes.extend([5; 100]);
    world.receive(conn, &bytes);
    world.reset(conn);
    world.pass(20);
    let again = world.come_up();
    let seen = world.seen(again);
    world.end(again, &seen[0], Status::Ok, &[6; 512]);
    assert_eq!(world.done[0].buf.as_ref().unwrap().bytes(), [6; 512]);
}

#[test]
fn a_request_is_not_sent_again_for_ever() {
    let (mut world, mut conn) = World::connected(Options { reissues_max: 2, ..options() });
    submit(&mut world, read(1));
    for _ in 0..2 {
        assert_eq!(world.commands(conn), [read(1)]);
        world.reset(conn);
        world.pass(2000);
        conn = world.come_up();
    }
    assert_eq!(world.commands(conn), [read(1)]);
    world.reset(conn);
    assert_eq!(world.ends(), [(read(1), Status::ConnectionLost)]);
}

#[test]
fn pauses_grow_and_requests_give_up_after_the_outage() {
    let options = Options { outage_max: std::time::Duration::from_secs(5), ..options() };
    let (mut world, conn) = World::connected(options);
    world.reset(conn);
    submit(&mut world, read(1));
    let mut pauses = Vec::new();
    let mut last = world.now;
    let mut dials = world.wire.borrow().dialled.len();
    while world.done.is_empty() {
        world.pass(1);
        let count = world.wire.borrow().dialled.len();
        if count > dials {
            dials = count;
            pauses.push(world.now.since(last).as_millis());
            last = world.now;
            let closed = contract::NetEvent::Closed {
                conn: world.last(),
                reason: CloseReason::Unreachable(111),
            };
            world.wire.borrow_mut().events.push_back(closed);
            world.turn();
        }
        assert!(pauses.len() < 100, "it gives up");
    }
    assert_eq!(world.ends(), [(read(1), Status::ConnectionLost)]);
    assert!(pauses[0] <= 11 && pauses[pauses.len() - 1] >= 500, "{pauses:?}");
    assert!(pauses.iter().all(|&pause| pause <= 1001), "{pauses:?}");
    assert!((5..30).contains(&pauses.len()), "{pauses:?}");
    // Dialling goes on, and the next request can succeed.
    submit(&mut world, read(2));
    world.pass(1500);
    let conn = world.come_up();
    assert_eq!(world.commands(conn), [read(2)]);
}

#[test]
fn an_outage_begins_when_a_connection_is_lost_even_if_no_request_went_over_it() {
    let options = Options { outage_max: std::time::Duration::from_secs(5), ..options() };
    let (mut world, conn) = World::connected(options);
    world.reset(conn);
    world.pass(1500);
    let conn = world.come_up();
    world.pass(60_000);
    // The second outage is a minute after the first, and younger than five seconds.
    submit(&mut world, read(1));
    world.reset(conn);
    assert_eq!(world.ends(), [], "the request waits for the next connection");
    world.pass(1500);
    let conn = world.come_up();
    assert_eq!(world.commands(conn), [read(1)]);
}

#[test]
fn a_server_that_is_silent_is_left() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(1));
    world.seen(conn);
    world.pass(29_900);
    assert_eq!(world.wire.borrow().closed, []);
    world.pass(200);
    assert_eq!(world.wire.borrow().closed, [conn]);
    assert!(world.reports.contains(&Report::Lost { link: 0, why: Loss::Silent }));
    // A connection without outstanding answers may be silent for ever.
    let conn = {
        world.pass(100);
        world.come_up()
    };
    let seen = world.seen(conn);
    world.end(conn, &seen[0], Status::Ok, &[0; 512]);
    world.pass(600_000);
    assert_eq!(world.wire.borrow().closed.len(), 1);
}

#[test]
fn a_refused_hello_ends_what_waits_with_its_status() {
    let mut world = World::new(options());
    submit(&mut world, read(1));
    world.turn();
    let conn = world.last();
    world.open(conn);
    world.answer_hello(conn, Status::Denied);
    world.turn();
    assert_eq!(world.ends(), [(read(1), Status::Denied)]);
    assert!(world.reports.contains(&Report::Lost { link: 0, why: Loss::Refused(Status::Denied) }));
}

#[test]
fn the_outcome_of_a_change_is_unknown_if_only_its_last_copy_was_refused() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, write(1));
    submit(&mut world, read(2));
    assert_eq!(world.commands(conn), [write(1), read(2)]);
    world.reset(conn);
    world.pass(20);
    let again = world.come_up();
    let seen = world.seen(again);
    submit(&mut world, write(3));
    let fresh = world.seen(again);
    for request in seen.iter().chain(&fresh) {
        world.end(again, request, Status::Retry, &[]);
    }
    let unknown = (write(1), Status::ConnectionLost);
    assert_eq!(world.ends(), [unknown, (read(2), Status::Retry), (write(3), Status::Retry)]);
}

#[test]
fn a_drained_server_is_left_when_it_owes_nothing() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(1));
    submit(&mut world, read(2));
    let seen = world.seen(conn);
    world.reply(conn, &Reply::Notice(Notice::Draining), &[]);
    submit(&mut world, read(3));
    world.turn();
    assert_eq!(world.commands(conn), [], "nothing new is sent");
    world.end(conn, &seen[1], Status::Retry, &[]);
    assert_eq!(world.wire.borrow().closed, []);
    world.end(conn, &seen[0], Status::Ok, &[0; 512]);
    assert_eq!(world.wire.borrow().closed, [conn]);
    assert_eq!(world.ends(), [(read(1), Status::Ok)]);
    world.turn();
    world.pass(20);
    let again = world.come_up();
    assert_eq!(world.commands(again), [read(2), read(3)]);
}

#[test]
fn what_a_drained_server_refuses_is_not_sent_again_across_a_barrier() {
    let on_stream = |world: &mut World, command: Command, stream| {
        let buf = (command.buffer_bytes() > 0).then(|| filled(command.buffer_bytes(), 3));
        let op = Op { stream, ..Op::new(command, buf) };
        world.initiator.submit(world.now, op).expect("there is room");
    };
    let (mut world, conn) = World::connected(options());
    on_stream(&mut world, write(1), 0);
    on_stream(&mut world, write(2), 1);
    on_stream(&mut world, Command::Barrier, 0);
    on_stream(&mut world, write(3), 0);
    let seen = world.seen(conn);
    world.reply(conn, &Reply::Notice(Notice::Draining), &[]);
    // The scheduler accepts no more of either. The barrier has nothing to wait for, and 3 is
    // carried out over the same blocks, as far as the client knows.
    world.end(conn, &seen[0], Status::Retry, &[]);
    world.end(conn, &seen[1], Status::Retry, &[]);
    world.end(conn, &seen[2], Status::Ok, &[]);
    world.end(conn, &seen[3], Status::Ok, &[]);
    let ends = [(write(1), Status::Retry), (Command::Barrier, Status::Ok), (write(3), Status::Ok)];
    assert_eq!(world.ends(), ends);
    world.turn();
    world.pass(20);
    let again = world.come_up();
    assert_eq!(world.commands(again), [write(2)], "barriers of other streams do not concern it");
}

#[test]
fn a_refused_barrier_is_not_sent_again_behind_what_followed_it() {
    let (mut world, conn) = World::connected(options());
    for command in [Command::Barrier, write(1), Command::Barrier] {
        submit(&mut world, command);
    }
    let seen = world.seen(conn);
    world.reply(conn, &Reply::Notice(Notice::Draining), &[]);
    world.end(conn, &seen[0], Status::Retry, &[]);
    world.end(conn, &seen[1], Status::Ok, &[]);
    world.end(conn, &seen[2], Status::Retry, &[]);
    assert_eq!(world.ends(), [(Command::Barrier, Status::Retry), (write(1), Status::Ok)]);
    world.turn();
    world.pass(20);
    let again = world.come_up();
    assert_eq!(world.commands(again), [Command::Barrier], "nothing was behind the last");
}

/// The reaction of a misbehaving server to a read.
type Act = fn(&mut World, contract::ConnId, &ReceivedRequest);

#[test]
fn nonsense_from_the_server_ends_the_connection_and_nothing_else() {
    let wrong: [(&str, Act); 4] = [
        ("no such request", |world, conn, seen| {
            let seen = ReceivedRequest { tag: seen.tag + 1, ..seen.clone() };
            world.end(conn, &seen, Status::Ok, &[0; 512]);
        }),
        ("too little data", |world, conn, seen| {
            let seen = ReceivedRequest { command: write(1), ..seen.clone() };
            world.end(conn, &seen, Status::Ok, &[]);
        }),
        ("not the protocol", |world, conn, _| world.receive(conn, &[0xff; 64])),
        ("a pong to a read", |world, conn, seen| {
            world.reply(conn, &Reply::Pong { tag: seen.tag }, &[]);
        }),
    ];
    for (what, act) in wrong {
        let (mut world, conn) = World::connected(options());
        submit(&mut world, read(1));
        let seen = world.seen(conn);
        act(&mut world, conn, &seen[0]);
        world.turn();
        assert_eq!(world.wire.borrow().closed, [conn], "{what}");
        let lost = world.reports.iter().any(|report| {
            matches!(
                report,
                Report::Lost {
                    why: Loss::Protocol(
                        ProtocolError::UnknownTag(_)
                            | ProtocolError::BadLength(_)
                            | ProtocolError::BadMagic(_)
                            | ProtocolError::BadOpcode(_)
                    ),
                    ..
                }
            )
        });
        assert!(lost, "{what}: {:?}", world.reports);
        world.pass(20);
        let again = world.come_up();
        assert_eq!(world.commands(again), [read(1)], "{what}");
    }
}

#[test]
fn a_reply_twice_ends_the_connection() {
    let (mut world, conn) = World::connected(options());
    submit(&mut world, read(1));
    let seen = world.seen(conn);
    world.end(conn, &seen[0], Status::Ok, &[0; 512]);
    world.end(conn, &seen[0], Status::Ok, &[0; 512]);
    world.turn();
    assert_eq!(world.ends(), [(read(1), Status::Ok)]);
    assert_eq!(world.wire.borrow().closed, [conn]);
}

#[test]
fn controls_are_answered_and_lost_registrations_are_told() {
    let (mut world, conn) = World::connected(options());
    let ticket = |world: &mut World, control| {
        world.initiator.control(world.now, None, control).expect("there is room")
    };
    let info = ticket(&mut world, ControlRequest::Info { tag: 0, namespace: None });
    let ping = ticket(&mut world, ControlRequest::Ping { tag: 0 });
    let unregister = ticket(&mut world, ControlRequest::Unregister { tag: 0, tenant: 4 });
    let mut tags = Vec::new();
    world.serve(conn, |event| {
        if let SessionEvent::Control(control) = event {
            tags.push(match *control {
                ControlRequest::Info { tag, .. }
                | ControlRequest::Ping { tag }
                | ControlRequest::Unregister { tag, .. } => tag,
                other => panic!("{other:?}"),
            });
        }
    });
    let what = NamespaceInfo {
        namespace: contract::NamespaceId(1),
        blocks: 99,
        physical_block_bytes: 512,
        atomic_blocks_max: 0,
        rights: Rights::ALL,
        volatile_cache: false,
    };
    world.reply(conn, &Reply::Info { tag: tags[0], info: Ok(what) }, &[]);
    world.reply(conn, &Reply::Pong { tag: tags[1] }, &[]);
    world.reset(conn);
    world.reports.retain(|report| !matches!(report, Report::Lost { .. }));
    assert_eq!(world.reports.len(), 3, "{:?}", world.reports);
    assert_eq!(world.reports[0], Report::Info(info, Ok(what)));
    assert_eq!(world.reports[1], Report::Pong(ping, Status::Ok));
    let lost = Report::Tenant(unregister, Status::ConnectionLost, contract::TenantReply::default());
    assert_eq!(world.reports[2], lost);
}

#[test]
fn requests_go_to_the_least_loaded_connection() {
    let mut world = World::new(Options { connections: 2, ..options() });
    world.turn();
    let conns = world.wire.borrow().dialled.clone();
    for &conn in &conns {
        world.open(conn);
        world.answer_hello(conn, Status::Ok);
    }
    for lba in 0..10 {
        submit(&mut world, read(lba));
    }
    assert_eq!([world.commands(conns[0]).len(), world.commands(conns[1]).len()], [5, 5]);
    // A connection is lost: new requests go to the other one, repeated requests wait for their own.
    world.reset(conns[0]);
    for lba in 10..13 {
        submit(&mut world, read(lba));
    }
    assert_eq!(world.commands(conns[1]).len(), 3);
}

#[test]
fn version_one_serves_reads_and_writes() {
    let (mut world, conn) = World::connected(Options { version: Version::One, ..options() });
    submit(&mut world, write(4));
    submit(&mut world, read(4));
    let seen = world.seen(conn);
    assert!(seen.iter().all(|request| request.tag != 0), "a handle is never zero");
    world.end(conn, &seen[1], Status::Ok, &[8; 512]);
    world.end(conn, &seen[0], Status::Ok, &[]);
    assert_eq!(world.ends(), [(read(4), Status::Ok), (write(4), Status::Ok)]);
    // Requests that version 1 cannot express end at once.
    submit(&mut world, Command::Flush);
    world.turn();
    assert_eq!(world.ends(), [(Command::Flush, Status::Unsupported)]);
}

/// Makes the server of `conn` answer all requests with `Ok`, and returns the commands and statuses
/// of the requests that ended.
fn answer_all(world: &mut World, conn: contract::ConnId) -> Vec<(Command, Status)> {
    world.turn();
    for seen in world.seen(conn) {
        let data = vec![0; seen.command.reply_bytes()];
        world.end(conn, &seen, Status::Ok, &data);
    }
    world.ends()
}

/// Returns the status of a flush after `command`, before which the server comes back with another
/// storage epoch.
fn flush_after(command: Command) -> Status {
    let mut world = World::new(options());
    world.storage_epoch = 7;
    let conn = world.come_up();
    submit(&mut world, command);
    assert_eq!(answer_all(&mut world, conn), [(command, Status::Ok)]);
    world.reset(conn);
    world.storage_epoch = 8;
    world.pass(20);
    let again = world.come_up();
    submit(&mut world, Command::Flush);
    let ends = answer_all(&mut world, again);
    submit(&mut world, Command::Flush);
    assert_eq!(answer_all(&mut world, again), [(Command::Flush, Status::Ok)], "told once");
    ends[0].1
}

#[test]
fn a_flush_tells_of_writes_that_the_servers_machine_has_lost() {
    let range = Range::new(1, 1);
    assert_eq!(flush_after(write(1)), Status::WritesLost);
    assert_eq!(flush_after(Command::Discard(range)), Status::WritesLost);
    assert_eq!(flush_after(Command::Write { range, fua: true }), Status::Ok, "it was durable");
    assert_eq!(flush_after(read(1)), Status::Ok);
}
