//! The engine of a worker: requests on their way from admission through the schedulers and devices
//! to their end.
//!
//! Deliberately not here: bytes (`reader.rs` parses them), and how connections introduce
//! themselves, move and are told to end.

use std::sync::Arc;

use contract::{
    Buf, Command, Completion, ConnId, Device, EndCause, IoKind, LARGE_REQUEST_BYTES, Namespace,
    NamespaceId, QueueFull, Range, Request, Rights, Scheduler, Session, Slot, StartOutcome, Status,
    Submission, TenantId, Transport, TurnPart,
};

use crate::Namespaces;
use crate::connections::{ConnectionStage, STREAMS};
use crate::frontend::{Frontend, NextStep};
use crate::lanes::Lanes;
use crate::namespaces::verdict;
use crate::requests::{Payment, RequestPlacement};

/// The connections of a worker together with its devices.
#[derive(Debug)]
pub(crate) struct Engine<T, D, S, P> {
    pub(crate) front: Frontend<T, P>,
    pub(crate) lanes: Lanes<D, S>,
    /// The worker's table of namespaces.
    pub(crate) namespaces: Namespaces,
    /// The number of the last namespace change whose effect is not complete, because the device may
    /// still run requests that the change forbids; `None` if there is none.
    changing: Option<u64>,
    completions: Vec<Completion>,
}

