//! The hand-over thread: it takes over from a predecessor, then waits for a successor.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use dataplane::WorkerOrders;

use super::event::Event;
use super::hand_over::HandOver;
use super::hand_over_parts::HandOverParts;
use super::knock;
use super::predecessor::Predecessor;
use super::successor::Successor;
use crate::log;

/// The polling interval while no take-over runs.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// Starts the hand-over thread. The thread first takes over, if there is a predecessor, and reports
/// the outcome. Then it waits for a successor.
pub(crate) fn start(
    mut hand_over: HandOver,
    grounds: HandOverParts,
    successor: Option<Successor>,
    socket: Option<UnixListener>,
) -> Result<HandOverThread, String> {
    let (orders, is_successor) = (grounds.orders.clone(), successor.is_some());
    hand_over.grounds = Some(Arc::new(grounds));
    let (told, outcome) = channel();
    let body = move || {
        if let Some(successor) = successor {
            let is_over = successor.take_over(&mut hand_over, &told).is_err();
            if is_over {
                return;
            }
        }
        serve(&mut hand_over, socket);
        drop(told);
    };
    let started = std::thread::Builder::new().name("hand-over".to_owned()).spawn(body);
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(HandOverThread { outcome, orders, is_successor })
}

/// Waits for processes that ask to take over.
fn serve(hand_over: &mut HandOver, socket: Option<UnixListener>) {
    if let Some(socket) = socket
        && let Err(error) = accept(socket, hand_over.sender.clone())
    {
        tracing::warn!(error, "this server cannot be upgraded while it runs");
    }
    loop {
        match hand_over.next(IDLE_PERIOD) {
            None | Some(Event::Mail) => hand_over.return_all(),
            Some(Event::Heard(..)) => {} // of a talk that is over
            Some(Event::Knock(stream)) => match Predecessor::give(hand_over, stream) {
                Ok(()) => {
                    return see_out(hand_over);
                }
                Err(why) => {
                    log::tell(format!("the upgrade has failed, this server goes on: {why}"));
                }
            },
        }
    }
}

/// Waits until all workers have drained, before the process ends. Meanwhile refuses processes that
/// ask to take over.
fn see_out(hand_over: &mut HandOver) {
    while !hand_over.grounds().orders.are_drained() {
        hand_over.return_all();
        if let Some(Event::Knock(stream)) = hand_over.next_soon() {
            knock::refuse(stream, "this process has just been taken over; try again");
        }
    }
}

/// The running hand-over thread.
pub(crate) struct HandOverThread {
    /// The result of a take-over by this process. The channel closes when a successor has taken
    /// over.
    outcome: Receiver<Result<(), String>>,
    orders: Arc<WorkerOrders>,
    is_successor: bool,
}

impl HandOverThread {
    /// Waits until this process serves. Returns `false` if it was told to stop before.
    ///
    /// # Errors
    /// The process will never serve, for the reason returned.
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

    /// Waits until the successor has been told that this process's workers have ended. Returns at
    /// once without a successor.
    pub(crate) fn see_out(&self) {
        if self.orders.are_given() {
            // It closes when the hand-over thread, which may start this process anew, has ended.
            while self.outcome.recv().is_ok() {}
        }
    }
}

/// Starts a thread that accepts processes that ask to take over, and sends them as events.
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
