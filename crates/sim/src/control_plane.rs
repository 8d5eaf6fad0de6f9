//! The control plane in the world: the real controller and registry, served at random times, an
//! operator who changes tenants meanwhile, and checks of the registry.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Meters, MoveRefusal, Promise, Report, Slo, TenantId, WorkerMessage};
use control::{
    DeviceSetup, Origin, State, Switches, TenantRegistry, Tenants, WorkerController, WorkerMailbox,
};
use flash::Rng;
use qos::{AnyScheduler, CostModel, DeviceModel, PassThrough, QueueLimits, RatePoint};
use worker::ControlPlaneLink;

use crate::mailbox::WatchedMailbox;
use crate::marks::{Mark, Marks};
use crate::plan::{ControlPlanePlan, Sabotage};
use crate::tenants::{self, HOSTILE, TENANTS};

/// The longest time between two turns of the control plane, in nanoseconds.
const PAUSE_MAX: u64 = 20_000_000;

/// The control plane of the simulated server, with its operator and checks.
pub(crate) struct ControlPlane {
    plan: ControlPlanePlan,
    tenants: Tenants,
    controller: WorkerController,
    boxes: Vec<Option<WorkerMailbox>>,
    chance: Rng,
    /// The time of the control plane's next turn.
    pub(crate) due: Instant,
    /// The tenants by number, as of the last turn.
    seen: Vec<Option<(String, State)>>,
    sabotage: Sabotage,
    /// `true` if a worker passed a message to another.
    passed: Rc<Cell<bool>>,
    marks: Marks,
}

impl ControlPlane {
    pub(crate) fn new(
        plan: ControlPlanePlan,
        workers: usize,
        sabotage: Sabotage,
        now: Instant,
        marks: &Marks,
    ) -> ControlPlane {
        let device = DeviceSetup {
            name: "disk".to_owned(),
            model: Some(model(plan.tokens)),
            switches: Switches::default(),
        };
        let clock = Arc::new(|| -> Instant { panic!("the world passes the time") });
        let tenants = Tenants::new(vec![device], workers, TENANTS, clock);
        let mut registry = tenants.registry();
        for name in [TenantRegistry::DEFAULT, HOSTILE] {
            let made = registry.register(name, Promise::default(), None, Origin::Configured, now);
            registry.pin(made.expect("there is room").tenant, "the world");
        }
        drop(registry);
        let (controller, boxes) = WorkerController::new(tenants.clone(), workers);
        ControlPlane {
            plan,
            tenants,
            controller,
            boxes: boxes.into_iter().map(Some).collect(),
            chance: Rng::new(plan.seed),
            due: now,
            seen: vec![None; TENANTS],
            sabotage,
            passed: Rc::default(),
            marks: marks.clone(),
        }
    }

    /// Returns the tenant of hostile clients.
    pub(crate) fn hostile(&self) -> TenantId {
        self.tenants.find(HOSTILE).expect("it is pinned")
    }

    /// Registers a tenant that stays, and returns its number.
    pub(crate) fn enlist(&mut self, name: &str, promise: Promise, now: Instant) -> TenantId {
        let mut registry = self.tenants.registry();
        let made = registry.register(name, promise, None, Origin::Configured, now);
        let tenant = made.expect("there is room").tenant;
        registry.pin(tenant, "the world");
        tenant
    }

    /// Returns a worker's connection to the control plane: its mailbox and its counters. To be
    /// called once for each worker.
    pub(crate) fn line(&mut self, worker: usize) -> ControlPlaneLink<WatchedMailbox> {
        let inner = self.boxes[worker].take().expect("a worker keeps its line");
        let doubles = self.sabotage == Sabotage::DoubledMoves;
        ControlPlaneLink {
            mailbox: WatchedMailbox::new(inner, doubles, self.passed.clone(), self.marks.clone()),
            meters: match self.sabotage == Sabotage::EarlyReuse {
                true => Arc::new(Meters::new(TENANTS)),
                false => self.tenants.meters(worker),
            },
            worker: worker as u16,
            watch: None,
        }
    }

    pub(crate) fn scheduler(&self, worker: usize, slots: usize, of_tenant: usize) -> AnyScheduler {
        match self.plan.tokens {
            None => AnyScheduler::PassThrough(PassThrough::new(of_tenant)),
            Some(_) => {
                let limits = QueueLimits { slots, of_tenant: of_tenant as u32 };
                self.tenants.scheduler(0, worker, limits)
            }
        }
    }

    /// Runs a turn of the control plane. Returns `true` if workers have mail. `in_flight_of` counts
    /// the requests of a tenant that the workers have in flight.
    pub(crate) fn look(&mut self, now: Instant, in_flight_of: impl Fn(TenantId) -> usize) -> bool {
        self.due = now + Duration::from_nanos(self.chance.within(1_000..=PAUSE_MAX));
        let busy = self.controller.serve(now);
        for report in self.controller.take_reports() {
            let Report::Moved { ended, .. } = report else { continue };
            match ended {
                Ok(_) => self.marks.hit(Mark::MovedLanded),
                Err(MoveRefusal::Busy) => self.marks.hit(Mark::MovedBusy),
                Err(MoveRefusal::Gone) => self.marks.hit(Mark::MovedGone),
                Err(MoveRefusal::Session) => {
                    self.marks.hit(self.plan.stays.expect("every session moves"));
                }
                Err(MoveRefusal::TooMany | MoveRefusal::NoRoom | MoveRefusal::Elsewhere { .. }) => {
                }
            }
        }
        if self.sabotage == Sabotage::EarlyReuse {
            self.claim_that_all_have_let_go();
        }
        self.watch(in_flight_of);
        busy
    }

