//! The connections that leave for the successor: each is shown, taken by the successor, and given
//! with one message, or stays.

mod controllers;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::{ConnId, Instant, MigratingConnection, Peer, WorkerMessage};
use control::HANDED_AT_ONCE;
use io::WaitingSocket;
use proto::takeover::{TakeoverKind, encode, put_parcel, put_tickets, tickets};

use super::event::Event;
use super::hand_over::HandOver;
use super::hand_over_parts::HandOverParts;
use super::knock;
use super::step::{STEP_MAX, step_with};
use super::talk::{ChannelEnd, HandOverChannel, Message, unexpected};
use controllers::Controllers;

/// The time limit for handing over connections, as long as some still move. Connections that are
/// not quiet by then stay. It begins when requests that exclude others are held back, and leaves
/// controllers a part of [`HELD_MAX`].
const GIVING_MAX: Duration = Duration::from_secs(10);

/// The time after which no further connections and controllers are asked to leave, from when
/// requests that exclude others are held back. Hosts give a request up after 30 s.
const HELD_MAX: Duration = Duration::from_secs(15);

/// The pause without a connection after which the thread checks whether more can move.
const LULL: Duration = Duration::from_millis(5);

/// Maximum bytes of one message with connections, unless the first connection alone has more.
const BATCH_BYTES: usize = 1 << 20;

/// The time without success after which busy connections are no longer asked to move. Connections
/// that stay will end, so a busy machine gets this much time.
const UNMOVED_MAX: Duration = Duration::from_secs(4);

/// The connections that are being moved from this process's workers to the successor.
pub(super) struct Departures<'a> {
    pub(super) hand_over: &'a mut HandOver,
    pub(super) grounds: Arc<HandOverParts>,
    pub(super) talk: HandOverChannel,
    /// The number of this conversation with a successor. An event with another number belongs to an
    /// earlier conversation.
    number: u64,
    /// The connections that were shown to the successor and still belong to this process, by
    /// ticket.
    shown: HashMap<u64, (Box<MigratingConnection>, WaitingSocket)>,
    /// NVMe controllers, whose connections go together.
    controllers: Controllers,
    given: usize,
    kept: usize,
    /// The peers of connections that the successor has refused for good.
    refused: HashSet<Peer>,
    /// The time at which the last connection came from a worker or was handed over.
    moved_at: Instant,
}

