//! The older process: it leads the take-over, and owns everything until it has sent that the
//! successor does.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::ServerEvent;
use dataplane::OpenDevice;
use io::Process;
use proto::nvme::HeldCommands;
use proto::takeover::TakeoverKind;
use worker::HeldHellos;

use super::anew::{ends, start_anew};
use super::departures::Departures;
use super::event::Event;
use super::hand_over::HandOver;
use super::inventory::{
    ClosedListener, FinalReport, Hello, HoldingRecord, ServerInventory, SocketRecord, files, place,
};
use super::retained::RetainedSockets;
use super::socket::Socket;
use super::step::{AFTERMATH, PREPARE_MAX, STEP_MAX, step};
use super::talk::{ChannelEnd, Message, unexpected};
use super::{knock, notify};

/// The time limit for the workers to stop accepting, and for requests that exclude others to end.
const STILL_MAX: Duration = Duration::from_secs(5);

/// The time that the successor gets to serve, before this process answers operators again and
/// refuses their changes.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The time limit for receiving messages that the other process sent before it ended.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// The error text when the other process did not answer and was therefore killed.
const GIVEN_UP: &str = "the new process does not answer and was ended";

/// A take-over on the side of the predecessor.
pub(super) struct Predecessor<'a> {
    departures: Departures<'a>,
    /// The successor's process; `None` until it has said hello.
    successor: Option<Process>,
    changes: UndoableSteps,
}

/// The steps of the take-over that this process has made, and that are undone if the take-over
/// fails.
#[derive(Default)]
struct UndoableSteps {
    is_frozen: bool,
    is_still: bool,
    is_committed: bool,
    /// The tokens of tenants that were taken out of this process's registry and sent to the
    /// successor.
    held: Vec<control::HeldTokens>,
}

impl<'a> Predecessor<'a> {
    /// Hands this server over to the process at the other end of the stream.
    ///
    /// # Errors
    /// The hand-over failed. Everything that was not given is as before.
    pub(super) fn give(hand_over: &'a mut HandOver, stream: UnixStream) -> Result<(), String> {
        let failed = |_: &String| ServerEvent::UpgradeFailed.count();
        let talk = knock::let_in(stream).inspect_err(failed)?;
        let departures = Departures::new(hand_over, talk);
        let mut predecessor =
            Predecessor { departures, successor: None, changes: UndoableSteps::default() };
        let done = predecessor.go();
        if let Err(why) = &done {
            failed(why);
            predecessor.departures.talk.stop(why);
            predecessor.undo();
        }
        done
    }

    fn go(&mut self) -> Result<(), String> {
        let mut message = self.departures.talk.expect(TakeoverKind::Hello)?;
        let hello: Hello = serde_json::from_slice(&message.body)
            .map_err(|error| format!("the new process says hello in other words: {error}"))?;
        let successor = message.files.pop().ok_or("the new process does not show itself")?;
        self.successor = Some(Process::passed(successor));
        tracing::info!(pid = hello.pid, version = hello.version, "a new process takes over");
        step("predecessor", "hello");
        self.show_inventory()?;
        step("predecessor", "prepare");
        self.departures.talk.set_patience(PREPARE_MAX)?;
        self.departures.talk.expect(TakeoverKind::Ready)?;
        self.departures.talk.set_patience(STEP_MAX)?;
        step("predecessor", "ready");
        let began = self.departures.grounds.clock.now();
        self.be_still()?;
        let held = self.bequeath()?;
        self.departures.talk.say(TakeoverKind::Still, &held)?;
        if let Some(fabric) = self.departures.grounds.live.fabric() {
            let bequest = fabric.export_reservations().map_err(|unfit| unfit.to_string())?;
            self.departures.talk.say(TakeoverKind::Fabric, &bequest)?;
        }
        step("predecessor", "still");
        self.departures.report()?;
        self.departures.give_connections(began)?;
        self.departures.give_controllers(began)?;
        step("predecessor", "given");
        self.commit()?;
        tracing::info!(
            given = self.departures.given(),
            left = self.departures.kept(),
            took_ms = (self.departures.grounds.clock.now() - began).as_millis() as u64,
            "the new process serves"
        );
        step("predecessor", "committed");
        self.rest()
    }

