//! Packets in frames of Ethernet over an AF_XDP socket (docs/adr/0046-raw-ethernet.md).
//!
//! Frames pass the kernel's network stack by. Received frames lie in memory that is shared with the
//! kernel, and are found without a system call. Frames are sent by one call a turn, on the worker's
//! ring: a send of nothing, which makes the kernel look at the ring of frames.

// UNSAFETY: entries name the socket and point to no memory of ours.
#![allow(unsafe_code)]

mod calls;
pub(crate) mod card;
pub(crate) mod mode;
mod program;
mod rings;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use contract::{Buf, Instant, Mac, SizeClass};
use io_uring::{opcode, squeue, types};
use packets::{Lane, PeerAddress, ReceivedPacket};

use self::calls::{PendingCalls, XdpCall, pause};
pub(crate) use self::card::{CHUNK_BYTES, CardSocket, RECEIVED_MAX};
use crate::ether::{ETHERTYPE, EtherPort, PORTS_BYTES, ports, sender};
use crate::{Error, Owner, Ring, RingEvent, carve};

/// Bytes before a packet in a frame: addresses, type and ports.
pub(crate) const HEAD_BYTES: usize = 14 + PORTS_BYTES;

/// Pieces of frames that a turn takes.
const PIECES_A_TURN: usize = 256;

/// The errors of a card that is down, or gone.
const DOWN: [i32; 3] = [libc::ENETDOWN, libc::ENXIO, libc::ENODEV];

/// A frame of several chunks of which not all have come.
enum PartialFrame {
    /// A frame that is put together in this buffer, and its bytes so far.
    Kept(Buf, usize),
    /// A frame that is dropped: it is too large, or there is no buffer.
    Dropped,
}

/// A lane over an AF_XDP socket.
pub(crate) struct XdpLane {
    ring: Ring,
    number: usize,
    card: CardSocket,
    ether_port: EtherPort,
    /// Chunks that the kernel has, by number.
    with_kernel: Box<[Option<Buf>]>,
    /// Chunks to send from.
    free: Vec<Buf>,
    /// The most chunks that a packet takes.
    pieces_max: usize,
    /// Buffers for frames of several chunks, and for frames that would leave the kernel too few.
    spares: Vec<Buf>,
    begun: Option<PartialFrame>,
    under_way: PendingCalls,
    /// Tries, one after the other, that found the interface down.
    downs: usize,
    /// The position of the chunks to receive into when the card was woken last.
    woken_at: u32,
    completions: Vec<RingEvent>,
}

impl XdpLane {
    /// Returns lane `number` of a ring over a socket, for packets of at most `packet_bytes`.
    ///
    /// # Errors
    /// Fails if memory does not suffice.
    pub(crate) fn new(
        (ring, number): (&Ring, usize),
        mut card: CardSocket,
        ether_port: EtherPort,
        (packet_bytes, spares): (usize, usize),
    ) -> Result<XdpLane, Error> {
        let chunks = card.chunks.len() as u32;
        let class = SizeClass { bytes: HEAD_BYTES + packet_bytes, count: spares };
        let numbered = |buf: Buf| {
            let index = buf.index() + chunks;
            Buf::new(buf.into_bytes(), index)
        };
        let spares = carve(&[class])?.bufs.into_iter().map(numbered).collect();
        let free = card.chunks.split_off(RECEIVED_MAX);
        let received = std::mem::take(&mut card.chunks);
        ring.watch(number, card.socket.as_fd());
        let mut lane = XdpLane {
            ring: ring.clone(),
            number,
            with_kernel: (0..chunks).map(|_| None).collect(),
            pieces_max: (HEAD_BYTES + packet_bytes).div_ceil(CHUNK_BYTES),
            free,
            spares,
            begun: None,
            under_way: PendingCalls::default(),
            downs: 0,
            woken_at: 0,
            completions: Vec::with_capacity(8),
            card,
            ether_port,
        };
        received.into_iter().for_each(|chunk| lane.offer(chunk));
        lane.card.fill.publish();
        Ok(lane)
    }

    /// Stops receiving: from now on, frames go to packet sockets.
    pub(crate) fn cease(&mut self) {
        self.card.program.detach();
    }

    /// Gives the kernel a chunk to receive into.
    fn offer(&mut self, chunk: Buf) {
        let number = chunk.index() as usize;
        let before = self.with_kernel[number].replace(chunk);
        assert!(before.is_none(), "a chunk was given twice");
        self.card.fill.push((number * CHUNK_BYTES) as u64);
    }

    /// Takes back the chunk at an address that the kernel has returned. Returns also the offset of
    /// the address in the chunk.
    fn reclaim(&mut self, address: u64) -> (Buf, usize) {
        let (number, at) = (address as usize / CHUNK_BYTES, address as usize % CHUNK_BYTES);
        (self.with_kernel[number].take().expect("the kernel had this chunk"), at)
    }

