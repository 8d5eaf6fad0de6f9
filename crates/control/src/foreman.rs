//! Tells workers what operators, and the right-sizing, want of them: to list their connections, to
//! give some away, to rest.
//!
//! Orders go straight to the workers' mailboxes; what comes of them is heard by the desk, which hands
//! it on to whoever waits here. What is deliberately not here: who should move (`sizing.rs`).

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::{ConnId, Listed, Meters, Report, Stays, Tell};

use crate::post::Way;
use crate::tenants::Tenants;

/// How long a worker may take to answer an order: far longer than a move is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Orders that wait for their answers at a time.
const WAITING_MAX: usize = 256;

/// Whether a worker takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It does.
    Active,
    /// It gives its connections away, and rests once it has none.
    Retiring,
    /// It has none and uses no processor time.
    Parked,
}

/// What is known of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerInfo {
    /// Its number.
    pub number: usize,
    /// Whether it takes connections.
    pub state: WorkerState,
    /// Its connections.
    pub connections: usize,
    /// The share of the last second in which it had something to do, from 0 to 1.
    pub busy: f64,
    /// Connections that have left it for others.
    pub moved: u32,
    /// Connections that were to leave it and stayed.
    pub stayed: u32,
    /// Connections that came to it from others.
    pub arrived: u32,
    /// The longest time, in microseconds, that a connection which left it was not received from.
    pub pause_us_max: u32,
}

/// What is known of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Whose it is.
    pub worker: usize,
    /// What its worker says of it.
    pub listed: Listed,
    /// The name of its tenant.
    pub tenant: Option<String>,
}

/// How a move ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its new worker.
    pub worker: usize,
    /// Its name there.
    pub conn: ConnId,
    /// How long it was not received from.
    pub pause: Duration,
}

/// Why an order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefused {
    /// There is no worker of this number.
    NoWorker(usize),
    /// The worker says why the connection stays.
    Stays(Stays),
    /// The worker that listens is always there.
    Listens,
    /// The worker does not take connections now.
    NotActive(usize),
    /// There are too many orders, or the worker does not answer.
    NoAnswer,
}

impl fmt::Display for OrderRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderRefused::NoWorker(n) => write!(f, "there is no worker {n}"),
            OrderRefused::Stays(why) => write!(f, "the connection stays where it is: {why}"),
            OrderRefused::Listens => f.write_str("worker 0 listens, so it cannot be retired"),
            OrderRefused::NotActive(n) => {
                write!(f, "worker {n} is retired; add it first (see `nearflash worker list`)")
            }
            OrderRefused::NoAnswer => f.write_str("the worker does not answer; try again"),
        }
    }
}

impl std::error::Error for OrderRefused {}

/// Which report an order waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Moved(u16, ConnId),
    Listed(u16, u32),
}

/// Lets new connections go to those workers alone whose bits are set.
pub(crate) type OpenTo = Box<dyn Fn(u64) + Send + Sync>;

/// What is known of all workers.
struct Crew {
    states: Vec<WorkerState>,
    busy: Vec<f64>,
    open_to: Option<OpenTo>,
    waiting: Vec<(Key, SyncSender<Report>)>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("states", &self.states).finish_non_exhaustive()
    }
}

/// A handle on the workers of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Foreman {
    tenants: Tenants,
    ways: Arc<[Way]>,
    meters: Arc<[Arc<Meters>]>,
    crew: Arc<Mutex<Crew>>,
}

impl Foreman {
    pub(crate) fn new(tenants: Tenants, ways: Arc<[Way]>) -> Foreman {
        let meters = (0..ways.len()).map(|worker| tenants.meters(worker)).collect();
        let crew = Crew {
            states: vec![WorkerState::Active; ways.len()],
            busy: vec![0.0; ways.len()],
            open_to: None,
            waiting: Vec::new(),
        };
        Foreman { tenants, ways, meters, crew: Arc::new(Mutex::new(crew)) }
    }

    /// How whoever accepts connections is told which workers take some.
    pub fn set_open_to(&self, open_to: OpenTo) {
        let mut crew = self.crew();
        crew.open_to = Some(open_to);
        crew.tell_open();
    }