    /// Freezes all changes, and sends the inventory and the open files to the successor.
    fn show_inventory(&mut self) -> Result<(), String> {
        let grounds = self.departures.grounds.clone();
        grounds.live.freeze()?;
        self.changes.is_frozen = true;
        let socket = |socket: &Socket| SocketRecord {
            role: socket.role,
            wanted: socket.wanted.clone(),
            is_at: place(socket.kept.endpoint()),
        };
        let listening = grounds.all_sockets();
        let sockets: Option<Vec<_>> = listening.iter().map(|s| s.kept.sockets()).collect();
        let sockets = sockets.ok_or("this server has stopped to listen")?;
        let each = |(one, sockets): (&Arc<Socket>, &Vec<_>)| vec![socket(one); sockets.len()];
        let sockets_at = listening.iter().zip(&sockets).flat_map(each).collect();
        let (spaces, tenants) = (grounds.live.spaces(), grounds.tenants.list());
        let mut inventory =
            ServerInventory::of(&grounds.places.all(), &spaces, sockets_at, &tenants)?;
        inventory.departed = grounds.live.open_sockets().1.iter().map(ClosedListener::of).collect();
        inventory.set_removals(&grounds.live.removals());
        inventory.state = grounds.live.state_at();
        inventory.storage_epoch = Some(grounds.shared.storage_epoch.load(Ordering::Relaxed));
        inventory.connections = grounds.spread.connections().iter().sum();
        let words = serde_json::to_vec(&inventory).map_err(|error| error.to_string())?;
        let own = Process::own().map_err(|error| format!("cannot show this process: {error}"))?;
        self.departures.talk.send(TakeoverKind::Inventory, 0, &words, &[own.descriptor()])?;
        let disks = grounds.places.all();
        let files = open_files(&disks)?;
        self.send_descriptors(TakeoverKind::Files, &files)?;
        let sockets: Vec<_> = sockets.iter().flatten().map(|socket| socket.as_fd()).collect();
        self.send_descriptors(TakeoverKind::Listeners, &sockets)
    }

    /// Sends descriptors, in as many messages as they need.
    fn send_descriptors(
        &self,
        kind: TakeoverKind,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        for some in descriptors.chunks(io::DESCRIPTORS_MAX) {
            self.departures.talk.send(kind, 0, &[], some)?;
        }
        Ok(())
    }

    /// Stops accepting, answering hellos and starting requests that exclude others. Returns when
    /// none of these is under way.
    fn be_still(&mut self) -> Result<(), String> {
        let grounds = self.departures.grounds.clone();
        self.changes.is_still = true;
        grounds.shared.fences.hold_hellos(HeldHellos::All);
        grounds.shared.fences.hold_exclusives(true);
        if let Some(fabric) = grounds.live.fabric() {
            fabric.hold(HeldCommands::Connects);
        }
        // Every worker takes a turn behind that.
        grounds.orders.hold(true, &grounds.wakers);
        self.await_within(STILL_MAX, "the workers do not stand still", || {
            let excludes = grounds.places.all().iter().any(|disk| disk.volume.is_claimed_alone());
            grounds.orders.are_done() && !excludes
        })?;
        self.rest_volumes()?;
        // Until now a journal could break.
        open_files(&grounds.places.all()).map(drop)
    }

    /// Brings the volumes to rest that one process serves at a time, and sends their states.
    fn rest_volumes(&mut self) -> Result<(), String> {
        let grounds = self.departures.grounds.clone();
        let disks = grounds.places.all();
        disks.iter().for_each(|disk| disk.volume.come_to_rest());
        grounds.wakers.iter().for_each(io::Waker::wake);
        for disk in &disks {
            let (mut state, mut failed) = (None, None);
            self.await_within(STILL_MAX, "a volume does not come to rest", || {
                match disk.volume.hand_over() {
                    Ok(handed) => state = handed,
                    Err(why) => failed = Some(why),
                }
                state.is_some() || failed.is_some()
            })?;
            if let Some(why) = failed {
                return Err(format!(
                    "device {}: {why}; restart this server instead",
                    disk.place + 1
                ));
            }
            let state = state.filter(|state| !state.is_empty());
            let Some(state) = state else { continue };
            let memory = io::SharedMemory::of(&state).map_err(|error| error.to_string())?;
            let place = disk.place as u64;
            self.departures.talk.send(TakeoverKind::Volume, place, &[], &[memory.as_fd()])?;
        }
        step("predecessor", "volumes");
        Ok(())
    }

