//! Connections that wait for their tenants to hold less. A connection with requests of several
//! tenants waits only for the tenant of its next request.

use crate::rig::{Rig, UNIT};
use contract::TenantId;

const READ: &[u8] = b"R\x01";

fn answered(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, 0])
}

/// Checks that a position in a tenant's line becomes void once its connection was supplied in
/// another way: when a request of its own ended. The connection must not be taken for one that
/// stands there when its next request waits for another tenant.
#[test]
fn who_was_supplied_beside_its_line_is_called_by_the_next() {
    let mut rig = Rig::new(12, &[(UNIT, 4)]);
    rig.connect(0, 3);
    rig.connect(1, 1);
    rig.connect(2, 2);
    rig.impoverish(&[1, 2, 3]);
    assert_eq!(rig.say(0, &READ.repeat(2)), []);
    assert_eq!(rig.say(1, &READ.repeat(5)), []);
    assert_eq!(rig.say(2, &READ.repeat(4)), []);
    assert_eq!(rig.worker.load().in_flight, 11, "one slot is left");
    // Of the first tenant, which holds five of twelve; behind it one of the second, which holds
    // four.
    assert_eq!(rig.say(0, &[b"T\x01", READ, b"T\x02", READ].concat()), []);
    assert_eq!(rig.worker.load().in_flight, 11, "both hold too much for that");
    assert_eq!(rig.impoverish(&[1, 2]), [answered(0, 0), answered(0, 1)]);
    let held = |rig: &Rig| [1, 2].map(|tenant| rig.worker.in_flight_of(TenantId(tenant)));
    assert_eq!(held(&rig), [6, 4], "its first was let in, its second waits");
    let said = rig.impoverish(&[1]);
    assert!(said.contains(&answered(0, 3)), "the second tenant has tokens: {said:?}");
    assert_eq!(held(&rig), [6, 0]);
    rig.impoverish(&[]);
    assert!(rig.worker.is_at_rest());
}

/// Checks that a turn calls a bounded number of a tenant's waiting connections. Thousands may wait
/// and all may go on when the tenant has nothing in flight; other connections need not wait for all
/// those.
#[test]
fn of_many_who_may_go_on_a_bounded_number_does_so_in_a_turn() {
    const MANY: u32 = 2_000;
    let mut rig = Rig::new(3, &[(UNIT, 4)]);
    rig.connect(0, 1);
    rig.impoverish(&[1]);
    assert_eq!(rig.say(0, &READ.repeat(2)), []);
    for conn in 1..=MANY {
        rig.connect(conn, 1);
        assert_eq!(rig.say(conn, READ), []);
    }
    assert_eq!(rig.worker.load().in_flight, 2, "all others wait in its line");
    rig.set_poor(&[]);
    let mut said = Vec::new();
    let mut turns = 0;
    while said.len() < 2 + MANY as usize {
        assert!(rig.turn() || turns == 0, "nobody else would wake it: {} are answered", said.len());
        let called = rig.worker.load().called;
        assert!(called <= 300, "{called} at once");
        said.extend(rig.take_said());
        turns += 1;
        assert!(turns < 10 * MANY, "{} are answered", said.len());
    }
    said.sort();
    let mut all: Vec<_> = (0..=MANY).map(|conn| answered(conn, 0)).collect();
    all.push(answered(0, 1));
    all.sort();
    assert_eq!(said, all);
    rig.impoverish(&[]);
    assert!(rig.worker.is_at_rest());
}

const TENANTS: u32 = 3;
const CONNECTIONS: u32 = 4;
const SLOTS: usize = 9;

/// The requests of one connection, by number: the request's tenant, and `true` if it was answered.
type RequestLog = Vec<(u32, bool)>;

/// Returns the next number of a sequence that a seed decides, below `end`.
fn roll(state: &mut u64, end: u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % u64::from(end)) as u32
}

fn note(asked: &mut [RequestLog], said: Vec<(u32, Vec<u8>)>) {
    for (conn, head) in said {
        let request = &mut asked[conn as usize][usize::from(head[1])];
        assert!(!std::mem::replace(&mut request.1, true), "{conn} was answered {head:?} twice");
    }
}

/// Asserts that no tenant without requests in flight waits while there is room.
fn expect_nobody_forgotten(rig: &Rig, asked: &[RequestLog], seed: u64) {
    if rig.worker.load().in_flight == SLOTS {
        return;
    }
    for (conn, requests) in asked.iter().enumerate() {
        let Some((tenant, _)) = requests.iter().find(|(_, answered)| !answered) else { continue };
        let held = rig.worker.in_flight_of(TenantId(*tenant));
        assert!(held > 0, "seed {seed}: connection {conn} waits for tenant {tenant}");
    }
}

#[test]
fn nobody_waits_for_a_tenant_that_has_nothing_in_flight() {
    for seed in 1..=200 {
        let mut rig = Rig::new(SLOTS, &[(UNIT, 4)]);
        (0..CONNECTIONS).for_each(|conn| rig.connect(conn, 1));
        let mut asked = vec![RequestLog::new(); CONNECTIONS as usize];
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ (seed << 7);
        for _ in 0..60 {
            let said = if roll(&mut state, 3) > 0 {
                let (conn, tenant) = (roll(&mut state, CONNECTIONS), 1 + roll(&mut state, TENANTS));
                let count = 1 + roll(&mut state, 3) as usize;
                asked[conn as usize].extend(vec![(tenant, false); count]);
                rig.say(conn, &[&[b'T', tenant as u8][..], &READ.repeat(count)].concat())
            } else {
                let poor = roll(&mut state, 1 << TENANTS);
                let poor: Vec<u32> = (1..=TENANTS).filter(|n| poor >> (n - 1) & 1 == 1).collect();
                rig.impoverish(&poor)
            };
            note(&mut asked, said);
            expect_nobody_forgotten(&rig, &asked, seed);
        }
        note(&mut asked, rig.impoverish(&[]));
        let left = asked.iter().flatten().filter(|(_, answered)| !answered).count();
        assert_eq!(left, 0, "seed {seed}");
        assert!(rig.worker.is_at_rest(), "seed {seed}");
    }
}
