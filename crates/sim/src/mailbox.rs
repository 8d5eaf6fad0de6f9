//! A worker's connection to its mailbox: the real mailbox, with checks, and with the option to
//! deliver a request of a moving connection twice.

use std::cell::Cell;
use std::rc::Rc;

use contract::{
    Command, Mailbox, MigratingConnection, MigratingPayload, Report, TenancyRequest, WorkerMessage,
};
use control::WorkerMailbox;

use crate::marks::{Mark, Marks};
use crate::nvme;

/// A worker's real mailbox, which checks the messages that pass through it.
#[derive(Debug)]
pub(crate) struct WatchedMailbox {
    inner: WorkerMailbox,
    /// `true` to deliver a request of each moving connection twice, as a sabotage.
    doubles: bool,
    /// `true` if a message was passed to another worker since the last check.
    passed: Rc<Cell<bool>>,
    marks: Marks,
}

impl WatchedMailbox {
    pub(crate) fn new(
        inner: WorkerMailbox,
        doubles: bool,
        passed: Rc<Cell<bool>>,
        marks: Marks,
    ) -> WatchedMailbox {
        WatchedMailbox { inner, doubles, passed, marks }
    }

    fn look_into(&self, parcel: &mut MigratingConnection) {
        let MigratingConnection { requests, unparsed, put_off, listener, .. } = parcel;
        let held = requests.iter().position(|request| request.command == Command::Barrier);
        let (queued, behind) = requests.split_at(held.unwrap_or(requests.len()));
        let begun = |payload: &MigratingPayload| matches!(payload, MigratingPayload::Begun(_));
        let is_begun = requests.last().is_some_and(|request| begun(&request.payload));
        self.marks.add(Mark::MovedQueued, queued.len() as u64);
        self.marks.add(Mark::MovedHeld, behind.len() as u64);
        self.marks.add(Mark::MovedMidPayload, u64::from(is_begun));
        self.marks.add(Mark::MovedUnparsed, u64::from(!unparsed.is_empty()));
        self.marks.add(Mark::MovedPutOff, put_off.len() as u64);
        // A session of NVMe over TCP would not answer a command twice.
        if self.doubles
            && *listener != nvme::LISTENER
            && let Some(first) = requests.first().filter(|first| !begun(&first.payload))
        {
            requests.insert(0, first.clone());
        }
    }
}

impl Mailbox for WatchedMailbox {
    fn ask(&mut self, ask: TenancyRequest) -> bool {
        self.inner.ask(ask)
    }

    fn report(&mut self, report: Report) {
        self.inner.report(report);
    }

    fn pass(&mut self, to: u16, mut tell: WorkerMessage) -> Result<(), WorkerMessage> {
        if let WorkerMessage::Arrive(parcel) = &mut tell {
            self.look_into(parcel);
        }
        if matches!(tell, WorkerMessage::Returned(_)) {
            self.marks.hit(Mark::MovedBack);
        }
        self.passed.set(true);
        self.inner.pass(to, tell)
    }

    fn poll(&mut self) -> Option<WorkerMessage> {
        self.inner.poll()
    }
}
