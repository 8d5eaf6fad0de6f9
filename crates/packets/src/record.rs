//! The records of a packet, read one after the other with checked lengths.

use contract::ProtocolError;
use wire::packets::{FLAG_LAST, RECORD_ALIGN, RecordHead, RecordKind};
use zerocopy::{FromBytes, IntoBytes};

/// Length of a record's head on the wire, in bytes.
pub(crate) const RECORD_BYTES: usize = size_of::<RecordHead>();

/// A record's head, and the location of the record's bytes in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub channel: u16,
    pub kind: RecordKind,
    pub last: bool,
    pub message: u32,
    pub behind: u16,
    pub offset: u32,
    /// Offset of the record's bytes in the packet.
    pub at: usize,
    pub bytes: u16,
}

impl Record {
    /// Writes the head of the record to the start of `to`.
    pub(crate) fn write(&self, to: &mut [u8]) {
        let head = RecordHead {
            channel: self.channel.into(),
            kind: self.kind,
            flags: if self.last { FLAG_LAST } else { 0 },
            message: self.message.into(),
            behind: self.behind.into(),
            bytes: self.bytes.into(),
            offset: self.offset.into(),
        };
        to[..RECORD_BYTES].copy_from_slice(head.as_bytes());
    }
}

/// The records of a packet, in order. The iteration ends after the first error.
pub(crate) struct Records<'a> {
    packet: &'a [u8],
    /// The offset of the next record, a multiple of [`RECORD_ALIGN`]; at or behind the end of the
    /// packet if there is none.
    at: usize,
}

impl<'a> Records<'a> {
    /// Returns the records of `packet` from byte `at` on, which is a multiple of [`RECORD_ALIGN`].
    pub(crate) fn new(packet: &'a [u8], at: usize) -> Records<'a> {
        Records { packet, at }
    }

    fn parse(&self) -> Result<Record, ProtocolError> {
        let rest = &self.packet[self.at..];
        let (head, rest) = RecordHead::read_from_prefix(rest)
            .map_err(|_| ProtocolError::BadLength(rest.len() as u64))?;
        let (bytes, offset) = (head.bytes.get(), head.offset.get());
        if usize::from(bytes) > rest.len() {
            return Err(ProtocolError::BadLength(u64::from(bytes)));
        }
        if head.kind.0 > RecordKind::PING.0 {
            return Err(ProtocolError::BadOpcode(u16::from(head.kind.0)));
        }
        if head.kind == RecordKind::DATA && offset.checked_add(u32::from(bytes)).is_none() {
            return Err(ProtocolError::BadField(12));
        }
        if head.kind != RecordKind::DATA && bytes > 0 {
            return Err(ProtocolError::BadLength(u64::from(bytes)));
        }
        Ok(Record {
            channel: head.channel.get(),
            kind: head.kind,
            last: head.flags & FLAG_LAST != 0,
            message: head.message.get(),
            behind: head.behind.get(),
            offset,
            at: self.at + RECORD_BYTES,
            bytes,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, ProtocolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.packet.len() {
            return None;
        }
        let record = self.parse();
        self.at = match &record {
            Ok(record) => (record.at + usize::from(record.bytes)).next_multiple_of(RECORD_ALIGN),
            Err(_) => self.packet.len(),
        };
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn record(kind: RecordKind, at: usize, bytes: u16) -> Record {
        Record { channel: 7, kind, last: true, message: 3, behind: 1, offset: 0, at, bytes }
    }

    fn packet() -> Vec<u8> {
        let mut packet = vec![0xcd; 40 + 16 + 5];
        record(RecordKind::PING, 16, 0).write(&mut packet);
        record(RecordKind::DATA, 32, 3).write(&mut packet[16..]);
        record(RecordKind::DATA, 56, 5).write(&mut packet[40..]);
        packet
    }

    #[test]
    fn records_begin_at_multiples_of_eight() {
        let records: Vec<_> = Records::new(&packet(), 0).map(Result::unwrap).collect();
        assert_eq!(
            records,
            [
                record(RecordKind::PING, 16, 0),
                record(RecordKind::DATA, 32, 3),
                record(RecordKind::DATA, 56, 5),
            ]
        );
    }

    #[test]
    fn impossible_records_end_the_walk() {
        let broken = |change: fn(&mut Record)| {
            let mut packet = packet();
            let mut second = record(RecordKind::DATA, 32, 3);
            change(&mut second);
            second.write(&mut packet[16..]);
            Records::new(&packet, 0).collect::<Vec<_>>()
        };
        for (change, error) in [
            (
                (|record: &mut Record| record.bytes = 30) as fn(&mut Record),
                ProtocolError::BadLength(30),
            ),
            (|record| record.kind = RecordKind(8), ProtocolError::BadOpcode(8)),
            (|record| record.offset = u32::MAX, ProtocolError::BadField(12)),
            (|record| record.kind = RecordKind::OPEN, ProtocolError::BadLength(3)),
        ] {
            let records = broken(change);
            assert_eq!((records.len(), records[1]), (2, Err(error)));
        }
        let packet = packet();
        for len in 41..packet.len() {
            assert!(Records::new(&packet[..len], 0).last().unwrap().is_err(), "cut to {len}");
        }
    }
}
