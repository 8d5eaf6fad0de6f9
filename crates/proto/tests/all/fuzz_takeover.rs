//! Fuzzes the decoding of connections from another process. Decoding damaged bytes never panics,
//! and allocates no more than the bytes pay for. Decoded content means the same when it is encoded
//! again.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::{self, rounds};
use contract::{
    Command, Instant, ListenerId, Member, MigratingConnection, MigratingGrant, MigratingNameClaim,
    MigratingPayload, MigratingRequest, NamespaceId, NamespaceView, Peer, Range, Request, Rights,
    Status, TenantId, Ticket,
};
use nearflash_proto::takeover::{TakeoverHead, TakeoverRefusal, decode, encode};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 3000;

const NOW: Instant = Instant::from_nanos(1 << 40);

/// The number of existing tenants.
const TENANTS: u32 = 5;

/// A generator of random parts of a parcel.
struct Chance(support::Chance);

impl Chance {
    fn word(&mut self) -> u64 {
        self.0.next()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn happens(&mut self) -> bool {
        self.word() & 1 == 0
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.word() as u8).collect()
    }

    fn instant(&mut self) -> Instant {
        Instant::from_nanos(NOW.as_nanos() - self.word() % (1 << 39))
    }

    fn tenant(&mut self) -> TenantId {
        TenantId(self.below(TENANTS as usize) as u32)
    }

    fn rights(&mut self) -> Rights {
        Rights { read: self.happens(), write: self.happens() }
    }

    fn command(&mut self) -> Command {
        let range = Range::new(self.word() >> 8, 1 + self.below(4) as u32);
        let fua = self.happens();
        match self.below(9) {
            0 => Command::Read(range),
            1 => Command::Write { range, fua },
            2 => Command::WriteAtomic(range),
            3 => Command::Compare(range),
            4 => Command::CompareAndWrite(range),
            5 => Command::Flush,
            6 => Command::Discard(range),
            7 => Command::WriteZeroes { range, fua },
            _ => Command::Barrier,
        }
    }

    fn request(&mut self, may_be_begun: bool) -> MigratingRequest {
        let command = self.command();
        let total = command.payload_bytes();
        let payload = match may_be_begun && total > 0 && self.happens() {
            true => MigratingPayload::Begun(vec![1; self.below(total)]),
            false => MigratingPayload::Whole(vec![2; total]),
        };
        MigratingRequest {
            tag: self.word(),
            stream: self.below(8) as u8,
            tenant: self.tenant(),
            command,
            namespace: NamespaceId(self.word() as u16),
            device: self.word() as u8,
            lba: self.word(),
            payload,
            received_at: self.instant(),
        }
    }

    fn peer(&mut self) -> Peer {
        let port = self.word() as u16;
        match self.below(3) {
            0 => Peer::Internet((Ipv4Addr::from(self.word() as u32), port).into()),
            1 => Peer::Internet((Ipv6Addr::from(u128::from(self.word())), port).into()),
            _ => Peer::Local { uid: self.word() as u32 },
        }
    }

    fn member(&mut self) -> Option<Member> {
        self.happens().then(|| Member { tenant: self.tenant(), epoch: 0 })
    }

    fn view(&mut self) -> NamespaceView {
        let mut view = NamespaceView::new(NamespaceId(self.word() as u16), self.word() >> 1);
        (view.admitted, view.follows) = (self.word(), self.happens());
        for _ in 0..self.below(3) {
            view.learn(NamespaceId(self.word() as u16), self.word());
        }
        view
    }

