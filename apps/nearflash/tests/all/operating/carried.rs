//! Tests of a server's state as a document: it is exported, imported into another server, which
//! runs or not, and imported back.

use std::process::Output;

use crate::support::{
    NvmeQueue, Operator, SUBSYSTEM, ServerFolder, V2, complaint, host_nqn, nearflash, write_with,
};

/// The listeners in the configuration of these servers.
const LISTENERS: &str = "[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
                         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
const KEY: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

/// The steps of these tests on the server and the files of a [`ServerFolder`].
trait CarrySteps {
    /// Writes the configuration of this place: a device `disk` in a file, the listeners, and
    /// `rest`.
    fn configure(&self, rest: &str);
    fn config(&self) -> String;
    /// Runs a command on the configuration and the state file of this place, which must succeed,
    /// and returns its output.
    fn files_told(&self, words: &[&str]) -> String;
    fn files_refused(&self, words: &[&str]) -> String;
    /// Exports the state from the files of this place, without a running server.
    fn exported(&self) -> String;
    /// Writes a document into this place, and returns its path.
    fn document(&self, text: &str) -> String;
}

impl CarrySteps for ServerFolder {
    fn configure(&self, rest: &str) {
        let admin = self.socket();
        let text = format!(
            "admin = \"{}\"\n[[device]]\nname = \"disk\"\nspec = \"{}\"\n{LISTENERS}{rest}",
            admin.display(),
            self.file("disk")
        );
        self.write_configuration(&text);
    }

    fn config(&self) -> String {
        self.path("nearflash.toml").display().to_string()
    }

    fn files_told(&self, words: &[&str]) -> String {
        let ran = nearflash(words).args(["--config", &self.config()]).output().unwrap();
        assert!(ran.status.success(), "{words:?}: {}", complaint(&ran));
        String::from_utf8(ran.stdout).unwrap()
    }

    fn files_refused(&self, words: &[&str]) -> String {
        let ran = nearflash(words).args(["--config", &self.config()]).output().unwrap();
        assert!(!ran.status.success(), "{words:?} was done");
        complaint(&ran)
    }

    fn exported(&self) -> String {
        self.files_told(&["state", "export"])
    }

