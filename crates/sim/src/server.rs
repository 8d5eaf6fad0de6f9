//! The parts of a server that its workers share, and their renewal in a new process.

use std::cell::RefCell;
use std::rc::Rc;

use contract::Instant;
use flash::Rng;

use crate::control_plane::ControlPlane;
use crate::marks::{Mark, Marks};
use crate::nvme::Controllers;
use crate::plan::{ControlPlanePlan, Sabotage};
use crate::site::{self, SharedServerParts};

/// The server of a simulated world, without its workers.
pub(crate) struct Server {
    common: SharedServerParts,
    /// The present controllers, which the hosts can inspect.
    controllers: Rc<RefCell<Controllers>>,
    plan: ControlPlanePlan,
    pub(crate) control_plane: ControlPlane,
    /// `true` while every worker drains because the server restarts as a new process.
    pub(crate) is_restarting: bool,
    sabotage: Sabotage,
    /// Decides in which turns another thread holds the locks that the workers share.
    contention: Rng,
    marks: Marks,
}

impl Server {
    pub(crate) fn new(
        plan: ControlPlanePlan,
        sabotage: Sabotage,
        workers: usize,
        now: Instant,
        seed: u64,
        marks: &Marks,
    ) -> Self {
        let control_plane = ControlPlane::new(plan, workers, sabotage, now, marks);
        let common = common(&control_plane, workers, now);
        let controllers = Rc::new(RefCell::new(common.controllers.clone()));
        let contention = Rng::new(seed ^ 0xd00f);
        let (is_restarting, marks) = (false, marks.clone());
        Server {
            common,
            controllers,
            plan,
            control_plane,
            is_restarting,
            sabotage,
            contention,
            marks,
        }
    }

    /// Starts the server as a new process, which keeps only the sabotage.
    pub(crate) fn renew(&mut self, workers: usize, now: Instant, marks: &Marks) {
        self.is_restarting = false;
        self.control_plane = ControlPlane::new(self.plan, workers, self.sabotage, now, marks);
        self.common = common(&self.control_plane, workers, now);
        *self.controllers.borrow_mut() = self.common.controllers.clone();
    }

    /// Returns the promise that the server breaks on purpose.
    pub(crate) fn sabotage(&self) -> Sabotage {
        self.sabotage
    }

    /// Returns the present controllers, also after a renewal.
    pub(crate) fn controllers(&self) -> Rc<RefCell<Controllers>> {
        self.controllers.clone()
    }

    /// Returns the shared parts for one worker.
    pub(crate) fn common_of_one(&self) -> SharedServerParts {
        let mut common = self.common.clone();
        if self.sabotage == Sabotage::SeparateFences {
            common.parts = site::parts(self.control_plane.hostile());
        }
        common
    }

    /// Runs a turn of a worker. In some turns another thread is inside the fabric and the table of
    /// names.
    pub(crate) fn run<R>(&mut self, worker: usize, turn: impl FnOnce() -> R) -> R {
        if !self.contention.happens(0.25) {
            return turn();
        }
        let SharedServerParts { controllers, parts } = &self.common;
        let fabric = &controllers.fabric;
        let taken = fabric.shut_while(|| {
            let taken = parts.fences.shut_while(turn);
            (taken, fabric.is_waiting(worker as u16))
        });
        if taken.1 {
            self.marks.hit(Mark::NvmeBusy);
        }
        taken.0
    }

    /// Returns `true` if the controllers have woken a worker since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.common.controllers.take_woken()
    }
}

/// Creates the parts that the workers of a server share.
fn common(control_plane: &ControlPlane, workers: usize, now: Instant) -> SharedServerParts {
    let controllers = Controllers::new(workers, control_plane.hostile(), now);
    SharedServerParts { parts: site::parts(control_plane.hostile()), controllers }
}
