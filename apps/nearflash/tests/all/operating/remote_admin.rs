//! Tests of the admin API for operators on other machines: TLS, tokens, and the rights of each
//! token.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{ANN, BOB, Launch, OperatorFiles, PATIENCE, each, now, wait_until};
use control::admin::{Client, ClientError, Code, WorkerState};

fn refusal(error: ClientError) -> Code {
    error.code().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn operators_elsewhere_do_what_their_token_is_good_for() {
    let operators = OperatorFiles::new();
    let mut server = operators.start();
    let ran = operators.run("ann", &["tenant", "add", "gold"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let ran = operators.run("bob", &["tenant", "list"]);
    assert!(String::from_utf8_lossy(&ran.stdout).contains("gold"));
    let ran = operators.run("bob", &["tenant", "rm", "gold"]);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("for reading only"), "{said}");
    assert_eq!(
        refusal(operators.client("somebody-elses-token").tenants().unwrap_err()),
        Code::Unauthorized
    );
    // Who did what is told by the tokens' names, and no token is told.
    let audit = std::fs::read_to_string(operators.path("audit")).unwrap();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["who"]["token"].as_str(), line["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(told, [(Some("ann"), 201), (Some("bob"), 403), (None, 401)]);
    assert!(lines[2]["who"]["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    let said = audit + &server.log();
    assert!(!said.contains(ANN) && !said.contains(BOB) && !said.contains("somebody-elses"));
    assert!(server.runs());
}

/// Checks that only one trace runs at a time, as a worker has one ring for traces, and that a token
/// that may only read cannot start one, as tracing costs workers time.
#[test]
fn one_trace_runs_at_a_time_at_whichever_address() {
    let operators = OperatorFiles::new();
    let _server = operators.start();
    let mut ann = operators.client(ANN);
    assert_eq!(refusal(operators.client(BOB).trace(0.0, 1).unwrap_err()), Code::Forbidden);
    let path = operators.path("admin.sock").display().to_string();
    let mut socket = Client::new(path.parse().unwrap()).unwrap();
    let tracing = std::thread::spawn(move || {
        // Whoever looks whether somebody traces is one who does, for a moment.
        loop {
            match socket.trace(3.0, 1) {
                Err(error) if error.code() == Some(Code::Taken) => {}
                other => return other.map(drop),
            }
        }
    });
    wait_until("somebody who traces", PATIENCE, || {
        assert!(!tracing.is_finished(), "the two addresses know nothing of each other");
        ann.trace(0.0, 1).is_err_and(|error| error.code() == Some(Code::Taken))
    });
    tracing.join().unwrap().unwrap();
    ann.trace(0.0, 1).unwrap();
    let audit = std::fs::read_to_string(operators.path("audit")).unwrap();
    let of = |who: &str| {
        let mut lines = audit.lines().filter(|line| line.contains("/v1/trace"));
        lines.any(|line| line.contains(who))
    };
    assert!(of("\"bob\"") && of("\"ann\"") && of("\"uid\""), "{audit}");
}

#[test]
fn nobody_comes_from_elsewhere_without_tls_and_tokens() {
    let operators = OperatorFiles::new();
    // The word on the command line, without what belongs to it.
    let (code, said) =
        Launch::device("null:1MiB").with("--admin").with("https://127.0.0.1:0").fail();
    assert!(code == 1 && said.contains("`certificate`, `key` and `tokens`"), "{said}");
    let (code, said) = Launch::device("null:1MiB").with("--admin").with("http://0.0.0.0:80").fail();
    assert!(code == 2 && said.contains("not loopback"), "{said}");
    for name in ["key", "tokens"] {
        let path = operators.path(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let (code, said) = operators.launch().fail();
        assert!(code == 1 && said.contains("640") && said.contains("chmod 600"), "{said}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let _server = operators.start();
    // Without TLS there is no answer, and a server that nobody vouches for gets no token.
    let mut plain = TcpStream::connect(operators.at).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET /v1/tenants HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let mut client = operators.client(ANN);
    client.tenants().unwrap();
    operators.certify();
    let error = operators.client(ANN).tenants().unwrap_err();
    assert!(error.to_string().contains("--admin-ca"), "{error}");
}

#[test]
fn wrong_tokens_are_answered_late_and_who_has_a_right_one_does_not_wait() {
    let operators = OperatorFiles::new();
    let _server = operators.start();
    let started = now();
    for _ in 0..10 {
        let error = operators.client("not-the-token-of-anybody").tenants().unwrap_err();
        assert_eq!(refusal(error), Code::Unauthorized);
    }
    assert!(started.elapsed() >= Duration::from_millis(10 * 300));
    // One is forgotten each ten seconds, which a busy machine may have taken for the ten.
    let mut guesses = 10;
    let last = loop {
        let begun = now();
        let again = operators.client("nor-is-this-a-token-of-anybody").tenants().unwrap_err();
        match refusal(again) {
            Code::TooOften => break begun.elapsed(),
            Code::Unauthorized => guesses += 1,
            other => panic!("{other:?}"),
        }
        let most = 11 + started.elapsed().as_secs() / 10;
        assert!(guesses <= most, "one can go on guessing: {guesses} times");
    };
    assert!(last >= Duration::from_millis(300), "to go on guessing is no faster");
    // Others behind the same address are not concerned.
    operators.client(ANN).tenants().unwrap();
    assert!(operators.run("ann", &["tenant", "list"]).status.success());
    // The socket is not concerned.
    let path = operators.path("admin.sock").display().to_string();
    Client::new(path.parse().unwrap()).unwrap().tenants().unwrap();
}

#[test]
fn certificates_and_tokens_are_replaced_while_it_runs() {
    let operators = OperatorFiles::new();
    let server = operators.start();
    let (mut ann, mut bob) = (operators.client(ANN), operators.client(BOB));
    ann.tenants().unwrap();
    bob.tenants().unwrap();
    operators.certify();
    operators.put("tokens", &format!("ann read {ANN}\n"), 0o600);
    server.hang_up();
    server.await_log("the configuration is reloaded");
    // Their connections go on, and what they may do is what the new file says.
    ann.tenants().unwrap();
    let parked = ann.set_worker(0, WorkerState::Active);
    assert_eq!(refusal(parked.unwrap_err()), Code::Forbidden);
    assert_eq!(refusal(bob.tenants().unwrap_err()), Code::Unauthorized);
    operators.client(ANN).tenants().unwrap();
    // What makes no sense changes nothing.
    operators.put("tokens", "ann", 0o600);
    server.hang_up();
    server.await_log("nothing has changed");
    operators.client(ANN).tenants().unwrap();
}

#[test]
fn one_address_does_not_get_all_connections_of_the_port() {
    let operators = OperatorFiles::new();
    let _server = operators.start();
    let connect = |from: &str| {
        // Every address of 127.0.0.0/8 is this machine.
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::bind(&socket, &format!("{from}:0").parse::<SocketAddr>().unwrap()).unwrap();
        rustix::net::connect(&socket, &operators.at).unwrap();
        TcpStream::from(socket)
    };
    let silent: Vec<TcpStream> = (0..30).map(|_| connect("127.0.0.2")).collect();
    wait_until("the end of those beyond its share", PATIENCE, || {
        silent.iter().filter(|stream| is_closed(stream)).count() == 22
    });
    operators.client(ANN).tenants().unwrap();
}

/// Returns `true` if the other end has closed a connection.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    !matches!(&peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Returns the HTTP status of a request with this method, path and token.
fn status(operators: &OperatorFiles, method: &str, path: &str, token: &str) -> u16 {
    operators.client(token).status(method, path).unwrap()
}

#[test]
fn the_document_lists_what_strangers_are_answered() {
    let operators = OperatorFiles::new();
    let _server = operators.start();
    let document = serde_json::to_value(control::admin::document()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{name}", "nobody").replace("{id}", "9:1.1");
            all.push((method.to_uppercase(), path.replace("{number}", "9"), operation.clone()));
        }
    }
    let listed = |n: usize, code: u16| {
        let (method, path, operation) = &all[n];
        assert!(operation["responses"][code.to_string()].is_object(), "{method} {path}: {code}");
    };
    for (n, (method, path, _)) in all.iter().enumerate() {
        let code = status(&operators, method, path, BOB);
        listed(n, code);
        // Who follows requests sees what others do.
        let needs_more = method != "GET" && path != "/v1/tenants/check" || path == "/v1/trace";
        assert_eq!(code == 403, needs_more, "{method} {path}: {code}");
    }
    // After ten wrong tokens the answer is another; so the resources take turns.
    // Each answer is late; several are waited for at once.
    let (unauthorized, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let numbers: Vec<usize> = (0..all.len()).collect();
    each(4, &numbers, |&n| {
        let (method, path, _) = &all[n];
        let code = status(&operators, method, path, "somebody-elses-token");
        listed(n, code);
        match code {
            401 => unauthorized.fetch_add(1, Ordering::Relaxed),
            429 => late.fetch_add(1, Ordering::Relaxed),
            other => panic!("{path}: {other}"),
        };
    });
    let (unauthorized, late) = (unauthorized.into_inner(), late.into_inner());
    assert!(unauthorized >= 10 && late >= 10, "{unauthorized}, {late}");
}
