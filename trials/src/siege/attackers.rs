//! The attackers: one thread that keeps a number of connections of each kind of attack open, and
//! dials anew for each that ends.
//!
//! The thread waits in epoll and computes little, since it shares the processors with the server.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::attack_kind::{AttackKind, Script};
use crate::interop::chance::Rng;

/// The longest wait for events: new dials become due meanwhile.
const TICK: Duration = Duration::from_millis(10);

/// The time between two bytes of [`AttackKind::Slow`].
const SLOW_PAUSE: Duration = Duration::from_millis(500);

/// The least time after which the server may cut a connection that does not go on.
const STUCK_MIN: Duration = Duration::from_secs(2);

/// The receive buffer of a connection that takes nothing, in bytes.
const DEAF_BUFFER: usize = 4096;

/// The plan of an attack.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The kinds of attack, each with its number of connections.
    pub(super) attacks: Vec<(AttackKind, usize)>,
    pub(super) port: u16,
    pub(super) nvme_port: u16,
    /// The most connections that are made in a second.
    pub(super) rate: u32,
    pub(super) seed: u64,
}

/// The counts of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The number of connections that were made.
    pub(super) made: u64,
    /// The number of connections that the server ended.
    pub(super) cut: u64,
    /// The number of them that had half a payload or took no replies, and were cut within 2 s.
    pub(super) cut_early: u64,
    /// The number of connections that were refused.
    pub(super) refused: u64,
    /// The most connections that were open at a time.
    pub(super) open_max: usize,
    /// The processor time of the thread.
    pub(super) cpu: Duration,
}

/// An attack under way, which ends with this value.
pub(super) struct RunningAttack {
    thread: Option<JoinHandle<Result<Counts, String>>>,
    ends: Arc<AtomicBool>,
}

impl RunningAttack {
    pub(super) fn start(plan: Plan) -> RunningAttack {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let body = move || {
            let ran = AttackThread::new(plan).and_then(|mut army| army.run(&told));
            ran.map_err(|error| format!("the attackers: {error}"))
        };
        RunningAttack { thread: Some(std::thread::spawn(body)), ends }
    }

    /// Closes all connections, and returns the counts of the attack.
    pub(super) fn end(mut self) -> Result<Counts, String> {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        thread.join().map_err(|_| "the attackers panicked".to_owned())?
    }
}

impl Drop for RunningAttack {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A place for one connection, which is dialled anew after each end.
struct AttackSlot {
    attack: AttackKind,
    socket: Option<OwnedFd>,
    /// The number of dials, which identifies events of earlier connections.
    dials: u32,
    is_connected: bool,
    connected_at: Instant,
    /// The bytes that were sent of the opening, or behind it of the sequel.
    sent: usize,
    is_open: bool,
    is_silent: bool,
}

/// The thread's state.
struct AttackThread {
    plan: Plan,
    script: Script,
    chance: Rng,
    epoll: OwnedFd,
    places: Vec<AttackSlot>,
    /// The places without a connection, in the order in which they are dialled.
    waiting: VecDeque<usize>,
    counts: Counts,
    open: usize,
    scratch: Vec<u8>,
}

impl AttackThread {
    fn new(plan: Plan) -> io::Result<AttackThread> {
        let place = |attack| AttackSlot {
            attack,
            socket: None,
            dials: 0,
            is_connected: false,
            connected_at: Instant::now(),
            sent: 0,
            is_open: false,
            is_silent: false,
        };
        let places = plan.attacks.iter().flat_map(|(attack, count)| vec![*attack; *count]);
        let places: Vec<AttackSlot> = places.map(place).collect();
        let mut chance = Rng::new(plan.seed);
        let mut waiting: Vec<usize> = (0..places.len()).collect();
        for n in (1..waiting.len()).rev() {
            waiting.swap(n, chance.below(n as u64 + 1) as usize);
        }
        Ok(AttackThread {
            script: Script::new(plan.seed),
            plan,
            chance,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            places,
            waiting: waiting.into(),
            counts: Counts::default(),
            open: 0,
            scratch: vec![0; 65536],
        })
    }

    fn run(&mut self, ends: &AtomicBool) -> io::Result<Counts> {
        let (mut events, timeout) = (Vec::with_capacity(1024), TICK.try_into().ok());
        let (mut filled_at, mut dropped_at) = (Instant::now(), Instant::now());
        let mut budget = 0.0;
        while !ends.load(Ordering::Relaxed) {
            let now = Instant::now();
            let rate = f64::from(self.plan.rate);
            // What the thread could not do while it did not run is not made up for.
            budget = f64::min(budget + rate * (now - filled_at).as_secs_f64(), rate / 20.0);
            filled_at = now;
            while budget >= 1.0
                && let Some(n) = self.waiting.pop_front()
            {
                budget -= 1.0;
                self.dial(n)?;
            }
            if now - dropped_at >= SLOW_PAUSE {
                dropped_at = now;
                self.drip()?;
            }
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (data, flags) = (event.data.u64(), event.flags);
                let n = data as u32 as usize;
                if self.places[n].dials == (data >> 32) as u32 {
                    self.take(n, flags)?;
                }
            }
        }
        self.counts.cpu = own_cpu();
        Ok(self.counts)
    }

    fn dial(&mut self, n: usize) -> io::Result<()> {
        let (attack, port) = (self.places[n].attack, self.plan.port);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if attack.is_deaf() {
            sockopt::set_socket_recv_buffer_size(&socket, DEAF_BUFFER)?;
        }
        let port = if attack.is_nvme() { self.plan.nvme_port } else { port };
        match rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::ADDRNOTAVAIL) => {
                self.counts.refused += 1;
                self.waiting.push_back(n);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let place = &mut self.places[n];
        place.dials = place.dials.wrapping_add(1);
        (place.is_connected, place.is_open, place.is_silent) = (false, false, false);
        place.sent = 0;
        let data = EventData::new_u64(u64::from(place.dials) << 32 | n as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::OUT | EventFlags::RDHUP)?;
        place.socket = Some(socket);
        Ok(())
    }