/// The outcome of an attempt to submit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubmitOutcome {
    /// The request was submitted to its device, or it has ended.
    Done,
    /// The request waits for its fence, for another process of the server, or for tokens.
    Held,
    /// No buffer is free for the request.
    NoBuffer,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session> Engine<T, D, S, P> {
    /// Creates an engine from connections and devices.
    pub(crate) fn new(front: Frontend<T, P>, lanes: Lanes<D, S>, namespaces: Namespaces) -> Self {
        let completions = Vec::with_capacity(1024);
        Engine { front, lanes, namespaces, changing: None, completions }
    }

    /// Checks a request, and returns its namespace, its device, its first block on the device, and
    /// the tenant that is charged.
    ///
    /// # Errors
    /// Fails with the status to refuse the request with, if its connection may not make it.
    #[inline(always)]
    pub(crate) fn judge(
        &self,
        id: ConnId,
        request: &Request,
        charged: Result<TenantId, Status>,
    ) -> Result<RequestPlacement, Status> {
        let conn = self.front.conns.peek(id);
        if !request.verdict.is_ok() {
            return Err(request.verdict);
        }
        let tenant = charged?;
        if usize::from(request.stream) >= STREAMS {
            return Err(Status::Invalid);
        }
        let number = request.namespace.unwrap_or(conn.view.namespace);
        let namespace = self.namespaces.find_for(number, &conn.view);
        let namespace = namespace.ok_or(Status::NoNamespace)?;
        let grant = conn.membership.grant.as_ref().ok_or(Status::Denied)?;
        let rights = grant.rights(number);
        // Most requests are reads.
        let lba = match request.command {
            Command::Read(_) if !rights.read => return Err(Status::Denied),
            Command::Read(range) if range.bytes() > self.front.requests.largest() => {
                return Err(Status::BadLength);
            }
            Command::Read(range) => namespace.translate(range).ok_or(Status::OutOfRange)?,
            other => self.judge_other(namespace, rights, other)?,
        };
        Ok(RequestPlacement { namespace: number, device: namespace.device as u8, lba, tenant })
    }

    /// Returns the first block on the device of a request other than a read, or the status to
    /// refuse it with.
    #[inline(never)]
    fn judge_other(
        &self,
        namespace: &Namespace,
        rights: Rights,
        command: Command,
    ) -> Result<u64, Status> {
        let geometry = self.lanes.peek(namespace.device).geometry();
        match command.kind() {
            // Its outcome tells what is stored.
            _ if matches!(command, Command::CompareAndWrite(_)) && !rights.read => {
                return Err(Status::Denied);
            }
            IoKind::Read if !rights.read => return Err(Status::Denied),
            IoKind::Write if !rights.write => return Err(Status::Denied),
            IoKind::Write if namespace.read_only || geometry.read_only => {
                return Err(Status::ReadOnly);
            }
            _ if !rights.read && !rights.write => return Err(Status::Denied),
            _ => {}
        }
        if command.buffer_bytes() > self.front.requests.largest() {
            return Err(Status::BadLength);
        }
        // Its pages are the device's, not the namespace's, and no protocol carries it.
        if let Command::Commit { .. } = command {
            return Err(Status::Unsupported);
        }
        if let Command::WriteAtomic(range) = command {
            match geometry.atomic_blocks_max {
                0 => return Err(Status::Unsupported),
                most if range.blocks > most => return Err(Status::AtomicTooLarge),
                _ => {}
            }
        }
        let Some(range) = command.range() else { return Ok(0) };
        namespace.translate(range).ok_or(Status::OutOfRange)
    }

    /// Starts a request whose payload is complete, or holds it behind a barrier of its stream.
    pub(crate) fn start(&mut self, id: ConnId, slot: Slot) {
        let Frontend { conns, requests, .. } = &mut self.front;
        let entry = requests.get(slot);
        let (stream, command) = (usize::from(entry.stream), entry.command);
        let (tenant, device) = (entry.tenant, usize::from(entry.device));
        let order = &mut conns.get(id).streams[stream];
        match command {
            _ if !order.held.is_empty() => order.held.push(requests.table(), slot),
            Command::Barrier if order.running > 0 => order.held.push(requests.table(), slot),
            Command::Barrier => self.front.answer_unstarted(slot, Status::Ok),
            _ => {
                order.running += 1;
                let part = self.front.limits.part_of(command);
                if self.lanes.get(device).enqueue(tenant, part, slot).is_err() {
                    self.end(slot, Status::Retry, None);
                }
            }
        }
    }

    /// Hands a request to its device's scheduler.
    ///
    /// # Errors
    /// Fails if the scheduler takes no more requests of the tenant.
    // Where this is called, the entry was just looked at: to look again would be a quarter of it.
    pub(crate) fn enqueue(&mut self, slot: Slot) -> Result<(), QueueFull> {
        let Frontend { requests, limits, .. } = &mut self.front;
        let entry = requests.get(slot);
        let part = limits.part_of(entry.command);
        self.lanes.get(usize::from(entry.device)).enqueue(entry.tenant, part, slot)
    }

    /// Submits the requests that the schedulers release, while the devices have room.
    pub(crate) fn dispatch(&mut self) {
        let due = self.front.gauges.clock.marked_at();
        for n in 0..self.lanes.len() {
            self.dispatch_to(n);
        }
        let Frontend { gauges, requests, now, .. } = &mut self.front;
        gauges.clock.mark(TurnPart::Scheduling);
        if gauges.clock.is_tracing() {
            gauges.clock.trace_submitted(*now, due, requests.table());
        }
    }

    /// Submits the requests that one scheduler releases. Reads that waited for buffers go first,
    /// and reads that find a buffer overtake those that do not.
    fn dispatch_to(&mut self, n: usize) {
        let lane = self.lanes.get(n);
        if !lane.begin_round(self.front.now) {
            return;
        }
        let room = lane.room();
        let mut left = room;
        for _ in 0..lane.fenced.len().min(room) {
            let slot = self.lanes.get(n).fenced.pop_front().expect("it was just counted");
            // Those that are held still go to the end, and keep their order.
            match self.submit(n, slot, false) {
                SubmitOutcome::Done => left -= 1,
                SubmitOutcome::Held => {}
                SubmitOutcome::NoBuffer => self.park(n, slot),
            }
        }
        if self.lanes.get(n).parked.tenants() > 0 {
            self.dispatch_parked(n, &mut left);
        }
        while left > 0 {
            let lane = self.lanes.get(n);
            let is_first = lane.parked.tenants() == 0;
            let Some(slot) = lane.next() else { break };
            if self.submit(n, slot, is_first) == SubmitOutcome::NoBuffer {
                self.park(n, slot);
            } else {
                left -= 1;
            }
        }
        if left < room {
            self.front.progressed = true;
            self.lanes.get(n).kick(self.front.now);
        }
    }

    /// Makes a read wait for a buffer. A tenant that yields to promises gets its tokens back, and
    /// pays once it has the buffer. Else reads that have paid long ago would go to the device at
    /// once when buffers come back, and a promised read would wait behind them.
    fn park(&mut self, n: usize, slot: Slot) {
        let entry = self.front.requests.get(slot);
        if self.lanes.peek(n).scheduler().yields(entry.tenant) {
            self.refund(n, slot);
            self.front.requests.get(slot).payment = Payment::Refunded;
        }
        self.lanes.get(n).parked.push(self.front.requests.table(), slot);
    }

    /// Queues a refunded read in the scheduler again, now that it has a buffer.
    fn queue_again(&mut self, slot: Slot, buf: Buf) -> SubmitOutcome {
        let entry = self.front.requests.get(slot);
        (entry.buf, entry.payment) = (Some(buf), Payment::Paid);
        if self.enqueue(slot).is_ok() {
            return SubmitOutcome::Held;
        }
        let entry = self.front.requests.get(slot);
        entry.payment = Payment::Refunded;
        let buf = entry.buf.take();
        self.front.give_back(buf);
        SubmitOutcome::NoBuffer
    }

    /// Submits parked reads, or queues them again, until no tenant's first read finds a buffer.
    fn dispatch_parked(&mut self, n: usize, left: &mut usize) {
        let mut without = 0;
        while *left > 0 && without < self.lanes.get(n).parked.tenants() {
            let taken = self.lanes.get(n).parked.take(self.front.requests.table());
            let slot = taken.expect("a tenant has one");
            if self.submit(n, slot, without == 0) == SubmitOutcome::NoBuffer {
                self.lanes.get(n).parked.push_first(self.front.requests.table(), slot);
                without += 1;
            } else {
                *left -= 1;
            }
        }
    }

    /// Submits a request to its device. Only the `first` request in the device's order may use the
    /// spare buffer.
    fn submit(&mut self, n: usize, slot: Slot, first: bool) -> SubmitOutcome {
        let Frontend { conns, requests, limits, now, .. } = &mut self.front;
        let (entry, buffers, quotas) = requests.get_with_buffers(slot);
        if !entry.verdict.is_ok() {
            let verdict = entry.verdict;
            return self.withhold(n, slot, verdict);
        }
        if conns.look(entry.conn).is_none() {
            self.refund(n, slot);
            self.front.forget(slot);
            return SubmitOutcome::Done;
        }
        let now = *now;
        let (command, buf, bytes) = match entry.command {
            // Most requests are reads; for them this is all.
            Command::Read(range) => {
                let (tenant, bytes) = (entry.tenant, range.bytes());
                let yields = || self.lanes.peek(n).scheduler().yields(tenant);
                let taken = match entry.buf.take() {
                    None => buffers.take_for_read(quotas, (tenant, bytes), first, yields),
                    own => own,
                };
                let Some(buf) = taken else {
                    self.front.is_short |= buffers.is_dry(bytes);
                    return SubmitOutcome::NoBuffer;
                };
                if entry.payment == Payment::Refunded {
                    return self.queue_again(slot, buf);
                }
                entry.submitted_at = Some(now);
                (Command::Read(Range { lba: entry.lba, ..range }), Some(buf), bytes)
            }
            other => {
                let command = limits.part_of(other).with_lba(entry.lba);
                if command.kind() == IoKind::Write
                    && let Err(outcome) = self.may_change(n, slot, command)
                {
                    return outcome;
                }
                let entry = self.front.requests.get(slot);
                entry.submitted_at = Some(now);
                (command, entry.buf.take(), command.work_bytes())
            }
        };
        if bytes > LARGE_REQUEST_BYTES {
            self.begin_large(n, slot, command);
        }
        self.lanes.get(n).submit(now, Submission { slot, command, buf });
        SubmitOutcome::Done
    }

    /// Has a large request counted that goes to its device, if its tenant yields to promises.
    #[inline(never)]
    fn begin_large(&mut self, n: usize, slot: Slot, command: Command) {
        let entry = self.front.requests.get(slot);
        if self.lanes.peek(n).scheduler().yields(entry.tenant) {
            entry.payment = Payment::Large;
            self.lanes.get(n).begin_large(command);
        }
    }

    /// Counts a data-changing request in its fence, if it may go to its device now.
    ///
    /// # Errors
    /// Fails with the request's outcome if the request must wait or was answered.
    fn may_change(&mut self, n: usize, slot: Slot, command: Command) -> Result<(), SubmitOutcome> {
        let Frontend { conns, requests, shared, .. } = &mut self.front;
        let entry = requests.get(slot);
        let conn = conns.get(entry.conn);
        let fences = &shared.fences;
        if fences.holds_writes() {
            let is_grouped = conn.fence.as_ref().is_some_and(|fence| fence.may_be_elsewhere());
            let excludes = fences.holds_exclusives() && self.lanes.peek(n).excludes(command);
            if excludes || is_grouped && fences.holds_groups() {
                return Err(self.hold_back(n, slot));
            }
        }
        let Some(fence) = &conn.fence else { return Ok(()) };
        let mut epoch = conn.session.allowed_as_of(entry.tag);
        let mut start = fence.start(n, epoch);
        if start == StartOutcome::Stale {
            match conn.session.allow_again(entry.tag) {
                Ok(now) => (epoch, start) = (now, fence.start(n, now)),
                Err(status) => {
                    entry.verdict = status;
                    return Err(self.withhold(n, slot, status));
                }
            }
        }
        match start {
            StartOutcome::Started => {
                entry.fence = Some((fence.clone(), epoch));
                Ok(())
            }
            StartOutcome::Held | StartOutcome::Stale => {
                self.lanes.get(n).fenced.push_back(slot);
                Err(SubmitOutcome::Held)
            }
            StartOutcome::Superseded => Err(self.supersede(n, slot)),
        }
    }

    /// Holds a request back because of requests that another process may have at the devices. A
    /// draining worker answers it with `Retry` instead, since the other process may wait for this
    /// one to end.
    fn hold_back(&mut self, n: usize, slot: Slot) -> SubmitOutcome {
        if self.front.is_draining() {
            return self.withhold(n, slot, Status::Retry);
        }
        self.lanes.get(n).fenced.push_back(slot);
        SubmitOutcome::Held
    }

    /// Ends a request that may not start, because a newer connection of the same client has
    /// replaced the request's connection.
    fn supersede(&mut self, n: usize, slot: Slot) -> SubmitOutcome {
        let id = self.front.requests.get(slot).conn;
        let outcome = self.withhold(n, slot, Status::Retry);
        // A session that gave the fence ends the connection itself.
        if self.front.conns.find(id).is_some_and(|conn| conn.place.is_some()) {
            self.front.disconnect(id, EndCause::Superseded, "its client has a newer connection");
        }
        outcome
    }

    /// Answers a request that the scheduler has released but that must not go to a device.
    fn withhold(&mut self, n: usize, slot: Slot, status: Status) -> SubmitOutcome {
        self.refund(n, slot);
        self.end(slot, status, None);
        SubmitOutcome::Done
    }

    /// Refunds the tokens of a request that goes to no device, or to the device later.
    fn refund(&mut self, n: usize, slot: Slot) {
        let entry = self.front.requests.get(slot);
        if entry.payment != Payment::Refunded {
            self.lanes.get(n).refund(self.front.limits.part_of(entry.command));
        }
    }

    /// Answers the requests that the devices have completed.
    pub(crate) fn complete(&mut self) {
        let polled = self.front.gauges.clock.marked_at();
        let mut completions = std::mem::take(&mut self.completions);
        let front = &mut self.front;
        for lane in self.lanes.iter_mut() {
            lane.poll(front.now, &mut completions, &mut front.requests, &front.limits);
        }
        if !completions.is_empty() {
            self.front.progressed = true;
            self.front.sample(polled, &completions);
        }
        for completion in completions.drain(..) {
            if !completion.status.is_ok() {
                let device = self.front.requests.get(completion.slot).device;
                self.front.gauges.count_device_error(device, completion.status);
            }
            self.end(completion.slot, completion.status, completion.buf);
        }
        self.completions = completions;
        self.front.gauges.clock.mark(TurnPart::Protocol);
    }

    /// Ends a request that was started: answers it, and starts the requests that waited for its
    /// end.
    pub(crate) fn end(&mut self, slot: Slot, status: Status, buf: Option<Buf>) {
        match self.front.answer_started(slot, status, buf) {
            NextStep::Nothing => {}
            NextStep::Held(id, stream) => self.release_held(id, stream),
            NextStep::Part => {
                if self.enqueue(slot).is_err() {
                    self.end(slot, Status::Retry, None);
                }
            }
        }
    }

    /// Starts the requests that waited behind a barrier of the stream, up to the next barrier.
    pub(crate) fn release_held(&mut self, id: ConnId, stream: usize) {
        loop {
            let Frontend { conns, requests, .. } = &mut self.front;
            let Some(conn) = conns.find(id) else { return };
            let order = &mut conn.streams[stream];
            let Some(front) = order.held.front() else { return };
            if conn.life == ConnectionStage::Leaving {
                return;
            }
            let is_barrier = requests.get(front).command == Command::Barrier;
            if is_barrier && order.running > 0 {
                return;
            }
            order.held.pop(requests.table());
            if is_barrier {
                self.front.answer_unstarted(front, Status::Ok);
            } else {
                order.running += 1;
                if self.enqueue(front).is_err() {
                    // All that waited may be refused: the next is this loop's, not a deeper call's.
                    let _still_waited_for = self.front.answer_started(front, Status::Retry, None);
                }
            }
        }
    }

    /// Drops requests that wait for tokens once the worker drains and their connections are gone:
    /// tokens could take long to come, and no client waits for the replies.
    pub(crate) fn discard_unwanted(&mut self) {
        if !self.front.is_draining() || self.front.conns.open() > 0 {
            return;
        }
        for lane in self.lanes.iter_mut() {
            while let Some(slot) = lane.scheduler_mut().discard() {
                self.front.forget(slot);
            }
        }
    }
}

