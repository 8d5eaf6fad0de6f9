//! The paper's figures that need more cores, tenants or patience than a small machine has, in
//! virtual time from a seed.
//!
//! Each function makes one [`Figure`]: series to plot, a table with the paper's figures beside ours,
//! and verdicts. What is deliberately not here: plots, files and the command line.

mod figure;

pub use figure::{Figure, Options, Series, Table, Verdict};
