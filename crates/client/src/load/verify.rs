//! Verifies that the contents of reads are allowed.
//!
//! Each sector of 512 bytes that a verifying run writes carries its address, its generation of
//! writes, and a checksum over all of it. The verifier keeps two generations for each unit of the
//! span: the newest acknowledged and the newest issued one. A unit has 4 KiB, or a sector where
//! requests are finer.
//!
//! A read may find, in each sector by itself, any generation from the one acknowledged at its
//! sending to the one issued at its end. Before the first acknowledged write, zeroes and data of an
//! earlier run are allowed too. Where no write overlaps the read, that leaves one generation, so a
//! torn unit is caught.
//!
//! A verifier covers the writes of one generator; nobody else may write there meanwhile.

use core::fmt;

use contract::{BLOCK_BYTES, Status};
use crc::Crc32c;

/// Maximum number of units of a verifier: 512 GiB of 4 KiB units, in 1 GiB of memory.
pub const VERIFY_UNITS_MAX: u64 = 1 << 27;

/// First bytes of a written sector.
const MAGIC: u32 = 0x6e66_5631;

/// Offsets in a sector: magic, run (4 bytes each), address (8), generation (4), contents, checksum.
const RUN_AT: usize = 4;
const ADDRESS_AT: usize = 8;
const GENERATION_AT: usize = 16;
const CONTENTS_AT: usize = 20;
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;

/// Number of generations before the newest that a bad sector is compared with.
const TORN_GENERATIONS: u32 = 32;

/// The verifier's knowledge of a unit. Generation 0 is the content from before the run.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    /// The newest acknowledged generation: `settled ≤ issued`.
    settled: u32,
    /// The newest issued generation in the low 31 bits. The top bit is set while its write is in
    /// flight.
    issued: u32,
}

const IN_FLIGHT: u32 = 1 << 31;

impl Unit {
    fn newest(self) -> u32 {
        self.issued & !IN_FLIGHT
    }
}

/// Keeps the written generations of a span, and checks reads.
#[derive(Debug)]
pub struct Verifier {
    run: u32,
    first_lba: u64,
    unit_sectors: u64,
    units: Vec<Unit>,
    /// If `true`, a lost write may still be carried out at any time, so nothing newer settles its
    /// unit.
    lost_writes_linger: bool,
}

/// A sector with wrong contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Logical block address of the sector in the namespace or device.
    pub lba: u64,
    /// The wrong contents that were found in the sector.
    pub found: Found,
}

/// The kind of wrong contents that were found in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeroes, though the write with generation `settled` was acknowledged.
    Zeroes {
        /// The oldest generation that the read may find.
        settled: u32,
    },
    /// Bytes that no run wrote, where this run has not written yet: data from before it.
    Unrelated,
    /// Bytes that no run wrote, where this run has written.
    Foreign,
    /// A written sector that does not match its checksum.
    Damaged,
    /// A sector that begins with one generation and ends with another, zero for zeroes. Either a
    /// read was carried out beside a write, or a write in part.
    Torn {
        /// Number of bytes of the first generation, including the following bytes that are equal in
        /// both.
        bytes: u16,
        /// The generation at the sector's beginning; zero for zeroes.
        first: u32,
        /// The generation at the sector's end; zero for zeroes.
        rest: u32,
    },
    /// The contents of another sector.
    Misplaced {
        /// Logical block address for which the found contents were written.
        address: u64,
    },
    /// Contents of a write to this sector that is older than the last acknowledged write, or newer
    /// than any write that was sent.
    Generation {
        /// The generation found in the sector.
        generation: u32,
        /// The oldest generation that the read may find.
        oldest: u32,
        /// The newest generation that the read may find.
        newest: u32,
    },
    /// Data of an earlier run, though the write with generation `settled` was acknowledged.
    EarlierRun {
        /// The oldest generation that the read may find.
        settled: u32,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: ", self.lba)?;
        match self.found {
            Found::Zeroes { settled } => {
                write!(f, "zeroes, although write {settled} was acknowledged")
            }
            Found::Unrelated => f.write_str(
                "holds other data, from before this run, which says nothing about corruption: verify \
                 an empty volume, or one that only verifying runs have written",
            ),
            Found::Foreign => f.write_str("bytes that no verifying run wrote"),
            Found::Damaged => f.write_str("does not match its checksum"),
            Found::Torn { bytes, first, rest } => {
                write!(f, "torn: {bytes} bytes of write {first}, the rest of write {rest}")
            }
            Found::Misplaced { address } => write!(f, "holds the contents of block {address}"),
            Found::Generation { generation, oldest, newest } => {
                write!(f, "holds write {generation}, may hold {oldest} to {newest}")
            }
            Found::EarlierRun { settled } => {
                write!(f, "holds an earlier run's write, although write {settled} was acknowledged")
            }
        }
    }
}