    fn document(&self, text: &str) -> String {
        let path = self.path("document.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// Returns a place whose server was changed by commands while it ran, and has ended.
fn source() -> ServerFolder {
    let place = ServerFolder::new();
    place.configure("[[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"4MiB\"\n");
    let key = place.path("key");
    write_with(&key, KEY, 0o600);
    let key = key.display().to_string();
    let server = place.configured().start();
    place.told(&["namespace", "add", "logs", "1MiB"]);
    place.told(&["tenant", "add", "gold", "--note", "ticket 7"]);
    place.told(&["tenant", "set", "default", "--note", "everybody"]);
    place.told(&["subsystem", "add", SUBSYSTEM, "--namespace", "logs", "--host", &host_nqn(1)]);
    place.told(&["host", "add", &host_nqn(2), "--tenant", "gold"]);
    place.told(&["host", "key", &host_nqn(2), &key]);
    place.told(&["listener", "add", "reflex://127.0.0.1:0?namespace=2"]);
    place.told(&["listener", "ana", "1", "non-optimized", "--subsystem", SUBSYSTEM]);
    drop(server);
    place
}

/// Returns the exported document of `source`, changed to name the device file of `place`.
fn for_place(source: &ServerFolder, place: &ServerFolder) -> String {
    source.exported().replace(&source.file("disk"), &place.file("disk"))
}

/// Returns the lines of an exported document without addresses and device specs, which differ from
/// place to place.
fn lines(document: &str) -> Vec<String> {
    let own = document.lines().filter(|line| !line.starts_with("url") && !line.starts_with("spec"));
    own.map(str::to_owned).collect()
}

#[test]
fn a_state_is_carried_to_a_server_that_does_not_run() {
    let (source, place) = (source(), ServerFolder::new());
    place.configure("");
    let before = source.exported();
    assert!(before.contains(KEY) && before.contains("ticket 7"), "{before}");
    let document = place.document(&for_place(&source, &place));
    let said = place.files_told(&["state", "import", &document, "--dry-run"]);
    for line in ["add namespace 2 \"logs\"", "add tenant \"gold\"", "key = (hidden)", SUBSYSTEM] {
        assert!(said.starts_with("would change: ") && said.contains(line), "{line}: {said}");
    }
    assert!(!place.path("nearflash.state").exists() && !said.contains(KEY), "{said}");
    let done = place.files_told(&["state", "import", &document]);
    assert_eq!(done, said.replace("would change", "changed"));
    assert_eq!(place.files_told(&["state", "import", &document]), "changed: nothing\n");
    assert_eq!(lines(&place.exported()), lines(&before));
    let server = place.configured().start();
    let at = server.listener(0);
    let mut host = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    let uuid: String = host.uuid(1).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(before.replace('-', "").contains(&uuid), "{uuid} is not in {before}");
    let said = place.files_refused(&["state", "import", &document]);
    assert!(said.contains("runs (it answers at"), "{said}");
}

#[test]
fn a_state_is_carried_to_a_server_that_runs_and_taken_back() {
    let (source, place) = (source(), ServerFolder::new());
    place.configure("");
    let server = place.configured().start();
    let mut client = V2::connect(server.listener(1));
    let first = place.document(&place.told(&["state", "export"]));
    let first =
        std::fs::rename(&first, place.path("first.toml")).map(|()| place.path("first.toml"));
    let first = first.unwrap().display().to_string();
    // It is one namespace as large as its file, which would have to shrink.
    let whole = place.document(&for_place(&source, &place));
    let said = place.refused(&["state", "import", &whole]);
    assert!(said.contains("namespace \"ns1\" would move or become smaller"), "{said}");
    // The one grows, and the other begins behind it.
    let document = place.document(&for_place(&source, &place).replace("\"4194304B\"", "\"16MiB\""));
    let would = place.told(&["state", "import", &document, "--dry-run"]);
    assert!(would.contains("add namespace 2 \"logs\""), "{would}");
    assert_eq!(
        place.told(&["state", "import", &document]),
        would.replace("would change", "changed")
    );
    assert_eq!(place.told(&["state", "import", &document]), "changed: nothing\n");
    client.write_blocks(8, &[1; 512], true);
    assert_eq!(client.read_blocks(8, 1), [1; 512], "the connection stays");
    let shown = place.told(&["tenant", "show", "gold"]);
    assert!(shown.contains("ticket 7"), "{shown}");
    assert_eq!(place.json(&["listener", "list"])["listeners"].as_array().unwrap().len(), 3);
    let running = place.told(&["state", "export"]);
    assert!(running.contains("(hidden)") && !running.contains(KEY), "{running}");
    // A restart finds all of it, keys too.
    drop((client, server));
    let kept = place.exported();
    assert!(kept.contains(KEY) && lines(&kept).len() == lines(&running).len(), "{kept}");
    let server = place.configured().start();
    assert_eq!(place.told(&["state", "import", &document]), "changed: nothing\n");
    let checked = place.told(&["config", "check", "--running", "--config", &place.config()]);
    assert!(checked.contains("the running server differs: nothing"), "{checked}");
    // Back to what was: the default tenant cannot go, and is left.
    let ran = place.run(&["state", "import", &first]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(
        said.contains("remove tenant \"gold\"") && said.contains("not taken: tenant \"default\""),
        "{said}"
    );
    place.refused(&["tenant", "show", "gold"]);
    assert_eq!(place.json(&["listener", "list"])["listeners"].as_array().unwrap().len(), 2);
    drop(server);
}

/// Asserts that a command has failed, and that its output contains each of `words`.
fn refuses(ran: Output, words: &[&str]) {
    let said = String::from_utf8(ran.stdout).unwrap();
    words.iter().for_each(|words| assert!(said.contains(words), "{said}"));
    assert!(!ran.status.success());
}

/// Checks that a dry run reports promises that would not fit. It once listed such tenants as added,
/// and the server then refused them.
#[test]
fn a_dry_run_tells_which_promises_would_not_fit() {
    let place = ServerFolder::new();
    let device = "[[device]]\nname = \"disk\"\nspec = \"sim:a\"\n";
    let tenant = |name: &str, iops: u32| {
        format!(
            "[[tenant]]\nname = \"{name}\"\nlatency_us = 500\niops = {iops}\nread_percent = 100\n"
        )
    };
    let listen = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
    place.write_configuration(&format!("{device}{listen}{}", tenant("gold", 300_000)));
    let server = place.configured().start();
    let document = place.document(&(tenant("gold", 300_000) + &tenant("tin", 200_000)));
    let refusal = "tenant \"tin\": needs 200 000 tokens/s of 120 000 available";
    let ran = place.run(&["state", "import", &document, "--dry-run"]);
    refuses(ran, &["add tenant \"tin\"", &format!("would not be taken: {refusal}")]);
    // Of a file, too: a start would have room, as it is told of all at once.
    place.write_configuration(&format!("{device}{listen}{}", tenant("tin", 200_000)));
    let ran = place.run(&["config", "check", "--running", "--config", &place.config()]);
    let why = format!("the running server would not take: {refusal}");
    refuses(ran, &["a server would start", &why]);
    place.write_configuration(&format!("{device}{listen}{}", tenant("tin", 120_000)));
    let said = place.told(&["config", "check", "--running", "--config", &place.config()]);
    assert!(said.contains("the running server would take its tenants"), "{said}");
    place.refused(&["tenant", "show", "tin"]);
    drop(server);
}

#[test]
fn a_document_that_makes_no_sense_changes_nothing() {
    let place = ServerFolder::new();
    place.configure("");
    let server = place.configured().start();
    let before = place.told(&["state", "export"]);
    for (text, why) in [
        ("workers = 3\n", "is a setting of the configuration file"),
        ("[[tenant]]\nname = \"a\"\nwight = 3\n", "document.toml:3: "),
        ("device = []\n", "the document has no device"),
        ("[[host]]\nnqn = \"nqn.2026-11.org.example:a\"\nkey = \"(hidden)\"\n", "hides its key"),
        ("[[subsystem]]\nnqn = \"nqn.2026-11.org.example:a\"\ntenant = \"nobody\"\n", "nobody"),
        (
            "[[device]]\nname = \"disk\"\nspec = \"mem:1MiB\"\n[[namespace]]\ndevice = \"none\"\n",
            "none",
        ),
    ] {
        let document = place.document(text);
        let said = place.refused(&["state", "import", &document]);
        assert!(said.contains(why), "{text}: {said}");
        assert_eq!(place.told(&["state", "export"]), before, "{text}");
    }
    let told = place.run(&["state", "export", "--output", &place.config()]);
    assert!(complaint(&told).contains("cannot write"), "it exists");
    drop(server);
    let said =
        place.files_refused(&["state", "import", &place.document("listen = []\nhost = 3\n")]);
    assert!(said.contains("document.toml:2: "), "{said}");
}
