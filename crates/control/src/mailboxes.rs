//! The mailboxes between a server's workers and its control plane, and between workers: bounded
//! queues, one per receiver, allocated at start. Nobody waits for a full queue.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::{Mailbox, Report, TenancyRequest, WorkerMessage};

/// Capacity of a worker's queue, and of the control plane's queue for each worker, in messages.
const MAILBOX_MAX: usize = 256;

/// A function that wakes a worker, so that the worker reads its mailbox.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// A message to the control plane.
#[derive(Debug)]
pub(crate) enum ControlMessage {
    /// A worker's request.
    Tenancy(TenancyRequest),
    /// A worker's report.
    Report(Report),
}

/// A worker's end of the message queues between the worker, the control plane and the other
/// workers.
#[derive(Debug)]
pub struct WorkerMailbox {
    asks: SyncSender<ControlMessage>,
    tells: Receiver<WorkerMessage>,
    /// The sending ends of all workers' queues.
    senders: Arc<[MailSender]>,
}

impl Mailbox for WorkerMailbox {
    fn ask(&mut self, ask: TenancyRequest) -> bool {
        self.asks.try_send(ControlMessage::Tenancy(ask)).is_ok()
    }

    fn report(&mut self, report: Report) {
        // A lost report is as good as one that comes too late.
        let _ = self.asks.try_send(ControlMessage::Report(report));
    }

    fn pass(&mut self, to: u16, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        match self.senders.get(usize::from(to)) {
            Some(sender) => sender.send(tell),
            None => Err(tell),
        }
    }

    fn poll(&mut self) -> Option<WorkerMessage> {
        self.tells.try_recv().ok()
    }
}

/// The sending end of a worker's queue.
pub(crate) struct MailSender {
    tells: SyncSender<WorkerMessage>,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for MailSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailSender").finish_non_exhaustive()
    }
}

impl MailSender {
    /// Sends a message, and wakes the worker. Returns the message if the queue is full or the
    /// worker is gone.
    pub(crate) fn send(&self, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        self.tells.try_send(tell).map_err(|refused| match refused {
            TrySendError::Full(tell) | TrySendError::Disconnected(tell) => tell,
        })?;
        if let Some(wake) = self.wake.get() {
            wake();
        }
        Ok(())
    }
}

/// The control plane's side of the mailboxes.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    mail: Receiver<ControlMessage>,
    senders: Arc<[MailSender]>,
}

/// The outcome of a wait for messages.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// A message of a worker has come.
    Came(ControlMessage),
    /// The time has passed without a message.
    Nothing,
    /// All workers have ended, so no further message can come.
    Deserted,
}

/// Returns mailboxes for `workers` members: workers, and the hand-over thread that moves
/// connections to another process.
pub(crate) fn mailboxes(workers: usize) -> (Mailboxes, Vec<WorkerMailbox>) {
    let (asks, mail) = sync_channel(MAILBOX_MAX * workers.max(1));
    let (senders, tells): (Vec<MailSender>, Vec<_>) = (0..workers)
        .map(|_| {
            let (tell, tells) = sync_channel(MAILBOX_MAX);
            (MailSender { tells: tell, wake: OnceLock::new() }, tells)
        })
        .unzip();
    let senders: Arc<[MailSender]> = senders.into();
    let of_worker = |tells| WorkerMailbox { asks: asks.clone(), tells, senders: senders.clone() };
    let boxes = tells.into_iter().map(of_worker).collect();
    (Mailboxes { mail, senders }, boxes)
}

impl Mailboxes {
    /// Returns the sending ends of all workers' queues, by worker.
    pub(crate) fn senders(&self) -> Arc<[MailSender]> {
        self.senders.clone()
    }

    /// Sets the function that wakes a worker. To be called once per worker.
    pub(crate) fn set_wake(&self, worker: usize, wake: Wake) {
        let said_before = self.senders[worker].wake.set(wake).is_err();
        assert!(!said_before, "a worker has one way to be woken");
    }

    /// Sends a message to a worker.
    ///
    /// # Errors
    /// Returns the message if the worker's queue is full, or if the worker is gone.
    pub(crate) fn tell(&self, worker: usize, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        self.senders[worker].send(tell)
    }

    /// Returns the next message of any worker; `None` if there is none now.
    pub(crate) fn take(&self) -> Option<ControlMessage> {
        self.mail.try_recv().ok()
    }

    /// Waits for a message of any worker, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> WaitOutcome {
        match self.mail.recv_timeout(limit) {
            Ok(mail) => WaitOutcome::Came(mail),
            Err(RecvTimeoutError::Timeout) => WaitOutcome::Nothing,
            Err(RecvTimeoutError::Disconnected) => WaitOutcome::Deserted,
        }
    }
}
