//! Packets over a socket on the worker's ring: of UDP (docs/adr/0035-udp.md), or of an Ethernet
//! card (docs/adr/0046-raw-ethernet.md).
//!
//! A multishot receive fills provided buffers. Over UDP, packets of one size that arrive together
//! are one completion (`UDP_GRO`), and a run of packets to one address is one send (`UDP_SEGMENT`).
//! Over Ethernet, each packet is a frame, and each frame a completion and a send.

// UNSAFETY: entries point into blocks that stay until their completion.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use contract::{Buf, Instant, Mac, SizeClass};
use io_uring::types::RecvMsgOut;
use io_uring::{cqueue, opcode, types};
use packets::{Lane, PeerAddress, ReceivedPacket};
use rustix::net::SendFlags;

use super::block::{PacketRun, RUN_BYTES};
use super::kind::SocketKind;
use crate::arena::{ArenaGuard, MappedRange};
use crate::ether::PORTS_BYTES as PORTS;
use crate::message::EMPTY_HEADER;
use crate::uring::provided::ProvidedBuffers;
use crate::{Error, Owner, Ring, RingEvent, datagram, ether, since_1970};

/// The provided-buffer group of the first lane. Each lane has one.
const GROUP: u16 = 1;

/// Bytes of an address and of the control messages in a received buffer: the time at which the
/// packet came, and the size of each packet of a run.
const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();
const CONTROL_BYTES: usize = 32 + 24;

/// Offset of the packet in a received buffer: the kernel's head, then the address, then the control
/// message.
const PACKET_AT: usize = 16 + NAME_BYTES + CONTROL_BYTES;

/// Bytes of a receive buffer for UDP: a datagram has less than 64 KiB.
const LANDING_BYTES: usize = (64 << 10) + 4096;

/// The number of the receive's completions, and of the end of its cancellation. A send has the
/// number of its block plus one.
const RECEIVE: u64 = 0;
const CANCEL: u64 = u32::MAX as u64;

/// The numbers of buffers and blocks of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSizes {
    /// Buffers that the kernel receives into; a power of two.
    pub landings: usize,
    /// Buffers that receive copies of packets which arrived together in one receive buffer.
    pub spares: usize,
    /// Maximum number of sends in flight.
    pub blocks: usize,
    /// Bytes of the largest packet.
    pub packet_bytes: usize,
}

/// The state of the multishot receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultishotState {
    /// No receive is in flight. The next turn with free buffers starts one.
    Idle,
    /// The receive is in flight. Its last completion ends the state.
    Armed,
    /// No packet is received any more: the kernel does not support multishot receives, or another
    /// process receives.
    Over,
}

/// A lane (a path for packets) over a UDP or Ethernet socket.
pub(crate) struct SocketLane {
    ring: Ring,
    /// The owner of the lane's completions.
    owner: Owner,
    /// The lane's provided-buffer group.
    group: u16,
    socket: Arc<OwnedFd>,
    kind: SocketKind,
    landings: usize,
    provided: ProvidedBuffers,
    /// The header of the receive, which the kernel may read at any time, so it is never freed.
    header: &'static libc::msghdr,
    receive: MultishotState,
    spares: Vec<Buf>,
    /// The mapping of the spares.
    span: Option<MappedRange>,
    /// `true` if the kernel can split a run into packets (`UDP_SEGMENT`).
    cuts: bool,
    /// The run that collects further packets before it is sent.
    open: Option<Box<PacketRun>>,
    #[allow(clippy::vec_box, reason = "the kernel reads the blocks where they are")]
    free: Vec<Box<PacketRun>>,
    /// Sends in flight, by their number.
    flying: Vec<Option<Box<PacketRun>>>,
    completions: Vec<RingEvent>,
}

