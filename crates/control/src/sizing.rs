//! Sizing: decides how many workers serve, and which worker has too much load (paper §4.3). The
//! decision is made once a second from measurements. Time is an argument.
//!
//! A worker is added when the active workers are nearly always busy. A worker is also added when a
//! latency-critical tenant is about to miss its bound while the workers are busy more often than
//! not. A worker is retired when the others would still be idle much of the time.
//!
//! Three rules prevent oscillation. A retirement is only decided where its outcome is far below the
//! threshold that adds a worker ([`RETIRE_BELOW`] < [`STRAINED_ABOVE`]). An observation must have
//! held for a while. After each step, nothing is done for a while.
//!
//! Between two workers, half of their difference moves, by connections that make at most three
//! quarters of it. So the difference shrinks with each step, and workers never change places.
//!
//! This module deliberately leaves out the move of connections, and the nature of a worker.

use std::time::Duration;

use contract::Instant;

/// Mean busy share of the active workers above which another worker is activated.
pub const ADD_ABOVE: f64 = 0.85;

/// Mean busy share of the active workers above which another worker is activated while a
/// latency-critical tenant is about to miss its bound.
pub const STRAINED_ABOVE: f64 = 0.60;

/// Latency of a tenant relative to its bound from which the tenant is about to miss the bound.
pub const STRAIN_MAX: f64 = 0.9;

/// Maximum mean busy share of the remaining workers for a retirement.
pub const RETIRE_BELOW: f64 = 0.50;

/// Minimum difference of the busy shares of two workers for a move, and minimum busy share of the
/// busier one.
pub const UNEVEN_BY: f64 = 0.30;
const UNEVEN_ABOVE: f64 = 0.50;

/// Time for which the workers must have been too few before one is added.
pub const ADD_AFTER: Duration = Duration::from_secs(2);
/// Time for which the workers must have been too many before one is retired.
pub const RETIRE_AFTER: Duration = Duration::from_secs(10);
/// Time for which two workers must have been uneven before connections move.
pub const SHIFT_AFTER: Duration = Duration::from_secs(3);

/// Time for which a worker that received connections by a shift gives none away. The choice of
/// connections counts messages, of which one may cost a thousand times as much as another.
pub const KEEP: Duration = Duration::from_secs(60);

/// Time without further steps after a step, until its outcome has been measured.
pub const SETTLE: Duration = Duration::from_secs(4);

/// The measurements of an active worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerLoad {
    /// Number of the worker.
    pub worker: usize,
    /// Share of the time in which the worker was busy, from 0 to 1.
    pub busy: f64,
    /// Number of the worker's connections.
    pub connections: usize,
}

/// A step of the sizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingStep {
    /// Changes neither the number of workers nor their connections.
    Stay,
    /// Activates one more worker.
    Add,
    /// Retires the worker with this number: its connections move away, then it parks.
    Retire(usize),
    /// Moves connections that cause a part of their worker's load.
    Shift {
        /// The worker that gives connections.
        from: usize,
        /// The worker that receives connections.
        to: usize,
        /// The part of the load, in thousandths.
        permille: u16,
    },
}

/// The state of the sizing.
#[derive(Clone, Debug)]
pub struct Sizing {
    least: usize,
    most: usize,
    busy_since: Option<Instant>,
    idle_since: Option<Instant>,
    uneven_since: Option<Instant>,
    /// Time before which no step is taken.
    rests_until: Instant,
    /// Workers that recently received connections to balance the load, each with the time until
    /// which it gives none away.
    keeping: Vec<(usize, Instant)>,
    /// The last worker that was asked to give connections away but had no suitable ones: its
    /// number, its number of connections, and the time until which it is not asked again unless
    /// that number changes.
    asked: Option<(usize, usize, Instant)>,
}

impl Sizing {
    /// Returns a sizing that keeps the number of workers from `least` to `most`.
    pub fn new(least: usize, most: usize) -> Sizing {
        assert!((1..=most).contains(&least), "from {least} to {most} workers");
        Sizing {
            least,
            most,
            busy_since: None,
            idle_since: None,
            uneven_since: None,
            rests_until: Instant::ZERO,
            keeping: Vec::new(),
            asked: None,
        }
    }

    /// Pauses the sizing for `time`, for example because an operator has taken a step.
    pub fn rest(&mut self, now: Instant, time: Duration) {
        self.rests_until = now + time;
        (self.busy_since, self.idle_since, self.uneven_since) = (None, None, None);
    }

