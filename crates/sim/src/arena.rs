//! Memory for the buffers of simulated worlds, which is reused from one world to the next. Buffers
//! are never freed, so a world that allocated its own would leak them.

use std::collections::BTreeMap;

use contract::{Buf, BufPool, SizeClass};

/// Pieces of memory that no world uses, by size.
#[derive(Debug, Default)]
pub struct Arena {
    free: BTreeMap<usize, Vec<&'static mut [u8]>>,
}

impl Arena {
    /// Returns a zeroed buffer of exactly `bytes` bytes, whose maker's number is `index`.
    pub fn take(&mut self, bytes: usize, index: u32) -> Buf {
        let piece = match self.free.get_mut(&bytes).and_then(Vec::pop) {
            Some(piece) => {
                piece.fill(0);
                piece
            }
            None => Box::leak(vec![0; bytes].into_boxed_slice()),
        };
        Buf::new(piece, index)
    }

    /// Returns a pool with buffers of these sizes and numbers.
    pub fn pool(&mut self, classes: &[SizeClass]) -> BufPool {
        let sizes = classes.iter().flat_map(|class| std::iter::repeat_n(class.bytes, class.count));
        let bufs: Vec<Buf> =
            sizes.enumerate().map(|(n, bytes)| self.take(bytes, n as u32)).collect();
        BufPool::new(bufs)
    }

    /// Takes the memory of buffers back, for the next world.
    pub fn give(&mut self, bufs: impl IntoIterator<Item = Buf>) {
        for buf in bufs {
            let piece = buf.into_bytes();
            self.free.entry(piece.len()).or_default().push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_zeroed() {
        let mut arena = Arena::default();
        let mut buf = arena.take(64, 0);
        let place = buf.bytes().as_ptr();
        buf.bytes_mut().fill(7);
        arena.give([buf]);
        let again = arena.take(64, 1);
        assert_eq!(again.bytes().as_ptr(), place);
        assert!(again.bytes().iter().all(|&byte| byte == 0));
    }
}
