//! Tests of NBD over real sockets: exports, rights, large requests, clients of other protocols, and
//! an upgrade in the middle of a request.

use nearflash::{Options, blocking::Client};
use wire::nbd::{CommandKind, OptionReply, errno, export_flag};

use crate::support::{Launch, Nbd, PATIENCE, ServerFolder, open_folder, wait_until};

const EXPORTS: &str = "[[device]]\nname = \"m\"\nspec = \"mem:32MiB\"\n\
    [[namespace]]\nname = \"small\"\ndevice = \"m\"\nsize = \"8MiB\"\n\
    [[namespace]]\nname = \"rest\"\ndevice = \"m\"\noffset = \"8MiB\"\n";

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n / 512 * 7 + n) as u8).collect()
}

#[test]
fn exports_are_namespaces_and_large_requests_are_carried_out() {
    let server = Launch::config(&format!(
        "{EXPORTS}[[listen]]\nurl = \"nbd://127.0.0.1:0?namespace=2\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n"
    ))
    .start();
    let mut nbd = Nbd::connect(server.address());
    assert_eq!(nbd.list(), ["small", "rest"]);
    assert_eq!(nbd.go("none"), Err(OptionReply::UNKNOWN));
    nbd.go("").unwrap();
    assert_eq!(nbd.size, 24 << 20, "the listener leads there");
    let mut nbd = Nbd::connect(server.address());
    nbd.go("small").unwrap();
    assert_eq!(nbd.size, 8 << 20);
    let data = pattern(5 << 20);
    assert_eq!(nbd.write(1 << 20, &data), 0);
    assert!(nbd.read(1 << 20, data.len()).unwrap() == data, "other data came back");
    let client = Client::connect(&format!("reflex://{}", server.listener(1)), Options::default());
    let read = client.unwrap().read(2048, data.len()).unwrap();
    assert!(read == data, "clients of reflex see other data");
    assert_eq!(nbd.command(CommandKind::TRIM, 1 << 20, 3 << 20), 0);
    assert_eq!(nbd.command(CommandKind::FLUSH, 0, 0), 0);
    let read = nbd.read(1 << 20, 4 << 20).unwrap();
    assert!(
        read[..3 << 20].iter().all(|byte| *byte == 0) && read[3 << 20..] == data[3 << 20..4 << 20]
    );
    assert_eq!(nbd.read(8 << 20, 512), Err(errno::EINVAL));
    assert_eq!(nbd.write(8 << 20, &[0; 512]), errno::ENOSPC);
    nbd.request(CommandKind::DISC, 0, 0, 0);
    assert!(nbd.is_closed());
}

#[test]
fn rules_say_what_a_local_user_may_do() {
    let folder = open_folder();
    let path = folder.path().join("nbd.sock");
    let server = Launch::config(&format!(
        "{EXPORTS}[[listen]]\nurl = \"nbd+unix:{}\"\n\
         [[access]]\nuid = {}\nrights = \"read\"\nnamespaces = [1]\n",
        path.display(),
        rustix::process::geteuid().as_raw(),
    ))
    .start();
    let mut nbd = Nbd::connect_unix(&path);
    assert_eq!(nbd.list(), ["small"]);
    assert_eq!(nbd.go("rest"), Err(OptionReply::POLICY));
    nbd.go("1").unwrap();
    assert!(nbd.flags & export_flag::READ_ONLY != 0);
    assert_eq!(nbd.write(0, &[1; 512]), errno::EPERM);
    assert_eq!(nbd.read(0, 512), Ok(vec![0; 512]));
    drop(server);
}

#[test]
fn a_stranger_to_the_protocol_is_cut_off() {
    let server = Launch::new(&["--device", "mem:16MiB", "--listen", "nbd://127.0.0.1:0"]).start();
    let mut nbd = Nbd::connect(server.address());
    nbd.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(nbd.is_closed());
    let mut nbd = Nbd::connect(server.address());
    nbd.go("ns1").unwrap();
    assert_eq!(nbd.read(0, 512), Ok(vec![0; 512]), "the others are served");
}

#[test]
fn an_upgrade_in_the_middle_of_a_large_write_is_not_noticed() {
    let place = ServerFolder::in_memory();
    let arguments = ["--device", &place.file("device"), "--listen", "nbd://127.0.0.1:0"];
    let launch = || place.crewed(Launch::new(&arguments));
    let mut old = launch().start();
    let mut nbd = Nbd::connect(old.address());
    nbd.go("ns1").unwrap();
    let data = pattern(3 << 20);
    nbd.request(CommandKind::WRITE, 0, 4096, data.len());
    nbd.send(&data[..(1 << 20) + 777]);
    let new = launch().with("--upgrade").start();
    assert!(old.wait().success(), "the older one ends in order");
    nbd.send(&data[(1 << 20) + 777..]);
    assert_eq!(nbd.reply(), 0);
    assert!(nbd.read(4096, data.len()).unwrap() == data, "other data came back");
    wait_until("the connection at the new process", PATIENCE, || place.peers().len() == 1);
    drop(new);
}
