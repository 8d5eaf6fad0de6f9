//! Reliable messages in packets (docs/reference/protocols/packets.md): little-endian, every field
//! naturally aligned within its struct.
//!
//! A packet is a [`PacketHead`] and a payload. The payload of a data packet is a row of records: a
//! [`RecordHead`], its bytes, and padding to a multiple of [`RECORD_ALIGN`]. The other kinds of
//! packets carry one body of a fixed size.

use zerocopy::little_endian::{U16, U32, U64};

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

/// Flag of a packet: of data and probes, everything behind the head is encrypted, and the whole is
/// authenticated by the last [`TAG_BYTES`]. Of a hello and an accept, the association is sealed.
pub const FLAG_SEALED: u8 = 4;

/// Bytes of the proof at the end of a sealed packet.
pub const TAG_BYTES: usize = 16;

/// Bytes of the handshake's message 1, behind the body of a sealed hello.
pub const HELLO_SEAL_BYTES: usize = 48;

/// Bytes of the handshake's message 2, which a sealed accept has instead of its body: the body is
/// encrypted in it.
pub const ACCEPT_SEAL_BYTES: usize = 32 + size_of::<AcceptBody>() + TAG_BYTES;

/// Flag of a packet: a packet that the network had marked was received since the last echo.
pub const FLAG_ECHO: u8 = 8;

/// Flag of a record: the last piece of its message.
pub const FLAG_LAST: u8 = 1;

open_number! {
    /// The kind of a packet: the lower half of its first byte.
    pub struct PacketKind(u8) {
        /// Carries records, or only an acknowledgement.
        DATA = 0,
        /// Asks for an association; a [`PacketHelloBody`] follows.
        HELLO = 1,
        /// Asks to say hello again with a token; a [`RetryBody`] follows.
        RETRY = 2,
        /// Grants an association; an [`AcceptBody`] follows.
        ACCEPT = 3,
        /// Refuses an association; a [`RefuseBody`] follows.
        REFUSE = 4,
        /// Says that the association is unknown; a [`ResetBody`] follows.
        RESET = 5,
        /// Tests a path; a [`ProbeBody`] follows.
        PROBE = 6,
    }
}

open_enum! {
    /// The kind of a record.
    pub struct RecordKind {
        /// Carries a piece of a message.
        DATA = 0,
        /// Opens a channel: its first message. `offset` is the serial number of the channel.
        OPEN = 1,
        /// Answers an open: the acceptor's first message.
        OPENED = 2,
        /// Ends the sender's direction: its last message.
        END = 3,
        /// Ends the channel at once. Not numbered.
        RESET = 4,
        /// Asks for silence on a channel; `message` counts the stops and goes. Not numbered.
        STOP = 5,
        /// Ends a stop; `message` counts the stops and goes. Not numbered.
        GO = 6,
        /// Asks for nothing but an acknowledgement. Not numbered.
        PING = 7,
    }
}

impl RecordKind {
    /// Returns `true` for the kinds that are messages of their channel, with a number.
    pub const fn is_numbered(self) -> bool {
        self.0 <= RecordKind::END.0
    }
}

layout! {
    /// The first bytes of each packet.
    pub struct PacketHead: 40 {
        /// [`VERSION`] times 16, plus the [`PacketKind`].
        [0] version_kind: u8,
        /// `FLAG_…`.
        [1] flags: u8,
        /// Bytes of the packet; what follows is padding of the network.
        [2] bytes: U16,
        /// The association's number at the receiver. Byte 7 of the packet is the receiving worker.
        [4] association: U32,
        /// The receiver's random number for the association.
        [8] cookie: U64,
        /// The packet's number on its path, lower half.
        [16] number: U32,
        /// The highest number received on the path, lower half.
        [20] highest: U32,
        /// Bit `n`: number `highest` − 1 − `n` was received.
        [24] before: U64,
        /// Microseconds since `highest` arrived.
        [32] held_us: U16,
        /// Packets that may be outstanding to the sender of this packet.
        [34] credits: U16,
        /// CRC-32C of the packet with this field zero. In sealed data and probes: the path's
        /// identifier, the key's phase, and two zero bytes.
        [36] crc32c: U32,
    }
}

layout! {
    /// The first bytes of each record.
    pub struct RecordHead: 16 {
        /// The channel: the lower half of its serial number.
        [0] channel: U16,
        /// The kind of the record.
        [2] kind: RecordKind,
        /// `FLAG_LAST`.
        [3] flags: u8,
        /// The message's number in its channel and direction.
        [4] message: U32,
        /// Distance to the floor: all messages below `message` − `behind` are delivered before.
        [8] behind: U16,
        /// Bytes that follow.
        [10] bytes: U16,
        /// Offset of those bytes in the message.
        [12] offset: U32,
    }
}

layout! {
    /// The body of [`PacketKind::HELLO`]. Padding follows, to [`HELLO_BYTES`].
    pub struct PacketHelloBody: 40 {
        /// The initiator's number for the association.
        [0] association: U32,
        /// The largest packet that the initiator receives.
        [4] packet_bytes: U16,
        /// Zero.
        [6] reserved: U16,
        /// The initiator's random number for the association.
        [8] cookie: U64,
        /// The token of a retry, or zeroes.
        [16] token: RetryBody,
    }
}

layout! {
    /// The body of [`PacketKind::RETRY`], and the token in a hello.
    pub struct RetryBody: 24 {
        /// The minute of the acceptor's clock in which the token was made.
        [0] minute: U64,
        /// The acceptor's proof that the token is its own.
        [8] proof: [u8; 16],
    }
}

layout! {
    /// The body of [`PacketKind::ACCEPT`].
    pub struct AcceptBody: 16 {
        /// The acceptor's number for the association.
        [0] association: U32,
        /// The largest packet that the acceptor receives.
        [4] packet_bytes: U16,
        /// Zero.
        [6] reserved: U16,
        /// The acceptor's random number for the association.
        [8] cookie: U64,
    }
}

layout! {
    /// The body of [`PacketKind::REFUSE`].
    pub struct RefuseBody: 8 {
        /// The reason: one of `REFUSED_…`.
        [0] reason: U32,
        /// Zero.
        [4] reserved: U32,
    }
}

/// Reason of a refusal: every place for an association is taken.
pub const REFUSED_FULL: u32 = 1;

/// Reason of a refusal: the acceptor wants sealed packets, and the hello is without a key.
pub const REFUSED_NEEDS_KEY: u32 = 2;

/// Reason of a refusal: the initiator has another key than the acceptor, or the hello was changed
/// on its way.
pub const REFUSED_OTHER_KEY: u32 = 3;

/// Reason of a refusal: the hello asks for sealed packets, and the acceptor has no key.
pub const REFUSED_NO_KEY: u32 = 4;

layout! {
    /// The body of [`PacketKind::RESET`].
    pub struct ResetBody: 32 {
        /// The cookie of the packet that has no association.
        [0] cookie: U64,
        /// The association that the packet named.
        [8] association: U32,
        /// Zero.
        [12] reserved: U32,
        /// The proof that the sender of the reset has seen the cookie.
        [16] proof: [u8; 16],
    }
}

layout! {
    /// The body of [`PacketKind::PROBE`].
    pub struct ProbeBody: 16 {
        /// A number that the receiver returns; zero asks for nothing.
        [0] challenge: U64,
        /// The number that the receiver had asked to return; zero without one.
        [8] echo: U64,
    }
}
