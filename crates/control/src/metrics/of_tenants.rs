//! Metric families of tenants.

use contract::{Slo, Status};
use qos::Class;

use super::Snapshot;
use super::series::families;
use super::snapshot::TenantMetrics;
use crate::totals::TOKEN;
use crate::work::Work;

/// The classes of tenants, in the order of the snapshot's arrays by class.
const CLASSES: [Class; 3] = [Class::LatencyCritical, Class::BestEffort, Class::Leaving];

fn class_word(class: Class) -> &'static str {
    match class {
        Class::LatencyCritical => "latency-critical",
        Class::BestEffort => "best-effort",
        Class::Leaving | Class::Vacant => "leaving",
    }
}

/// Returns the tenants that have sent a request: other tenants have no counters.
fn active(snapshot: &Snapshot) -> impl Iterator<Item = &TenantMetrics> {
    let did = |tenant: &&TenantMetrics| {
        tenant.totals.requests != [0; 3] || tenant.totals.failures.iter().any(|count| *count > 0)
    };
    snapshot.all().filter(did)
}

/// Returns the tenants with an SLO, and the SLOs.
fn promised(snapshot: &Snapshot) -> impl Iterator<Item = (&TenantMetrics, Slo)> {
    snapshot.all().filter_map(|tenant| Some((tenant, tenant.slo?)))
}

/// Returns the name of each class of tenants with the work of its tenants.
fn of_classes(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, &Work)> {
    CLASSES.into_iter().map(class_word).zip(&snapshot.by_class)
}

