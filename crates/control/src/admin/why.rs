//! The diagnosis of a tenant: where its reads spend their time, and how an operator can help

use serde::{Deserialize, Serialize};

use super::model::{DeviceStatus, DriftState, TenantStatus};
use super::violations::Violation;
use super::watch::{FlowOfWorker, Flows, Stages};
use crate::info::{grouped, time};
use crate::standing::Standing;

/// Share of a second in which the tenant's requests wait for tokens, above which the lack of tokens
/// is the cause.
const THROTTLED: f64 = 0.05;

/// Busy time of a worker in percent, above which the worker is the bottleneck.
const BUSY_PERCENT: f64 = 95.0;

/// The cause of a tenant's latency or rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The tenant asks for nothing.
    Idle,
    /// The server keeps the promise. Further time passes in the network or the client.
    Kept,
    /// Other programs have the processors of the workers.
    Machine,
    /// Requests wait for tokens.
    Tokens,
    /// A worker has no time left.
    Worker,
    /// Reads spend most of their time in the device or in its queue.
    Device,
    /// The network or the client takes replies late.
    Client,
    /// No stage of a read was measured.
    Unknown,
}

/// A stage of reads, with the time that it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// Name of the stage: `scheduler`, `device` or `reply`.
    pub stage: String,
    /// p95 in microseconds: the upper edge of a bucket that is twice as wide as the one below it;
    /// `null` without samples.
    pub p95_us: Option<f64>,
    /// Share of the time of all stages in percent.
    pub percent: f64,
}

/// The diagnosis of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Name of the tenant.
    pub tenant: String,
    /// The cause of the tenant's latency or rate.
    pub cause: Cause,
    /// The cause in a sentence, with its figures.
    pub verdict: String,
    /// The next step of an operator; `null` if there is nothing to do.
    pub advice: Option<String>,
    /// Reads answered between the two readings.
    pub reads: u64,
    /// Reads of which the stages were measured: one request in 64 is.
    pub sampled: u64,
    /// p95 of these reads in microseconds, the upper edge of a bucket; `null` without reads.
    pub p95_us: Option<f64>,
    /// The stages in the order in which a read goes through them.
    pub stages: Vec<StageTime>,
    /// The count of the latest violations of the tenant's promise, in a sentence; `null` without any.
    pub broken: Option<String>,
}

/// The evidence of a diagnosis.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The tenant to diagnose, with its measurements.
    pub tenant: &'a TenantStatus,
    /// The device of the tenant's SLO.
    pub device: &'a DeviceStatus,
    /// The activity of the server.
    pub flows: &'a Flows,
    /// The stages of the tenant's reads between two readings.
    pub stages: &'a Stages,
    /// The latest violations of all promises, the latest first.
    pub violations: &'a [Violation],
}

