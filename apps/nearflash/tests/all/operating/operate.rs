//! Tests of operating a running server: the resources of the admin API, and the commands that use
//! them.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{
    Answer, KilledOnDrop, Launch, Operator, PATIENCE, PoliteClient, SLOW_MODEL, Server, V2,
    complaint, free_port, nearflash, now, open_folder, wait_until,
};
use contract::{Command, Hello, Range, Status};
use control::admin::{AdminAddress, Client, Code, Devices, NewTenant, Slo, TenantStatus};
use serde_json::Value;

/// A directory for the sockets and files of one server.
struct ServerFolder {
    folder: tempfile::TempDir,
}

impl ServerFolder {
    fn new() -> ServerFolder {
        let folder = open_folder();
        std::fs::write(folder.path().join("model.toml"), SLOW_MODEL).unwrap();
        ServerFolder { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a server of a slow device, with `rest` in its configuration. It is not started.
    fn launch(&self, rest: &str) -> Launch {
        let model = self.path("model.toml");
        Launch::config(&format!(
            "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\nmodel = \"{}\"\n{rest}",
            model.display()
        ))
        .with("--admin")
        .with(&self.admin())
    }

    fn client(&self) -> Client {
        Client::new(AdminAddress::Unix(self.path("admin.sock"))).unwrap()
    }
}

impl Operator for ServerFolder {
    fn admin(&self) -> String {
        self.path("admin.sock").display().to_string()
    }
}

fn enter(server: &Server, tenant: &str) -> Result<V2, Status> {
    V2::hello(server.address(), Hello { tenant: tenant.into(), ..Hello::default() })
}

fn read() -> Command {
    Command::Read(Range::new(0, 8))
}

#[test]
fn a_tenant_is_added_shown_changed_checked_and_removed() {
    let place = ServerFolder::new();
    let server = place.launch("").start();
    let added = place.told(&["tenant", "add", "gold", "--latency", "500us", "--iops", "1k"]);
    assert_eq!(added, "added gold on disk: 1 000 tokens/s promised, 3 000 left\n");
    let changed = place.told(&["tenant", "set", "gold", "--read-percent", "80"]);
    assert_eq!(changed, "changed gold on disk: 2 800 tokens/s promised, 1 200 left\n");
    let mut gold = enter(&server, "gold").unwrap();
    assert_eq!(gold.call(read(), &[]).0, Status::Ok);
    let list = place.told(&["tenant", "list"]);
    let line = list.lines().find(|line| line.starts_with("gold")).unwrap();
    for word in ["disk", "1 000", "500 µs", "2 800", "80 %"] {
        assert!(line.contains(word), "no {word} in {line}");
    }
    let listed = &place.json(&["tenant", "list"])["tenants"];
    let of = |name: &str| {
        listed.as_array().unwrap().iter().find(|tenant| tenant["name"] == name).unwrap().clone()
    };
    assert_eq!(of("gold")["slo"]["read_percent"], 80);
    assert_eq!((&of("gold")["connections"], &of("default")["connections"]), (&1.into(), &0.into()));
    let devices = place.told(&["device", "list"]);
    assert!(devices.contains("4 000") && devices.contains("500 µs of gold"), "{devices}");
    let fits = place.told(&["tenant", "check", "--latency", "2ms", "--iops", "1200"]);
    let (first, then) = fits.split_once("; ").unwrap();
    assert_eq!(first, "would be admitted: needs 1 200 tokens/s, 0 would be left");
    assert_eq!(then, "no second one like it fits\n");
    let ask = ["tenant", "check", "--latency", "2ms", "--iops", "400", "--count"];
    assert_eq!(place.told(&ask), "3\n");
    assert_eq!(place.told(&["tenant", "rm", "gold"]), "removed gold\n");
    // Whoever belonged to it is told, and lets nobody else pay.
    wait_until("the end of the tenant", PATIENCE, || gold.call(read(), &[]).0 == Status::NoTenant);
    assert_eq!(enter(&server, "gold").err(), Some(Status::Denied));
    wait_until("a free number", PATIENCE, || !place.told(&["tenant", "list"]).contains("gold"));
}

#[test]
fn shares_and_switches_are_shown_and_changed() {
    let place = ServerFolder::new();
    // The keys stand behind those of the device.
    let told = "correct_online = true\nbound_depth = true\nfail_fast = true\n\
                [[tenant]]\nname = \"bulk\"\nweight = 3\ncap_tokens = 1000\n";
    let server = place.launch(told).start();
    let line = |name: &str| {
        let list = place.told(&["tenant", "list"]);
        list.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    };
    let shown = line("bulk");
    assert!(shown.contains("≤ 1 000") && shown.ends_with("idle, weight 3"), "{shown}");
    place.told(&["tenant", "set", "bulk", "--cap", "none"]);
    let shown = line("bulk");
    assert!(!shown.contains('≤') && shown.ends_with("weight 3"), "{shown}");
    place.told(&["tenant", "add", "more", "--weight", "2", "--cap", "2k"]);
    let listed = place.json(&["tenant", "list"]);
    let more = listed["tenants"].as_array().unwrap().iter().find(|tenant| tenant["name"] == "more");
    assert_eq!(more.unwrap()["share"], serde_json::json!({ "weight": 2, "cap_tokens": 2000 }));
    let promised = ["tenant", "add", "gold", "--latency", "2ms", "--iops", "10", "--weight", "2"];
    assert!(complaint(&place.run(&promised)).contains("promised a latency"));
    // Reads are measured; nothing is late, so nothing is corrected.
    place.told(&["tenant", "add", "gold", "--latency", "2ms", "--iops", "10"]);
    assert_eq!(enter(&server, "gold").unwrap().call(read(), &[]).0, Status::Ok);
    let devices = place.told(&["device", "list"]);
    assert!(devices.contains("corrected: rate 100.0 %, write price 100.0 %"), "{devices}");
}

#[test]
fn refusals_say_why_and_what_would_have_to_give() {
    let place = ServerFolder::new();
    let _server = place.launch("").start();
    place.told(&["tenant", "add", "gold", "--latency", "500us", "--iops", "3000"]);
    let refused = |words: &[&str], says: &[&str]| {
        let ran = place.run(words);
        let text = complaint(&ran) + &String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(1), "{words:?}: {text}");
        for word in says {
            assert!(text.contains(word), "{words:?}: no {word:?} in {text}");
        }
    };
    let silver = ["--latency", "2ms", "--iops", "2000"];
    let why = [
        "needs 2 000 tokens/s of 1 000 available",
        "p95 ≤ 500 µs, the bound of tenant \"gold\"",
        "at most 1 000 requests/s",
        "the end of \"gold\"",
    ];
    refused(&[&["tenant", "add", "silver"], &silver[..]].concat(), &why);
    refused(&[&["tenant", "check"], &silver[..]].concat(), &why);
    refused(&["tenant", "set", "gold", "--iops", "5k"], &["needs 5 000", "of 4 000 available"]);
    refused(&["tenant", "add", "gold"], &["already"]);
    refused(&["tenant", "add", "x", "--device", "tape"], &["there are: disk"]);
    refused(&["tenant", "add", "x", "--iops", "5"], &["both --latency and --iops"]);
    refused(&["tenant", "set", "gold"], &["nothing to change"]);
    refused(&["tenant", "set", "none", "--best-effort"], &["\"default\", \"gold\""]);
    refused(&["tenant", "rm", "none"], &["there is no tenant \"none\""]);
    refused(&["tenant", "rm", "default"], &["whoever belongs to no other"]);
    refused(&["tenant", "check"], &["--latency and --iops"]);
    let ran = place.run(&["tenant", "set", "gold", "--iops", "5k", "--json"]);
    assert_eq!(ran.status.code(), Some(1));
    let refusal: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(refusal["error"]["code"], "too-much");
    assert_eq!(refusal["error"]["shortage"]["tokens_needed"], 5000);
    assert_eq!(refusal["error"]["ways"]["iops"], 4000);
    let gold = place.json(&["tenant", "list"]);
    assert!(gold.to_string().contains("\"iops\":3000"), "the old promise stands: {gold}");
}

#[test]
fn rules_say_who_may_enter_a_tenant_of_the_operator() {
    let place = ServerFolder::new();
    let server = place
        .launch(
            "[[tenant]]\nname = \"bronze\"\n\
             [[access]]\ntoken = \"open\"\nrights = \"read-write\"\nregister = true\n\
             [[access]]\ntoken = \"closed\"\nrights = \"read-write\"\n\
             [[access]]\ntoken = \"owned\"\ntenant = \"bronze\"\nrights = \"read-write\"\n\
             register = true\n",
        )
        .start();
    place.told(&["tenant", "add", "gold"]);
    let hello = |token: &str, tenant: &str| {
        let hello =
            Hello { token: token.as_bytes().into(), tenant: tenant.into(), ..Hello::default() };
        V2::hello(server.address(), hello)
    };
    let mut gold = hello("open", "gold").unwrap();
    let promise = Some(contract::Slo::new(500, 10, 100));
    let (status, _) = gold.renegotiate(0, promise).unwrap_err();
    assert_eq!(status, Status::Denied, "what the operator promised is the operator's to change");
    assert_eq!(hello("closed", "gold").err(), Some(Status::Denied));
    assert_eq!(hello("owned", "gold").err(), Some(Status::Denied), "they are somebody's already");
    assert_eq!(hello("", "gold").err(), Some(Status::Denied));
    assert_eq!(hello("open", "none").err(), Some(Status::Denied));
    assert_eq!(hello("open", "bronze").err(), Some(Status::Denied), "the file made that");
}

#[test]
fn a_tenant_keeps_to_its_rate_and_the_list_says_so() {
    let place = ServerFolder::new();
    let server = place.launch("").start();
    place.told(&["tenant", "add", "gold", "--latency", "500us", "--iops", "3000"]);
    place.told(&["tenant", "add", "batch"]);
    let url = format!("reflex://{}", server.address());
    let words = ["bench", &url, "--seconds", "60", "--warmup", "0", "--tenant", "gold"];
    let mut load = nearflash(&words);
    let load = load.args(["--rate", "2000", "--queue-depth", "64"]).stdout(Stdio::null());
    let mut load = load.stderr(Stdio::null()).spawn().unwrap();
    // A machine that is busy with other things serves less; what is shown is what was done.
    let mut seen = Vec::new();
    wait_until("a second with load", PATIENCE, || {
        let tenants = place.client().tenants().unwrap();
        let gold = tenants.iter().find(|tenant| tenant.name == "gold").unwrap().measured.clone();
        let shown = gold.iops > 100.0 && gold.p95_us.is_some();
        seen.push(gold);
        shown
    });
    let gold = seen.last().unwrap();
    // What the load could not send while the machine was busy it sends later, as fast as it may.
    assert!(gold.iops < 1.15 * 3_000.0, "{gold:?}");
    assert!(
        (gold.tokens - gold.iops).abs() <= 0.05 * gold.iops + 20.0,
        "a read is a token: {gold:?}"
    );
    assert_eq!(gold.read_percent, Some(100.0));
    let _ = load.kill(); // it may have ended
    load.wait().unwrap();
}

#[test]
fn a_tenant_is_told_why_it_is_slow() {
    let place = ServerFolder::new();
    let server = place.launch("").start();
    place.told(&["tenant", "add", "capped", "--cap", "500"]);
    let idle = place.told(&["why", "capped", "--seconds", "1"]);
    assert!(idle.starts_with("tenant capped: no client of the tenant is connected\n"), "{idle}");
    let url = format!("reflex://{}", server.address());
    let words = ["bench", &url, "--seconds", "60", "--warmup", "0", "--tenant", "capped"];
    let mut load = nearflash(&words);
    let load = load.args(["--queue-depth", "64"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut load = load.spawn().unwrap();
    let mut told = String::new();
    wait_until("waits for tokens", PATIENCE, || {
        told = place.told(&["why", "capped", "--seconds", "1"]);
        told.contains("its requests wait for tokens")
    });
    assert!(told.contains("its cap is 500 tokens/s"), "{told}");
    assert_eq!(place.json(&["why", "capped", "--seconds", "1"])["tenant"], "capped");
    let _ = load.kill(); // it may have ended
    load.wait().unwrap();
    assert!(place.refused(&["why", "nobody"]).contains("there is no tenant"));
}

#[test]
fn a_thousand_tenants_come_and_go_under_load() {
    let place = ServerFolder::new();
    let device = "[[device]]\nname = \"fast\"\nspec = \"mem:64MiB\"\nmodel = \"a\"\n";
    let server = Launch::config(device).with("--admin").with(&place.admin()).start();
    let polite = PoliteClient::start(server.address());
    let mut client = place.client();
    let slo = Slo {
        latency_us: 2_000,
        percentile: 95.0,
        iops: 1,
        read_percent: 100,
        request_bytes: 4096,
    };
    let begun = now();
    for n in 0..1_000 {
        let tenant = NewTenant {
            name: format!("t{n}"),
            device: None,
            slo: Some(slo.clone()),
            share: None,
            note: None,
        };
        client.send(&tenant).unwrap();
    }
    assert_eq!(client.read::<Devices>().unwrap().devices[0].tokens_promised, 1_000);
    let added = now() - begun;
    let begun = now();
    for n in 0..1_000 {
        client.delete::<TenantStatus>(&format!("t{n}")).unwrap();
    }
    let removed = now() - begun;
    wait_until("free numbers", PATIENCE, || client.tenants().unwrap().len() == 1);
    println!("1 000 tenants added in {added:.1?} and removed in {removed:.1?}");
    polite.is_served();
    println!("the longest request beside it took {:.1?}", polite.dismiss());
    // The table still takes as many as it did.
    client
        .send(&NewTenant { name: "last".into(), device: None, slo: None, share: None, note: None })
        .unwrap();
}

#[test]
fn the_socket_is_its_users_and_goes_at_exit() {
    let place = ServerFolder::new();
    let mut server = place.launch("").start();
    let mode = std::fs::metadata(place.admin()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let (code, said) = place.launch("").fail();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another server") && said.contains("admin.sock"), "{said}");
    place.told(&["tenant", "list"]);
    if rustix::process::geteuid().is_root() {
        let list = ["tenant", "list", "--admin", &place.admin()];
        let ran = nearflash(&list).uid(65_534).current_dir("/").output().unwrap();
        assert!(
            complaint(&ran).contains("for the user who runs the server"),
            "{}",
            complaint(&ran)
        );
        // The file's permissions are not all that guards it.
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(place.admin(), all).unwrap();
        let ran = nearflash(&list).uid(65_534).current_dir("/").output().unwrap();
        assert!(
            complaint(&ran).contains("for the user who runs the server"),
            "{}",
            complaint(&ran)
        );
    }
    server.terminate();
    assert!(server.wait().success());
    assert!(!place.path("admin.sock").exists());
}

#[test]
fn the_default_place_is_the_users_and_one_servers() {
    let place = ServerFolder::new();
    let (runtime, admin) = (place.path("run"), place.path("run/nearflash.sock"));
    // The service manager's directory comes first, for root and others.
    let start = || {
        let mut command = nearflash(&["serve", "--device", "null:1MiB"]);
        command.args(["--listen", "reflex://127.0.0.1:0"]).env("RUNTIME_DIRECTORY", &runtime);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        KilledOnDrop(command.spawn().unwrap())
    };
    let mut first = start();
    first.await_ready();
    assert!(admin.exists());
    let list = |place: &PathBuf| {
        nearflash(&["tenant", "list"]).env("RUNTIME_DIRECTORY", place).output().unwrap()
    };
    assert!(list(&runtime).status.success(), "{}", complaint(&list(&runtime)));
    // A second server serves all the same.
    let mut second = start();
    second.await_ready();
    let said = second.end();
    assert!(said.contains("another server") && said.contains("without an admin API"), "{said}");
    assert!(admin.exists(), "it is the first's");
    first.end();
    assert!(!admin.exists());
    // Said of a place that was named: the system's own may have a server on this machine.
    let nobody = place.run(&["tenant", "list"]);
    let said = complaint(&nobody);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said.contains("nearflash serve") && said.contains("--admin"), "{said}");
}

#[test]
fn loopback_has_to_be_asked_for_and_nothing_else_is_had() {
    let url = format!("http://{}", free_port());
    let server = Launch::device("null:1MiB").with("--admin").with(&url).start();
    let mut client = Client::new(url.parse().unwrap()).unwrap();
    assert_eq!(client.tenants().unwrap()[0].name, "default");
    let slo =
        Slo { latency_us: 500, percentile: 95.0, iops: 1, read_percent: 100, request_bytes: 4096 };
    let add =
        NewTenant { name: "gold".into(), device: None, slo: Some(slo), share: None, note: None };
    assert_eq!(client.send(&add).unwrap_err().code(), Some(Code::NoModel));
    let held = V2::connect(server.address());
    assert_eq!(client.workers().unwrap().workers[0].connections, 1);
    drop(held);
    let open = Launch::device("null:1MiB").with("--admin").with("http://0.0.0.0:0");
    let (code, said) = open.fail();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("not loopback"), "{said}");
    let (code, said) = Launch::config("admin = \"http://10.0.0.1:80\"").with("--check").fail();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not loopback"), "{said}");
}

#[test]
fn requests_of_a_tenant_that_goes_are_answered() {
    let place = ServerFolder::new();
    let server = place.launch("").start();
    place.told(&["tenant", "add", "gold", "--latency", "500us", "--iops", "100"]);
    let mut gold = enter(&server, "gold").unwrap();
    // More than it may have in a second.
    const SENT: u64 = 200;
    (0..SENT).for_each(|tag| gold.send(tag, read(), &[]));
    place.told(&["tenant", "rm", "gold"]);
    let mut answered = 0;
    while answered < SENT {
        match gold.answer() {
            // One that comes before its worker has heard of the end is told to try again.
            Answer::Done { status: Status::Ok | Status::Retry | Status::NoTenant, .. } => {
                answered += 1;
            }
            Answer::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