/// The error for a span that is too large to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanTooLarge {
    /// Maximum size of a span in bytes.
    pub span_bytes_max: u64,
}

impl fmt::Display for SpanTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.span_bytes_max >> 30;
        write!(f, "a verified span has at most {gib} GiB at this block size; lower --span")
    }
}

impl std::error::Error for SpanTooLarge {}

/// Returns the size of a unit in bytes: 4 KiB, or a sector if requests are not multiples of it.
pub fn unit_bytes(request_bytes: usize) -> usize {
    if request_bytes.is_multiple_of(4096) { 4096 } else { BLOCK_BYTES }
}

impl Verifier {
    /// Returns a verifier of requests of `request_bytes` in `span_bytes` from `first_lba`. `run`
    /// distinguishes this run's contents from those of earlier ones.
    ///
    /// # Errors
    /// The span has more than [`VERIFY_UNITS_MAX`] units.
    pub fn new(
        run: u32,
        first_lba: u64,
        span_bytes: u64,
        request_bytes: usize,
        lost_writes_linger: bool,
    ) -> Result<Self, SpanTooLarge> {
        let unit = unit_bytes(request_bytes) as u64;
        let count = span_bytes / unit;
        if count > VERIFY_UNITS_MAX {
            return Err(SpanTooLarge { span_bytes_max: VERIFY_UNITS_MAX * unit });
        }
        Ok(Verifier {
            run,
            first_lba,
            unit_sectors: unit / BLOCK_BYTES as u64,
            units: vec![Unit::default(); count as usize],
            lost_writes_linger,
        })
    }

    /// Returns the units of a request of `bytes` bytes at `lba`.
    fn units_of(&self, lba: u64, bytes: usize) -> std::ops::Range<usize> {
        let first = ((lba - self.first_lba) / self.unit_sectors) as usize;
        first..first + bytes / (self.unit_sectors as usize * BLOCK_BYTES)
    }

    /// Returns `true` if no write to any part of the range is in flight. After two concurrent
    /// writes, the order of the two would be unknown.
    pub fn may_write(&self, lba: u64, bytes: usize) -> bool {
        self.units[self.units_of(lba, bytes)].iter().all(|unit| unit.issued & IN_FLIGHT == 0)
    }

    /// Fills a payload for `lba` with its next generation, which is in flight from now on.
    pub fn begin_write(&mut self, lba: u64, payload: &mut [u8]) {
        let unit_bytes = self.unit_sectors as usize * BLOCK_BYTES;
        let units = self.units_of(lba, payload.len());
        let run = self.run;
        let mut address = lba;
        for (unit, bytes) in self.units[units].iter_mut().zip(payload.chunks_exact_mut(unit_bytes))
        {
            assert!(unit.issued & IN_FLIGHT == 0, "one write a unit");
            let generation = unit.issued + 1;
            assert!(generation < IN_FLIGHT, "2³¹ writes of one unit");
            unit.issued = generation | IN_FLIGHT;
            for sector in bytes.chunks_exact_mut(BLOCK_BYTES) {
                stamp(sector, run, address, generation);
                address += 1;
            }
        }
    }