impl Evidence<'_> {
    /// Returns the cause of the tenant's latency or rate, with its figures and the next step.
    pub fn diagnose(&self) -> Diagnosis {
        let stages = self.stages.times();
        let (cause, verdict, advice) = self.verdict(&stages);
        Diagnosis {
            tenant: self.tenant.name.clone(),
            cause,
            verdict,
            advice,
            reads: self.stages.latency.iter().sum(),
            sampled: self.stages.device.iter().sum(),
            p95_us: self.stages.p95_us(&self.stages.latency),
            stages,
            broken: self.broken(),
        }
    }

    /// Returns in words how often the tenant's promise was broken, for how long, and the worst
    /// latency; `None` without a violation.
    fn broken(&self) -> Option<String> {
        let is_mine = |violation: &&Violation| violation.tenant == self.tenant.name;
        let mine: Vec<&Violation> = self.violations.iter().filter(is_mine).collect();
        let oldest = mine.last()?;
        let worst = mine.iter().map(|violation| violation.worst_us).fold(0.0, f64::max);
        let late: u32 = mine.iter().map(|violation| violation.late_seconds).sum();
        let starved: u32 = mine.iter().map(|violation| violation.starved_seconds).sum();
        let machine = match starved {
            0 => String::new(),
            n => format!("; in {n} of them the machine was overcommitted"),
        };
        Some(format!(
            "{} in the last {}: {late} s late, at worst {}{machine}",
            if mine.len() == 1 { "once".to_owned() } else { format!("{} times", mine.len()) },
            span(oldest.age),
            time(worst.round() as u32)
        ))
    }

    fn verdict(&self, stages: &[StageTime]) -> (Cause, String, Option<String>) {
        let has_reads = self.stages.latency.iter().any(|count| *count > 0);
        let is_active = has_reads || self.tenant.measured.iops > 0.0;
        if !is_active && self.tenant.in_flight == 0 {
            return self.idle();
        }
        // The first of equals: a read waits in the scheduler before the device has it.
        let most = stages.iter().rev().max_by(|a, b| a.percent.total_cmp(&b.percent));
        match (self.standing(), most) {
            (Standing::Over, _) => self.over_its_slo(),
            (Standing::Kept, _) if has_reads => self.kept(stages),
            _ if self.waits_for_tokens(stages) => self.out_of_tokens(stages),
            _ if self.flows.overcommitted.is_some() => self.at_machine(),
            (_, Some(most)) if most.percent > 0.0 => self.most_of_the_time(most),
            _ if is_active => self.unsampled(has_reads),
            _ => self.at_device("its requests are not answered"),
        }
    }

    /// Returns `true` if the requests wait for tokens. Of tenants with an SLO, the scheduler
    /// reports it. A best-effort tenant waits if it has reached its cap, or if its reads are mostly
    /// in the scheduler although the workers have time and the processors.
    fn waits_for_tokens(&self, stages: &[StageTime]) -> bool {
        let is_queued = stages.iter().any(|time| time.stage == "scheduler" && time.percent > 50.0);
        let has_processors = self.flows.overcommitted.is_none() && self.busy_worker().is_none();
        let is_short = is_queued && has_processors && self.device.has_model;
        match self.tenant.slo {
            Some(_) => self.tenant.measured.throttled > THROTTLED,
            None => self.is_at_cap() || is_short,
        }
    }

    /// Returns `true` if the tenant spends more than 80 % of its cap, which applies to each device.
    fn is_at_cap(&self) -> bool {
        let devices = self.flows.devices.len().max(1) as f64;
        let most = |cap: u64| self.tenant.measured.tokens > 0.8 * cap as f64 * devices;
        self.tenant.share.cap_tokens.is_some_and(most)
    }

    /// Returns `true` if a request of the tenant costs at most 5 % more than its SLO assumes. If
    /// such a tenant waits for tokens, it asks for more requests than it was promised.
    fn asks_for_more(&self) -> bool {
        let TenantStatus { slo, tokens_needed, measured, .. } = self.tenant;
        slo.as_ref().is_some_and(|slo| {
            let promised = *tokens_needed as f64 / f64::from(slo.iops.max(1));
            measured.iops > 0.0 && measured.tokens / measured.iops <= 1.05 * promised
        })
    }

    /// Returns the busiest worker if it is busy for more than [`BUSY_PERCENT`]; `None` otherwise.
    fn busy_worker(&self) -> Option<&FlowOfWorker> {
        let workers = self.flows.workers.iter();
        let busiest = workers.max_by(|a, b| a.busy_percent.total_cmp(&b.busy_percent));
        busiest.filter(|worker| worker.busy_percent > BUSY_PERCENT)
    }

    fn standing(&self) -> Standing {
        let TenantStatus { state, slo, tokens_needed, measured, .. } = self.tenant;
        let slo = slo.as_ref().and_then(|slo| slo.to_contract().ok());
        Standing::with(*state, slo, *tokens_needed, measured)
    }

    fn idle(&self) -> (Cause, String, Option<String>) {
        let (verdict, advice) = match self.tenant.connections {
            0 => (
                "no client of the tenant is connected".to_owned(),
                Some(
                    "check the client's address and token; `nearflash conn list` shows all".into(),
                ),
            ),
            n => (format!("its clients ({n} connections) ask for nothing"), None),
        };
        (Cause::Idle, verdict, advice)
    }

    fn kept(&self, stages: &[StageTime]) -> (Cause, String, Option<String>) {
        // The promise ends where the reply is handed to the socket.
        let bound = self.tenant.slo.as_ref().map_or(0.0, |slo| f64::from(slo.latency_us));
        let before = self.tenant.measured.slo_percentile_us.unwrap_or(0.0);
        let is_late = |stage: &&StageTime| {
            stage.stage == "reply" && stage.p95_us.is_some_and(|us| before + us > bound)
        };
        if let Some(reply) = stages.iter().find(is_late) {
            return self.most_of_the_time(reply);
        }
        let promised = self.tenant.slo.as_ref().map_or_else(String::new, |slo| {
            let us = self.tenant.measured.slo_percentile_us.unwrap_or(0.0);
            let (is, most) = (time(us.round() as u32), time(slo.latency_us));
            format!(": p{} of its reads is {is}, at most {most} is promised", slo.percentile)
        });
        let advice = "further time passes in the network or the client; measure from there with \
                      `nearflash bench URL --probe`";
        (Cause::Kept, format!("the server keeps the promise{promised}"), Some(advice.to_owned()))
    }

    fn over_its_slo(&self) -> (Cause, String, Option<String>) {
        let TenantStatus { name, tokens_needed, measured, .. } = self.tenant;
        let verdict = format!(
            "it asks for more than it was promised ({} of {} tokens/s), so its requests wait \
             for tokens",
            grouped(measured.tokens.round() as u64),
            grouped(*tokens_needed)
        );
        let advice = format!(
            "give it a larger promise (`nearflash tenant set {name} --iops N`), or let it ask for \
             less"
        );
        (Cause::Tokens, verdict, Some(advice))
    }

    fn out_of_tokens(&self, stages: &[StageTime]) -> (Cause, String, Option<String>) {
        let TenantStatus { name, share, measured, slo, .. } = self.tenant;
        let scheduler = stages.iter().find(|time| time.stage == "scheduler" && time.percent > 0.0);
        let spent = scheduler
            .map_or(String::new(), |time| format!(" for {:.0} % of its reads' time", time.percent));
        let verdict = format!(
            "its requests wait for tokens{spent}; it had {} tokens/s",
            grouped(measured.tokens.round() as u64)
        );
        let advice = match (slo, share.cap_tokens, self.device.tokens_left) {
            (Some(_), ..) if self.asks_for_more() => format!(
                "it asks for more than it was promised: give it a larger promise (`nearflash tenant \
                 set {name} --iops N`), or let it ask for less"
            ),
            (Some(_), ..) => format!(
                "its requests cost more than its promise assumes; `nearflash tenant show {name}` \
                 has both"
            ),
            (None, Some(cap), _) if self.is_at_cap() => {
                let cap = grouped(cap);
                format!("its cap is {cap} tokens/s: `nearflash tenant set {name} --cap N` lifts it")
            }
            (None, _, left) => format!(
                "best-effort tenants share what promises leave{}; `nearflash tenant set {name} \
                 --weight N` changes its share, a promise (--latency, --iops) makes it independent",
                left.map_or(String::new(), |left| {
                    format!(", {} tokens/s of device {}", grouped(left), self.device.name)
                })
            ),
        };
        (Cause::Tokens, verdict, Some(advice))
    }

    /// Returns the verdict on an active tenant of whose reads no stage was measured.
    fn unsampled(&self, has_reads: bool) -> (Cause, String, Option<String>) {
        match has_reads {
            true => (
                Cause::Unknown,
                "none of its few reads was sampled (of 64 requests, one is)".to_owned(),
                Some(format!("watch longer: `nearflash why {} --seconds 60`", self.tenant.name)),
            ),
            false => (
                Cause::Unknown,
                "it writes, and reads are what is measured".to_owned(),
                Some(
                    "`nearflash device list` and `nearflash worker list` have the load".to_owned(),
                ),
            ),
        }
    }

    fn most_of_the_time(&self, most: &StageTime) -> (Cause, String, Option<String>) {
        let p95 = most
            .p95_us
            .map_or(String::new(), |us| format!(" (p95 at most {})", time(us.round() as u32)));
        let spent = format!("{:.0} % of its reads' time", most.percent);
        match most.stage.as_str() {
            "device" if self.flows.devices.len() > 1 => {
                self.at_device(&format!("its devices take {spent}{p95}"))
            }
            "device" => self.at_device(&format!("device {} takes {spent}{p95}", self.device.name)),
            "reply" => (
                Cause::Client,
                format!("the network takes the replies late: {spent}{p95} pass there"),
                Some("look at the client (does it read its replies?) and at the link".to_owned()),
            ),
            _ => self.at_worker(&spent, &p95),
        }
    }

    fn at_worker(&self, spent: &str, p95: &str) -> (Cause, String, Option<String>) {
        match self.busy_worker() {
            Some(worker) => (
                Cause::Worker,
                format!(
                    "{spent}{p95} pass before the device; worker {} is busy for {:.0} % of the time",
                    worker.number, worker.busy_percent
                ),
                Some("`nearflash worker add`, or start with `--workers MIN..MAX`".to_owned()),
            ),
            None => self.at_device(&format!("{spent}{p95} pass in the queue of the device")),
        }
    }

    fn at_machine(&self) -> (Cause, String, Option<String>) {
        let verdict = self.flows.overcommitted.clone().unwrap_or_default();
        let advice = "move other programs away, or pin the workers (`cpus`); `nearflash doctor` \
                      names settings that cost speed";
        (Cause::Machine, verdict, Some(advice.to_owned()))
    }

    /// Returns the verdict that the device is the cause, with the known facts about its model. With
    /// several devices, none is named, since the tenant's reads may be on any of them.
    fn at_device(&self, what: &str) -> (Cause, String, Option<String>) {
        if self.flows.devices.len() > 1 {
            let advice = "`nearflash device list` has load and drift of all devices";
            return (Cause::Device, what.to_owned(), Some(advice.to_owned()));
        }
        let DeviceStatus { name, drift, has_model, .. } = self.device;
        let drifted = drift.as_ref().filter(|drift| drift.state == DriftState::Drifted);
        let (known, advice) = match drifted {
            Some(drift) => (
                format!(
                    "; it delivers {:.0} % of what its model says",
                    drift.percent.unwrap_or(0.0)
                ),
                format!("`nearflash device recalibrate {name}`"),
            ),
            None if !has_model => (
                "; it has no model".to_owned(),
                format!(
                    "measure it with `nearflash calibrate`; `nearflash device set {name} --model \
                     FILE` uses the result"
                ),
            ),
            None => {
                (String::new(), format!("`nearflash device show {name}` has its load and drift"))
            }
        };
        (Cause::Device, format!("{what}{known}"), Some(advice))
    }
}

