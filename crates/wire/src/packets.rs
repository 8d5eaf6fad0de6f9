//! Reliable messages in packets (docs/reference/protocols/packets.md): little-endian, every field naturally
//! aligned within its struct.
//!
//! A packet is a [`PacketHead`] and a payload. The payload of a data packet is a row of records: a
//! [`RecordHead`], its bytes, and padding to a multiple of [`RECORD_ALIGN`]. The other kinds of
//! packets carry one body of a fixed size.

use core::mem::{align_of, offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that this module describes.
pub const VERSION: u8 = 1;

/// Records begin at multiples of this many bytes from the start of the packet.
pub const RECORD_ALIGN: usize = 8;

/// Bytes that a hello has at least, so that no answer is larger than its question.
pub const HELLO_BYTES: usize = 1200;

/// Flag of a packet: the sender wants an acknowledgement now.
pub const FLAG_ACK_NOW: u8 = 1;

/// Flag of a packet: `highest`, `before` and `held_us` mean something.
pub const FLAG_ACKS: u8 = 2;

/// Flag of a packet: everything behind the head is sealed. Reserved: nothing seals packets yet.
pub const FLAG_SEALED: u8 = 4;

/// Flag of a packet: a packet that the network had marked was received since the last echo.
pub const FLAG_ECHO: u8 = 8;

/// Flag of a record: the last piece of its message.
pub const FLAG_LAST: u8 = 1;

/// The kind of a packet: the lower half of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketKind(pub u8);

impl PacketKind {
    /// Carries records, or only an acknowledgement.
    pub const DATA: PacketKind = PacketKind(0);
    /// Asks for an association; a [`PacketHelloBody`] follows.
    pub const HELLO: PacketKind = PacketKind(1);
    /// Asks to say hello again with a token; a [`RetryBody`] follows.
    pub const RETRY: PacketKind = PacketKind(2);
    /// Grants an association; an [`AcceptBody`] follows.
    pub const ACCEPT: PacketKind = PacketKind(3);
    /// Refuses an association; a [`RefuseBody`] follows.
    pub const REFUSE: PacketKind = PacketKind(4);
    /// Says that the association is unknown; a [`ResetBody`] follows.
    pub const RESET: PacketKind = PacketKind(5);
    /// Tests a path; a [`ProbeBody`] follows.
    pub const PROBE: PacketKind = PacketKind(6);
}

/// The kind of a record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct RecordKind(pub u8);

impl RecordKind {
    /// Carries a piece of a message.
    pub const DATA: RecordKind = RecordKind(0);
    /// Opens a channel: its first message. `offset` is the serial number of the channel.
    pub const OPEN: RecordKind = RecordKind(1);
    /// Answers an open: the acceptor's first message.
    pub const OPENED: RecordKind = RecordKind(2);
    /// Ends the sender's direction: its last message.
    pub const END: RecordKind = RecordKind(3);
    /// Ends the channel at once. Not numbered.
    pub const RESET: RecordKind = RecordKind(4);
    /// Asks for silence on a channel; `message` counts the stops and goes. Not numbered.
    pub const STOP: RecordKind = RecordKind(5);
    /// Ends a stop; `message` counts the stops and goes. Not numbered.
    pub const GO: RecordKind = RecordKind(6);
    /// Asks for nothing but an acknowledgement. Not numbered.
    pub const PING: RecordKind = RecordKind(7);

    /// Returns `true` for the kinds that are messages of their channel, with a number.
    pub const fn is_numbered(self) -> bool {
        self.0 <= RecordKind::END.0
    }
}

/// The first bytes of each packet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PacketHead {
    /// [`VERSION`] times 16, plus the [`PacketKind`].
    pub version_kind: u8,
    /// `FLAG_…`.
    pub flags: u8,
    /// Bytes of the packet; what follows is padding of the network.
    pub bytes: U16,
    /// The association's number at the receiver. Byte 7 of the packet is the receiving worker.
    pub association: U32,
    /// The receiver's random number for the association.
    pub cookie: U64,
    /// The packet's number on its path, lower half.
    pub number: U32,
    /// The highest number received on the path, lower half.
    pub highest: U32,
    /// Bit `n`: number `highest` − 1 − `n` was received.
    pub before: U64,
    /// Microseconds since `highest` arrived.
    pub held_us: U16,
    /// Packets that may be outstanding to the sender of this packet.
    pub credits: U16,
    /// CRC-32C of the packet with this field zero.
    pub crc32c: U32,
}