impl SocketLane {
    /// Creates lane `number` of a ring, over a bound or connected socket.
    ///
    /// # Errors
    /// Fails if memory does not suffice, or the kernel is too old.
    pub(crate) fn new(
        ring: &Ring,
        number: usize,
        (socket, kind): (Arc<OwnedFd>, SocketKind),
        sizes: LaneSizes,
    ) -> Result<SocketLane, Error> {
        let LaneSizes { landings, spares, blocks, packet_bytes } = sizes;
        let (landing_bytes, block_bytes) = match kind {
            SocketKind::Udp { .. } => (LANDING_BYTES, RUN_BYTES),
            SocketKind::Ethernet { .. } => {
                let payload = PORTS + packet_bytes;
                (PACKET_AT + payload, payload)
            }
        };
        // Also where another process has made the socket. Without stamps, the wait is delay.
        let _ = datagram::stamp(&socket);
        let group = GROUP + number as u16;
        let spares = ArenaGuard::carve(SizeClass { bytes: packet_bytes, count: spares })?;
        let provided = ProvidedBuffers::register(ring, group, landing_bytes, landings)?;
        let (span, spares) = spares.keep();
        let numbered = |buf: Buf| {
            let index = buf.index() + landings as u32;
            Buf::new(buf.into_bytes(), index)
        };
        let header = libc::msghdr {
            msg_namelen: NAME_BYTES as libc::socklen_t,
            msg_controllen: CONTROL_BYTES as _,
            ..EMPTY_HEADER
        };
        Ok(SocketLane {
            ring: ring.clone(),
            owner: Owner::lane(number),
            group,
            socket,
            kind,
            landings,
            provided,
            header: Box::leak(Box::new(header)),
            receive: MultishotState::Idle,
            spares: spares.into_iter().map(numbered).collect(),
            span: Some(span),
            cuts: matches!(kind, SocketKind::Udp { .. }),
            open: None,
            free: (0..blocks).map(|_| PacketRun::new(block_bytes)).collect(),
            flying: (0..blocks).map(|_| None).collect(),
            completions: Vec::with_capacity(blocks + landings),
        })
    }

    /// Takes back a lane that was never used: its number can be given to another lane.
    ///
    /// # Panics
    /// Panics if the lane was used.
    pub(crate) fn withdraw(mut self) {
        let is_unused =
            self.receive == MultishotState::Idle && self.flying.iter().all(Option::is_none);
        assert!(is_unused, "a lane that was used stays");
        self.spares.clear();
        // SAFETY: no receive was ever started, so no buffer is lent, and the lane is dropped here.
        unsafe {
            self.provided.withdraw(&self.ring);
            self.span.take().into_iter().for_each(|span| span.unmap());
        }
    }

    /// Starts the receive, unless it is in flight.
    fn arm(&mut self) {
        if self.receive != MultishotState::Idle || self.provided.available() == 0 {
            return;
        }
        self.receive = MultishotState::Armed;
        let fd = types::Fd(self.socket.as_raw_fd());
        let entry = opcode::RecvMsgMulti::new(fd, self.header, self.group).build();
        // SAFETY: the header is never freed; the kernel receives into the provided buffers.
        unsafe { self.ring.push(self.owner, RECEIVE, entry) };
    }

    /// Stops receiving, since packets are now for another process with the same socket.
    pub(crate) fn cease(&mut self) {
        if std::mem::replace(&mut self.receive, MultishotState::Over) == MultishotState::Armed {
            let receive = types::CancelBuilder::user_data(self.owner.bits() | RECEIVE);
            let entry = opcode::AsyncCancel2::new(receive).build();
            // SAFETY: the entry points to nothing.
            unsafe { self.ring.push(self.owner, CANCEL, entry) };
        }
    }

