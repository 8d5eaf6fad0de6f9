//! Tests that written data is read back, over several I/O engines and request sizes.

use super::super::{Context, Verdict};
use super::{HostAndServer, LATER, provide};

/// The request sizes of fio and their shares in percent: from 4 KiB, carried in capsules, to 1 MiB,
/// which the kernel may split.
const SIZES: &str = "4k/40:8k/10:12k/5:16k/10:60k/5:64k/10:128k/10:256k/4:512k/3:1024k/3";

/// Verifies with fio's engine libaio, which most programs use.
pub(in super::super) fn libaio(context: &Context) -> Result<Verdict, String> {
    verify(context, "libaio")
}

/// Verifies with fio's engine io_uring and its registered buffers.
pub(in super::super) fn io_uring(context: &Context) -> Result<Verdict, String> {
    verify(context, "io_uring --fixedbufs=1")
}

fn verify(context: &Context, engine: &str) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut pair = HostAndServer::start(context, &["mem:64MiB"])?;
    let all = ["", "--hdr-digest --data-digest", "--hdr-digest", "--data-digest"];
    for digests in if context.quick { &all[..2] } else { &all[..] } {
        pair.connect(digests)?;
        let load = load(engine, "randwrite", "--size=48m --io_size=24m");
        let mixed = load_mixed(engine);
        for script in [load, mixed] {
            let checked = pair.guest.must(&script, LATER);
            checked.map_err(|error| format!("with {digests:?}: {error}"))?;
        }
        pair.disconnect()?;
    }
    pair.end()?;
    Ok(Verdict::Passed("4 KiB to 1 MiB read back, digests off and on".to_owned()))
}

/// Returns the fio command that writes with mixed sizes and then verifies; `amount` says how much.
pub(super) fn load(engine: &str, pattern: &str, amount: &str) -> String {
    format!(
        "fio --name=verify --filename=/dev/nvme0n1 --direct=1 --ioengine={engine} \
         --rw={pattern} --iodepth=16 {amount} --bssplit={SIZES} --blockalign=4k \
         --verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=normal"
    )
}

/// Returns the fio command that reads and writes at the same time; each read verifies an earlier
/// write.
fn load_mixed(engine: &str) -> String {
    format!(
        "fio --name=mixed --filename=/dev/nvme0n1 --direct=1 --ioengine={engine} --rw=randrw \
         --iodepth=32 --size=4m --bs=4k --verify=crc32c --verify_fatal=1 --output-format=normal"
    )
}
