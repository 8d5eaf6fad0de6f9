//! Metrics in the text format of OpenMetrics, which Prometheus reads.
//!
//! A scrape takes a [`Snapshot`] of the control plane's sums, some tenants at a time so that the
//! registry is never locked for long. The scrape then writes the snapshot family by family, without
//! a lock. Workers are not involved. The families are one table (`FAMILIES`), from which the text
//! is made and docs/reference/metrics.md is checked. This module deliberately leaves out the connection that
//! the text is sent on.

mod of_events;
mod of_server;
mod of_tenants;
mod series;
mod snapshot;
mod text;

pub use series::{Family, Shape};
pub use snapshot::Snapshot;
pub use text::{CONTENT_TYPE, write};

/// Returns every family, in the order of the text.
pub fn families() -> impl Iterator<Item = &'static Family> {
    of_tenants::FAMILIES.iter().chain(of_server::FAMILIES).chain(of_events::FAMILIES)
}

/// The prefix of all names.
pub const PREFIX: &str = "nearflash";

/// The default number of tenants that have series of their own.
pub const TENANTS_DEFAULT: usize = 500;

/// Returns the table of docs/reference/metrics.md.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        std::fs::read_to_string(format!("{root}/{path}"))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn every_metric_is_documented() {
        let page = read("docs/reference/metrics.md");
        let table = table();
        assert!(
            page.contains(&table),
            "docs/reference/metrics.md does not have this table:\n{table}"
        );
    }

    #[test]
    fn the_dashboard_names_metrics_that_exist() {
        let dashboard = read("packaging/grafana/nearflash.json");
        let value: serde_json::Value = serde_json::from_str(&dashboard).expect("it is JSON");
        let mut expressions = Vec::new();
        for panel in value["panels"].as_array().expect("it has panels") {
            for target in panel["targets"].as_array().into_iter().flatten() {
                expressions.push(target["expr"].as_str().expect("a query").to_owned());
            }
        }
        for variable in value["templating"]["list"].as_array().into_iter().flatten() {
            expressions.extend(variable["query"].as_str().map(str::to_owned));
        }
        let known: Vec<String> = families()
            .flat_map(|family| {
                let name = format!("{PREFIX}_{}", family.full_name());
                let parts = match family.shape {
                    Shape::Histogram => &["_bucket", "_count", "_sum"][..],
                    Shape::Counter | Shape::Gauge => &[""][..],
                };
                parts.iter().map(move |part| format!("{name}{part}"))
            })
            .collect();
        let mut used = 0;
        for expression in &expressions {
            let words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            for word in words.filter(|word| word.starts_with(&format!("{PREFIX}_"))) {
                assert!(known.iter().any(|name| name == word), "{word} of {expression}");
                used += 1;
            }
        }
        assert!(used > 20, "the dashboard shows {used} metrics");
    }
}
