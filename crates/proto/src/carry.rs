//! A buffer for the beginning of a message that is split across segments.

/// The first bytes of an incomplete message, at most `N`, kept until the others arrive.
#[derive(Debug)]
pub(crate) struct PartialMessage<const N: usize> {
    bytes: [u8; N],
    /// The number of held bytes, which are the first of `bytes`: `len ≤ N ≤ 255`.
    len: u8,
}

impl<const N: usize> PartialMessage<N> {
    pub(crate) const fn new() -> Self {
        assert!(N <= u8::MAX as usize);
        PartialMessage { bytes: [0; N], len: 0 }
    }

    /// Creates a buffer that holds these bytes; `None` if there are more than `N`.
    pub(crate) fn holding(held: &[u8]) -> Option<Self> {
        let mut carry = PartialMessage::new();
        carry.bytes.get_mut(..held.len())?.copy_from_slice(held);
        carry.len = held.len() as u8;
        Some(carry)
    }

    /// Returns the held bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes bytes off the front of `input` until the buffer holds `need` bytes, at most `N`.
    /// Returns the first `need` bytes once they have all come, and `None` before.
    pub(crate) fn gather(&mut self, input: &mut &[u8], need: usize) -> Option<&[u8]> {
        let held = usize::from(self.len);
        if held < need {
            let taken = (need - held).min(input.len());
            let (piece, rest) = input.split_at(taken);
            self.bytes[held..held + taken].copy_from_slice(piece);
            self.len += taken as u8;
            *input = rest;
        }
        (usize::from(self.len) >= need).then_some(&self.bytes[..need])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_no_more_than_it_needs() {
        let mut carry = PartialMessage::<8>::new();
        let mut input: &[u8] = &[1, 2];
        assert_eq!(carry.gather(&mut input, 3), None);
        assert!(input.is_empty());
        let mut input: &[u8] = &[3, 4, 5];
        assert_eq!(carry.gather(&mut input, 3), Some(&[1, 2, 3][..]));
        assert_eq!(input, [4, 5]);
        assert_eq!(carry.gather(&mut input, 4), Some(&[1, 2, 3, 4][..]));
        assert_eq!(input, [5]);
        carry.clear();
        assert!(carry.is_empty());
    }
}
