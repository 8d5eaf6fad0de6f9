//! Buffers of simulated workers. Buffers are never freed, so each scenario reuses those of earlier
//! ones.

use std::sync::Mutex;

use contract::{Buf, BufPool, SizeClass};

/// The receive buffers of a worker, as many as a real one has.
const RECEIVE: SizeClass = SizeClass { bytes: 8 << 10, count: 4096 };

/// The buffers of one simulated worker.
pub(crate) struct Memory {
    /// The buffers for requests, as many as a real worker has.
    pub(crate) pool: BufPool,
    pub(crate) receive: Vec<Buf>,
}

static FREE: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

impl Memory {
    pub(crate) fn take() -> Memory {
        let used = FREE.lock().expect("nobody panics with it").pop();
        used.unwrap_or_else(|| Memory {
            pool: BufPool::new(BufPool::CLASSES.iter().flat_map(|class| bufs(*class))),
            receive: bufs(RECEIVE).collect(),
        })
    }

    pub(crate) fn give(self) {
        assert!(self.pool.is_whole() && self.receive.len() == RECEIVE.count, "buffers are missing");
        FREE.lock().expect("nobody panics with it").push(self);
    }
}

/// Returns the buffers of a size class, cut from one piece of zeroed memory that is never freed.
pub(super) fn bufs(class: SizeClass) -> impl Iterator<Item = Buf> {
    let memory: &'static mut [u8] = vec![0; class.bytes * class.count].leak();
    let pieces = memory.chunks_exact_mut(class.bytes).enumerate();
    pieces.map(|(n, piece)| Buf::new(piece, n as u32))
}
