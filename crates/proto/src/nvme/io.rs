//! Commands of I/O queues (NVM 3.2): translation of submissions to contract commands, and of
//! contract statuses to NVMe statuses.

use alloc::vec::Vec;

use contract::{Command, Range};
use wire::nvme::{
    BLOCK_FUA, DISCARD_RANGES_MAX, DiscardRange, Fuse, NvmOpcode, ReservationAcquire,
    ReservationRegister, ReservationRelease, Status, Submission, ZEROES_DEALLOCATE,
};
use zerocopy::FromBytes;

use super::binding::{DeviceRequest, FusedPart};
use super::data;
use super::link::{VisibleNamespace, VisibleNamespaces};

/// The bit "Deallocate" in dword 11 of Dataset Management.
const DISCARD: u32 = 1 << 2;

/// Returns the size in bytes of the payload of an I/O command that the controller carries out
/// itself; `None` for other commands.
pub(super) fn payload_of_controllers(entry: &Submission) -> Option<usize> {
    match NvmOpcode(entry.opcode) {
        // Linux describes, and sends, a whole page whatever the number of ranges.
        NvmOpcode::DATASET_MANAGEMENT => {
            let described = data::described(entry).unwrap_or(0);
            Some(described.max(discard_bytes(entry)))
        }
        NvmOpcode::RESERVATION_REGISTER => Some(size_of::<ReservationRegister>()),
        NvmOpcode::RESERVATION_ACQUIRE => Some(size_of::<ReservationAcquire>()),
        NvmOpcode::RESERVATION_RELEASE => Some(size_of::<ReservationRelease>()),
        NvmOpcode::RESERVATION_REPORT => Some(0),
        _ => None,
    }
}

