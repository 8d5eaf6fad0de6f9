//! Measures the instructions that a guest executes for a read through each kind of
//! client: the kernel's NVMe/TCP host, its NBD client, its iSCSI initiator, and `nearflash attach`.
//!
//! All clients are open in one guest at once, and their loads take turns. A plug-in of the emulator
//! counts the guest's instructions in the kernel and in programs, so nothing depends on the speed
//! of this machine. Each load is watched only while it runs, without its start and end. The
//! instructions that the guest executes while a load waits are measured apart and subtracted by
//! time. A block device that answers at once shows what the load itself costs.

mod client;
mod counter;
mod fixture;
mod report;

use super::{Context, Verdict};
use client::{Client, DEPTHS};
use fixture::GuestSetup;
use report::Report;
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "cc", package: "gcc" },
    Need { program: "fio", package: "fio" },
    Need { program: "nvme", package: "nvme-cli" },
    Need { program: "nbd-client", package: "nbd-client" },
    Need { program: "tgtd", package: "tgt" },
    Need { program: "iscsiadm", package: "open-iscsi" },
];

/// Number of reads of the run in which instructions are counted by function of the kernel.
const READS: u32 = 10_000;

/// Number of rounds of measurements; odd. In each round every client has its turn.
const ROUNDS: usize = 3;

/// Counts the instructions of reads, prints the tables, and returns their summary.
pub(super) fn instructions(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    let mut bed = GuestSetup::start(context)?;
    println!("    while a load waits: {}", bed.idle());
    let mut report = Report::default();
    for depth in DEPTHS {
        for round in 0..ROUNDS {
            for client in Client::ALL {
                let cost = bed.measure(client, depth)?;
                println!("    {depth:>2} in flight, round {round}: {}: {cost}", client.name());
                report.add(client, depth, cost);
            }
        }
        let ways = bed.ways(Client::AttachSleeping, depth, READS)?;
        report.add_ways(depth, ways);
    }
    let release = bed.end()?;
    print!("\n{report}");
    let ratios = DEPTHS.map(|depth| format!("{depth} in flight {:.2}", report.ratio(depth)));
    Ok(Verdict::Passed(format!("{release}: attach / NVMe host: {}", ratios.join(", "))))
}