impl Stages {
    /// Returns the counts since an earlier reading; all counts if the tenant was added after it.
    pub fn since(&self, earlier: &Stages) -> Stages {
        let less = |now: &[u64], before: &[u64]| -> Vec<u64> {
            let before = before.iter().chain(std::iter::repeat(&0));
            now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect()
        };
        Stages {
            edges_us: self.edges_us.clone(),
            latency: less(&self.latency, &earlier.latency),
            scheduler: less(&self.scheduler, &earlier.scheduler),
            device: less(&self.device, &earlier.device),
            reply: less(&self.reply, &earlier.reply),
        }
    }

    /// Returns the upper edge of the bucket that has the 95th percentile, or the last edge for the
    /// bucket without one; `None` without samples.
    fn p95_us(&self, counts: &[u64]) -> Option<f64> {
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let found = counts.iter().position(|count| {
            below += count;
            below > 0 && below as f64 >= all as f64 * 0.95
        })?;
        self.edges_us.get(found).or(self.edges_us.last()).copied()
    }

    /// Returns the sum of a histogram's times in microseconds. A read counts with the middle of its
    /// bucket.
    fn sum_us(&self, counts: &[u64]) -> f64 {
        let last = self.edges_us.last().copied().unwrap_or(0.0);
        let edges = self.edges_us.iter().copied().chain(std::iter::repeat(2.0 * last));
        counts.iter().zip(edges).map(|(count, edge)| *count as f64 * edge * 0.75).sum()
    }

