//! Trials: members that lose power, a model of what a host may see, and runs of both.

mod exhaustive;
mod failures;
mod members;
mod model;
mod power;
mod run;
