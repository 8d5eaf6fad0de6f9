//! Messages of in-band authentication with DH-HMAC-CHAP (Base 8.13).

use zerocopy::little_endian::{U16, U32};

/// The security protocol of Authentication Send and Receive (Base 6.2, SECP).
pub const AUTH_PROTOCOL: u8 = 0xe9;

/// Maximum number of hash identifiers, and of group identifiers, in a descriptor.
pub const AUTH_LIST_MAX: usize = 30;

open_enum! {
    /// The protocol that defines a message (AUTH_TYPE).
    pub struct AuthKind {
        /// Common messages, which belong to no single protocol.
        COMMON = 0,
        /// Messages of DH-HMAC-CHAP.
        DH_HMAC_CHAP = 1,
    }
}

open_enum! {
    /// The identifier of a message within its protocol (AUTH_ID).
    pub struct AuthMessage {
        /// The host offers protocols, hashes and groups.
        NEGOTIATE = 0x00,
        /// The controller challenges the host.
        CHALLENGE = 0x01,
        /// The host answers, and may challenge the controller.
        REPLY = 0x02,
        /// The controller has authenticated the host, and may answer the host's challenge.
        SUCCESS1 = 0x03,
        /// The host has authenticated the controller.
        SUCCESS2 = 0x04,
        /// The host gives up.
        FAILURE2 = 0xf0,
        /// The controller gives up.
        FAILURE1 = 0xf1,
    }
}

open_enum! {
    /// The reason for a failed authentication (reason code explanation).
    pub struct AuthFailure {
        /// The peer did not prove its identity.
        FAILED = 1,
        /// The host and the controller have no protocol in common.
        PROTOCOL = 2,
        /// A secure channel is required by one end and not offered by the other.
        CONCATENATION = 3,
        /// The host and the controller have no hash in common.
        HASH = 4,
        /// The host and the controller have no Diffie-Hellman group in common.
        GROUP = 5,
        /// A field of the message has an invalid value.
        PAYLOAD = 6,
        /// The message is not expected at this point.
        MESSAGE = 7,
    }
}

layout! {
    /// The head that every authentication message begins with.
    pub struct AuthHead: 6 {
        /// The protocol that defines the message.
        [0] kind: AuthKind,
        /// The identifier of the message.
        [1] message: AuthMessage,
        /// Reserved bytes, which are zero.
        [2] reserved: U16,
        /// The identifier of the transaction, which the host has chosen.
        [4] transaction: U16,
    }
}

layout! {
    /// The fixed part of the message Negotiate; [`AuthDescriptor`]s follow.
    pub struct AuthNegotiate: 8 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Identifier of the kind of secure channel to derive from this authentication; zero for
        /// none.
        [6] concatenation: u8,
        /// Number of descriptors that follow.
        [7] descriptors: u8,
    }
}

layout! {
    /// An authentication protocol that the host offers, with its hashes and groups.
    pub struct AuthDescriptor: 64 {
        /// Identifier of the protocol: 1 for DH-HMAC-CHAP.
        [0] protocol: u8,
        /// Reserved bytes, which are zero.
        [1] reserved: u8,
        /// Number of identifiers in `hashes`.
        [2] hash_count: u8,
        /// Number of identifiers in `groups`.
        [3] group_count: u8,
        /// Identifiers of hash functions, in order of preference.
        [4] hashes: [u8; AUTH_LIST_MAX],
        /// Identifiers of Diffie-Hellman groups, in order of preference.
        [34] groups: [u8; AUTH_LIST_MAX],
    }
}

layout! {
    /// The fixed part of the message Challenge. The challenge follows, then the controller's
    /// Diffie-Hellman value.
    pub struct AuthChallenge: 16 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Length of the challenge in bytes, which is the length of the hash function's result.
        [6] hash_bytes: u8,
        /// Reserved bytes, which are zero.
        [7] reserved: u8,
        /// Identifier of the hash function that the controller has chosen.
        [8] hash: u8,
        /// Identifier of the Diffie-Hellman group that the controller has chosen; zero for none.
        [9] group: u8,
        /// Length of the controller's Diffie-Hellman value in bytes; zero without a group.
        [10] value_bytes: U16,
        /// Sequence number of the challenge.
        [12] sequence: U32,
    }
}

layout! {
    /// The fixed part of the message Reply. The response follows, then the host's challenge (zeroes
    /// if it has none) and its Diffie-Hellman value.
    pub struct AuthReply: 16 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Length of the response, and of the challenge, in bytes.
        [6] hash_bytes: u8,
        /// Reserved bytes, which are zero.
        [7] reserved: u8,
        /// 1 if the host sends a challenge, else 0.
        [8] challenges: u8,
        /// Reserved bytes, which are zero.
        [9] reserved_tail: u8,
        /// Length of the host's Diffie-Hellman value in bytes; zero without a group.
        [10] value_bytes: U16,
        /// Sequence number of the host's challenge; zero without bidirectional authentication.
        [12] sequence: U32,
    }
}

layout! {
    /// The fixed part of the message Success1; the controller's response follows if the host sent a
    /// challenge.
    pub struct AuthSuccess1: 16 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Length of the response in bytes.
        [6] hash_bytes: u8,
        /// Reserved bytes, which are zero.
        [7] reserved: u8,
        /// 1 if a response follows, else 0.
        [8] responds: u8,
        /// Reserved bytes, which are zero.
        [9] reserved_tail: [u8; 7],
    }
}

layout! {
    /// The message Success2.
    pub struct AuthSuccess2: 16 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Reserved bytes, which are zero.
        [6] reserved: [u8; 10],
    }
}

layout! {
    /// The messages Failure1 and Failure2, which end an authentication.
    pub struct AuthFailureMessage: 8 {
        /// The head that every authentication message has.
        [0] head: AuthHead,
        /// Reason code. 1: authentication failed.
        [6] reason: u8,
        /// The explanation of the reason code, which says why the authentication failed.
        [7] explanation: AuthFailure,
    }
}
