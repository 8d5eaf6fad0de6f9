//! The scheduling of requests: which request is submitted next, and when.
//!
//! [`TokenScheduler`] is the QoS scheduler of the paper (Algorithm 1), one for each worker and
//! device; [`PassThrough`] promises nothing. A device's [`Registry`] admits tenants against its
//! [`DeviceModel`] and creates the schedulers. docs/explanation/scheduler.md has the equations.
//!
//! This crate deliberately leaves out I/O, a clock, and the worker, which knows only the
//! [`Scheduler`](contract::Scheduler) port.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod admission;
mod any_scheduler;
mod backlog;
mod balance;
mod bucket;
pub mod calibrate;
mod correction;
mod cost_model;
mod delays;
mod depth;
mod device_model;
mod drift;
mod headroom;
mod idle_pool;
mod ledger;
mod loan;
pub mod model_file;
#[cfg(all(test, not(feature = "loom")))]
mod online;
mod pass_through;
#[cfg(all(test, not(feature = "loom")))]
mod properties;
mod queues;
mod read_ratio;
pub mod recalibrate;
#[cfg(all(test, not(feature = "loom")))]
mod reference;
#[cfg(all(test, not(feature = "loom")))]
mod reference_idle;
mod registry;
mod requests;
mod ring;
mod round;
mod rounds;
mod run;
#[cfg(all(test, not(feature = "loom")))]
mod scenarios;
mod search;
mod shared;
mod sync;
mod tax;
#[cfg(all(test, not(feature = "loom")))]
mod taxation;
mod tenant;
mod token_scheduler;
pub mod units;
mod waits;

pub use any_scheduler::AnyScheduler;
pub use balance::Balance;
pub use bucket::Bucket;
pub use correction::{Adjustment, CORRECTION_NANOS, CORRECTION_READS_MIN, Correction, Window};
pub use cost_model::{
    Cost, CostModel, CostModelError, Load, PAGE_BYTES, PRICE_MAX, SizePoint, WEIGHT_MAX,
};
pub use delays::{DelayWindow, Delays, DelaysCursor};
pub use depth::{DEPTH_MIN, DepthBound};
pub use device_model::{DeviceModel, DeviceModelError, Percentile, RatePoint};
pub use drift::{DRIFT_PERIOD, DRIFT_WINDOW, Drift, DriftUncertainty};
pub use headroom::{WINDOW_READS, WINDOW_SECONDS};
pub use idle_pool::IdlePool;
pub use ledger::Totals;
pub use loan::Loan;
pub use model_file::{ModelFile, ModelFileError, Residual};
pub use pass_through::PassThrough;
pub use queues::QueueLimits;
pub use read_ratio::{QUIET_WINDOWS, ReadRatio, WINDOW_NANOS};
pub use registry::changes::UndoCopy;
pub use registry::holding::Holding;
pub use registry::proposed_registry::ProposedPromises;
pub use registry::taxes::Taxes;
pub use registry::windows::Windows;
pub use registry::{Admission, FairShare, Registry};
pub use rounds::{CycleState, Rounds, WORKERS_MAX};
pub use shared::{ROUND_NANOS, Shared};
pub use tax::ChoreView;
pub use tenant::{Class, Usage};
pub use token_scheduler::TokenScheduler;
pub use waits::{WAITS_MAX, is_starved};
