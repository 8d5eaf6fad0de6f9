//! The kernel's own host proves who it is, or does not.

use super::nvme_tcp::{NQN, Pair, provide};
use super::{Context, Verdict};

/// The host of the tests.
const HOST: &str = "nqn.2026-11.io.nearflash:host";

/// Three keys: the host's, the controller's, and one that nobody has.
const KEYS: [&str; 3] = [
    "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
    "DHHC-1:01:CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgnCjZ2:",
    "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
];

/// A host with the right key gets in, also when it asks the same of the controller; one with a wrong
/// key, or none, does not.
pub(super) fn authenticate(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide() {
        return Ok(skipped);
    }
    let [key, controller_key, wrong] = KEYS;
    let more = format!(
        "authenticate = true\n[[host]]\nnqn = \"{HOST}\"\nkey = \"{key}\"\n\
         controller_key = \"{controller_key}\"\n"
    );
    let mut pair = Pair::start_with(context, &["mem:64MiB"], &more)?;
    let port = pair.port;
    let own = format!("--hostnqn={HOST}");
    let both = format!("{own} --dhchap-secret={key} --dhchap-ctrl-secret={controller_key}");
    for right in [format!("{own} --dhchap-secret={key}"), both] {
        pair.connect(&right)?;
        pair.must("dd if=/dev/urandom of=/dev/nvme0n1 bs=4k count=64 oflag=direct 2>/dev/null")?;
        pair.disconnect()?;
    }
    let others = [
        format!("{own} --dhchap-secret={wrong}"),
        format!("{own} --dhchap-secret={key} --dhchap-ctrl-secret={wrong}"),
        own.clone(),
        format!("--hostnqn={HOST}er --dhchap-secret={key}"),
    ];
    for options in &others {
        let script = format!("! nvme connect -t tcp -a 10.0.2.2 -s {port} -n {NQN} -i 1 {options}");
        let refused = pair.must(&script);
        refused.map_err(|error| format!("{options:?} was let in: {error}"))?;
    }
    pair.must("[ ! -e /dev/nvme0n1 ]")?;
    pair.guest.stop()?;
    Ok(Verdict::Passed(
        "right keys let in, one way and both; wrong ones and none refused".to_owned(),
    ))
}
