//! The figures of papers, and further ones, that need more cores, tenants or time than a small
//! machine has. They run in virtual time, and a seed decides each random choice.
//!
//! [`scenario`] has the parts of such a world, and [`flash_test_bed`] calibrates simulated drives in it.
//!
//! Each function makes one [`Figure`]: series to plot, a table with the paper's values beside the
//! measured ones, and verdicts. Deliberately left out: plots, files and the command line.

#![forbid(unsafe_code)]

mod ageing;
mod churn;
mod device;
mod fairness;
pub mod fig5;
mod fig6;
mod figure;
pub mod flash_test_bed;
mod flashnet_wa;
pub mod four;
mod gc_slo;
mod hostile;
mod models;
pub mod scenario;
mod stalls;
mod switches;
mod text;
mod tyche;

pub use ageing::ageing;
pub use churn::churn;
pub use device::{fig1, fig3};
pub use fairness::fairness;
pub use fig5::fig5;
pub use fig6::{fig6a, fig6b};
pub use figure::{Figure, Options, Series, Table, Verdict};
pub use flashnet_wa::flashnet_wa;
pub use gc_slo::gc_slo;
pub use hostile::{hostile_best_effort, hostile_critical};
pub use stalls::stalls;
pub use switches::switches;
pub use tyche::tyche;

/// A function that makes a figure.
pub type Maker = fn(&Options) -> Figure;

/// Every figure in virtual time: its name and the function that makes it.
pub const ALL: [(&str, Maker); 15] = [
    ("fig1", fig1),
    ("fig3", fig3),
    ("fig5", fig5),
    ("fig6a", fig6a),
    ("fig6b", fig6b),
    ("hostile-be", hostile_best_effort),
    ("hostile-lc", hostile_critical),
    ("fairness", fairness),
    ("churn", churn),
    ("ageing", ageing),
    ("stalls", stalls),
    ("switches", switches),
    ("flashnet-wa", flashnet_wa),
    ("gc-slo", gc_slo),
    ("tyche", tyche),
];
