//! The mail between a server's workers and its control plane: two bounded queues, allocated when
//! they are made. Nobody waits for a full one.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use contract::{Ask, Mailbox, Tell};

/// Messages that a worker's queue, and the control plane's for each worker, hold.
const POST_MAX: usize = 256;

/// Ends a worker's wait, so that it looks at its mail.
pub type Wake = Box<dyn Fn() + Send>;

/// A worker's mailbox.
#[derive(Debug)]
pub struct PostBox {
    asks: SyncSender<Ask>,
    tells: Receiver<Tell>,
}

impl Mailbox for PostBox {
    fn ask(&mut self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    fn poll(&mut self) -> Option<Tell> {
        self.tells.try_recv().ok()
    }
}

/// The control plane's side.
pub(crate) struct Post {
    asks: Receiver<Ask>,
    tells: Vec<SyncSender<Tell>>,
    /// By worker.
    pub(crate) wakes: Vec<Option<Wake>>,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("workers", &self.tells.len()).finish_non_exhaustive()
    }
}

/// What a wait for asks came to.
#[derive(Debug)]
pub(crate) enum Waited {
    /// Somebody asks.
    Asked(Ask),
    /// The time is over.
    Nothing,
    /// There are no workers any more.
    Deserted,
}

/// The mail of so many workers.
pub(crate) fn posts(workers: usize) -> (Post, Vec<PostBox>) {
    let (ask, asks) = sync_channel(POST_MAX * workers.max(1));
    let (tells, boxes) = (0..workers)
        .map(|_| {
            let (tell, tells) = sync_channel(POST_MAX);
            (tell, PostBox { asks: ask.clone(), tells })
        })
        .unzip();
    (Post { asks, tells, wakes: (0..workers).map(|_| None).collect() }, boxes)
}

impl Post {
    /// Sends to a worker; `false`: its queue is full.
    pub(crate) fn tell(&self, worker: usize, tell: Tell) -> bool {
        let sent = self.tells[worker].try_send(tell).is_ok();
        if let (true, Some(wake)) = (sent, &self.wakes[worker]) {
            wake();
        }
        sent
    }

    /// The next ask that has come.
    pub(crate) fn take(&self) -> Option<Ask> {
        self.asks.try_recv().ok()
    }

    /// Waits for an ask.
    pub(crate) fn wait(&self, limit: Duration) -> Waited {
        match self.asks.recv_timeout(limit) {
            Ok(ask) => Waited::Asked(ask),
            Err(RecvTimeoutError::Timeout) => Waited::Nothing,
            Err(RecvTimeoutError::Disconnected) => Waited::Deserted,
        }
    }
}
