//! A host's requests, in the terms of the model and in those of NVMe.

use contract::{Command, Range, Status};
use proto::nvme_tcp::TransferSizes;
use wire::nvme::{
    BLOCK_FUA, CommandId, DiscardRange, NvmOpcode, SglDescriptor, Status as NvmeStatus, Submission,
};
use zerocopy::IntoBytes;

use super::controllers::NSID;

/// The most data in a capsule, in bytes.
const CAPSULE_BYTES_MAX: usize = 8192;

/// A request of a host.
#[derive(Clone, Debug)]
pub(super) struct HostRequest {
    /// The model's number of the request.
    pub(super) op: u32,
    /// The command as the model knows it.
    pub(super) command: Command,
    pub(super) is_probe: bool,
    /// The queue that the request is sent on.
    pub(super) queue: usize,
    /// `true` if the request is sent as a compare, whose success proves the data that a read would
    /// have returned.
    pub(super) compares: bool,
    /// `true` if the payload travels in its capsule, as far as it fits.
    pub(super) in_capsule: bool,
    /// The payload to send with the request's commands; empty if they have none.
    pub(super) payload: Vec<u8>,
    /// The data received in answer to the request.
    pub(super) data: Vec<u8>,
    /// The identifiers of its commands, once they were sent.
    pub(super) names: Vec<CommandId>,
    /// The number of the request's commands that have not ended. A fused pair has two commands.
    pub(super) left: usize,
    /// The first failure of its commands that have ended, or success.
    pub(super) status: Status,
    /// The number of times that the request was sent again after the loss of a connection.
    pub(super) reissues: u32,
}

/// A command of a request, ready to be sent.
pub(super) struct PreparedCommand {
    pub(super) entry: Submission,
    pub(super) carried: TransferSizes,
    pub(super) is_second: bool,
    /// The payload bytes that travel in the capsule: all or none.
    pub(super) capsule: usize,
}

impl HostRequest {
    /// Returns the number of commands of the request.
    pub(super) fn commands(&self) -> usize {
        1 + usize::from(matches!(self.command, Command::CompareAndWrite(_)))
    }

    /// Returns `true` if the request changes data and was sent before.
    pub(super) fn rewrites(&self) -> bool {
        self.reissues > 0 && !matches!(self.command, Command::Read(_) | Command::Flush)
    }

    /// Returns the payload of the request's first or second command.
    pub(super) fn payload_of(&self, is_second: bool) -> &[u8] {
        let half = self.payload.len() / 2;
        match (self.command, is_second) {
            (Command::CompareAndWrite(_), false) => &self.payload[..half],
            (Command::CompareAndWrite(_), true) => &self.payload[half..],
            _ => &self.payload,
        }
    }

    /// Encodes the commands, which have identifiers.
    pub(super) fn encode(&self) -> Vec<PreparedCommand> {
        let entries: Vec<Submission> = match (self.command, &self.names[..]) {
            (Command::CompareAndWrite(range), &[compare, write]) => {
                let mut compare = on_blocks(NvmOpcode::COMPARE, compare, range, false);
                let mut write = on_blocks(NvmOpcode::WRITE, write, range, false);
                compare.flags |= 1;
                write.flags |= 2;
                vec![compare, write]
            }
            (_, &[name]) => vec![self.entry(name)],
            _ => unreachable!("a name for each command"),
        };
        let encode = |(n, mut entry): (usize, Submission)| {
            let is_second = n == 1;
            let bytes = self.payload_of(is_second).len();
            let receives = if self.compares { 0 } else { self.command.reply_bytes() };
            let is_inside = self.in_capsule && bytes <= CAPSULE_BYTES_MAX;
            if bytes > 0 && is_inside {
                entry.data = SglDescriptor::in_capsule(0, bytes as u32);
            } else if bytes + receives > 0 {
                entry.data = SglDescriptor::transport((bytes + receives) as u32);
            }
            let capsule = if is_inside { bytes } else { 0 };
            let carried =
                TransferSizes { receives, sends: bytes - capsule, ..TransferSizes::default() };
            PreparedCommand { entry, carried, is_second, capsule }
        };
        entries.into_iter().enumerate().map(encode).collect()
    }

    fn entry(&self, name: CommandId) -> Submission {
        match self.command {
            Command::Read(range) if self.compares => {
                on_blocks(NvmOpcode::COMPARE, name, range, false)
            }
            Command::Read(range) => on_blocks(NvmOpcode::READ, name, range, false),
            Command::Write { range, fua } => on_blocks(NvmOpcode::WRITE, name, range, fua),
            Command::WriteZeroes { range, fua } => {
                on_blocks(NvmOpcode::WRITE_ZEROES, name, range, fua)
            }
            Command::Discard(_) => {
                let mut entry = Submission::new(NvmOpcode::DATASET_MANAGEMENT.0, name, NSID);
                entry.dword11.set(1 << 2);
                entry
            }
            Command::Flush => Submission::new(NvmOpcode::FLUSH.0, name, NSID),
            other => unreachable!("hosts do not send {other:?}"),
        }
    }
}

/// Returns the payload of a Dataset Management that discards a range.
pub(super) fn discarding(range: Range) -> Vec<u8> {
    let listed =
        DiscardRange { attributes: 0.into(), blocks: range.blocks.into(), lba: range.lba.into() };
    listed.as_bytes().to_vec()
}

fn on_blocks(opcode: NvmOpcode, name: CommandId, range: Range, fua: bool) -> Submission {
    let mut entry = Submission::new(opcode.0, name, NSID);
    entry.dword10.set(range.lba as u32);
    entry.dword12.set((range.blocks - 1) | if fua { BLOCK_FUA } else { 0 });
    entry
}

/// Converts the status of a command to the model's.
///
/// # Errors
/// Returns the status if the controller should never have sent it.
pub(super) fn status_of(status: NvmeStatus) -> Result<Status, NvmeStatus> {
    Ok(match status.plain() {
        NvmeStatus::SUCCESS => Status::Ok,
        NvmeStatus::LBA_OUT_OF_RANGE => Status::OutOfRange,
        NvmeStatus::COMPARE_FAILURE => Status::CompareFailed,
        NvmeStatus::READ_ERROR | NvmeStatus::WRITE_FAULT => Status::MediaError,
        NvmeStatus::CAPACITY_EXCEEDED => Status::NoSpace,
        // The second: its controller is about to be gone.
        NvmeStatus::INTERRUPTED | NvmeStatus::QUEUE_DELETED => Status::Retry,
        _ => return Err(status),
    })
}
