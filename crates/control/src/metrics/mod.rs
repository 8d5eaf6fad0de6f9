//! Metrics in the text format of OpenMetrics, which Prometheus reads.
//!
//! A scrape takes a [`Snapshot`] of the sums that the control plane keeps, some tenants at a time so
//! that the book is never locked for long, and then writes it family by family, holding no lock.
//! Workers do not know of it. The families are one table (`FAMILIES`), from which the text is made
//! and docs/metrics.md is checked. What is deliberately not here: the connection that the text goes
//! to.

mod of_server;
mod of_tenants;
mod series;
mod snapshot;
mod text;

pub use series::{Family, Shape};
pub(crate) use snapshot::Detail;
pub use snapshot::Snapshot;
pub use text::{CONTENT_TYPE, write};

/// Every family, in the order of the text.
pub fn families() -> impl Iterator<Item = &'static Family> {
    of_tenants::FAMILIES.iter().chain(&of_server::FAMILIES)
}

/// What all names begin with.
pub const PREFIX: &str = "nearflash";

/// What is said of tenants in one series each, unless told otherwise: of so many of them.
pub const TENANTS_DEFAULT: usize = 500;

/// The table of docs/metrics.md.
pub fn table() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for family in families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        text += &format!(
            "| `{PREFIX}_{}` | {} | {} | {} |\n",
            family.full_name(),
            family.shape.word(),
            labels.join(", "),
            family.help
        );
    }
    text
}