    fn take(&mut self, n: usize, flags: EventFlags) -> io::Result<()> {
        if flags.contains(EventFlags::OUT) && !self.places[n].is_connected {
            self.connected(n)?;
        }
        if flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP) {
            return self.lose(n);
        }
        if self.places[n].attack == AttackKind::Reset {
            return self.reset(n);
        }
        if flags.contains(EventFlags::IN) && !self.receive(n)? {
            return self.lose(n);
        }
        if !self.places[n].is_silent && !self.send(n)? {
            return self.lose(n);
        }
        Ok(())
    }

    /// Counts a connection that was made, even if it has ended since.
    fn connected(&mut self, n: usize) -> io::Result<()> {
        let place = &mut self.places[n];
        let Some(socket) = &place.socket else { return Ok(()) };
        if sockopt::socket_error(socket)? == Err(Errno::CONNREFUSED) {
            return Ok(());
        }
        (place.is_connected, place.connected_at) = (true, Instant::now());
        self.counts.made += 1;
        self.open += 1;
        self.counts.open_max = self.counts.open_max.max(self.open);
        Ok(())
    }

    /// Sends the rest of the attack's opening or sequel. Returns `false` if the connection ended.
    fn send(&mut self, n: usize) -> io::Result<bool> {
        let place = &mut self.places[n];
        let Some(socket) = &place.socket else { return Ok(true) };
        let whole = match place.is_open {
            false => self.script.opening(place.attack, n as u64 * 37),
            true => self.script.sequel(place.attack),
        };
        while place.sent < whole.len() {
            match rustix::net::send(socket, &whole[place.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => place.sent += sent,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(_) => return Ok(false),
            }
        }
        // The hello is answered before anything may follow it.
        let follows = place.attack == AttackKind::Unread && !place.is_open;
        (place.is_open, place.sent) = (true, 0);
        place.is_silent = !follows;
        let hears = follows || !place.attack.is_deaf();
        let flags = if hears { EventFlags::IN | EventFlags::RDHUP } else { EventFlags::RDHUP };
        self.watch(n, flags)?;
        Ok(true)
    }

    /// Receives the bytes that have arrived. Returns `false` if the connection ended.
    fn receive(&mut self, n: usize) -> io::Result<bool> {
        let place = &mut self.places[n];
        let Some(socket) = &place.socket else { return Ok(true) };
        if place.attack.is_deaf() {
            self.watch(n, EventFlags::OUT | EventFlags::RDHUP)?;
            return Ok(true);
        }
        match rustix::net::recv(socket, &mut self.scratch[..], RecvFlags::empty()) {
            Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            _ => Ok(false),
        }
    }

    fn watch(&self, n: usize, flags: EventFlags) -> io::Result<()> {
        let place = &self.places[n];
        let Some(socket) = &place.socket else { return Ok(()) };
        let data = EventData::new_u64(u64::from(place.dials) << 32 | n as u64);
        Ok(epoll::modify(&self.epoll, socket, data, flags)?)
    }

    /// Sends one more byte on each slow connection.
    fn drip(&mut self) -> io::Result<()> {
        for n in 0..self.places.len() {
            let place = &mut self.places[n];
            if place.attack != AttackKind::Slow || !place.is_connected {
                continue;
            }
            let Some(socket) = &place.socket else { continue };
            let Some(byte) = self.script.drop(place.sent) else { continue };
            place.sent += 1;
            if rustix::net::send(socket, byte, SendFlags::NOSIGNAL).is_err() {
                self.lose(n)?;
            }
        }
        Ok(())
    }

    /// Resets the connection and puts its place in the line.
    fn reset(&mut self, n: usize) -> io::Result<()> {
        if let Some(socket) = self.places[n].socket.take() {
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
            self.open -= 1;
        }
        self.places[n].is_connected = false;
        self.waiting.push_back(n);
        Ok(())
    }

    /// Counts the end of a connection, and puts its place in the line.
    fn lose(&mut self, n: usize) -> io::Result<()> {
        let place = &mut self.places[n];
        if place.socket.take().is_none() {
            return Ok(());
        }
        if std::mem::take(&mut place.is_connected) {
            self.open -= 1;
            self.counts.cut += 1;
            let holds = place.attack.is_deaf() || place.attack == AttackKind::HalfPayload;
            if holds && place.connected_at.elapsed() < STUCK_MIN {
                self.counts.cut_early += 1;
            }
        } else {
            self.counts.refused += 1;
        }
        // The place is not always the next one, so that the order of the attacks changes.
        let swapped = self.chance.below(self.waiting.len() as u64 + 1) as usize;
        self.waiting.push_back(n);
        let last = self.waiting.len() - 1;
        self.waiting.swap(swapped, last);
        Ok(())
    }
}

/// Returns the processor time of the calling thread; zero if the kernel does not count it.
fn own_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_that_was_cut_is_replaced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let attacks = vec![(AttackKind::HalfPayload, 1)];
        let plan = Plan { attacks, port, nvme_port: port, rate: 1000, seed: 3 };
        let raiders = RunningAttack::start(plan);
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut half = vec![0; 24 + 600_000];
            stream.read_exact(&mut half).unwrap();
            assert_eq!(half[600_000], b'x');
        }
        let counts = raiders.end().unwrap();
        assert!(counts.made >= 3 && counts.open_max == 1, "{counts:?}");
        assert!(counts.cut >= 2 && counts.cut_early == counts.cut, "{counts:?}");
    }
}
