//! Tests of a configuration file that is read again on SIGHUP while the real program runs.

use crate::support::{
    NvmeQueue, Operator, PATIENCE, SUBSYSTEM, ServerFolder, V2, host_nqn, subsystem, wait_until,
};
use contract::{Command, Hello, Range, Status};
use wire::nvme::{AuthFailure, Event};

const MIB: u64 = 1 << 20;

#[test]
fn a_reload_takes_what_can_change_and_names_the_rest() {
    let place = ServerFolder::new();
    place.configure_disk(&format!("{}[[tenant]]\nname = \"gold\"\n", subsystem()));
    let server = place.configured().start();
    let at = server.listener(0);
    let mut host = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    place.configure_disk(&format!(
        "{}hosts = [\"{}\"]\n[[tenant]]\nname = \"gold\"\n[[tenant]]\nname = \"tin\"\n\
         [[namespace]]\ndevice = \"disk\"\nsize = \"24MiB\"\n[limits]\nin_flight = 100\n",
        subsystem(),
        host_nqn(1)
    ));
    server.hang_up();
    server.await_log("these need an upgrade or a restart: [limits]");
    assert_eq!(host.event(), Event::NAMESPACE);
    assert_eq!(host.blocks(1), Ok(24 * MIB / 512));
    assert!(NvmeQueue::admin(at, 2, SUBSYSTEM).is_err());
    assert!(place.told(&["tenant", "list"]).contains("tin"));
    place.write_configuration("workers = \"many\"");
    server.hang_up();
    server.await_log("nothing has changed");
    assert_eq!(host.blocks(1), Ok(24 * MIB / 512));
    // With mistakes of what only a restart takes, too: all of them by their lines, and nothing is
    // taken.
    place.configure_disk(
        "[[tenant]]\nname = \"zinc\"\n[[access]]\nfrom = \"nowhere\"\nrights = \"read\"\n\
         [[namespace]]\ndevice = \"disc\"\n[limits]\nin_flight = 0\n",
    );
    server.hang_up();
    for line in [11, 14, 16] {
        server.await_log(&format!("nearflash.toml:{line}: "));
    }
    assert!(!place.told(&["tenant", "list"]).contains("zinc"));
}

#[test]
fn a_reload_takes_other_hashes_and_a_host_may_have_its_own() {
    const SHA256: u8 = 1;
    const SHA512: u8 = 3;
    const NO_GROUP: u8 = 0;
    let place = ServerFolder::new();
    let key = "key = \"DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:\"\n";
    let host = format!("[[host]]\nnqn = \"{}\"\n{key}", host_nqn(1));
    let with = |hash: &str| {
        let methods = format!("[authentication]\nhashes = [\"{hash}\"]\ngroups = [\"none\"]\n");
        place.configure_disk(&format!("{}{host}{methods}", subsystem()));
    };
    with("sha256");
    let mut server = place.configured().start();
    let offer =
        |at, hash| NvmeQueue::connect(at, 1, SUBSYSTEM, 0, 0xffff).unwrap().offer(hash, NO_GROUP);
    let at = server.listener(0);
    assert_eq!(offer(at, SHA256), Ok(()));
    with("sha512");
    server.hang_up();
    wait_until("the other hashes", PATIENCE, || offer(at, SHA512) == Ok(()));
    assert_eq!(offer(at, SHA256), Err(AuthFailure::HASH));
    let said = place.refused(&["host", "set", &host_nqn(1), "--hashes", "md5"]);
    assert!(said.contains("`sha384`"), "{said}");
    place.told(&["host", "set", &host_nqn(1), "--hashes", "sha256"]);
    assert_eq!((offer(at, SHA512), offer(at, SHA256)), (Err(AuthFailure::HASH), Ok(())));
    server.kill();
    let server = place.configured().start();
    let at = server.listener(0);
    assert_eq!(offer(at, SHA256), Ok(()), "kept over a restart");
    assert!(place.told(&["host", "show", &host_nqn(1)]).contains("hash sha256, all groups"));
    place.told(&["host", "set", &host_nqn(1), "--hashes", "all"]);
    assert_eq!((offer(at, SHA512), offer(at, SHA256)), (Ok(()), Err(AuthFailure::HASH)));
}

/// Checks that a refused reload changes no promise, as if an operator had made it.
#[test]
fn a_reload_that_is_refused_has_changed_no_promise() {
    let place = ServerFolder::new();
    let with = |weight: u32, rest: &str| {
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"mem:16MiB\"\nmodel = \"a\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n{}\
             [[tenant]]\nname = \"gold\"\nweight = {weight}\n{rest}",
            subsystem()
        );
        place.write_configuration(&text);
    };
    with(2, "");
    let server = place.configured().start();
    let weight = || {
        place.json(&["tenant", "list"])["tenants"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tenant| tenant["name"] == "gold")
            .unwrap()["share"]["weight"]
            .clone()
    };
    assert_eq!(weight(), 2);
    with(3, "[[tenant]]\nname = \"tin\"\n[[subsystem]]\nnqn = \"nonsense\"\n");
    server.hang_up();
    server.await_log("nothing has changed");
    assert_eq!(weight(), 2);
    wait_until("the end of the other", PATIENCE, || {
        !place.told(&["tenant", "list"]).contains("tin")
    });
    place.told(&["tenant", "add", "other"]);
    with(4, "");
    server.hang_up();
    wait_until("the third value", PATIENCE, || weight() == 4);
}

