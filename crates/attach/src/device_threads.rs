//! The threads that serve a device, one for each queue, and their messages to the main thread.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use client::Loss;
use client::block::{Engine, News, Terms, classes};
use contract::BufPool;
use io::ublk::BlockQueue;
use io::{Clock, Network, Owner, PacketSockets, Ring, Sockets, SpinPolicy, carve, run};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::kernel::KernelQueue;
use crate::survey::{Server, told};

/// A message to the main thread from a queue's thread or from the thread of signals.
#[derive(Debug)]
pub(crate) enum DeviceMessage {
    /// The queue has a connection. What it had in flight on an earlier one has ended.
    Connected { queue: u16 },
    /// The queue has lost its connection to the server, or could not establish one.
    Lost { queue: u16, why: Loss },
    /// A flush of the queue failed, because acknowledged changes were lost with the server's
    /// machine.
    WritesLost { queue: u16 },
    /// The kernel has cancelled some of the queue's commands.
    Cut,
    /// The queue has ended, without an error if the device was stopped.
    Ended { queue: u16, outcome: Result<(), String> },
    /// Somebody asks the process to end.
    Asked,
}

/// The queues of a device: their number and sizes, and the server that they connect to.
#[derive(Clone)]
pub(crate) struct QueuePlan {
    /// Number of queues of the device.
    pub(crate) queues: u16,
    /// Maximum number of requests in flight on each queue.
    pub(crate) depth: u16,
    /// The identity of the first queue at the server.
    pub(crate) identity: u128,
    /// The server with the volume, and the options of connections to it.
    pub(crate) server: Server,
    /// The namespace, whether changes are refused, and how long requests wait for an absent server.
    pub(crate) terms: Terms,
    /// Time after the last progress until a queue's thread sleeps.
    pub(crate) spin: Duration,
}

/// The error text after the kernel has cancelled commands while the device goes on. A successor of
/// this process gives the device new commands.
pub(crate) const CUT: &str = "the kernel's ublk driver has cancelled commands of this process; the \
                              device's requests wait for a successor (`nearflash attach recover`)";

/// The threads that serve a device.
pub(crate) struct DeviceThreads {
    threads: Vec<JoinHandle<()>>,
    messages: Receiver<DeviceMessage>,
    /// For each queue, `true` once the queue has had a connection to the server.
    connected: Vec<bool>,
    /// Number of queues whose threads have not ended.
    open: usize,
}

/// The reason that a crew's [`watch`](DeviceThreads::watch) came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The server's storage epoch may have changed, which must be recorded for a successor of this
    /// process.
    Epoch,
    /// The device was stopped.
    Stopped,
    /// Somebody asks the process to end.
    Asked,
    /// The kernel has cancelled some commands of a queue: the device is being stopped, or further
    /// requests would find no command to deliver them.
    Cut,
}

