//! The older process: it leads, and has everything until it has said that it is the other's.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::{ConnId, Happening, Instant, Parcel, Tell};
use control::HANDED_AT_ONCE;
use io::{Link, Process, Shelved};
use proto::nvme::Held;
use proto::takeover::{Kind, encode, put_parcel, put_tickets, tickets};
use worker::Hold;

use super::gather::{self, Controllers};
use super::hand_over::{Event, HandOver};
use super::inventory::{DepartedAt, HeldAt, Hello, Left, ServerInventory, SocketAt, files, place};
use super::talk::{Message, Over, Talk, unexpected};
use super::{AFTERMATH, Grounds, PREPARE_MAX, STEP_MAX, Socket, step, step_with};
use crate::places::Disk;

/// The time limit for everything that was stopped to come to rest.
const STILL_MAX: Duration = Duration::from_secs(5);

/// The time limit for handing over connections, as long as some still move. Connections that are
/// not quiet by then stay.
const GIVING_MAX: Duration = Duration::from_secs(60);

/// The time that the successor gets to serve before this process answers operators again, and
/// refuses their changes.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The time limit for the arrival of messages that the other process sent before its end.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// Why the other process is ended.
const GIVEN_UP: &str = "the new process does not answer and was ended";

/// Without a connection for so long, it is looked whether there are more.
const LULL: Duration = Duration::from_millis(5);

/// Bytes of one message with connections, unless the first alone has more.
const BATCH_BYTES: usize = 1 << 20;

/// The time without success after which busy connections are no longer asked to move. Connections
/// that stay will end, so a busy machine gets this much time.
const UNMOVED_MAX: Duration = Duration::from_secs(1);

/// A take-over on the side of the predecessor.
pub(super) struct Predecessor<'a> {
    pub(super) hand_over: &'a mut HandOver,
    pub(super) grounds: Arc<Grounds>,
    talk: Talk,
    /// The number of this take-over.
    number: u64,
    /// The other process, once it has said hello.
    successor: Option<Process>,
    /// Connections that were shown to the other process and are ours.
    pub(super) shown: HashMap<u64, (Box<Parcel>, Shelved)>,
    /// NVMe controllers, whose connections go together.
    pub(super) controllers: Controllers,
    pub(super) given: usize,
    kept: usize,
    /// The time at which the last connection came from a worker or was handed over.
    pub(super) moved_at: Instant,
    changes: Changes,
}

/// The changes made for the take-over, which are undone if it fails.
#[derive(Default)]
struct Changes {
    is_frozen: bool,
    is_still: bool,
    is_committed: bool,
    /// The reported holdings of tenants. The tenants themselves no longer have them.
    held: Vec<control::Held>,
}

impl<'a> Predecessor<'a> {
    /// Gives everything to the process at the other end of the stream.
    ///
    /// # Errors
    /// Why not. Then all that was not given is as before.
    pub(super) fn give(hand_over: &'a mut HandOver, stream: UnixStream) -> Result<(), String> {
        static TALKS: AtomicU64 = AtomicU64::new(0);
        let failed = |_: &String| Happening::UpgradeFailed.count();
        let (grounds, talk) = (hand_over.grounds(), Self::let_in(stream).inspect_err(failed)?);
        let number = TALKS.fetch_add(1, Ordering::Relaxed);
        let moved_at = grounds.clock.now();
        let (shown, changes) = (HashMap::new(), Changes::default());
        let (successor, given, kept, controllers) = (None, 0, 0, Controllers::default());
        let mut predecessor = Predecessor {
            hand_over,
            grounds,
            talk,
            number,
            successor,
            shown,
            controllers,
            given,
            kept,
            moved_at,
            changes,
        };
        let done = predecessor.go();
        if let Err(why) = &done {
            failed(why);
            predecessor.talk.stop(why);
            predecessor.undo();
        }
        done
    }

    /// Refuses a process that asks to take over, and tells it why.
    pub(super) fn refuse(stream: UnixStream, why: &str) {
        if let Ok(talk) = Self::let_in(stream) {
            talk.stop(why);
        }
    }

