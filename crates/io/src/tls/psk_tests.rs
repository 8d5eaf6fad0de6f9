//! Tests of handshakes with pre-shared keys: whom they let in, and that records go on from there.
//! The foreign end is the program `openssl`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use contract::{Protocol, Psk, PskBook, PskHash, PskMark, TlsFailure};

use super::certificate::{ServerTls, TlsPolicy};
use super::handshake::{Handshake, HandshakeProgress, HandshakeRole, PreHandshake};
use super::secured::TlsState;
use super::tests::{TestRandom, damage_hello, frames, move_byte, open, seal, with_certificate};
use super::trust::ClientTls;

/// The keys of a server: two for an identity that is being replaced, and a long one.
struct TestKeyBook;

impl PskBook for TestKeyBook {
    fn find(&self, identities: &[&[u8]]) -> Option<(usize, Vec<Psk>)> {
        identities.iter().enumerate().find_map(|(at, identity)| match *identity {
            b"short" => Some((at, vec![psk(1), psk(2)])),
            b"long" => Some((at, vec![psk(3)])),
            _ => None,
        })
    }
}

fn psk(number: u8) -> Psk {
    let (hash, bytes) = match number {
        3 => (PskHash::Sha384, 48),
        _ => (PskHash::Sha256, 32),
    };
    Psk { hash, key: vec![number; bytes].into(), mark: PskMark(number.into()) }
}

/// Returns the TLS settings of a server with [`TestKeyBook`]; `None`, and says so, without OpenSSL.
fn server() -> Option<Arc<ServerTls>> {
    let made = ServerTls::with_keys(Protocol::NvmeTcp, TlsPolicy::Required, Arc::new(TestKeyBook));
    match made {
        Ok(server) => Some(server),
        Err(error) => {
            println!("SKIPPED: {error}");
            None
        }
    }
}

fn client(identity: &[u8], number: u8) -> HandshakeRole {
    ClientTls::with_key(identity, psk(number)).unwrap().side().unwrap()
}

type HandshakeResult = Result<Handshake, TlsFailure>;

/// Continues both handshakes until each has ended, and calls `between` after each turn.
fn play_over(mut ends: [HandshakeResult; 2], mut between: impl FnMut()) -> [HandshakeResult; 2] {
    let mut over = [false; 2];
    for _ in 0..100_000 {
        for (end, is_over) in ends.iter_mut().zip(&mut over) {
            if let Ok(handshake) = end {
                match handshake.advance() {
                    Ok(progress) => *is_over = progress == HandshakeProgress::Done,
                    Err(why) => (*is_over, *end) = (true, Err(why)),
                }
            }
        }
        if over == [true; 2] {
            return ends;
        }
        between();
    }
    panic!("it never ended");
}

/// Plays a handshake to its end at both ends.
fn play(server: HandshakeRole, client: HandshakeRole) -> [HandshakeResult; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let server = Handshake::new(here.into(), server, PreHandshake::Nothing);
    play_over([Ok(server), Ok(Handshake::new(there.into(), client, PreHandshake::Nothing))], || {})
}

/// Returns the states of both ends after a successful handshake, and checks that the server
/// received the client's identity.
fn pair(server: &ServerTls, identity: &[u8], number: u8) -> (TlsState, TlsState) {
    let [server, client] = play(server.side().unwrap(), client(identity, number));
    let (_, server, opening) = server.unwrap().finish().unwrap();
    assert_eq!(&*opening.unwrap().heard, identity);
    let (_, client, opening) = client.unwrap().finish().unwrap();
    assert_eq!(opening, None);
    (*server, *client)
}

/// Carries ten frames of up to `most` bytes, and checks that they arrive as they were sent.
fn carry(from: &mut TlsState, to: &mut TlsState, dice: &mut TestRandom, most: usize) {
    let (sent, bytes) = frames(dice, 10, most);
    let stream = seal(from, &sent);
    assert!(open(to, &stream, dice, 8_192) == (bytes, None));
}

fn why(ended: HandshakeResult) -> Option<TlsFailure> {
    ended.err()
}

#[test]
fn what_arrives_is_what_was_sent_with_keys_of_both_hashes() {
    let Some(server) = server() else { return };
    let mut dice = TestRandom(5);
    for (identity, number) in [(&b"short"[..], 1), (b"long", 3), (b"short", 2)] {
        let (mut server, mut client) = pair(&server, identity, number);
        for _ in 0..3 {
            carry(&mut server, &mut client, &mut dice, 50_000);
            carry(&mut client, &mut server, &mut dice, 50_000);
        }
    }
}

#[test]
fn keys_of_records_are_replaced_on_both_sides() {
    let Some(server) = server() else { return };
    let mut dice = TestRandom(6);
    for (identity, number) in [(&b"short"[..], 1), (b"long", 3)] {
        let (mut server, mut client) = pair(&server, identity, number);
        (server.sending.records_max, client.sending.records_max) = (5, 7);
        for _ in 0..10 {
            carry(&mut server, &mut client, &mut dice, 30_000);
            carry(&mut client, &mut server, &mut dice, 30_000);
        }
    }
}

