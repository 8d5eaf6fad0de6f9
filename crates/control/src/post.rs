//! The mail between a server's workers and its control plane, and from worker to worker: bounded
//! queues, one to each, allocated when they are made. Nobody waits for a full one.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::{Ask, Mailbox, Report, Tell};

/// Messages that a worker's queue, and the control plane's for each worker, hold.
const POST_MAX: usize = 256;

/// Ends a worker's wait, so that it looks at its mail.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// What comes to the control plane.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A worker asks.
    Ask(Ask),
    /// A worker reports.
    Report(Report),
}

/// A worker's mailbox.
#[derive(Debug)]
pub struct PostBox {
    asks: SyncSender<Mail>,
    tells: Receiver<Tell>,
    /// The ways to all workers.
    ways: Arc<[Way]>,
}

impl Mailbox for PostBox {
    fn ask(&mut self, ask: Ask) -> bool {
        self.asks.try_send(Mail::Ask(ask)).is_ok()
    }

    fn report(&mut self, report: Report) {
        // One that is lost is as good as one that comes too late.
        let _ = self.asks.try_send(Mail::Report(report));
    }

    fn pass(&mut self, to: u16, tell: Tell) -> Result<(), Tell> {
        match self.ways.get(usize::from(to)) {
            Some(way) => way.send(tell),
            None => Err(tell),
        }
    }

    fn poll(&mut self) -> Option<Tell> {
        self.tells.try_recv().ok()
    }
}

/// The way to a worker.
pub(crate) struct Way {
    tells: SyncSender<Tell>,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").finish_non_exhaustive()
    }
}

impl Way {
    /// Sends, and ends the worker's wait.
    pub(crate) fn send(&self, tell: Tell) -> Result<(), Tell> {
        self.tells.try_send(tell).map_err(|refused| match refused {
            TrySendError::Full(tell) | TrySendError::Disconnected(tell) => tell,
        })?;
        if let Some(wake) = self.wake.get() {
            wake();
        }
        Ok(())
    }
}

/// The control plane's side.
#[derive(Debug)]
pub(crate) struct Post {
    mail: Receiver<Mail>,
    ways: Arc<[Way]>,
}

/// What a wait for asks came to.
#[derive(Debug)]
pub(crate) enum Waited {
    /// Something has come.
    Came(Mail),
    /// The time is over.
    Nothing,
    /// There are no workers any more.
    Deserted,
}

/// The mail of so many members: workers, and who takes connections to another process.
pub(crate) fn posts(workers: usize) -> (Post, Vec<PostBox>) {
    let (asks, mail) = sync_channel(POST_MAX * workers.max(1));
    let (ways, tells): (Vec<Way>, Vec<_>) = (0..workers)
        .map(|_| {
            let (tell, tells) = sync_channel(POST_MAX);
            (Way { tells: tell, wake: OnceLock::new() }, tells)
        })
        .unzip();
    let ways: Arc<[Way]> = ways.into();
    let of_worker = |tells| PostBox { asks: asks.clone(), tells, ways: ways.clone() };
    let boxes = tells.into_iter().map(of_worker).collect();
    (Post { mail, ways }, boxes)
}

impl Post {
    /// The ways to all workers, for others than the desk.
    pub(crate) fn ways(&self) -> Arc<[Way]> {
        self.ways.clone()
    }

    /// How a worker's wait is ended; said once.
    pub(crate) fn set_wake(&self, worker: usize, wake: Wake) {
        let said_before = self.ways[worker].wake.set(wake).is_err();
        assert!(!said_before, "a worker has one way to be woken");
    }

    /// Sends to a worker.
    ///
    /// # Errors
    /// The message comes back: its queue is full, or it is gone.
    pub(crate) fn tell(&self, worker: usize, tell: Tell) -> Result<(), Tell> {
        self.ways[worker].send(tell)
    }

    /// The next that has come.
    pub(crate) fn take(&self) -> Option<Mail> {
        self.mail.try_recv().ok()
    }

    /// Waits for something to come.
    pub(crate) fn wait(&self, limit: Duration) -> Waited {
        match self.mail.recv_timeout(limit) {
            Ok(mail) => Waited::Came(mail),
            Err(RecvTimeoutError::Timeout) => Waited::Nothing,
            Err(RecvTimeoutError::Disconnected) => Waited::Deserted,
        }
    }
}
