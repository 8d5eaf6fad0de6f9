//! Tests of starts that fail. Each error names the faulty part and says what to do instead. The
//! exit code is 2 for an invalid command line, and 1 for everything else.

use std::process::{Command, Stdio};

use crate::support::{Launch, PoliteClient, V1};

/// Checks that a start fails with exit code 1 and an error that contains all these words.
fn complains(launch: Launch, words: &[&str]) {
    let (code, said) = launch.fail();
    assert_eq!(code, 1, "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn an_occupied_port_is_named() {
    let first = Launch::device("mem:8MiB").start();
    let polite = PoliteClient::start(first.address());
    let url = format!("reflex://{}", first.address());
    let second = Launch::new(&["--device", "mem:1MiB", "--listen", &url]);
    complains(second, &[&first.address().to_string(), "another server"]);
    polite.dismiss();
}

#[test]
fn a_bad_device_is_explained() {
    complains(Launch::device("volume0"), &["volume0", "null:SIZE", "file:PATH"]);
    complains(Launch::device("nul:1GiB"), &["nul:", "null:SIZE"]);
    complains(Launch::device("null:1000"), &["1000", "multiple of 512"]);
    complains(Launch::device("mem:1GB"), &["1GB", "GiB"]);
    complains(Launch::device("mem:1GiB?dely=1us"), &["dely", "delay"]);
    complains(Launch::device("mem:0"), &["more than zero"]);
}

#[test]
fn a_missing_file_is_not_made_without_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    complains(
        Launch::device(&format!("file:{}", path.display())),
        &[&path.display().to_string(), "does not exist", "?size="],
    );
    assert!(!path.exists());
    let deep = format!("file:{}?size=1MiB", path.join("none").join("volume").display());
    std::fs::write(&path, [0; 512]).unwrap();
    complains(Launch::device(&deep), &[&path.display().to_string()]);
}

#[test]
fn a_file_of_another_size_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let shown = path.display().to_string();
    std::fs::write(&path, [0; 100]).unwrap();
    complains(Launch::device(&format!("file:{shown}")), &[&shown, "100"]);
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    complains(Launch::device(&format!("file:{shown}?size=2MiB")), &[&shown]);
    complains(
        Launch::device(&format!("file:{}?size=1MiB", folder.path().display())),
        &["directory"],
    );
}

#[test]
fn two_servers_do_not_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=8MiB", folder.path().join("volume").display());
    let first = Launch::device(&spec).start();
    let polite = PoliteClient::start(first.address());
    complains(Launch::device(&spec), &["volume", "in use by another server"]);
    polite.dismiss();
}

#[test]
fn a_bad_configuration_is_explained_with_its_place() {
    complains(
        Launch::new(&["--config", "does-not-exist.toml"]),
        &["does-not-exist.toml", "cannot read"],
    );
    let device = "[[device]]\nname = \"m\"\nspec = \"mem:1MiB\"\n";
    for (text, words) in [
        ("wokers = 2", &[":1: ", "wokers", "workers"][..]),
        ("workers = \"two\"", &[":1: workers: ", "two"]),
        ("workers = 0", &["0 workers", "1 to 32"]),
        ("[[device]]\nname = \"m\"", &["spec"]),
        ("[[device]]\nname = \"m\"\nspec = \"mem\"", &["mem", "null:SIZE"]),
        ("[[namespace]]\ndevice = \"x\"", &["namespace 1", "\"x\"", "m"]),
        ("[[namespace]]\ndevice = \"m\"\nsize = \"2MiB\"", &["namespace 1", "2048"]),
        ("[[namespace]]\ndevice = \"m\"\noffset = \"1MiB\"", &["namespace 1", "2048"]),
        ("[[access]]\nfrom = \"everybody\"\nrights = \"read\"", &["access rule 1", "10.0.0.0/8"]),
        ("[[access]]\nfrom = \"anyone\"\nrights = \"all\"", &["access rule 1", "read-write"]),
        ("[[access]]\nrights = \"read\"", &["access rule 1", "`token`"]),
        ("[[access]]\nfrom = \"anyone\"\nnamespaces = [2]\nrights = \"read\"", &["namespace 2"]),
        ("[limits]\nin_flight = 0", &["limits.in_flight", "1 to 65536"]),
        ("[limits]\nstuck_seconds = 0", &["limits.stuck_seconds", "1 to 3600"]),
        ("[limits]\nunsent_of_connection = \"1\"", &["limits.unsent_of_connection", "512"]),
    ] {
        let whole = if text.starts_with("[[device]]") || text.starts_with("wo") {
            text.to_owned()
        } else {
            format!("{device}{text}")
        };
        complains(Launch::config(&whole), words);
    }
}

