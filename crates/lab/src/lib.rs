//! Measurements and demonstrations of nearflash: the commands `bench`, `calibrate`, `demo`,
//! `reproduce` and `trace`, the paper's figures in real and in virtual time, and their plots.
#![forbid(unsafe_code)]

#[macro_use]
pub mod print;

pub mod bench;
pub mod calibrate;
mod child;
pub mod command;
mod crowd;
pub mod demo;
mod four;
pub mod ftl;
pub mod machine;
mod plot;
pub mod report;
pub mod reproduce;
mod stage;
mod stalls;
pub mod trace;