impl<'a> Departures<'a> {
    /// Creates the state of connections that leave for the process at the other end of `talk`; none
    /// is leaving yet.
    pub(super) fn new(hand_over: &'a mut HandOver, talk: HandOverChannel) -> Departures<'a> {
        static TALKS: AtomicU64 = AtomicU64::new(0);
        let grounds = hand_over.grounds();
        Departures {
            moved_at: grounds.clock.now(),
            hand_over,
            grounds,
            talk,
            number: TALKS.fetch_add(1, Ordering::Relaxed),
            shown: HashMap::new(),
            controllers: Controllers::default(),
            given: 0,
            kept: 0,
            refused: HashSet::new(),
        }
    }

    /// Returns the number of connections that were handed over to the successor.
    pub(super) fn given(&self) -> usize {
        self.given
    }

    /// Returns the number of connections that stay with this process.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Receives the successor's messages as events from now on.
    pub(super) fn report(&self) -> Result<(), String> {
        self.talk.report_to(self.hand_over.sender.clone(), self.number)
    }

    /// Returns the next event of this take-over, or `None` if no event comes within a short wait.
    pub(super) fn next_soon(&mut self) -> Option<Event> {
        match self.hand_over.next_soon() {
            Some(Event::Heard(number, _)) if number != self.number => None,
            event => event,
        }
    }

    /// Hands over to the successor every connection that can move, within a time limit that starts
    /// at `began`.
    pub(super) fn give_connections(&mut self, began: Instant) -> Result<(), String> {
        let grounds = self.grounds.clone();
        self.moved_at = grounds.clock.now();
        grounds.commands.hand_over(HANDED_AT_ONCE);
        let (mut given_before, mut given_at) = (0, self.moved_at);
        loop {
            match self.hand_over.next_soon() {
                Some(event) => self.take_event(event)?,
                None => self.take_mail()?,
            }
            let now = grounds.clock.now();
            let stops = grounds.orders.stops();
            if stops && self.given == 0 {
                return Err("this server was told to stop".to_owned());
            }
            // To go back would end what has been given.
            let is_late = stops || now.since(began) >= GIVING_MAX;
            if !grounds.spread.has_any() {
                grounds.commands.hand_over(0);
                // Those over packets, which no other process can have.
                self.kept = grounds.commands.connection_count();
                return Ok(());
            }
            let is_quiet = self.shown.is_empty() && now.since(self.moved_at) >= LULL;
            let goes_on = is_quiet || is_late && self.shown.is_empty();
            if !goes_on {
                if now.since(self.moved_at) >= STEP_MAX {
                    return Err("the new process does not accept the connections".to_owned());
                }
                continue;
            }
            let left = self.movable();
            if self.given > given_before {
                (given_before, given_at) = (self.given, now);
            }
            if left == 0 || is_late || now.since(given_at) >= UNMOVED_MAX {
                grounds.commands.hand_over(0);
                return self.settle();
            }
            // Those that were not quiet in time, and those that have come meanwhile.
            grounds.commands.hand_over(HANDED_AT_ONCE);
            self.moved_at = now;
        }
    }

    /// Returns the number of connections that could still move, without those that the successor
    /// has refused. If a worker does not answer, all count.
    fn movable(&mut self) -> usize {
        let Ok(connections) = self.grounds.commands.connections() else {
            return self.grounds.commands.connection_count();
        };
        let could = connections.iter().map(|connection| &connection.listed);
        could.filter(|one| one.can_leave && !self.refused.contains(&one.peer)).count()
    }

    /// Notes that a connection stays for good. Those through Unix sockets have no names to know
    /// them by.
    fn note_refused(&mut self, peer: Peer) {
        if peer.address().is_some() {
            self.refused.insert(peer);
        }
    }

    /// Waits until no connection is on its way to the successor any more, and counts those that
    /// stay.
    fn settle(&mut self) -> Result<(), String> {
        let mut lull = 0;
        while lull < 5 || !self.shown.is_empty() {
            match self.hand_over.next_soon() {
                Some(event) => self.take_event(event)?,
                None => self.take_mail()?,
            }
            let is_calm = self.grounds.clock.now().since(self.moved_at) >= LULL;
            lull = if is_calm { lull + 1 } else { 0 };
            if self.grounds.clock.now().since(self.moved_at) >= STEP_MAX {
                return Err("the new process does not accept the connections".to_owned());
            }
        }
        self.kept = self.grounds.commands.connection_count();
        Ok(())
    }

    fn take_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Mail => self.take_mail(),
            Event::Knock(stream) => {
                knock::refuse(stream, "another process is taking over already");
                Ok(())
            }
            Event::Heard(number, _) if number != self.number => Ok(()),
            Event::Heard(_, Ok(message)) => self.take_message(&message),
            Event::Heard(_, Err(over)) => Err(over.to_string()),
        }
    }

    fn take_mail(&mut self) -> Result<(), String> {
        loop {
            let (mut parcels, mut queues) = (Vec::new(), Vec::new());
            while parcels.len() + queues.len() < io::DESCRIPTORS_MAX
                && let Some(tell) = self.hand_over.mail()
            {
                let WorkerMessage::Arrive(parcel) = tell else { continue };
                match controllers::number(&parcel) {
                    Some(number) => queues.push((number, parcel)),
                    None => parcels.push(parcel),
                }
            }
            if parcels.is_empty() && queues.is_empty() {
                return Ok(());
            }
            let mut shown = self.show_all(parcels);
            for (number, parcel) in queues {
                match shown {
                    Ok(()) => shown = self.take_queue(number, parcel),
                    Err(_) => self.hand_over.give_back(parcel),
                }
            }
            shown?;
        }
    }

    /// Shows connections to the successor, which checks whether it can take them; they still belong
    /// to this process. A connection that does not fit into a message stays. After any failure,
    /// each connection is kept here or returned to its worker.
    fn show_all(
        &mut self,
        parcels: impl IntoIterator<Item = Box<MigratingConnection>>,
    ) -> Result<(), String> {
        let grounds = self.grounds.clone();
        let (now, machine_now) = (grounds.clock.now(), grounds.clock.machine_nanos());
        self.moved_at = now;
        let mut lots: Vec<(Vec<u8>, Vec<u64>)> = Vec::new();
        for parcel in parcels {
            let ticket = parcel.ticket;
            let shelved = grounds.spread.fetch(ticket, grounds.spread.hand_over_number());
            if shelved.is_bound() {
                tracing::debug!(peer = %parcel.peer, "a connection over TLS stays");
                self.take_back(parcel, shelved);
                continue;
            }
            let encoded = {
                let registry = grounds.tenants.registry();
                encode(&parcel, now, |id, epoch| registry.name_of(id, epoch).map(str::to_owned))
            };
            match encoded {
                Ok(bytes) => {
                    let fits = |(body, _): &(Vec<u8>, _)| body.len() + bytes.len() <= BATCH_BYTES;
                    if !lots.last().is_some_and(fits) {
                        lots.push(Default::default());
                    }
                    let (body, tickets) = lots.last_mut().expect("one was just seen or made");
                    put_parcel(body, ticket.0, &bytes);
                    self.shown.insert(ticket.0, (parcel, shelved));
                    tickets.push(ticket.0);
                }
                Err(unfit) => {
                    tracing::warn!(peer = %parcel.peer, %unfit, "a connection stays");
                    self.note_refused(parcel.peer);
                    self.take_back(parcel, shelved);
                }
            }
        }
        lots.iter().try_for_each(|(body, tickets)| {
            let sent = self.send_shown(TakeoverKind::Parcels, machine_now, body, tickets);
            step_with("predecessor", "parcel", tickets.len());
            sent.map_err(String::from)
        })
    }

    /// Sends a message about connections, with their sockets.
    fn send_shown(
        &self,
        kind: TakeoverKind,
        now: u64,
        body: &[u8],
        tickets: &[u64],
    ) -> Result<(), ChannelEnd> {
        let shelved = tickets.iter().map(|ticket| &self.shown[ticket].1);
        let sockets: Vec<_> = shelved.map(WaitingSocket::socket).collect();
        self.talk.send(kind, now, body, &sockets)
    }

    fn take_message(&mut self, message: &Message) -> Result<(), String> {
        self.moved_at = self.grounds.clock.now();
        match message.kind {
            TakeoverKind::Refused => {
                let why = String::from_utf8_lossy(&message.body);
                if self.keep_controller(message.ticket, &why) {
                    return Ok(());
                }
                let found = self.shown.remove(&message.ticket);
                let (parcel, shelved) = found.ok_or_else(|| unexpected(message))?;
                tracing::warn!(peer = %parcel.peer, %why, "a connection stays");
                self.note_refused(parcel.peer);
                self.take_back(parcel, shelved);
                Ok(())
            }
            TakeoverKind::Taken => {
                let tickets = tickets(&message.body).map_err(|unfit| unfit.to_string())?;
                if !tickets.iter().all(|ticket| self.shown.contains_key(ticket)) {
                    return Err(unexpected(message).into());
                }
                step_with("predecessor", "taken", tickets.len());
                let given = self.give_controller(&tickets);
                given.unwrap_or_else(|| self.give_all(&tickets)).map_err(String::from)
            }
            _ => Err(unexpected(message).into()),
        }
    }

    /// Transfers to the successor the ownership of the connections that it has accepted, by ticket.
    /// A single message makes all of them the successor's.
    fn give_all(&mut self, tickets: &[u64]) -> Result<(), ChannelEnd> {
        self.talk.say(TakeoverKind::Yours, &put_tickets(tickets))?;
        let now = self.grounds.clock.now();
        for ticket in tickets {
            let Some((parcel, shelved)) = self.shown.remove(ticket) else { continue };
            self.grounds.spread.let_go(shelved);
            let conn = ConnId { index: u32::MAX, generation: 0 };
            let pause = now - parcel.paused_at;
            let landed = WorkerMessage::Landed { ticket: parcel.ticket, conn, pause };
            self.hand_over.post(usize::from(parcel.from), landed);
            self.given += 1;
        }
        step_with("predecessor", "yours", tickets.len());
        Ok(())
    }

    /// Takes back a connection that was offered to the successor, and returns it to its worker.
    fn take_back(&mut self, parcel: Box<MigratingConnection>, shelved: WaitingSocket) {
        self.grounds.spread.shelve_again(parcel.ticket, shelved);
        self.hand_over.give_back(parcel);
    }

    /// Takes back all connections that were offered to the successor, and returns them to their
    /// workers.
    pub(super) fn take_all_back(&mut self) {
        for (_, (parcel, shelved)) in std::mem::take(&mut self.shown) {
            self.take_back(parcel, shelved);
        }
    }
}
