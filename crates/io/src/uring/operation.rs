//! The user data by which completions name operations of the sockets.

// UNSAFETY: the entries that cancel operations are pushed to the ring.
#![allow(unsafe_code)]

use io_uring::{opcode, types};

use crate::{Owner, Ring};

/// The kind of the sockets' operation that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Accept = 0,
    Receive = 1,
    Send = 2,
    Connect = 3,
    Cancel = 4,
    Watch = 5,
}

impl Operation {
    /// Returns the operation, the connection's index and the low bits of its generation as 56 bits.
    /// By the generation, a late cancel cannot hit a later connection.
    pub(super) fn data(self, index: u32, generation: u32) -> u64 {
        debug_assert!(index < 1 << 24);
        (self as u64) << 48 | u64::from(generation & 0xff_ffff) << 24 | u64::from(index)
    }

    /// Returns the operation and the index from a completion's user data.
    pub(super) fn from_data(data: u64) -> (Operation, u32) {
        let operation = match data >> 48 {
            0 => Operation::Accept,
            1 => Operation::Receive,
            2 => Operation::Send,
            3 => Operation::Connect,
            4 => Operation::Cancel,
            5 => Operation::Watch,
            other => panic!("{other} is no operation of the sockets"),
        };
        (operation, (data & 0xff_ffff) as u32)
    }
}

/// Cancels an operation in flight of the connection, or the listener, at `index`.
pub(super) fn cancel(ring: &Ring, operation: Operation, index: u32, generation: u32) {
    let user_data = Owner::SOCKETS.bits() | operation.data(index, generation);
    let entry = opcode::AsyncCancel2::new(types::CancelBuilder::user_data(user_data)).build();
    let data = Operation::Cancel.data(index, generation);
    // SAFETY: the entry points to nothing.
    unsafe { ring.push(Owner::SOCKETS, data, entry) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_round_trip() {
        for operation in [Operation::Accept, Operation::Receive, Operation::Watch] {
            let data = operation.data(0x12_3456, 0xdead_beef);
            assert!(data < 1 << 56);
            assert_eq!(Operation::from_data(data), (operation, 0x12_3456));
        }
    }
}
