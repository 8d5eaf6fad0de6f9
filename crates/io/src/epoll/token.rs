//! The user data by which epoll's events name descriptors.

use contract::ConnId;
use rustix::event::epoll::EventData;

/// The descriptor that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The event is of the thread's waker.
    Waker,
    /// The listener with this index among the worker's listeners.
    Listener(u32),
    /// The event is of this connection, whose generation distinguishes it from earlier connections
    /// in the same place.
    Conn(ConnId),
}

const KIND_BITS: u32 = 2;
const INDEX_BITS: u32 = 32 - KIND_BITS;

impl Token {
    /// Returns kind, index and generation in 64 bits.
    pub(super) fn data(self) -> EventData {
        let (kind, index, generation) = match self {
            Token::Waker => (0, 0, 0),
            Token::Listener(n) => (1, n, 0),
            Token::Conn(conn) => (2, conn.index, conn.generation),
        };
        assert!(index < 1 << INDEX_BITS, "a place's number has 30 bits");
        EventData::new_u64((kind << INDEX_BITS | u64::from(index)) << 32 | u64::from(generation))
    }

    pub(super) fn from_data(data: EventData) -> Token {
        let bits = data.u64();
        let (place, generation) = ((bits >> 32) as u32, bits as u32);
        let index = place & ((1 << INDEX_BITS) - 1);
        match place >> INDEX_BITS {
            0 => Token::Waker,
            1 => Token::Listener(index),
            2 => Token::Conn(ConnId { index, generation }),
            kind => panic!("{kind} is no kind of descriptor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        let conn = ConnId { index: 0x1234_5678, generation: 0xdead_beef };
        for token in [Token::Waker, Token::Listener(7), Token::Conn(conn)] {
            assert_eq!(Token::from_data(token.data()), token);
        }
    }
}
