//! Serialization of a server's session that moves to another worker or process: its phase, the
//! payload that is passing, and the message that is being gathered.
//!
//! Format 1 is little-endian: protocol and format (2 bytes), phase (1), checksums (1), bytes left
//! of the payload (4), whether they have a checksum (1), that checksum (4), the complement of the
//! checksum so far (4), the number of gathered bytes (1), and those bytes.

use alloc::vec::Vec;

use super::passage::PayloadProgress;
use super::server::{Phase, ServerSession};
use crate::carry::PartialMessage;

/// The first bytes of a serialized session of protocol `reflex`, in format 1.
const FORMAT: [u8; 2] = [b'r', 1];

/// The phases of a session, indexed by their number in the format.
const PHASES: [Phase; 6] =
    [Phase::Undetected, Phase::V1, Phase::Hello, Phase::Unanswered, Phase::Open, Phase::Refused];

impl ServerSession {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (left, expected, crc) = self.payload.to_parts();
        let phase = PHASES.iter().position(|phase| *phase == self.phase);
        let mut bytes = Vec::from(FORMAT);
        bytes.push(phase.expect("every phase has a number") as u8);
        bytes.push(u8::from(self.checksums));
        bytes.extend(left.to_le_bytes());
        bytes.push(u8::from(expected.is_some()));
        bytes.extend(expected.unwrap_or(0).to_le_bytes());
        bytes.extend(crc.to_le_bytes());
        let gathered = self.carry.bytes();
        bytes.push(gathered.len() as u8);
        bytes.extend(gathered);
        bytes
    }

    pub(super) fn from_bytes(mut bytes: &[u8]) -> Option<ServerSession> {
        let input = &mut bytes;
        if take(input)? != FORMAT {
            return None;
        }
        let [phase, checksums] = take(input)?;
        let left = u32::from_le_bytes(take(input)?);
        let [is_expected] = take(input)?;
        let expected = u32::from_le_bytes(take(input)?);
        let crc = u32::from_le_bytes(take(input)?);
        let [gathered] = take(input)?;
        if input.len() != usize::from(gathered) {
            return None;
        }
        Some(ServerSession {
            phase: *PHASES.get(usize::from(phase))?,
            checksums: checksums != 0,
            payload: PayloadProgress::from_parts(left, (is_expected != 0).then_some(expected), crc),
            carry: PartialMessage::holding(input)?,
        })
    }
}

/// Takes the next `N` bytes off the front of `input`; `None` if fewer are left.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::{format, vec};
    use contract::{
        Command, Hello, HelloReply, MigratableSession, Range, Reply, RestorableSession, Session,
        Status,
    };

    use crate::reflex::ClientSession;

    fn welcome() -> Reply {
        let reply = HelloReply { checksums: true, ..HelloReply::default() };
        Reply::Hello { tag: 0, status: Status::Ok, reply }
    }

    /// Returns the events of a session over a stream, as text. The session is packed and unpacked
    /// before every byte that `moves` selects.
    fn events(stream: &[u8], moves: impl Fn(usize) -> bool) -> String {
        let mut session = ServerSession::new();
        let (mut said, mut payload) = (String::new(), Vec::new());
        for (n, byte) in stream.iter().enumerate() {
            if moves(n) {
                session = ServerSession::unpack(&session.pack().unwrap()).unwrap();
            }
            let mut input = core::slice::from_ref(byte);
            while let Some(event) = session.next_event(&mut input).unwrap() {
                match event {
                    contract::SessionEvent::Payload { bytes, end } => {
                        payload.extend_from_slice(bytes);
                        if let Some(end) = end {
                            said += &format!("{end:?} {payload:?}\n");
                            payload.clear();
                        }
                    }
                    event => said += &format!("{event:?}\n"),
                }
                if session.version() == Some(2) && !session.takes_notices() {
                    session.reply(&welcome(), &[]).unwrap();
                }
            }
        }
        said
    }

    /// Appends the bytes of a write of one block and of a read to a client's stream.
    fn add_requests(client: &mut ClientSession, stream: &mut Vec<u8>) {
        let range = Range::new(0, 1);
        let write = Command::Write { range, fua: false };
        for (tag, command, payload) in [(2, write, vec![7; 512]), (3, Command::Read(range), vec![])]
        {
            let head = client.request(tag, 0, None, command, &payload).unwrap();
            stream.extend_from_slice(head.bytes());
            stream.extend(payload);
        }
    }

    fn stays_the_same_wherever_it_moves(stream: &[u8], lines: usize) {
        let stays = events(stream, |_| false);
        assert_eq!(stays.lines().count(), lines, "{stays}");
        for at in 0..stream.len() {
            assert_eq!(events(stream, |n| n == at), stays, "moved before byte {at}");
        }
        assert_eq!(events(stream, |_| true), stays);
    }

    #[test]
    fn a_session_may_move_before_any_byte() {
        let mut stream = Vec::new();
        add_requests(&mut ClientSession::v1(), &mut stream);
        stays_the_same_wherever_it_moves(&stream, 3);
    }

    #[test]
    fn a_hello_and_what_was_agreed_move_along() {
        let hello = Hello { checksums: true, token: (*b"secret").into(), ..Hello::default() };
        let mut client = ClientSession::v2(hello);
        let mut stream: Vec<u8> =
            client.greeting().iter().flat_map(|head| head.bytes().to_vec()).collect();
        let mut server = ServerSession::new();
        let mut input = &stream[..];
        assert!(server.next_event(&mut input).unwrap().is_some());
        let head = server.reply(&welcome(), &[]).unwrap();
        assert!(client.next_event(&mut head.bytes()).unwrap().is_some());
        assert!(client.checksums());
        add_requests(&mut client, &mut stream);
        stays_the_same_wherever_it_moves(&stream, 4);
    }

    #[test]
    fn what_is_no_session_is_refused() {
        let good = ServerSession::new().to_bytes();
        assert!(ServerSession::unpack(&good).is_some());
        for cut in 0..good.len() {
            assert!(ServerSession::unpack(&good[..cut]).is_none(), "the first {cut} bytes");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(ServerSession::unpack(&longer).is_none());
        for (place, value) in [(0, b'n'), (1, 2), (2, 6), (17, 255)] {
            let mut bad = good.clone();
            bad[place] = value;
            assert!(ServerSession::unpack(&bad).is_none(), "{value} at {place}");
        }
    }
}
