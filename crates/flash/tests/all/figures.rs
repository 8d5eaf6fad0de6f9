//! Snapshots of Figures 1 and 3 and of the unloaded latencies of Table 2 of the paper, for the
//! simulated devices, with their tolerated deviation from the paper.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p nearflash-flash --test all figures` writes the snapshots anew.

use std::fmt::Write as _;
use std::path::Path;

use nearflash_flash::sim_flash::Preset;
use nearflash_flash::sim_flash::sweep::{Load, SweepResult, iops_at, offer};

/// The intended rates of a device: A and the cloud device as published. For B and C only the write
/// cost is published; the rest is chosen.
struct Target {
    preset: Preset,
    write_cost: f64,
    /// 4 KiB tokens per second in mixed mode, at a p95 of reads of 500 µs and of 2 ms.
    tokens: [f64; 2],
    /// Reads per second at a p95 of 500 µs, without writes.
    read_only: f64,
}

const TARGETS: [Target; 4] = [
    Target { preset: Preset::A, write_cost: 10.0, tokens: [420e3, 570e3], read_only: 840e3 },
    Target { preset: Preset::B, write_cost: 20.0, tokens: [280e3, 425e3], read_only: 350e3 },
    Target { preset: Preset::C, write_cost: 16.0, tokens: [390e3, 560e3], read_only: 485e3 },
    Target { preset: Preset::Cloud, write_cost: 7.0, tokens: [240e3, 370e3], read_only: 380e3 },
];

const MIXES: [f64; 5] = [0.99, 0.95, 0.90, 0.75, 0.50];

fn load(iops: f64, reads: f64, requests: usize) -> Load {
    Load { iops, reads, requests, pages: 1, seed: 1 }
}

impl Target {
    fn weight(&self, reads: f64) -> f64 {
        reads + self.write_cost * (1.0 - reads)
    }

    fn at(&self, iops: f64, reads: f64, requests: usize) -> SweepResult {
        offer(&self.preset.model(), 1.0, load(iops, reads, requests))
    }

    /// Measures the load at which reads have a p95 of 500 µs, adds a line that compares it with
    /// `meant`, and asserts that the two differ by at most [`TOLERANCE`].
    fn rate(&self, text: &mut String, reads: f64, meant: f64) {
        let found = iops_at(&self.preset.model(), 1.0, 500.0, load(meant, reads, 300_000));
        let off = found / meant - 1.0;
        let _ = writeln!(
            text,
            "p95 500 us at {:>4.0} % reads: {:>5.0} K IOPS, meant {:>5.0} K, {:>+5.1} %",
            reads * 100.0,
            found / 1e3,
            meant / 1e3,
            off * 100.0
        );
        assert!(off.abs() <= TOLERANCE, "{text}");
    }

    /// Asserts that the p95 reaches 2 ms between 90 and 110 % of the load `meant`; adds a line with
    /// the p95 at both. (Near saturation the p95 converges slowly, so these runs are longer.)
    fn limit(&self, text: &mut String, reads: f64, meant: f64) {
        let [below, above] = [1.0 - TOLERANCE, 1.0 + TOLERANCE]
            .map(|share| self.at(share * meant, reads, 800_000).read_p95_us / 1e3);
        let _ = writeln!(
            text,
            "p95   2 ms at {:>4.0} % reads: {:>5.0} K IOPS meant; at 90 % {below:.2} ms, at 110 % \
             {above:.2} ms",
            reads * 100.0,
            meant / 1e3
        );
        assert!(below < 2.0 && above > 2.0, "{text}");
    }
}

/// The tolerated relative deviation of a rate.
const TOLERANCE: f64 = 0.10;

/// Compares the text with the snapshot, or writes the snapshot.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the snapshot is there");
    assert!(kept == text, "{name} differs from its snapshot; now it is\n{text}");
}

fn rates(target: &Target) {
    let mut text = String::new();
    target.rate(&mut text, 1.0, target.read_only);
    for reads in MIXES {
        target.rate(&mut text, reads, target.tokens[0] / target.weight(reads));
    }
    for reads in MIXES {
        target.limit(&mut text, reads, target.tokens[1] / target.weight(reads));
    }
    check(&format!("rates-{}.txt", target.preset.name()), &text);
}

#[test]
fn device_a_has_the_rates_of_the_paper() {
    rates(&TARGETS[0]);
}

