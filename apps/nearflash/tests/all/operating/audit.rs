//! Tests of the real program's audit log: which events have a line, what the line contains, and
//! what no line may contain.

use std::path::PathBuf;

use crate::support::{
    Launch, NvmeQueue, Operator, PATIENCE, Server, V2, host_nqn, wait_until, write_with,
};
use serde_json::{Value, json};

const KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";

/// A server with an audit log in a directory of its own.
struct AuditedServer {
    folder: tempfile::TempDir,
    server: Server,
}

impl AuditedServer {
    /// Starts a server with an audit log, from a shell that has run `script`.
    fn start_after(script: &str) -> AuditedServer {
        AuditedServer::start(script, &[])
    }

    /// Starts a server with an audit log and the options `words`, from a shell that has run
    /// `script`.
    fn start(script: &str, words: &[&str]) -> AuditedServer {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "[admin]\nlisten = \"{}\"\naudit = \"{}\"\n\
             [[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n\
             [[namespace]]\ndevice = \"disk\"\nsize = \"1MiB\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
            path("admin.sock"),
            path("audit.log")
        );
        std::fs::write(path("nearflash.toml"), config).unwrap();
        let config = path("nearflash.toml");
        let words = [&["--config", &config, "--state", "none"], words].concat();
        let launch = Launch::new(&words)
            .log("warn,audit=info")
            // The tests' servers are told that they have no admin API.
            .after(&[], &format!("unset NEARFLASH_ADMIN; {script}"));
        AuditedServer { server: launch.start(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the lines of the log file `name`, each of which must be a JSON object.
    fn lines(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        let object = |line: &str| -> Value {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        text.lines().map(object).collect()
    }
}

impl Operator for AuditedServer {
    fn admin(&self) -> String {
        self.path("admin.sock").display().to_string()
    }
}

#[test]
fn who_ended_which_connection_is_kept() {
    let audited = AuditedServer::start_after("true");
    let host = NvmeQueue::discovery(audited.server.listener(0), 1);
    let id = || {
        let all = audited.json(&["conn", "list"])["connections"].take();
        all[0]["id"].as_str().map(str::to_owned)
    };
    let (ended, gone) = (id().unwrap(), "0:77.5");
    audited.told(&["conn", "end", &ended]);
    wait_until("its end", PATIENCE, || id().is_none());
    assert!(audited.refused(&["conn", "end", gone]).contains("no connection 0:77.5 (any more)"));
    let lines = audited.lines("audit.log");
    let path = |id: &str| format!("/v1/connections/{id}").replace(':', "%3A").replace('.', "%2E");
    assert_eq!((&lines[0]["method"], &lines[0]["path"]), (&json!("DELETE"), &path(&ended).into()));
    assert_eq!((&lines[0]["outcome"], &lines[0]["before"]["id"]), (&json!("done"), &ended.into()));
    assert!(lines[0]["before"]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(
        (&lines[1]["path"], &lines[1]["code"]),
        (&path(gone).into(), &json!("no-connection"))
    );
    drop(host);
}

#[test]
fn each_change_has_a_line_that_says_who_what_and_how_it_ended() {
    let audited = AuditedServer::start_after("true");
    write_with(&audited.path("key"), KEY, 0o600);
    let key = audited.path("key").display().to_string();
    audited.told(&["tenant", "add", "gold"]);
    audited.refused(&["tenant", "add", "gold"]);
    audited.told(&["tenant", "list"]);
    audited.told(&["namespace", "add", "logs", "1MiB"]);
    audited.told(&["namespace", "resize", "logs", "2MiB"]);
    audited.told(&["host", "key", &host_nqn(1), &key]);
    audited.told(&["host", "key", &host_nqn(1), &key]);
    audited.told(&["tenant", "rm", "gold"]);
    audited.server.hang_up();
    wait_until("the line of the reload", PATIENCE, || audited.lines("audit.log").len() >= 8);
    let lines = audited.lines("audit.log");
    let told = |n: usize| {
        let one = &lines[n];
        format!("{} {} {}", one["method"], one["path"], one["outcome"]).replace('"', "")
    };
    let host = host_nqn(1).replace('-', "%2D").replace('.', "%2E").replace(':', "%3A");
    let expected = [
        "POST /v1/tenants done".to_owned(),
        "POST /v1/tenants refused".to_owned(),
        "POST /v1/namespaces done".to_owned(),
        "PUT /v1/namespaces/logs done".to_owned(),
        format!("PUT /v1/hosts/{host} done"),
        format!("PUT /v1/hosts/{host} done"),
        "DELETE /v1/tenants/gold done".to_owned(),
        format!("RELOAD {} done", audited.path("nearflash.toml").display()),
    ];
    assert_eq!((0..lines.len()).map(told).collect::<Vec<_>>(), expected);
    let uid = rustix::process::geteuid().as_raw();
    for line in &lines[..7] {
        assert_eq!(line["who"]["uid"], uid, "{line}");
        assert!(line["who"]["pid"].as_i64().is_some_and(|pid| pid > 1), "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }
    assert_eq!((&lines[0]["after"]["name"], &lines[0]["status"]), (&json!("gold"), &json!(201)));
    assert_eq!((&lines[1]["code"], &lines[1]["status"]), (&json!("taken"), &json!(409)));
    let mib = |n: u64| json!({ "bytes": n << 20 });
    assert_eq!((&lines[3]["before"], &lines[3]["after"]), (&mib(1), &mib(2)));
    assert_eq!(lines[4]["after"]["has_key"], true);
    // The same key again is told as well; which one it is, never.
    let given = json!({
        "key_given": true, "controller_key_given": false, "tls_key_given": false
    });
    assert_eq!(lines[5]["after"], given);
    assert_eq!(lines[7]["who"], json!({ "signal": "SIGHUP" }));
    let text = std::fs::read_to_string(audited.path("audit.log")).unwrap();
    assert!(!(text + &audited.server.log()).contains(&KEY[10..30]));
    // The log is read by a thread of this test, which may come later.
    wait_until("the log has them too", PATIENCE, || {
        audited.server.log().matches("control change").count() == 8
    });
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(audited.path("audit.log")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

/// Runs one command of each kind that changes something, and checks how its line begins and ends.
#[test]
fn no_kind_of_change_is_without_a_line() {
    const SUBSYSTEM: &str = "nqn.2026-11.org.example:audited";
    let audited = AuditedServer::start("true", &["--workers", "2..3"]);
    let spare = format!("file:{}?size=16MiB", audited.path("spare").display());
    let client = V2::connect(audited.server.listener(1));
    let connections = audited.json(&["conn", "list"]);
    let connection = &connections["connections"][0];
    let id = connection["id"].as_str().unwrap().to_owned();
    let other = (1 - connection["worker"].as_u64().unwrap()).to_string();
    let host = host_nqn(3);
    let path = |name: &str| audited.path(name).display().to_string();
    let (batch, trace) = (path("batch.json"), path("trace.json"));
    let state = path("state.toml");
    std::fs::write(&state, "host = []\n").unwrap();
    std::fs::write(&batch, r#"{"changes": [{"add": {"name": "many"}}]}"#).unwrap();
    let changes: &[(&[&str], &str, &str)] = &[
        (&["conn", "move", &id, "--to", &other], "POST /v1/connections/", "/move"),
        (&["worker", "add"], "PUT /v1/workers/2", ""),
        (&["worker", "drain", "2"], "PUT /v1/workers/2", ""),
        (&["device", "add", "spare", &spare], "POST /v1/devices", ""),
        (&["namespace", "add", "n", "1MiB", "--device", "spare"], "POST /v1/namespaces", ""),
        (&["subsystem", "add", SUBSYSTEM, "--namespace", "n"], "POST /v1/subsystems", ""),
        (&["subsystem", "allow", SUBSYSTEM, &host], "PUT /v1/subsystems/", ""),
        (&["host", "add", &host], "PUT /v1/hosts/", ""),
        (&["host", "rm", &host], "DELETE /v1/hosts/", ""),
        (&["subsystem", "rm", SUBSYSTEM], "DELETE /v1/subsystems/", ""),
        (&["namespace", "rm", "n"], "DELETE /v1/namespaces/n", ""),
        (&["device", "rm", "spare"], "DELETE /v1/devices/spare", ""),
        (&["listener", "ana", "1", "inaccessible"], "PUT /v1/listeners/", "/ana"),
        (&["listener", "add", "reflex://127.0.0.1:0"], "POST /v1/listeners", ""),
        (&["listener", "drain", "3"], "POST /v1/listeners/3", "/drain"),
        (&["listener", "resume", "3"], "POST /v1/listeners/3", "/resume"),
        (&["listener", "rm", "3"], "DELETE /v1/listeners/3", ""),
        (&["tenant", "apply", &batch], "PATCH /v1/tenants", ""),
        (&["state", "import", &state], "PUT /v1/state", ""),
        (&["device", "add", "sim", "sim:a?size=16MiB"], "POST /v1/devices", ""),
        (
            &["device", "recalibrate", "sim", "--when-idle"],
            "POST /v1/devices/sim/",
            "/recalibration",
        ),
        (
            &["device", "recalibrate", "sim", "--cancel"],
            "DELETE /v1/devices/sim/",
            "/recalibration",
        ),
        (&["device", "model", "sim", "--reset"], "DELETE /v1/devices/sim/model", ""),
        (&["trace", "--seconds", "0.1", "--sample", "1/1", "-o", &trace], "GET /v1/trace", ""),
    ];
    for (n, (words, begins, ends)) in changes.iter().enumerate() {
        audited.told(words);
        let lines = audited.lines("audit.log");
        assert_eq!(lines.len(), n + 1, "{words:?}");
        let line = &lines[n];
        let what = format!("{} {}", line["method"], line["path"]).replace('"', "");
        assert!(what.starts_with(begins) && what.ends_with(ends), "{words:?}: {what}");
        assert_eq!(line["outcome"], "done", "{line}");
        assert_eq!(line["who"]["uid"], rustix::process::geteuid().as_raw(), "{line}");
    }
    // To accept there has to be something that was found, and what was refused has a line as well.
    audited.refused(&["device", "recalibrate", "sim", "--accept"]);
    let line = audited.lines("audit.log").pop().unwrap();
    assert_eq!(line["path"], "/v1/devices/sim/recalibration", "{line}");
    assert_eq!((&line["method"], &line["outcome"]), (&json!("PUT"), &json!("refused")), "{line}");
    drop(client);
}

#[test]
fn nothing_is_changed_while_the_log_takes_no_lines() {
    // Files of this server have at most four blocks of 512 bytes, and that is no signal.
    let audited = AuditedServer::start_after("trap '' XFSZ; ulimit -f 4");
    let mut names = (0..).map(|n| format!("t{n}"));
    let said = loop {
        let ran = audited.run(&["tenant", "add", &names.next().unwrap()]);
        if !ran.status.success() {
            break String::from_utf8(ran.stderr).unwrap();
        }
    };
    assert!(said.contains("it was done") && said.contains("audit.log"), "{said}");
    let list = |what: &str| {
        let ran = audited.run(&["tenant", "list", "--json"]);
        let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let found = list["tenants"].as_array().unwrap().iter().filter(|one| one["name"] == what);
        found.count()
    };
    for words in [&["tenant", "add", "more"][..], &["tenant", "rm", "t0"]] {
        let said = audited.refused(words);
        assert!(said.contains("nothing was changed") && said.contains("audit.log"), "{said}");
    }
    assert_eq!((list("more"), list("t0")), (0, 1));
    // What rotates logs does this.
    std::fs::rename(audited.path("audit.log"), audited.path("audit.log.1")).unwrap();
    audited.server.hang_up();
    audited.server.await_log("the configuration is reloaded");
    audited.told(&["tenant", "add", "more"]);
    let lines = audited.lines("audit.log");
    assert!(
        lines[0]["after"]["name"].as_str().unwrap().starts_with('t'),
        "what was owed: {lines:?}"
    );
    assert_eq!(
        (&lines[1]["method"], &lines[2]["after"]["name"]),
        (&json!("RELOAD"), &json!("more"))
    );
}

#[test]
fn a_take_over_has_a_line_that_names_the_new_process() {
    let mut audited = AuditedServer::start_after("true");
    let config = audited.path("nearflash.toml").display().to_string();
    let words = ["--config", &config, "--state", "none", "--upgrade"];
    let go_on = audited.path("go-on");
    let stay = format!("NEARFLASH_UPGRADE_STAY=successor:ready:{}", go_on.display());
    let stays = format!("unset NEARFLASH_ADMIN; export {stay}");
    let successor = Launch::new(&words).after(&[], &stays).begin();
    wait_until("the stay", PATIENCE, || successor.log().contains("stays at"));
    // It has the log open; what rotates logs tells the one that serves.
    std::fs::rename(audited.path("audit.log"), audited.path("audit.log.1")).unwrap();
    audited.server.hang_up();
    wait_until("a new log", PATIENCE, || audited.path("audit.log").exists());
    std::fs::write(go_on, "").unwrap();
    let successor = successor.await_ready();
    assert!(audited.server.wait().success());
    // The signal's own line, of a reload that is refused, may come before it or behind it.
    let of_the_upgrade =
        || audited.lines("audit.log").into_iter().find(|line| line["method"] == "UPGRADE");
    wait_until("its line", PATIENCE, || of_the_upgrade().is_some());
    let line = of_the_upgrade().unwrap();
    assert_eq!((&line["path"], &line["outcome"]), (&json!(config), &json!("done")));
    assert_eq!(line["who"]["pid"], successor.pid());
    audited.told(&["namespace", "add", "later", "1MiB"]);
    assert!(audited.lines("audit.log").iter().any(|line| line["path"] == "/v1/namespaces"));
}