    fn let_in(stream: UnixStream) -> Result<Talk, String> {
        let link = Link::new(stream);
        let (peer, own) = (link.peer_uid(), rustix::process::geteuid().as_raw());
        let talk = Talk::new(link, STEP_MAX)?;
        if std::process::id() == 1 {
            let why = "it is the first process of its container, which would end with it: restart \
                       the container instead";
            talk.stop(why);
            return Err(why.to_owned());
        }
        let peer = peer.map_err(|error| format!("cannot tell which user asks: {error}"))?;
        if peer == own {
            return Ok(talk);
        }
        let why = format!(
            "it is of user {own} and this one of user {peer}, whose files it could not open again: \
             start it as that user, or have the service manager do it (systemctl reload)"
        );
        if peer == 0 {
            talk.stop(&why);
        }
        Err(format!("user {peer} may not take over a server of user {own}"))
    }

    fn go(&mut self) -> Result<(), String> {
        let mut message = self.talk.expect(Kind::Hello)?;
        let hello: Hello = serde_json::from_slice(&message.body)
            .map_err(|error| format!("the new process says hello in other words: {error}"))?;
        let successor = message.files.pop().ok_or("the new process does not show itself")?;
        self.successor = Some(Process::passed(successor));
        tracing::info!(pid = hello.pid, version = hello.version, "a new process takes over");
        step("predecessor", "hello");
        self.show_inventory()?;
        step("predecessor", "prepare");
        self.talk.set_patience(PREPARE_MAX)?;
        self.talk.expect(Kind::Ready)?;
        self.talk.set_patience(STEP_MAX)?;
        step("predecessor", "ready");
        let began = self.grounds.clock.now();
        self.be_still()?;
        let held = self.bequeath()?;
        self.talk.say(Kind::Still, &held)?;
        if let Some(fabric) = self.grounds.live.fabric() {
            let bequest = fabric.export_reservations().map_err(|unfit| unfit.to_string())?;
            self.talk.say(Kind::Fabric, &bequest)?;
        }
        step("predecessor", "still");
        self.talk.report_to(self.hand_over.sender.clone(), self.number)?;
        self.give_connections(began)?;
        self.give_controllers()?;
        step("predecessor", "given");
        self.commit()?;
        tracing::info!(
            given = self.given,
            left = self.kept,
            took_ms = (self.grounds.clock.now() - began).as_millis() as u64,
            "the new process serves"
        );
        step("predecessor", "committed");
        self.rest();
        Ok(())
    }

    /// Freezes all changes, and sends the inventory and the open files to the other process.
    fn show_inventory(&mut self) -> Result<(), String> {
        let grounds = self.grounds.clone();
        grounds.live.freeze()?;
        self.changes.is_frozen = true;
        let socket = |socket: &Socket| SocketAt {
            role: socket.role,
            wanted: socket.wanted.clone(),
            is_at: place(socket.kept.endpoint()),
        };
        let listening = grounds.all_sockets();
        let sockets = listening.iter().map(|one| socket(one)).collect();
        let (spaces, tenants) = (grounds.live.spaces(), grounds.tenants.list());
        let mut inventory = ServerInventory::of(&grounds.places.all(), &spaces, sockets, &tenants)?;
        inventory.departed = grounds.live.open_sockets().1.iter().map(DepartedAt::of).collect();
        inventory.state = grounds.live.state_at();
        inventory.connections = grounds.spread.connections().iter().sum();
        let words = serde_json::to_vec(&inventory).map_err(|error| error.to_string())?;
        let own = Process::own().map_err(|error| format!("cannot show this process: {error}"))?;
        self.talk.send(Kind::Inventory, 0, &words, &[own.descriptor()])?;
        let disks = grounds.places.all();
        let files = open_files(&disks)?;
        self.send_descriptors(Kind::Files, &files)?;
        let sockets: Option<Vec<_>> = listening.iter().map(|s| s.kept.socket()).collect();
        let sockets = sockets.ok_or("this server has stopped to listen")?;
        let sockets: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        self.send_descriptors(Kind::Listeners, &sockets)
    }

    /// Descriptors, in as many messages as they need.
    fn send_descriptors(&self, kind: Kind, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        for some in descriptors.chunks(io::DESCRIPTORS_MAX) {
            self.talk.send(kind, 0, &[], some)?;
        }
        Ok(())
    }

