//! Trials: members that lose power, a model of the data that a host may see, and runs of both.

mod exhaustive;
mod failures;
mod hand_over;
mod members;
mod model;
mod power;
mod run;
