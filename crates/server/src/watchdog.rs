//! The watchdog: signs of life for the service manager (`sd_notify(3)`, `WATCHDOG=1`), as long as
//! the threads of all workers run. Without them, the manager ends the process and starts another.
//!
//! A worker shows that it runs by an order that it answers between two turns
//! (docs/adr/0039-watchdog.md). This module deliberately leaves out the control plane and the admin
//! API, without which data is served, and devices, which answer late when disks are late.

use std::sync::Arc;
use std::time::Duration;

use dataplane::WorkerOrders;
use io::Waker;

use crate::upgrade::{show_life, watchdog_interval};

/// The number of questions to the workers in an interval of the service manager.
const LOOKS: u32 = 4;

/// Starts the watchdog's thread, if the service manager wants signs of life.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(orders: &Arc<WorkerOrders>, wakers: &[Waker]) -> Result<(), String> {
    let Some(interval) = watchdog_interval() else { return Ok(()) };
    let (orders, wakers) = (orders.clone(), wakers.to_vec());
    let watch = move || {
        loop {
            look(&orders, &wakers, interval / LOOKS);
        }
    };
    let started = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
    started.map(drop).map_err(|error| format!("cannot start the watchdog: {error}"))
}

/// Asks all workers to show that their threads run, and sends the service manager a sign of life if
/// all have answered after `pause`.
fn look(orders: &WorkerOrders, wakers: &[Waker], pause: Duration) {
    orders.ask(wakers);
    std::thread::sleep(pause);
    if orders.have_answered() {
        show_life();
    }
}
