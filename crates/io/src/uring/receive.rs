//! Receives over the ring: multishot into provided buffers, and bounded receives directly into a
//! buffer of the caller (docs/adr/0010-direct-receives.md).
//!
//! A receive into provided buffers takes all bytes there are, so a payload would be received before
//! its head was parsed. Hence, while payloads are received directly, each receive is bounded: it
//! takes the rest of a payload and a few bytes behind it, or only a few bytes. When no payload
//! comes for some receives, provided buffers are used again.

// UNSAFETY: entries point into blocks and buffers that connections keep until their completion.
#![allow(unsafe_code)]

use std::collections::VecDeque;

use contract::{Buf, CloseReason, NetEvent};
use io_uring::{cqueue, opcode, squeue, types};

use super::conn::{ReceiveKind, RingConnState};
use super::direct::{DirectReceive, LOOKS, carve_looks};
use super::operation::{Operation, cancel};
use super::provided::ProvidedBuffers;
use crate::endpoint::hang_up_reason;
use crate::sockets::{ConnectionPhase, LOOK_BYTES, PATIENCE, ReceiveFlow, ReceiveTarget};
use crate::{Error, Owner, Ring, RingEvent, SocketsConfig};

/// The table of a worker's connections over io_uring.
pub(super) type RingConnTable = crate::sockets::ConnTable<RingConnState>;

/// The number of the receives' group of provided buffers.
const GROUP: u16 = 0;

/// Number of vectors for bounded receives that are allocated at start: enough unless many peers
/// send payloads at the same time.
const DIRECTS: usize = 64;

/// The receives of a worker's sockets.
pub(super) struct Receiver {
    ring: Ring,
    provided: ProvidedBuffers,
    receive_buffers: usize,
    /// Vectors that no bounded receive uses. More are allocated when more connections receive in
    /// this way than ever before, at most one for each connection.
    #[allow(clippy::vec_box, reason = "the boxes themselves go to connections and come back")]
    directs: Vec<Box<DirectReceive>>,
    /// Small buffers of bounded receives that are neither in use nor lent.
    looks: Vec<Buf>,
    /// Indices of connections that wait for receive buffers, in order of arrival.
    starved: VecDeque<u32>,
    /// Indices of connections that receive no more in this turn, because they have received as many
    /// bytes as they may read ahead.
    resting: Vec<u32>,
}

impl Receiver {
    pub(super) fn new(ring: &Ring, config: &SocketsConfig) -> Result<Receiver, Error> {
        let (bytes, count) = (config.receive_buffer_bytes, config.receive_buffers);
        Ok(Receiver {
            ring: ring.clone(),
            provided: ProvidedBuffers::register(ring, GROUP, bytes, count)?,
            receive_buffers: count,
            directs: (0..DIRECTS).map(|_| DirectReceive::new()).collect(),
            looks: carve_looks(count)?,
            starved: VecDeque::new(),
            resting: Vec::with_capacity(DIRECTS),
        })
    }

    /// Takes back a lent receive buffer, a provided or a small one.
    pub(super) fn give(&mut self, buf: Buf) {
        if (buf.index() as usize) < self.receive_buffers {
            self.provided.give(buf);
        } else {
            assert!(self.looks.len() < LOOKS, "a receive buffer was returned twice");
            self.looks.push(buf);
        }
    }

    /// Starts a receive into provided buffers, if the connection is read and no receive of it is in
    /// flight. The receive is bounded while the connection's patience lasts: it takes a few bytes
    /// into one buffer, which the kernel chooses when bytes come, so that silent peers hold none.
    pub(super) fn start(&mut self, table: &mut RingConnTable, index: u32) {
        let conn = &mut table[index];
        let is_read = conn.is_read();
        let place = &mut conn.kernel;
        if place.receiving != ReceiveKind::Idle || place.is_starved || !is_read {
            return;
        }
        let fd = types::Fixed(index);
        let entry = if place.patience > 0 {
            place.receiving = ReceiveKind::Little;
            let few = opcode::Recv::new(fd, std::ptr::null_mut(), LOOK_BYTES as u32);
            few.buf_group(GROUP).build().flags(squeue::Flags::BUFFER_SELECT)
        } else {
            place.receiving = ReceiveKind::Armed;
            opcode::RecvMulti::new(fd, GROUP).build()
        };
        // SAFETY: the entry points to nothing; the kernel receives into the provided buffers.
        unsafe { self.push(table, index, entry) };
    }

