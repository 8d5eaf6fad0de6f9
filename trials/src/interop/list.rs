//! The end-to-end tests in the order in which they run, each with its kernels and its list.
//!
//! The tests of [`nvme`] share a guest, so each costs only its own work. The tests of the list
//! [`Short`](List::Short) run with every `cargo xtask ci`, on the first of their kernels and in a
//! short form. All tests but those of the list [`Hand`](List::Hand) run with `cargo xtask ci --full`.

use super::context::{Context, Verdict};
use super::kernel::Series;
use super::{
    api, clients, commands, disk_errors, disk_identity, fio, handover, kill_server, mirror, nbd,
    nvme, old_kernel, power_cut, ublk, wall_clock,
};

/// The runs of `cargo xtask ci` that include a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Every run, in the short form; full runs at full length.
    Short,
    /// Full runs, and in rotation the extra slice of a short run.
    Full,
    /// No run, unless the test's whole name is given. Such a test measures, or needs a kernel that
    /// changes every few weeks.
    Hand,
}

/// An end-to-end test.
pub(super) struct Test {
    pub(super) name: &'static str,
    /// The kernels to test, with one run for each; empty for a test without a guest.
    pub(super) kernels: &'static [Series],
    pub(super) list: List,
    pub(super) run: fn(&Context) -> Result<Verdict, String>,
}

impl List {
    /// Returns the word for the list in options and output.
    pub(super) fn name(self) -> &'static str {
        match self {
            List::Short => "short",
            List::Full => "full",
            List::Hand => "hand",
        }
    }
}

impl Test {
    /// Returns the kernel of each run of the test, in order; `None` stands for a run without a
    /// guest. `chosen` replaces the test's kernels, and `quick` keeps only the first.
    pub(super) fn runs(&self, chosen: Option<Series>, quick: bool) -> Vec<Option<Series>> {
        match (self.kernels, chosen) {
            ([], _) => vec![None],
            (_, Some(series)) => vec![Some(series)],
            ([first, ..], None) if quick => vec![Some(*first)],
            (all, None) => all.iter().copied().map(Some).collect(),
        }
    }
}

const NONE: &[Series] = &[];
const OLD: &[Series] = &[Series::V6_1];
const NEW: &[Series] = &[Series::V6_12];
const NEWEST: &[Series] = &[Series::V7];
const BOTH: &[Series] = &[Series::V6_12, Series::V6_1];

const SHORT: List = List::Short;
const FULL: List = List::Full;
const HAND: List = List::Hand;