    /// Records the end of a write.
    pub fn end_write(&mut self, lba: u64, bytes: usize, status: Status) {
        let units = self.units_of(lba, bytes);
        for unit in &mut self.units[units] {
            unit.issued &= !IN_FLIGHT;
            if status.is_ok() {
                unit.settled = unit.issued;
            } else if status == Status::ConnectionLost && self.lost_writes_linger {
                // The write may land at any time, over newer data: its unit is not written any
                // more.
                unit.issued |= IN_FLIGHT;
            }
        }
    }

    /// Records in `oldest`, one entry per unit, the oldest generation that a read sent now may
    /// find.
    pub fn begin_read(&self, lba: u64, bytes: usize, oldest: &mut [u32]) {
        for (unit, oldest) in self.units[self.units_of(lba, bytes)].iter().zip(oldest) {
            *oldest = unit.settled;
        }
    }

    /// Checks the data of a read, and calls `failed` for each bad sector.
    pub fn end_read(&self, lba: u64, data: &[u8], oldest: &[u32], mut failed: impl FnMut(Failure)) {
        let unit_bytes = self.unit_sectors as usize * BLOCK_BYTES;
        let units = &self.units[self.units_of(lba, data.len())];
        let mut address = lba;
        for ((unit, &oldest), bytes) in units.iter().zip(oldest).zip(data.chunks_exact(unit_bytes))
        {
            for sector in bytes.chunks_exact(BLOCK_BYTES) {
                if let Err(found) = self.check(sector, address, oldest, unit.newest()) {
                    failed(Failure { lba: address, found });
                }
                address += 1;
            }
        }
    }

    fn check(&self, sector: &[u8], address: u64, oldest: u32, newest: u32) -> Result<(), Found> {
        if word(sector, 0) != MAGIC {
            let zero = sector.iter().all(|&byte| byte == 0);
            return match (zero, oldest) {
                (true, 0) => Ok(()),
                (true, settled) => Err(Found::Zeroes { settled }),
                (false, _) if newest == 0 => Err(Found::Unrelated),
                (false, _) => Err(self.torn(sector, address, newest).unwrap_or(Found::Foreign)),
            };
        }
        if word(sector, CHECKSUM_AT) != Crc32c::of(&sector[..CHECKSUM_AT]) {
            return Err(self.torn(sector, address, newest).unwrap_or(Found::Damaged));
        }
        let found =
            u64::from(word(sector, ADDRESS_AT)) | u64::from(word(sector, ADDRESS_AT + 4)) << 32;
        if found != address {
            return Err(Found::Misplaced { address: found });
        }
        if word(sector, RUN_AT) != self.run {
            return if oldest == 0 { Ok(()) } else { Err(Found::EarlierRun { settled: oldest }) };
        }
        let generation = word(sector, GENERATION_AT);
        if generation == 0 || !(oldest..=newest).contains(&generation) {
            return Err(Found::Generation { generation, oldest, newest });
        }
        Ok(())
    }
    /// Returns the tear of a bad sector that begins with one of the newest generations and ends
    /// with another.
    fn torn(&self, sector: &[u8], address: u64, newest: u32) -> Option<Found> {
        let (mut first, mut rest) = ((0, 0), (0, 0));
        let mut whole = [0; BLOCK_BYTES];
        for generation in newest.saturating_sub(TORN_GENERATIONS)..=newest {
            match generation {
                0 => whole.fill(0),
                _ => stamp(&mut whole, self.run, address, generation),
            }
            let same = |(a, b): &(&u8, &u8)| a == b;
            let start = sector.iter().zip(&whole).take_while(same).count();
            let end = sector.iter().rev().zip(whole.iter().rev()).take_while(same).count();
            first = first.max((start, generation));
            rest = rest.max((end, generation));
        }
        let ((start, first), (end, rest)) = (first, rest);
        let bytes = start as u16;
        (start + end >= BLOCK_BYTES).then_some(Found::Torn { bytes, first, rest })
    }
}