    fn times(&self) -> Vec<StageTime> {
        let each =
            [("scheduler", &self.scheduler), ("device", &self.device), ("reply", &self.reply)];
        let all: f64 = each.iter().map(|(_, counts)| self.sum_us(counts)).sum();
        let time = |(stage, counts): &(&str, &Vec<u64>)| StageTime {
            stage: (*stage).to_owned(),
            p95_us: self.p95_us(counts),
            percent: if all > 0.0 { 100.0 * self.sum_us(counts) / all } else { 0.0 },
        };
        each.iter().map(time).collect()
    }
}

/// Returns a time span in the largest unit of which there are at least two.
fn span(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{Class, Drift, FlowOfDevice, Measured, Origin, Share, Slo, State};

    fn tenant(measured: Measured) -> TenantStatus {
        TenantStatus {
            name: "gold".to_owned(),
            number: 1,
            state: State::Active,
            origin: Origin::Operator,
            class: Class::LatencyCritical,
            device: "drive".to_owned(),
            slo: Some(Slo {
                latency_us: 500,
                percentile: 95.0,
                iops: 1_000,
                read_percent: 100,
                request_bytes: 4096,
            }),
            tokens_needed: 1_000,
            share: Share::default(),
            note: None,
            measured,
            connections: 2,
            in_flight: 3,
        }
    }

    fn late() -> Measured {
        let us = Some(900.0);
        Measured {
            iops: 500.0,
            tokens: 500.0,
            p95_us: us,
            slo_percentile_us: us,
            ..Default::default()
        }
    }

    fn device(drift: DriftState) -> DeviceStatus {
        DeviceStatus {
            name: "drive".to_owned(),
            has_model: true,
            tokens: Some(10_000),
            tokens_promised: 1_000,
            tokens_left: Some(9_000),
            tokens_headroom: 0,
            strictest: None,
            correction: None,
            drift: Some(Drift { state: drift, percent: Some(62.0), seconds: Some(9.0), why: None }),
            recalibrated: false,
            settings: None,
        }
    }

    /// Returns stages of 100 reads, each of which is in the bucket with this number.
    fn stages(scheduler: usize, device: usize, reply: usize) -> Stages {
        let in_bucket = |bucket: usize| (0..5).map(|n| 100 * u64::from(n == bucket)).collect();
        Stages {
            edges_us: vec![10.0, 20.0, 40.0, 80.0],
            latency: in_bucket(scheduler.max(device).max(reply)),
            scheduler: in_bucket(scheduler),
            device: in_bucket(device),
            reply: in_bucket(reply),
        }
    }

    fn cause(
        tenant: &TenantStatus,
        drift: DriftState,
        flows: &Flows,
        stages: &Stages,
    ) -> Diagnosis {
        Evidence { tenant, device: &device(drift), flows, stages, violations: &[] }.diagnose()
    }

    #[test]
    fn most_of_the_time_decides_if_the_promise_is_not_kept() {
        let (flows, late) = (Flows::default(), tenant(late()));
        let found = cause(&late, DriftState::Drifted, &flows, &stages(0, 3, 1));
        assert_eq!((found.cause, found.reads, found.p95_us), (Cause::Device, 100, Some(80.0)));
        assert_eq!(
            found.verdict,
            "device drive takes 73 % of its reads' time (p95 at most 80 µs); it delivers 62 % of \
             what its model says"
        );
        assert_eq!(found.advice.as_deref(), Some("`nearflash device recalibrate drive`"));
        let found = cause(&late, DriftState::Fits, &flows, &stages(0, 0, 4));
        assert_eq!((found.cause, found.stages[2].p95_us), (Cause::Client, Some(80.0)));
        let found = cause(&late, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert_eq!(found.cause, Cause::Device, "no worker is busy");
        let worker = FlowOfWorker { busy_percent: 99.0, ..FlowOfWorker::default() };
        let flows = Flows { workers: vec![worker], ..Flows::default() };
        let found = cause(&late, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert_eq!(found.cause, Cause::Worker);
    }

    #[test]
    fn what_was_broken_before_is_summed_up() {
        let one = |tenant: &str, age: f64, starved_seconds| Violation {
            tenant: tenant.to_owned(),
            device: "drive".to_owned(),
            slo: contract::Slo::new(500, 1_000, 100).into(),
            worst_us: age,
            late_seconds: 3,
            starved_seconds,
            age,
            duration: 3.0,
            goes_on: false,
        };
        let violations = [one("gold", 900.0, 0), one("other", 950.0, 0), one("gold", 7_300.0, 2)];
        let (flows, tenant) = (Flows::default(), tenant(late()));
        let (device, stages) = (device(DriftState::Fits), stages(0, 3, 1));
        let told = |violations| {
            let evidence = Evidence {
                tenant: &tenant,
                device: &device,
                flows: &flows,
                stages: &stages,
                violations,
            };
            evidence.diagnose().broken
        };
        let both = "2 times in the last 2 h: 6 s late, at worst 7300 µs; in 2 of them the machine was \
                    overcommitted";
        assert_eq!(told(&violations).as_deref(), Some(both));
        let last = "once in the last 15 min: 3 s late, at worst 900 µs";
        assert_eq!(told(&violations[..2]).as_deref(), Some(last));
        assert_eq!(told(&violations[1..2]), None);
    }

    #[test]
    fn the_machine_comes_before_its_devices() {
        let text = "the machine is overcommitted".to_owned();
        let flows = Flows { overcommitted: Some(text.clone()), ..Flows::default() };
        let found = cause(&tenant(late()), DriftState::Drifted, &flows, &stages(0, 3, 1));
        assert_eq!((found.cause, found.verdict), (Cause::Machine, text));
    }

    #[test]
    fn tokens_are_the_cause_for_those_that_ask_for_more() {
        let flows = Flows::default();
        let over = tenant(Measured { tokens: 1_500.0, ..late() });
        let found = cause(&over, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert_eq!(found.cause, Cause::Tokens);
        assert!(found.verdict.contains("1 500 of 1 000 tokens/s"), "{}", found.verdict);
        let slow = tenant(Measured { throttled: 0.5, ..late() });
        let found = cause(&slow, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert!(found.advice.unwrap().contains("asks for more than it was promised"));
        let dear = tenant(Measured { throttled: 0.5, tokens: 900.0, ..late() });
        let found = cause(&dear, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert!(found.advice.unwrap().contains("cost more than its promise assumes"));
        let mut best_effort = tenant(late());
        best_effort.slo = None;
        let found = cause(&best_effort, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert!(found.advice.unwrap().contains("9 000 tokens/s of device drive"));
        best_effort.share.cap_tokens = Some(1_000_000);
        let found = cause(&best_effort, DriftState::Fits, &flows, &stages(3, 0, 0));
        assert!(found.advice.unwrap().contains("9 000 tokens/s"), "the cap is far away");
        let starved = Flows { overcommitted: Some("overcommitted".to_owned()), ..flows };
        let found = cause(&best_effort, DriftState::Fits, &starved, &stages(3, 0, 0));
        assert_eq!(found.cause, Cause::Machine);
        best_effort.share.cap_tokens = Some(510);
        let found = cause(&best_effort, DriftState::Fits, &starved, &stages(3, 0, 0));
        assert!(found.advice.unwrap().contains("its cap is 510 tokens/s"));
    }

    #[test]
    fn kept_promises_and_silent_clients_are_told() {
        let flows = Flows::default();
        let kept = tenant(Measured { slo_percentile_us: Some(120.0), ..late() });
        let found = cause(&kept, DriftState::Fits, &flows, &stages(0, 2, 0));
        assert_eq!(found.cause, Cause::Kept);
        let text = "the server keeps the promise: p95 of its reads is 120 µs, at most 500 µs is \
                    promised";
        assert_eq!(found.verdict, text);
        let mut slow = stages(0, 0, 4);
        let found = cause(&kept, DriftState::Fits, &flows, &slow);
        assert_eq!(found.cause, Cause::Kept, "most of a time that is short");
        slow.edges_us[3] = 400.0;
        let found = cause(&kept, DriftState::Fits, &flows, &slow);
        assert_eq!(found.cause, Cause::Client, "kept at the server, and late at the client");
        let mut idle = tenant(Measured::default());
        (idle.in_flight, idle.connections) = (0, 0);
        let none = stages(0, 0, 0).since(&stages(0, 0, 0));
        let found = cause(&idle, DriftState::Fits, &flows, &none);
        assert_eq!((found.cause, found.reads, found.p95_us), (Cause::Idle, 0, None));
        assert_eq!(found.verdict, "no client of the tenant is connected");
        idle.in_flight = 3;
        let found = cause(&idle, DriftState::Fits, &flows, &none);
        assert_eq!(found.verdict, "its requests are not answered");
    }

    #[test]
    fn nothing_is_made_up_where_nothing_was_measured() {
        let flows = Flows::default();
        let none = stages(0, 0, 0).since(&stages(0, 0, 0));
        let writes = Measured { iops: 1e5, tokens: 500.0, ..Measured::default() };
        let mut writer = tenant(writes);
        let found = cause(&writer, DriftState::Fits, &flows, &none);
        assert_eq!((found.cause, found.reads), (Cause::Unknown, 0));
        assert!(found.verdict.starts_with("it writes"), "{}", found.verdict);
        writer.slo = None;
        assert_eq!(cause(&writer, DriftState::Fits, &flows, &none).cause, Cause::Unknown);
        writer.share.cap_tokens = Some(500);
        let found = cause(&writer, DriftState::Fits, &flows, &none);
        assert_eq!(found.verdict, "its requests wait for tokens; it had 500 tokens/s");
        let few = Stages { latency: vec![40, 0, 0, 0, 0], ..none };
        let found = cause(&tenant(late()), DriftState::Fits, &flows, &few);
        assert_eq!((found.cause, found.reads, found.sampled), (Cause::Unknown, 40, 0));
        assert!(found.advice.unwrap().contains("--seconds 60"));
    }

    #[test]
    fn with_several_devices_none_is_named() {
        let devices = vec![FlowOfDevice::default(), FlowOfDevice::default()];
        let flows = Flows { devices, ..Flows::default() };
        let found = cause(&tenant(late()), DriftState::Drifted, &flows, &stages(0, 3, 1));
        assert_eq!(found.cause, Cause::Device);
        assert!(found.verdict.starts_with("its devices take 73 %"), "{}", found.verdict);
        assert!(found.advice.unwrap().contains("device list"));
    }
}
