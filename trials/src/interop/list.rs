//! The tests, in the order in which they run: on which kernels, and which of them are quick enough for
//! `cargo xtask ci`.
//!
//! Those of [`nvme`] share a guest, so each costs what it does itself. In the short form they run on
//! the first of their kernels.

use super::kernel::Series;
use super::{Test, kill_server, nvme, old_kernel, power_cut};

const NONE: &[Series] = &[];
const OLD: &[Series] = &[Series::V6_1];
const NEW: &[Series] = &[Series::V6_12];
const BOTH: &[Series] = &[Series::V6_12, Series::V6_1];

/// Belongs to the short form.
const QUICK: bool = true;
const FULL: bool = false;

#[rustfmt::skip]
pub(super) const TESTS: &[Test] = &[
    Test { name: "kill-server", kernels: NONE, is_quick: QUICK, run: kill_server::ledger },
    Test { name: "kill-server-bench", kernels: NONE, is_quick: QUICK, run: kill_server::bench },
    Test { name: "power-cut-sparse", kernels: NEW, is_quick: QUICK, run: power_cut::sparse },
    Test { name: "power-cut-preallocated", kernels: NEW, is_quick: FULL, run: power_cut::preallocated },
    Test { name: "power-cut-raw", kernels: NEW, is_quick: FULL, run: power_cut::raw },
    Test { name: "power-cut-nvme", kernels: NEW, is_quick: FULL, run: power_cut::nvme },
    Test { name: "power-cut-lying-disk", kernels: NEW, is_quick: FULL, run: power_cut::lying_disk },
    Test { name: "old-kernel", kernels: OLD, is_quick: FULL, run: old_kernel::io_uring },
    Test { name: "no-io-uring", kernels: NEW, is_quick: FULL, run: old_kernel::without_io_uring },
    Test { name: "nvme-discover", kernels: BOTH, is_quick: QUICK, run: nvme::commands::discover },
    Test { name: "nvme-connect", kernels: BOTH, is_quick: QUICK, run: nvme::commands::connect },
    Test { name: "nvme-logs", kernels: BOTH, is_quick: QUICK, run: nvme::commands::logs },
    Test { name: "nvme-io-commands", kernels: BOTH, is_quick: FULL, run: nvme::commands::io },
    Test { name: "nvme-verify-libaio", kernels: BOTH, is_quick: FULL, run: nvme::verify::libaio },
    Test { name: "nvme-verify-io-uring", kernels: BOTH, is_quick: QUICK, run: nvme::verify::io_uring },
    Test { name: "nvme-ext4", kernels: BOTH, is_quick: FULL, run: nvme::file_systems::ext4 },
    Test { name: "nvme-xfs", kernels: BOTH, is_quick: FULL, run: nvme::file_systems::xfs },
    Test { name: "nvme-reset", kernels: BOTH, is_quick: FULL, run: nvme::failures::reset },
    Test { name: "nvme-path-cut", kernels: BOTH, is_quick: QUICK, run: nvme::failures::path_cut },
    Test { name: "nvme-target-killed", kernels: BOTH, is_quick: QUICK, run: nvme::failures::target_killed },
    Test { name: "nvme-upgrade", kernels: BOTH, is_quick: QUICK, run: nvme::upgrade::under_load },
    Test { name: "nvme-keep-alive", kernels: BOTH, is_quick: FULL, run: nvme::failures::keep_alive },
    Test { name: "nvme-auth", kernels: BOTH, is_quick: FULL, run: nvme::auth::authenticate },
    Test { name: "nvme-auth-rotated", kernels: BOTH, is_quick: FULL, run: nvme::auth::rotated },
    Test { name: "nvme-reservations", kernels: BOTH, is_quick: FULL, run: nvme::reservations::two_hosts },
    Test { name: "nvme-live-namespaces", kernels: BOTH, is_quick: FULL, run: nvme::live::namespaces },
    Test { name: "nvme-live-hosts", kernels: BOTH, is_quick: FULL, run: nvme::live::hosts },
    Test { name: "nvme-live-access", kernels: BOTH, is_quick: FULL, run: nvme::live::access_states },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once() {
        let mut names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TESTS.len());
    }
}
