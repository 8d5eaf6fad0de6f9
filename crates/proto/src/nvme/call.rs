//! Commands that the controller carries out itself, and their outcomes.

use alloc::vec::Vec;

use contract::Instant;
use wire::nvme::{
    AdminOpcode, FABRICS_OPCODE, FabricsCommand, FabricsKind, Feature, Status, Submission,
};

use super::auth::transaction::CHANCE_BYTES;
use super::data;

/// The largest payload of a command that the controller carries out itself, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 4096;

/// A command that the controller carries out itself.
pub(super) struct ControllerCommand<'a> {
    pub(super) entry: &'a Submission,
    /// The identifier of the queue on which the command arrived.
    pub(super) queue: u16,
    pub(super) payload: &'a [u8],
    pub(super) now: Instant,
    /// The data for the host, which the command appends; empty at first.
    pub(super) out: &'a mut Vec<u8>,
    /// Random bytes for commands that [need them](needs_chance), such as challenges of
    /// authentication; zeroes for other commands.
    pub(super) chance: [u8; CHANCE_BYTES],
}

/// The outcome of a command that the controller has carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerOutcome {
    /// The command has succeeded with this command-specific result.
    Result(u64),
    /// The command waits for its answer.
    Parked,
    /// The command has ended; the queue ends once the completion was sent to the host.
    Closing,
}

/// Returns `true` if a command needs unpredictable bytes, as Authentication Send does.
pub(super) fn needs_chance(entry: &Submission) -> bool {
    let kind = FabricsCommand::of(entry).kind;
    entry.opcode == FABRICS_OPCODE && kind == FabricsKind::AUTHENTICATION_SEND
}

impl ControllerCommand<'_> {
    /// Returns `true` if the command may change a timer of its controller.
    pub(super) fn changes_timer(&self) -> bool {
        let feature = Feature(self.entry.dword10.get() as u8);
        let kind = FabricsCommand::of(self.entry).kind;
        match self.entry.opcode {
            FABRICS_OPCODE => kind == FabricsKind::AUTHENTICATION_SEND,
            opcode => opcode == AdminOpcode::SET_FEATURES.0 && feature == Feature::KEEP_ALIVE,
        }
    }

    /// Returns the identifier of the namespace that the command names.
    pub(super) fn nsid(&self) -> u32 {
        self.entry.nsid.get()
    }

    /// Replies with `bytes` as data for the host. Fails unless the command's data pointer describes
    /// exactly as many bytes.
    pub(super) fn reply(&mut self, bytes: &[u8]) -> Result<ControllerOutcome, Status> {
        data::expect(self.entry, bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(ControllerOutcome::Result(0))
    }
}
