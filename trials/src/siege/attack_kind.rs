//! The strategies of attacking connections: the bytes that each sends after it has
//! connected, and its later behaviour.
//!
//! The siege of the simulated world draws other kinds from a seed (`crates/sim/src/siege`). These
//! here are fixed, so that a row can be repeated on another server.

use wire::nvme_tcp::{CommandHead, CommonHeader, InitRequest, PduType};
use wire::{reflex_v1, reflex_v2};
use zerocopy::{FromZeros, IntoBytes};

use crate::interop::chance::Rng;

/// The blocks of 512 bytes of a large request: 1 MiB.
const LARGE_BLOCKS: u32 = 2048;

/// The bytes that [`AttackKind::HalfPayload`] sends of its payload of 1 MiB.
const HALF_BYTES: usize = 600_000;

/// The number of large reads of a connection that takes no replies.
const READS: u64 = 200;

/// The blocks from whose first ones large requests begin.
const FIRST_BLOCKS: u64 = 10_000;

/// The conduct of an attacking connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackKind {
    /// Sends the head of a write of 1 MiB (version 1) and 600 000 bytes of the payload.
    HalfPayload,
    /// Says hello (version 2), asks for 200 MiB in 200 reads, and takes no replies.
    Unread,
    /// Asks for as much in version 1, which has no hello, and takes no replies.
    UnreadOld,
    /// Sends nothing.
    Silent,
    /// Says hello, and nothing more.
    Greeter,
    /// Sends a hello byte by byte.
    Slow,
    /// Sends 20 bytes of a hello of 48.
    HalfHello,
    /// Sends up to 3 000 bytes of noise.
    Noise,
    /// Announces payloads and ranges of gigabytes.
    Huge,
    /// Begins as an NVMe host, and sends no command.
    NvmeSilent,
    /// Announces, as an NVMe host, a command of 2 GiB.
    NvmeHalf,
    /// Sends, as an NVMe host, the head of a Connect without its data.
    NvmeConnect,
    /// Resets the connection.
    Reset,
}

impl AttackKind {
    /// Returns `true` if the connection goes to the listener of NVMe hosts.
    pub(super) fn is_nvme(self) -> bool {
        matches!(self, AttackKind::NvmeSilent | AttackKind::NvmeHalf | AttackKind::NvmeConnect)
    }

    /// Returns `true` if the connection takes nothing that the server sends.
    pub(super) fn is_deaf(self) -> bool {
        matches!(self, AttackKind::Unread | AttackKind::UnreadOld)
    }

    /// Returns the word for the attack in the table.
    pub(super) fn word(self) -> &'static str {
        match self {
            AttackKind::HalfPayload => "half payloads",
            AttackKind::Unread => "unread",
            _ => "others",
        }
    }
}

/// The bytes that attacking connections send, made once for all of them.
pub(super) struct Script {
    hello: Vec<u8>,
    reads: Vec<u8>,
    reads_old: Vec<u8>,
    half_payload: Vec<u8>,
    nvme_begin: Vec<u8>,
    nvme_half: Vec<u8>,
    nvme_connect: Vec<u8>,
    huge: Vec<u8>,
    noise: Vec<u8>,
}

impl Script {
    pub(super) fn new(seed: u64) -> Script {
        let mut chance = Rng::new(seed);
        let mut hello = reflex_v2::HelloHead::new_zeroed();
        hello.magic = reflex_v2::MAGIC;
        hello.version_min = reflex_v2::VERSION.into();
        hello.version_max = reflex_v2::VERSION.into();
        hello.queue_depth = 1024.into();
        let mut half_payload = old_head(reflex_v1::Opcode::SET, &mut chance, LARGE_BLOCKS);
        half_payload.resize(half_payload.len() + HALF_BYTES, b'x');
        let reads = (0..READS).flat_map(|tag| read(tag, &mut chance));
        let reads: Vec<u8> = reads.collect();
        let old = |_| old_head(reflex_v1::Opcode::GET, &mut chance, LARGE_BLOCKS);
        let reads_old = (0..READS).flat_map(old).collect();
        let begin = nvme_begin();
        Script {
            hello: hello.as_bytes().to_vec(),
            reads,
            reads_old,
            half_payload,
            nvme_half: [&begin[..], &nvme_command(0x7fff_ffff)].concat(),
            nvme_connect: [&begin[..], &nvme_command(72 + 1024)].concat(),
            nvme_begin: begin,
            huge: old_head(reflex_v1::Opcode::SET, &mut chance, u32::MAX),
            noise: (0..3000).map(|_| chance.number() as u8).collect(),
        }
    }

