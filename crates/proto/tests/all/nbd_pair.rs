//! Tests of the client's end of NBD: with our server, with servers of other kinds, and with broken
//! ones.

use std::collections::BTreeMap;

use contract::{Command, Range, Status};
use nearflash_proto::nbd::{ClientEvent, NbdClient, NbdRefusal};
use wire::nbd::{
    CHUNK_DONE, CHUNK_MAGIC, ChunkHead, ChunkKind, GREETING_MAGIC, Greeting, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionKind, OptionReply, OptionReplyHead, SIMPLE_REPLY_MAGIC, SimpleReply,
    errno,
};
use zerocopy::IntoBytes;

use crate::nbd_rig::Rig;
use crate::support::{Chance, Damage, cut, rounds};

/// The number of requests in flight.
const DEPTH: usize = 8;

/// The size of the export in blocks of 512 bytes.
const BLOCKS: usize = 5000;

/// A client, the data that it has read, and the outcomes of its requests.
struct Reader {
    client: NbdClient,
    data: BTreeMap<u64, Vec<u8>>,
    ended: BTreeMap<u64, Status>,
    is_up: bool,
}

impl Reader {
    fn new() -> Reader {
        let client = NbdClient::new("first", DEPTH);
        Reader { client, data: BTreeMap::new(), ended: BTreeMap::new(), is_up: false }
    }

    /// Takes bytes of the server. Returns the bytes that the client sends by itself.
    fn take(&mut self, mut input: &[u8]) -> Result<Vec<u8>, NbdRefusal> {
        while let Some(event) = self.client.next_event(&mut input)? {
            match event {
                ClientEvent::Up => self.is_up = true,
                ClientEvent::Data { cookie, at, bytes } => {
                    self.data.get_mut(&cookie).expect("a read")[at..at + bytes.len()]
                        .copy_from_slice(bytes);
                }
                ClientEvent::Hole { cookie, at, bytes } => {
                    self.data.get_mut(&cookie).expect("a read")[at..at + bytes].fill(0);
                }
                ClientEvent::Ended { cookie, status } => {
                    assert!(self.ended.insert(cookie, status).is_none(), "{cookie} ends twice");
                }
            }
        }
        assert!(input.is_empty(), "all is taken");
        Ok(self.client.speech().flat_map(|head| head.bytes().to_vec()).collect())
    }

    fn ask(&mut self, cookie: u64, command: Command) -> Vec<u8> {
        self.data.insert(cookie, vec![0xee; command.reply_bytes()]);
        self.client.request(cookie, command).unwrap().bytes().to_vec()
    }
}

/// Lets both ends talk until nothing is left to say.
fn talk(reader: &mut Reader, rig: &mut Rig, chance: &mut Chance) {
    loop {
        let output = std::mem::take(&mut rig.output);
        let mut words = Vec::new();
        for piece in cut(chance, &output) {
            words.extend(reader.take(piece).unwrap());
        }
        if words.is_empty() {
            break;
        }
        for piece in cut(chance, &words) {
            rig.receive(piece);
        }
    }
}

fn wish(chance: &mut Chance) -> Command {
    let first = chance.below(BLOCKS);
    let most = if chance.flip() { 16 } else { 2048 };
    let range = Range::new(first as u64, 1 + chance.below((BLOCKS - first).min(most)) as u32);
    match chance.below(8) {
        0..=2 => Command::Read(range),
        3..=4 => Command::Write { range, fua: chance.flip() },
        5 => Command::Discard(range),
        6 => Command::WriteZeroes { range, fua: chance.flip() },
        _ => Command::Flush,
    }
}

#[test]
fn what_a_client_has_written_it_reads() {
    for seed in 0..30 {
        let mut chance = Chance(seed);
        let (mut reader, mut rig) = (Reader::new(), Rig::new(BLOCKS));
        talk(&mut reader, &mut rig, &mut chance);
        assert!(reader.is_up);
        let found = reader.client.found();
        assert_eq!((found.bytes, found.is_writable), (BLOCKS as u64 * 512, true));
        assert_eq!((found.block_bytes, found.request_bytes_max), (512, 1 << 20));
        let mut model = vec![0; BLOCKS * 512];
        for _ in 0..4 {
            let mut expected = BTreeMap::new();
            for cookie in 0..DEPTH as u64 {
                let command = wish(&mut chance);
                let mut bytes = reader.ask(cookie, command);
                let fill = 1 + chance.below(255) as u8;
                bytes.resize(bytes.len() + command.payload_bytes(), fill);
                if let Some(range) = command.range() {
                    let from = range.lba as usize * 512;
                    let place = &mut model[from..from + range.bytes()];
                    match command {
                        Command::Read(_) => drop(expected.insert(cookie, place.to_vec())),
                        Command::Write { .. } => place.fill(fill),
                        _ => place.fill(0),
                    }
                }
                for piece in cut(&mut chance, &bytes) {
                    rig.receive(piece);
                }
            }
            // Oldest first, so that the volume is that of one request after the other.
            rig.answer_all();
            talk(&mut reader, &mut rig, &mut chance);
            let ended = std::mem::take(&mut reader.ended);
            assert!(ended.len() == DEPTH && ended.values().all(|status| status.is_ok()));
            for (cookie, data) in expected {
                assert!(reader.data[&cookie] == data, "seed {seed}: {cookie}");
            }
        }
        assert!(rig.volume == model, "seed {seed}");
    }
}

