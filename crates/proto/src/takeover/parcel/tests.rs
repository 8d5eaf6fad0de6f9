//! Tests of parcels as bytes.

use super::*;
use crate::takeover::VERSION;
use alloc::boxed::Box;
use alloc::{format, vec};
use core::time::Duration;

const NOW: Instant = Instant::from_nanos(5_000_000);

/// Returns the names of the tenants 1 (epoch 0) and 2 (epoch 3); `None` for others or other epochs.
fn name(tenant: TenantId, epoch: Option<u32>) -> Option<String> {
    match (tenant.0, epoch) {
        (1, None | Some(0)) => Some("gold".to_string()),
        (2, None | Some(3)) => Some("silver".to_string()),
        _ => None,
    }
}

/// Returns the tenant of a name as the receiving server numbers it; `None` if it has no such
/// tenant.
fn member(name: &str) -> Option<Member> {
    let number = ["default", "silver", "tin", "gold"].iter().position(|known| *known == name)?;
    Some(Member { tenant: TenantId(number as u32), epoch: 7 })
}

fn request(tag: u64, command: Command, payload: MigratingPayload) -> MigratingRequest {
    let received_at = Instant::from_nanos(NOW.as_nanos() - 1000 * tag);
    let (stream, namespace, device) = ((tag % 8) as u8, NamespaceId(3), 1);
    let (tenant, lba) = (TenantId(2), 1 << 40);
    MigratingRequest { tag, stream, tenant, command, namespace, device, lba, payload, received_at }
}

fn view() -> NamespaceView {
    let mut view = NamespaceView::new(NamespaceId(3), 5);
    (view.admitted, view.follows) = (7, true);
    [(9, 6), (2, 7)].iter().for_each(|(number, after)| view.learn(NamespaceId(*number), *after));
    view
}

fn parcel() -> MigratingConnection {
    let range = Range::new(8, 2);
    let whole = |bytes: usize| MigratingPayload::Whole(vec![7; bytes]);
    let commands = [
        (Command::Read(range), 0),
        (Command::Write { range, fua: true }, 1024),
        (Command::WriteAtomic(range), 1024),
        (Command::Compare(range), 1024),
        (Command::CompareAndWrite(range), 2048),
        (Command::Flush, 0),
        (Command::Discard(range), 0),
        (Command::WriteZeroes { range, fua: false }, 0),
        (Command::Barrier, 0),
    ];
    let each = (1..).zip(commands);
    let mut requests: Vec<MigratingRequest> =
        each.map(|(tag, (command, bytes))| request(tag, command, whole(bytes))).collect();
    let last = Command::Write { range, fua: false };
    requests.push(request(99, last, MigratingPayload::Begun(vec![1; 1000])));
    let single = vec![Rights::NONE, Rights { read: false, write: true }];
    MigratingConnection {
        from: 4,
        ticket: Ticket(9),
        peer: Peer::Internet("192.0.2.1:7420".parse().unwrap()),
        listener: ListenerId(2),
        view: view(),
        session: vec![b'r', 1, 2, 3],
        grant: Some(MigratingGrant {
            tenant: TenantId(1),
            register: true,
            all: Rights::ALL,
            single,
        }),
        entered: Some(Member { tenant: TenantId(1), epoch: 0 }),
        handles: vec![
            None,
            Some(Member { tenant: TenantId(2), epoch: 3 }),
            Some(Member { tenant: TenantId(2), epoch: 2 }),
        ],
        place: Some(MigratingNameClaim {
            tenant: TenantId(1),
            client: 1 << 100,
            connection: 6,
            serial: 11,
            is_superseded: true,
        }),
        requests,
        waiting: None,
        put_off: Vec::new(),
        discards: false,
        unparsed: vec![1, 2, 3],
        paused_at: Instant::from_nanos(4_000_000),
    }
}

/// Encodes and decodes a parcel. Returns it as it arrives at a process whose clock is `ahead`.
fn arrives(
    parcel: &MigratingConnection,
    ahead: Duration,
) -> Result<MigratingConnection, TakeoverRefusal> {
    decode(&encode(parcel, NOW, name).unwrap(), parcel.from, NOW + ahead, member)
}