    /// Processes a completion of the receive. Returns the error number if the network reported that
    /// the peer is absent.
    fn received(
        &mut self,
        event: RingEvent,
        today: &mut Option<Duration>,
        arrived: &mut Vec<ReceivedPacket>,
    ) -> Option<i32> {
        if !cqueue::more(event.flags) && self.receive == MultishotState::Armed {
            self.receive = MultishotState::Idle;
        }
        match (event.result, cqueue::buffer_select(event.flags)) {
            (bytes @ 0.., Some(id)) => {
                let buf = self.provided.take(id);
                match self.receive {
                    MultishotState::Over => self.provided.give(buf),
                    MultishotState::Idle | MultishotState::Armed => {
                        let today = *today.get_or_insert_with(since_1970);
                        self.land(buf, (bytes as usize, today), arrived);
                    }
                }
            }
            (error, _) if error == -libc::ENOBUFS => self.provided.ran_dry(),
            (error, _) if error == -libc::ECONNREFUSED => return Some(libc::ECONNREFUSED),
            (error, _) if error == -libc::EINVAL || error == -libc::EOPNOTSUPP => {
                self.receive = MultishotState::Over;
                let error = std::io::Error::from_raw_os_error(-error);
                tracing::error!(%error, "cannot receive packets (Linux 6.0 can)");
            }
            // What else the network says is of one packet.
            _ => {}
        }
        None
    }

    /// Finds the packets in a received buffer. A single packet stays in it, unless too few buffers
    /// would be left for the kernel: then the receive could starve.
    fn land(
        &mut self,
        buf: Buf,
        (bytes, today): (usize, Duration),
        arrived: &mut Vec<ReceivedPacket>,
    ) {
        let found = RecvMsgOut::parse(&buf.bytes()[..bytes], self.header).ok();
        let found = found.filter(|out| !out.is_payload_truncated());
        let from = found.as_ref().and_then(|out| peer_address(out.name_data(), out.payload_data()));
        let (Some(out), Some((from, before))) = (found, from) else {
            return self.provided.give(buf);
        };
        let payload = &out.payload_data()[before..];
        let whole = payload.len();
        let told = ControlMessages::of(out.control_data());
        let each = told.run_bytes.unwrap_or(whole).max(1);
        let waited = told.waited(today);
        let is_plenty = 4 * self.provided.available() >= self.landings;
        if whole <= each && is_plenty {
            let (lane, at, bytes, is_marked) = (0, PACKET_AT + before, whole, false);
            return arrived.push(ReceivedPacket { lane, from, buf, at, bytes, is_marked, waited });
        }
        for packet in payload.chunks(each) {
            // Without a buffer, or too large for one, it counts as lost on the way.
            let Some(mut buf) = self.spares.pop_if(|buf| packet.len() <= buf.capacity()) else {
                break;
            };
            buf.prefix_mut(packet.len()).copy_from_slice(packet);
            let (lane, at, bytes, is_marked) = (0, 0, packet.len(), false);
            arrived.push(ReceivedPacket { lane, from, buf, at, bytes, is_marked, waited });
        }
        self.provided.give(buf);
    }

    /// Processes the completion of a send. Packets of a failed send count as lost.
    fn sent(&mut self, place: usize, result: i32) -> Option<i32> {
        let mut block = self.flying[place].take().expect("a send was in flight");
        if result == -libc::EIO && block.count > 1 && std::mem::take(&mut self.cuts) {
            tracing::warn!("a network card cannot cut runs of packets apart: each is sent alone");
        }
        block.clear();
        self.free.push(block);
        (result == -libc::ECONNREFUSED).then_some(libc::ECONNREFUSED)
    }

    /// Sends the run to which packets were added.
    fn flush(&mut self) {
        let Some(mut block) = self.open.take() else { return };
        let message = block.message(self.kind);
        let place = self.flying.iter().position(Option::is_none).expect("as many as blocks");
        self.flying[place] = Some(block);
        let fd = types::Fd(self.socket.as_raw_fd());
        let entry = opcode::SendMsg::new(fd, message).build();
        // SAFETY: the block is boxed and stays in `flying` until the completion; `drop` leaks it.
        unsafe { self.ring.push(self.owner, place as u64 + 1, entry) };
    }
}

impl Lane for SocketLane {
    fn poll(&mut self, _now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.drain(self.owner, &mut completions);
        let (mut refusal, mut today) = (None, None);
        for event in completions.drain(..) {
            let refused = match event.data {
                RECEIVE => self.received(event, &mut today, arrived),
                CANCEL => None,
                place => self.sent(place as usize - 1, event.result),
            };
            refusal = refusal.or(refused);
        }
        self.completions = completions;
        self.arm();
        refusal
    }