#[test]
fn failures_are_those_of_the_server() {
    let (mut reader, mut rig) = (Reader::new(), Rig::new(BLOCKS));
    talk(&mut reader, &mut rig, &mut Chance(1));
    rig.broken = Range::new(8, 1);
    rig.receive(&reader.ask(0, Command::Read(Range::new(0, 16))));
    rig.receive(&reader.ask(1, Command::Discard(Range::new(8, 1))));
    rig.receive(&reader.ask(2, Command::Read(Range::new(BLOCKS as u64, 1))));
    rig.answer_all();
    talk(&mut reader, &mut rig, &mut Chance(2));
    let ended: Vec<Status> = reader.ended.values().copied().collect();
    assert_eq!(ended, [Status::MediaError, Status::MediaError, Status::Invalid]);
    let compare = Command::Barrier;
    assert_eq!(reader.client.request(0, compare).err(), Some(Status::Unsupported));
    for (export, reply) in [("none", OptionReply::UNKNOWN), ("third", OptionReply::POLICY)] {
        let mut reader = Reader { client: NbdClient::new(export, 1), ..Reader::new() };
        let mut rig = Rig::new(8);
        let refusal = loop {
            let output = std::mem::take(&mut rig.output);
            match reader.take(&output) {
                Ok(words) => rig.receive(&words),
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal, NbdRefusal::Export(reply));
    }
}

fn reply(option: OptionKind, reply: OptionReply, data: &[u8]) -> Vec<u8> {
    let head = OptionReplyHead {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.0.into(),
        reply: reply.0.into(),
        bytes: (data.len() as u32).into(),
    };
    [head.as_bytes(), data].concat()
}

/// Returns the bytes that a server sends until the export is chosen.
fn welcome(has_structured: bool) -> Vec<u8> {
    let greeting = Greeting {
        magic: GREETING_MAGIC.into(),
        option_magic: OPTION_MAGIC.into(),
        flags: 1.into(),
    };
    let structured = if has_structured { OptionReply::ACK } else { OptionReply::UNSUPPORTED };
    let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 3]].concat();
    let mut bytes = greeting.as_bytes().to_vec();
    bytes.extend(reply(OptionKind::STRUCTURED_REPLY, structured, b"no"));
    bytes.extend(reply(OptionKind::GO, OptionReply::INFO, &export));
    bytes.extend(reply(OptionKind::GO, OptionReply::INFO, &[0, 9, 1]));
    bytes.extend(reply(OptionKind::GO, OptionReply::ACK, &[]));
    bytes
}

fn simple(cookie: u64, error: u32) -> Vec<u8> {
    let magic = SIMPLE_REPLY_MAGIC.into();
    SimpleReply { magic, error: error.into(), cookie: cookie.into() }.as_bytes().to_vec()
}

fn chunk(cookie: u64, kind: ChunkKind, flags: u16, body: &[u8]) -> Vec<u8> {
    let head = ChunkHead {
        magic: CHUNK_MAGIC.into(),
        flags: flags.into(),
        kind: kind.0.into(),
        cookie: cookie.into(),
        bytes: (body.len() as u32).into(),
    };
    [head.as_bytes(), body].concat()
}

/// Returns a client of a server of another kind, which may only read.
fn welcomed(has_structured: bool) -> Reader {
    let mut reader = Reader::new();
    assert!(!reader.take(&welcome(has_structured)).unwrap().is_empty());
    let found = reader.client.found();
    assert!(reader.is_up && found.bytes == 1 << 20 && !found.is_writable);
    reader
}

/// Returns the body of a chunk of data or of a hole.
fn at(offset: u64, rest: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes()[..], rest].concat()
}

#[test]
fn servers_of_simple_replies_are_understood() {
    let mut reader = welcomed(false);
    reader.ask(1, Command::Read(Range::new(4, 2)));
    reader.ask(2, Command::Flush);
    reader.ask(3, Command::Read(Range::new(4, 2)));
    let stream = [simple(3, errno::EIO), simple(1, 0), vec![7; 1024], simple(2, 0)].concat();
    for byte in stream {
        reader.take(&[byte]).unwrap();
    }
    assert_eq!(reader.data[&1], [7; 1024]);
    let ended: Vec<Status> = reader.ended.values().copied().collect();
    assert_eq!(ended, [Status::Ok, Status::Ok, Status::MediaError]);
}