#[test]
fn a_parcel_arrives_with_its_tenants_by_name() {
    let sent = parcel();
    let ahead = Duration::from_secs(1000);
    let arrived = arrives(&sent, ahead).unwrap();
    let (gold, silver) = (member("gold").unwrap(), member("silver").unwrap());
    let later = |at: Instant| at + ahead;
    let requests = sent.requests.iter().cloned().map(|request| MigratingRequest {
        tenant: silver.tenant,
        received_at: later(request.received_at),
        ..request
    });
    let expected = MigratingConnection {
        ticket: Ticket(0),
        grant: sent.grant.clone().map(|grant| MigratingGrant { tenant: gold.tenant, ..grant }),
        entered: Some(gold),
        handles: vec![None, Some(silver), None],
        place: sent.place.map(|place| MigratingNameClaim {
            tenant: gold.tenant,
            serial: 0,
            ..place
        }),
        requests: requests.collect(),
        paused_at: later(sent.paused_at),
        ..sent.clone()
    };
    assert_eq!(arrived, expected);
}

#[test]
fn one_that_has_said_nothing_arrives_too() {
    let sent = MigratingConnection {
        peer: Peer::Local { uid: 1000 },
        grant: None,
        entered: None,
        handles: vec![],
        place: None,
        requests: vec![],
        discards: true,
        unparsed: vec![],
        ticket: Ticket(0),
        ..parcel()
    };
    assert_eq!(arrives(&sent, Duration::ZERO), Ok(sent));
}

#[test]
fn a_request_that_waits_for_a_buffer_arrives() {
    let mut sent = parcel();
    sent.requests.pop();
    let command = Command::Write { range: Range::new(0, 8), fua: false };
    let (tag, payload_bytes, namespace) = (5, 4096, Some(NamespaceId(1)));
    let (stream, tenant, verdict) = (1, 2, Status::Ok);
    let waiting = Request { tag, stream, namespace, tenant, command, payload_bytes, verdict };
    sent.waiting = Some(waiting);
    sent.peer = Peer::Internet("[2001:db8::1]:9".parse().unwrap());
    let arrived = arrives(&sent, Duration::ZERO).unwrap();
    assert_eq!((arrived.waiting, arrived.peer), (Some(waiting), sent.peer));
    // The waiting payload is received into the command's buffer.
    sent.waiting = Some(Request { payload_bytes: 4608, ..waiting });
    assert_eq!(arrives(&sent, Duration::ZERO), Err(TakeoverRefusal::Value("request")));
    let refused = Request { payload_bytes: 4608, verdict: Status::Invalid, ..waiting };
    sent.waiting = Some(refused);
    assert_eq!(arrives(&sent, Duration::ZERO).unwrap().waiting, Some(refused));
}

#[test]
fn who_is_needed_must_be_known_on_both_sides() {
    let nobody = |_: TenantId, _: Option<u32>| None;
    let unnamed = Err(TakeoverRefusal::Tenant(String::new()));
    assert_eq!(encode(&parcel(), NOW, nobody), unnamed);
    let mut gone = parcel();
    gone.entered = Some(Member { tenant: TenantId(1), epoch: 1 });
    assert_eq!(encode(&gone, NOW, name), unnamed);
    let bytes = encode(&parcel(), NOW, name).unwrap();
    let only_gold = |name: &str| member(name).filter(|_| name == "gold");
    assert_eq!(
        decode(&bytes, 0, NOW, only_gold),
        Err(TakeoverRefusal::Tenant("silver".to_string()))
    );
}

#[test]
fn what_is_no_parcel_is_refused() {
    let good = encode(&parcel(), NOW, name).unwrap();
    for cut in 0..good.len() {
        assert!(decode(&good[..cut], 0, NOW, member).is_err(), "the first {cut} bytes");
    }
    let refused = |bytes: &[u8]| decode(bytes, 0, NOW, member).unwrap_err();
    let mut newer = good.clone();
    newer[8] = VERSION as u8 + 1;
    assert_eq!(refused(&newer), TakeoverRefusal::Version(VERSION + 1));
    assert_eq!(refused(&[&good[..], &[0]].concat()), TakeoverRefusal::Length);
    assert_eq!(refused(b"something else"), TakeoverRefusal::Foreign);
    let mut begun_twice = parcel();
    begun_twice.discards = true;
    assert_eq!(arrives(&begun_twice, Duration::ZERO), Err(TakeoverRefusal::Value("payload")));
    let mut long = parcel();
    long.requests[1].payload = MigratingPayload::Whole(vec![0; 512]);
    assert_eq!(arrives(&long, Duration::ZERO), Err(TakeoverRefusal::Value("payload")));
    let said: Box<str> = refused(&newer).to_string().into();
    assert!(said.contains(&format!("version {}", VERSION + 1)), "{said}");
}