impl DeviceThreads {
    /// Starts the threads. Each makes its queue and waits for requests.
    ///
    /// # Errors
    /// Fails if there can be no more threads, or no handler of signals.
    pub(crate) fn start(plan: &QueuePlan, file: &Arc<File>) -> Result<DeviceThreads, String> {
        let (sender, messages) = channel();
        let asked = sender.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|error| format!("cannot wait for signals: {error}"))?;
        let listen = move || {
            for _ in signals.forever() {
                // The crew's end is the process's end.
                let _ = asked.send(DeviceMessage::Asked);
            }
        };
        spawn("signals", listen)?;
        let mut threads = Vec::new();
        let serve = match plan.server.is_of_packets() {
            true => serve::<PacketSockets>,
            false => serve::<Sockets>,
        };
        for queue in 0..plan.queues {
            let (plan, file, sender) = (plan.clone(), Arc::clone(file), sender.clone());
            threads.push(spawn(&format!("queue-{queue}"), move || {
                let served = catch_unwind(AssertUnwindSafe(|| serve(queue, &plan, &file, &sender)));
                drop(file);
                let outcome = served.unwrap_or_else(|_| Err("the thread has panicked".to_owned()));
                let _ = sender.send(DeviceMessage::Ended { queue, outcome });
            })?);
        }
        let connected = vec![false; usize::from(plan.queues)];
        Ok(DeviceThreads { threads, messages, connected, open: usize::from(plan.queues) })
    }

    /// Waits for at most `limit` until every queue has had a connection. Returns `false` if the
    /// time has passed before.
    ///
    /// # Errors
    /// Says which queue has failed.
    pub(crate) fn await_connections(&mut self, limit: Duration) -> Result<bool, String> {
        let clock = Clock::start();
        let until = clock.now() + limit;
        while self.connected.contains(&false) {
            let left = until.since(clock.now());
            match self.messages.recv_timeout(left) {
                Ok(message) => match self.note(message)? {
                    Some(WatchEnd::Asked) => {
                        return Err("a signal ended the wait for the server".to_owned());
                    }
                    Some(WatchEnd::Cut) => return Err(CUT.to_owned()),
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => return Err("all threads ended".to_owned()),
            }
        }
        Ok(true)
    }

    /// Waits for the end of the device, for a signal, or for another storage epoch.
    ///
    /// # Errors
    /// Says which queue has failed.
    pub(crate) fn watch(&mut self) -> Result<WatchEnd, String> {
        loop {
            let message = self.messages.recv().map_err(|_| "all threads ended".to_owned())?;
            if let Some(end) = self.note(message)? {
                return Ok(end);
            }
        }
    }

    /// Waits for the threads of a device that was stopped.
    pub(crate) fn join(self) {
        for thread in self.threads {
            thread.join().expect("a thread catches its panics");
        }
    }

    fn note(&mut self, message: DeviceMessage) -> Result<Option<WatchEnd>, String> {
        match message {
            DeviceMessage::Connected { queue } => {
                tracing::info!(queue, "connected");
                self.connected[usize::from(queue)] = true;
                return Ok(Some(WatchEnd::Epoch));
            }
            DeviceMessage::Lost { queue, why } => {
                tracing::warn!(queue, "no connection: {}", told(why));
            }
            DeviceMessage::WritesLost { queue } => {
                tracing::error!(
                    queue,
                    "the server's machine started anew and lost writes that were not flushed: a \
                     flush has failed"
                );
                return Ok(Some(WatchEnd::Epoch));
            }
            DeviceMessage::Ended { queue, outcome } => {
                outcome.map_err(|error| format!("queue {queue} has failed: {error}"))?;
                self.open -= 1;
                return Ok((self.open == 0).then_some(WatchEnd::Stopped));
            }
            DeviceMessage::Asked => return Ok(Some(WatchEnd::Asked)),
            DeviceMessage::Cut => return Ok(Some(WatchEnd::Cut)),
        }
        Ok(None)
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| format!("cannot start the thread {name}: {error}"))
}

/// Returns the message with which a queue's thread passes news on.
fn message(queue: u16, news: News) -> DeviceMessage {
    match news {
        News::Connected => DeviceMessage::Connected { queue },
        News::Lost(why) => DeviceMessage::Lost { queue, why },
        News::WritesLost => DeviceMessage::WritesLost { queue },
    }
}

/// Serves one queue until the device is stopped.
fn serve<N: Network<Reactor = Ring>>(
    number: u16,
    plan: &QueuePlan,
    file: &Arc<File>,
    sender: &Sender<DeviceMessage>,
) -> Result<(), String> {
    let ring = Ring::for_block_device().map_err(|e| e.to_string())?;
    let identity = plan.identity + u128::from(number);
    let initiator = plan.server.initiator::<N>(&ring, plan.depth, identity)?;
    let arena = carve(&classes(plan.depth)).map_err(|e| e.to_string())?;
    let queue = BlockQueue::open(file, &ring, Owner::device(0), number, plan.depth);
    let queue = queue.map_err(|e| e.to_string())?;
    let queue = KernelQueue::new(queue, plan.depth, sender.clone());
    let pool = BufPool::new(arena.bufs);
    let mut engine = Engine::new(plan.depth, plan.terms, queue, initiator, pool);
    run(&ring, &Clock::start(), SpinPolicy { spin: plan.spin }, |now| {
        let turn = engine.turn(now);
        for news in engine.news() {
            // The crew's end is the process's end.
            let _ = sender.send(message(number, news));
        }
        turn
    });
    engine.close();
    match engine.failure() {
        None => Ok(()),
        Some(errno) => {
            let why = std::io::Error::from_raw_os_error(errno);
            Err(format!("the kernel refuses a command: {why}"))
        }
    }
}