    /// Takes a descriptor of a received frame, or of a piece of one.
    fn received(&mut self, piece: libc::xdp_desc, arrived: &mut Vec<ReceivedPacket>) {
        let (chunk, at) = self.reclaim(piece.addr);
        let (bytes, goes_on) = (piece.len as usize, piece.options & libc::XDP_PKT_CONTD != 0);
        // What is kept may be held for long, and the kernel needs chunks.
        let is_plenty = 4 * (self.card.fill.size() - self.card.fill.room()) >= RECEIVED_MAX;
        if self.begun.is_none() && !goes_on && is_plenty {
            return self.land(chunk, at, bytes, arrived);
        }
        let begun = match self.begun.take() {
            Some(begun) => begun,
            None => {
                self.spares.pop().map_or(PartialFrame::Dropped, |buf| PartialFrame::Kept(buf, 0))
            }
        };
        let begun = match begun {
            PartialFrame::Kept(mut buf, before) if before + bytes <= buf.capacity() => {
                let to = &mut buf.prefix_mut(before + bytes)[before..];
                to.copy_from_slice(&chunk.bytes()[at..at + bytes]);
                PartialFrame::Kept(buf, before + bytes)
            }
            PartialFrame::Kept(buf, _) => {
                self.spares.push(buf);
                PartialFrame::Dropped
            }
            PartialFrame::Dropped => PartialFrame::Dropped,
        };
        self.offer(chunk);
        match begun {
            begun if goes_on => self.begun = Some(begun),
            PartialFrame::Kept(buf, bytes) => self.land(buf, 0, bytes, arrived),
            PartialFrame::Dropped => {}
        }
    }

    /// Hands a frame up, if it is for us.
    fn land(&mut self, buf: Buf, at: usize, bytes: usize, arrived: &mut Vec<ReceivedPacket>) {
        let Some(from) = peer_address(&buf.bytes()[at..at + bytes], &self.ether_port) else {
            return self.give(buf);
        };
        let (lane, at, bytes, is_marked) = (0, at + HEAD_BYTES, bytes - HEAD_BYTES, false);
        arrived.push(ReceivedPacket {
            lane,
            from,
            buf,
            at,
            bytes,
            is_marked,
            waited: Duration::ZERO,
        });
    }

    /// Adds a filled chunk to the frames to send.
    fn append(&mut self, chunk: Buf, bytes: usize, goes_on: bool) {
        let number = chunk.index() as usize;
        let addr = (number * CHUNK_BYTES) as u64;
        let options = if goes_on { libc::XDP_PKT_CONTD } else { 0 };
        self.with_kernel[number] = Some(chunk);
        self.card.sent.push(libc::xdp_desc { addr, len: bytes as u32, options });
    }

    /// Returns `true` if frames wait for a send.
    fn waits(&self) -> bool {
        self.card.sent.is_pending() && self.card.sent.needs_wake()
    }

    /// Has the kernel look at the ring of frames to send.
    fn send(&mut self) {
        if self.is_busy_with(XdpCall::Send) || !self.waits() {
            return;
        }
        let fd = types::Fd(self.card.socket.as_raw_fd());
        let entry = opcode::Send::new(fd, std::ptr::null(), 0).flags(libc::MSG_DONTWAIT).build();
        self.begin(XdpCall::Send, entry);
    }

    /// Has a driver look at the chunks to receive into, if it asks for that.
    fn wake(&mut self) {
        if self.is_busy_with(XdpCall::Wake) || !self.card.fill.needs_wake() {
            return;
        }
        let position = self.card.fill.position();
        if self.under_way.has(XdpCall::Rest) && self.woken_at == position {
            return;
        }
        self.woken_at = position;
        let fd = types::Fd(self.card.socket.as_raw_fd());
        let entry =
            opcode::Recv::new(fd, std::ptr::null_mut(), 0).flags(libc::MSG_DONTWAIT).build();
        self.begin(XdpCall::Wake, entry);
    }

    /// Returns `true` if a call is under way, or nothing is tried because the interface is down.
    fn is_busy_with(&self, call: XdpCall) -> bool {
        self.under_way.has(call) || self.under_way.has(XdpCall::Retry)
    }

    /// Queues an operation that points to no memory of the lane.
    fn begin(&mut self, call: XdpCall, entry: squeue::Entry) {
        self.under_way.begin(call);
        // SAFETY: the entry points to nothing, or to a constant.
        unsafe { self.ring.push(Owner::lane(self.number), call as u64, entry) };
    }

    /// Begins a pause, whose end ends a park. Without it the thread would look again and again.
    fn rest(&mut self, call: XdpCall) {
        if !self.under_way.has(call) {
            self.begin(call, opcode::Timeout::new(pause(call, self.downs)).build());
        }
    }

