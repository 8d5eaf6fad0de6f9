//! The bytes of a volume's state that one process hands to another.
//!
//! Each part names its fields once, for writing and for reading alike.

use alloc::vec::Vec;

/// A writer or a reader of fields, little-endian.
pub(crate) enum FieldCodec<'a> {
    /// The fields are written.
    Writes(&'a mut Vec<u8>),
    /// The fields are set to what is read.
    Reads(&'a [u8]),
    /// The bytes made no sense; nothing is set any more.
    Failed,
}

macro_rules! numbers {
    ($($name:ident)*) => {
        $(
            /// Writes a number, or sets it to what is read.
            pub(crate) fn $name(&mut self, field: &mut $name) {
                let mut bytes = field.to_le_bytes();
                self.bytes(&mut bytes);
                *field = $name::from_le_bytes(bytes);
            }
        )*
    };
}

impl FieldCodec<'_> {
    numbers!(u8 u16 u32 u64 f32);

    /// Writes bytes, or sets them to what is read.
    pub(crate) fn bytes(&mut self, field: &mut [u8]) {
        match self {
            FieldCodec::Writes(to) => to.extend_from_slice(field),
            FieldCodec::Reads(from) => match from.split_at_checked(field.len()) {
                Some((read, rest)) => {
                    field.copy_from_slice(read);
                    *from = rest;
                }
                None => *self = FieldCodec::Failed,
            },
            FieldCodec::Failed => {}
        }
    }

    pub(crate) fn bool(&mut self, field: &mut bool) {
        let mut byte = u8::from(*field);
        self.u8(&mut byte);
        self.check(byte < 2);
        *field = byte == 1;
    }

    /// Writes the number of items of a list, or returns the number that is read: at most `most`.
    pub(crate) fn count(&mut self, items: usize, most: usize) -> usize {
        let mut count = items as u64;
        self.u64(&mut count);
        self.check(count <= most as u64);
        if matches!(self, FieldCodec::Failed) { 0 } else { count as usize }
    }

    /// Writes a value, or compares it with what is read, which must be the same.
    pub(crate) fn same(&mut self, value: u64) {
        let mut read = value;
        self.u64(&mut read);
        self.check(read == value);
    }

    /// Fails the reading unless `is_sound`.
    pub(crate) fn check(&mut self, is_sound: bool) {
        if !is_sound && !matches!(self, FieldCodec::Writes(_)) {
            *self = FieldCodec::Failed;
        }
    }

    pub(crate) fn reads(&self) -> bool {
        !matches!(self, FieldCodec::Writes(_))
    }

    /// Writes or reads a list of pairs of a round of flushes and a number, at most `most` of them.
    pub(crate) fn rounds(
        &mut self,
        list: &mut alloc::collections::VecDeque<(u64, u32)>,
        most: usize,
    ) {
        let count = self.count(list.len(), most);
        if self.reads() {
            list.clear();
            list.extend(core::iter::repeat_n((0, 0), count));
        }
        for (round, number) in list {
            self.u64(round);
            self.u32(number);
        }
    }
}
