//! A test of NBD clients over TLS, libnbd's tools and QEMU's, where TLS is required and where it is
//! allowed.

use std::fs;
use std::path::Path;

use super::super::{Context, Verdict};
use super::exports::{BYTES, Exports, check_same, run};
use crate::certificate;
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "openssl", package: "openssl" },
    Need { program: "nbdcopy", package: "libnbd-bin" },
    Need { program: "qemu-img", package: "qemu-utils" },
];

/// Copies an image in and out over TLS, and checks that clients without TLS are refused where it is
/// required.
pub(in super::super) fn clients(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    for policy in ["required", "allowed"] {
        serve(context, policy).map_err(|error| format!("tls={policy}: {error}"))?;
    }
    let mib = BYTES >> 20;
    Ok(Verdict::Passed(format!("{mib} MiB with nbdcopy over TLS, and qemu-img")))
}

fn serve(context: &Context, policy: &str) -> Result<(), String> {
    let place = |name: &str| context.folder.join(name).display().to_string();
    let (key, trusted) = (place("key.pem"), place("trusted"));
    fs::create_dir_all(&trusted).map_err(|error| format!("{trusted}: {error}"))?;
    let certificate = format!("{trusted}/ca-cert.pem");
    certificate::make(Path::new(&certificate), Path::new(&key))?;
    let options = format!("?tls={policy}&certificate={certificate}&key={key}");
    let exports = Exports::start_with(context, &options)?;
    let secure = |export: &str| {
        let url = exports.url(export).replacen("nbd://", "nbds://", 1);
        format!("{url}?tls-certificates={trusted}")
    };
    let list = run(&["nbdinfo", "--list", &secure("")])?;
    for line in ["with TLS", "export=\"first\":", "export=\"second\":"] {
        if !list.contains(line) {
            return Err(format!("nbdinfo does not show {line}:\n{list}"));
        }
    }
    let (image, copy) = (exports.image(context.seed)?, exports.path("copy"));
    run(&["nbdcopy", &image, &secure("first")])?;
    run(&["nbdcopy", &secure("first"), &copy])?;
    check_same(&image, &copy)?;
    qemu(&exports, &trusted)?;
    let plain = run(&["nbdinfo", "--size", &exports.url("first")]);
    match (policy, plain) {
        ("required", Err(said)) if said.contains("requires TLS") => Ok(()),
        ("allowed", Ok(size)) if size.trim() == BYTES.to_string() => Ok(()),
        (_, plain) => Err(format!("without TLS: {plain:?}")),
    }
}

fn qemu(exports: &Exports, trusted: &str) -> Result<(), String> {
    // A self-signed certificate is no authority's, which QEMU would look at.
    let creds = format!("tls-creds-x509,id=tls0,endpoint=client,dir={trusted},sanity-check=off");
    let port = exports.port;
    let disk = format!("driver=nbd,host=127.0.0.1,port={port},export=first,tls-creds=tls0");
    let info = run(&["qemu-img", "info", "--object", &creds, "--image-opts", &disk])?;
    match info.contains(&format!("({BYTES} bytes)")) {
        true => Ok(()),
        false => Err(format!("qemu-img does not show the size:\n{info}")),
    }
}
