//! Tests of NBD over TLS with the real program: clients that are admitted, and the answers to the
//! others.

use wire::nbd::{OPTION_MAGIC, OptionKind, OptionReply};

use super::tls::{TlsFolder, bench, said};
use crate::support::{Launch, Nbd};

/// Returns an NBD option without data, as bytes.
fn option(kind: OptionKind) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(kind.0.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn exports_are_read_and_written_over_tls() {
    let safe = TlsFolder::new();
    let server = safe.launch("nbds", "").start();
    for export in ["", "ns1"] {
        let url = format!("nbds://{}/{export}?{}", server.address(), safe.trust());
        let output = bench(&url);
        assert!(output.status.success(), "{url}: {}", said(&output));
    }
}

#[test]
fn a_listener_may_let_clients_of_nbd_choose() {
    let safe = TlsFolder::new();
    let server = safe.launch("nbd", "&tls=allowed").start();
    let at = server.address();
    for url in [format!("nbd://{at}/ns1"), format!("nbds://{at}/ns1?{}", safe.trust())] {
        let output = bench(&url);
        assert!(output.status.success(), "{url}: {}", said(&output));
    }
    // Options that a client sends at once reach its session, the first among them.
    let mut nbd = Nbd::connect(at);
    assert_eq!(nbd.list(), ["ns1"]);
    assert_eq!(nbd.ask(OptionKind::STARTTLS), OptionReply::POLICY, "it has passed that by");
    nbd.go("ns1").unwrap();
    assert_eq!(nbd.write(512, &[7; 512]), 0);
    assert_eq!(nbd.read(512, 512), Ok(vec![7; 512]));
}

#[test]
fn whoever_does_not_get_in_to_nbd_is_told_why_on_both_sides() {
    let safe = TlsFolder::new();
    let server = safe.launch("nbds", "").start();
    let plain = Launch::new(&["--device", "mem:16MiB", "--listen", "nbd://127.0.0.1:0"]);
    let plain = plain.log("info").start();
    let at = server.address();
    // Plain clients, where TLS is required.
    let output = bench(&format!("nbd://{at}/ns1"));
    assert!(said(&output).contains("wants TLS") && said(&output).contains("nbds://"));
    let mut nbd = Nbd::connect(at);
    for kind in [OptionKind::LIST, OptionKind::STRUCTURED_REPLY, OptionKind::GO, OptionKind(77)] {
        assert_eq!(nbd.ask(kind), OptionReply::TLS_REQUIRED, "{kind:?}");
    }
    nbd.send(&option(OptionKind::EXPORT_NAME));
    assert!(nbd.is_closed());
    server.await_log("does not speak TLS");
    // Clients over TLS, where there is none.
    let output = bench(&format!("nbds://{}/ns1?{}", plain.address(), safe.trust()));
    assert!(said(&output).contains("does not speak TLS"), "{}", said(&output));
    assert_eq!(Nbd::connect(plain.address()).ask(OptionKind::STARTTLS), OptionReply::UNSUPPORTED);
    // A certificate that is not trusted, and an export that is not there.
    let output = bench(&format!("nbds://{at}/ns1?fingerprint={}", "ab".repeat(32)));
    assert!(said(&output).contains("another fingerprint"), "{}", said(&output));
    let output = bench(&format!("nbds://{at}/none?{}", safe.trust()));
    assert!(said(&output).contains("no such export"), "{}", said(&output));
}

#[test]
fn options_behind_starttls_in_the_clear_are_not_taken() {
    let safe = TlsFolder::new();
    let server = safe.launch("nbds", "").start();
    let mut nbd = Nbd::connect(server.address());
    nbd.send(&[option(OptionKind::STARTTLS), option(OptionKind::LIST)].concat());
    let mut answer = [0; 20];
    nbd.take(&mut answer);
    assert_eq!(answer[12..], [0, 0, 0, 1, 0, 0, 0, 0], "TLS may begin");
    assert!(nbd.is_closed(), "and nothing else");
    server.await_log("does not speak TLS");
}
