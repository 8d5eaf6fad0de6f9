//! `nearflash demo`: Figure 5 of the paper. Four tenants share a simulated flash drive, first
//! without and then with the scheduler that keeps promises. Act 1 runs at the paper's full rate on
//! a simulated clock, act 2 live on this machine.

mod board;
mod live;
mod part;
mod seconds;
mod simulated;

use std::process::ExitCode;

use crate::child;
use live::DemoVerdict;
pub(crate) use live::play;

/// Play four tenants on one drive, without and with promises
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds to measure each of the three live parts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Go on afterwards, and show the dashboard
    #[arg(long)]
    keep: bool,
    /// Factor by which drive and objectives were slowed down; without effect
    #[arg(long, value_name = "TIMES", hide = true)]
    slow: Option<u32>,
}

/// The exit code if the machine was too busy to judge whether the promises were kept.
const UNDECIDED: u8 = 2;

const INTRODUCTION: &str = "\
nearflash demo: four tenants share a flash drive (Figure 5 of the ReFlex paper).

A and B are promised so many requests a second with a p95 latency of reads;
C and D were promised nothing and take what they can get, D mostly with writes.
A write costs the drive as much as ten reads.

Act 1: the paper's drive at its full rate. The scheduler is the real one;
drive and clock are simulated, so that the results are the same on any machine.
";

const ACT_2: &str = "\
Act 2: live on this machine. A server and four clients on loopback are real;
the drive is simulated, with 4 of the 56 dies of the paper's drive.
";

const NEXT: &str = "
Next: watch it in a browser:    nearflash demo --keep
      serve a volume:           nearflash serve --device \"file:./volume?size=1GiB\"
      and, in another terminal, measure it:
      nearflash bench reflex://127.0.0.1:7420 --queue-depth 32 --connections 4
";

/// Runs the demonstration. It fails if a promise was broken under the scheduler.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    child::end_with_us()?;
    outln!("{INTRODUCTION}");
    let is_kept = simulated::play();
    outln!("{ACT_2}");
    let seen = live::play(args.seconds.into(), true)?;
    if !is_kept {
        outln!("On a simulated clock a promise was broken: THIS IS A DEFECT OF NEARFLASH.");
    }
    out!("{}", seen.text());
    if args.keep {
        live::keep()?;
    } else {
        out!("{NEXT}");
    }
    Ok(match (is_kept, seen.outcome()) {
        (true, DemoVerdict::Kept) => ExitCode::SUCCESS,
        (true, DemoVerdict::Undecided) => ExitCode::from(UNDECIDED),
        (false, _) | (true, DemoVerdict::Broken) => ExitCode::FAILURE,
    })
}
