//! Reliable messages in packets (docs/reference/protocols/packets.md): little-endian, every field
//! naturally aligned within its struct.
//!
//! A packet is a [`PacketHead`] and a payload. The payload of a data packet is a sequence of
//! records: each is a [`RecordHead`], its bytes, and padding to a multiple of [`RECORD_ALIGN`]. The
//! other kinds of packets carry one body of a fixed size.

use zerocopy::little_endian::{U16, U32, U64};

/// The version that this module describes.
pub const VERSION: u8 = 1;

/// Records begin at multiples of this many bytes from the start of the packet.
pub const RECORD_ALIGN: usize = 8;

/// Minimum length of a hello in bytes, so that no answer is larger than the hello.
pub const HELLO_BYTES: usize = 1200;

/// Flag of a packet: the sender wants an acknowledgement now.
pub const FLAG_ACK_NOW: u8 = 1;

/// Flag of a packet: the fields `highest`, `before` and `held_us` carry an acknowledgement.
pub const FLAG_ACKS: u8 = 2;

/// Flag of a packet: it is sealed. In data and probes, everything behind the head is encrypted, and
/// the last [`TAG_BYTES`] bytes authenticate the whole packet. In a hello and an accept, the flag
/// says that the association is sealed.
pub const FLAG_SEALED: u8 = 4;

/// Length in bytes of the authentication tag at the end of a sealed packet.
pub const TAG_BYTES: usize = 16;

/// Length in bytes of the handshake's message 1, which lies behind the body of a sealed hello.
pub const HELLO_SEAL_BYTES: usize = 48;

/// Length in bytes of the handshake's message 2, which stands in a sealed accept instead of the
/// body. The body is encrypted in it.
pub const ACCEPT_SEAL_BYTES: usize = 32 + size_of::<AcceptBody>() + TAG_BYTES;

/// Flag of a packet: since the last packet with this flag, its sender received a packet that the
/// network had marked for congestion.
pub const FLAG_ECHO: u8 = 8;

/// Flag of a record: it carries the last piece of its message.
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
        /// Grants an association; an [`AcceptBody`] follows, or message 2 of the handshake if the
        /// packet is sealed.
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
        /// Opens a channel, as the first message of the initiator. `offset` is the serial number of
        /// the channel.
        OPEN = 1,
        /// Answers an open, as the first message of the acceptor.
        OPENED = 2,
        /// Ends the sender's direction of the channel, as the last message.
        END = 3,
        /// Ends the channel at once. The record has no message number.
        RESET = 4,
        /// Asks the peer to send nothing on a channel. `message` counts the sender's stops and
        /// goes.
        STOP = 5,
        /// Lets the peer send again after a stop. `message` counts the sender's stops and goes.
        GO = 6,
        /// Asks for nothing but an acknowledgement. The record has no message number.
        PING = 7,
    }
}

impl RecordKind {
    /// Returns `true` if a record of this kind belongs to a message with a number, and `false` for
    /// resets, stops, goes and pings.
    pub const fn is_numbered(self) -> bool {
        self.0 <= RecordKind::END.0
    }
}

layout! {
    /// The first bytes of each packet.
    pub struct PacketHead: 40 {
        /// [`VERSION`] times 16, plus the [`PacketKind`].
        [0] version_kind: u8,
        /// Bits `FLAG_ACK_NOW`, `FLAG_ACKS`, `FLAG_SEALED` and `FLAG_ECHO`.
        [1] flags: u8,
        /// Length of the packet in bytes; bytes behind it are padding of the network.
        [2] bytes: U16,
        /// The number that the receiver gave to the association. Byte 7 of the packet, the number's
        /// highest byte, is the receiving worker.
        [4] association: U32,
        /// The random number that the receiver drew for the association.
        [8] cookie: U64,
        /// The packet's number on its path, lower 32 bits.
        [16] number: U32,
        /// The highest number of a packet that was received on the path, lower 32 bits.
        [20] highest: U32,
        /// Bit `n`: the packet with number `highest` − 1 − `n` was received.
        [24] before: U64,
        /// Microseconds between the arrival of packet `highest` and this acknowledgement.
        [32] held_us: U16,
        /// Number of packets that may be outstanding to the sender of this packet; below 2 means 2.
        [34] credits: U16,
        /// CRC-32C of the packet with this field zero. In sealed data and probes: the path's
        /// identifier, the key's phase, and two zero bytes.
        [36] crc32c: U32,
    }
}