    /// Decides the next step. `serving` are the active workers. `strain` is the highest latency of
    /// a tenant relative to its bound: 1 is exactly the bound.
    pub fn decide(&mut self, now: Instant, serving: &[WorkerLoad], strain: f64) -> SizingStep {
        if serving.is_empty() || now < self.rests_until {
            return SizingStep::Stay;
        }
        let count = serving.len();
        let sum: f64 = serving.iter().map(|seen| seen.busy).sum();
        let mean = sum / count as f64;
        let too_few = mean >= ADD_ABOVE || (strain >= STRAIN_MAX && mean >= STRAINED_ABOVE);
        let too_many = count > 1 && sum / (count - 1) as f64 <= RETIRE_BELOW && strain < STRAIN_MAX;
        self.keeping.retain(|(_, until)| now < *until);
        let shift = uneven(serving).filter(|(from, ..)| self.may_give(now, from));
        let lasts = |since: &mut Option<Instant>, is_so: bool, after: Duration| {
            *since = if is_so { since.or(Some(now)) } else { None };
            since.is_some_and(|since| now.since(since) >= after)
        };
        let add = lasts(&mut self.busy_since, too_few && count < self.most, ADD_AFTER);
        let retire = lasts(&mut self.idle_since, too_many && count > self.least, RETIRE_AFTER);
        let moves = lasts(&mut self.uneven_since, shift.is_some(), SHIFT_AFTER);
        // Worker 0 listens, so it stays.
        let last = serving.iter().map(|seen| seen.worker).max().filter(|last| *last > 0);
        let step = match (add, retire, last, shift) {
            (true, ..) => SizingStep::Add,
            (_, true, Some(last), _) => SizingStep::Retire(last),
            (_, _, _, Some((from, to, permille))) if moves => {
                self.keeping.push((to, now + KEEP));
                self.asked = Some((from.worker, from.connections, now + KEEP));
                SizingStep::Shift { from: from.worker, to, permille }
            }
            _ => return SizingStep::Stay,
        };
        self.rest(now, SETTLE);
        step
    }

    /// Forgets the last order to give connections away, which was not sent to the worker.
    pub fn forget_shift(&mut self) {
        self.keeping.pop();
        self.asked = None;
    }

    /// Returns `true` if a worker may be asked to give some of its connections to another.
    fn may_give(&self, now: Instant, from: &WorkerLoad) -> bool {
        let in_vain = self.asked.is_some_and(|(worker, connections, until)| {
            worker == from.worker && from.connections >= connections && now < until
        });
        !in_vain && self.keeping.iter().all(|(worker, _)| *worker != from.worker)
    }
}

