//! A simulated worker, with everything that is needed to create the worker again.

use std::rc::Rc;
use std::sync::Arc;

use contract::{BufPool, Instant, NamespaceId, Rights, TenantId, TurnOutcome};
use flash::{ExclusiveQueue, FaultSwitch};
use proto::nvme_tcp::WorkerFabric;
use qos::AnyScheduler;
use worker::{
    AccessRules, AccessScope, ControlPlaneLink, DeviceLane, ListenerBinding, Listeners, Namespace,
    Namespaces, PeerPattern, PeerRule, SharedState, Worker,
};

use crate::arena::Arena;
use crate::control_plane::ControlPlane;
use crate::disk::{Disk, Volume};
use crate::layout::{BLOCKS, HOSTILE_BLOCKS};
use crate::mailbox::WatchedMailbox;
use crate::marks::{Mark, Marks};
use crate::nvme::Controllers;
use crate::plan::{Sabotage, WorkerPlan};
use crate::port::Port;
use crate::spoken::{SimulatedSession, SimulatedSessions};
use crate::tenants::HOSTILE;

pub(crate) type SimulatedWorker =
    Worker<Port, Disk, AnyScheduler, SimulatedSession, WatchedMailbox, SimulatedSessions>;

/// The parts that the workers of a server share.
#[derive(Clone)]
pub(crate) struct SharedServerParts {
    pub(crate) parts: Arc<SharedState>,
    pub(crate) controllers: Controllers,
}

/// A simulated worker, with the parts from which it can be created again.
pub(crate) struct Site {
    /// The worker; `None` only while it is created again.
    worker: Option<SimulatedWorker>,
    plan: WorkerPlan,
    pub(crate) port: Port,
    volume: Volume,
    sabotage: Sabotage,
    switch: FaultSwitch,
    /// The time at which the present stall of the worker's device ends; `None` without a stall.
    pub(crate) stalled_until: Option<Instant>,
    faults_counted: (u64, u64),
    marks: Marks,
}

impl Site {
    pub(crate) fn new(
        plan: WorkerPlan,
        port: Port,
        volume: Volume,
        common: &SharedServerParts,
        sabotage: Sabotage,
        control_plane: &mut ControlPlane,
        arena: &mut Arena,
    ) -> Self {
        let marks = volume.marks.clone();
        let mut site = Site {
            worker: None,
            plan,
            port,
            volume,
            sabotage,
            switch: FaultSwitch::default(),
            stalled_until: None,
            faults_counted: (0, 0),
            marks,
        };
        let (line, scheduler) = site.scheduler_of(control_plane);
        site.make(common, line, scheduler, arena);
        site
    }

    /// Returns the worker's mailbox connection and scheduler in this server.
    fn scheduler_of(
        &self,
        control_plane: &mut ControlPlane,
    ) -> (ControlPlaneLink<WatchedMailbox>, AnyScheduler) {
        let slots = self.plan.limits.in_flight;
        let scheduler = control_plane.scheduler(self.plan.number, slots, self.plan.queue_max);
        (control_plane.line(self.plan.number), scheduler)
    }

    fn make(
        &mut self,
        common: &SharedServerParts,
        line: ControlPlaneLink<WatchedMailbox>,
        scheduler: AnyScheduler,
        arena: &mut Arena,
    ) {
        let bytes = ExclusiveQueue::<Disk>::scratch_bytes(self.plan.disk.granularity_bytes);
        let scratch = (0..self.plan.scratch).map(|n| arena.take(bytes, n as u32)).collect();
        let seed = self.plan.disk.faults.seed;
        let disk = Disk::new(&self.volume, &self.plan.disk, scratch, seed);
        self.switch = disk.switch();
        self.faults_counted = (0, 0);
        let fabric = common.controllers.fabric.clone();
        let sessions = SimulatedSessions {
            desk: Rc::new(WorkerFabric::new(fabric, self.plan.number as u16)),
            scatter: self.sabotage == Sabotage::ScatteredStreams,
            unfence: self.sabotage == Sabotage::UnfencedControllers,
            marks: self.marks.clone(),
        };
        let attached = DeviceLane::new(disk, scheduler);
        let pool = arena.pool(&self.plan.pool);
        let (port, limits) = (self.port.clone(), self.plan.limits);
        let (devices, parts) = (vec![attached], common.parts.clone());
        let worker = Worker::with_sessions(port, devices, pool, parts, limits, sessions, line);
        self.worker = Some(worker);
    }

    pub(crate) fn served(&self) -> &SimulatedWorker {
        self.worker.as_ref().expect("it is not being made")
    }

    pub(crate) fn worker(&mut self) -> &mut SimulatedWorker {
        self.worker.as_mut().expect("it is not being made")
    }

    /// Returns `true` if the worker has no connections, and no messages or replies for connections
    /// are in transfer.
    pub(crate) fn is_drained(&self) -> bool {
        self.served().is_drained() && self.port.is_settled()
    }