/// The first bytes of each record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RecordHead {
    /// The channel: the lower half of its serial number.
    pub channel: U16,
    /// The kind of the record.
    pub kind: RecordKind,
    /// `FLAG_LAST`.
    pub flags: u8,
    /// The message's number in its channel and direction.
    pub message: U32,
    /// Distance to the floor: all messages below `message` − `behind` are delivered before.
    pub behind: U16,
    /// Bytes that follow.
    pub bytes: U16,
    /// Offset of those bytes in the message.
    pub offset: U32,
}

/// The body of [`PacketKind::HELLO`]. Padding follows, to [`HELLO_BYTES`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PacketHelloBody {
    /// The initiator's number for the association.
    pub association: U32,
    /// The largest packet that the initiator receives.
    pub packet_bytes: U16,
    /// Zero.
    pub reserved: U16,
    /// The initiator's random number for the association.
    pub cookie: U64,
    /// The token of a retry, or zeroes.
    pub token: RetryBody,
}

/// The body of [`PacketKind::RETRY`], and the token in a hello.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RetryBody {
    /// The minute of the acceptor's clock in which the token was made.
    pub minute: U64,
    /// The acceptor's proof that the token is its own.
    pub proof: [u8; 16],
}

/// The body of [`PacketKind::ACCEPT`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AcceptBody {
    /// The acceptor's number for the association.
    pub association: U32,
    /// The largest packet that the acceptor receives.
    pub packet_bytes: U16,
    /// Zero.
    pub reserved: U16,
    /// The acceptor's random number for the association.
    pub cookie: U64,
}

/// The body of [`PacketKind::REFUSE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RefuseBody {
    /// The reason: [`REFUSED_FULL`].
    pub reason: U32,
    /// Zero.
    pub reserved: U32,
}

/// Reason of a refusal: every place for an association is taken.
pub const REFUSED_FULL: u32 = 1;

/// The body of [`PacketKind::RESET`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ResetBody {
    /// The cookie of the packet that has no association.
    pub cookie: U64,
    /// The association that that packet named.
    pub association: U32,
    /// Zero.
    pub reserved: U32,
    /// The proof that the sender of the reset has seen the cookie.
    pub proof: [u8; 16],
}

/// The body of [`PacketKind::PROBE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ProbeBody {
    /// A number that the receiver returns; zero asks for nothing.
    pub challenge: U64,
    /// The number that the receiver had asked to return; zero without one.
    pub echo: U64,
}

const _: () = {
    assert!(size_of::<PacketHead>() == 40 && align_of::<PacketHead>() == 1);
    assert!(offset_of!(PacketHead, cookie) == 8);
    assert!(offset_of!(PacketHead, number) == 16);
    assert!(offset_of!(PacketHead, before) == 24);
    assert!(offset_of!(PacketHead, crc32c) == 36);
    assert!(size_of::<RecordHead>() == 16);
    assert!(offset_of!(RecordHead, message) == 4);
    assert!(offset_of!(RecordHead, offset) == 12);
    assert!(size_of::<PacketHelloBody>() == 40);
    assert!(size_of::<RetryBody>() == 24);
    assert!(size_of::<AcceptBody>() == 16);
    assert!(size_of::<RefuseBody>() == 8);
    assert!(size_of::<ResetBody>() == 32);
    assert!(size_of::<ProbeBody>() == 16);
};