/// Returns the shift that would balance the busiest and the idlest worker: source, destination, and
/// the part of the source's load in thousandths. Returns `None` if they are not far enough apart.
fn uneven(serving: &[WorkerLoad]) -> Option<(WorkerLoad, usize, u16)> {
    let by_busy = |a: &&WorkerLoad, b: &&WorkerLoad| a.busy.total_cmp(&b.busy);
    let (busiest, idlest) = (serving.iter().max_by(by_busy)?, serving.iter().min_by(by_busy)?);
    let apart = busiest.busy - idlest.busy;
    // A single connection cannot be divided.
    if apart < UNEVEN_BY || busiest.busy < UNEVEN_ABOVE || busiest.connections < 2 {
        return None;
    }
    let share = apart / (2.0 * busiest.busy);
    Some((*busiest, idlest.worker, (share * 1e3).round() as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server in virtual time, with the demand of its connections in seconds of work per second.
    struct Server {
        sizing: Sizing,
        /// The demand of each connection, by active worker.
        workers: Vec<Vec<f64>>,
        now: Instant,
        /// The steps taken, each with its second.
        steps: Vec<(u64, SizingStep)>,
        /// The demand that a connection's messages indicate.
        messages: fn(f64) -> f64,
    }

    impl Server {
        fn new(least: usize, most: usize, connections: usize, each: f64) -> Server {
            let mut workers = vec![Vec::new(); least];
            (0..connections).for_each(|n| workers[n % least].push(each));
            let now = Instant::from_nanos(1_000_000_000);
            let sizing = Sizing::new(least, most);
            Server { sizing, workers, now, steps: Vec::new(), messages: |load| load }
        }

        fn load(&mut self, each: f64) {
            self.workers.iter_mut().flatten().for_each(|load| *load = each);
        }

        /// Advances time. `strain` is the strain of the tenants as a function of the busiest
        /// worker's load.
        fn run(&mut self, seconds: u64, strain: impl Fn(f64) -> f64) {
            for _ in 0..seconds {
                self.now = self.now + Duration::from_secs(1);
                let seen: Vec<WorkerLoad> = self
                    .workers
                    .iter()
                    .enumerate()
                    .map(|(worker, conns)| WorkerLoad {
                        worker,
                        busy: conns.iter().sum::<f64>().min(1.0),
                        connections: conns.len(),
                    })
                    .collect();
                let most = seen.iter().map(|seen| seen.busy).fold(0.0, f64::max);
                let step = self.sizing.decide(self.now, &seen, strain(most));
                self.carry_out(step);
                if step != SizingStep::Stay {
                    self.steps.push((self.now.as_nanos() / 1_000_000_000, step));
                }
            }
        }

        fn carry_out(&mut self, step: SizingStep) {
            match step {
                SizingStep::Stay => {}
                SizingStep::Add => {
                    let count = self.workers.len() + 1;
                    let mut new = Vec::new();
                    for worker in &mut self.workers {
                        let stay = worker.len() - worker.len() / count;
                        new.extend(worker.drain(stay..));
                    }
                    self.workers.push(new);
                }
                SizingStep::Retire(last) => {
                    assert_eq!(last, self.workers.len() - 1);
                    let homeless = self.workers.pop().unwrap();
                    let count = self.workers.len();
                    for (n, load) in homeless.into_iter().enumerate() {
                        self.workers[n % count].push(load);
                    }
                }
                SizingStep::Shift { from, to, permille } => {
                    // Like a worker's choice (crates/worker/src/migration.rs), which goes by
                    // messages.
                    let messages = self.messages;
                    let sum: f64 = self.workers[from].iter().copied().map(messages).sum();
                    let (wanted, mut taken) = (sum * f64::from(permille) / 1e3, 0.0);
                    let all = std::mem::take(&mut self.workers[from]);
                    for load in all {
                        let with = taken + messages(load);
                        let goes = taken < wanted && with <= 1.5 * wanted;
                        if goes {
                            taken = with;
                        }
                        self.workers[if goes { to } else { from }].push(load);
                    }
                }
            }
        }
    }

    fn calm(_: f64) -> f64 {
        0.1
    }

    #[test]
    fn workers_follow_the_load_up_and_down() {
        let mut server = Server::new(1, 4, 64, 0.001);
        server.run(60, calm);
        assert_eq!(server.steps, [], "one is enough");
        server.load(0.03); // 1.9 workers' worth
        server.run(60, calm);
        assert_eq!(server.workers.len(), 3, "{:?}", server.steps);
        server.load(0.05); // 3.2
        server.run(60, calm);
        assert_eq!(server.workers.len(), 4);
        server.load(0.2); // more than there is
        server.run(60, calm);
        assert_eq!(server.workers.len(), 4, "not more than were allowed");
        server.load(0.01); // 0.64
        server.run(120, calm);
        assert_eq!(server.workers.len(), 2);
        server.load(0.001);
        server.run(60, calm);
        assert_eq!(server.workers.len(), 1);
        assert!(server.steps.len() <= 8, "{:?}", server.steps);
    }

    #[test]
    fn a_load_at_any_border_settles() {
        for load in (1..400).map(|n| f64::from(n) / 100.0) {
            for strain in [calm as fn(f64) -> f64, |busy: f64| busy / 0.7] {
                let mut server = Server::new(1, 4, 96, load / 96.0);
                server.run(120, strain);
                let before = server.steps.clone();
                server.run(600, strain);
                assert_eq!(server.steps, before, "load {load}: to and fro");
                // From above as well.
                let mut server = Server::new(1, 4, 96, 1.0);
                server.run(60, strain);
                server.load(load / 96.0);
                server.run(200, strain);
                let before = server.steps.clone();
                server.run(600, strain);
                assert_eq!(server.steps, before, "load {load} from above: to and fro");
            }
        }
    }

    #[test]
    fn a_noisy_load_at_the_border_is_answered_rarely() {
        let mut server = Server::new(1, 2, 50, 0.0);
        let mut chance = 7_u64;
        for _ in 0..3_600 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = (chance >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
            server.load((0.85 + 0.2 * noise) / 50.0);
            server.run(1, calm);
        }
        assert!(server.steps.len() <= 1, "{:?}", server.steps);
    }

    #[test]
    fn latency_adds_a_worker_before_the_load_does() {
        let mut server = Server::new(1, 2, 10, 0.07);
        server.run(60, calm);
        assert_eq!(server.steps, [], "busy for 70 % is no trouble by itself");
        server.run(60, |_| 0.95);
        assert_eq!(server.workers.len(), 2);
        // Late although the load is low: another worker would not help.
        let mut server = Server::new(1, 2, 10, 0.03);
        server.run(60, |_| 3.0);
        assert_eq!(server.steps, []);
    }

    #[test]
    fn a_short_peak_adds_nobody_and_a_short_lull_retires_nobody() {
        let mut server = Server::new(1, 2, 10, 0.02);
        for _ in 0..50 {
            server.load(0.1);
            server.run(1, calm);
            server.load(0.02);
            server.run(3, calm);
        }
        assert_eq!(server.steps, []);
        let mut server = Server::new(1, 2, 10, 0.1);
        server.run(20, calm);
        assert_eq!(server.workers.len(), 2);
        for _ in 0..20 {
            server.load(0.01);
            server.run(8, calm);
            server.load(0.08);
            server.run(2, calm);
        }
        assert_eq!(server.workers.len(), 2);
    }

    #[test]
    fn connections_shift_from_whoever_has_too_much() {
        let mut server = Server::new(2, 2, 0, 0.0);
        server.workers[0] = vec![0.1; 8];
        server.workers[1] = vec![0.1; 1];
        server.run(60, calm);
        let busy: Vec<f64> = server.workers.iter().map(|conns| conns.iter().sum()).collect();
        assert!((busy[0] - busy[1]).abs() < UNEVEN_BY, "{busy:?}");
        assert!(server.steps.len() <= 2, "{:?}", server.steps);
        // A connection that cannot be divided stays.
        let mut server = Server::new(2, 2, 0, 0.0);
        server.workers[0] = vec![0.9];
        server.run(60, calm);
        assert_eq!(server.steps, []);
    }
    /// Returns two workers with these connections, in virtual time.
    fn two(loads: [&[f64]; 2]) -> Server {
        let mut server = Server::new(2, 2, 0, 0.0);
        server.workers = loads.map(<[f64]>::to_vec).to_vec();
        server
    }

    fn apart(server: &Server) -> f64 {
        let busy: Vec<f64> = server.workers.iter().map(|conns| conns.iter().sum()).collect();
        (busy[0] - busy[1]).abs()
    }

    #[test]
    fn a_heavy_connection_with_light_ones_behind_it_does_not_go_to_and_fro() {
        let light = [0.02; 10];
        let heavy: Vec<f64> = [0.7].into_iter().chain([0.02; 5]).collect();
        let mut server = two([&heavy, &light[..2]]);
        server.run(60, calm);
        let before = server.steps.clone();
        server.run(3_600, calm);
        assert_eq!(server.steps.len() - before.len(), 0, "{:?}", server.steps);
        assert!(server.workers[0].contains(&0.7), "the others made room for it");
        // Another connection suffices.
        let mut server = two([&[0.5, 0.3, 0.1, 0.05], &light[..2]]);
        server.run(60, calm);
        assert!(apart(&server) < UNEVEN_BY, "{:?}", server.workers);
    }

    #[test]
    fn unequal_connections_settle_however_they_lie() {
        let mut chance = 11_u64;
        let mut draw = || {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 40) as f64 / (1u64 << 24) as f64
        };
        for _ in 0..500 {
            let mut server = two([&[], &[]]);
            for _ in 0..2 + (draw() * 12.0) as usize {
                let load = 0.6 * draw().powi(3);
                server.workers[usize::from(draw() < 0.3)].push(load);
            }
            let begun = apart(&server);
            server.run(120, calm);
            assert!(apart(&server) <= begun + 1e-9);
            let before = server.workers.clone();
            server.run(1_200, calm);
            assert_eq!(server.workers, before, "{:?}", server.steps);
        }
    }

    #[test]
    fn who_was_not_told_is_asked_again() {
        let seen = |worker, busy| WorkerLoad { worker, busy, connections: 40 };
        let serving = [seen(0, 0.9), seen(1, 0.1)];
        let shifts = |is_told: bool| {
            let mut sizing = Sizing::new(2, 2);
            let looks = (0..KEEP.as_secs()).map(|n| Instant::ZERO + Duration::from_secs(n));
            let asked = looks.filter(|now| {
                let asks = matches!(sizing.decide(*now, &serving, 0.0), SizingStep::Shift { .. });
                if asks && !is_told {
                    sizing.forget_shift();
                }
                asks
            });
            asked.count()
        };
        assert_eq!(shifts(true), 1);
        assert!(shifts(false) > 1);
    }

    /// Tests that a worker keeps received connections for [`KEEP`], even if messages do not tell
    /// the load that a connection causes.
    #[test]
    fn a_worker_that_was_given_something_keeps_it_for_a_while() {
        let mut server = two([&[0.7, 0.02, 0.02, 0.02], &[0.02, 0.02]]);
        server.messages = |_| 1.0;
        server.run(600, calm);
        assert!(!server.steps.is_empty());
        for two in server.steps.windows(2) {
            let [
                (at, SizingStep::Shift { from, .. }),
                (later, SizingStep::Shift { from: back, .. }),
            ] = two
            else {
                panic!("{:?}", server.steps)
            };
            assert!(from == back || later - at >= KEEP.as_secs(), "{:?}", server.steps);
        }
    }
}