    fn give(&mut self, buf: Buf) {
        if (buf.index() as usize) < self.landings {
            self.provided.give(buf);
        } else {
            self.spares.push(buf);
        }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        let mut parts = parts.peekable();
        let course = parts.peek().copied().and_then(datagram::course);
        if self.open.as_ref().is_some_and(|open| !open.takes(to, course, bytes, self.cuts)) {
            self.flush();
        }
        let open = self.open.get_or_insert_with(|| self.free.pop().expect("there is room"));
        match (self.kind, to) {
            (SocketKind::Ethernet { port, .. }, PeerAddress::Ethernet { port: receiver, .. }) => {
                open.append((to, &ether::ports(receiver, port)), None, bytes, parts);
            }
            _ => open.append((to, &[]), course, bytes, parts),
        }
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Nobody needs to hear that nobody heard.
        let _ = match (self.kind, to) {
            (SocketKind::Udp { is_connected: false }, PeerAddress::Internet(to)) => {
                rustix::net::sendto(&self.socket, packet, flags, &to)
            }
            (
                SocketKind::Ethernet { index, port },
                PeerAddress::Ethernet { mac, port: receiver },
            ) => {
                let frame = [&ether::ports(receiver, port)[..], packet].concat();
                return ether::send(&self.socket, index, mac, &frame);
            }
            _ => rustix::net::send(&self.socket, packet, flags),
        };
    }

    fn kick(&mut self) {
        self.flush();
        self.arm();
    }

    fn renew(&mut self, to: PeerAddress) {
        if let PeerAddress::Internet(server) = to
            && self.kind == (SocketKind::Udp { is_connected: true })
            && let Err(error) = datagram::reconnect(&self.socket, server)
        {
            tracing::debug!(%error, "cannot look for the way to the server anew");
        }
    }

    fn has_work(&self) -> bool {
        let starts = self.receive == MultishotState::Idle && self.provided.available() > 0;
        starts || self.ring.has_events(self.owner)
    }
}

impl Drop for SocketLane {
    /// Leaks the memory that the kernel may still read.
    fn drop(&mut self) {
        for block in self.flying.iter_mut().filter_map(Option::take) {
            Box::leak(block);
        }
    }
}

/// Returns the sender's address and the offset of the packet in `payload`. `name` is the socket
/// address that the kernel wrote. Returns `None` for a multicast sender, or if the address or the
/// frame's port numbers are truncated.
fn peer_address(name: &[u8], payload: &[u8]) -> Option<(PeerAddress, usize)> {
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    if i32::from(family) != libc::AF_PACKET {
        return Some((PeerAddress::Internet(address(name)?), 0));
    }
    let at = std::mem::offset_of!(libc::sockaddr_ll, sll_addr);
    let mac = Mac(name.get(at..at + 6)?.try_into().ok()?);
    let is_of_one = !mac.is_of_many();
    is_of_one.then_some((PeerAddress::Ethernet { mac, port: ether::sender(payload)? }, PORTS))
}

/// Parses the IPv4 or IPv6 socket address that the kernel wrote.
fn address(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(name.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => {
            let scope = u32::from_ne_bytes(name.get(24..28)?.try_into().ok()?);
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(name.get(8..24)?).ok()?);
            return Some(std::net::SocketAddrV6::new(ip, port, 0, scope).into());
        }
        _ => return None,
    };
    Some((ip, port).into())
}

/// The longest time in the socket that is credible: the wall clock may have jumped.
const WAITED_MAX: Duration = Duration::from_secs(1);

/// The bytes of a control message's header, and the alignment of the next control message.
const CONTROL_HEAD: usize = size_of::<libc::cmsghdr>();
const CONTROL_ALIGN: usize = size_of::<usize>();