    /// Returns the bytes that a connection with the strategy `attack` sends first. `draw` is a
    /// random number.
    pub(super) fn opening(&self, attack: AttackKind, draw: u64) -> &[u8] {
        match attack {
            AttackKind::HalfPayload => &self.half_payload,
            AttackKind::Unread | AttackKind::Greeter => &self.hello,
            AttackKind::UnreadOld => &self.reads_old,
            AttackKind::Silent | AttackKind::Slow | AttackKind::Reset => &[],
            AttackKind::HalfHello => &self.hello[..20],
            AttackKind::Noise => &self.noise[draw as usize % self.noise.len()..],
            AttackKind::Huge => &self.huge,
            AttackKind::NvmeSilent => &self.nvme_begin,
            AttackKind::NvmeHalf => &self.nvme_half,
            AttackKind::NvmeConnect => &self.nvme_connect,
        }
    }

    /// Returns the bytes that follow the server's answer to a hello.
    pub(super) fn sequel(&self, attack: AttackKind) -> &[u8] {
        if attack == AttackKind::Unread { &self.reads } else { &[] }
    }

    /// Returns the byte of a hello that [`AttackKind::Slow`] sends after `sent` others; `None`
    /// behind the last.
    pub(super) fn drop(&self, sent: usize) -> Option<&[u8]> {
        self.hello.get(sent..=sent)
    }
}

fn old_head(opcode: reflex_v1::Opcode, chance: &mut Rng, blocks: u32) -> Vec<u8> {
    let mut head = reflex_v1::MessageHead::new_zeroed();
    head.magic = reflex_v1::MAGIC.into();
    head.opcode = opcode;
    head.handle = chance.number().into();
    head.lba = chance.below(FIRST_BLOCKS).into();
    head.lba_count = blocks.into();
    head.as_bytes().to_vec()
}

fn read(tag: u64, chance: &mut Rng) -> Vec<u8> {
    let mut head = reflex_v2::RequestHead::new_zeroed();
    head.opcode = reflex_v2::Opcode::READ;
    head.tag = tag.into();
    head.lba = chance.below(FIRST_BLOCKS).into();
    head.blocks = LARGE_BLOCKS.into();
    head.as_bytes().to_vec()
}

fn nvme_begin() -> Vec<u8> {
    let mut begin = InitRequest::new_zeroed();
    let bytes = size_of::<InitRequest>();
    begin.common = common(PduType::INIT_REQUEST, bytes as u8, bytes as u32);
    begin.as_bytes().to_vec()
}

/// Returns the head of the Fabrics command Connect, whose PDU has `bytes` bytes, of which none
/// follow.
fn nvme_command(bytes: u32) -> Vec<u8> {
    let mut command = CommandHead::new_zeroed();
    command.common = common(PduType::COMMAND, 72, bytes);
    command.common.data_offset = 72;
    command.entry[..5].copy_from_slice(&[0x7f, 0x40, 0, 0, 1]);
    command.entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    command.entry[39] = 1;
    command.entry[44..46].copy_from_slice(&31_u16.to_le_bytes());
    command.as_bytes().to_vec()
}

fn common(pdu_type: PduType, header_bytes: u8, pdu_bytes: u32) -> CommonHeader {
    let mut common = CommonHeader::new_zeroed();
    (common.pdu_type, common.header_bytes) = (pdu_type, header_bytes);
    common.pdu_bytes = pdu_bytes.into();
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ruse_sends_what_its_name_says() {
        let script = Script::new(1);
        let length = |attack| script.opening(attack, 5).len();
        assert_eq!(length(AttackKind::HalfPayload), 24 + 600_000);
        assert_eq!(
            (length(AttackKind::Unread), script.sequel(AttackKind::Unread).len()),
            (48, 200 * 40)
        );
        assert_eq!((length(AttackKind::UnreadOld), length(AttackKind::Silent)), (200 * 24, 0));
        assert_eq!((length(AttackKind::NvmeHalf), length(AttackKind::NvmeSilent)), (128 + 72, 128));
        assert_eq!(script.sequel(AttackKind::Greeter), &[] as &[u8]);
        assert_eq!(&script.opening(AttackKind::HalfPayload, 0)[..4], &[24, 0, 1, 0]);
        let slowly = (0..).map_while(|sent| script.drop(sent)).flatten().copied();
        assert_eq!(slowly.collect::<Vec<u8>>(), script.opening(AttackKind::Greeter, 0));
    }
}
