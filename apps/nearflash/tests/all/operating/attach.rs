//! Tests of `nearflash attach` on this machine's kernel. Virtual machines whose kernel has the
//! driver test the rest (`trials/src/interop/ublk`).

use std::path::Path;

use crate::support::nearflash;

/// The address of no server.
const NOBODY: &str = "reflex://127.0.0.1:1";

#[test]
fn whoever_cannot_attach_is_told_in_a_sentence() {
    let had_driver = Path::new("/dev/ublk-control").exists();
    let output = nearflash(&["attach", NOBODY, "--fail-after", "1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let reasons = ["this kernel has no ublk driver", "only root may attach", "cannot reach"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    if said.contains(reasons[0]) {
        assert!(!had_driver && said.contains("nearflash connect") && said.contains("nbd-client"));
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}

#[test]
fn nothing_is_attached_here() {
    for command in ["show", "resize"] {
        let output = nearflash(&["attach", command, "4095"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("nothing is attached as /dev/ublkb4095"), "{said}");
    }
}
