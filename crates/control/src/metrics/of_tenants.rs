//! Metric families of tenants.

use contract::{Slo, Status};
use qos::Class;

use super::Snapshot;
use super::series::Family;
use super::series::Shape::{Counter, Gauge, Histogram};
use super::snapshot::OfTenant;
use crate::registry::TOKEN;
use crate::work::Work;

/// The classes of tenants, in the order of arrays by class.
const CLASSES: [Class; 3] = [Class::LatencyCritical, Class::BestEffort, Class::Leaving];

fn class_word(class: Class) -> &'static str {
    match class {
        Class::LatencyCritical => "latency-critical",
        Class::BestEffort => "best-effort",
        Class::Leaving | Class::Vacant => "leaving",
    }
}

/// Returns the active tenants: a tenant that never sent a request has no counters.
fn active(snapshot: &Snapshot) -> impl Iterator<Item = &OfTenant> {
    let did = |tenant: &&OfTenant| {
        tenant.totals.requests != [0; 3] || tenant.totals.failures.iter().any(|count| *count > 0)
    };
    snapshot.all().filter(did)
}

/// Returns the tenants with an SLO, and the SLOs.
fn promised(snapshot: &Snapshot) -> impl Iterator<Item = (&OfTenant, Slo)> {
    snapshot.all().filter_map(|tenant| Some((tenant, tenant.slo?)))
}

/// Returns the work of each class of tenants.
fn of_classes(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, &Work)> {
    CLASSES.into_iter().map(class_word).zip(&snapshot.by_class)
}