/// The kernel's control messages about received packets.
#[derive(Default)]
struct ControlMessages {
    /// The size of each packet of a run in bytes, if there are several.
    run_bytes: Option<usize>,
    /// The time of day at which the kernel received the packet, or the last one of a run.
    came: Option<Duration>,
}

impl ControlMessages {
    fn of(mut control: &[u8]) -> ControlMessages {
        let mut told = ControlMessages::default();
        while let Some((head, rest)) = control.split_at_checked(CONTROL_HEAD) {
            let word = |at: usize| {
                i32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let bytes = (word(0) as usize).saturating_sub(CONTROL_HEAD);
            let Some(data) = rest.get(..bytes).filter(|data| !data.is_empty()) else { break };
            match (word(8), word(12)) {
                (libc::SOL_UDP, libc::UDP_GRO) => told.run_bytes = run_bytes(data),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => told.came = time_of_day(data),
                _ => {}
            }
            control = rest.get(bytes.next_multiple_of(CONTROL_ALIGN)..).unwrap_or_default();
        }
        told
    }

    /// Returns the time for which the packet waited in the socket until `today`, the time of day;
    /// zero if the kernel has not said it, or the time of day has jumped.
    fn waited(&self, today: Duration) -> Duration {
        let waited = self.came.and_then(|came| today.checked_sub(came));
        waited.filter(|waited| *waited <= WAITED_MAX).unwrap_or_default()
    }
}

fn run_bytes(data: &[u8]) -> Option<usize> {
    let bytes = i32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
    usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

fn time_of_day(data: &[u8]) -> Option<Duration> {
    let word = |at: usize| data.get(at..at + 8).and_then(|word| word.try_into().ok());
    let (seconds, nanos) = (i64::from_ne_bytes(word(0)?), i64::from_ne_bytes(word(8)?));
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reactor, Ring};

    #[test]
    fn the_kernel_tells_runs_and_times() {
        let head = |bytes: usize, level: i32, kind: i32| {
            [&bytes.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes()].concat()
        };
        let run = [head(20, libc::SOL_UDP, libc::UDP_GRO), 1200_i32.to_ne_bytes().into()].concat();
        let times = [7_i64.to_ne_bytes(), 500_i64.to_ne_bytes()].concat();
        let time = [head(32, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), times].concat();
        let both = [time.clone(), run.clone()].concat();
        let today = Duration::new(7, 800);
        for (control, run_bytes, waited) in [
            (&both[..], Some(1200), 300),
            (&run, Some(1200), 0),
            (&time, None, 300),
            (&time[..20], None, 0),
            (&[], None, 0),
        ] {
            let told = ControlMessages::of(control);
            assert_eq!(told.run_bytes, run_bytes);
            assert_eq!(told.waited(today), Duration::from_nanos(waited));
        }
        let told = ControlMessages::of(&time);
        assert_eq!(told.waited(Duration::new(6, 0)), Duration::ZERO, "the time of day jumped back");
        assert_eq!(told.waited(Duration::new(70, 0)), Duration::ZERO, "or forward");
    }

    #[test]
    fn packets_that_are_held_leave_buffers_for_others() {
        let ring = Ring::new().unwrap();
        let socket = Arc::new(datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        let server: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let sizes = LaneSizes { landings: 8, spares: 16, blocks: 4, packet_bytes: 1200 };
        let kind = SocketKind::Udp { is_connected: false };
        let mut lane = SocketLane::new(&ring, 0, (socket, kind), sizes).unwrap();
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut held = Vec::new();
        for n in 0..16 {
            peer.send_to(&[n; 100], server).unwrap();
            for _ in 0..10_000 {
                lane.poll(Instant::ZERO, &mut held);
                lane.kick();
                if held.len() > usize::from(n) {
                    break;
                }
                ring.enter(Some(Some(std::time::Duration::from_millis(1))));
            }
            let last = held.last().expect("it arrives");
            assert_eq!((held.len(), last.buf.bytes()[last.at]), (usize::from(n) + 1, n));
        }
        held.into_iter().for_each(|arrived| lane.give(arrived.buf));
    }
}
