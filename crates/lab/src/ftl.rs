//! `nearflash ftl create|check|show`: makes, checks and shows volumes of flash translation that no
//! server has open.

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use flash::Spec;
use server::translation;

/// `nearflash ftl …`
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Make, check and show volumes of flash translation
#[derive(Debug, Subcommand)]
enum Command {
    /// Make a volume on a file or block device that holds nothing
    Create {
        /// Volume: ftl:file:PATH[?size=SIZE&ftl.spare=10%&ftl.segment=SIZE&ftl.streams=3
        /// &ftl.virtual=SIZE]
        spec: Spec,
        /// Give up whatever the file or block device holds
        #[arg(long)]
        overwrite: bool,
    },
    /// Compare all pages of a volume with their checksums, and change nothing
    Check {
        /// Volume: ftl:file:PATH
        spec: Spec,
    },
    /// Print sizes and state of a volume
    Show {
        /// Volume: ftl:file:PATH
        spec: Spec,
    },
}

/// Runs the command.
///
/// # Errors
/// Says what is wrong with the volume or its member, and what to do.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    match &args.command {
        Command::Create { spec, overwrite } => {
            print(&translation::create(spec, *overwrite)?);
        }
        Command::Show { spec } => {
            let described = translation::show(spec)?;
            print(&described.geometry);
            outln!(
                "stopped: {}",
                if described.clean { "in order" } else { "not in order, or open" }
            );
            outln!("openings: {}", described.sessions);
            outln!("written by hosts: {}", size(described.written_pages * 4096));
            if let Some(used) = described.used_pages {
                outln!("in use at the last checkpoint: {}", size(u64::from(used) * 4096));
            }
            outln!("damaged copies of the superblock: {}", described.damaged_copies);
        }
        Command::Check { spec } => {
            let (described, checked) = translation::check(spec)?;
            outln!("damaged copies of the superblock: {}", described.damaged_copies);
            outln!("pages whole: {}", checked.whole);
            outln!("pages damaged: {}", checked.damaged);
            outln!("pages without a sound header: {}", checked.unproved);
            outln!("pages lost before: {}", checked.poisoned);
            if !checked.is_sound() {
                return Err(
                    "the volume has pages whose data is lost or in doubt; restore it from a copy"
                        .to_owned(),
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(geometry: &translation::Geometry) {
    let physical = geometry.member_pages * u64::from(geometry.members);
    outln!("size: {}", size(u64::from(geometry.pages) * 4096));
    if geometry.thin {
        outln!("capacity of the thin volume: {}", size(u64::from(geometry.capacity) * 4096));
    }
    outln!("space of the member: {}", size(physical * 4096));
    outln!(
        "segments: {} of {}",
        geometry.segments(),
        size(u64::from(geometry.segment_pages) * 4096)
    );
    outln!("streams: {}", geometry.streams);
    let most = if geometry.thin { ", at most" } else { "" };
    outln!("memory in service{most}: {}", size(geometry.memory_bytes()));
}

/// Formats a size in bytes in the largest binary unit that is not above it, with at most one
/// decimal place.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    match bytes % (1 << (10 * unit)) {
        0 => format!("{} {}", bytes >> (10 * unit), units[unit as usize]),
        _ => {
            format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * unit)) as f64, units[unit as usize])
        }
    }
}