#[test]
fn device_b_has_its_rates() {
    rates(&TARGETS[1]);
}

#[test]
fn device_c_has_its_rates() {
    rates(&TARGETS[2]);
}

#[test]
fn the_cloud_device_has_its_rates() {
    rates(&TARGETS[3]);
}

#[test]
fn curves() {
    let mut text = String::new();
    for target in &TARGETS {
        let name = target.preset.name();
        let _ = writeln!(text, "device {name}: p95 of reads in us at a share of the 500 us rate");
        let _ = write!(text, "{:>12}", "K tokens/s");
        let shares = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3];
        for share in shares {
            let _ = write!(text, "{:>7.0}", share * target.tokens[0] / 1e3);
        }
        text.push('\n');
        for reads in [1.0].into_iter().chain(MIXES) {
            let _ = write!(text, "{:>5.0} % reads", reads * 100.0);
            let full = if reads < 1.0 {
                target.tokens[0] / target.weight(reads)
            } else {
                target.read_only
            };
            for share in shares {
                let p95 = target.at(share * full, reads, 50_000).read_p95_us;
                let _ = write!(text, "{p95:>7.0}");
            }
            text.push('\n');
        }
    }
    check("curves.txt", &text);
}

#[test]
fn device_a_unloaded() {
    let target = &TARGETS[0];
    let reads = target.at(500.0, 1.0, 20_000);
    let writes = target.at(500.0, 0.0, 20_000);
    let near = |value: f64, meant: f64| (value / meant - 1.0).abs() < 0.05;
    assert!(near(reads.read_mean_us, 78.0) && near(reads.read_p95_us, 90.0), "{reads:?}");
    assert!(near(writes.write_mean_us, 11.0) && near(writes.write_p95_us, 17.0), "{writes:?}");
}

#[test]
fn device_a_serves_a_million_reads_and_drowns_in_writes() {
    let target = &TARGETS[0];
    let reads = target.at(1.3e6, 1.0, 400_000);
    assert!((0.95e6..1.05e6).contains(&reads.iops), "{reads:?}");
    let drowned = target.at(2.0 * 76e3, 0.5, 200_000);
    assert!(drowned.read_p95_us > 2_000.0, "{drowned:?}");
    assert!(drowned.write_p95_us > 10_000.0, "a full buffer blocks: {drowned:?}");
}

#[test]
fn large_requests_cost_about_as_much_as_their_pages() {
    let model = Preset::A.model();
    for reads in [0.9, 0.5] {
        let rate = |pages: u64| {
            let iops = 420e3 / TARGETS[0].weight(reads) / pages as f64;
            iops_at(&model, 1.0, 500.0, Load { pages, ..load(iops, reads, 60_000) }) * pages as f64
        };
        let (small, large) = (rate(1), rate(8));
        assert!((0.6..1.1).contains(&(large / small)), "{reads}: {large} of {small} pages/s");
    }
}

#[test]
fn age_makes_writes_dearer() {
    let model = Preset::A.model();
    let rate = |reads, age| {
        let meant = if reads < 1.0 { 420e3 / TARGETS[0].weight(reads) / age } else { 840e3 };
        iops_at(&model, age, 500.0, load(meant, reads, 100_000))
    };
    assert!(rate(0.5, 2.0) < 0.55 * rate(0.5, 1.0), "half of the requests are writes");
    assert!(rate(1.0, 2.0) > 0.99 * rate(1.0, 1.0), "reads alone are not dearer");
}

#[test]
fn a_slowed_device_is_slower_in_the_same_proportions() {
    let model = Preset::A.model();
    for (iops, reads) in [(200e3, 0.9), (1e3, 0.0)] {
        let full = offer(&model, 1.0, load(iops, reads, 50_000));
        let slow = offer(&model.clone().slowed(4), 1.0, load(iops / 4.0, reads, 50_000));
        let near = |slow: f64, full: f64| (slow / 4.0 - full).abs() <= 0.01 * full;
        assert!(near(slow.read_p95_us, full.read_p95_us), "{slow:?} {full:?}");
        assert!(near(slow.write_mean_us, full.write_mean_us), "{slow:?} {full:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let target = &TARGETS[0];
    assert_eq!(target.at(200e3, 0.9, 20_000), target.at(200e3, 0.9, 20_000));
}
