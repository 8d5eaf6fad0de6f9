//! Metric families of namespaces, devices and workers.

use std::fmt;

use contract::{Part, Protocol, Stage, Status};
use qos::Drift;

use super::Snapshot;
use super::series::Shape::{Counter, Gauge, Histogram};
use super::series::{Family, Series};
use super::snapshot::REST;
use crate::flows::{DeviceFlow, WorkerFlow};
use crate::info::DeviceInfo;
use crate::work::Work;

pub(super) fn part_word(part: Part) -> &'static str {
    match part {
        Part::Network => "network",
        Part::Protocol => "protocol",
        Part::Scheduling => "scheduling",
        Part::Device => "device",
        Part::Kernel => "kernel",
        Part::Upkeep => "upkeep",
    }
}

fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Reflex => "reflex",
        Protocol::NvmeTcp => "nvme-tcp",
    }
}

/// Largest number of a namespace that has histograms of its own.
const NAMESPACES_OWN: u16 = 128;

type Written = fmt::Result;

/// Writes series of each namespace that was ever used.
fn of_namespaces(snapshot: &Snapshot, mut write: impl FnMut(&str, &Work) -> Written) -> Written {
    let mut each = snapshot.namespaces.iter();
    each.try_for_each(|(number, flow)| write(&number.0.to_string(), &flow.done))
}

/// Writes the histograms of namespaces; namespaces with larger numbers are summed.
fn stages_of_namespaces(snapshot: &Snapshot, out: &mut Series<'_>) -> Written {
    let mut rest = Work::default();
    for (number, flow) in &snapshot.namespaces {
        match number.0 {
            ..=NAMESPACES_OWN => out.stages(&number.0.to_string(), &flow.done.samples)?,
            _ => rest.add(&flow.done),
        }
    }
    out.stages(REST, &rest.samples)
}

/// Writes series of each protocol.
fn of_protocols(snapshot: &Snapshot, mut write: impl FnMut(&str, &Work) -> Written) -> Written {
    let mut each = Protocol::ALL.into_iter().zip(&snapshot.by_protocol);
    each.try_for_each(|(protocol, work)| write(protocol_word(protocol), work))
}

/// Writes series of each device.
fn of_devices(
    snapshot: &Snapshot,
    mut write: impl FnMut(&str, &DeviceInfo, &DeviceFlow) -> Written,
) -> Written {
    snapshot.devices.iter().try_for_each(|(info, flow)| write(&info.name, info, flow))
}

/// Writes series of each worker.
fn of_workers(snapshot: &Snapshot, mut write: impl FnMut(&str, &WorkerFlow) -> Written) -> Written {
    let numbered = snapshot.workers.iter().enumerate();
    numbered.into_iter().try_for_each(|(n, flow)| write(&n.to_string(), flow))
}

