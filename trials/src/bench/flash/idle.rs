//! The row of an idle server of a volume of flash translation with 1 000 connections, beside an
//! idle mounted file system: the processor time of both.

use std::time::{Duration, Instant};

use super::mounted::sides;
use super::setup::Setup;
use crate::bench::idle::served;
use crate::bench::packets::judge::{Bound, Comparison, verdict};
use crate::bench::packets::watch::ran;

const CONNECTIONS: usize = 1000;

/// The most that both may take, in per cent of a core.
const CORE_MAX: f64 = 0.5;

/// The time after the last connection before it is measured, and the least time of a measurement.
const SETTLE: Duration = Duration::from_secs(2);
const IDLE_MIN: Duration = Duration::from_secs(5);

/// Measures the processor time of the server and of the mount's process.
pub(super) fn measure(setup: &mut Setup) -> Result<Vec<Comparison>, String> {
    let member = setup.memory.path("served").display().to_string();
    let volume = setup.volume(&member, "?size=1GiB")?;
    let server = setup.serve(&volume)?;
    let member = setup.memory.path("idle").display().to_string();
    let volume = setup.volume(&member, "?size=4GiB")?;
    let mount = setup.mount(&volume, setup.memory.folder("idle-mount")?)?;
    let mounted = mount.server.as_ref().ok_or("the mount has a server")?;
    let address = server.address.trim_start_matches("reflex://").to_owned();
    let failed = |error: std::io::Error| format!("connecting to {address}: {error}");
    let open = (0..CONNECTIONS).map(|_| served(&address).map_err(failed));
    let connections = open.collect::<Result<Vec<_>, String>>()?;
    std::thread::sleep(SETTLE);
    let mut sides = sides(["server", "mount", "both"]);
    for _ in 0..setup.rounds {
        let before = [server.id(), mounted.id()].map(ran);
        let began = Instant::now();
        std::thread::sleep(IDLE_MIN.max(Duration::from_secs_f64(setup.seconds)));
        let after = [server.id(), mounted.id()].map(ran);
        let share = |n: usize| {
            let used = after[n].saturating_sub(before[n]).as_secs_f64();
            100.0 * used / began.elapsed().as_secs_f64()
        };
        let of = [share(0), share(1)];
        // Who is idle loses nothing to other work.
        for (side, value) in sides.iter_mut().zip([of[0], of[1], of[0] + of[1]]) {
            side.add(Ok((value, 0.0)));
        }
    }
    drop(connections);
    let both = sides[2].median();
    let result = both.map_or(String::new(), |share| format!("{share:.3} %"));
    let what = "% of a core, both".to_owned();
    let judged = vec![verdict(what, Bound::AtMost(CORE_MAX), both, result, &[&sides[2]])];
    let about = format!("an idle server of `ftl:` with {CONNECTIONS} connections, an idle mount");
    Ok(vec![Comparison { name: "idle", about, unit: "% of a core", sides, judged }])
}