/// Writes a sector's contents: its identity, filler that differs for each sector, and the checksum.
fn stamp(sector: &mut [u8], run: u32, address: u64, generation: u32) {
    sector[..4].copy_from_slice(&MAGIC.to_le_bytes());
    sector[RUN_AT..ADDRESS_AT].copy_from_slice(&run.to_le_bytes());
    sector[ADDRESS_AT..GENERATION_AT].copy_from_slice(&address.to_le_bytes());
    sector[GENERATION_AT..CONTENTS_AT].copy_from_slice(&generation.to_le_bytes());
    let mut filler = address ^ u64::from(generation) << 40 ^ u64::from(run);
    for piece in sector[CONTENTS_AT..CHECKSUM_AT].chunks_exact_mut(8) {
        filler = filler.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        piece.copy_from_slice(&filler.to_le_bytes());
    }
    let checksum = Crc32c::of(&sector[..CHECKSUM_AT]);
    sector[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: usize = 8192;

    fn verifier() -> Verifier {
        Verifier::new(9, 100, 1 << 20, REQUEST, false).unwrap()
    }

    /// Writes a request at `lba`, acknowledges it, and returns its bytes.
    fn write(verifier: &mut Verifier, lba: u64) -> Vec<u8> {
        let mut bytes = vec![0; REQUEST];
        verifier.begin_write(lba, &mut bytes);
        verifier.end_write(lba, REQUEST, Status::Ok);
        bytes
    }

    fn read(verifier: &Verifier, lba: u64, data: &[u8]) -> Vec<Failure> {
        let mut oldest = [0; 2];
        verifier.begin_read(lba, data.len(), &mut oldest);
        let mut failures = Vec::new();
        verifier.end_read(lba, data, &oldest, |failure| failures.push(failure));
        failures
    }

    #[test]
    fn zeroes_are_there_before_the_first_write_and_not_after() {
        let mut verifier = verifier();
        assert_eq!(read(&verifier, 116, &[0; REQUEST]), []);
        write(&mut verifier, 116);
        let failures = read(&verifier, 116, &[0; REQUEST]);
        assert_eq!(failures.len(), 16);
        assert_eq!(failures[0], Failure { lba: 116, found: Found::Zeroes { settled: 1 } });
    }

    #[test]
    fn what_was_written_is_accepted() {
        let mut verifier = verifier();
        let bytes = write(&mut verifier, 116);
        assert_eq!(read(&verifier, 116, &bytes), []);
    }

    #[test]
    fn a_wrong_address_is_caught() {
        let mut verifier = verifier();
        write(&mut verifier, 116);
        let other = write(&mut verifier, 132);
        let failures = read(&verifier, 116, &other);
        assert_eq!(failures.len(), 16);
        assert_eq!(failures[3].found, Found::Misplaced { address: 135 });
    }

    #[test]
    fn a_stale_generation_is_caught() {
        let mut verifier = verifier();
        let old = write(&mut verifier, 116);
        write(&mut verifier, 116);
        let found = Found::Generation { generation: 1, oldest: 2, newest: 2 };
        assert_eq!(read(&verifier, 116, &old)[0].found, found);
    }

    #[test]
    fn a_torn_unit_is_caught() {
        let mut verifier = verifier();
        let old = write(&mut verifier, 116);
        let mut torn = write(&mut verifier, 116);
        torn[4096 - 512..4096].copy_from_slice(&old[4096 - 512..4096]);
        let failures = read(&verifier, 116, &torn);
        let found = Found::Generation { generation: 1, oldest: 2, newest: 2 };
        assert_eq!(failures, [Failure { lba: 123, found }]);
        // Torn within a sector.
        let mut torn = write(&mut verifier, 116);
        torn[300..512].copy_from_slice(&old[300..512]);
        // Five bytes behind the tear are equal in both generations.
        let found = Found::Torn { bytes: 305, first: 3, rest: 1 };
        assert_eq!(read(&verifier, 116, &torn)[0].found, found);
        // Bytes of no generation.
        torn[200] ^= 1;
        assert_eq!(read(&verifier, 116, &torn)[0].found, Found::Damaged);
        // A first write that was carried out in part.
        torn[..300].fill(0);
        assert_eq!(
            read(&verifier, 116, &torn)[0].found,
            Found::Torn { bytes: 300, first: 0, rest: 1 }
        );
    }

    #[test]
    fn a_read_beside_a_write_may_find_either() {
        let mut verifier = verifier();
        let old = write(&mut verifier, 116);
        let mut oldest = [0; 2];
        verifier.begin_read(116, REQUEST, &mut oldest);
        let mut new = vec![0; REQUEST];
        verifier.begin_write(116, &mut new);
        for data in [&old, &new] {
            verifier.end_read(116, data, &oldest, |failure| panic!("{failure}"));
        }
        verifier.end_write(116, REQUEST, Status::Ok);
        // The read that was sent before the acknowledgement may still find the old generation ...
        verifier.end_read(116, &old, &oldest, |failure| panic!("{failure}"));
        // ... and a read that is sent now may not.
        assert_eq!(read(&verifier, 116, &old).len(), 16);
    }

    #[test]
    fn a_failed_write_may_have_happened_or_not() {
        let mut verifier = verifier();
        let old = write(&mut verifier, 116);
        let mut failed = vec![0; REQUEST];
        verifier.begin_write(116, &mut failed);
        assert!(!verifier.may_write(116, REQUEST));
        verifier.end_write(116, REQUEST, Status::MediaError);
        assert!(verifier.may_write(116, REQUEST));
        assert_eq!(read(&verifier, 116, &old), []);
        assert_eq!(read(&verifier, 116, &failed), []);
        let newer = write(&mut verifier, 116);
        assert_eq!(read(&verifier, 116, &failed).len(), 16);
        assert_eq!(read(&verifier, 116, &newer), []);
    }

    #[test]
    fn a_lost_write_without_a_fence_closes_its_unit() {
        let mut verifier = Verifier::new(9, 0, 1 << 20, REQUEST, true).unwrap();
        let mut lost = vec![0; REQUEST];
        verifier.begin_write(16, &mut lost);
        verifier.end_write(16, REQUEST, Status::ConnectionLost);
        assert!(!verifier.may_write(16, REQUEST));
        assert_eq!(read(&verifier, 16, &lost), []);
        assert_eq!(read(&verifier, 16, &[0; REQUEST]), []);
    }

    #[test]
    fn an_earlier_run_is_told_apart() {
        let mut earlier = Verifier::new(8, 100, 1 << 20, REQUEST, false).unwrap();
        let left = write(&mut earlier, 116);
        let mut verifier = verifier();
        assert_eq!(read(&verifier, 116, &left), []);
        write(&mut verifier, 116);
        assert_eq!(read(&verifier, 116, &left)[0].found, Found::EarlierRun { settled: 1 });
        assert_eq!(read(&verifier, 132, &[7; REQUEST])[0].found, Found::Unrelated);
        assert_eq!(read(&verifier, 116, &[7; REQUEST])[0].found, Found::Foreign);
    }

    #[test]
    fn fine_requests_have_fine_units_and_large_spans_are_refused() {
        assert_eq!((unit_bytes(512), unit_bytes(4096), unit_bytes(1536)), (512, 4096, 512));
        let error = Verifier::new(1, 0, 1 << 40, 512, false).unwrap_err();
        assert_eq!(error.span_bytes_max, 64 << 30);
        assert!(error.to_string().contains("at most 64 GiB"));
    }
}
