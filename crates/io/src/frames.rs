//! The frames that wait to be sent, of all connections of a worker.

use contract::{Buf, Frame};

/// No frame.
const NONE: u32 = u32::MAX;

/// A connection's frames, oldest first: a list threaded through a [`FrameStore`].
#[derive(Debug)]
pub(crate) struct FrameQueue {
    head: u32,
    tail: u32,
}

impl FrameQueue {
    pub(crate) const EMPTY: FrameQueue = FrameQueue { head: NONE, tail: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// Room for a fixed number of frames. A frame stays where it is until it is popped, so a send in
/// flight may point into it.
#[derive(Debug)]
pub(crate) struct FrameStore {
    places: Box<[Place]>,
    /// First free place, threaded through `next`.
    free: u32,
    room: usize,
}

#[derive(Debug)]
struct Place {
    frame: Option<Frame>,
    next: u32,
}

impl FrameStore {
    pub(crate) fn new(capacity: usize) -> Self {
        let places = (0..capacity as u32)
            .map(|n| Place {
                frame: None,
                next: if n + 1 < capacity as u32 { n + 1 } else { NONE },
            })
            .collect();
        FrameStore { places, free: if capacity == 0 { NONE } else { 0 }, room: capacity }
    }

    pub(crate) fn room(&self) -> usize {
        self.room
    }

    pub(crate) fn push(&mut self, queue: &mut FrameQueue, frame: Frame) {
        let n = self.free;
        assert!(n != NONE, "send() was called without asking for room()");
        let place = &mut self.places[n as usize];
        self.free = place.next;
        place.frame = Some(frame);
        place.next = NONE;
        match queue.tail {
            NONE => queue.head = n,
            tail => self.places[tail as usize].next = n,
        }
        queue.tail = n;
        self.room -= 1;
    }

    pub(crate) fn pop(&mut self, queue: &mut FrameQueue) -> Option<Frame> {
        if queue.head == NONE {
            return None;
        }
        let n = queue.head;
        let place = &mut self.places[n as usize];
        let frame = place.frame.take().expect("a queued place holds a frame");
        queue.head = place.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        place.next = self.free;
        self.free = n;
        self.room += 1;
        Some(frame)
    }

    /// Removes the oldest frame of `queue`, and returns its body.
    ///
    /// # Panics
    /// Panics if the queue is empty.
    #[inline]
    pub(crate) fn pop_body(&mut self, queue: &mut FrameQueue) -> Option<Buf> {
        let n = queue.head;
        let place = &mut self.places[n as usize];
        let body = place.frame.as_mut().expect("a queued place holds a frame").body.take();
        place.frame = None;
        queue.head = std::mem::replace(&mut place.next, self.free);
        if queue.head == NONE {
            queue.tail = NONE;
        }
        self.free = n;
        self.room += 1;
        body
    }

    /// Returns the oldest frame of `queue`.
    pub(crate) fn front(&self, queue: &FrameQueue) -> Option<&Frame> {
        self.places.get(queue.head as usize)?.frame.as_ref()
    }

    /// Returns the frames of `queue`, oldest first.
    pub(crate) fn iter<'a>(&'a self, queue: &FrameQueue) -> impl Iterator<Item = &'a Frame> {
        let mut at = queue.head;
        std::iter::from_fn(move || {
            let place = self.places.get(at as usize)?;
            at = place.next;
            place.frame.as_ref()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::FrameHead;

    #[test]
    fn queues_share_the_store_and_keep_their_order() {
        let mut store = FrameStore::new(3);
        let (mut a, mut b) = (FrameQueue::EMPTY, FrameQueue::EMPTY);
        let frame = |n: u8| Frame::bare(FrameHead::new(&[n]));
        store.push(&mut a, frame(1));
        store.push(&mut b, frame(2));
        store.push(&mut a, frame(3));
        assert_eq!(store.room(), 0);
        let heads: Vec<u8> = store.iter(&a).map(|f| f.head.bytes()[0]).collect();
        assert_eq!(heads, [1, 3]);
        assert_eq!(store.front(&a).unwrap().head.bytes(), [1]);
        assert_eq!(store.pop(&mut a).unwrap().head.bytes(), [1]);
        store.push(&mut b, frame(4));
        let rest: Vec<u8> =
            std::iter::from_fn(|| store.pop(&mut b)).map(|f| f.head.bytes()[0]).collect();
        assert_eq!(rest, [2, 4]);
        assert_eq!(store.pop(&mut a).unwrap().head.bytes(), [3]);
        assert!(a.is_empty() && b.is_empty());
        assert!(store.front(&a).is_none());
        assert_eq!(store.room(), 3);
    }
}