families! {
    tenant_info: Gauge["tenant", "class", "device"]
        "1; its labels say what kind of promise the tenant has, about which device."
        => |snapshot, out| snapshot.tenants.iter().try_for_each(|tenant| {
            out.gauge([&tenant.name, class_word(tenant.class), &tenant.device], 1.0)
        });
    tenant_requests: Counter["tenant", "op"]
        "Requests carried out. Flushes and barriers are `other`."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.ops(&of.name, of.totals.requests));
    tenant_bytes: Counter["tenant", "op"]
        "Bytes of data that requests carried, without what a protocol adds."
        => |snapshot, out| active(snapshot).try_for_each(|of| out.ops(&of.name, of.totals.bytes));
    tenant_failures: Counter["tenant", "status"]
        "Requests that were not carried out, by what their clients were told. `busy, try again` is no loss: it was safe to send them again."
        => |snapshot, out| {
            active(snapshot).try_for_each(|tenant| {
                let counts = Status::ALL.iter().zip(tenant.totals.failures);
                counts.into_iter().filter(|(_, count)| *count > 0).try_for_each(
                    |(status, count)| out.count([&tenant.name, &status.to_string()], count),
                )
            })
        };
    tenant_in_flight: Gauge["tenant"]
        "Requests admitted and not answered yet."
        => |snapshot, out| {
            let mut all = snapshot.all();
            all.try_for_each(|tenant| out.gauge([&tenant.name], tenant.in_flight.into()))
        };
    tenant_connections: Gauge["tenant"]
        "Connections that belong to the tenant or hold a handle on it."
        => |snapshot, out| {
            let mut all = snapshot.all();
            all.try_for_each(|tenant| out.gauge([&tenant.name], tenant.connections.into()))
        };
    tenant_read_latency_seconds: Histogram["tenant"]
        "Reads by latency, from the last byte of the request to the reply handed to the socket: what an SLO bounds. Counts are exact; the sum is made of the buckets' middles."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.times([&of.name], &of.totals.latency, 1));
    tenant_stage_seconds: Histogram["tenant", "op", "stage"]
        "Where requests spent their time, of one in 64, picked by chance: `scheduler` is from the last byte to the submission, `device` from there to the completion, `reply` from the socket to when the network has taken the reply (of reads). `op` is `read`, or `other` for all else."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.stages(&of.name, &of.totals.samples));
    tenant_tokens_spent: Counter["tenant"]
        "Tokens spent on all devices. A token is what a read of 4 KiB costs."
        => |snapshot, out| {
            active(snapshot)
                .try_for_each(|of| out.sum([&of.name], of.totals.spent as f64 / TOKEN as f64))
        };
    tenant_tokens_donated: Counter["tenant"]
        "Tokens that the tenant put into the buckets of devices because it had more than it could use. What is put there while it has no request at all is not in it."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.sum([&of.name], of.totals.donated));
    tenant_tokens_borrowed: Counter["tenant"]
        "Tokens that the tenant took out of the buckets of devices."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.sum([&of.name], of.totals.borrowed));
    tenant_throttled_seconds: Counter["tenant"]
        "Time in which requests of a latency-critical tenant waited for tokens, added up over workers: how long it wanted more than it was promised."
        => |snapshot, out| {
            active(snapshot)
                .try_for_each(|of| out.sum([&of.name], of.totals.throttled_nanos as f64 / 1e9))
        };
    tenant_deficits: Counter["tenant"]
        "Rounds of schedulers in which the tenant was below the deficit limit."
        => |snapshot, out|
            active(snapshot).try_for_each(|of| out.count([&of.name], of.totals.deficits));
    tenant_slo_latency_seconds: Gauge["tenant"]
        "The bound of the tail latency that the tenant was promised."
        => |snapshot, out| promised(snapshot).try_for_each(|(tenant, slo)| {
            out.gauge([&tenant.name], f64::from(slo.latency_us) / 1e6)
        });
    tenant_slo_quantile: Gauge["tenant"]
        "The quantile that this bounds, such as 0.95."
        => |snapshot, out| promised(snapshot).try_for_each(|(of, slo)| {
            out.gauge([&of.name], f64::from(slo.percentile_tenths) / 1_000.0)
        });
    tenant_slo_iops: Gauge["tenant"]
        "The requests a second that the tenant was promised."
        => |snapshot, out|
            promised(snapshot).try_for_each(|(of, slo)| out.gauge([&of.name], slo.iops.into()));
    tenant_slo_tokens: Gauge["tenant"]
        "The tokens a second that are reserved for that."
        => |snapshot, out| {
            promised(snapshot)
                .try_for_each(|(of, _)| out.gauge([&of.name], of.tokens_needed as f64))
        };
    tenant_slo_measured_seconds: Gauge["tenant"]
        "The latency of the last second at that quantile, within 1/16 of it; without reads there is no series."
        => |snapshot, out| {
            promised(snapshot).try_for_each(|(tenant, _)| {
                let measured = tenant.measured.slo_percentile_us;
                out.some([&tenant.name], measured.map(|us| us / 1e6))
            })
        };
    tenant_slo_within_ratio: Gauge["tenant", "window"]
        "The share of reads that were within the bound, of the last second (`1s`) and the last minute (`1m`). The promise is kept while it is no less than the quantile."
        => |snapshot, out| {
            promised(snapshot).try_for_each(|(tenant, _)| {
                let compliance = &tenant.measured.compliance;
                out.some([tenant.name.as_str(), "1s"], compliance.second)?;
                out.some([tenant.name.as_str(), "1m"], compliance.minute)
            })
        };
    tenant_slo_kept_ratio: Gauge["tenant"]
        "Of the seconds of the last minute with reads in which the tenant spent no more than 1.05 times its tokens, the share in which the bound held at its quantile."
        => |snapshot, out| {
            promised(snapshot)
                .try_for_each(|(of, _)| out.some([&of.name], of.measured.compliance.kept))
        };
    tenants: Gauge["class"]
        "Tenants by class."
        => |snapshot, out| {
            let mut each = CLASSES.into_iter().zip(snapshot.classes);
            each.try_for_each(|(class, (tenants, _))| {
                out.gauge([class_word(class)], tenants as f64)
            })
        };
    class_connections: Gauge["class"]
        "Connections by the class of the tenant that they belong to; one that holds handles on several counts for each."
        => |snapshot, out| {
            let mut each = CLASSES.into_iter().zip(snapshot.classes);
            each.try_for_each(|(class, (_, connections))| {
                out.gauge([class_word(class)], connections as f64)
            })
        };
    class_requests: Counter["class", "op"]
        "Requests carried out, by the class that their tenant had."
        => |snapshot, out|
            of_classes(snapshot).try_for_each(|(class, work)| out.ops(class, work.requests));
    class_bytes: Counter["class", "op"]
        "Bytes of data that they carried."
        => |snapshot, out|
            of_classes(snapshot).try_for_each(|(class, work)| out.ops(class, work.bytes));
    class_stage_seconds: Histogram["class", "op", "stage"]
        "Where they spent their time: `tenant_stage_seconds`, added up."
        => |snapshot, out|
            of_classes(snapshot).try_for_each(|(class, work)| out.stages(class, &work.samples));
    tenants_left_out: Gauge[]
        "Tenants without series of their own: they are added up as the tenant `\"rest\"`."
        => |snapshot, out| out.gauge([], snapshot.left_out as f64);
    build_info: Gauge["version"]
        "1; its label is the server's version."
        => |_, out| out.gauge([env!("CARGO_PKG_VERSION")], 1.0);
}
