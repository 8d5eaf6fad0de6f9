//! The newer process: receives the predecessor's connections, then serves in its place.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use contract::{
    Instant, ListenerId, MigratingConnection, MigratingPayload, RestorableSession, Session, Ticket,
    WorkerMessage,
};
use dataplane::AnySession;
use io::{Listener, Process, TlsPolicy};
use proto::nvme::{ExportedController, HeldCommands, PortId};
use proto::nvme_tcp::{ControllerSession, WorkerFabric};
use proto::takeover::{TakeoverKind, controller, decode, parcels, put_tickets, tickets};
use worker::{FenceName, HeldHellos, NameReservation};

use super::anew::{ends, start_anew};
use super::event::Event;
use super::hand_over::HandOver;
use super::hand_over_parts::HandOverParts;
use super::inventory::{FinalReport, HoldingRecord};
use super::notify;
use super::retained::RetainedSockets;
use super::step::{AFTERMATH, PREPARE_MAX, step, step_with};
use super::talk::{ChannelEnd, HandOverChannel, Message, unexpected};
use crate::log;

/// The longest time that a connection waits for room on its way to a worker. It tries again after
/// each [`PLACE_PAUSE`].
const PLACE_MAX: Duration = Duration::from_secs(5);
const PLACE_PAUSE: Duration = Duration::from_millis(1);

/// The reason for refusing a connection when there is no room for it.
const NO_ROOM: &str = "there is no room for more connections (limits.connections)";

/// The reason that a connection without TLS is refused.
const WANTS_TLS: &str = "its listener requires TLS now, which the connection is without";

/// The number of times that a connection is offered to workers before it is given up.
const OFFERS_MAX: usize = 100;

/// The last message of this process to the predecessor, which shows that this process was not
/// killed.
const FAREWELL: &str = "the new process has everything";

/// The longest plausible travel time of a message, in nanoseconds. A longer one shows that the
/// clocks of the two processes cannot be compared.
const WAY_NANOS_MAX: u64 = 10_000_000_000;

/// The sender by which the code that waits to serve gets the result of the take-over's first part.
pub(super) type ReadySender = Sender<Result<(), String>>;

/// Checks that the session expects the rest of the payload that the connection reports as begun,
/// since the rest will be received into that buffer. Also checks that the connection's requests are
/// those of the session.
fn check_payload(parcel: &MigratingConnection, session: &AnySession) -> Result<(), String> {
    let expected = match session {
        AnySession::Reflex(session) => session.expects(),
        AnySession::NvmeTcp(session) => session.expects(),
        AnySession::Nbd(session) => session.expects(),
    };
    let left = expected.map_or(0, |expected| expected.bytes);
    let begun = parcel.requests.last().and_then(|request| match &request.payload {
        MigratingPayload::Begun(bytes) => Some(request.command.payload_bytes() - bytes.len()),
        MigratingPayload::Whole(_) => None,
    });
    let waits = parcel.waiting.as_ref().map(|request| request.payload_bytes);
    if begun.or(waits).is_some_and(|bytes| bytes != left) {
        return Err("its payload is not what its session expects".to_owned());
    }
    let begun = parcel.requests.iter().map(|request| request.tag);
    let waiting = parcel.waiting.iter().chain(parcel.put_off.iter().map(|(request, _)| request));
    let is_answered = match session {
        AnySession::Reflex(_) | AnySession::Nbd(_) => true,
        AnySession::NvmeTcp(session) => session.answers(begun.chain(waiting.map(|one| one.tag))),
    };
    if is_answered { Ok(()) } else { Err("its requests are not its session's".to_owned()) }
}

/// A connection that the predecessor has offered and still owns, with its socket and a guard that
/// reserves the client's name of the connection.
pub(super) type OfferedConnection = (Box<MigratingConnection>, OwnedFd, Option<NameReservation>);

/// A connection of the predecessor that this process owns and that is on its way to a worker.
pub(super) struct ArrivingConnection {
    /// A guard that keeps the name of the client's connection until the connection has landed at a
    /// worker.
    _adopted: Option<NameReservation>,
    offers: usize,
}