#[test]
fn a_handshake_goes_on_wherever_its_records_are_cut() {
    let Some(server) = server() else { return };
    let (here, mut at_server) = UnixStream::pair().unwrap();
    let (there, mut at_client) = UnixStream::pair().unwrap();
    at_server.set_nonblocking(true).unwrap();
    at_client.set_nonblocking(true).unwrap();
    // The second key of its identity, so that the hello is heard twice.
    let client = Handshake::new(there.into(), client(b"short", 2), PreHandshake::Nothing);
    let server = Handshake::new(here.into(), server.side().unwrap(), PreHandshake::Nothing);
    let ends = play_over([Ok(server), Ok(client)], || {
        move_byte(&mut at_client, &mut at_server);
        move_byte(&mut at_server, &mut at_client);
    });
    ends.into_iter().for_each(|end| drop(end.unwrap().finish().unwrap()));
}

#[test]
fn those_without_the_key_are_refused_at_both_ends() {
    let Some(server) = server() else { return };
    for (identity, number, reason, alert) in [
        (&b"nobody"[..], 1, TlsFailure::UnknownKey, 115),
        (b"short", 9, TlsFailure::WrongKey, 47),
        (b"long", 1, TlsFailure::NothingInCommon, 40),
    ] {
        let [server, client] = play(server.side().unwrap(), client(identity, number));
        assert_eq!(why(server), Some(reason), "{identity:?}");
        assert_eq!(why(client), Some(TlsFailure::Alert(alert)), "{identity:?}");
    }
}

#[test]
fn a_certificate_does_not_stand_for_a_key_nor_a_key_for_a_certificate() {
    let Some(keys) = server() else { return };
    let (certified, trusting) = with_certificate();
    let [server, client] = play(certified.side().unwrap(), client(b"short", 1));
    assert!(server.is_err() || client.is_err());
    assert_eq!(why(client), Some(TlsFailure::WrongKey));
    let [server, client] = play(keys.side().unwrap(), trusting.side().unwrap());
    assert_eq!(why(server), Some(TlsFailure::UnknownKey));
    assert!(client.is_err());
}

#[test]
fn a_handshake_stands_tampered_hellos() {
    let Some(keys) = server() else { return };
    let mut dice = TestRandom(23);
    for round in 0..300 {
        let server = keys.side().unwrap();
        damage_hello(&mut dice, server, client(b"short", 1), round % 2 == 0);
    }
}

#[test]
fn the_program_openssl_gets_in_with_the_key_and_replaces_its_keys() {
    let Some(keys) = server() else { return };
    if Command::new("openssl").arg("version").output().is_err() {
        println!("SKIPPED: there is no program openssl");
        return;
    }
    // The program has keys of SHA-256 only.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let key: String = psk(2).key.iter().map(|byte| format!("{byte:02x}")).collect();
    let address = listener.local_addr().unwrap().to_string();
    let mut foreign = Command::new("openssl")
        .args(["s_client", "-tls1_3", "-nocommands"])
        .args(["-connect", &address, "-psk", &key, "-psk_identity", "short"])
        .args(["-verify_quiet", "-ign_eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let copy = socket.try_clone().unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut handshake = Handshake::new(copy.into(), keys.side().unwrap(), PreHandshake::Nothing);
    while handshake.advance().unwrap() != HandshakeProgress::Done {}
    let (_, mut secured, _) = handshake.finish().unwrap();
    socket.set_nonblocking(false).unwrap();
    foreign.stdin.as_mut().unwrap().write_all(b"to the server\n").unwrap();
    let mut dice = TestRandom(1);
    let mut heard = Vec::new();
    let mut bytes = [0; 4096];
    while !heard.ends_with(b"\n") {
        let len = socket.read(&mut bytes).unwrap();
        assert_ne!(len, 0);
        let (data, why) = open(&mut secured, &bytes[..len], &mut dice, 4096);
        assert_eq!(why, None);
        heard.extend(data);
    }
    assert_eq!(heard, b"to the server\n");
    // With keys that are replaced before each record.
    secured.sending.records_max = 0;
    let mut record = [0; 64];
    for word in [&b"to the "[..], b"client", b"\n"] {
        let update = secured.update(&mut record).unwrap();
        socket.write_all(&record[..update]).unwrap();
        record[5..5 + word.len()].copy_from_slice(word);
        let content = super::key::ContentType::Data;
        let data = secured.sending.seal(&mut record, word.len(), content).unwrap();
        socket.write_all(&record[..data]).unwrap();
    }
    socket.write_all(&secured.farewell().unwrap()).unwrap();
    let said = foreign.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("to the client\n"), "{said}");
}