    /// Starts a bounded receive at the end of the turn.
    pub(super) fn start_bounded(&mut self, table: &mut RingConnTable, index: u32) {
        table[index].kernel.patience = 1;
        self.rest(table, index);
    }

    /// Queues the entry of a receive for the ring.
    ///
    /// # Safety
    /// The memory to which the entry points must stay as [`Ring::push`] demands.
    unsafe fn push(&self, table: &RingConnTable, index: u32, entry: squeue::Entry) {
        let data = Operation::Receive.data(index, table[index].generation);
        // SAFETY: the caller promised what the entry needs.
        unsafe { self.ring.push(Owner::SOCKETS, data, entry) };
    }

    /// Stops receiving on a paused or stilled connection. A paused connection is watched for its
    /// end, a stilled one is not.
    pub(super) fn stop(&mut self, table: &mut RingConnTable, index: u32, was_read: bool) {
        let conn = &mut table[index];
        if was_read && conn.kernel.receiving != ReceiveKind::Idle {
            cancel(&self.ring, Operation::Receive, index, conn.generation);
        }
        match conn.flow {
            ReceiveFlow::Stilled if conn.kernel.is_watched => {
                cancel(&self.ring, Operation::Watch, index, conn.generation);
            }
            ReceiveFlow::Stilled => {}
            ReceiveFlow::Reading | ReceiveFlow::Paused => self.watch(table, index),
        }
    }