#[test]
fn holes_and_errors_with_words_are_understood() {
    let mut reader = welcomed(true);
    reader.ask(1, Command::Read(Range::new(4, 3)));
    reader.ask(2, Command::Read(Range::new(0, 1)));
    let words = [&22_u32.to_be_bytes()[..], &5_u16.to_be_bytes(), b"words"].concat();
    let stream = [
        chunk(1, ChunkKind::OFFSET_DATA, 0, &at(2048 + 1024, &[7; 512])),
        chunk(2, ChunkKind::OFFSET_DATA, 0, &at(0, &[1; 100])),
        chunk(1, ChunkKind::OFFSET_HOLE, 0, &at(2048, &1024_u32.to_be_bytes())),
        chunk(2, ChunkKind::ERROR, 0, &words),
        chunk(1, ChunkKind::NONE, CHUNK_DONE, &[]),
        chunk(2, ChunkKind::NONE, CHUNK_DONE, &[]),
    ];
    for byte in stream.concat() {
        reader.take(&[byte]).unwrap();
    }
    assert_eq!(reader.data[&1], [[0; 512], [0; 512], [7; 512]].concat());
    assert_eq!(reader.ended[&1], Status::Ok);
    assert_eq!(reader.ended[&2], Status::Invalid);
}

#[test]
fn broken_servers_are_given_up() {
    let done = CHUNK_DONE;
    let data = ChunkKind::OFFSET_DATA;
    let hole = at(2048, &u32::MAX.to_be_bytes());
    let cases = [
        vec![0; 16],
        simple(9, 0),
        simple(2, 0),
        simple(1, 0),
        chunk(2, ChunkKind::NONE, done, &[]),
        chunk(1, ChunkKind::NONE, done, &[]),
        chunk(1, ChunkKind::NONE, done, &[0]),
        chunk(1, ChunkKind(77), done, &[0; 16]),
        chunk(1, data, done, &at(2048, &[0; 100])),
        chunk(1, data, done, &at(2049, &[0; 512])),
        chunk(1, data, done, &at(0, &[0; 512])),
        chunk(1, data, done, &[0; 7]),
        chunk(1, ChunkKind::OFFSET_HOLE, done, &hole),
        chunk(1, ChunkKind::ERROR, done, &[0; 5]),
    ];
    for case in cases {
        let mut reader = welcomed(true);
        reader.ask(1, Command::Read(Range::new(4, 1)));
        assert!(matches!(reader.take(&case), Err(NbdRefusal::Protocol(_))), "{case:02x?}");
    }
    let mut reader = welcomed(true);
    reader.ask(1, Command::Flush);
    let stream = chunk(1, data, done, &at(0, &[0; 512]));
    assert!(reader.take(&stream).is_err(), "a flush has no data");
    assert!(Reader::new().take(b"SSH-2.0-OpenSSH_9.2p1").is_err());
    let huge =
        [&welcome(true)[..18], &reply(OptionKind::GO, OptionReply::ACK, &[0; 9000])].concat();
    assert!(Reader::new().take(&huge).is_err());
    let unsized_export = [
        &welcome(true)[..18],
        &reply(OptionKind::STRUCTURED_REPLY, OptionReply::ACK, &[]),
        &reply(OptionKind::GO, OptionReply::ACK, &[]),
    ];
    assert!(Reader::new().take(&unsized_export.concat()).is_err());
}

/// The kinds of damage that the tests do to streams.
const DAMAGE: Damage = Damage {
    places_least: 0,
    telling: [0, 1, 2, 3, 5, 6, 7, 8, 0x10, 0x25, 0x7f, 0xff],
    copied: 44,
};

#[test]
fn clients_stand_tampered_streams() {
    let (mut refused, mut ended) = (0, 0);
    rounds::rounds(1000, |seed| {
        let chance = &mut Chance(seed);
        let structured = chance.flip();
        let mut reader = welcomed(structured);
        let mut stream = Vec::new();
        for cookie in 0..4 {
            let range = Range::new(cookie, 1 + chance.below(4) as u32);
            reader.ask(cookie, Command::Read(range));
            let body = vec![cookie as u8; range.bytes()];
            stream.extend(match structured {
                true => chunk(cookie, ChunkKind::OFFSET_DATA, CHUNK_DONE, &at(cookie * 512, &body)),
                false => [simple(cookie, 0), body].concat(),
            });
        }
        DAMAGE.tamper(chance, &mut stream);
        let broken = cut(chance, &stream).into_iter().find(|piece| reader.take(piece).is_err());
        refused += u32::from(broken.is_some());
        ended += reader.ended.len();
        let mut whole = welcome(structured);
        DAMAGE.tamper(chance, &mut whole);
        let mut stranger = Reader::new();
        let _any = cut(chance, &whole).into_iter().find(|piece| stranger.take(piece).is_err());
    });
    assert!(refused > 0 && ended > 0, "{refused} {ended}");
}
