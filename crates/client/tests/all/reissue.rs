//! Properties of repetition, over many seeds: every request ends exactly once, a request that must
//! not be repeated reaches a server at most once, and each connection sees requests in the original
//! order.

use std::collections::HashMap;

use crate::support::{ReceivedRequest, World, filled};
use contract::{Command, Range, Status};
use nearflash_client::{Op, Options, Random};

/// The history of a request, by its address (each request has its own).
#[derive(Debug, Default)]
struct RequestHistory {
    seen: u32,
    ended: Option<Status>,
}

fn command(random: &mut Random, lba: u64) -> Command {
    let range = Range::new(lba, 1);
    match random.below(6) {
        0 | 1 => Command::Read(range),
        2 => Command::Write { range, fua: false },
        3 => Command::CompareAndWrite(range),
        4 => Command::WriteAtomic(range),
        _ => Command::Discard(range),
    }
}

fn is_repeatable(command: Command) -> bool {
    !matches!(command, Command::CompareAndWrite(_) | Command::WriteAtomic(_))
}

/// Lets the server read the sent requests, and checks them.
fn look(
    world: &mut World,
    stories: &mut HashMap<u64, RequestHistory>,
    newest: &mut u64,
) -> Vec<ReceivedRequest> {
    let seen = world.seen(world.last());
    for request in &seen {
        let lba = request.command.range().expect("it has an address").lba;
        assert!(lba > *newest, "out of order: {lba} behind {newest}");
        *newest = lba;
        let story = stories.get_mut(&lba).expect("it was submitted");
        story.seen += 1;
        assert!(story.seen == 1 || is_repeatable(request.command), "{request:?} was repeated");
        assert_eq!(story.ended, None, "{request:?} was sent after its end");
        assert!(request.payload.iter().all(|&byte| byte == lba as u8), "the payload was kept");
    }
    seen
}

fn take_ends(world: &mut World, stories: &mut HashMap<u64, RequestHistory>) {
    for (command, status) in world.ends() {
        let story = stories.get_mut(&command.range().unwrap().lba).unwrap();
        assert_eq!(story.ended.replace(status), None, "{command:?} ended twice");
        let lost = status == Status::ConnectionLost;
        assert!(!lost || !is_repeatable(command), "{command:?} could have been repeated");
    }
}

/// Runs one seed. Returns the number of repeated requests and the number of requests that were
/// given up.
fn run(seed: u64) -> (u32, u32) {
    let mut random = Random::new(seed);
    let options = Options { client: 7, in_flight_max: 16, reissues_max: 255, ..Options::default() };
    let mut world = World::new(Options { seed, ..options });
    let mut stories: HashMap<u64, RequestHistory> = HashMap::new();
    let mut owed = Vec::new();
    let mut newest = 0;
    world.come_up();
    for lba in 1..=200u64 {
        if world.initiator.room() > 0 {
            let command = command(&mut random, lba);
            let bytes = command.buffer_bytes();
            let buf = (bytes > 0).then(|| filled(bytes, lba as u8));
            world.initiator.submit(world.now, Op::new(command, buf)).unwrap();
            stories.insert(lba, RequestHistory::default());
        }
        world.wire.borrow_mut().hold_payloads = random.below(3) == 0;
        world.wire.borrow_mut().room = random.below(4) as usize;
        world.turn();
        owed.extend(look(&mut world, &mut stories, &mut newest));
        if random.below(3) == 0 {
            world.give_back();
        }
        while !owed.is_empty() && random.below(3) > 0 {
            let request: ReceivedRequest =
                owed.swap_remove(random.below(owed.len() as u64) as usize);
            let body = vec![0; request.command.reply_bytes()];
            let conn = world.last();
            world.end(conn, &request, Status::Ok, &body);
        }
        if random.below(15) == 0 {
            let conn = world.last();
            world.reset(conn);
            owed.clear();
            newest = 0;
            take_ends(&mut world, &mut stories);
            world.wire.borrow_mut().room = 16;
            world.pass(1001);
            world.come_up();
        }
        take_ends(&mut world, &mut stories);
    }
    // The end: everything is answered.
    world.wire.borrow_mut().room = 1000;
    world.give_back();
    world.turn();
    owed.extend(look(&mut world, &mut stories, &mut newest));
    for request in owed {
        let body = vec![0; request.command.reply_bytes()];
        let conn = world.last();
        world.end(conn, &request, Status::Ok, &body);
    }
    world.give_back();
    world.turn();
    take_ends(&mut world, &mut stories);
    assert!(stories.values().all(|story| story.ended.is_some()), "every request ends");
    assert_eq!(world.initiator.in_flight(), 0);
    assert_eq!(world.wire.borrow().lent, 0);
    let again = stories.values().map(|story| story.seen.saturating_sub(1)).sum();
    let lost = stories.values().filter(|s| s.ended == Some(Status::ConnectionLost)).count();
    (again, lost as u32)
}

#[test]
fn every_request_ends_once_and_nothing_unsafe_is_repeated() {
    let (mut again, mut lost) = (0, 0);
    for seed in 0..200 {
        let (a, l) = run(seed);
        again += a;
        lost += l;
    }
    assert!(again > 1000 && lost > 100, "the cases were reached: {again} {lost}");
}
