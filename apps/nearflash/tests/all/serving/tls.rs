//! Tests of connections over TLS to the real program: every kind of client by its URL, and the
//! answers to clients that are not admitted.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::{Launch, PATIENCE, Server, ServerFolder, V2, wait_until};
use contract::Hello;
use nearflash::{Options, blocking};

/// A folder with a certificate for 127.0.0.1 and its key, for the servers of a test.
pub(super) struct TlsFolder {
    place: ServerFolder,
}

impl TlsFolder {
    pub(super) fn new() -> TlsFolder {
        let safe = TlsFolder { place: ServerFolder::new() };
        safe.certify();
        safe
    }

    /// Writes a new self-signed certificate and its key.
    fn certify(&self) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(self.place.path("certificate"), made.cert.pem()).unwrap();
        std::fs::write(self.place.path("key"), made.signing_key.serialize_pem()).unwrap();
        self.permit(0o600);
    }

    /// Sets the permissions of the key's file.
    fn permit(&self, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.place.path("key"), permissions).unwrap();
    }

    pub(super) fn launch(&self, scheme: &str, options: &str) -> Launch {
        let path = |name: &str| self.place.path(name).display().to_string();
        let listen = format!(
            "{scheme}://127.0.0.1:0?certificate={}&key={}{options}",
            path("certificate"),
            path("key")
        );
        let launch = Launch::new(&["--device", &self.place.file("disk"), "--listen", &listen]);
        self.place.crewed(launch).log("info")
    }

    /// Returns the URL of a server for clients that trust its certificate.
    fn url(&self, server: &Server) -> String {
        format!("reflexs://{}?{}", server.address(), self.trust())
    }

    /// Returns the option of a client's URL by which the client trusts the certificate.
    pub(super) fn trust(&self) -> String {
        format!("ca={}", self.place.path("certificate").display())
    }
}

pub(super) fn bench(url: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["bench", url, "--json", "--warmup", "0", "--seconds", "0.3", "--verify"]);
    command.args(["--read-percent", "50", "--connections", "2", "--queue-depth", "8"]);
    command.stdin(Stdio::null()).output().expect("the program starts")
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn clients_read_and_write_over_tls() {
    let safe = TlsFolder::new();
    let server = safe.launch("reflexs", "").start();
    let output = bench(&safe.url(&server));
    assert!(output.status.success(), "{}", said(&output));
    let client = blocking::Client::connect(&safe.url(&server), Options::default()).unwrap();
    let data: Vec<u8> = (0..300_000u32 / 512 * 512).map(|n| (n ^ n >> 8) as u8).collect();
    client.write(7, &data).unwrap();
    assert!(client.read(7, data.len()).unwrap() == data);
}

#[test]
fn whoever_does_not_get_in_by_tls_is_told_why_on_both_sides() {
    let safe = TlsFolder::new();
    let server = safe.launch("reflexs", "").start();
    let plain = Launch::device("mem:16MiB").start();
    let at = server.address();
    // Plain clients, where TLS is required.
    let output = bench(&format!("reflex://{at}"));
    assert!(said(&output).contains("wants TLS") && said(&output).contains("reflexs://"));
    server.await_log("does not speak TLS");
    // Clients over TLS, where there is none.
    let output = bench(&safe.url(&plain));
    assert!(said(&output).contains("TLS"), "{}", said(&output));
    plain.await_log("a TLS handshake, but this listener has no TLS");
    // Certificates that are not trusted.
    let pin = "ab".repeat(32);
    let output = bench(&format!("reflexs://{at}?fingerprint={pin}"));
    assert!(said(&output).contains("another fingerprint"), "{}", said(&output));
    server.await_log("ended TLS with alert");
    let other = TlsFolder::new();
    let ca = other.place.path("certificate").display().to_string();
    let connect = |url: &str| blocking::Client::connect(url, Options::default()).unwrap_err();
    let error = connect(&format!("reflexs://{at}?ca={ca}")).to_string();
    assert!(error.contains("no trusted authority"), "{error}");
    let error = connect(&format!("{}&name=elsewhere", safe.url(&server))).to_string();
    assert!(error.contains("for another name"), "{error}");
}

#[test]
fn a_listener_may_let_clients_choose() {
    let safe = TlsFolder::new();
    let server = safe.launch("reflex", "&tls=allowed").start();
    let mut clients = Vec::new();
    for url in [format!("reflex://{}", server.address()), safe.url(&server)] {
        let client = blocking::Client::connect(&url, Options::default()).unwrap();
        client.write(0, &[7; 512]).unwrap();
        assert_eq!(client.read(0, 512).unwrap(), [7; 512]);
        clients.push(client);
    }
    // A client makes a connection of its own to ask, and keeps another.
    let choices = |choice: &str| {
        let label = format!("{{protocol=\"reflex\",choice=\"{choice}\"}}");
        safe.place.metric(&format!("nearflash_tls_choices_total{label}"))
    };
    assert!(choices("tls") >= 1.0 && choices("plain") >= 1.0);
    let open = "nearflash_tls_connections{protocol=\"reflex\"}";
    assert!(safe.place.metric(open) >= 1.0);
    drop(clients);
    wait_until("the end of the connection over TLS", PATIENCE, || safe.place.metric(open) == 0.0);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let safe = TlsFolder::new();
    safe.permit(0o644);
    let (_, said) = safe.launch("reflexs", "").fail();
    assert!(said.contains("permissions 644") && said.contains("chmod 600"), "{said}");
    std::fs::write(safe.place.path("key"), "no key").unwrap();
    safe.permit(0o600);
    let (_, said) = safe.launch("reflexs", "").fail();
    assert!(said.contains("no private key in PEM"), "{said}");
}

#[test]
fn clients_over_tls_come_again_when_another_process_takes_over() {
    let safe = TlsFolder::new();
    let first = safe.launch("reflexs", "").start();
    let client = blocking::Client::connect(&safe.url(&first), Options::default()).unwrap();
    client.write(3, &[9; 512]).unwrap();
    let second = safe.launch("reflexs", "").with("--upgrade").start();
    second.await_log("took over");
    assert_eq!(client.read(3, 512).unwrap(), [9; 512]);
    assert_eq!(second.address(), first.address());
    drop(first);
    assert_eq!(client.read(3, 512).unwrap(), [9; 512]);
}

#[test]
fn a_plain_connection_stays_behind_where_a_successor_requires_tls() {
    let safe = TlsFolder::new();
    let first = safe.launch("reflex", "&tls=allowed").start();
    let _plain = V2::hello(first.listener(0), Hello::default()).unwrap();
    let second = safe.launch("reflexs", "").with("--upgrade").start();
    first.await_log("its listener requires TLS now");
    second.await_log("took over 0 connections");
}

#[test]
fn a_reload_takes_another_certificate_for_those_who_come_later() {
    let safe = TlsFolder::new();
    let path = |name: &str| safe.place.path(name).display().to_string();
    safe.place.write_configuration(&format!(
        "[[device]]\nname = \"disk\"\nspec = \"{}\"\n\
         [[listen]]\nurl = \"reflexs://127.0.0.1:0?certificate={}&key={}\"\n",
        safe.place.file("disk"),
        path("certificate"),
        path("key"),
    ));
    let server = safe.place.configured().log("info").start();
    let url = safe.url(&server);
    let early = blocking::Client::connect(&url, Options::default()).unwrap();
    safe.certify();
    server.hang_up();
    server.await_log("the configuration is reloaded");
    let late = blocking::Client::connect(&url, Options::default()).unwrap();
    for client in [early, late] {
        client.write(1, &[5; 512]).unwrap();
    }
}