#[test]
fn a_reload_names_what_operators_have_changed() {
    let place = ServerFolder::new();
    let with = |weight: u32, rest: &str| {
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"file:{}?size=16MiB\"\nmodel = \"a\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[tenant]]\nname = \"gold\"\nweight = {weight}\n{rest}",
            place.path("disk").display()
        );
        place.write_configuration(&text);
    };
    with(2, "");
    let server = place.configured().start();
    place.told(&["tenant", "set", "gold", "--weight", "5"]);
    // Whose size is written down by that.
    place.told(&["namespace", "add", "more", "1MiB"]);
    with(3, "[[namespace]]\ndevice = \"disk\"\nsize = \"8MiB\"\n");
    server.hang_up();
    server.await_log("stay so whatever the file says: tenant \"gold\", namespace \"ns1\"");
    assert!(place.told(&["namespace", "list"]).contains("16 MiB"));
}

#[test]
fn a_namespace_goes_that_was_overwritten_to_measure_its_device_once_a_reload_says_otherwise() {
    let place = ServerFolder::new();
    let with = |scratch: &str| {
        let text = format!(
            "[[device]]\nname = \"disk\"\nspec = \"mem:2MiB\"\n{scratch}\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"1MiB\"\n\
             [[namespace]]\nname = \"spare\"\ndevice = \"disk\"\noffset = \"1MiB\"\nsize = \"1MiB\"\n"
        );
        place.write_configuration(&text);
    };
    with("recalibrate_scratch = \"spare\"\n");
    let server = place.configured().start();
    let said = place.refused(&["namespace", "rm", "spare"]);
    assert!(said.contains("recalibrate_scratch") && said.contains("reload"), "{said}");
    with("");
    server.hang_up();
    server.await_log("the configuration is reloaded");
    assert!(!server.log().contains("restart"), "{}", server.log());
    place.told(&["namespace", "rm", "spare"]);
}

#[test]
fn a_server_ends_when_it_is_told_to_while_a_reload_hangs() {
    let place = ServerFolder::new();
    place.configure_disk("");
    let mut server = place.configured().start();
    let file = place.path("nearflash.toml");
    // Whoever reads it waits for somebody who writes.
    let make_pipe = |path: &std::path::Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    make_pipe(&place.path("pipe"));
    std::fs::rename(place.path("pipe"), &file).unwrap();
    for _ in 0..3 {
        server.hang_up();
    }
    server.terminate();
    assert!(server.wait().success());
}

/// Checks that a reload keeps a tenant that hosts are charged to. Its hosts would be charged to
/// nobody, or to the next tenant with its number.
#[test]
fn a_reload_removes_no_tenant_that_hosts_are_charged_to() {
    let place = ServerFolder::new();
    let charged = format!("{}tenant = \"gold\"\n", subsystem());
    place.configure_disk(&format!("{charged}[[tenant]]\nname = \"gold\"\n"));
    let server = place.configured().start();
    let host = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap();
    let mut io = host.io(server.listener(0), 1, SUBSYSTEM);
    io.write(1, 0, &[1; 512]).unwrap();
    place.configure_disk(&charged);
    server.hang_up();
    server.await_log("there is no tenant \"gold\"");
    io.write(1, 0, &[2; 512]).unwrap();
    assert!(place.told(&["tenant", "list"]).contains("gold"));
    let said = place.refused(&["tenant", "rm", "gold"]);
    assert!(said.contains(SUBSYSTEM), "{said}");
    place.configure_disk(&subsystem());
    server.hang_up();
    wait_until("the end of the tenant", PATIENCE, || {
        !place.told(&["tenant", "list"]).contains("gold")
    });
    assert_eq!(io.read(1, 0), Ok(vec![2; 512]));
}

/// Checks that no other namespace gets a number that a reload has freed: connected clients may
/// still mean the removed namespace by it.
#[test]
fn a_number_that_a_reload_has_freed_is_given_to_no_other_namespace() {
    let place = ServerFolder::new();
    let one = "[[namespace]]\ndevice = \"disk\"\nsize = \"4MiB\"\n";
    let other = "[[namespace]]\ndevice = \"disk\"\noffset = \"4MiB\"\nsize = \"4MiB\"\n";
    place.configure_disk(&format!("{one}{other}"));
    let server = place.configured().start();
    let mut client = V2::hello(server.listener(1), Hello::default()).unwrap();
    let write = Command::Write { range: Range::new(0, 1), fua: false };
    assert_eq!(client.call_in(2, write, &[5; 512]).0, Status::Ok);
    place.configure_disk(one);
    server.hang_up();
    wait_until("the end of the namespace", PATIENCE, || {
        client.call_in(2, write, &[5; 512]).0 == Status::NoNamespace
    });
    let added = place.told(&["namespace", "add", "new", "1MiB"]);
    assert_eq!(added, "added new as number 3, 1 MiB on disk\n");
    assert_eq!(client.call_in(2, write, &[6; 512]).0, Status::NoNamespace);
}
