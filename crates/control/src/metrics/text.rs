//! The text form of a snapshot.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::{PREFIX, Snapshot, families};

/// The HTTP content type of the OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
struct SnapshotCollector(Arc<Snapshot>);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families().try_for_each(|family| family.encode(&self.0, &mut encoder))
    }
}

/// Writes a snapshot, piece by piece.
///
/// # Errors
/// Fails with the errors of the writer.
pub fn write(snapshot: Snapshot, to: &mut impl fmt::Write) -> fmt::Result {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(SnapshotCollector(Arc::new(snapshot))));
    text::encode(to, &registry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    use contract::{
        ChoreCounters, ChoreRate, Chores, CoarseBucket, DEVICES_MAX, Instant, IoKind, NamespaceId,
        Promise, Protocol, Slo, Stage, Status, TurnPart,
    };
    use qos::DeviceModel;

    use crate::metrics::{Shape, TENANTS_DEFAULT, snapshot::REST};
    use crate::{DeviceSetup, Origin, Switches, TenantRegistry, Tenants};

    /// A device whose background work reads and writes two pages for each page that hosts write.
    #[derive(Debug)]
    struct CollectingChores;

    impl Chores for CollectingChores {
        fn done(&self) -> ChoreCounters {
            let (host_pages, moved) = (1_000_000, 2_000_000);
            let free_permille = 45;
            ChoreCounters {
                host_pages,
                read_pages: moved,
                written_pages: moved,
                free_permille,
                small_writes: 60,
                small_write_pages: 3,
                is_short: false,
            }
        }

        fn uniform(&self) -> ChoreRate {
            ChoreRate { read_permille: 4_000, written_permille: 4_000 }
        }

        fn pages(&self) -> u64 {
            1 << 20
        }

        fn room(&self) -> u64 {
            1 << 19
        }
    }

    fn served() -> Tenants {
        let switches = Switches { correct_online: true, ..Switches::default() };
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "fast".to_owned(), model, switches };
        let tenants = Tenants::new(vec![device], 1, 8, Arc::new(|| Instant::ZERO));
        let slo = Some(Slo::new(500, 1_000, 100));
        let mut registry = tenants.registry();
        for (name, slo) in [(TenantRegistry::DEFAULT, None), ("web", slo), ("a\\b", None)] {
            let (promise, origin) = (slo.into(), Origin::Operator);
            let made = registry.register(name, promise, None, origin, Instant::ZERO).unwrap();
            let meters = registry.meters(0);
            let meter = meters.get(made.tenant).unwrap();
            (0..100).for_each(|n| meter.record(IoKind::Read, 4096, n * 10_000));
            meter.record(IoKind::Write, 512, 1);
            meter.fail(Status::Retry);
            let work = &meters.know_namespace(NamespaceId(1)).unwrap().work;
            let protocol = meters.protocol(Protocol::NvmeTcp);
            work.record(IoKind::Read, 4096);
            protocol.record(IoKind::Read, 4096);
            for (stage, us) in Stage::ALL.into_iter().zip([20, 90, 5]) {
                let time = CoarseBucket::of(us * 1_000);
                meter.sample(IoKind::Read, stage, time);
                work.stages.sample(IoKind::Read, stage, time);
                protocol.stages.sample(IoKind::Read, stage, time);
            }
            meters.worker.fail(Status::Denied);
            meters.worker.time(TurnPart::Network, 1_000_000);
            meters.worker.set_waited(Duration::from_millis(1));
        }
        registry.expect_chores(0, Arc::new(CollectingChores), Instant::ZERO);
        registry.observe(Instant::ZERO);
        registry.measure(Instant::ZERO + Duration::from_secs(1));
        drop(registry);
        tenants
    }

    fn text_of(tenants_max: usize) -> String {
        let mut text = String::new();
        write(Snapshot::take(&served(), tenants_max), &mut text).unwrap();
        text
    }

    #[test]
    fn every_family_has_series_and_no_other_has() {
        let text = text_of(10);
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let name = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
        let mut names: BTreeSet<String> = series.map(name).collect();
        for family in families() {
            let full = format!("{PREFIX}_{}", family.full_name());
            assert!(text.contains(&format!("# TYPE {PREFIX}_{} ", family.name)), "{full}");
            assert!(text.contains(&format!("# HELP {PREFIX}_{} ", family.name)), "{full}");
            let mut all = vec![full.clone()];
            if family.shape == Shape::Histogram {
                all = ["bucket", "count", "sum"].map(|part| format!("{full}_{part}")).to_vec();
            }
            // The device has not been observed for long enough.
            let is_unknown = family.name == "device_drift_ratio";
            for name in all {
                assert!(names.remove(&name) != is_unknown, "whether {name} has series");
            }
        }
        assert_eq!(names, BTreeSet::new());
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn numbers_are_those_that_were_counted() {
        let text = text_of(10);
        for line in [
            "nearflash_tenant_requests_total{tenant=\"web\",op=\"read\"} 100",
            "nearflash_tenant_bytes_total{tenant=\"web\",op=\"read\"} 409600",
            "nearflash_tenant_failures_total{tenant=\"web\",status=\"busy, try again\"} 1",
            "nearflash_tenant_read_latency_seconds_bucket{le=\"0.000524288\",tenant=\"web\"} 53",
            "nearflash_tenant_read_latency_seconds_count{tenant=\"web\"} 100",
            "nearflash_tenant_read_latency_seconds_bucket{le=\"+Inf\",tenant=\"web\"} 100",
            "nearflash_tenant_slo_latency_seconds{tenant=\"web\"} 0.0005",
            "nearflash_tenant_requests_total{tenant=\"a\\\\b\",op=\"write\"} 1",
            "nearflash_namespace_requests_total{namespace=\"1\",op=\"read\"} 3",
            "nearflash_device_chore_pages_total{device=\"fast\",op=\"written\"} 2000000",
            "nearflash_device_free_ratio{device=\"fast\"} 0.045",
            "nearflash_device_small_writes_total{device=\"fast\",what=\"asked\"} 60",
            "nearflash_device_small_writes_total{device=\"fast\",what=\"written\"} 3",
            "nearflash_device_write_tax{device=\"fast\",what=\"charged\"} 22.0",
            "nearflash_device_write_tax{device=\"fast\",what=\"promised\"} 44.0",
            "nearflash_worker_requests_total{worker=\"0\",op=\"read\"} 3",
            "nearflash_worker_bytes_total{worker=\"0\",op=\"read\"} 12288",
            "nearflash_protocol_requests_total{protocol=\"nvme-tcp\",op=\"read\"} 3",
            "nearflash_protocol_bytes_total{protocol=\"nvme-tcp\",op=\"read\"} 12288",
            "nearflash_protocol_requests_total{protocol=\"reflex\",op=\"read\"} 0",
            "nearflash_class_requests_total{class=\"latency-critical\",op=\"read\"} 100",
            "nearflash_class_requests_total{class=\"best-effort\",op=\"write\"} 2",
            "nearflash_class_bytes_total{class=\"best-effort\",op=\"read\"} 819200",
            "nearflash_device_seconds_count{device=\"fast\",op=\"read\"} 3",
            "nearflash_worker_part_seconds_total{worker=\"0\",part=\"network\"} 0.003",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn where_the_time_went_is_told_of_everybody() {
        let text = text_of(10);
        for (of, sampled) in [
            ("tenant_stage_seconds{tenant=\"web\"", 1),
            ("class_stage_seconds{class=\"best-effort\"", 2),
            ("namespace_stage_seconds{namespace=\"1\"", 3),
            ("device_stage_seconds{device=\"fast\"", 3),
            ("worker_stage_seconds{worker=\"0\"", 3),
            ("protocol_stage_seconds{protocol=\"nvme-tcp\"", 3),
        ] {
            let (family, label) = of.split_once('{').unwrap();
            // The edges in seconds between which the counted times lie.
            for (stage, below, within) in [
                ("scheduler", "0.000008192", "0.000032768"),
                ("device", "0.000032768", "0.000131072"),
                ("reply", "", "0.000008192"),
            ] {
                let labels = format!("{label},op=\"read\",stage=\"{stage}\"");
                let up_to = |edge: &str| {
                    let bucket = format!("nearflash_{family}_bucket{{le=\"{edge}\",{labels}}}");
                    value(&text, &bucket).unwrap_or_else(|| panic!("no {bucket} in\n{text}"))
                };
                assert!(below.is_empty() || up_to(below) == 0.0, "{of} {stage}");
                assert_eq!(up_to(within), f64::from(sampled), "{of} {stage}");
                let count = format!("nearflash_{family}_count{{{labels}}}");
                assert_eq!(value(&text, &count), Some(sampled.into()), "{count}");
            }
        }
    }

    #[test]
    fn tenants_without_series_of_their_own_are_added_up() {
        let text = text_of(1);
        assert!(!text.contains("tenant=\"web\""));
        let rest = REST.replace('"', "\\\"");
        let line =
            format!("nearflash_tenant_requests_total{{tenant=\"{rest}\",op=\"read\"}} 200\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("nearflash_tenants_left_out 2.0\n"));
        assert!(!text_of(3).contains(&rest));
    }

    /// Returns the value of the first series whose line has this beginning.
    fn value(text: &str, beginning: &str) -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(beginning))?;
        line.rsplit(' ').next().and_then(|value| value.parse().ok())
    }

    /// Returns all counters of a text that cover the tenants without series of their own, or the
    /// tenants of a class: buckets, counts, sums and totals.
    fn counters_of_many(text: &str) -> Vec<(String, f64)> {
        let rest = REST.replace('"', "\\\"");
        let is_counter = |name: &str| {
            ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
        };
        let is_of_many = |line: &&str| {
            line.starts_with("nearflash_class_") || line.contains(&format!("tenant=\"{rest}\""))
        };
        let of_many = text.lines().filter(is_of_many);
        let counters = of_many.filter(|line| is_counter(line.split('{').next().unwrap()));
        let split = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        counters.map(split).collect()
    }

    #[test]
    fn no_counter_falls_when_tenants_come_and_go() {
        let tenants = served();
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let text_of = |tenants_max| {
            let mut text = String::new();
            write(Snapshot::take(&tenants, tenants_max), &mut text).unwrap();
            text
        };
        let mut before = [0, 1, 2].map(text_of);
        // Tenants that leave, also one with series of its own, and tenants that get their numbers.
        let steps = ["-web", "-a\\b", "+new", "-default", "-new", "+late", "+last"];
        for step in steps {
            let (sign, name) = step.split_at(1);
            let mut registry = tenants.registry();
            let meters = registry.meters(0);
            if sign == "+" {
                let promise = Promise::default();
                let made = registry.register(name, promise, None, Origin::Operator, now).unwrap();
                meters.get(made.tenant).unwrap().record(IoKind::Read, 4096, 5_000);
            } else {
                let tenant = registry.find(name).unwrap();
                // The last window of the tenant's life does not end.
                (0..7).for_each(|_| meters.get(tenant).unwrap().record(IoKind::Read, 4096, 9_000));
                registry.unregister(name, now).unwrap();
                meters.get(tenant).unwrap().end_epoch();
                registry.settle(now);
                assert_eq!(registry.find(name), None);
            }
            now = now + Duration::from_secs(1);
            registry.measure(now);
            drop(registry);
            let after = [0, 1, 2].map(text_of);
            for (before, after) in before.iter().zip(&after) {
                for (series, was) in counters_of_many(before) {
                    let then = value(after, &series);
                    assert!(then.is_some_and(|then| then >= was), "{step}: {series} {then:?}");
                }
            }
            before = after;
        }
        // 300 reads of the three, seven of each of the four that left, one of each that came.
        let reads =
            format!("nearflash_tenant_requests_total{{tenant=\"{}\"", REST.replace('"', "\\\""));
        assert_eq!(value(&before[0], &reads), Some(300.0 + 4.0 * 7.0 + 3.0));
        let of_class = |class: &str| {
            let labels = format!("class=\"{class}\",op=\"read\"");
            value(&before[0], &format!("nearflash_class_requests_total{{{labels}}}")).unwrap()
        };
        let classes = ["latency-critical", "best-effort", "leaving"].map(of_class);
        assert_eq!(classes, [100.0, 200.0 + 3.0, 4.0 * 7.0]);
    }

    /// A writer that counts bytes.
    struct Count(usize);

    impl fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }

    /// Records a time in each stage for a request of each kind.
    fn spend(count: impl Fn(IoKind, Stage, CoarseBucket)) {
        let (short, long) = (CoarseBucket::of(9_000), CoarseBucket::of(90_000));
        for kind in [IoKind::Read, IoKind::Write] {
            count(kind, Stage::Scheduler, short);
            count(kind, Stage::Device, long);
        }
        count(IoKind::Read, Stage::Reply, short);
    }

    #[test]
    fn ten_thousand_tenants_take_no_more_than_their_bound() {
        const TENANTS: usize = 10_000;
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "fast".to_owned(), model, switches: Switches::default() };
        let tenants = Tenants::new(vec![device], 1, TENANTS, Arc::new(|| Instant::ZERO));
        let mut registry = tenants.registry();
        let meters = registry.meters(0);
        for n in 0..TENANTS - 1 {
            let slo = Some(Slo::new(2_000, 10, 100));
            let name = format!("customer-{n:05}");
            let made = registry
                .register(&name, slo.into(), None, Origin::Operator, Instant::ZERO)
                .unwrap();
            let meter = meters.get(made.tenant).unwrap();
            meter.record(IoKind::Read, 4096, 90_000);
            meter.fail(Status::Retry);
            spend(|kind, stage, time| meter.sample(kind, stage, time));
        }
        registry.measure(Instant::ZERO + Duration::from_secs(1));
        drop(registry);
        let bytes_of = |tenants_max| {
            let mut count = Count(0);
            write(Snapshot::take(&tenants, tenants_max), &mut count).unwrap();
            count.0
        };
        let (none, usual, all) = (bytes_of(0), bytes_of(TENANTS_DEFAULT), bytes_of(TENANTS));
        println!("{none} bytes of none, {usual} of {TENANTS_DEFAULT}, {all} of all");
        assert!(none < 64 << 10 && usual < 8 << 20, "{none} and {usual} bytes");
        assert!((all - none) / TENANTS <= (usual - none) / TENANTS_DEFAULT + 64);
    }

    #[test]
    fn no_more_namespaces_than_a_bound_have_histograms() {
        const WORKERS: usize = 32;
        const NAMESPACES: usize = 1024;
        let setup = |n| DeviceSetup {
            name: format!("device-{n:02}"),
            model: Some(DeviceModel::device_a()),
            switches: Switches { correct_online: true, ..Switches::default() },
        };
        let devices = (0..DEVICES_MAX).map(setup).collect();
        let tenants = Tenants::new(devices, WORKERS, 1, Arc::new(|| Instant::ZERO));
        let mut registry = tenants.registry();
        for worker in 0..WORKERS {
            let meters = registry.meters(worker);
            for n in 0..NAMESPACES {
                let meter = meters.know_namespace(NamespaceId(n as u16 + 1)).unwrap();
                meter.set_device(n % DEVICES_MAX);
                [IoKind::Read, IoKind::Write]
                    .into_iter()
                    .for_each(|kind| meter.work.record(kind, 4096));
                spend(|kind, stage, time| meter.work.stages.sample(kind, stage, time));
            }
            for protocol in Protocol::ALL.map(|protocol| meters.protocol(protocol)) {
                [IoKind::Read, IoKind::Write]
                    .into_iter()
                    .for_each(|kind| protocol.record(kind, 4096));
                spend(|kind, stage, time| protocol.stages.sample(kind, stage, time));
            }
            Status::ALL.iter().for_each(|status| meters.worker.fail(*status));
        }
        registry.measure(Instant::ZERO + Duration::from_secs(1));
        drop(registry);
        let mut text = String::new();
        write(Snapshot::take(&tenants, 0), &mut text).unwrap();
        println!("{} bytes", text.len());
        assert!(text.len() < 2 << 20, "{} bytes", text.len());
        let reads = |of: &str| {
            let family = "nearflash_namespace_stage_seconds_count";
            let labels = format!("namespace=\"{of}\",op=\"read\",stage=\"device\"");
            value(&text, &format!("{family}{{{labels}}}"))
        };
        let all = WORKERS as f64;
        let rest = reads(&REST.replace('"', "\\\""));
        assert_eq!([reads("1"), reads("128"), reads("129")], [Some(all), Some(all), None]);
        assert_eq!(rest, Some((NAMESPACES - 128) as f64 * all));
        let last = format!("nearflash_namespace_requests_total{{namespace=\"{NAMESPACES}\"");
        assert_eq!(value(&text, &last), Some(all), "others are of each");
    }
}
