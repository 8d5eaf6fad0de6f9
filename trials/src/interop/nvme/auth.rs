//! Tests of in-band authentication (DH-HMAC-CHAP) by the Linux kernel's NVMe host.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::{Context, Verdict};
use super::{HostAndServer, Plan, provide};

/// The qualified name of the host in these tests.
const HOST: &str = "nqn.2026-11.io.nearflash:host";

/// Three keys: the host's, the controller's, and one that is registered nowhere.
const KEYS: [&str; 3] = [
    "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:",
    "DHHC-1:01:CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgnCjZ2:",
    "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:",
];

/// A script that reads the first 256 KiB of the device.
const READ: &str = "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null";

/// Returns the lines of a configuration that register the host with this key.
fn knowing(key: &str) -> String {
    let controller_key = KEYS[1];
    format!(
        "authenticate = true\n[[host]]\nnqn = \"{HOST}\"\nkey = \"{key}\"\n\
         controller_key = \"{controller_key}\"\n"
    )
}

/// Returns the verdict that skips a test if the guest's kernel cannot authenticate; `None` if it
/// can.
fn cannot(context: &Context) -> Result<Option<Verdict>, String> {
    // The second option is the name in newer kernels.
    if context.tools()?.1.has_option(&["CONFIG_NVME_AUTH", "CONFIG_NVME_HOST_AUTH"]) {
        return Ok(provide(&[]));
    }
    let reason = "Debian built this kernel without the host's side of authentication";
    Ok(Some(Verdict::Skipped(reason.to_owned())))
}

/// Checks that a host with the right key is admitted, also when it authenticates the controller in
/// turn, and that a host with a wrong key or none is refused.
pub(in super::super) fn authenticate(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = cannot(context)? {
        return Ok(skipped);
    }
    let [key, controller_key, wrong] = KEYS;
    let plan = Plan { devices: &["mem:64MiB"], listeners: 1, options: "", more: &knowing(key) };
    let mut pair = HostAndServer::of(context, &plan)?;
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
        pair.refused(options)?;
    }
    pair.must("[ ! -e /dev/nvme0n1 ]")?;
    pair.end()?;
    Ok(Verdict::Passed(
        "right keys let in, one way and both; wrong ones and none refused".to_owned(),
    ))
}

/// Replaces the host's key: first in the configuration of a server that is started again, then in a
/// running server, whose change overrides the configuration. The old key must be refused
/// afterwards.
pub(in super::super) fn rotated(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = cannot(context)? {
        return Ok(skipped);
    }
    let [first, _, second] = KEYS;
    let plan = Plan { devices: &["mem:64MiB"], listeners: 1, options: "", more: &knowing(first) };
    let mut pair = HostAndServer::of(context, &plan)?;
    pair.connect(&lasting(first))?;
    pair.target.kill();
    pair.target.configure(&Plan { more: &knowing(second), ..plan })?;
    pair.target.restart()?;
    replaced(&mut pair, first, second)?;
    let file = context.folder.join("key");
    let written = fs::write(&file, first)
        .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)));
    written.map_err(|error| format!("{}: {error}", file.display()))?;
    pair.target.operate(&["host", "key", HOST, &file.display().to_string()])?;
    // A connected host authenticates again only at its next connection.
    pair.must(READ)?;
    pair.must("nvme reset /dev/nvme0; true")?;
    replaced(&mut pair, second, first)?;
    pair.target.restart()?;
    pair.await_paths(1)?;
    pair.must(READ)?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed(
        "the old key stopped to work, by a restart and while the server ran".to_owned(),
    ))
}

/// Returns the options of `nvme connect` with this key, for a host that reconnects to a restarted
/// server.
fn lasting(key: &str) -> String {
    let patient = "--keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=600";
    format!("--hostnqn={HOST} --dhchap-secret={key} {patient}")
}

/// Waits until the connected host has failed with the old key, and connects it with the new one.
fn replaced(pair: &mut HostAndServer, old: &str, new: &str) -> Result<(), String> {
    // The host retries and is refused. Newer kernels give up at once, older ones go on retrying.
    pair.must(
        "for n in $(seq 600); do dmesg | grep -qi 'authentication.*\\(failed\\|error\\)' && break; \
           sleep 0.1; done; \
         dmesg | grep -i auth; ! grep -q live /sys/class/nvme/nvme*/state",
    )?;
    pair.must("nvme disconnect-all; true")?;
    pair.refused(&format!("--hostnqn={HOST} --dhchap-secret={old}"))?;
    pair.must("dmesg --clear")?;
    pair.connect(&lasting(new))?;
    pair.must(READ)?;
    Ok(())
}
