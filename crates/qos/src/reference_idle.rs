//! The oracle for tenants without demand: they are not visited, and a few of their requests are
//! submitted at once, without a visit (the "short way") (docs/explanation/scheduler.md, "Tenants
//! without demand").
//!
//! The oracle still looks at every tenant in every round, and each idle tenant makes its own
//! tokens: there is no pool, no packed word and no heap.

use alloc::vec::Vec;

use crate::ledger::spare;
use crate::reference::Reference;
use crate::units::{NANO, NEG_LIMIT, ROUND_NANOS_MAX, STALL_NANOS_MAX, generated, nano};
use crate::{Cost, Load};

/// The state of a tenant between its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    /// `true` if the tokens of the tenant's rate go to the tenant; `false` if they go to the
    /// bucket.
    held: bool,
    /// `true` if the tenant is held and has no demand.
    rests: bool,
    /// The time at which the resting tenant's balance should be full.
    due: Option<u64>,
    /// The time up to which the tenant's own tokens were generated.
    made_to: u64,
    /// The time up to which the rate of a tenant that is not held has been spent.
    spent_to: u64,
}

impl Reference {
    /// Starts the oracle at this time with all tenants idle and the bucket unchanged.
    pub(crate) fn start_idle(&mut self, time: u64, bucket: i64) {
        (self.bucket, self.settled_to) = (bucket, time);
        for t in &mut self.tenants {
            t.idle = Idle { made_to: time, spent_to: time, ..Idle::default() };
        }
    }

    /// Queues a request.
    pub(crate) fn enqueue_idle(&mut self, n: usize, cost: Cost) {
        self.tenants[n].queue.push_back(cost);
        if self.tenants[n].idle.rests {
            self.tenants[n].idle.rests = false;
            self.enter(n);
        } else if !self.tenants[n].idle.held && !self.newcomers.contains(&n) {
            self.newcomers.push(n);
        }
    }

    fn enter(&mut self, n: usize) {
        match self.tenants[n].rate {
            Some(_) => self.critical.push(n),
            None => self.best_effort.push(n),
        }
    }

    /// Returns the number of best-effort tenants, and the units a second that each tenant
    /// gets.
    fn shares(&self) -> (u64, u64) {
        let count = self.tenants.iter().filter(|t| t.rate.is_none()).count() as u64;
        (count, self.unallocated / count.max(1))
    }

    /// Runs a round, and returns the tenants of the submitted requests in order.
    pub(crate) fn schedule_idle(&mut self, time: u64, load: Load) -> Vec<usize> {
        let (time, _, delta) = self.begin(time, load);
        let mut submitted = Vec::new();
        let (count, share) = self.shares();
        // Who is idle makes tokens for the bucket, and so does what is left of the shares.
        let idle = self.tenants.iter().filter(|t| !t.idle.held);
        let idle: u64 = idle.map(|t| t.rate.unwrap_or(share)).sum();
        let rest = if count == 0 { share } else { self.unallocated % count };
        let since = (time - self.settled_to).min(ROUND_NANOS_MAX);
        self.settled_to = time;
        self.bucket += generated(idle, since) + generated(rest, since);
        self.take_newcomers(time, share, &mut submitted);
        self.visit_dues(time);
        // Lines 4 to 12.
        let order = self.critical.clone();
        for n in &order {
            self.earn_since(*n, time);
            self.submit_critical(*n, &mut submitted);
            let donated = self.donate(*n);
            self.rest_if_idle(*n, time, donated);
        }
        if !order.is_empty() && self.critical.first() == order.first() {
            self.critical.rotate_left(1);
        }
        // Lines 13 to 21.
        let lendable = spare(generated(share * count, delta));
        let due = self.loan.min(lendable);
        for n in self.best_effort.clone() {
            let made = generated(share, self.claim(n, time).min(STALL_NANOS_MAX));
            self.collect(n, made, due, lendable);
        }
        self.serve_and_release(time, &mut submitted);
        if self.bucket > 0 {
            self.serve_and_release(time, &mut submitted);
        }
        if count == 0 {
            for n in self.critical.clone() {
                self.schedule_leftovers(n, &mut submitted);
                self.rest_if_idle(n, time, false);
            }
        }
        // Lines 22 and 23, with one thread. Debts stay.
        self.bucket = self.bucket.min(0);
        submitted
    }

    /// Serves the active best-effort tenants (lines 15 to 18), and releases the ones that have no
    /// demand left.
    fn serve_and_release(&mut self, time: u64, submitted: &mut Vec<usize>) {
        let order = self.best_effort.clone();
        self.serve_best_effort(submitted);
        for n in order {
            if !self.best_effort.contains(&n) {
                self.release(n, time);
            }
        }
    }