    /// Starts a drained worker again: in the same server, which keeps its line, or in a new one.
    pub(crate) fn restart(
        &mut self,
        common: &SharedServerParts,
        control_plane: Option<&mut ControlPlane>,
        arena: &mut Arena,
    ) {
        let (line, scheduler) = self.take_apart(arena);
        let (line, scheduler) = match control_plane {
            Some(control_plane) => self.scheduler_of(control_plane),
            None => (line, scheduler),
        };
        self.make(common, line, scheduler, arena);
    }

    /// Ends a worker at rest, and gives its memory to the arena. Returns its line and its
    /// scheduler.
    pub(crate) fn take_apart(
        &mut self,
        arena: &mut Arena,
    ) -> (ControlPlaneLink<WatchedMailbox>, AnyScheduler) {
        assert!(self.worker().is_at_rest(), "a drained worker is not at rest: {:?}", self.load());
        let mut worker = self.worker.take().expect("it is not being made");
        for disk in worker.ports().1 {
            assert!(disk.in_flight() == 0, "a drained worker's device still works");
            arena.give(disk.take_scratch());
        }
        let (pool, line, mut schedulers): (BufPool, _, _) = worker.into_parts();
        arena.give(pool.into_bufs());
        (line, schedulers.pop().expect("it has a device"))
    }

    fn load(&mut self) -> worker::ResourceUse {
        self.worker().load()
    }

    pub(crate) fn turn(&mut self, now: Instant) -> TurnOutcome {
        if self.stalled_until.is_some_and(|until| until <= now) {
            self.stalled_until = None;
            self.switch.release();
        }
        let turn = self.worker().turn(now);
        let load = self.load();
        let limit = self.plan.limits.carried;
        assert!(load.carried <= limit, "{} bytes carried, at most {limit}", load.carried);
        let buffers: usize = self.plan.pool.iter().map(|class| class.count).sum();
        if load.buffers + 1 >= buffers {
            self.marks.hit(Mark::PoolEmpty);
        }
        if load.put_off > 0 {
            self.marks.hit(Mark::NvmeWaited);
        }
        if load.fenced > 0 {
            self.marks.hit(Mark::NvmeFenced);
        }
        let worker = self.worker();
        if worker.connections() == 0 && worker.ports().1.any(|disk| disk.in_flight() > 0) {
            self.marks.hit(Mark::FinishedAfterClose);
        }
        let (failed, torn) = (self.switch.failed(), self.switch.torn());
        self.marks.add(Mark::DeviceFailed, failed - self.faults_counted.0);
        self.marks.add(Mark::DeviceTorn, torn - self.faults_counted.1);
        self.faults_counted = (failed, torn);
        turn
    }

    /// Stalls the device: no command completes before `until`.
    pub(crate) fn stall(&mut self, until: Instant) {
        self.marks.hit(Mark::DeviceStalled);
        self.switch.stall();
        self.stalled_until = Some(self.stalled_until.map_or(until, |other| other.max(until)));
    }

    pub(crate) fn describe(&mut self) -> String {
        let worker = self.worker();
        let (load, connections) = (worker.load(), worker.connections());
        let drained = worker.is_drained();
        let in_flight: usize = worker.ports().1.map(|disk| disk.in_flight()).sum();
        format!(
            "worker: {connections} connections, {load:?}, {in_flight} at the device, drained \
             {drained}, stalled until {:?}\n  {:?}",
            self.stalled_until, self.plan.limits
        )
    }
}

/// Creates the parts that the workers of a server share.
pub(crate) fn parts(hostile: TenantId) -> Arc<SharedState> {
    let namespace = |first, blocks| Namespace { device: 0, first, blocks, read_only: false };
    let namespaces = vec![namespace(0, BLOCKS), namespace(BLOCKS, HOSTILE_BLOCKS)];
    let rule = |network: [u8; 4], tenant, tenant_name: &str, scope| PeerRule {
        who: PeerPattern::Network { address: network.into(), prefix: 16 },
        tenant,
        tenant_name: tenant_name.to_owned(),
        register: true,
        scope,
    };
    let (first, second) = (NamespaceId(1), NamespaceId(2));
    let reading = Rights { read: true, write: false };
    let rules = vec![
        rule([10, 0, 0, 0], TenantId::DEFAULT, "", AccessScope::Only(vec![(first, Rights::ALL)])),
        rule([10, 2, 0, 0], TenantId::DEFAULT, "", AccessScope::Only(vec![(first, Rights::ALL)])),
        rule([10, 3, 0, 0], TenantId::DEFAULT, "", AccessScope::Only(vec![(first, Rights::ALL)])),
        rule([10, 4, 0, 0], TenantId::DEFAULT, "", AccessScope::Only(vec![(first, Rights::ALL)])),
        rule(
            [10, 9, 0, 0],
            hostile,
            HOSTILE,
            AccessScope::Only(vec![(first, reading), (second, Rights::ALL)]),
        ),
    ];
    let parts = SharedState::new(Namespaces::new(namespaces), AccessRules::new(rules));
    let listeners = Listeners::of([(); 3].map(|()| ListenerBinding::to(first)));
    Arc::new(SharedState { listeners, ..parts })
}
