//! Metrics in the text format of OpenMetrics, which Prometheus reads.
//!
//! A scrape takes a [`Snapshot`] of the control plane's sums, some tenants at a time so that the
//! registry is never locked for long. The scrape then writes the snapshot family by family, without
//! a lock. Workers are not involved. The families are one table (`FAMILIES`), from which the text
//! is made and docs/reference/metrics.md is checked. This module deliberately leaves out the
//! connection that the text is sent on.

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

/// The prefix of the names of all metrics.
pub const PREFIX: &str = "nearflash";

/// The default number of tenants that have series of their own.
pub const TENANTS_DEFAULT: usize = 500;

/// Returns the Markdown table of all families that docs/reference/metrics.md contains.
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

    /// Counts the metrics that a query expression names. Panics if it names a metric that does not
    /// exist.
    fn metrics_of(expression: &str) -> usize {
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
        let words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let named = words.filter(|word| word.starts_with(&format!("{PREFIX}_")));
        named
            .inspect(|&word| {
                assert!(known.iter().any(|name| name == word), "{word} of {expression}");
            })
            .count()
    }

    #[test]
    fn alerts_name_metrics_that_exist_and_have_a_section_each() {
        let rules = read("packaging/prometheus/nearflash.rules.yml");
        let page = read("docs/how-to/answer-an-alert.md");
        let (alerts, text): (Vec<&str>, Vec<&str>) = rules
            .lines()
            .filter(|line| !line.starts_with('#'))
            .partition(|line| line.contains("- alert: "));
        for alert in &alerts {
            let name = alert.trim().trim_start_matches("- alert: ");
            assert!(page.contains(&format!("\n## {name}\n")), "{name} has no section");
            let section = format!("docs/how-to/answer-an-alert.md#{}\n", name.to_lowercase());
            let named = rules.matches(&format!("runbook: {section}")).count();
            assert_eq!(named, 1, "{name} does not name its section");
        }
        assert_eq!(page.matches("\n## ").count(), alerts.len(), "a section has no alert");
        let text = text.join("\n");
        assert!(metrics_of(&text) >= alerts.len() - 1, "all alerts but one name a metric");
        let statuses: Vec<String> = contract::Status::ALL.iter().map(|s| s.to_string()).collect();
        for named in text.split("status=\"").skip(1) {
            let status = named.split('"').next().expect("a quote ends it");
            assert!(statuses.iter().any(|known| known == status), "no status is {status:?}");
        }
    }

    /// Returns the number that the expression of an alert ends with.
    fn limit_of(alert: &str, rules: &str) -> f64 {
        let rule = rules.split(&format!("- alert: {alert}\n")).nth(1).expect("there is the alert");
        let expression = rule.split("expr:").nth(1).expect("it has an expression");
        let line = expression.lines().next().expect("it has a line");
        line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number ends it")
    }

    #[test]
    fn panels_of_what_alerts_watch_draw_the_limits_of_the_alerts() {
        let rules = read("packaging/prometheus/nearflash.rules.yml");
        let dashboard = read("packaging/grafana/nearflash.json");
        let value: serde_json::Value = serde_json::from_str(&dashboard).expect("it is JSON");
        let panels = value["panels"].as_array().expect("it has panels");
        for (title, alert) in [
            ("Seconds of the last minute in which the bound held", "NearflashPromiseBroken"),
            ("Waiting for tokens", "NearflashTenantWantsMore"),
            ("Devices that have drifted from their models", "NearflashDeviceDrifted"),
            ("Busy", "NearflashWorkerSaturated"),
        ] {
            let panel = panels.iter().find(|panel| panel["title"] == title).expect(title);
            let steps = &panel["fieldConfig"]["defaults"]["thresholds"]["steps"];
            let drawn: Vec<f64> = steps
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|step| step["value"].as_f64())
                .collect();
            assert!(drawn.contains(&limit_of(alert, &rules)), "{title}: {drawn:?} for {alert}");
        }
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
        for annotation in value["annotations"]["list"].as_array().expect("it has annotations") {
            expressions.push(annotation["expr"].as_str().expect("a query").to_owned());
        }
        let used: usize = expressions.iter().map(|expression| metrics_of(expression)).sum();
        assert!(used > 20, "the dashboard shows {used} metrics");
        for (metric, variable) in [
            ("nearflash_tenant_", "$tenant"),
            ("nearflash_device_", "$device"),
            ("nearflash_namespace_", "$namespace"),
        ] {
            let of_it = expressions.iter().filter(|expression| {
                expression.contains(metric) && !expression.starts_with("label_values(")
            });
            for expression in of_it {
                assert!(expression.contains(variable), "{expression} shows more than was chosen");
            }
        }
    }
}