/// Changes of namespaces.
impl<T: Transport, D: Device, S: Scheduler, P: Session> Engine<T, D, S, P> {
    /// Replaces a namespace in the worker's table, or removes it if `namespace` is `None`. Requests
    /// in flight that it no longer allows get the status of their refusal. `change` is the number
    /// under which the change is [reported](Engine::settle_namespaces).
    pub(crate) fn change_namespace(
        &mut self,
        change: u64,
        number: NamespaceId,
        namespace: Option<Namespace>,
        name: Arc<str>,
    ) {
        self.namespaces.set(number, namespace, name);
        if namespace.is_none() {
            self.follow_removals();
        }
        let Frontend { requests, gauges, .. } = &mut self.front;
        if let (Some(meter), Some(namespace)) = (gauges.meters().know_namespace(number), namespace)
        {
            meter.set_device(namespace.device);
        }
        for entry in requests.iter_mut().filter(|entry| entry.namespace == number) {
            if entry.verdict.is_ok() {
                entry.verdict = verdict(entry, namespace.as_ref());
            }
        }
        self.changing = Some(change);
    }

    /// Records that sessions which track namespace removals themselves have learned of all removals
    /// so far.
    pub(crate) fn follow_removals(&mut self) {
        let conns = &mut self.front.conns;
        for place in 0..conns.places() {
            let Some(id) = conns.at(place).map(|conn| conn.id) else { continue };
            conns.get(id).follow(self.namespaces.removals());
        }
    }

    /// Reports that the last namespace change is complete, once no device runs a request that the
    /// change forbids. After a change, every turn scans the requests in flight until then.
    pub(crate) fn settle_namespaces(&mut self) {
        let Some(change) = self.changing else { return };
        let mut entries = self.front.requests.iter();
        if !entries.any(|entry| !entry.verdict.is_ok() && entry.submitted_at.is_some()) {
            self.front.gauges.meters().set_placed(change);
            self.changing = None;
        }
    }
}