/// Translates a submission to a command for a device. With `through`, every write is durable when
/// it is acknowledged.
// Commands are large: from here until they are in their table, they stay where they are made.
#[inline(always)]
pub(super) fn parse(
    view: &VisibleNamespaces,
    entry: &Submission,
    through: bool,
) -> Result<DeviceRequest, Status> {
    let opcode = NvmOpcode(entry.opcode);
    let is_served = matches!(
        opcode,
        NvmOpcode::FLUSH
            | NvmOpcode::WRITE
            | NvmOpcode::READ
            | NvmOpcode::COMPARE
            | NvmOpcode::WRITE_ZEROES
            | NvmOpcode::VERIFY
    );
    if !is_served {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    let seen = view.find(entry.nsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let fuse = entry.fuse();
    match (fuse, opcode) {
        (Fuse::NONE, _) | (Fuse::FIRST, NvmOpcode::COMPARE) | (Fuse::SECOND, NvmOpcode::WRITE) => {}
        _ => return Err(Status::INVALID_FIELD.dnr()),
    }
    let command = command(seen, entry, opcode, through)?;
    let (payload_bytes, reply_bytes) = match (opcode, command.range()) {
        (NvmOpcode::READ, Some(range)) => (0, range.bytes()),
        (NvmOpcode::WRITE | NvmOpcode::COMPARE, Some(range)) => (range.bytes(), 0),
        _ => (0, 0),
    };
    if payload_bytes + reply_bytes > 0 {
        data::expect(entry, payload_bytes + reply_bytes)?;
    }
    Ok(DeviceRequest {
        cid: entry.cid.get(),
        nsid: seen.nsid,
        namespace: seen.namespace,
        tenant: seen.tenant,
        command,
        payload_bytes,
        reply_bytes,
        fused: match fuse {
            Fuse::FIRST => FusedPart::First,
            // The queue knows the identifier of the first half.
            Fuse::SECOND => FusedPart::Second { first: entry.cid.get() },
            _ => FusedPart::None,
        },
    })
}

#[inline(always)]
fn command(
    seen: &VisibleNamespace,
    entry: &Submission,
    opcode: NvmOpcode,
    through: bool,
) -> Result<Command, Status> {
    if opcode == NvmOpcode::FLUSH {
        return permit(seen.flushes).map(|()| Command::Flush);
    }
    let writes = matches!(opcode, NvmOpcode::WRITE | NvmOpcode::WRITE_ZEROES);
    let range = range(seen, entry.lba(), u64::from(entry.blocks()))?;
    let limited = opcode != NvmOpcode::WRITE_ZEROES;
    if limited && range.bytes() > contract::REQUEST_BYTES_MAX {
        return Err(Status::INVALID_FIELD.dnr());
    }
    permit(if writes { seen.writes } else { seen.reads })?;
    let dword12 = entry.dword12.get();
    let fua = dword12 & BLOCK_FUA != 0 || through;
    let deallocate = dword12 & ZEROES_DEALLOCATE != 0;
    Ok(match (opcode, entry.fuse()) {
        (NvmOpcode::READ | NvmOpcode::VERIFY, _) => Command::Read(range),
        (NvmOpcode::COMPARE | NvmOpcode::WRITE, Fuse::FIRST | Fuse::SECOND) => {
            permit(seen.writes)?;
            Command::CompareAndWrite(range)
        }
        (NvmOpcode::COMPARE, _) => Command::Compare(range),
        (NvmOpcode::WRITE, _) => Command::Write { range, fua },
        // Discarded blocks read as zeroes, but a discard need not be durable.
        (_, _) if deallocate && !fua => Command::Discard(range),
        (_, _) => Command::WriteZeroes { range, fua },
    })
}

#[inline]
pub(super) fn permit(status: Status) -> Result<(), Status> {
    if status.is_ok() { Ok(()) } else { Err(status) }
}

/// Translates a host's range to blocks of 512 bytes. Fails if the range exceeds the namespace.
#[inline]
fn range(seen: &VisibleNamespace, lba: u64, blocks: u64) -> Result<Range, Status> {
    let out_of_range = Status::LBA_OUT_OF_RANGE.dnr();
    let end = lba.checked_add(blocks).ok_or(out_of_range)?;
    if end > seen.blocks {
        return Err(out_of_range);
    }
    let blocks = u32::try_from(blocks << seen.shift).map_err(|_| out_of_range)?;
    Ok(Range::new(lba << seen.shift, blocks))
}

/// Returns the size in bytes of the list of ranges of a Dataset Management.
fn discard_bytes(entry: &Submission) -> usize {
    let ranges = (entry.dword10.get() as usize & (DISCARD_RANGES_MAX - 1)) + 1;
    ranges * size_of::<DiscardRange>()
}

/// Appends the ranges to discard of a Dataset Management (NVM 3.2.3) to `ranges`; none if the
/// command only gives hints.
pub(super) fn discard(
    view: &VisibleNamespaces,
    entry: &Submission,
    payload: &[u8],
    ranges: &mut Vec<Range>,
) -> Result<DeviceRequest, Status> {
    let seen = view.find(entry.nsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let listed = payload.get(..discard_bytes(entry)).ok_or(Status::DATA_SGL_LENGTH.dnr())?;
    let listed =
        <[DiscardRange]>::ref_from_bytes(listed).map_err(|_| Status::DATA_SGL_LENGTH.dnr())?;
    permit(seen.writes)?;
    for listed in listed {
        let (lba, blocks) = (listed.lba.get(), u64::from(listed.blocks.get()));
        if lba.checked_add(blocks).is_none_or(|end| end > seen.blocks) {
            ranges.clear();
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        if blocks > 0 {
            add_ranges(seen, lba, blocks, ranges);
        }
    }
    if entry.dword11.get() & DISCARD == 0 {
        ranges.clear();
    }
    Ok(DeviceRequest {
        cid: entry.cid.get(),
        nsid: seen.nsid,
        namespace: seen.namespace,
        tenant: seen.tenant,
        command: Command::Discard(ranges.first().copied().unwrap_or(Range::new(0, 1))),
        payload_bytes: 0,
        reply_bytes: 0,
        fused: FusedPart::None,
    })
}

/// Appends a host's range to `ranges`, in pieces if it has more 512-byte blocks than one contract
/// range can have.
fn add_ranges(seen: &VisibleNamespace, lba: u64, blocks: u64, ranges: &mut Vec<Range>) {
    let most = u64::from(u32::MAX) >> 3 << 3;
    let (mut lba, mut left) = (lba << seen.shift, blocks << seen.shift);
    while left > 0 {
        let piece = left.min(most);
        ranges.push(Range::new(lba, piece as u32));
        lba += piece;
        left -= piece;
    }
}

/// Returns the NVMe status for a contract status.
pub(super) fn status(io: &DeviceRequest, status: contract::Status) -> Status {
    use contract::Status as Ended;
    let reads = matches!(io.command, Command::Read(_) | Command::Compare(_));
    match status {
        Ended::Ok => Status::SUCCESS,
        Ended::Unsupported => Status::INVALID_OPCODE.dnr(),
        Ended::Invalid | Ended::BadLength | Ended::AtomicTooLarge => Status::INVALID_FIELD.dnr(),
        Ended::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        Ended::Denied => Status::ACCESS_DENIED.dnr(),
        // The namespace was removed while the command was on its way.
        Ended::NoNamespace => Status::INVALID_NAMESPACE.dnr(),
        Ended::NoTenant | Ended::NoResources | Ended::Retry => Status::INTERRUPTED,
        Ended::CompareFailed => Status::COMPARE_FAILURE.dnr(),
        Ended::BadChecksum => Status::TRANSIENT_TRANSPORT,
        Ended::MediaError if reads => Status::READ_ERROR,
        Ended::MediaError => Status::WRITE_FAULT,
        Ended::NoSpace => Status::CAPACITY_EXCEEDED.dnr(),
        Ended::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        Ended::ConnectionLost => Status::PATH_INTERNAL,
        _ => Status::INTERNAL,
    }
}

/// Returns `true` if the submission is the second half of a fused operation.
pub(super) fn is_second(entry: &Submission) -> bool {
    entry.fuse() == Fuse::SECOND
}

/// Returns the opcode of a device's command, for the error log.
pub(super) fn opcode(io: &DeviceRequest) -> u8 {
    let opcode = match io.command {
        Command::Read(_) if io.reply_bytes == 0 => NvmOpcode::VERIFY,
        Command::Read(_) => NvmOpcode::READ,
        Command::Compare(_) => NvmOpcode::COMPARE,
        Command::Flush => NvmOpcode::FLUSH,
        Command::WriteZeroes { .. } => NvmOpcode::WRITE_ZEROES,
        Command::Discard(_) => NvmOpcode::DATASET_MANAGEMENT,
        _ => NvmOpcode::WRITE,
    };
    opcode.0
}
