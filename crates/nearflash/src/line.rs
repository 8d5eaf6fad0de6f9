//! The bounded line of requests from the program's tasks to the client's thread.
//!
//! A task that finds the queue full waits in line. So requests enter the queue in the order in
//! which they were first polled; the barriers of a stream refer to this order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::Error;

/// A bounded queue of requests of type `T`, with the tasks that wait for room in the queue, in
/// order.
#[derive(Debug)]
pub(crate) struct RequestQueue<T> {
    inner: Mutex<Inner<T>>,
    capacity: usize,
}

#[derive(Debug)]
struct Inner<T> {
    requests: VecDeque<T>,
    /// The tasks that wait for room in `requests`, in order, each with its number and waker.
    line: VecDeque<(u64, Waker)>,
    next_number: u64,
    closed: bool,
}

impl<T> RequestQueue<T> {
    /// Creates a line whose queue holds at most `capacity` requests.
    pub(crate) fn new(capacity: usize) -> Self {
        let inner = Inner {
            requests: VecDeque::with_capacity(capacity),
            line: VecDeque::new(),
            next_number: 0,
            closed: false,
        };
        RequestQueue { inner: Mutex::new(inner), capacity }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Appends a request to the queue, after waiting until it is the task's turn and the queue has
    /// room.
    ///
    /// # Errors
    /// [`Error::Closed`] if the line is closed.
    pub(crate) async fn push(&self, request: T) -> Result<(), Error> {
        let mut place = RoomWaiter { line: self, number: None };
        let mut request = Some(request);
        poll_fn(|context| place.poll(context, &mut request)).await
    }

    /// Removes and returns the first request, if there is one and `wanted` returns `true` for it.
    pub(crate) fn pop_if(&self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut inner = self.lock();
        if !wanted(inner.requests.front()?) {
            return None;
        }
        let request = inner.requests.pop_front();
        inner.call_next(self.capacity);
        request
    }

    /// Rejects further requests, drops the queued requests, and wakes all tasks that wait for room.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let dropped = std::mem::take(&mut inner.requests);
        for (_, waker) in inner.line.drain(..) {
            waker.wake();
        }
        drop(inner);
        drop(dropped); // Their promises wake tasks, which may look here.
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

impl<T> Inner<T> {
    /// Wakes the first waiting task if the queue has room for its request.
    fn call_next(&self, capacity: usize) {
        if self.requests.len() < capacity
            && let Some((_, waker)) = self.line.front()
        {
            waker.wake_by_ref();
        }
    }
}

/// A task's position among the tasks that wait for room in the queue. Dropping the value gives the
/// position up.
struct RoomWaiter<'a, T> {
    line: &'a RequestQueue<T>,
    number: Option<u64>,
}

impl<T> RoomWaiter<'_, T> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        request: &mut Option<T>,
    ) -> Poll<Result<(), Error>> {
        let mut inner = self.line.lock();
        if inner.closed {
            return Poll::Ready(Err(Error::Closed));
        }
        let first = inner.line.front().is_none_or(|&(number, _)| Some(number) == self.number);
        if first && inner.requests.len() < self.line.capacity {
            if self.number.take().is_some() {
                inner.line.pop_front();
            }
            inner.requests.push_back(request.take().expect("a request is pushed once"));
            inner.call_next(self.line.capacity);
            return Poll::Ready(Ok(()));
        }
        let waker = context.waker().clone();
        match self.number {
            None => {
                let number = inner.next_number;
                inner.next_number += 1;
                inner.line.push_back((number, waker));
                self.number = Some(number);
            }
            Some(mine) => {
                let place = inner.line.iter_mut().find(|(number, _)| *number == mine);
                place.expect("a place is kept until it is left").1 = waker;
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for RoomWaiter<'_, T> {
    fn drop(&mut self) {
        if let Some(mine) = self.number {
            let mut inner = self.line.lock();
            inner.line.retain(|(number, _)| *number != mine);
            inner.call_next(self.line.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_waits_enters_in_order() {
        let line = RequestQueue::new(1);
        let mut a = pin!(line.push('a'));
        let mut b = pin!(line.push('b'));
        let mut c = pin!(line.push('c'));
        assert!(poll(a.as_mut()).is_ready());
        assert!(poll(b.as_mut()).is_pending());
        assert_eq!(line.pop_if(|_| true), Some('a'));
        assert!(poll(c.as_mut()).is_pending(), "b is first, although there is room");
        assert!(poll(b.as_mut()).is_ready());
        assert_eq!(line.pop_if(|_| false), None);
        assert_eq!(line.pop_if(|_| true), Some('b'));
        assert!(poll(c.as_mut()).is_ready());
    }

    #[test]
    fn who_leaves_lets_the_next_in() {
        let line = RequestQueue::new(1);
        assert!(poll(pin!(line.push('a'))).is_ready());
        let mut c = pin!(line.push('c'));
        {
            let mut b = pin!(line.push('b'));
            assert!(poll(b.as_mut()).is_pending());
            assert!(poll(c.as_mut()).is_pending());
            line.pop_if(|_| true);
        }
        assert!(poll(c.as_mut()).is_ready());
    }

    #[test]
    fn a_closed_queue_lets_nobody_in() {
        let line = RequestQueue::new(1);
        assert!(poll(pin!(line.push('a'))).is_ready());
        let mut b = pin!(line.push('b'));
        assert!(poll(b.as_mut()).is_pending());
        line.close();
        assert_eq!(poll(b.as_mut()), Poll::Ready(Err(Error::Closed)));
        assert!(line.is_closed() && line.pop_if(|_| true).is_none());
    }
}