#[rustfmt::skip]
pub(super) const TESTS: &[Test] = &[
    Test { name: "commands", kernels: NONE, list: SHORT, run: commands::all },
    Test { name: "api-schema", kernels: NONE, list: FULL, run: api::schema },
    Test { name: "takeover-reflex", kernels: NONE, list: SHORT, run: handover::reflex },
    Test { name: "takeover-nvme", kernels: NONE, list: SHORT, run: handover::nvme },
    Test { name: "takeover-ftl", kernels: NONE, list: FULL, run: handover::volume },
    Test { name: "takeover-nbd", kernels: NONE, list: FULL, run: handover::nbd },
    Test { name: "nbd-copies", kernels: NONE, list: SHORT, run: nbd::tools::copies },
    Test { name: "nbd-peers", kernels: NONE, list: FULL, run: nbd::tools::peers },
    Test { name: "nbd-tls", kernels: NONE, list: FULL, run: nbd::tls::clients },
    Test { name: "nbd-servers", kernels: NONE, list: FULL, run: nbd::servers::bench },
    Test { name: "nbd-kernel", kernels: BOTH, list: FULL, run: nbd::kernel::client },
    Test { name: "nbd-boot", kernels: NEW, list: FULL, run: nbd::boot::boot },
    Test { name: "ublk-attach", kernels: NEW, list: FULL, run: ublk::devices::attach },
    Test { name: "ublk-file-system", kernels: NEW, list: FULL, run: ublk::devices::file_system },
    Test { name: "ublk-server-killed", kernels: NEW, list: FULL, run: ublk::failures::server_killed },
    Test { name: "ublk-server-upgraded", kernels: NEW, list: FULL, run: ublk::failures::server_upgraded },
    Test { name: "ublk-process-killed", kernels: NEW, list: FULL, run: ublk::failures::process_killed },
    Test { name: "ublk-server-away", kernels: NEW, list: FULL, run: ublk::failures::server_away },
    Test { name: "ublk-packets-killed", kernels: NEW, list: FULL, run: ublk::failures::packets_killed },
    Test { name: "ublk-packets-away", kernels: NEW, list: FULL, run: ublk::failures::packets_away },
    Test { name: "ublk-packets-loss", kernels: NEW, list: FULL, run: ublk::impairments::packets_loss },
    Test { name: "vm-disk", kernels: NEW, list: HAND, run: nbd::machine::disk },
    Test { name: "mirror-two-servers", kernels: NEW, list: HAND, run: mirror::two_servers },
    Test { name: "ublk-resize", kernels: NEWEST, list: HAND, run: ublk::resize::grow },
    Test { name: "ublk-cost", kernels: NEW, list: HAND, run: clients::instructions },
    Test { name: "ublk-idle", kernels: NEW, list: HAND, run: ublk::devices::idle },
    Test { name: "kill-server", kernels: NONE, list: SHORT, run: kill_server::ledger },
    Test { name: "kill-server-ftl", kernels: NONE, list: HAND, run: kill_server::translated },
    Test { name: "kill-server-bench", kernels: NONE, list: FULL, run: kill_server::bench },
    Test { name: "fio-engine", kernels: NONE, list: FULL, run: fio::engine },
    Test { name: "power-cut-sparse", kernels: NEW, list: SHORT, run: power_cut::sparse },
    Test { name: "power-cut-preallocated", kernels: NEW, list: FULL, run: power_cut::preallocated },
    Test { name: "power-cut-raw", kernels: NEW, list: FULL, run: power_cut::raw },
    Test { name: "power-cut-nvme", kernels: NEW, list: FULL, run: power_cut::nvme },
    Test { name: "power-cut-lying-disk", kernels: NEW, list: FULL, run: power_cut::lying_disk },
    Test { name: "disk-identity", kernels: NEW, list: FULL, run: disk_identity::swapped },
    Test { name: "disk-errors", kernels: NEW, list: FULL, run: disk_errors::mapped },
    Test { name: "disk-flaky", kernels: NEW, list: FULL, run: disk_errors::flaky },
    Test { name: "disk-thin-full", kernels: NEW, list: FULL, run: disk_errors::thin },
    Test { name: "clock-jumps", kernels: NEW, list: FULL, run: wall_clock::jumps },
    Test { name: "old-kernel", kernels: OLD, list: FULL, run: old_kernel::io_uring },
    Test { name: "no-io-uring", kernels: NEW, list: FULL, run: old_kernel::without_io_uring },
    Test { name: "nvme-discover", kernels: BOTH, list: FULL, run: nvme::commands::discover },
    Test { name: "nvme-connect", kernels: BOTH, list: SHORT, run: nvme::commands::connect },
    Test { name: "nvme-logs", kernels: BOTH, list: FULL, run: nvme::commands::logs },
    Test { name: "nvme-io-commands", kernels: BOTH, list: FULL, run: nvme::commands::io },
    Test { name: "nvme-verify-libaio", kernels: BOTH, list: FULL, run: nvme::verify::libaio },
    Test { name: "nvme-verify-io-uring", kernels: BOTH, list: SHORT, run: nvme::verify::io_uring },
    Test { name: "nvme-ext4", kernels: BOTH, list: FULL, run: nvme::file_systems::ext4 },
    Test { name: "nvme-xfs", kernels: BOTH, list: FULL, run: nvme::file_systems::xfs },
    Test { name: "nvme-reset", kernels: BOTH, list: FULL, run: nvme::failures::reset },
    Test { name: "nvme-path-cut", kernels: BOTH, list: SHORT, run: nvme::failures::path_cut },
    Test { name: "nvme-target-killed", kernels: BOTH, list: FULL, run: nvme::failures::target_killed },
    Test { name: "nvme-upgrade", kernels: BOTH, list: FULL, run: nvme::upgrade::under_load },
    Test { name: "nvme-keep-alive", kernels: BOTH, list: FULL, run: nvme::failures::keep_alive },
    Test { name: "nvme-auth", kernels: BOTH, list: FULL, run: nvme::auth::authenticate },
    Test { name: "nvme-auth-rotated", kernels: BOTH, list: FULL, run: nvme::auth::rotated },
    Test { name: "nvme-tls", kernels: NEW, list: FULL, run: nvme::tls::connect },
    Test { name: "nvme-reservations", kernels: BOTH, list: FULL, run: nvme::reservations::two_hosts },
    Test { name: "nvme-live-namespaces", kernels: BOTH, list: FULL, run: nvme::live::namespaces },
    Test { name: "nvme-live-hosts", kernels: BOTH, list: FULL, run: nvme::live::hosts },
    Test { name: "nvme-live-access", kernels: BOTH, list: FULL, run: nvme::live::access_states },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the tests that `cargo xtask ci` must include in its short form.
    const GATE: &[&str] = &[
        "commands",
        "takeover-reflex",
        "takeover-nvme",
        "nbd-copies",
        "kill-server",
        "power-cut-sparse",
        "nvme-connect",
        "nvme-verify-io-uring",
        "nvme-path-cut",
    ];

    #[test]
    fn the_short_list_is_what_the_gate_is_said_to_have() {
        let short = TESTS.iter().filter(|test| test.list == List::Short);
        assert_eq!(short.map(|test| test.name).collect::<Vec<_>>(), GATE);
    }

    #[test]
    fn names_are_there_once() {
        let mut names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TESTS.len());
    }
}