    /// Accepts nothing, answers no hellos, starts nothing that excludes others; returns when nothing of
    /// the kind is under way.
    fn be_still(&mut self) -> Result<(), String> {
        let grounds = self.grounds.clone();
        self.changes.is_still = true;
        grounds.shared.fences.hold_hellos(Hold::All);
        grounds.shared.fences.hold_exclusives(true);
        if let Some(fabric) = grounds.live.fabric() {
            fabric.hold(Held::Connects);
        }
        // Every worker takes a turn behind that.
        grounds.orders.hold(true, &grounds.wakers);
        self.await_within(STILL_MAX, "the workers do not stand still", || {
            let excludes = grounds.places.all().iter().any(|disk| disk.volume.is_claimed_alone());
            grounds.orders.are_done() && !excludes
        })?;
        // Until now a journal could break.
        open_files(&grounds.places.all()).map(drop)
    }

    fn await_within(
        &self,
        limit: Duration,
        complaint: &str,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), String> {
        let end = self.grounds.clock.now() + limit;
        while !done() {
            if self.grounds.clock.now() >= end {
                return Err(complaint.to_owned());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Takes what tenants have, and says it together with what they owe.
    fn bequeath(&mut self) -> Result<Vec<u8>, String> {
        let tenants = &self.grounds.tenants;
        let now = tenants.now();
        self.changes.held = tenants.registry().bequeath(now);
        let held: Vec<HeldAt> = self.changes.held.iter().map(HeldAt::of).collect();
        serde_json::to_vec(&held).map_err(|error| error.to_string())
    }

    /// Gives away every connection that can be.
    fn give_connections(&mut self, began: Instant) -> Result<(), String> {
        let grounds = self.grounds.clone();
        self.moved_at = grounds.clock.now();
        grounds.commands.hand_over(HANDED_AT_ONCE);
        let (mut given_before, mut given_at) = (0, began);
        loop {
            match self.hand_over.next_soon() {
                Some(event) => self.take_event(event)?,
                None => self.take_mail()?,
            }
            let now = grounds.clock.now();
            let stops = grounds.orders.word().stops();
            if stops && self.given == 0 {
                return Err("this server was told to stop".to_owned());
            }
            // To go back would end what has been given.
            let is_late = stops || now.since(began) >= GIVING_MAX;
            if !grounds.spread.has_any() {
                grounds.commands.hand_over(0);
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

    /// Connections that could still move: all, for what is known, if a worker does not answer.
    fn movable(&mut self) -> usize {
        let Ok(connections) = self.grounds.commands.connections() else {
            return self.grounds.commands.connection_count();
        };
        connections.iter().filter(|connection| connection.listed.can_leave).count()
    }

    /// Waits until everything on its way to the hand-over thread has arrived or failed.
    pub(super) fn settle(&mut self) -> Result<(), String> {
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

    pub(super) fn take_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Mail => self.take_mail(),
            Event::Knock(stream) => {
                Predecessor::refuse(stream, "another process is taking over already");
                Ok(())
            }
            Event::Heard(number, _) if number != self.number => Ok(()),
            Event::Heard(_, Ok(message)) => self.take_message(&message),
            Event::Heard(_, Err(over)) => Err(over.to_string()),
        }
    }

    pub(super) fn take_mail(&mut self) -> Result<(), String> {
        loop {
            let (mut parcels, mut queues) = (Vec::new(), Vec::new());
            while parcels.len() + queues.len() < io::DESCRIPTORS_MAX
                && let Some(tell) = self.hand_over.mail()
            {
                let Tell::Arrive(parcel) = tell else { continue };
                match gather::number(&parcel) {
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

    /// Shows connections to the other process. One that does not fit into a message stays. Whatever
    /// goes wrong, each is kept here or given back.
    fn show_all(&mut self, parcels: impl IntoIterator<Item = Box<Parcel>>) -> Result<(), String> {
        let grounds = self.grounds.clone();
        let (now, machine_now) = (grounds.clock.now(), grounds.clock.machine_nanos());
        self.moved_at = now;
        let mut lots: Vec<(Vec<u8>, Vec<u64>)> = Vec::new();
        for parcel in parcels {
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
                    let ticket = parcel.ticket;
                    put_parcel(body, ticket.0, &bytes);
                    let shelved = grounds.spread.fetch(ticket, grounds.spread.hand_over_number());
                    self.shown.insert(ticket.0, (parcel, shelved));
                    tickets.push(ticket.0);
                }
                Err(unfit) => {
                    tracing::warn!(peer = %parcel.peer, %unfit, "a connection stays");
                    self.hand_over.give_back(parcel);
                }
            }
        }
        lots.iter().try_for_each(|(body, tickets)| {
            let sent = self.send_shown(Kind::Parcels, machine_now, body, tickets);
            step_with("predecessor", "parcel", tickets.len());
            sent.map_err(String::from)
        })
    }

    /// Sends a message about connections, with their sockets.
    pub(super) fn send_shown(
        &self,
        kind: Kind,
        now: u64,
        body: &[u8],
        tickets: &[u64],
    ) -> Result<(), Over> {
        let shelved = tickets.iter().map(|ticket| &self.shown[ticket].1);
        let sockets: Vec<_> = shelved.map(Shelved::socket).collect();
        self.talk.send(kind, now, body, &sockets)
    }

    fn take_message(&mut self, message: &Message) -> Result<(), String> {
        self.moved_at = self.grounds.clock.now();
        match message.kind {
            Kind::Refused => {
                let why = String::from_utf8_lossy(&message.body);
                if self.keep_controller(message.ticket, &why) {
                    return Ok(());
                }
                let found = self.shown.remove(&message.ticket);
                let (parcel, shelved) = found.ok_or_else(|| unexpected(message))?;
                tracing::warn!(peer = %parcel.peer, %why, "a connection stays");
                self.take_back(parcel, shelved);
                Ok(())
            }
            Kind::Taken => {
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

    /// The other process has taken these, and all are its own with one message.
    pub(super) fn give_all(&mut self, tickets: &[u64]) -> Result<(), Over> {
        self.talk.say(Kind::Yours, &put_tickets(tickets))?;
        let now = self.grounds.clock.now();
        for ticket in tickets {
            let Some((parcel, shelved)) = self.shown.remove(ticket) else { continue };
            self.grounds.spread.let_go(shelved);
            let conn = ConnId { index: u32::MAX, generation: 0 };
            let pause = now - parcel.paused_at;
            let landed = Tell::Landed { ticket: parcel.ticket, conn, pause };
            self.hand_over.post(usize::from(parcel.from), landed);
            self.given += 1;
        }
        step_with("predecessor", "yours", tickets.len());
        Ok(())
    }

    pub(super) fn take_back(&mut self, parcel: Box<Parcel>, shelved: Shelved) {
        self.grounds.spread.shelve_again(parcel.ticket, shelved);
        self.hand_over.give_back(parcel);
    }

    /// The rest is the other's.
    fn commit(&mut self) -> Result<(), String> {
        let grounds = self.grounds.clone();
        let mut left = Left { connections: self.kept, ..Left::default() };
        {
            let (held, now) = (&self.changes.held, grounds.tenants.now());
            let registry = grounds.tenants.registry();
            left.spent = registry.spent_since(held, now).iter().map(HeldAt::of).collect();
            for (tenant, client, connection) in grounds.shared.fences.names() {
                let name = registry.name_of(tenant, None).unwrap_or_default().to_owned();
                left.names.push((name, format!("{client:x}"), connection));
            }
        }
        let words = serde_json::to_vec(&left).map_err(|error| error.to_string())?;
        grounds.hold_apis(true);
        grounds.give_away(true);
        self.talk.say(Kind::Commit, &words)?;
        step("predecessor", "commit");
        self.changes.is_committed = true;
        self.hear_committed()
    }

    /// Waits until the other process has said that everything is its own. From here on only its end gives
    /// that back, whatever it says: so it is ended when it does not answer. It serves nothing but what it
    /// was given before it has answered.
    fn hear_committed(&mut self) -> Result<(), String> {
        let (grounds, asked) = (self.grounds.clone(), self.grounds.clock.now());
        let (mut over, mut says_more, mut answers, mut is_given_up) = (None, true, false, false);
        let (mut ended_at, mut is_killed) = (None, false);
        loop {
            match self.hand_over.next_soon() {
                Some(Event::Heard(number, heard)) if number == self.number => match heard {
                    Ok(Message { kind: Kind::Committed, .. }) => {
                        grounds.hold_apis(true);
                        return Ok(());
                    }
                    Ok(message) => over = over.or(Some(unexpected(&message))),
                    Err(why) => {
                        over = over.or(Some(why));
                        says_more = false;
                    }
                },
                Some(Event::Knock(stream)) => Predecessor::refuse(stream, "another is taking over"),
                // What became quiet too late stays.
                _ => self.hand_over.return_all(),
            }
            let now = grounds.clock.now();
            if self.successor.as_ref().is_none_or(Process::has_ended) {
                // Its last words may be on their way still.
                let ended_at = *ended_at.get_or_insert(now);
                if !says_more || now.since(ended_at) >= LAST_WORDS_MAX {
                    return Err(over.unwrap_or(Over::Ended).into());
                }
            }
            if !answers && now.since(asked) >= ANSWER_MAX {
                // Whoever asks for a change is told to try again, and does not wait as well.
                grounds.hold_apis(false);
                answers = true;
            }
            if !is_given_up && now.since(asked) >= STEP_MAX {
                is_given_up = true;
                over = over.or(Some(Over::Nonsense(GIVEN_UP.to_owned())));
                // It may be saying it this instant: that is heard, or cannot be said.
                self.talk.hear_no_more();
            }
            if is_given_up && !says_more && !is_killed {
                is_killed = true;
                self.end_successor();
            }
        }
    }

    /// Ends the other process, which does not answer.
    fn end_successor(&self) {
        // It may have said that it is the main process, with whose end the service would end.
        super::tell_service_manager();
        if let Some(Err(error)) = self.successor.as_ref().map(Process::kill) {
            tracing::error!(
                %error,
                "a new process does not answer and cannot be ended: no connection is accepted until it \
                 has ended"
            );
        }
    }

    /// The workers drain; the other is told when nothing of this process can be at a device any more.
    fn rest(&mut self) {
        let grounds = self.grounds.clone();
        grounds.orders.give();
        grounds.orders.stop(&grounds.wakers);
        // A request that never ends is waited for, as one is that excludes others in one process.
        while !grounds.orders.are_quiet() {
            self.hand_over.return_all();
            std::thread::sleep(Duration::from_micros(500));
        }
        step("predecessor", "rest");
        let _ = self.talk.say(Kind::Rest, &[]); // it serves on without us
    }

    /// Restores everything that was not handed over.
    fn undo(&mut self) {
        if self.changes.is_committed {
            super::tell_service_manager(); // the other has said that it is the main process
        }
        let grounds = self.grounds.clone();
        let fabric = grounds.live.fabric();
        if self.controllers.are_given {
            // Hosts come back whose writes may be on their way there.
            grounds.shared.fences.hold_kin(true);
        }
        self.keep_controllers();
        let held = if self.controllers.are_given { Held::Reservations } else { Held::Nothing };
        fabric.iter().for_each(|fabric| fabric.hold(held));
        for (_, (parcel, shelved)) in std::mem::take(&mut self.shown) {
            self.take_back(parcel, shelved);
        }
        if self.changes.is_still {
            grounds.commands.hand_over(0);
            grounds.give_away(false);
            grounds.hold_apis(false);
            grounds.orders.hold(false, &grounds.wakers);
        }
        grounds.tenants.registry().keep(&std::mem::take(&mut self.changes.held));
        if self.changes.is_frozen {
            grounds.live.thaw();
        }
        self.hand_over.return_all();
        if self.given > 0 {
            self.await_end();
        }
        grounds.shared.fences.hold_hellos(Hold::Nobody);
        grounds.shared.fences.hold_exclusives(false);
        grounds.shared.fences.hold_kin(false);
        fabric.iter().for_each(|fabric| fabric.hold(Held::Nothing));
        grounds.wakers.iter().for_each(io::Waker::wake);
    }

    /// Waits until nothing of what was given can be at a device any more. The other process, to whom
    /// nobody listens any more, gives up what it was given; one that stands still is ended.
    fn await_end(&mut self) {
        let clock = self.grounds.clock;
        let (began, mut is_killed) = (clock.now(), false);
        let mut until = began + AFTERMATH;
        while clock.now() < until && !self.grounds.orders.word().stops() {
            if self.successor.as_ref().is_some_and(|successor| !successor.has_ended()) {
                until = clock.now() + AFTERMATH;
                if !is_killed && clock.now().since(began) >= STEP_MAX {
                    is_killed = true;
                    tracing::warn!("the new process, which was given connections, is ended");
                    self.end_successor();
                }
            }
            match self.hand_over.next_soon() {
                Some(Event::Knock(stream)) => {
                    Predecessor::refuse(
                        stream,
                        "a process that was to take over has not ended yet",
                    );
                }
                _ => self.hand_over.return_all(),
            }
        }
    }
}

/// The files of all devices.
fn open_files(disks: &[Disk]) -> Result<Vec<BorrowedFd<'_>>, String> {
    let files = disks.iter().map(files);
    Ok(files.collect::<Result<Vec<_>, _>>()?.concat())
}