    fn parcel(&mut self) -> MigratingConnection {
        let count = self.below(6);
        let requests: Vec<MigratingRequest> =
            (0..count).map(|n| self.request(n + 1 == count)).collect();
        let is_begun = requests.iter().any(|one| matches!(one.payload, MigratingPayload::Begun(_)));
        let waits = !is_begun && self.happens();
        let tenant = self.tenant();
        let grant = MigratingGrant {
            tenant,
            register: self.happens(),
            all: self.rights(),
            single: (0..self.below(4)).map(|_| self.rights()).collect(),
        };
        let place = MigratingNameClaim {
            tenant,
            client: u128::from(self.word()),
            connection: self.word() as u32,
            serial: 0,
            is_superseded: self.happens(),
        };
        let command = self.command();
        let waiting = Request {
            tag: self.word(),
            stream: self.below(8) as u8,
            namespace: self.happens().then(|| NamespaceId(1 + self.below(9) as u16)),
            tenant: self.word() as u16,
            command,
            payload_bytes: command.payload_bytes(),
            verdict: Status::Ok,
        };
        MigratingConnection {
            from: self.word() as u16,
            ticket: Ticket(0),
            peer: self.peer(),
            listener: ListenerId::new(self.word() as u16, 0),
            view: self.view(),
            session: self.bytes(60),
            grant: self.happens().then_some(grant),
            entered: self.member(),
            handles: (0..self.below(4)).map(|_| self.member()).collect(),
            place: self.happens().then_some(place),
            requests,
            waiting: waits.then_some(waiting),
            put_off: Vec::new(),
            discards: !is_begun && !waits && self.happens(),
            unparsed: self.bytes(3000),
            paused_at: self.instant(),
        }
    }
}

fn name(tenant: TenantId, _: Option<u32>) -> Option<String> {
    (tenant.0 < TENANTS).then(|| format!("tenant {}", tenant.0))
}

fn member(name: &str) -> Option<Member> {
    let number = name.strip_prefix("tenant ")?.parse().ok().filter(|n| *n < TENANTS)?;
    Some(Member { tenant: TenantId(number), epoch: 0 })
}

fn arrives(bytes: &[u8], from: u16) -> Result<MigratingConnection, TakeoverRefusal> {
    decode(bytes, from, NOW, member)
}

/// Decodes one intact parcel and many damaged ones. Returns how many damaged parcels were accepted.
fn round(seed: u64) -> usize {
    let mut chance = Chance(support::Chance(seed));
    let sent = chance.parcel();
    let good = encode(&sent, NOW, name).expect("all tenants have names");
    assert_eq!(arrives(&good, sent.from), Ok(sent.clone()));
    let mut believed = 0;
    for _ in 0..30 {
        let mut bytes = good.clone();
        for _ in 0..1 + chance.below(4) {
            let at = chance.below(bytes.len());
            match chance.below(4) {
                0 => bytes[at] = chance.word() as u8,
                1 => bytes[at] ^= 1 << chance.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let most = bytes.len().min(at + 4);
                    bytes[at..most].fill(if chance.happens() { 0xff } else { 0 });
                }
            }
        }
        // Corrects the length field, which would reveal the damage.
        if chance.happens() && bytes.len() >= 14 {
            let length = (bytes.len() - 14) as u32;
            bytes[10..14].copy_from_slice(&length.to_le_bytes());
        }
        let Ok(arrived) = arrives(&bytes, 0) else { continue };
        believed += 1;
        let again = encode(&arrived, NOW, name).expect("it names only who is there");
        assert_eq!(arrives(&again, 0), Ok(arrived));
    }
    let mut head = [0; TakeoverHead::BYTES];
    head.fill_with(|| chance.word() as u8);
    if chance.happens() {
        head[..8].copy_from_slice(b"nftk\x01\x00\x07\x00");
    }
    if let Ok(parsed) = TakeoverHead::parse(&head) {
        assert_eq!(parsed.to_bytes(), Ok(head));
    }
    believed
}

#[test]
fn changed_parcels_are_refused_or_mean_something() {
    let mut believed = 0;
    rounds::rounds(ROUNDS, |seed| believed += round(seed));
    println!("{believed} changed parcels made sense");
    assert!(believed > 0, "some changes do no harm");
}