layout! {
    /// The first bytes of each record.
    pub struct RecordHead: 16 {
        /// The channel: the lower half of the channel's serial number.
        [0] channel: U16,
        /// The kind of the record.
        [2] kind: RecordKind,
        /// [`FLAG_LAST`], or zero.
        [3] flags: u8,
        /// The message's number in its channel and direction, from 0; in a stop or go, its count.
        [4] message: U32,
        /// The distance by which the message may overtake earlier ones: all messages below its
        /// floor, which is number `message` − `behind`, are delivered before it.
        [8] behind: U16,
        /// Number of bytes of the message that follow.
        [10] bytes: U16,
        /// Offset of these bytes in the message; in an open, the channel's serial number.
        [12] offset: U32,
    }
}

layout! {
    /// The body of [`PacketKind::HELLO`]. Zeroes follow, up to [`HELLO_BYTES`].
    pub struct PacketHelloBody: 40 {
        /// The number that the initiator gave to the association.
        [0] association: U32,
        /// The largest packet that the initiator receives, in bytes.
        [4] packet_bytes: U16,
        /// Reserved bytes, which are zero.
        [6] reserved: U16,
        /// The random number that the initiator drew for the association.
        [8] cookie: U64,
        /// The token from the acceptor's retry; zeroes in a first hello.
        [16] token: RetryBody,
    }
}

layout! {
    /// The body of [`PacketKind::RETRY`], and the token in a hello.
    pub struct RetryBody: 24 {
        /// The minute of the acceptor's clock in which the token was made.
        [0] minute: U64,
        /// The acceptor's proof that it made the token.
        [8] proof: [u8; 16],
    }
}

layout! {
    /// The body of [`PacketKind::ACCEPT`].
    pub struct AcceptBody: 16 {
        /// The number that the acceptor gave to the association.
        [0] association: U32,
        /// The largest packet that both ends receive, in bytes.
        [4] packet_bytes: U16,
        /// The number of further addresses of the acceptor, which its answers to probes name.
        [6] addresses: U16,
        /// The random number that the acceptor drew for the association.
        [8] cookie: U64,
    }
}

layout! {
    /// The body of [`PacketKind::REFUSE`].
    pub struct RefuseBody: 8 {
        /// The reason: one of `REFUSED_…`.
        [0] reason: U32,
        /// Reserved bytes, which are zero.
        [4] reserved: U32,
    }
}

/// Reason of a refusal: the acceptor has no room for another association, or too many from this
/// address.
pub const REFUSED_FULL: u32 = 1;

/// Reason of a refusal: the acceptor wants sealed packets, and the hello is not sealed.
pub const REFUSED_NEEDS_KEY: u32 = 2;

/// Reason of a refusal: the initiator has another key than the acceptor, or the hello was changed
/// on its way.
pub const REFUSED_OTHER_KEY: u32 = 3;

/// Reason of a refusal: the hello is sealed, and the acceptor has no key.
pub const REFUSED_NO_KEY: u32 = 4;

layout! {
    /// The body of [`PacketKind::RESET`].
    pub struct ResetBody: 32 {
        /// The cookie of the packet that has no association.
        [0] cookie: U64,
        /// The association number that the packet named.
        [8] association: U32,
        /// Reserved bytes, which are zero.
        [12] reserved: U32,
        /// The proof that the sender of the reset has seen the cookie and, where packets are
        /// sealed, has the key.
        [16] proof: [u8; 16],
    }
}

/// Kind of an address in a [`AddressBody`]: there is none, and none follows.
pub const ADDRESS_NONE: u8 = 0;

/// Kind of an address in a [`AddressBody`]: a port at a network card of the segment.
pub const ADDRESS_ETHERNET: u8 = 1;

/// Kind of an address in a [`AddressBody`]: an IPv4 address and a port.
pub const ADDRESS_IPV4: u8 = 4;

/// Kind of an address in a [`AddressBody`]: an IPv6 address and a port.
pub const ADDRESS_IPV6: u8 = 6;

layout! {
    /// A further address of the acceptor. Several may follow the body of its [`PacketKind::PROBE`].
    pub struct AddressBody: 24 {
        /// The kind of the address: one of `ADDRESS_…`.
        [0] kind: u8,
        /// Reserved bytes, which are zero.
        [1] reserved: u8,
        /// The port.
        [2] port: U16,
        /// Reserved bytes, which are zero.
        [4] zero: U32,
        /// The address in network order: its first 4, 6 or 16 bytes, by the kind; zeroes follow.
        [8] address: [u8; 16],
    }
}

layout! {
    /// The body of [`PacketKind::PROBE`].
    pub struct ProbeBody: 16 {
        /// A random number that the receiver is to return; zero if the probe asks for no answer.
        [0] challenge: U64,
        /// The number that the receiver had asked this end to return; zero if it had not.
        [8] echo: U64,
    }
}
