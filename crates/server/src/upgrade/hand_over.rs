//! The exchange of connections with another process: a mailbox like a worker's, and the events that
//! a take-over waits for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use contract::{Mailbox, MigratingConnection, WorkerMessage};
use control::{Wake, WorkerMailbox};

use super::event::Event;
use super::hand_over_parts::HandOverParts;

/// The interval at which conditions without an event are polled.
const PERIOD: Duration = Duration::from_millis(2);

/// The mailbox of the thread that hands connections over to another process: its exchange with this
/// process's workers, and the events that it waits for.
pub(crate) struct HandOver {
    mailbox: WorkerMailbox,
    events: Receiver<Event>,
    pub(super) sender: Sender<Event>,
    has_mail: Arc<AtomicBool>,
    pub(super) grounds: Option<Arc<HandOverParts>>,
    /// Messages to workers whose mailboxes were full.
    outgoing: VecDeque<(usize, WorkerMessage)>,
}

impl HandOver {
    /// Returns a hand-over that uses this mailbox, and the function to call when a message has
    /// arrived in the mailbox.
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

    pub(super) fn grounds(&self) -> Arc<HandOverParts> {
        self.grounds.clone().expect("it has started")
    }

    /// Waits for the next event; returns `None` if none comes within this time.
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

    /// Returns the next message of the mailbox; `None` if there is none.
    pub(super) fn mail(&mut self) -> Option<WorkerMessage> {
        self.mailbox.poll()
    }

    /// Sends a message to a worker, at once or when its mailbox has room.
    pub(super) fn post(&mut self, to: usize, tell: WorkerMessage) {
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

    /// Returns a connection to the worker that it came from.
    pub(super) fn give_back(&mut self, parcel: Box<MigratingConnection>) {
        self.post(usize::from(parcel.from), WorkerMessage::Returned(parcel));
    }

    /// Returns all connections in the mailbox to their workers, because no process takes them.
    pub(super) fn return_all(&mut self) {
        while let Some(tell) = self.mail() {
            if let WorkerMessage::Arrive(parcel) = tell {
                self.give_back(parcel);
            }
        }
        self.flush();
    }
}
