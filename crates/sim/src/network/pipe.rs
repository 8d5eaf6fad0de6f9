//! A direction of a connection: bytes on their way, and the end behind the last of them.

use std::collections::VecDeque;

use contract::Instant;

/// The end of the peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpEnd {
    /// An orderly end, behind the last byte.
    Fin,
    /// An immediate end, whatever has not been read, with the system's error.
    Reset(i32),
}

/// Bytes towards one end of a connection.
///
/// `arrived + sum(arrivals) = bytes.len()`.
#[derive(Debug)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    /// The arrival times and lengths of segments that have not arrived, in order.
    arrivals: VecDeque<(Instant, usize)>,
    arrived: usize,
    /// Maximum bytes in the pipe: the receiver's window.
    window: usize,
    pub(super) end: Option<(Instant, TcpEnd)>,
    /// `true` if no more bytes arrive, and only the end of the connection still does.
    pub(super) dark: bool,
}

impl Pipe {
    pub(super) fn new(window: usize) -> Self {
        Pipe {
            bytes: VecDeque::new(),
            arrivals: VecDeque::new(),
            arrived: 0,
            window,
            end: None,
            dark: false,
        }
    }

    /// Returns the number of bytes that may be sent now.
    pub(super) fn room(&self) -> usize {
        self.window - self.bytes.len()
    }

    /// Sends a segment that arrives at `at`, but not before the previous one.
    pub(super) fn push(&mut self, at: Instant, segment: &[u8]) {
        self.bytes.extend(segment);
        let at = self.arrivals.back().map_or(at, |&(last, _)| last.max(at));
        self.arrivals.push_back((at, segment.len()));
    }

    /// Delivers the segments that are due. Returns the number of readable bytes.
    pub(super) fn arrive(&mut self, now: Instant) -> usize {
        while let Some(&(at, bytes)) = self.arrivals.front()
            && at <= now
            && !self.dark
        {
            self.arrivals.pop_front();
            self.arrived += bytes;
        }
        if self.dark { 0 } else { self.arrived }
    }

    /// Reads into `target`, which is not longer than what has arrived.
    pub(super) fn read(&mut self, target: &mut [u8]) {
        assert!(target.len() <= self.arrived, "only what has arrived can be read");
        let (front, back) = self.bytes.as_slices();
        let first = front.len().min(target.len());
        target[..first].copy_from_slice(&front[..first]);
        let second = target.len() - first;
        target[first..].copy_from_slice(&back[..second]);
        self.bytes.drain(..target.len());
        self.arrived -= target.len();
    }

    /// Ends the peer's direction: `end` arrives at `at`, an orderly end not before the bytes. Only
    /// the first end counts, unless a reset overtakes it.
    pub(super) fn end(&mut self, at: Instant, end: TcpEnd) {
        let at = match (end, self.arrivals.back()) {
            (TcpEnd::Fin, Some(&(last, _))) => at.max(last),
            _ => at,
        };
        match self.end {
            Some((_, TcpEnd::Reset(_))) => {}
            Some((_, TcpEnd::Fin)) if end == TcpEnd::Fin => {}
            _ => self.end = Some((at, end)),
        }
    }

    /// Returns the end once it has arrived: a reset at once, an orderly end behind the last byte.
    pub(super) fn ended(&self, now: Instant) -> Option<TcpEnd> {
        let (at, end) = self.end?;
        let over = at <= now && (self.bytes.is_empty() || self.dark || end != TcpEnd::Fin);
        over.then_some(end)
    }

    /// Returns the time at which bytes can be read: now, or at the arrival of the next segment.
    pub(super) fn next_arrival(&self, now: Instant) -> Option<Instant> {
        match self.arrivals.front() {
            _ if self.dark => None,
            _ if self.arrived > 0 => Some(now),
            next => next.map(|&(at, _)| at),
        }
    }

    pub(super) fn describe(&self) -> String {
        let (bytes, arrived, end) = (self.bytes.len(), self.arrived, self.end);
        format!("{bytes} bytes ({arrived} arrived), end {end:?}")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn segments_keep_their_order_and_the_end_comes_last() {
        let mut pipe = Pipe::new(8);
        pipe.push(at(9), b"abc");
        pipe.push(at(5), b"de");
        pipe.end(at(6), TcpEnd::Fin);
        assert_eq!((pipe.room(), pipe.arrive(at(8))), (3, 0));
        assert_eq!(pipe.next_arrival(at(8)), Some(at(9)));
        assert_eq!(pipe.arrive(at(9)), 5);
        assert_eq!(pipe.ended(at(9)), None);
        let mut out = [0; 5];
        pipe.read(&mut out);
        assert_eq!((&out, pipe.ended(at(9))), (b"abcde", Some(TcpEnd::Fin)));
    }

    #[test]
    fn a_reset_overtakes() {
        let mut pipe = Pipe::new(8);
        pipe.push(at(9), b"abc");
        pipe.end(at(1), TcpEnd::Fin);
        pipe.end(at(3), TcpEnd::Reset(104));
        assert_eq!(pipe.ended(at(2)), None);
        assert_eq!(pipe.ended(at(3)), Some(TcpEnd::Reset(104)));
    }
}
