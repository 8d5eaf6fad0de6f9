//! The hand-over thread: it has a mailbox like a worker's, gives connections to another process and
//! takes them from one.

use std::collections::VecDeque;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::{Mailbox, Parcel, Tell};
use control::{Wake, WorkerMailbox};

use super::predecessor::Predecessor;
use super::successor::Successor;
use super::talk::{Message, Over};
use super::{Grounds, knock};
use crate::log;
use crate::orders::Orders;

/// Something that the hand-over thread waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// A worker has sent a message.
    Mail,
    /// A process wants to take over.
    Knock(UnixStream),
    /// The other process has sent a message in the conversation of this number, or has ended it.
    Heard(u64, Result<Message, Over>),
}

/// The interval at which conditions without an event are polled.
const PERIOD: Duration = Duration::from_millis(2);

/// The polling interval while no take-over runs.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// The exchange of connections between this process's workers and its control thread during a
/// take-over.
pub(crate) struct HandOver {
    mailbox: WorkerMailbox,
    events: Receiver<Event>,
    pub(super) sender: Sender<Event>,
    has_mail: Arc<AtomicBool>,
    pub(super) grounds: Option<Arc<Grounds>>,
    /// Messages to workers whose boxes were full.
    outgoing: VecDeque<(usize, Tell)>,
}

impl HandOver {
    /// Returns a hand-over with this mailbox, and the function that tells it that there is mail.
    pub(crate) fn new(mailbox: WorkerMailbox) -> (HandOver, Wake) {
        let (sender, events) = channel();
        let has_mail = Arc::new(AtomicBool::new(false));
        let (knock, flag) = (sender.clone(), has_mail.clone());
        let wake = Box::new(move || {
            if !flag.swap(true, Ordering::AcqRel) {
                let _ = knock.send(Event::Mail); // it is gone when the process ends
            }
        });
        let outgoing = VecDeque::new();
        (HandOver { mailbox, events, sender, has_mail, grounds: None, outgoing }, wake)
    }

    pub(super) fn grounds(&self) -> Arc<Grounds> {
        self.grounds.clone().expect("it has started")
    }

    /// Starts its thread: it first takes over, if there is somebody to take over from, and says how
    /// that ended; then it waits for the next process.
    pub(crate) fn start(
        mut self,
        grounds: Grounds,
        successor: Option<Successor>,
        socket: Option<UnixListener>,
    ) -> Result<Started, String> {
        let (orders, is_successor) = (grounds.orders.clone(), successor.is_some());
        self.grounds = Some(Arc::new(grounds));
        let (told, outcome) = channel();
        let body = move || {
            if let Some(successor) = successor {
                let is_over = successor.take_over(&mut self, &told).is_err();
                if is_over {
                    return;
                }
            }
            self.serve(socket);
            drop(told);
        };
        let started = std::thread::Builder::new().name("hand-over".to_owned()).spawn(body);
        started.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Started { outcome, orders, is_successor })
    }

    /// Waits for processes that want to take over.
    fn serve(&mut self, socket: Option<UnixListener>) {
        if let Some(socket) = socket
            && let Err(error) = accept(socket, self.sender.clone())
        {
            tracing::warn!(error, "this server cannot be upgraded while it runs");
        }
        loop {
            match self.next(IDLE_PERIOD) {
                None | Some(Event::Mail) => self.return_all(),
                Some(Event::Heard(..)) => {} // of a talk that is over
                Some(Event::Knock(stream)) => match Predecessor::give(self, stream) {
                    Ok(()) => {
                        return self.see_out();
                    }
                    Err(why) => {
                        log::tell(format!("the upgrade has failed, this server goes on: {why}"));
                    }
                },
            }
        }
    }

    /// The workers drain, and the process ends with them.
    fn see_out(&mut self) {
        while !self.grounds().orders.are_drained() {
            self.return_all();
            if let Some(Event::Knock(stream)) = self.next_soon() {
                knock::refuse(stream, "this process has just been taken over; try again");
            }
        }
    }

    /// The next event; `None` when there is none for so long.
    pub(super) fn next(&mut self, patience: Duration) -> Option<Event> {
        match self.events.recv_timeout(patience) {
            Ok(Event::Mail) => {
                self.has_mail.store(false, Ordering::Release);
                Some(Event::Mail)
            }
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("we have a sender ourselves"),
        }
    }

    /// Returns the next event, or `None` after a short wait.
    pub(super) fn next_soon(&mut self) -> Option<Event> {
        self.flush();
        self.next(PERIOD)
    }

    /// The next message of the mailbox.
    pub(super) fn mail(&mut self) -> Option<Tell> {
        self.mailbox.poll()
    }

    /// Sends to a worker, now or soon.
    pub(super) fn post(&mut self, to: usize, tell: Tell) {
        self.outgoing.push_back((to, tell));
        self.flush();
    }

    fn flush(&mut self) {
        let grounds = self.grounds();
        for _ in 0..self.outgoing.len() {
            let (to, tell) = self.outgoing.pop_front().expect("it was just counted");
            if let Err(tell) = grounds.commands.pass(to, tell) {
                self.outgoing.push_back((to, tell));
            }
        }
    }

    /// Gives a connection back to the worker that it came from.
    pub(super) fn give_back(&mut self, parcel: Box<Parcel>) {
        self.post(usize::from(parcel.from), Tell::Returned(parcel));
    }

    /// Nobody takes connections: whatever comes goes back.
    pub(super) fn return_all(&mut self) {
        while let Some(tell) = self.mail() {
            if let Tell::Arrive(parcel) = tell {
                self.give_back(parcel);
            }
        }
        self.flush();
    }
}

/// The hand-over thread at work.
pub(crate) struct Started {
    /// The result of a take-over by this process. The channel closes when a successor has taken
    /// over.
    outcome: Receiver<Result<(), String>>,
    orders: Arc<Orders>,
    is_successor: bool,
}

impl Started {
    /// Waits until this process serves; `false`: it was told to stop before.
    ///
    /// # Errors
    /// Why it never will.
    pub(crate) fn has_to_serve(&self, workers: &[JoinHandle<()>]) -> Result<bool, String> {
        while self.is_successor && !workers.iter().all(JoinHandle::is_finished) {
            match self.outcome.recv_timeout(IDLE_PERIOD / 10) {
                Ok(outcome) => return outcome.map(|()| true),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the hand-over thread is gone".to_owned());
                }
            }
        }
        Ok(!self.is_successor)
    }

    /// The workers have ended: waits until who has taken over knows, if that is why.
    pub(crate) fn see_out(&self) {
        if self.orders.are_given() {
            let _ = self.outcome.recv_timeout(IDLE_PERIOD); // a channel that is closed says so
        }
    }
}

/// Accepts processes that want to take over.
fn accept(listener: UnixListener, events: Sender<Event>) -> Result<(), String> {
    let body = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    if events.send(Event::Knock(stream)).is_err() {
                        return;
                    }
                }
                Err(_) => std::thread::sleep(IDLE_PERIOD), // too few descriptors, say
            }
        }
    };
    let started = std::thread::Builder::new().name("upgrade-accept".to_owned()).spawn(body);
    started.map(drop).map_err(|error| error.to_string())
}