pub(super) const FAMILIES: [Family; 27] = [
    Family {
        name: "tenant_info",
        shape: Gauge,
        labels: &["tenant", "class", "device"],
        help: "1; its labels say what kind of promise the tenant has, about which device.",
        write: |snapshot, out| {
            snapshot.tenants.iter().try_for_each(|tenant| {
                out.gauge([&tenant.name, class_word(tenant.class), &tenant.device], 1.0)
            })
        },
    },
    Family {
        name: "tenant_requests",
        shape: Counter,
        labels: &["tenant", "op"],
        help: "Requests carried out. Flushes and barriers are `other`.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.ops(&of.name, of.totals.requests))
        },
    },
    Family {
        name: "tenant_bytes",
        shape: Counter,
        labels: &["tenant", "op"],
        help: "Bytes of data that requests carried, without what a protocol adds.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.ops(&of.name, of.totals.bytes))
        },
    },
    Family {
        name: "tenant_failures",
        shape: Counter,
        labels: &["tenant", "status"],
        help: "Requests that were not carried out, by what their clients were told. `busy, try again` is no loss: it was safe to send them again.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|tenant| {
                let counts = Status::ALL.iter().zip(tenant.totals.failures);
                counts.into_iter().filter(|(_, count)| *count > 0).try_for_each(
                    |(status, count)| out.count([&tenant.name, &status.to_string()], count),
                )
            })
        },
    },
    Family {
        name: "tenant_in_flight",
        shape: Gauge,
        labels: &["tenant"],
        help: "Requests admitted and not answered yet.",
        write: |snapshot, out| {
            let mut all = snapshot.all();
            all.try_for_each(|tenant| out.gauge([&tenant.name], tenant.in_flight.into()))
        },
    },
    Family {
        name: "tenant_connections",
        shape: Gauge,
        labels: &["tenant"],
        help: "Connections that belong to the tenant or hold a handle on it.",
        write: |snapshot, out| {
            let mut all = snapshot.all();
            all.try_for_each(|tenant| out.gauge([&tenant.name], tenant.connections.into()))
        },
    },
    Family {
        name: "tenant_read_latency_seconds",
        shape: Histogram,
        labels: &["tenant"],
        help: "Reads by latency, from the last byte of the request to the reply handed to the socket: what an SLO bounds. Counts are exact; the sum is made of the buckets' middles.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.times([&of.name], &of.totals.latency, 1))
        },
    },
    Family {
        name: "tenant_stage_seconds",
        shape: Histogram,
        labels: &["tenant", "op", "stage"],
        help: "Where requests spent their time, of one in 64, picked by chance: `scheduler` is from the last byte to the submission, `device` from there to the completion, `reply` from the socket to when the network has taken the reply (of reads). `op` is `read`, or `other` for all else.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.stages(&of.name, &of.totals.samples))
        },
    },
    Family {
        name: "tenant_tokens_spent",
        shape: Counter,
        labels: &["tenant"],
        help: "Tokens spent on all devices. A token is what a read of 4 KiB costs.",
        write: |snapshot, out| {
            active(snapshot)
                .try_for_each(|of| out.sum([&of.name], of.totals.spent as f64 / TOKEN as f64))
        },
    },
    Family {
        name: "tenant_tokens_donated",
        shape: Counter,
        labels: &["tenant"],
        help: "Tokens that the tenant put into the buckets of devices because it had more than it could use. What is put there while it has no request at all is not in it.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.sum([&of.name], of.totals.donated))
        },
    },
    Family {
        name: "tenant_tokens_borrowed",
        shape: Counter,
        labels: &["tenant"],
        help: "Tokens that the tenant took out of the buckets of devices.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.sum([&of.name], of.totals.borrowed))
        },
    },
    Family {
        name: "tenant_throttled_seconds",
        shape: Counter,
        labels: &["tenant"],
        help: "Time in which requests of a latency-critical tenant waited for tokens, added up over workers: how long it wanted more than it was promised.",
        write: |snapshot, out| {
            active(snapshot)
                .try_for_each(|of| out.sum([&of.name], of.totals.throttled_nanos as f64 / 1e9))
        },
    },
    Family {
        name: "tenant_deficits",
        shape: Counter,
        labels: &["tenant"],
        help: "Rounds of schedulers in which the tenant was below the deficit limit.",
        write: |snapshot, out| {
            active(snapshot).try_for_each(|of| out.count([&of.name], of.totals.deficits))
        },
    },
    Family {
        name: "tenant_slo_latency_seconds",
        shape: Gauge,
        labels: &["tenant"],
        help: "The bound of the tail latency that the tenant was promised.",
        write: |snapshot, out| {
            promised(snapshot).try_for_each(|(tenant, slo)| {
                out.gauge([&tenant.name], f64::from(slo.latency_us) / 1e6)
            })
        },
    },
    Family {
        name: "tenant_slo_quantile",
        shape: Gauge,
        labels: &["tenant"],
        help: "The quantile that this bounds, such as 0.95.",
        write: |snapshot, out| {
            promised(snapshot).try_for_each(|(of, slo)| {
                out.gauge([&of.name], f64::from(slo.percentile_tenths) / 1_000.0)
            })
        },
    },
    Family {
        name: "tenant_slo_iops",
        shape: Gauge,
        labels: &["tenant"],
        help: "The requests a second that the tenant was promised.",
        write: |snapshot, out| {
            promised(snapshot).try_for_each(|(of, slo)| out.gauge([&of.name], slo.iops.into()))
        },
    },
    Family {
        name: "tenant_slo_tokens",
        shape: Gauge,
        labels: &["tenant"],
        help: "The tokens a second that are reserved for that.",
        write: |snapshot, out| {
            promised(snapshot)
                .try_for_each(|(of, _)| out.gauge([&of.name], of.tokens_needed as f64))
        },
    },
    Family {
        name: "tenant_slo_measured_seconds",
        shape: Gauge,
        labels: &["tenant"],
        help: "The latency of the last second at that quantile, within 1/16 of it; without reads there is no series.",
        write: |snapshot, out| {
            promised(snapshot).try_for_each(|(tenant, _)| {
                let measured = tenant.measured.slo_percentile_us;
                out.some([&tenant.name], measured.map(|us| us / 1e6))
            })
        },
    },
    Family {
        name: "tenant_slo_within_ratio",
        shape: Gauge,
        labels: &["tenant", "window"],
        help: "The share of reads that were within the bound, of the last second (`1s`) and the last minute (`1m`). The promise is kept while it is no less than the quantile.",
        write: |snapshot, out| {
            promised(snapshot).try_for_each(|(tenant, _)| {
                let compliance = &tenant.measured.compliance;
                out.some([tenant.name.as_str(), "1s"], compliance.second)?;
                out.some([tenant.name.as_str(), "1m"], compliance.minute)
            })
        },
    },
    Family {
        name: "tenant_slo_kept_ratio",
        shape: Gauge,
        labels: &["tenant"],
        help: "Of the seconds of the last minute with reads in which the tenant spent no more than 1.05 times its tokens, the share in which the bound held at its quantile.",
        write: |snapshot, out| {
            promised(snapshot)
                .try_for_each(|(of, _)| out.some([&of.name], of.measured.compliance.kept))
        },
    },
    Family {
        name: "tenants",
        shape: Gauge,
        labels: &["class"],
        help: "Tenants by class.",
        write: |snapshot, out| {
            let mut each = CLASSES.into_iter().zip(snapshot.classes);
            each.try_for_each(|(class, (tenants, _))| {
                out.gauge([class_word(class)], tenants as f64)
            })
        },
    },
    Family {
        name: "class_connections",
        shape: Gauge,
        labels: &["class"],
        help: "Connections by the class of the tenant that they belong to; one that holds handles on several counts for each.",
        write: |snapshot, out| {
            let mut each = CLASSES.into_iter().zip(snapshot.classes);
            each.try_for_each(|(class, (_, connections))| {
                out.gauge([class_word(class)], connections as f64)
            })
        },
    },
    Family {
        name: "class_requests",
        shape: Counter,
        labels: &["class", "op"],
        help: "Requests carried out, by the class that their tenant had.",
        write: |snapshot, out| {
            of_classes(snapshot).try_for_each(|(class, work)| out.ops(class, work.requests))
        },
    },
    Family {
        name: "class_bytes",
        shape: Counter,
        labels: &["class", "op"],
        help: "Bytes of data that they carried.",
        write: |snapshot, out| {
            of_classes(snapshot).try_for_each(|(class, work)| out.ops(class, work.bytes))
        },
    },
    Family {
        name: "class_stage_seconds",
        shape: Histogram,
        labels: &["class", "op", "stage"],
        help: "Where they spent their time: `tenant_stage_seconds`, added up.",
        write: |snapshot, out| {
            of_classes(snapshot).try_for_each(|(class, work)| out.stages(class, &work.samples))
        },
    },
    Family {
        name: "tenants_left_out",
        shape: Gauge,
        labels: &[],
        help: "Tenants without series of their own: they are added up as the tenant `\"rest\"`.",
        write: |snapshot, out| out.gauge([], snapshot.left_out as f64),
    },
    Family {
        name: "build_info",
        shape: Gauge,
        labels: &["version"],
        help: "1; its label is the server's version.",
        write: |_, out| out.gauge([env!("CARGO_PKG_VERSION")], 1.0),
    },
];