    /// Submits the requests of tenants with new demand at once (the "short way"), or else holds the
    /// tenants.
    fn take_newcomers(&mut self, time: u64, share: u64, submitted: &mut Vec<usize>) {
        let mut room = self.bucket;
        let mut spent = 0;
        for n in core::mem::take(&mut self.newcomers) {
            let units = self.tenants[n].demand(self.load) / NANO;
            if self.goes_short(n, time, units, share, room) {
                room -= units * NANO;
                spent += units * NANO;
                submitted.extend(self.tenants[n].queue.drain(..).map(|_| n));
                continue;
            }
            let t = &mut self.tenants[n];
            t.idle.held = true;
            t.idle.made_to = time;
            if let Some(rate) = t.rate {
                let unused = time.saturating_sub(t.idle.spent_to).min(STALL_NANOS_MAX);
                t.remember(generated(rate, unused));
                let ahead = t.idle.spent_to.saturating_sub(time);
                let debt = generated(rate, ahead).min(-NEG_LIMIT);
                t.tokens -= debt;
                self.bucket += debt;
                t.idle.spent_to = t.idle.spent_to.min(time);
            }
            self.enter(n);
        }
        self.bucket -= spent;
    }

    /// Returns `true` if a tenant's requests may be submitted at once, by the table of "The short
    /// way". Their price is then spent from the tenant's rate.
    fn goes_short(&mut self, n: usize, time: u64, units: i64, share: u64, room: i64) -> bool {
        let t = &mut self.tenants[n];
        let spent_to = t.idle.spent_to;
        if nano(units as u64) > -NEG_LIMIT {
            return false;
        }
        let Some(rate) = t.rate else {
            let longest = if t.queue.len() == 1 { u64::MAX } else { ROUND_NANOS_MAX };
            let made = generated(share, time.saturating_sub(spent_to).min(longest));
            let goes = made >= units * NANO && room >= units * NANO;
            if goes {
                t.idle.spent_to = time;
            }
            return goes;
        };
        let ahead = spent_to.saturating_sub(time) + (units * NANO) as u64 / rate;
        let goes = t.tokens >= 0 && generated(rate, ahead) <= -NEG_LIMIT;
        if goes {
            t.idle.spent_to = time + ahead + 1; // to the next whole nanosecond
            let unused = time.saturating_sub(spent_to).min(STALL_NANOS_MAX);
            t.remember(generated(rate, unused));
        }
        goes
    }

    /// Returns the nanoseconds for which a held tenant has not generated tokens yet, and counts
    /// them as used.
    fn claim(&mut self, n: usize, time: u64) -> u64 {
        let from = core::mem::replace(&mut self.tenants[n].idle.made_to, time);
        time - from
    }

    fn earn_since(&mut self, n: usize, time: u64) {
        let time_delta = self.claim(n, time);
        self.earn(n, time_delta);
    }

    /// Visits resting tenants whose balance is full by now: they donate and become idle.
    fn visit_dues(&mut self, time: u64) {
        let dues = self.tenants.iter().enumerate().filter_map(|(n, t)| Some((t.idle.due?, n)));
        let mut dues: Vec<(u64, usize)> = dues.filter(|(due, _)| *due <= time).collect();
        dues.sort_unstable();
        for (_, n) in dues {
            self.tenants[n].idle.due = None;
            if self.tenants[n].idle.rests {
                self.earn_since(n, time);
                let donated = self.donate(n);
                self.rest(n, time, donated);
            }
        }
    }

    fn rest_if_idle(&mut self, n: usize, time: u64, donated: bool) {
        if self.tenants[n].queue.is_empty() {
            self.critical.retain(|other| *other != n);
            self.rest(n, time, donated);
        }
    }

    /// Keeps a latency-critical tenant without demand until its balance should be full, or releases
    /// it if it has donated.
    fn rest(&mut self, n: usize, time: u64, donated: bool) {
        if donated {
            return self.release(n, time);
        }
        let rate = self.tenants[n].rate.unwrap();
        let missing = self.pos_limit(rate) - self.tenants[n].tokens;
        let idle = &mut self.tenants[n].idle;
        idle.rests = true;
        let wait = u64::try_from(missing).map_or(1, |missing| missing / rate + 1);
        idle.due.get_or_insert(time + wait);
    }

    /// Releases a tenant: its tokens go to the bucket from now on.
    fn release(&mut self, n: usize, time: u64) {
        let t = &mut self.tenants[n];
        (t.idle.held, t.idle.rests) = (false, false);
        if t.rate.is_some() {
            t.idle.spent_to = t.idle.spent_to.max(time);
        }
    }
}
