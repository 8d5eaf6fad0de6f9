//! Tests of NVMe over TLS by the Linux kernel's NVMe host and its handshake daemon, `tlshd`.
//!
//! Debian 12 has neither the daemon nor an `nvme` that knows TLS, so the guest runs both from
//! packages of a newer release, with the libraries of that release.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::super::apt::Apt;
use super::super::built::target_folder;
use super::super::{Context, Verdict};
use super::verify::load;
use super::{HostAndServer, LATER, NQN, Plan, provide};

/// The qualified name of the host in these tests.
const HOST: &str = "nqn.2026-11.io.nearflash:host";

/// Two keys, both for SHA-256. GnuTLS, which the handshake daemon uses, proves a key by SHA-256
/// whichever hash the key is for, unless the daemon asks for another; that of Debian 13 does not.
const KEYS: [&str; 2] = [
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:",
];

/// The packages of the host's programs, and of all libraries that these load.
const PACKAGES: [&str; 25] = [
    "ktls-utils",
    "nvme-cli",
    "libc6",
    "libgcc-s1",
    "libgnutls30t64",
    "libkeyutils1",
    "libnl-3-200",
    "libnl-genl-3-200",
    "libglib2.0-0t64",
    "libnvme1t64",
    "libjson-c5",
    "libssl3t64",
    "zlib1g",
    "libzstd1",
    "libgmp10",
    "libhogweed6t64",
    "libnettle8t64",
    "libidn2-0",
    "libp11-kit0",
    "libtasn1-6",
    "libunistring5",
    "libffi8",
    "libpcre2-8-0",
    "libatomic1",
    "keyutils",
];

/// The amount that fio writes and reads back.
const AMOUNT: &str = "--size=48m --io_size=24m";

/// A script that reads the first 256 KiB of the device.
const READ: &str = "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null";

/// The programs of a Linux host with TLS, which lie in a folder of their own.
struct Programs {
    root: PathBuf,
}

impl Programs {
    fn provide() -> Result<Programs, String> {
        let cache = target_folder().join("interop-cache");
        let root = cache.join("tls-host");
        if !root.is_dir() {
            Apt::of_newest(&cache)?.unpack(&PACKAGES, &root)?;
        }
        Ok(Programs { root })
    }

    /// Returns the words that run a program at this path below the root, with the libraries that
    /// were built with it.
    fn run(&self, program: &str) -> String {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        let loader = libraries.join("ld-linux-x86-64.so.2");
        let [loader, libraries, program] = [&loader, &libraries, &self.root.join(program)]
            .map(|path: &PathBuf| path.display().to_string());
        format!("{loader} --library-path {libraries} {program}")
    }
}

/// Checks that the kernel's host connects over TLS, reads back what it wrote, connects again after
/// a reset and after the server was upgraded, and that a plain connection and one with another key
/// are refused.
pub(in super::super) fn connect(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    if !context.tools()?.1.has_option(&["CONFIG_NVME_TCP_TLS"]) {
        let reason = "Debian built this kernel without NVMe over TLS";
        return Ok(Verdict::Skipped(reason.to_owned()));
    }
    let programs = Programs::provide()?;
    let [first, second] = KEYS;
    let more = format!("[[host]]\nnqn = \"{HOST}\"\ntls_key = \"{first}\"\n");
    let volume = context.volume();
    let devices = &[volume.as_str()];
    let plan = Plan { devices, listeners: 1, options: "&tls=required", more: &more };
    let mut pair = HostAndServer::of(context, &plan)?;
    let host = TlsHost::start(&mut pair, programs)?;
    let rounds = if context.quick { 1 } else { 2 };
    host.connect(&mut pair, first, 1)?;
    let checked = pair.guest.must(&load("io_uring", "randwrite", AMOUNT), LATER);
    checked.map_err(|error| format!("over TLS: {error}"))?;
    for _ in 0..rounds {
        pair.must("nvme reset /dev/nvme0")?;
        pair.await_paths(1)?;
        pair.must(READ)?;
        pair.target.upgrade()?;
        pair.must(&format!("for n in $(seq 600); do {READ} && exit 0; sleep 0.1; done; exit 1"))?;
        pair.await_paths(1)?;
    }
    pair.disconnect()?;
    host.refused(&mut pair, "", "without TLS")?;
    host.forget(&mut pair)?;
    host.insert(&mut pair, second, 1)?;
    host.refused(&mut pair, "--tls", "with another key")?;
    let file = context.folder.join("key");
    fs::write(&file, second)
        .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    pair.target.operate(&["host", "key", HOST, &file.display().to_string(), "--tls"])?;
    for version in [1, 0] {
        host.forget(&mut pair)?;
        host.connect(&mut pair, second, version)?;
        pair.must(READ)?;
        pair.disconnect()?;
    }
    host.end(&mut pair)?;
    pair.end()?;
    Ok(Verdict::Passed(format!(
        "fio read back what it wrote over TLS; {rounds} resets, {rounds} upgrades, another key \
         while the server ran; no TLS and a wrong key refused"
    )))
}