    /// Notes that a call is over.
    fn end(&mut self, call: XdpCall, result: i32) {
        self.under_way.end(call);
        let is_try = matches!(call, XdpCall::Send | XdpCall::Wake);
        let (is_down, card) = (DOWN.contains(&-result), self.ether_port.card.mac);
        match (is_try, is_down) {
            (false, _) => {}
            (true, true) => {
                if self.downs == 0 {
                    tracing::warn!(%card, "the interface is down: frames wait until it is up");
                }
                self.rest(XdpCall::Retry);
                self.downs += 1;
            }
            (true, false) if std::mem::take(&mut self.downs) > 0 => {
                tracing::info!(%card, "the interface is up again");
            }
            (true, false) => {}
        }
        if call == XdpCall::Wake && !is_down && self.card.fill.needs_wake() {
            self.rest(XdpCall::Rest);
        }
    }
}

/// Returns the sender's address of a frame; `None` if the frame is not for the port and card of
/// `ether_port`.
fn peer_address(frame: &[u8], ether_port: &EtherPort) -> Option<PeerAddress> {
    let mac = |at: usize| Some(Mac(frame.get(at..at + 6)?.try_into().ok()?));
    let (to, from) = (mac(0)?, mac(6)?);
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let is_ours =
        to == ether_port.card.mac && word(12)? == ETHERTYPE && word(14)? == ether_port.port;
    let port = sender(frame.get(14..)?)?;
    (is_ours && !from.is_of_many()).then_some(PeerAddress::Ethernet { mac: from, port })
}

impl Lane for XdpLane {
    fn poll(&mut self, _now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        if self.ring.has_events(Owner::lane(self.number)) {
            let mut completions = std::mem::take(&mut self.completions);
            self.ring.drain(Owner::lane(self.number), &mut completions);
            for event in completions.drain(..) {
                if let Some(call) = XdpCall::of(event.data) {
                    self.end(call, event.result);
                }
            }
            self.completions = completions;
        }
        for _ in 0..self.card.completions.len() {
            let address = self.card.completions.take();
            let (chunk, _) = self.reclaim(address);
            self.free.push(chunk);
        }
        self.card.completions.release();
        let count = self.card.received.len().min(PIECES_A_TURN);
        if count == 0 {
            return None;
        }
        for _ in 0..count {
            let piece = self.card.received.take();
            self.received(piece, arrived);
        }
        self.card.received.release();
        self.card.fill.publish();
        None
    }

    fn give(&mut self, buf: Buf) {
        if (buf.index() as usize) < self.with_kernel.len() {
            self.offer(buf);
        } else {
            self.spares.push(buf);
        }
    }

    fn has_room(&self) -> bool {
        // The kernel may return a chunk before it shows that its entry of the ring is free.
        self.free.len().min(self.card.sent.room()) >= self.pieces_max
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        let PeerAddress::Ethernet { mac, port } = to else { return };
        let mut chunk = self.free.pop().expect("there is room");
        let head = &mut chunk.bytes_mut()[..HEAD_BYTES];
        head[..6].copy_from_slice(&mac.0);
        head[6..12].copy_from_slice(&self.ether_port.card.mac.0);
        head[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        head[14..].copy_from_slice(&ports(port, self.ether_port.port));
        let (mut at, mut left) = (HEAD_BYTES, bytes);
        for mut part in parts {
            while !part.is_empty() {
                if at == CHUNK_BYTES {
                    self.append(chunk, CHUNK_BYTES, true);
                    (chunk, at) = (self.free.pop().expect("there is room"), 0);
                }
                let count = part.len().min(CHUNK_BYTES - at);
                let (now, later) = part.split_at(count);
                chunk.bytes_mut()[at..at + count].copy_from_slice(now);
                (part, at, left) = (later, at + count, left - count);
            }
        }
        debug_assert!(left == 0, "a packet has its size");
        self.append(chunk, at, false);
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        if !self.has_room() {
            return;
        }
        self.put(to, packet.len(), [packet].into_iter());
        self.card.sent.publish();
        let fd = self.card.socket.as_raw_fd();
        // SAFETY: no memory is passed. Nobody needs to hear that nobody heard.
        unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    }

    fn kick(&mut self) {
        self.card.sent.publish();
        self.card.fill.publish();
        self.send();
        self.wake();
        if !self.has_room() && !self.under_way.has(XdpCall::Retry) {
            // The kernel tells nobody when it has sent a chunk.
            self.rest(XdpCall::Look);
        }
    }

    fn renew(&mut self, _to: PeerAddress) {}

    fn has_work(&self) -> bool {
        let sends = !self.is_busy_with(XdpCall::Send) && self.waits();
        let gets_room = !self.has_room() && self.card.completions.len() > 0;
        let has_events = self.ring.has_events(Owner::lane(self.number));
        sends || gets_room || self.card.received.len() > 0 || has_events
    }
}

impl Drop for XdpLane {
    fn drop(&mut self) {
        self.ring.unwatch(self.number);
    }
}