    /// Sends a command to a worker.
    pub(crate) fn order(&mut self, worker: usize, tell: WorkerMessage, now: Instant) {
        self.controller.order(worker, tell);
        self.due = now;
    }

    /// Returns `true` if a worker passed a message to another since the last call.
    pub(crate) fn has_passed(&self) -> bool {
        self.passed.take()
    }

    /// Reports to the control plane that all workers have left all epochs, for workers whose
    /// counters are not observed.
    fn claim_that_all_have_let_go(&self) {
        for info in self.tenants.list() {
            let before = &self.seen[info.tenant.0 as usize];
            let was_leaving = matches!(before, Some((_, State::Leaving)));
            if info.state == State::Leaving && !was_leaving {
                for worker in 0..self.boxes.len() {
                    let meters = self.tenants.meters(worker);
                    meters.get(info.tenant).expect("a meter each").end_epoch();
                }
            }
        }
    }

    /// Checks that a number is reused only when all traces of its last tenant are gone.
    fn watch(&mut self, in_flight_of: impl Fn(TenantId) -> usize) {
        let mut seen: Vec<Option<(String, State)>> = vec![None; TENANTS];
        for info in self.tenants.list() {
            seen[info.tenant.0 as usize] = Some((info.name, info.state));
        }
        for (n, (before, after)) in self.seen.iter().zip(&seen).enumerate() {
            let was_leaving = matches!(before, Some((_, State::Leaving)));
            let is_leaving = matches!(after, Some((_, State::Leaving)));
            if was_leaving && !is_leaving {
                let tenant = TenantId(n as u32);
                let left = in_flight_of(tenant);
                assert!(left == 0, "tenant {n} is gone with {left} requests in flight");
                self.marks.hit(Mark::TenantGone);
            }
            match (before, after) {
                (_, Some((_, State::Leaving))) => self.marks.hit(Mark::TenantLeaving),
                (None, Some((name, _))) if name.len() == 1 => self.marks.hit(Mark::TenantOfClient),
                _ => {}
            }
        }
        if seen.iter().all(Option::is_some) {
            self.marks.hit(Mark::TenantsFull);
        }
        self.seen = seen;
    }

    /// Lets the operator register, change or end a tenant.
    pub(crate) fn operate(&mut self, now: Instant) {
        let slo = self.slo();
        let name = format!("operator's {}", self.chance.within(0..=2));
        let mut registry = self.tenants.registry();
        let any = |registry: &TenantRegistry, chance: &mut Rng| {
            let names = registry.names().map(str::to_owned).collect::<Vec<_>>();
            names[chance.within(0..=names.len() as u64 - 1) as usize].clone()
        };
        match self.chance.within(0..=3) {
            0 | 1 => {
                let registered = registry.register(&name, slo.into(), None, Origin::Operator, now);
                match registered {
                    Ok(_) => self.marks.hit(Mark::TenantOfOperator),
                    Err(_) => self.marks.hit(Mark::TenantRefused),
                }
            }
            2 => {
                let name = any(&registry, &mut self.chance);
                if registry.change(&name, slo.into(), now).is_ok() {
                    self.marks.hit(Mark::TenantChanged);
                }
            }
            _ => {
                let name = any(&registry, &mut self.chance);
                // The operator cannot end tenants that the world has pinned.
                let _ = registry.unregister(&name, now);
            }
        }
    }

    /// Returns a random SLO that the device may be able to keep; `None` for best effort.
    fn slo(&mut self) -> Option<Slo> {
        tenants::slo(&mut self.chance, self.plan.tokens.unwrap_or(1_000))
    }

    /// Checks that no token was created or lost beside the registry.
    pub(crate) fn check(&self, schedulers: &[&AnyScheduler]) {
        let registry = self.tenants.registry();
        let (made, held) = registry.devices().tokens(0);
        let (mut generated, mut gone) = (made.generated, made.spent + made.expired);
        for scheduler in schedulers {
            let AnyScheduler::Tokens(scheduler) = scheduler else { return };
            let totals = scheduler.totals();
            generated += totals.generated;
            gone += totals.spent + totals.expired;
        }
        assert!(
            generated == gone + held,
            "{generated} nano-units were made, {gone} are spent or expired and {held} are held"
        );
        self.marks.hit(Mark::TokensAddUp);
    }
}

fn model(tokens: Option<u64>) -> DeviceModel {
    let Some(tokens) = tokens else { return DeviceModel::unlimited() };
    let row = |latency_us, tokens: u64| {
        let rate = tokens * 100;
        RatePoint { latency_us, mixed: rate, read_only: rate }
    };
    let rows = vec![row(500, tokens), row(2_000, tokens * 3 / 2)];
    let cost = CostModel::linear(1_000, 50).expect("sound prices");
    DeviceModel::new(cost, rows, tokens * 200).expect("a sound model")
}