    fn await_within(
        &self,
        limit: Duration,
        complaint: &str,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), String> {
        let end = self.departures.grounds.clock.now() + limit;
        while !done() {
            if self.departures.grounds.clock.now() >= end {
                return Err(complaint.to_owned());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Takes the token balances and debts of all tenants out of this process, and returns them as a
    /// message for the successor.
    fn bequeath(&mut self) -> Result<Vec<u8>, String> {
        let tenants = &self.departures.grounds.tenants;
        let now = tenants.now();
        self.changes.held = tenants.registry().bequeath(now);
        let held: Vec<HoldingRecord> = self.changes.held.iter().map(HoldingRecord::of).collect();
        serde_json::to_vec(&held).map_err(|error| error.to_string())
    }

    /// Transfers the ownership of everything except the connections that stay to the successor, and
    /// waits for the successor's confirmation.
    fn commit(&mut self) -> Result<(), String> {
        let grounds = self.departures.grounds.clone();
        let mut left =
            FinalReport { connections: self.departures.kept(), ..FinalReport::default() };
        {
            let (held, now) = (&self.changes.held, grounds.tenants.now());
            let registry = grounds.tenants.registry();
            left.spent = registry.spent_since(held, now).iter().map(HoldingRecord::of).collect();
            for (tenant, client, connection) in grounds.shared.fences.names() {
                let name = registry.name_of(tenant, None).unwrap_or_default().to_owned();
                left.names.push((name, format!("{client:x}"), connection));
            }
        }
        let words = serde_json::to_vec(&left).map_err(|error| error.to_string())?;
        grounds.hold_apis(true);
        grounds.give_away(true);
        self.departures.talk.say(TakeoverKind::Commit, &words)?;
        step("predecessor", "commit");
        self.changes.is_committed = true;
        self.hear_committed()
    }

    /// Waits until the successor has confirmed that it owns everything. From here on only the end
    /// of the successor returns the ownership, so a successor that does not answer is ended. Before
    /// its answer, it serves only the connections that it was given.
    fn hear_committed(&mut self) -> Result<(), String> {
        let (grounds, asked) =
            (self.departures.grounds.clone(), self.departures.grounds.clock.now());
        let (mut over, mut says_more, mut answers, mut is_given_up) = (None, true, false, false);
        let (mut ended_at, mut is_killed) = (None, false);
        loop {
            match self.departures.next_soon() {
                Some(Event::Heard(_, heard)) => match heard {
                    Ok(Message { kind: TakeoverKind::Committed, .. }) => {
                        grounds.hold_apis(true);
                        return Ok(());
                    }
                    Ok(message) => over = over.or(Some(unexpected(&message))),
                    Err(why) => {
                        over = over.or(Some(why));
                        says_more = false;
                    }
                },
                Some(Event::Knock(stream)) => knock::refuse(stream, "another is taking over"),
                // What became quiet too late stays.
                _ => self.departures.hand_over.return_all(),
            }
            let now = grounds.clock.now();
            if self.successor.as_ref().is_none_or(Process::has_ended) {
                // Its last words may be on their way still.
                let ended_at = *ended_at.get_or_insert(now);
                if !says_more || now.since(ended_at) >= LAST_WORDS_MAX {
                    return Err(over.unwrap_or(ChannelEnd::Ended).into());
                }
            }
            if !answers && now.since(asked) >= ANSWER_MAX {
                // Whoever asks for a change is told to try again, and does not wait as well.
                grounds.hold_apis(false);
                answers = true;
            }
            if !is_given_up && now.since(asked) >= STEP_MAX {
                is_given_up = true;
                over = over.or(Some(ChannelEnd::Nonsense(GIVEN_UP.to_owned())));
                // It may be saying it this instant: that is heard, or cannot be said.
                self.departures.talk.hear_no_more();
            }
            if is_given_up && !says_more && !is_killed {
                is_killed = true;
                self.end_successor();
            }
        }
    }

    /// Ends the successor, which does not answer.
    fn end_successor(&self) {
        // It may have said that it is the main process, with whose end the service would end.
        notify::ready();
        if let Some(Err(error)) = self.successor.as_ref().map(Process::kill) {
            tracing::error!(
                %error,
                "a new process does not answer and cannot be ended: no connection is accepted until it \
                 has ended"
            );
        }
    }

    /// Drains the workers. Tells the successor when no request of this process can be at a device
    /// any more. Until the successor has confirmed that it has everything, this process serves in
    /// its place if it is killed.
    fn rest(&mut self) -> Result<(), String> {
        let grounds = self.departures.grounds.clone();
        let retained = RetainedSockets::of(&grounds);
        grounds.places.all().iter().for_each(|disk| disk.volume.give());
        grounds.orders.give();
        grounds.orders.stop(&grounds.wakers);
        // A request that never ends is waited for, as one is that excludes others in one process.
        let mut over = None;
        while !grounds.orders.are_quiet() {
            self.watch(&mut over, &retained)?;
        }
        step("predecessor", "rest");
        let _ = self.departures.talk.say(TakeoverKind::Rest, &[]); // its end shows below
        let said_at = grounds.clock.now();
        while over.is_none() && grounds.clock.now().since(said_at) < STEP_MAX {
            self.watch(&mut over, &retained)?;
        }
        step("predecessor", "over");
        Ok(())
    }

    /// Reads the successor's messages for a moment, and sets `over` to the reason if the
    /// conversation has ended. If the successor was killed, starts this process anew in its place.
    ///
    /// # Errors
    /// Fails if the other process was killed, and this one cannot start in its place.
    fn watch(
        &mut self,
        over: &mut Option<ChannelEnd>,
        retained: &RetainedSockets,
    ) -> Result<(), String> {
        match self.departures.next_soon() {
            Some(Event::Heard(_, Err(why))) => *over = Some(why),
            Some(Event::Knock(stream)) => knock::refuse(stream, "another has just taken over"),
            _ => self.departures.hand_over.return_all(),
        }
        if matches!(over, Some(ChannelEnd::Ended)) {
            if self.successor.as_ref().is_some_and(ends) {
                let never = start_anew("the new process was killed", retained);
                never.map(|never| match never {})?;
            }
            *over = Some(ChannelEnd::Nonsense("the new process lives and says nothing".to_owned()));
        }
        Ok(())
    }

    /// Restores everything that was not handed over.
    fn undo(&mut self) {
        if self.changes.is_committed {
            notify::ready(); // the other has said that it is the main process
        }
        let grounds = self.departures.grounds.clone();
        let fabric = grounds.live.fabric();
        let has_given_controllers = self.departures.has_given_controllers();
        if has_given_controllers {
            // Hosts come back whose writes may be on their way there.
            grounds.shared.fences.hold_groups(true);
        }
        self.departures.keep_controllers();
        let held =
            if has_given_controllers { HeldCommands::Reservations } else { HeldCommands::Nothing };
        fabric.iter().for_each(|fabric| fabric.hold(held));
        self.departures.take_all_back();
        if self.changes.is_still {
            grounds.commands.hand_over(0);
            grounds.give_away(false);
            grounds.hold_apis(false);
            grounds.places.all().iter().for_each(|disk| disk.volume.go_on());
            grounds.orders.hold(false, &grounds.wakers);
        }
        grounds.tenants.registry().keep(&std::mem::take(&mut self.changes.held));
        if self.changes.is_frozen {
            grounds.live.thaw();
        }
        self.departures.hand_over.return_all();
        if self.departures.given() > 0 {
            self.await_end();
        }
        grounds.shared.fences.hold_hellos(HeldHellos::Nobody);
        grounds.shared.fences.hold_exclusives(false);
        grounds.shared.fences.hold_groups(false);
        fabric.iter().for_each(|fabric| fabric.hold(HeldCommands::Nothing));
        grounds.wakers.iter().for_each(io::Waker::wake);
    }

    /// Waits until no request of the connections that were given can be at a device. The successor,
    /// which is no longer listened to, gives them up; if it hangs, it is ended.
    fn await_end(&mut self) {
        let clock = self.departures.grounds.clock;
        let (began, mut is_killed) = (clock.now(), false);
        let mut until = began + AFTERMATH;
        while clock.now() < until && !self.departures.grounds.orders.stops() {
            if self.successor.as_ref().is_some_and(|successor| !successor.has_ended()) {
                until = clock.now() + AFTERMATH;
                if !is_killed && clock.now().since(began) >= STEP_MAX {
                    is_killed = true;
                    tracing::warn!("the new process, which was given connections, is ended");
                    self.end_successor();
                }
            }
            match self.departures.hand_over.next_soon() {
                Some(Event::Knock(stream)) => {
                    knock::refuse(stream, "a process that was to take over has not ended yet");
                }
                _ => self.departures.hand_over.return_all(),
            }
        }
    }
}

/// Returns the open files of all devices, which are passed to the successor.
fn open_files(disks: &[OpenDevice]) -> Result<Vec<BorrowedFd<'_>>, String> {
    let files = disks.iter().map(files);
    Ok(files.collect::<Result<Vec<_>, _>>()?.concat())
}