    fn crew(&self) -> std::sync::MutexGuard<'_, Crew> {
        self.crew.lock().expect("no holder of this lock panics")
    }

    /// A worker has reported; what nobody waits for comes back.
    pub(crate) fn hear(&self, report: Report) -> Option<Report> {
        let key = match &report {
            Report::Moved { worker, conn, .. } => Key::Moved(*worker, *conn),
            Report::Listed { worker, from, .. } => Key::Listed(*worker, *from),
        };
        let mut crew = self.crew();
        let Some(n) = crew.waiting.iter().position(|(of, _)| *of == key) else {
            return Some(report);
        };
        let (_, waits) = crew.waiting.swap_remove(n);
        // Whoever gave up waiting does not want to know.
        let _ = waits.try_send(report);
        None
    }

    /// Orders something and waits for what comes of it.
    fn order(&self, worker: usize, key: Key, tell: Tell) -> Result<Report, OrderRefused> {
        let (sender, receiver): (_, Receiver<Report>) = sync_channel(1);
        {
            let mut crew = self.crew();
            if crew.waiting.len() == WAITING_MAX {
                return Err(OrderRefused::NoAnswer);
            }
            crew.waiting.push((key, sender));
        }
        let sent = self.ways[worker].send(tell).is_ok();
        let heard = if sent { receiver.recv_timeout(PATIENCE).ok() } else { None };
        if heard.is_none() {
            drop(receiver);
            // One whose receiver is gone cannot be sent to; it is found by trying nothing.
            let mut crew = self.crew();
            if let Some(n) = crew.waiting.iter().position(|(of, _)| *of == key) {
                crew.waiting.swap_remove(n);
            }
        }
        heard.ok_or(OrderRefused::NoAnswer)
    }

    fn check(&self, worker: usize) -> Result<u16, OrderRefused> {
        match worker < self.ways.len() {
            true => Ok(worker as u16),
            false => Err(OrderRefused::NoWorker(worker)),
        }
    }

    /// Moves a connection to another worker; waits until it is there.
    ///
    /// # Errors
    /// Why it stays where it is, or that nobody knows.
    pub fn move_connection(
        &self,
        worker: usize,
        conn: ConnId,
        to: usize,
    ) -> Result<Moved, OrderRefused> {
        let (from, number) = (self.check(worker)?, self.check(to)?);
        if self.crew().states[to] != WorkerState::Active {
            return Err(OrderRefused::NotActive(to));
        }
        let tell = Tell::Move { conn, to: number };
        match self.order(worker, Key::Moved(from, conn), tell)? {
            Report::Moved { ended: Ok((conn, pause)), .. } => Ok(Moved { worker: to, conn, pause }),
            Report::Moved { ended: Err(why), .. } => Err(OrderRefused::Stays(why)),
            Report::Listed { .. } => Err(OrderRefused::NoAnswer),
        }
    }

    /// All connections, by worker.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn connections(&self) -> Result<Vec<ConnectionInfo>, OrderRefused> {
        let mut all = Vec::new();
        for worker in 0..self.ways.len() {
            let mut from = Some(0);
            while let Some(place) = from {
                let key = Key::Listed(worker as u16, place);
                match self.order(worker, key, Tell::List { from: place })? {
                    Report::Listed { connections, next, .. } => {
                        all.extend(connections.iter().map(|listed| (worker, *listed)));
                        from = next;
                    }
                    Report::Moved { .. } => return Err(OrderRefused::NoAnswer),
                }
            }
        }
        let tenants = self.tenants.list();
        let name = |listed: &Listed| {
            let tenant = tenants.iter().find(|info| Some(info.tenant) == listed.tenant)?;
            Some(tenant.name.clone())
        };
        let info = |(worker, listed): (usize, Listed)| ConnectionInfo {
            worker,
            listed,
            tenant: name(&listed),
        };
        Ok(all.into_iter().map(info).collect())
    }

    /// All workers.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        let crew = self.crew();
        let info = |(number, meters): (usize, &Arc<Meters>)| {
            let [moved, stayed, arrived] = meters.worker.moves();
            WorkerInfo {
                number,
                state: crew.states[number],
                connections: meters.worker.connections() as usize,
                busy: crew.busy[number],
                moved,
                stayed,
                arrived,
                pause_us_max: meters.worker.pause_us_max(),
            }
        };
        self.meters.iter().enumerate().map(info).collect()
    }
}

impl Crew {
    /// Says which workers take new connections.
    fn tell_open(&self) {
        let bit = |(n, state): (usize, &WorkerState)| {
            if *state == WorkerState::Active { 1 << n } else { 0 }
        };
        if let Some(open_to) = &self.open_to {
            open_to(self.states.iter().enumerate().map(bit).sum());
        }
    }
}
