//! Messages of in-band authentication with DH-HMAC-CHAP (Base 8.13).

use zerocopy::little_endian::{U16, U32};

/// The security protocol of Authentication Send and Receive (Base 6.2, SECP).
pub const AUTH_PROTOCOL: u8 = 0xe9;

/// Identifiers of hashes, and of groups, that a descriptor has room for.
pub const AUTH_LIST_MAX: usize = 30;

open_enum! {
    /// Whose message it is.
    pub struct AuthKind {
        /// Of all protocols.
        COMMON = 0,
        /// Of DH-HMAC-CHAP.
        DH_HMAC_CHAP = 1,
    }
}

open_enum! {
    /// Which message.
    pub struct AuthMessage {
        /// The host offers protocols, hashes and groups.
        NEGOTIATE = 0x00,
        /// The controller challenges the host.
        CHALLENGE = 0x01,
        /// The host answers, and may challenge the controller.
        REPLY = 0x02,
        /// The controller believes the host, and may answer its challenge.
        SUCCESS1 = 0x03,
        /// The host believes the controller.
        SUCCESS2 = 0x04,
        /// The host gives up.
        FAILURE2 = 0xf0,
        /// The controller gives up.
        FAILURE1 = 0xf1,
    }
}

open_enum! {
    /// Why authentication failed (reason code explanation).
    pub struct AuthFailure {
        /// The other end did not prove who it is.
        FAILED = 1,
        /// No protocol is common.
        PROTOCOL = 2,
        /// A secure channel is wanted that is not served, or the other way round.
        CONCATENATION = 3,
        /// No hash is common.
        HASH = 4,
        /// No group is common.
        GROUP = 5,
        /// A field of the message makes no sense.
        PAYLOAD = 6,
        /// The message may not come now.
        MESSAGE = 7,
    }
}

layout! {
    /// What all messages begin with.
    pub struct AuthHead: 6 {
        /// Whose message.
        [0] kind: AuthKind,
        /// Which message.
        [1] message: AuthMessage,
        /// Zero.
        [2] reserved: U16,
        /// The transaction, named by the host.
        [4] transaction: U16,
    }
}

layout! {
    /// Negotiate, followed by [`AuthDescriptor`]s.
    pub struct AuthNegotiate: 8 {
        /// What it is.
        [0] head: AuthHead,
        /// Whether a secure channel is to be made of it: zero for not.
        [6] concatenation: u8,
        /// Descriptors that follow.
        [7] descriptors: u8,
    }
}

layout! {
    /// A protocol that the host offers.
    pub struct AuthDescriptor: 64 {
        /// 1 for DH-HMAC-CHAP.
        [0] protocol: u8,
        /// Zero.
        [1] reserved: u8,
        /// Hashes in the list.
        [2] hash_count: u8,
        /// Groups in the list.
        [3] group_count: u8,
        /// Identifiers of hashes, the preferred ones first.
        [4] hashes: [u8; AUTH_LIST_MAX],
        /// Identifiers of groups, the preferred ones first.
        [34] groups: [u8; AUTH_LIST_MAX],
    }
}

layout! {
    /// Challenge, followed by the challenge and the controller's value of the group.
    pub struct AuthChallenge: 16 {
        /// What it is.
        [0] head: AuthHead,
        /// Bytes of the challenge: those of the hash.
        [6] hash_bytes: u8,
        /// Zero.
        [7] reserved: u8,
        /// The hash that the controller has chosen.
        [8] hash: u8,
        /// The group that the controller has chosen.
        [9] group: u8,
        /// Bytes of its value; zero without a group.
        [10] value_bytes: U16,
        /// Sequence number.
        [12] sequence: U32,
    }
}

layout! {
    /// Reply, followed by the response, the host's challenge (zero without one) and its value of the
    /// group.
    pub struct AuthReply: 16 {
        /// What it is.
        [0] head: AuthHead,
        /// Bytes of response and challenge.
        [6] hash_bytes: u8,
        /// Zero.
        [7] reserved: u8,
        /// Whether there is a challenge.
        [8] challenges: u8,
        /// Zero.
        [9] reserved_tail: u8,
        /// Bytes of the value; zero without a group.
        [10] value_bytes: U16,
        /// Sequence number; zero without bidirectional authentication.
        [12] sequence: U32,
    }
}

layout! {
    /// Success1, followed by the response if there is one.
    pub struct AuthSuccess1: 16 {
        /// What it is.
        [0] head: AuthHead,
        /// Bytes of the response.
        [6] hash_bytes: u8,
        /// Zero.
        [7] reserved: u8,
        /// Whether there is a response.
        [8] responds: u8,
        /// Zero.
        [9] reserved_tail: [u8; 7],
    }
}

layout! {
    /// Success2.
    pub struct AuthSuccess2: 16 {
        /// What it is.
        [0] head: AuthHead,
        /// Zero.
        [6] reserved: [u8; 10],
    }
}

layout! {
    /// Failure1 and Failure2.
    pub struct AuthFailureMessage: 8 {
        /// What it is.
        [0] head: AuthHead,
        /// 1: authentication failed.
        [6] reason: u8,
        /// Why.
        [7] explanation: AuthFailure,
    }
}
