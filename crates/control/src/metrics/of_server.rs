//! Metric families of namespaces, devices and workers.

use std::fmt;

use contract::{DeviceError, Protocol, Stage, Status, TurnPart};
use qos::Drift;

use super::Snapshot;
use super::series::{Series, families};
use super::snapshot::REST;
use crate::flows::{DeviceFlow, WorkerFlow};
use crate::info::DeviceInfo;
use crate::work::Work;

pub(super) fn part_word(part: TurnPart) -> &'static str {
    match part {
        TurnPart::Network => "network",
        TurnPart::Protocol => "protocol",
        TurnPart::Scheduling => "scheduling",
        TurnPart::Device => "device",
        TurnPart::Kernel => "kernel",
        TurnPart::Upkeep => "upkeep",
    }
}

pub(super) fn error_word(error: DeviceError) -> &'static str {
    match error {
        DeviceError::Media => "media",
        DeviceError::NoSpace => "no_space",
        DeviceError::ReadOnly => "read_only",
    }
}

pub(super) fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Reflex => "reflex",
        Protocol::NvmeTcp => "nvme-tcp",
        Protocol::Nbd => "nbd",
    }
}

/// Largest number of a namespace that has its own stage histograms; the others are summed.
const NAMESPACES_OWN: u16 = 128;

type Written = fmt::Result;

/// Calls `write` with the number and the work of each namespace that was ever used.
fn of_namespaces(snapshot: &Snapshot, mut write: impl FnMut(&str, &Work) -> Written) -> Written {
    let mut each = snapshot.namespaces.iter();
    each.try_for_each(|(number, flow)| write(&number.0.to_string(), &flow.done))
}

/// Writes the stage histograms of each namespace up to number [`NAMESPACES_OWN`], and of the sum of
/// all others.
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

/// Calls `write` with the name and the work of each protocol.
fn of_protocols(snapshot: &Snapshot, mut write: impl FnMut(&str, &Work) -> Written) -> Written {
    let mut each = Protocol::ALL.into_iter().zip(&snapshot.by_protocol);
    each.try_for_each(|(protocol, work)| write(protocol_word(protocol), work))
}

/// Calls `write` with the name, the description and the activity of each device.
fn of_devices(
    snapshot: &Snapshot,
    mut write: impl FnMut(&str, &DeviceInfo, &DeviceFlow) -> Written,
) -> Written {
    snapshot.devices.iter().try_for_each(|(info, flow)| write(&info.name, info, flow))
}

/// Calls `write` with the number and the activity of each worker.
fn of_workers(snapshot: &Snapshot, mut write: impl FnMut(&str, &WorkerFlow) -> Written) -> Written {
    let numbered = snapshot.workers.iter().enumerate();
    numbered.into_iter().try_for_each(|(n, flow)| write(&n.to_string(), flow))
}