    /// Makes the kernel watch for the end of a connection that is not received from.
    fn watch(&mut self, table: &mut RingConnTable, index: u32) {
        let conn = &mut table[index];
        if !conn.is_live() || std::mem::replace(&mut conn.kernel.is_watched, true) {
            return;
        }
        let data = Operation::Watch.data(index, conn.generation);
        let events = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let entry = opcode::PollAdd::new(types::Fixed(index), events as u32).build();
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(Owner::SOCKETS, data, entry) };
    }

    /// Handles the completion of a watch. Returns the reason if the connection has ended. While the
    /// connection is received from, the receive reports its end.
    pub(super) fn hung_up(
        &mut self,
        table: &mut RingConnTable,
        index: u32,
        event: RingEvent,
    ) -> Option<CloseReason> {
        let conn = &mut table[index];
        conn.kernel.is_watched = false;
        match conn.flow {
            _ if !conn.is_live() => {}
            ReceiveFlow::Paused | ReceiveFlow::Stilled if event.result > 0 => {
                return Some(hang_up_reason(conn.socket()));
            }
            // The connection was to move, and stays, and was paused before the watch had ended.
            ReceiveFlow::Paused if event.result == -libc::ECANCELED => self.watch(table, index),
            _ => {}
        }
        None
    }

    /// Processes the completion of a receive. Returns the reason if the connection has ended.
    pub(super) fn received(
        &mut self,
        table: &mut RingConnTable,
        index: u32,
        event: RingEvent,
    ) -> Option<CloseReason> {
        let conn = &mut table[index];
        if conn.kernel.direct.is_some() {
            return self.received_bounded(table, index, event);
        }
        let was_bounded = conn.kernel.receiving == ReceiveKind::Little;
        if !cqueue::more(event.flags) {
            conn.kernel.receiving = ReceiveKind::Idle;
        }
        if was_bounded {
            conn.kernel.lose_patience(event.result);
        }
        if let Some(number) = cqueue::buffer_select(event.flags) {
            let buf = self.provided.take(number);
            if event.result > 0 && conn.phase == ConnectionPhase::Open {
                let (spent, ended) = table.received(index, buf, event.result as usize);
                if let Some(buf) = spent {
                    self.provided.give(buf);
                }
                if ended.is_some() {
                    return ended;
                }
            } else {
                self.provided.give(buf);
            }
        }
        let ended = end_of(event.result);
        if ended.is_none() {
            if event.result == -libc::ENOBUFS {
                self.starve(table, index);
            }
            match was_bounded {
                true => self.rest(table, index),
                false => self.start(table, index),
            }
        }
        ended
    }

    /// Queues the connection for receive buffers, of which there are none. An
    /// [`end_turn`](Receiver::end_turn) that finds some ends the wait.
    fn starve(&mut self, table: &mut RingConnTable, index: u32) {
        self.provided.ran_dry();
        if !std::mem::replace(&mut table[index].kernel.is_starved, true) {
            self.starved.push_back(index);
        }
    }

    /// Starts receives on connections whose bounded receives have ended, and on those that wait for
    /// buffers.
    pub(super) fn end_turn(&mut self, table: &mut RingConnTable) {
        self.receive_rested(table);
        self.receive_starved(table);
    }

    /// Starts receives on the connections that have waited longest: as many as there are buffers,
    /// since a receive without a buffer would fail at a cost. A connection that is paused or closed
    /// by now leaves the line.
    fn receive_starved(&mut self, table: &mut RingConnTable) {
        let mut receives = self.provided.available();
        while receives > 0 {
            let Some(index) = self.starved.pop_front() else { break };
            table[index].kernel.is_starved = false;
            let was_idle = table[index].kernel.receiving == ReceiveKind::Idle;
            self.start(table, index);
            let receives_now = table[index].kernel.receiving != ReceiveKind::Idle;
            receives -= usize::from(was_idle && receives_now);
        }
    }

    /// Makes the connection's next bytes arrive in `target`, as soon as the receive in flight has
    /// ended. Returns the buffer if another one is expected to be filled.
    pub(super) fn receive_into(
        &mut self,
        table: &mut RingConnTable,
        index: u32,
        target: ReceiveTarget,
    ) -> Result<(), Buf> {
        let conn = &mut table[index];
        let place = &mut conn.kernel;
        if place.direct.as_ref().is_some_and(|direct| direct.target.is_some()) {
            return Err(target.buf);
        }
        let direct = place.direct.take().or_else(|| self.directs.pop());
        let mut direct = direct.unwrap_or_else(DirectReceive::new);
        direct.target = Some(target);
        place.direct = Some(direct);
        match place.receiving {
            ReceiveKind::Idle => self.receive_directly(table, index),
            _ => cancel(&self.ring, Operation::Receive, index, conn.generation),
        }
        Ok(())
    }

    /// Starts a receive into the payload's buffer, with a few bytes behind it.
    fn receive_directly(&mut self, table: &mut RingConnTable, index: u32) {
        let look = self.looks.pop();
        let place = &mut table[index].kernel;
        let direct = place.direct.as_mut().expect("the caller looked");
        direct.look = look;
        let target = direct.target.as_mut().expect("the caller looked");
        debug_assert!(place.receiving == ReceiveKind::Idle && target.came == 0);
        place.receiving = ReceiveKind::Direct;
        let bytes = &mut target.buf.prefix_mut(target.until)[target.at..];
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        let fd = types::Fixed(index);
        let entry = match direct.look {
            None => opcode::Recv::new(fd, start, len as u32).build(),
            Some(_) => opcode::RecvMsg::new(fd, direct.message(start, len)).build(),
        };
        // SAFETY: header and vector are boxed and kept, with both buffers, in `direct` until the
        // receive's completion.
        unsafe { self.push(table, index, entry) };
    }

    /// Processes a completion while the connection has the memory of a bounded receive. Returns the
    /// reason if the connection has ended.
    fn received_bounded(
        &mut self,
        table: &mut RingConnTable,
        index: u32,
        event: RingEvent,
    ) -> Option<CloseReason> {
        let place = &mut table[index].kernel;
        let was = place.receiving;
        if !cqueue::more(event.flags) {
            place.receiving = ReceiveKind::Idle;
        }
        if was == ReceiveKind::Little {
            place.lose_patience(event.result);
        }
        let came = event.result.max(0) as usize;
        match was {
            ReceiveKind::Direct => self.filled(table, index, came),
            _ => {
                if let Some(number) = cqueue::buffer_select(event.flags) {
                    let buf = self.provided.take(number);
                    self.divert(table, index, buf, came);
                }
            }
        }
        let ended = end_of(event.result);
        match ended {
            None => self.go_on_bounded(table, index),
            Some(_) if table[index].kernel.receiving == ReceiveKind::Idle => {
                self.release_direct(table, index);
            }
            Some(_) => {}
        }
        ended
    }

    /// Adds the events for `came` bytes of a direct receive: those in the payload's buffer, and
    /// those behind them.
    fn filled(&mut self, table: &mut RingConnTable, index: u32, came: usize) {
        let id = table.id(index);
        let conn = &mut table[index];
        let is_open = conn.phase == ConnectionPhase::Open;
        let direct = conn.kernel.direct.as_mut().expect("it was in flight");
        let target = direct.target.take().expect("it was in flight");
        let look = direct.look.take();
        let len = came.min(target.until - target.at);
        if len > 0 {
            conn.kernel.patience = PATIENCE;
        }
        table.events.push(target.filled(id, len));
        match look {
            Some(buf) if came > len && is_open => {
                table.events.push(NetEvent::Received { conn: id, buf, len: came - len });
            }
            Some(buf) => self.looks.push(buf),
            None => {}
        }
    }

    /// Handles bytes that came by another receive than a direct one. Bytes of the expected payload
    /// are copied into its buffer; the others become an event.
    fn divert(&mut self, table: &mut RingConnTable, index: u32, mut buf: Buf, len: usize) {
        let id = table.id(index);
        let conn = &mut table[index];
        if conn.phase != ConnectionPhase::Open || len == 0 {
            return self.give(buf);
        }
        let place = &mut conn.kernel;
        let direct = place.direct.as_mut().expect("the caller looked");
        let mut taken = 0;
        if let Some(target) = &mut direct.target {
            let from = target.at + target.came;
            taken = len.min(target.until - from);
            let room = &mut target.buf.prefix_mut(target.until)[from..];
            room[..taken].copy_from_slice(&buf.bytes()[..taken]);
            target.came += taken;
            if let Some(whole) = direct.target.take_if(|t| t.at + t.came == t.until) {
                let came = whole.came;
                place.patience = PATIENCE;
                table.events.push(whole.filled(id, came));
            }
        }
        if taken == len {
            return self.give(buf);
        }
        if taken > 0 {
            buf.bytes_mut().copy_within(taken..len, 0);
        }
        table.events.push(NetEvent::Received { conn: id, buf, len: len - taken });
    }

    /// Continues after a bounded receive that did not end the connection.
    fn go_on_bounded(&mut self, table: &mut RingConnTable, index: u32) {
        let conn = &mut table[index];
        let place = &mut conn.kernel;
        if place.receiving != ReceiveKind::Idle {
            return; // more follows
        }
        let direct = place.direct.as_ref().expect("a bounded receive has ended");
        let is_expected = direct.target.as_ref().is_some_and(|target| target.came == 0);
        if conn.phase == ConnectionPhase::Open && conn.flow == ReceiveFlow::Reading && is_expected {
            return self.receive_directly(table, index);
        }
        self.release_direct(table, index);
        if !matches!(table[index].phase, ConnectionPhase::Closing(_)) {
            self.rest(table, index);
        }
    }

    /// Pauses a connection's receives until the end of the turn, when it is known whether a payload
    /// comes next.
    fn rest(&mut self, table: &mut RingConnTable, index: u32) {
        if !std::mem::replace(&mut table[index].kernel.is_resting, true) {
            self.resting.push(index);
        }
    }

    /// Returns the connection's payload buffer by an event, with the bytes that have come. No
    /// receive of it may be in flight.
    fn release_direct(&mut self, table: &mut RingConnTable, index: u32) {
        let id = table.id(index);
        let mut direct = table[index].kernel.direct.take().expect("the caller looked");
        if let Some(target) = direct.target.take() {
            let came = target.came;
            table.events.push(target.filled(id, came));
        }
        self.directs.push(direct);
    }

    /// Starts receives on connections whose bounded receives have ended and for which no payload is
    /// expected.
    fn receive_rested(&mut self, table: &mut RingConnTable) {
        while let Some(index) = self.resting.pop() {
            table[index].kernel.is_resting = false;
            self.start(table, index);
        }
    }
}

/// Returns the reason if a receive with this result ends the connection; `None` if it goes on.
fn end_of(result: i32) -> Option<CloseReason> {
    match result {
        0 => Some(CloseReason::Peer),
        n if n > 0 => None,
        n => match -n {
            libc::ENOBUFS | libc::ECANCELED | libc::EINTR => None,
            errno => Some(CloseReason::Reset(errno)),
        },
    }
}
