//! Tests that the load generator and the initiator allocate nothing after their start.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{Buf, BufPool, ConnId, Dial, Frame, FrameHead, Instant, NetEvent, Peer, Streams};
use nearflash_client::load::{Generator, Pace, Path, Pattern, Remote, Shape, Tally};
use nearflash_client::{Initiator, Options, Version};

/// A server of version 1 in place of a network. The server answers everything at the next poll, and
/// allocates nothing after its start.
struct Echo {
    conn: ConnId,
    /// `true` if a dial is not yet reported.
    dialled: bool,
    heads: Vec<FrameHead>,
    sent: VecDeque<Buf>,
    /// The buffer for answers, which is lent to the receiver.
    answer: Option<Buf>,
}

/// Size of a version 1 head in bytes, and the offsets of its opcode and length (the original's wire
/// format).
const HEAD: usize = 24;

impl Streams for Echo {
    fn poll(&mut self, _now: Instant, events: &mut Vec<NetEvent>, _max: usize) {
        let conn = self.conn;
        if std::mem::take(&mut self.dialled) {
            events.push(NetEvent::opened(conn, Peer::Local { uid: 0 }, None));
            return;
        }
        while let Some(buf) = self.sent.pop_front() {
            events.push(NetEvent::Sent { conn, buf });
        }
        if self.heads.is_empty() {
            return;
        }
        let mut buf = self.answer.take().expect("what was lent came back");
        let bytes = buf.bytes_mut();
        let mut len = 0;
        for head in self.heads.drain(..) {
            bytes[len..len + HEAD].copy_from_slice(head.bytes());
            let is_read = head.bytes()[2] == 0;
            if !is_read {
                bytes[len + 20..len + HEAD].fill(0);
            }
            len += HEAD + if is_read { 4096 } else { 0 };
        }
        events.push(NetEvent::Received { conn, buf, len });
    }

    fn give(&mut self, buf: Buf) {
        self.answer = Some(buf);
    }

    fn room(&self) -> usize {
        self.heads.capacity() - self.heads.len()
    }

    fn send(&mut self, _now: Instant, _conn: ConnId, frame: Frame) {
        self.heads.push(frame.head);
        self.sent.extend(frame.body);
    }

    fn kick(&mut self, _now: Instant) {}
    fn close(&mut self, _conn: ConnId) {}

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl Dial for Echo {
    fn dial(&mut self, _now: Instant) -> ConnId {
        self.dialled = true;
        self.conn
    }
}

fn buffers(count: usize, bytes: usize) -> impl Iterator<Item = Buf> {
    (0..count).map(move |n| Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), n as u32))
}

const DEPTH: usize = 32;

fn generator() -> Generator<Remote<Echo>> {
    let echo = Echo {
        conn: ConnId { index: 0, generation: 0 },
        dialled: false,
        heads: Vec::with_capacity(DEPTH),
        sent: VecDeque::with_capacity(DEPTH),
        answer: buffers(1, DEPTH * (HEAD + 4096)).next(),
    };
    let options = Options { in_flight_max: DEPTH, version: Version::One, ..Options::default() };
    let shape = Shape {
        read_percent: 70,
        request_bytes: 4096,
        lanes: 1,
        queue_depth: DEPTH,
        pace: Pace::Closed,
        pattern: Pattern::Zipf { theta: 0.9 },
        first_lba: 0,
        span_bytes: 1 << 30,
        fua: false,
        verify: None,
        probe: None,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(3600),
        seed: 1,
    };
    let path = Remote::new(Initiator::new(echo, options), None, true);
    let pool = BufPool::new(buffers(DEPTH, 4096));
    Generator::new(Instant::ZERO, shape, path, pool).expect("nothing is verified")
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let mut generator = generator();
    let mut now = Instant::ZERO;
    let mut turns = |generator: &mut Generator<Remote<Echo>>, count| {
        for _ in 0..count {
            now = now + Duration::from_micros(10);
            generator.turn(now);
        }
    };
    turns(&mut generator, 1000);
    let used = allocation_counter::measure(|| turns(&mut generator, 10_000));
    assert_eq!(used.count_total, 0);
    let mut tally = Tally::new();
    generator.report(&mut tally);
    assert!(tally.count() > 300_000, "it worked all the while: {}", tally.count());
    assert_eq!(tally.errors, 0);
    assert!(generator.path().in_flight_max() == DEPTH);
}