/// The predecessor's state when it stops taking part in the take-over.
enum PredecessorEnd {
    /// The predecessor runs no more requests.
    Rest,
    /// The predecessor ended without a report.
    Gone,
}

/// The newer process during a take-over.
pub(super) struct TakeOver<'a> {
    pub(super) grounds: std::sync::Arc<HandOverParts>,
    pub(super) hand_over: &'a mut HandOver,
    pub(super) talk: HandOverChannel,
    pub(super) owner: Process,
    pub(super) listeners: HashMap<u16, ListenerId>,
    pub(super) modes: HashMap<ListenerId, u32>,
    /// The indices of devices in this process, by their indices in the predecessor.
    pub(super) places: HashMap<usize, usize>,
    /// Sockets of the predecessor that this process does not use. Their files are removed when this
    /// process serves.
    pub(super) unwanted: Vec<Listener>,
    /// The connections that the predecessor has shown and still owns, by ticket.
    pub(super) shown: HashMap<u64, OfferedConnection>,
    /// The NVMe controllers among the shown connections: identifier and tickets, by the first
    /// ticket.
    pub(super) controllers: HashMap<u64, (u16, Vec<u64>)>,
    pub(super) landing: HashMap<Ticket, ArrivingConnection>,
    pub(super) pauses: Vec<Duration>,
    pub(super) began: Instant,
    /// The time without service: from the predecessor's report that it has stopped until the
    /// successor served.
    pub(super) took: Duration,
    /// `true` once this process serves instead of the predecessor.
    pub(super) serves: bool,
    /// The number of connections that stayed with the predecessor; `None` once that number was
    /// logged.
    pub(super) left: Option<usize>,
}