#[test]
fn a_bad_listener_is_explained() {
    let listen = |url: &str| Launch::new(&["--device", "mem:1MiB", "--listen", url]);
    complains(listen("127.0.0.1:0"), &["reflex://HOST:PORT"]);
    complains(listen("reflex://127.0.0.1:0?namespace=2"), &["namespace 2"]);
    complains(listen("reflex://127.0.0.1:0?colour=2"), &["colour=2"]);
    complains(listen("reflex://192.0.2.1:0"), &["192.0.2.1", "--insecure"]);
}

#[test]
fn everybody_may_come_in_only_where_that_was_said() {
    let open = || Launch::new(&["--device", "mem:8MiB", "--listen", "reflex://0.0.0.0:0"]);
    complains(open(), &["0.0.0.0:0", "[[access]]", "--insecure"]);
    let server = open().with("--insecure").start();
    let mut address = server.address();
    address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    let mut v1 = V1::connect(address);
    v1.get(1, 0, 1);
    v1.expect_data(1, 0, 1);
    // With a rule it needs no such word.
    let rule = "[[device]]\nname = \"m\"\nspec = \"mem:1MiB\"\n[[listen]]\n\
                url = \"reflex://0.0.0.0:0\"\n[[access]]\ntoken = \"t\"\nrights = \"read\"\n";
    Launch::config(rule).start();
}

#[test]
fn a_command_line_that_makes_no_sense_is_code_2() {
    for words in [&["serve", "--wokers", "2"][..], &["serve", "--workers", "two"], &["sreve"], &[]]
    {
        let ran = Command::new(env!("CARGO_BIN_EXE_nearflash"))
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("--help"), "{words:?}");
        // The form of all messages; without a word there is nothing but the help.
        assert_eq!(said.starts_with("nearflash: "), !words.is_empty(), "{words:?}: {said}");
        assert!(!said.contains("error: "), "{said}");
    }
}

#[test]
fn a_server_without_a_device_says_what_it_makes_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let here = std::fs::canonicalize(folder.path()).unwrap();
    let start = || {
        let launch = Launch::new(&["--listen", "reflex://127.0.0.1:0"]);
        launch.after(&[], &format!("cd {}", here.display())).start()
    };
    let volume = here.join("nearflash-data/volume0");
    let server = start();
    server.await_log(&format!(
        "nearflash: no device is named: makes and serves {}, a file of 1 GiB; --device names another",
        volume.display()
    ));
    assert!(volume.exists());
    drop(server);
    start().await_log(&format!("no device is named: serves {};", volume.display()));
    assert!(!Launch::device("null:1MiB").start().log().contains("no device is named"));
}

#[test]
fn check_says_whether_a_server_would_start_and_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let good = format!(
        "[[device]]\nname = \"m\"\nspec = \"file:{}?size=1MiB\"\n\
         [[namespace]]\ndevice = \"m\"\nsize = \"512KiB\"\n",
        path.display()
    );
    let (code, said) = Launch::config(&good).with("--check").fail();
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(!path.exists(), "a check makes no files");
    let bad = good.replace("512KiB", "2MiB");
    complains(Launch::config(&bad).with("--check"), &["namespace 1", "2048"]);
    let missing = good.replace("?size=1MiB", "");
    complains(Launch::config(&missing).with("--check"), &["does not exist", "?size="]);
}

#[test]
fn an_upgrade_that_only_looks_is_refused() {
    let ran = crate::support::nearflash(&["upgrade", "--check"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let said = crate::support::complaint(&ran);
    assert!(said.contains("`nearflash serve --check`"), "{said}");
}

#[test]
fn a_server_without_an_admin_api_says_so_and_how_to_get_one() {
    let server = Launch::device("null:1MiB").start();
    server.await_log("without an admin API, as it was told");
    // Nobody told it, and there is no place where it could be: a container, or another user's
    // shell.
    let wrapper = match rustix::process::geteuid().is_root() {
        true => &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"][..],
        false => &[],
    };
    let script = "unset NEARFLASH_ADMIN XDG_RUNTIME_DIR RUNTIME_DIRECTORY && cd /";
    let server = Launch::device("null:1MiB").after(wrapper, script).start();
    server.await_log("neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR");
    assert!(server.log().contains("--admin PATH"), "{}", server.log());
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock").display().to_string();
    let server = Launch::device("null:1MiB").with("--admin").with(&socket).start();
    assert!(!server.log().contains("admin API"), "{}", server.log());
}
