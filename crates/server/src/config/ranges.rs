//! The ranges of a configuration's whole numbers, for checks, for messages and for the schema.

use std::ops::RangeInclusive;

use qos::WORKERS_MAX;
use worker::Namespaces;

use crate::listen::NUMBER_MAX;

const LISTENERS: u64 = NUMBER_MAX as u64;
const NAMESPACES: u64 = Namespaces::NUMBER_MAX as u64;
const U32: u64 = u32::MAX as u64;

/// The largest value of `limits.connections`: more than any process has descriptors.
const CONNECTIONS_MAX: u64 = 1 << 24;

/// The allowed ranges of keys with whole numbers: table (empty for the top level), key, least and
/// greatest value.
const RANGES: [(&str, &str, u64, u64); 22] = [
    ("", "workers", 1, WORKERS_MAX as u64),
    ("", "cpus", 0, 1023),
    ("device", "recalibrate_idle_seconds", 0, U32),
    ("listen", "number", 1, LISTENERS),
    ("namespace", "number", 1, NAMESPACES),
    ("access", "uid", 0, U32),
    ("access", "namespaces", 1, NAMESPACES),
    ("tenant", "latency_us", 0, U32),
    ("tenant", "iops", 0, U32),
    ("tenant", "read_percent", 0, 100),
    ("tenant", "request_bytes", 0, 1 << 20),
    ("tenant", "weight", 1, 1000),
    ("tenant", "cap_tokens", 1, i64::MAX as u64),
    ("subsystem", "namespaces", 1, NAMESPACES),
    ("ana", "listener", 1, LISTENERS),
    ("ana", "group", 1, proto::nvme::ANA_GROUPS_MAX as u64),
    ("limits", "connections", 1, CONNECTIONS_MAX),
    ("limits", "in_flight", 1, 65_536),
    ("limits", "tenants", 1, 65_536),
    ("limits", "in_flight_of_connection", 1, 65_536),
    ("limits", "stuck_seconds", 1, 3600),
    ("limits", "drain_seconds", 1, 3600),
];

/// Returns the allowed range of a key's number; `None` if the key has no whole number.
pub(super) fn of(table: &str, key: &str) -> Option<RangeInclusive<u64>> {
    let found = RANGES.iter().find(|(t, k, ..)| (*t, *k) == (table, key));
    found.map(|(_, _, least, most)| *least..=*most)
}

/// Returns the keys of a table that have whole numbers, with the ranges.
pub(super) fn of_table(table: &str) -> impl Iterator<Item = (&'static str, RangeInclusive<u64>)> {
    let found = RANGES.iter().filter(move |(t, ..)| *t == table);
    found.map(|(_, key, least, most)| (*key, *least..=*most))
}

/// Describes a range of whole numbers in words, for error messages.
pub(super) fn words(range: &RangeInclusive<u64>) -> String {
    let (least, most) = (range.start(), range.end());
    match *most > U32 {
        true => format!("a whole number, at least {least}"),
        false => format!("a whole number from {least} to {most}"),
    }
}

/// Returns the number if it is in its range, or an error with the expected range. The table must
/// not be a repeated one.
pub(super) fn check(table: &str, key: &str, n: u64) -> Result<u64, String> {
    let range = of(table, key).expect("every number has a range");
    match range.contains(&n) {
        true => Ok(n),
        false => Err(format!("{table}.{key} is {n}; expected {}", words(&range))),
    }
}