families! {
    namespace_requests: Counter["namespace", "op"]
        "Requests carried out, by the number of the namespace."
        => |snapshot, out| of_namespaces(snapshot, |n, work| out.ops(n, work.requests));
    namespace_bytes: Counter["namespace", "op"]
        "Bytes of data that they carried."
        => |snapshot, out| of_namespaces(snapshot, |n, work| out.ops(n, work.bytes));
    namespace_stage_seconds: Histogram["namespace", "op", "stage"]
        "Where they spent their time, as in `tenant_stage_seconds`. Namespaces whose numbers are above 128 are added up as the namespace `\"rest\"`."
        => stages_of_namespaces;
    device_requests: Counter["device", "op"]
        "Requests carried out on all namespaces of the device."
        => |snapshot, out| of_devices(snapshot, |name, _, flow| out.ops(name, flow.done.requests));
    device_bytes: Counter["device", "op"]
        "Bytes of data that they carried."
        => |snapshot, out| of_devices(snapshot, |name, _, flow| out.ops(name, flow.done.bytes));
    device_stage_seconds: Histogram["device", "op", "stage"]
        "Where they spent their time, as in `tenant_stage_seconds`."
        => |snapshot, out|
            of_devices(snapshot, |name, _, flow| out.stages(name, &flow.done.samples));
    device_seconds: Histogram["device", "op"]
        "How long requests were at the device, of one in 64, picked by chance: the stage `device` in narrower buckets. `op` is `read`, or `other` for all else."
        => |snapshot, out| {
            of_devices(snapshot, |name, _, flow| {
                let mut ops = ["read", "other"].into_iter().zip(&flow.done.samples);
                ops.try_for_each(|(op, of)| out.times([name, op], &of[Stage::Device as usize], 1))
            })
        };
    device_depth: Gauge["device"]
        "Requests that are at the device."
        => |snapshot, out|
            of_devices(snapshot, |name, _, flow| out.gauge([name], flow.submitted.into()));
    device_queued: Gauge["device"]
        "Requests that wait in the schedulers of the device."
        => |snapshot, out|
            of_devices(snapshot, |name, _, flow| out.gauge([name], flow.queued.into()));
    device_errors: Counter["device", "error"]
        "Requests that the device ended with an error: `media`, it could not read or write; `no_space`, the device or the file system below it is full; `read_only`, it takes no writes."
        => |snapshot, out| {
            of_devices(snapshot, |name, _, flow| {
                let mut each = DeviceError::ALL.into_iter().zip(flow.errors);
                each.try_for_each(|(error, count)| out.count([name, error_word(error)], count))
            })
        };
    device_tokens: Counter["device", "flow"]
        "Tokens of the device: `generated`; `spent` on requests and on the chores of the device; `taxed`, for its chores; `donated` to the bucket, by tenants that had too many and for idle ones; `borrowed` out of it, also by idle tenants that send something; `expired` in it."
        => |snapshot, out| {
            of_devices(snapshot, |name, _, flow| {
                let tokens = &flow.tokens;
                out.sum([name, "generated"], tokens.generated)?;
                out.sum([name, "spent"], tokens.spent)?;
                out.sum([name, "taxed"], tokens.taxed)?;
                out.sum([name, "donated"], tokens.donated)?;
                out.sum([name, "borrowed"], tokens.borrowed)?;
                out.sum([name, "expired"], tokens.expired)
            })
        };
    device_token_rate: Gauge["device"]
        "Tokens a second that the device makes with the tenants as they are; none without a device model."
        => |snapshot, out|
            of_devices(snapshot, |name, info, _| out.some([name], info.tokens.map(|n| n as f64)));
    device_tokens_promised: Gauge["device"]
        "Tokens a second that are reserved for promises."
        => |snapshot, out|
            of_devices(snapshot, |name, info, _| out.gauge([name], info.tokens_promised as f64));
    device_latency_bound_seconds: Gauge["device"]
        "The strictest latency that is promised on the device, which limits its tokens; none without promises."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            out.some([name], info.latency_us.map(|us| f64::from(us) / 1e6))
        });
    device_correction_ratio: Gauge["device", "what"]
        "What the device model is multiplied with, where `correct_online` is on: its `rate`, and its `write_price`."
        => |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                let Some(correction) = info.correction else { return Ok(()) };
                out.gauge([name, "rate"], f64::from(correction.rate_permille) / 1e3)?;
                out.gauge([name, "write_price"], f64::from(correction.write_permille) / 1e3)
            })
        };
    device_drift_ratio: Gauge["device"]
        "What the device serves at the p95 that its reads have at it, over what its model says that it serves there: the median of some windows; none while that is not known."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            out.some(
                [name],
                match info.drift {
                    Some(Drift::Fits { ratio } | Drift::Drifted { ratio, .. }) => Some(ratio),
                    Some(Drift::Unknown(_)) | None => None,
                },
            )
        });
    device_drifted: Gauge["device"]
        "1 while the device is known to differ from its model, else 0; none without a device model."
        => |snapshot, out| {
            of_devices(snapshot, |name, info, _| {
                let is_drifted = |drift| matches!(drift, Drift::Drifted { .. });
                out.some([name], info.drift.map(|drift| f64::from(u8::from(is_drifted(drift)))))
            })
        };
    device_chore_pages: Counter["device", "op"]
        "Pages of 4 KiB of a device that does work of its own accord, such as collecting garbage, since it was opened: `host`, written by hosts; `read` of its own accord; `written` beside those of hosts."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            let Some(chores) = info.chores else { return Ok(()) };
            out.count([name, "host"], chores.done.host_pages)?;
            out.count([name, "read"], chores.done.read_pages)?;
            out.count([name, "written"], chores.done.written_pages)
        });
    device_small_writes: Counter["device", "what"]
        "Writes of less than a page that changed a device which gathers them by page, since it was opened: `asked`, and the pages `written` for them."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            let Some(chores) = info.chores else { return Ok(()) };
            out.count([name, "asked"], chores.done.small_writes)?;
            out.count([name, "written"], chores.done.small_write_pages)
        });
    device_free_ratio: Gauge["device"]
        "The share of such a device's space that is free to write to."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            out.some([name], info.chores.map(|chores| f64::from(chores.done.free_permille) / 1e3))
        });
    device_write_tax: Gauge["device", "what"]
        "Tokens that a write of 4 KiB pays beside its price for such work: `charged` at present; `promised`, with which promises are priced. None without a device model."
        => |snapshot, out| of_devices(snapshot, |name, info, _| {
            let taxes = info.chores.and_then(|chores| chores.taxes);
            let Some([charged, promised]) = taxes else { return Ok(()) };
            out.gauge([name, "charged"], f64::from(charged) / 100.0)?;
            out.gauge([name, "promised"], f64::from(promised) / 100.0)
        });
    worker_requests: Counter["worker", "op"]
        "Requests carried out."
        => |snapshot, out| of_workers(snapshot, |n, flow| out.ops(n, flow.done.requests));
    worker_bytes: Counter["worker", "op"]
        "Bytes of data that they carried."
        => |snapshot, out| of_workers(snapshot, |n, flow| out.ops(n, flow.done.bytes));
    worker_stage_seconds: Histogram["worker", "op", "stage"]
        "Where they spent their time, as in `tenant_stage_seconds`."
        => |snapshot, out| of_workers(snapshot, |n, flow| out.stages(n, &flow.done.samples));
    worker_turns: Counter["worker"]
        "Turns that did something."
        => |snapshot, out| of_workers(snapshot, |n, flow| out.count([n], flow.turns));
    worker_busy_seconds: Counter["worker"]
        "Time that these turns took, with the system call behind each: the rate of this is the share of the time in which the worker had something to do. Looking for more before it sleeps is not in it."
        => |snapshot, out| of_workers(snapshot, |n, flow| out.sum([n], flow.busy));
    worker_waited_seconds: Counter["worker"]
        "Time for which the worker's thread was ready to run and did not, because other threads had the processors, without 50 µs for each time that it began to run: the rate of this is the share of the time that the machine took from the worker. None where there was no such time, or the kernel does not count it."
        => |snapshot, out| of_workers(snapshot, |n, flow| match flow.waited > 0.0 {
            true => out.sum([n], flow.waited),
            false => Ok(()),
        });
    worker_part_seconds: Counter["worker", "part"]
        "What the time of one turn in 64, picked by chance, went into: `network` (the socket layer), `protocol` (parsing, admitting, replying), `scheduling` (rounds, and submitting what they let go), `device` (taking completions), `kernel` (the system call), `upkeep` (the rest). Only the proportions mean something."
        => |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let parts = TurnPart::ALL.into_iter().zip(flow.parts);
                parts.into_iter().try_for_each(|(part, time)| out.sum([n, part_word(part)], time))
            })
        };
    worker_failures: Counter["worker", "status"]
        "Requests that were not carried out, also those of nobody known."
        => |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let counts = Status::ALL.iter().zip(flow.failures);
                counts
                    .into_iter()
                    .filter(|(_, count)| *count > 0)
                    .try_for_each(|(status, count)| out.count([n, &status.to_string()], count))
            })
        };
    worker_in_flight: Gauge["worker"]
        "Requests in flight; at most `limits.in_flight`."
        => |snapshot, out|
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.in_flight.into()));
    worker_buffers: Gauge["worker"]
        "Buffers in use."
        => |snapshot, out|
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.buffers.into()));
    worker_carried_bytes: Gauge["worker"]
        "Bytes kept for connections that are stopped; at most `limits.carried`."
        => |snapshot, out|
            of_workers(snapshot, |n, flow| out.gauge([n], flow.gauges.carried.into()));
    worker_connections: Gauge["worker", "protocol"]
        "Connections that are open, by protocol."
        => |snapshot, out| {
            of_workers(snapshot, |n, flow| {
                let mut each = Protocol::ALL.into_iter().zip(flow.gauges.protocols);
                each.try_for_each(|(protocol, count)| {
                    out.gauge([n, protocol_word(protocol)], count.into())
                })
            })
        };
    protocol_requests: Counter["protocol", "op"]
        "Requests carried out, by the protocol of their connection: exact while one protocol alone is spoken, else an estimate, as the share of each is known of one request in 64, picked by chance."
        => |snapshot, out| of_protocols(snapshot, |word, work| out.ops(word, work.requests));
    protocol_bytes: Counter["protocol", "op"]
        "Bytes of data that they carried, known in the same way."
        => |snapshot, out| of_protocols(snapshot, |word, work| out.ops(word, work.bytes));
    protocol_stage_seconds: Histogram["protocol", "op", "stage"]
        "Where they spent their time, as in `tenant_stage_seconds`."
        => |snapshot, out| of_protocols(snapshot, |word, work| out.stages(word, &work.samples));
}