pub(super) const FAMILIES: [Family; 30] = [
    Family {
        name: "namespace_requests",
        shape: Counter,
        labels: &["namespace", "op"],
        help: "Requests carried out, by the number of the namespace.",
        write: |snapshot, out| of_namespaces(snapshot, |n, work| out.ops(n, work.requests)),
    },
    Family {
        name: "namespace_bytes",
        shape: Counter,
        labels: &["namespace", "op"],
        help: "Bytes of data that they carried.",
        write: |snapshot, out| of_namespaces(snapshot, |n, work| out.ops(n, work.bytes)),
    },
    Family {
        name: "namespace_stage_seconds",
        shape: Histogram,
        labels: &["namespace", "op", "stage"],
        help: "Where they spent their time, as in `tenant_stage_seconds`. Namespaces whose numbers are above 128 are added up as the namespace `\"rest\"`.",
        write: stages_of_namespaces,
    },
    Family {
        name: "device_requests",
        shape: Counter,
        labels: &["device", "op"],
        help: "Requests carried out on all namespaces of the device.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| out.ops(name, flow.done.requests))
        },
    },
    Family {
        name: "device_bytes",
        shape: Counter,
        labels: &["device", "op"],
        help: "Bytes of data that they carried.",
        write: |snapshot, out| of_devices(snapshot, |name, _, flow| out.ops(name, flow.done.bytes)),
    },
    Family {
        name: "device_stage_seconds",
        shape: Histogram,
        labels: &["device", "op", "stage"],
        help: "Where they spent their time, as in `tenant_stage_seconds`.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| out.stages(name, &flow.done.samples))
        },
    },
    Family {
        name: "device_seconds",
        shape: Histogram,
        labels: &["device", "op"],
        help: "How long requests were at the device, of one in 64, picked by chance: the stage `device` in narrower buckets. `op` is `read`, or `other` for all else.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| {
                let mut ops = ["read", "other"].into_iter().zip(&flow.done.samples);
                ops.try_for_each(|(op, of)| out.times([name, op], &of[Stage::Device as usize], 1))
            })
        },
    },
    Family {
        name: "device_depth",
        shape: Gauge,
        labels: &["device"],
        help: "Requests that are at the device.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| out.gauge([name], flow.submitted.into()))
        },
    },
    Family {
        name: "device_queued",
        shape: Gauge,
        labels: &["device"],
        help: "Requests that wait in the schedulers of the device.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| out.gauge([name], flow.queued.into()))
        },
    },
    Family {
        name: "device_tokens",
        shape: Counter,
        labels: &["device", "flow"],
        help: "Tokens of the device: `generated`; `spent` on requests; `donated` to the bucket, by tenants that had too many and for idle ones; `borrowed` out of it, also by idle tenants that send something; `expired` in it.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, _, flow| {
                let tokens = &flow.tokens;
                out.sum([name, "generated"], tokens.generated)?;
                out.sum([name, "spent"], tokens.spent)?;
                out.sum([name, "donated"], tokens.donated)?;
                out.sum([name, "borrowed"], tokens.borrowed)?;
                out.sum([name, "expired"], tokens.expired)
            })
        },
    },
    Family {
        name: "device_token_rate",
        shape: Gauge,
        labels: &["device"],
        help: "Tokens a second that the device makes with the tenants as they are; none without a device model.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| out.some([name], info.tokens.map(|n| n as f64)))
        },
    },
    Family {
        name: "device_tokens_promised",
        shape: Gauge,
        labels: &["device"],
        help: "Tokens a second that are reserved for promises.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| out.gauge([name], info.tokens_promised as f64))
        },
    },
    Family {
        name: "device_latency_bound_seconds",
        shape: Gauge,
        labels: &["device"],
        help: "The strictest latency that is promised on the device, which limits its tokens; none without promises.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                out.some([name], info.latency_us.map(|us| f64::from(us) / 1e6))
            })
        },
    },
    Family {
        name: "device_correction_ratio",
        shape: Gauge,
        labels: &["device", "what"],
        help: "What the device model is multiplied with, where `correct_online` is on: its `rate`, and its `write_price`.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                let Some(correction) = info.correction else { return Ok(()) };
                out.gauge([name, "rate"], f64::from(correction.rate_permille) / 1e3)?;
                out.gauge([name, "write_price"], f64::from(correction.write_permille) / 1e3)
            })
        },
    },
    Family {
        name: "device_drift_ratio",
        shape: Gauge,
        labels: &["device"],
        help: "What the device serves at the p95 that its reads have at it, over what its model says that it serves there: the median of some windows; none while that is not known.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                out.some(
                    [name],
                    match info.drift {
                        Some(Drift::Fits { ratio } | Drift::Drifted { ratio, .. }) => Some(ratio),
                        Some(Drift::Unknown(_)) | None => None,
                    },
                )
            })
        },
    },
    Family {
        name: "device_drifted",
        shape: Gauge,
        labels: &["device"],
        help: "1 while the device is known to differ from its model, else 0; none without a device model.",
        write: |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                let is_drifted = |drift| matches!(drift, Drift::Drifted { .. });
                out.some([name], info.drift.map(|drift| f64::from(u8::from(is_drifted(drift)))))
            })
        },
    },
    Family {
        name: "worker_requests",
        shape: Counter,
        labels: &["worker", "op"],
        help: "Requests carried out.",
        write: |snapshot, out| of_workers(snapshot, |n, flow| out.ops(n, flow.done.requests)),
    },
    Family {
        name: "worker_bytes",
        shape: Counter,
        labels: &["worker", "op"],
        help: "Bytes of data that they carried.",
        write: |snapshot, out| of_workers(snapshot, |n, flow| out.ops(n, flow.done.bytes)),
    },
    Family {
        name: "worker_stage_seconds",
        shape: Histogram,
        labels: &["worker", "op", "stage"],
        help: "Where they spent their time, as in `tenant_stage_seconds`.",
        write: |snapshot, out| of_workers(snapshot, |n, flow| out.stages(n, &flow.done.samples)),
    },
    Family {
        name: "worker_turns",
        shape: Counter,
        labels: &["worker"],
        help: "Turns that did something.",
        write: |snapshot, out| of_workers(snapshot, |n, flow| out.count([n], flow.turns)),
    },
    Family {
        name: "worker_busy_seconds",
        shape: Counter,
        labels: &["worker"],
        help: "Time that these turns took, with the system call behind each: the rate of this is the share of the time in which the worker had something to do. Looking for more before it sleeps is not in it.",
        write: |snapshot, out| of_workers(snapshot, |n, flow| out.sum([n], flow.busy)),
    },
    Family {
        name: "worker_part_seconds",
        shape: Counter,
        labels: &["worker", "part"],
        help: "What the time of one turn in 64, picked by chance, went into: `network` (the socket layer), `protocol` (parsing, admitting, replying), `scheduling` (rounds, and submitting what they let go), `device` (taking completions), `kernel` (the system call), `upkeep` (the rest). Only the proportions mean something.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let parts = Part::ALL.into_iter().zip(flow.parts);
                parts.into_iter().try_for_each(|(part, time)| out.sum([n, part_word(part)], time))
            })
        },
    },
    Family {
        name: "worker_failures",
        shape: Counter,
        labels: &["worker", "status"],
        help: "Requests that were not carried out, also those of nobody known.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let counts = Status::ALL.iter().zip(flow.failures);
                counts
                    .into_iter()
                    .filter(|(_, count)| *count > 0)
                    .try_for_each(|(status, count)| out.count([n, &status.to_string()], count))
            })
        },
    },
    Family {
        name: "worker_in_flight",
        shape: Gauge,
        labels: &["worker"],
        help: "Requests in flight; at most `limits.in_flight`.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.in_flight.into()))
        },
    },
    Family {
        name: "worker_buffers",
        shape: Gauge,
        labels: &["worker"],
        help: "Buffers in use.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.buffers.into()))
        },
    },
    Family {
        name: "worker_carried_bytes",
        shape: Gauge,
        labels: &["worker"],
        help: "Bytes kept for connections that are stopped; at most `limits.carried`.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.carried.into()))
        },
    },
    Family {
        name: "worker_connections",
        shape: Gauge,
        labels: &["worker", "protocol"],
        help: "Connections that are open, by protocol.",
        write: |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let mut each = Protocol::ALL.into_iter().zip(flow.gauges.protocols);
                each.try_for_each(|(protocol, count)| {
                    out.gauge([n, protocol_word(protocol)], count.into())
                })
            })
        },
    },
    Family {
        name: "protocol_requests",
        shape: Counter,
        labels: &["protocol", "op"],
        help: "Requests carried out, by the protocol of their connection: exact while one protocol alone is spoken, else an estimate, as the share of each is known of one request in 64, picked by chance.",
        write: |snapshot, out| of_protocols(snapshot, |word, work| out.ops(word, work.requests)),
    },
    Family {
        name: "protocol_bytes",
        shape: Counter,
        labels: &["protocol", "op"],
        help: "Bytes of data that they carried, known in the same way.",
        write: |snapshot, out| of_protocols(snapshot, |word, work| out.ops(word, work.bytes)),
    },
    Family {
        name: "protocol_stage_seconds",
        shape: Histogram,
        labels: &["protocol", "op", "stage"],
        help: "Where they spent their time, as in `tenant_stage_seconds`.",
        write: |snapshot, out| of_protocols(snapshot, |word, work| out.stages(word, &work.samples)),
    },
];