/// The host's side in the guest: its handshake daemon runs.
struct TlsHost {
    programs: Programs,
    /// The words that run `nvme`.
    nvme: String,
}

impl TlsHost {
    /// Starts the handshake daemon in the guest, and waits until the kernel can hand handshakes to
    /// it.
    fn start(pair: &mut HostAndServer, programs: Programs) -> Result<TlsHost, String> {
        let (daemon, nvme) = (programs.run("usr/sbin/tlshd"), programs.run("usr/sbin/nvme"));
        pair.must("modprobe tls")?;
        pair.must(
            "printf '[debug]\\nloglevel=1\\n[authenticate]\\nkeyrings=.nvme\\n' >/run/tlshd.conf",
        )?;
        pair.guest.start(&format!("exec {daemon} --stderr --config=/run/tlshd.conf"))?;
        // Generic netlink is protocol 16; only the daemon listens to one of its groups.
        pair.must(
            "for n in $(seq 200); do \
               awk '$2 == 16 && $4 != \"00000000\" { found = 1 } END { exit !found }' \
                 /proc/net/netlink && exit 0; \
               sleep 0.05; \
             done; exit 1",
        )?;
        Ok(TlsHost { programs, nvme })
    }

    /// Puts a key into the kernel's keyring for NVMe, under the identity of this version.
    fn insert(&self, pair: &mut HostAndServer, key: &str, version: u8) -> Result<(), String> {
        let nvme = &self.nvme;
        pair.must(&format!(
            "{nvme} check-tls-key --insert --identity={version} --keydata={key} \
             --subsysnqn={NQN} --hostnqn={HOST}"
        ))?;
        Ok(())
    }

    /// Removes all keys from the keyring.
    fn forget(&self, pair: &mut HostAndServer) -> Result<(), String> {
        let keyctl = self.programs.run("usr/bin/keyctl");
        pair.must(&format!("{keyctl} clear %:.nvme"))?;
        Ok(())
    }

    /// Connects over TLS with this key. The first namespace becomes `/dev/nvme0n1`.
    fn connect(&self, pair: &mut HostAndServer, key: &str, version: u8) -> Result<(), String> {
        self.insert(pair, key, version)?;
        let (at, nvme) = (pair.at(0), &self.nvme);
        pair.must(&format!(
            "{nvme} connect {at} -n {NQN} -i 1 --hostnqn={HOST} --tls || exit 1\n\
             for n in $(seq 400); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.05; done; exit 1"
        ))?;
        pair.must("grep -q '[1-9a-f]' /sys/class/nvme/nvme0/tls_key")?;
        Ok(())
    }

    /// Asserts that the server refuses a connection with these options.
    fn refused(&self, pair: &mut HostAndServer, options: &str, how: &str) -> Result<(), String> {
        let (at, nvme) = (pair.at(0), &self.nvme);
        let script = format!("! {nvme} connect {at} -n {NQN} -i 1 --hostnqn={HOST} {options}");
        pair.must(&script).map_err(|error| format!("a host {how} was let in: {error}"))?;
        Ok(())
    }

    /// Ends the daemon, and removes its keys.
    fn end(&self, pair: &mut HostAndServer) -> Result<(), String> {
        self.forget(pair)?;
        pair.must(
            "for p in /proc/[0-9]*; do grep -q tlshd $p/cmdline && kill ${p#/proc/}; done; true",
        )?;
        Ok(())
    }
}