impl TakeOver<'_> {
    /// Runs the take-over. `told` receives the result of its first part: the process serves, or it
    /// never will and ends.
    pub(super) fn go(&mut self, told: &ReadySender) -> Result<(), String> {
        let fences = &self.grounds.shared.fences;
        fences.hold_hellos(HeldHellos::All);
        fences.hold_exclusives(true);
        // It may end hosts' controllers, and lose their connections, with writes at the devices.
        fences.hold_groups(true);
        self.hold(HeldCommands::Connects);
        step("successor", "prepare");
        let still = match self.await_still() {
            // Its requests were not stopped: what it has left is to be cleared up as after a crash.
            Err(ChannelEnd::Ended) if self.is_alone() => {
                let retained = RetainedSockets::of(&self.grounds);
                let never = start_anew("the old process was killed", &retained);
                return never.map(|never| match never {});
            }
            still => still?,
        };
        self.began = self.grounds.clock.now();
        if !still.body.is_empty() {
            let held = serde_json::from_slice(&still.body)
                .map_err(|error| format!("what tenants hold is told otherwise: {error}"))?;
            self.inherit(held);
        }
        step("successor", "still");
        self.talk.report_to(self.hand_over.sender.clone(), u64::MAX)?;
        let mut is_leaving = false;
        let ended = loop {
            if self.serves && self.grounds.orders.stops() && !is_leaving {
                is_leaving = true;
                self.take_leave();
            }
            match self.hand_over.next_soon() {
                Some(Event::Heard(_, Ok(message))) => {
                    if let Some(ended) = self.take_message(message, told)? {
                        break ended;
                    }
                }
                Some(Event::Heard(_, Err(over))) if self.serves => {
                    tracing::warn!(%over, "the old process does not answer any more");
                    break PredecessorEnd::Gone;
                }
                // Nobody else serves: all is ours.
                Some(Event::Heard(_, Err(ChannelEnd::Ended))) if self.is_alone() => {
                    break PredecessorEnd::Gone;
                }
                Some(Event::Heard(_, Err(over))) => return Err(over.into()),
                _ => {}
            }
            self.take_mail();
            if let Some(left) = self.left.take_if(|_| self.landing.is_empty()) {
                self.tell(left);
            }
        };
        self.shown.clear();
        for (_, (cntlid, _)) in self.controllers.drain() {
            self.grounds.live.fabric().iter().for_each(|fabric| fabric.cancel_import(cntlid));
        }
        self.end(&ended, told);
        self.take_leave();
        Ok(())
    }

    /// Reports that this process is ready, and waits until the predecessor has stopped taking
    /// requests.
    fn await_still(&self) -> Result<Message, ChannelEnd> {
        self.talk.say(TakeoverKind::Ready, &[])?;
        self.talk.set_patience(PREPARE_MAX).map_err(ChannelEnd::Nonsense)?;
        step("successor", "ready");
        loop {
            let message = self.talk.hear()?;
            match message.kind {
                TakeoverKind::Volume => self.receive_volume(message)?,
                TakeoverKind::Still if self.awaits_volumes() => {
                    return Err(ChannelEnd::Nonsense(
                        "the state of a volume did not come".to_owned(),
                    ));
                }
                TakeoverKind::Still => return Ok(message),
                _ => return Err(unexpected(&message)),
            }
        }
    }

    /// Takes the state of a volume, which this process serves once everything is its own.
    fn receive_volume(&self, mut message: Message) -> Result<(), ChannelEnd> {
        let nonsense = |why: &str| ChannelEnd::Nonsense(why.to_owned());
        let place = self.places.get(&(message.ticket as usize));
        let volume = place.and_then(|place| self.grounds.places.get(*place));
        let volume = volume.ok_or_else(|| nonsense("a volume came of an unknown device"))?;
        let memory = message.files.pop().ok_or_else(|| nonsense("a volume came without state"))?;
        let state = io::SharedMemory::bytes_of(&memory).map_err(|e| nonsense(&e.to_string()))?;
        volume.receive(&state).map_err(ChannelEnd::Nonsense)
    }

    fn awaits_volumes(&self) -> bool {
        self.grounds.places.all().iter().any(|disk| disk.volume.is_awaited())
    }

    /// Tells the predecessor that an end of this process from now on is a normal exit and not a
    /// crash.
    fn take_leave(&self) {
        let _ = self.talk.say(TakeoverKind::Stop, FAREWELL.as_bytes()); // it may have ended
    }

    /// Returns true if the predecessor, whose link is closed, ends. A predecessor that lives on has
    /// taken back everything that it had not handed over.
    fn is_alone(&self) -> bool {
        ends(&self.owner)
    }

    fn take_message(
        &mut self,
        message: Message,
        told: &ReadySender,
    ) -> Result<Option<PredecessorEnd>, String> {
        match message.kind {
            TakeoverKind::Parcels if !self.serves => self.look_at_all(message)?,
            TakeoverKind::Fabric if !self.serves => {
                // The last listener of NVMe may have been removed; what is to be kept of it is in
                // the state file.
                if let Some(fabric) = self.grounds.live.fabric() {
                    fabric.import_reservations(&message.body).map_err(|unfit| unfit.to_string())?;
                }
            }
            TakeoverKind::Controller if !self.serves => self.look_at_controller(message)?,
            TakeoverKind::Yours => {
                let tickets = tickets(&message.body).map_err(|unfit| unfit.to_string())?;
                self.admit(&tickets).ok_or_else(|| unexpected(&message))?;
                for ticket in &tickets {
                    let shown = self.shown.remove(ticket);
                    let (parcel, socket, adopted) = shown.ok_or_else(|| unexpected(&message))?;
                    self.land(parcel, socket, adopted);
                }
                step_with("successor", "yours", tickets.len());
            }
            TakeoverKind::Commit if !self.serves => {
                step("successor", "commit");
                let mut left: FinalReport = serde_json::from_slice(&message.body)
                    .map_err(|error| format!("the older process leaves otherwise: {error}"))?;
                self.inherit(std::mem::take(&mut left.spent));
                let held = self.names(&left);
                // Before the older one ends, which would look like the end of the service.
                notify::ready();
                // First: the older one takes everything back from who ends without having said so.
                // One that lives and does not hear it takes everything back, too.
                if let Err(over) = self.talk.say(TakeoverKind::Committed, &[])
                    && !self.is_alone()
                {
                    return Err(over.into());
                }
                self.serve(HeldHellos::Names(held), told);
                step("successor", "committed");
                self.left = Some(left.connections);
            }
            TakeoverKind::Rest if self.serves => return Ok(Some(PredecessorEnd::Rest)),
            _ => return Err(unexpected(&message).into()),
        }
        Ok(None)
    }

    /// Gives this process's tenants the token balances and debts that they had in the predecessor.
    fn inherit(&self, held: Vec<HoldingRecord>) {
        let now = self.grounds.tenants.now();
        let mut registry = self.grounds.tenants.registry();
        for held in held.into_iter().filter_map(|held| held.here(&self.places)) {
            if !registry.inherit(&held, now) {
                tracing::warn!(
                    tenant = held.tenant,
                    "a tenant's tokens are dropped: it does not exist in this process"
                );
            }
        }
    }

    fn hold(&self, held: HeldCommands) {
        self.grounds.live.fabric().iter().for_each(|fabric| fabric.hold(held));
    }

    /// If these tickets are those of a shown controller, imports the controller, which belongs to
    /// this process from now on. Returns `None` if some of its tickets are missing, or the import
    /// fails.
    fn admit(&mut self, tickets: &[u64]) -> Option<()> {
        let Some((cntlid, all)) = tickets.first().and_then(|first| self.controllers.remove(first))
        else {
            return Some(());
        };
        let now = self.grounds.clock.now();
        let fabric = self.grounds.live.fabric()?;
        (all == tickets && fabric.import(cntlid, now)).then_some(())
    }

    /// Checks every connection of a message, and sends the predecessor the list of those that this
    /// process accepts.
    fn look_at_all(&mut self, message: Message) -> Result<(), String> {
        let parcels = parcels(&message.body).map_err(|unfit| unfit.to_string())?;
        let mut sockets = message.files.into_iter();
        let (mut room, sent_at) = (self.room(), self.sent_at(message.ticket));
        let mut taken = Vec::new();
        for (ticket, bytes) in parcels {
            let socket = sockets.next();
            let shown = match room {
                0 => Err(NO_ROOM.to_owned()),
                _ => self.look_at(bytes, socket, sent_at, |packed| AnySession::unpack(packed)),
            };
            match shown {
                Ok(shown) => {
                    self.shown.insert(ticket, shown);
                    room -= 1;
                    taken.push(ticket);
                }
                // An end shows where messages are heard.
                Err(why) => {
                    drop(self.talk.send(TakeoverKind::Refused, ticket, why.as_bytes(), &[]))
                }
            }
        }
        step_with("successor", "taken", taken.len());
        if !taken.is_empty() {
            let _ = self.talk.say(TakeoverKind::Taken, &put_tickets(&taken)); // as above
        }
        Ok(())
    }

    /// Checks a controller offered by the predecessor, and replies whether this process takes all
    /// of its connections or none.
    fn look_at_controller(&mut self, message: Message) -> Result<(), String> {
        let (bytes, parcels) = controller(&message.body).map_err(|unfit| unfit.to_string())?;
        let sent_at = self.sent_at(message.ticket);
        let first = parcels.first().ok_or("a controller without a connection")?.0;
        let sockets = message.files;
        match self.expect(bytes, &parcels, sockets, sent_at) {
            Ok((cntlid, shown)) => {
                let tickets: Vec<u64> = parcels.iter().map(|(ticket, _)| *ticket).collect();
                self.shown.extend(tickets.iter().copied().zip(shown));
                let taken = put_tickets(&tickets);
                self.controllers.insert(first, (cntlid, tickets));
                step_with("successor", "controller", parcels.len());
                let _ = self.talk.say(TakeoverKind::Taken, &taken); // an end shows where messages are heard
            }
            // As above.
            Err(why) => drop(self.talk.send(TakeoverKind::Refused, first, why.as_bytes(), &[])),
        }
        Ok(())
    }

    /// Prepares the import of a controller with its connections.
    fn expect(
        &self,
        bytes: &[u8],
        parcels: &[(u64, &[u8])],
        sockets: Vec<OwnedFd>,
        sent_at: Instant,
    ) -> Result<(u16, Vec<OfferedConnection>), String> {
        let fabric = self.grounds.live.fabric().ok_or("no listener speaks NVMe/TCP")?;
        let mut exported =
            ExportedController::decode(bytes, sent_at).map_err(|unfit| unfit.to_string())?;
        let cntlid = exported.cntlid();
        let listener = self.listeners.get(&exported.port_mut().0);
        let port = PortId(listener.ok_or("its listener is not known")?.place());
        *exported.port_mut() = port;
        if exported.queues() != parcels.len() {
            return Err("some of its connections are missing".to_owned());
        }
        if self.room() < parcels.len() {
            return Err(NO_ROOM.to_owned());
        }
        let numbers = fabric.prepare_import(exported).map_err(|unwelcome| unwelcome.to_string())?;
        let desk = Rc::new(WorkerFabric::new(fabric.clone(), 0));
        let mut sockets = sockets.into_iter();
        let mut shown = Vec::new();
        for ((_, bytes), number) in parcels.iter().zip(numbers.into_values()) {
            let unpack = |packed: &mut Vec<u8>| {
                let desk = Rc::clone(&desk);
                let (session, own) =
                    ControllerSession::from_other_process(desk, packed, number, port)?;
                *packed = own;
                Some(AnySession::NvmeTcp(session))
            };
            match self.look_at(bytes, sockets.next(), sent_at, unpack) {
                Ok(one) => shown.push(one),
                Err(why) => {
                    fabric.cancel_import(cntlid);
                    return Err(why);
                }
            }
        }
        Ok((cntlid, shown))
    }

    /// Returns the number of further connections that there is room for.
    fn room(&self) -> usize {
        let connections: usize = self.grounds.spread.connections().iter().sum();
        self.grounds.connections_max.saturating_sub(connections + self.shown.len())
    }

    /// Converts the time at which a message was sent to this process's clock.
    fn sent_at(&self, machine_nanos: u64) -> Instant {
        let now = self.grounds.clock.now();
        let way = self.grounds.clock.machine_nanos().saturating_sub(machine_nanos);
        Instant::from_nanos(now.as_nanos().saturating_sub(way.min(WAY_NANOS_MAX)))
    }

    /// Creates a connection from the bytes that the predecessor has shown, unless they are invalid.
    /// `unpack` finds the session in the bytes and makes it a session of this process.
    fn look_at(
        &self,
        bytes: &[u8],
        socket: Option<OwnedFd>,
        sent_at: Instant,
        unpack: impl FnOnce(&mut Vec<u8>) -> Option<AnySession>,
    ) -> Result<OfferedConnection, String> {
        let grounds = &self.grounds;
        let hand_over = grounds.spread.hand_over_number() as u16;
        let mut parcel = {
            let registry = grounds.tenants.registry();
            let decoded = decode(bytes, hand_over, sent_at, |name| registry.member(name));
            Box::new(decoded.map_err(|unfit| unfit.to_string())?)
        };
        let session = unpack(&mut parcel.session).ok_or("its session makes no sense")?;
        check_payload(&parcel, &session)?;
        let listener = self.listeners.get(&parcel.listener.place());
        parcel.listener = *listener.ok_or("its listener is not known")?;
        if self.requires_tls(parcel.listener) {
            return Err(WANTS_TLS.to_owned());
        }
        for request in &mut parcel.requests {
            let place = self.places.get(&usize::from(request.device));
            let place = place.ok_or("it has a request for a device that is not there")?;
            request.device = *place as u8;
        }
        let socket = socket.ok_or("its socket did not come along (ulimit -n)")?;
        let mut adopted = None;
        if let Some(place) = &mut parcel.place {
            let (own, kept) = grounds.shared.fences.adopt(*place);
            (*place, adopted) = (own, Some(kept));
        }
        Ok((parcel, socket, adopted))
    }

    /// Returns `true` if a listener of this process requires TLS, which no connection from another
    /// process has.
    fn requires_tls(&self, id: ListenerId) -> bool {
        let listeners = self.grounds.listeners.lock().expect("nobody panics");
        let mut tls = listeners.iter().filter(|(one, _)| *one == id).filter_map(|(_, l)| l.tls());
        tls.any(|tls| tls.policy() == TlsPolicy::Required)
    }

    /// Sends a connection that this process owns to a worker.
    fn land(
        &mut self,
        mut parcel: Box<MigratingConnection>,
        socket: OwnedFd,
        adopted: Option<NameReservation>,
    ) {
        let Some((ticket, worker)) = self.find_place(socket) else {
            tracing::warn!(peer = %parcel.peer, "too many connections arrive at once: it ends");
            return self.lose(&parcel);
        };
        parcel.ticket = ticket;
        self.landing.insert(ticket, ArrivingConnection { _adopted: adopted, offers: 1 });
        self.hand_over.post(worker, WorkerMessage::Arrive(parcel));
    }

    fn take_mail(&mut self) {
        while let Some(tell) = self.hand_over.mail() {
            match tell {
                WorkerMessage::Landed { ticket, pause, .. } => {
                    self.landing.remove(&ticket);
                    self.pauses.push(pause);
                }
                WorkerMessage::Returned(parcel) => self.offer_again(parcel),
                WorkerMessage::Arrive(parcel) => self.hand_over.give_back(parcel),
                _ => {}
            }
        }
    }

    /// Offers a connection to the next worker, because the previous one had no room.
    fn offer_again(&mut self, parcel: Box<MigratingConnection>) {
        let workers = self.grounds.wakers.len();
        let Some(landing) = self.landing.get_mut(&parcel.ticket) else { return };
        landing.offers += 1;
        let offers = landing.offers;
        if offers > OFFERS_MAX {
            tracing::warn!(peer = %parcel.peer, "no worker has room for a connection: it ends");
            self.landing.remove(&parcel.ticket);
            self.lose(&parcel);
            return self.grounds.spread.discard(parcel.ticket);
        }
        self.hand_over.post(offers % workers, WorkerMessage::Arrive(parcel));
    }

    /// Reserves room for a connection's socket on the way to a worker. Waits if too many
    /// connections are on their way. Returns `None` if there is no room in time.
    fn find_place(&self, mut socket: OwnedFd) -> Option<(Ticket, usize)> {
        let until = self.grounds.clock.now() + PLACE_MAX;
        loop {
            match self.grounds.spread.land(socket) {
                Ok(landed) => return Some(landed),
                Err(_) if self.grounds.clock.now() >= until => return None,
                Err(back) => socket = back,
            }
            std::thread::sleep(PLACE_PAUSE);
        }
    }

    /// Removes the queue of a connection that no worker takes from its NVMe controller, if the
    /// connection belongs to one.
    fn lose(&self, parcel: &MigratingConnection) {
        if let Some(fabric) = self.grounds.live.fabric()
            && let Some(number) = ControllerSession::number(&parcel.session)
        {
            fabric.drop_queue(number);
        }
    }

    /// Returns the names of clients' connections that are still open in the predecessor.
    fn names(&self, left: &FinalReport) -> std::collections::HashSet<FenceName> {
        let registry = self.grounds.tenants.registry();
        let name = |(tenant, client, connection): &(String, String, u32)| {
            let client = u128::from_str_radix(client, 16).ok()?;
            Some((registry.find(tenant)?, client, *connection))
        };
        left.names.iter().filter_map(name).collect()
    }

    /// Begins to serve: everything belongs to this process now, except what the predecessor keeps.
    fn serve(&mut self, hold: HeldHellos, told: &ReadySender) {
        let grounds = &self.grounds;
        grounds.places.all().iter().for_each(|disk| disk.volume.go_on());
        grounds.wakers.iter().for_each(io::Waker::wake);
        grounds.give_away(false);
        self.unwanted.drain(..).for_each(|listener| listener.keep().give_away(false));
        grounds.shared.fences.hold_hellos(hold);
        let listeners = std::mem::take(&mut *grounds.listeners.lock().expect("nobody panics"));
        for (id, listener) in &listeners {
            if let Some(Err(error)) = self.modes.get(id).map(|mode| listener.set_mode(*mode)) {
                tracing::warn!(%error, "a socket keeps its permissions");
            }
        }
        self.hold(HeldCommands::Reservations);
        grounds.live.set_older(true);
        grounds.orders.listen(listeners, &grounds.wakers);
        grounds.hold_apis(false);
        self.grounds.live.fabric().iter().for_each(|fabric| fabric.store_imported_reservations());
        self.serves = true;
        self.took = grounds.clock.now() - self.began;
        let _ = told.send(Ok(())); // the process may be ending already
    }

    fn tell(&mut self, left: usize) {
        self.pauses.sort();
        let count = self.pauses.len();
        let us = |n: usize| {
            let pause = self.pauses.get((count * n / 100).min(count.saturating_sub(1)));
            pause.map_or(0, |pause| pause.as_micros())
        };
        log::tell(format!(
            "took over {} connections in {} ms (half of them paused for at most {} µs, 99 of \
             100 for {} µs, the longest for {} µs); {left} end with the older process",
            count,
            self.took.as_millis(),
            us(50),
            us(99),
            us(100),
        ));
    }

    /// Ends the take-over, once the predecessor can no longer interfere.
    fn end(&mut self, ended: &PredecessorEnd, told: &ReadySender) {
        if !self.serves {
            log::tell("the old process ended early; this process takes over everything".to_owned());
            notify::ready();
            self.serve(HeldHellos::All, told);
        }
        if let PredecessorEnd::Gone = ended {
            let mut until = self.grounds.clock.now() + AFTERMATH;
            while self.grounds.clock.now() < until {
                if !self.owner.has_ended() {
                    until = self.grounds.clock.now() + AFTERMATH;
                }
                let _ = self.hand_over.next_soon();
                self.take_mail();
            }
        }
        while !self.landing.is_empty() {
            let _ = self.hand_over.next_soon();
            self.take_mail();
        }
        if let Some(left) = self.left.take() {
            self.tell(left);
        }
        let fences = &self.grounds.shared.fences;
        fences.hold_exclusives(false);
        fences.hold_groups(false);
        fences.hold_hellos(HeldHellos::Nobody);
        self.hold(HeldCommands::Nothing);
        self.grounds.live.set_older(false);
        self.grounds.live.keep_disks();
        self.grounds.wakers.iter().for_each(io::Waker::wake);
        step("successor", "rest");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Command, NamespaceId, NamespaceView, Peer, Range, Request};
    use proto::reflex::ServerSession;

    fn parcel(waiting: Option<Request>) -> MigratingConnection {
        MigratingConnection {
            from: 0,
            ticket: Ticket(0),
            peer: Peer::Local { uid: 0 },
            listener: ListenerId(0),
            view: NamespaceView::new(NamespaceId(1), 0),
            session: Vec::new(),
            grant: None,
            entered: None,
            handles: Vec::new(),
            place: None,
            requests: Vec::new(),
            waiting,
            discards: false,
            put_off: Vec::new(),
            unparsed: Vec::new(),
            paused_at: Instant::ZERO,
        }
    }

    /// Tests that a payload is refused that would be received where it has no room.
    #[test]
    fn a_payload_that_the_session_does_not_expect_is_refused() {
        assert!(AnySession::unpack(b"x").is_none());
        let session = AnySession::Reflex(ServerSession::new());
        assert!(check_payload(&parcel(None), &session).is_ok());
        let command = Command::Write { range: Range::new(0, 8), fua: false };
        let request = Request::plain(1, command);
        assert!(check_payload(&parcel(Some(request)), &session).is_err());
    }
}
