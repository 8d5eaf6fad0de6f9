//! Tests of the messages about mistakes in a configuration, and of its documented defaults.

use std::path::Path;

use super::*;
use crate::config::schema::{SMALLEST, defaults};
use crate::live::Changes;

/// Returns the messages of a check of a file with this text, or `-` if it is accepted.
fn said(text: &str) -> String {
    let file = Some((Path::new("a.toml"), text));
    let base = match Config::parse(text) {
        Ok(base) => base,
        Err(mistakes) => return mistakes.told(file),
    };
    let config = Changes::default().made_to(&base);
    match StartupPlan::of(&base, &config, CommandLineSettings::default()) {
        Ok(_) => "-".to_owned(),
        Err(mistakes) => mistakes.told(file),
    }
}

/// The configuration of a device, which is on lines 1 to 3 of a test's file.
const DEVICE: &str = "[[device]]\nname = \"d\"\nspec = \"mem:1MiB\"\n";

/// The configuration after the device, from line 4 on, and the expected messages.
const TABLE: &[(&str, &str)] = &[
    // The server.
    ("[[tenant]]\nname = \"t\"\n", "-"),
    // Devices.
    (
        "[[device]]\nname = \"d\"\nspec = \"mem:2MiB\"\n",
        "a.toml:5: device \"d\": another has this name; expected one that no other device has",
    ),
    ("[[device]]\nname = \"e\"\nspec = \"mem:1KB\"\n", "a.toml:6: device \"e\": spec"),
    (
        "[[device]]\nname = \"e\"\nspec = \"file:/nowhere/at/all\"\n",
        "a.toml:6: device \"e\": /nowhere/at/all does not exist; name its size to make it, like \
         file:/nowhere/at/all?size=1GiB",
    ),
    (
        "[[device]]\nname = \"e\"\nspec = \"mem:1MiB\"\nmodel = \"/nowhere/x\"\n",
        "a.toml:7: device model \"/nowhere/x\": No such file or directory (os error 2); expected a file, \
         `a` or `cloud`",
    ),
    (
        "[[device]]\nname = \"e\"\nspec = \"mem:1MiB\"\nrecalibrate_scratch = \"x\"\n",
        "a.toml:7: device \"e\": there is no namespace \"x\"; there are: ns1, ns2",
    ),
    // Listeners.
    ("[[listen]]\nurl = \"http://127.0.0.1:1\"\n", "a.toml:5: listen 1: "),
    (
        "[[listen]]\nurl = \"reflex+unix:/x?mode=999\"\n",
        "a.toml:5: listen 1: \"reflex+unix:/x?mode=999\": mode \"999\" is not an octal number from 0 to \
         777, such as 660",
    ),
    (
        "[[tenant]]\nname = \"a\"\n[[listen]]\nurl = \"reflex://127.0.0.1:0?tenant=b\"\n",
        "a.toml:7: the listener 127.0.0.1:0: there is no tenant \"b\"; there are: a",
    ),
    (
        "[[listen]]\nurl = \"reflex://127.0.0.1:1\"\n[[listen]]\nurl = \"reflex://127.0.0.1:1\"\n",
        "a.toml:7: listener 2: 127.0.0.1:1 is where listener 1 listens; expected a place of its own",
    ),
    (
        "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\nnumber = 7\n[[listen]]\n\
         url = \"reflex://127.0.0.1:0\"\nnumber = 7\n",
        "a.toml:9: listen 2: number 7 is that of 127.0.0.1:0; expected one that no other listener has",
    ),
    (
        "[[listen]]\nurl = \"reflex://0.0.0.0:0\"\n",
        "a.toml:5: 0.0.0.0:0 is reachable from other machines and no [[access]] rule says who may come in; \
         add one to the configuration, or let everybody in with --insecure",
    ),
    (
        "[[listen]]\nurl = \"reflex://127.0.0.1:0?namespace=9\"\n",
        "a.toml:5: 127.0.0.1:0: there is no namespace 9",
    ),
    // Namespaces.
    (
        "[[namespace]]\ndevice = \"x\"\n",
        "a.toml:5: namespace 1: there is no device \"x\"; there are: d",
    ),
    (
        "[[namespace]]\nname = \"n\"\ndevice = \"d\"\nsize = \"512B\"\n\
         [[namespace]]\nname = \"n\"\ndevice = \"d\"\nsize = \"512B\"\n",
        "a.toml:9: namespace 2: name \"n\" is that of number 1; expected one that no other namespace has",
    ),
    (
        "[[namespace]]\ndevice = \"d\"\n[[namespace]]\ndevice = \"d\"\nnumber = 1\n",
        "a.toml:8: namespace 2: number 1 is that of \"ns1\"; expected one that no other namespace has",
    ),
    // Rules.
    (
        "[[access]]\ntoken = \"t\"\nrights = \"all\"\n",
        "a.toml:6: access rule 1: rights \"all\"; expected read, write or read-write",
    ),
    (
        "[[access]]\ntoken = \"t\"\nrights = \"read\"\n[[access]]\ntoken = \"t\"\nrights = \"read\"\n",
        "-", // rights are the sum of the rules that let one in
    ),
    (
        "[[access]]\nfrom = \"anyone\"\nrights = \"read\"\nnamespaces = [4]\n",
        "a.toml:7: access rule 1: there is no namespace 4",
    ),
    // Tenants.
    (
        "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"\n",
        "a.toml:7: tenant \"a\": another has this name; expected one that no other tenant has",
    ),
    (
        "[[tenant]]\nname = \"a\"\ndevice = \"e\"\n",
        "a.toml:6: tenant \"a\": there is no device \"e\"; there are: d",
    ),
    // What hosts find.
    (
        "[[subsystem]]\nnqn = \"foo\"\n",
        "a.toml:5: subsystem 1: \"foo\" is no NVMe qualified name (nqn.…, at most 223 bytes)",
    ),
    (
        "[[subsystem]]\nnqn = \"nqn.x:a\"\n[[subsystem]]\nnqn = \"nqn.x:a\"\n",
        "a.toml:7: subsystem 2: nqn \"nqn.x:a\" is that of another; expected one that no other subsystem \
         has",
    ),
    ("[[subsystem]]\ntenant = \"zz\"\n", "a.toml:5: subsystem 1: there is no tenant \"zz\""),
    (
        "[[subsystem]]\nana = [{ listener = 9, state = \"optimized\" }]\n",
        "a.toml:5: subsystem 1: ana: listener 9 is none of NVMe's",
    ),
    (
        "[[subsystem]]\nnamespaces = [1, \"x\"]\n",
        "a.toml:5: subsystem 1: there is no namespace \"x\"",
    ),
    (
        "[[subsystem]]\nnamespaces = [{ nsid = 70000, namespace = 1 }]\n",
        "a.toml:4: subsystem 1: 70000 cannot number a namespace",
    ),
    ("[[host]]\nnqn = \"nqn.x:h\"\nkey = \"xx\"\n", "a.toml:6: host \"nqn.x:h\": its key is "),
    (
        "[[host]]\nnqn = \"nqn.x:h\"\n[[host]]\nnqn = \"nqn.x:h\"\n",
        "a.toml:7: host \"nqn.x:h\": another has this nqn; expected one that no other host has",
    ),
    (
        "[authentication]\nhashes = []\n",
        "a.toml:4: [authentication]: without a hash or without a group no host can authenticate; leave the list out \
         to allow all",
    ),
    // The admin API.
    (
        "[admin]\nlisten = \"https://10.0.0.1:7443\"\n",
        "a.toml:5: the admin API at https://10.0.0.1:7443 needs `certificate`, `key` and `tokens` in \
         [admin]: others can reach it",
    ),
    ("[admin]\nlisten = \"/run/nearflash/a.sock\"\naudit = \"/nowhere/at/all\"\n", "a.toml:6: "),
    (
        "[admin]\nlisten = \"none\"\ncertificate = \"/c\"\nkey = \"/nowhere/k\"\ntokens = \"/nowhere/t\"\n",
        "a.toml:8: cannot read /nowhere/t: No such file or directory (os error 2)",
    ),
    // Limits.
    (
        "[limits]\nconnections = -1\n",
        "a.toml:5: limits.connections: invalid value: integer `-1`; expected a whole number from 1 to \
         16777216",
    ),
    (
        "[limits]\nstuck_seconds = 0\n",
        "a.toml:5: limits.stuck_seconds is 0; expected a whole number from 1 to 3600",
    ),
    ("[limits]\ncarried = \"1\"\n", "a.toml:5: limits.carried: \"1\": "),
    // Forms.
    (
        "[limits]\ntenants = \"many\"\nwokers = 1\n",
        "a.toml:5: limits.tenants: invalid type: string \"many\"; \
      expected a whole number from 1 to 65536\na.toml:6: unknown field `wokers`, ",
    ),
    ("[[tenant]]\nlatency_us = 1\n", "a.toml:4: tenant: missing field `name`"),
    (
        "[[tenant]]\nname = 7\nweight = -1\n",
        "a.toml:5: tenant.name: invalid type: integer `7`, expected a \
      string\na.toml:6: tenant.weight: invalid value: integer `-1`; expected a whole number from 1 to 1000",
    ),
    (
        "[[subsystem]]\nnamespaces = [1.5]\n",
        "a.toml:5: subsystem.namespaces: this is none; expected the \
      number or the name of a namespace, or { nsid = NUMBER, namespace = NUMBER }",
    ),
];

#[test]
fn mistakes_are_told_with_their_line_and_what_was_expected() {
    let mut wrong = Vec::new();
    for (text, expected) in TABLE {
        let said = said(&format!("{DEVICE}{text}"));
        // What ends in a space or a colon is how it begins.
        let is_so = match expected.ends_with([' ', ':']) || expected.ends_with("spec") {
            true => said.starts_with(expected) && said.lines().count() == expected.lines().count(),
            false => said == *expected,
        };
        if !is_so {
            wrong.push(format!("{text}said:     {said}\nexpected: {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_stands_before_all_tables_is_told_too() {
    for (text, expected) in [
        ("cpus = [900]\n", "a.toml:1: cpus: cannot run on processor 900 (see `nproc`)"),
        (
            "workers = 2\ncpus = [0]\n",
            "a.toml:2: cpus has 1; expected at least 2, as many as there are workers",
        ),
        (
            "workers = -1\n",
            "a.toml:1: workers: this is none; expected a number from 1 to 32, or two in quotes with .. between them, such as \"1..4\"",
        ),
        (
            "workers = 33\n",
            "a.toml:1: workers: 33 workers; expected a number from 1 to 32, or two with .. between them, such as 1..4",
        ),
        (
            "cpus = [-1]\n",
            "a.toml:1: cpus: invalid value: integer `-1`; expected a whole number from 0 to 1023",
        ),
    ] {
        let said = said(text);
        assert!(said.starts_with(expected), "{text}{said}\n{expected}");
    }
}

#[test]
fn mistakes_that_have_nothing_to_do_with_each_other_are_told_together() {
    let text = format!(
        "cpus = [900]\n{DEVICE}[[namespace]]\ndevice = \"x\"\n[[access]]\nfrom = \"x\"\nrights = \"read\"\n\
         [[subsystem]]\nnqn = \"x\"\nnamespaces = [1]\n[[host]]\nnqn = \"x\"\n[limits]\ntenants = 0\n"
    );
    let said = said(&text);
    let lines: Vec<&str> = said.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        lines,
        ["a.toml:1", "a.toml:6", "a.toml:8", "a.toml:11", "a.toml:14", "a.toml:16"],
        "{said}"
    );
}

#[test]
fn what_only_follows_from_a_mistake_is_not_told() {
    // The namespace is named by a listener, a rule and a subsystem, the tenant by all of them and a
    // host.
    let text = "[[device]]\nname = \"d\"\nspec = \"mem:1GB\"\nmodel = \"a\"\n\
                [[namespace]]\ndevice = \"d\"\nsize = \"1GiB\"\n\
                [[tenant]]\nname = \"t\"\nlatency_us = 1\niops = 1\n\
                [[listen]]\nurl = \"reflex://127.0.0.1:0?namespace=1&tenant=t\"\n\
                [[access]]\nfrom = \"anyone\"\ntenant = \"t\"\nnamespaces = [1]\nrights = \"read\"\n\
                [[subsystem]]\nnamespaces = [1]\ntenant = \"t\"\n\
                [[host]]\nnqn = \"nqn.x:h\"\ntenant = \"t\"\n";
    let said = said(text);
    assert!(said.starts_with("a.toml:3: device \"d\": ") && said.lines().count() == 1, "{said}");
}

/// Tests that a scratch namespace named by the file must exist only while no live change replaces
/// the setting.
#[test]
fn scratch_that_the_file_names_is_looked_for_only_while_that_counts() {
    let base = Config::parse(&format!("{DEVICE}recalibrate_scratch = \"x\"\n")).unwrap();
    let refused = |now: Option<Option<&str>>| {
        let mut changes = Changes::default();
        if let Some(scratch) = now {
            let mut device = base.device[0].clone();
            device.recalibrate_scratch = scratch.map(str::to_owned);
            changes.devices.insert(device.name.clone(), Some(device));
        }
        let draft = StartupPlan::of(&base, &changes.made_to(&base), CommandLineSettings::default());
        draft.err().map(|mistakes| mistakes.told(None))
    };
    for (now, is_refused) in [
        (None, true),
        (Some(Some("x")), true),
        (Some(None), false),
        (Some(Some("ns1")), false),
        // What only the state file says stops no start.
        (Some(Some("y")), false),
    ] {
        let said = refused(now);
        assert_eq!(said.is_some(), is_refused, "{now:?}: {said:?}");
        assert!(said.is_none_or(|said| said.contains("there is no namespace \"x\"")));
    }
}

/// Returns the server's interpretation of a file, independent of its spelling.
fn meaning(text: &str) -> String {
    let base = Config::parse(text).unwrap();
    let config = Changes::default().made_to(&base);
    let draft = StartupPlan::of(&base, &config, CommandLineSettings::default())
        .unwrap_or_else(|mistakes| panic!("{text}{mistakes}"));
    let tenants: Vec<String> = draft
        .tenants
        .list()
        .into_iter()
        .map(|info| {
            let promise = (
                info.tokens_needed,
                info.promise.slo().map(|slo| (slo.latency_us, slo.read_percent)),
            );
            format!("{:?}", (info.name, info.class, info.device, promise, info.promise.share()))
        })
        .collect();
    let mut mistakes = Mistakes::default();
    let rooms = [DeviceCapacity::of_blocks(1 << 21)];
    let devices: Vec<_> = config
        .all_devices()
        .iter()
        .map(|one| (one.switches(), one.recalibrates_by_itself(), one.idle_after()))
        .collect();
    let access = config.access(|_| true, |_| None, &mut mistakes);
    format!(
        "{:?} {:?} {:?} {tenants:?} {devices:?} {access:?} {:?} {:?} {:?} {:?}",
        draft.size,
        config.pinned(),
        draft.limits,
        draft.listen,
        config.spaces(&rooms),
        config.authentication.methods(),
        (&config.subsystem, &config.host, config.connections_max()),
    )
}

/// Tests that it makes no difference to write out the defaults that the schema and `config show`
/// state.
#[test]
fn the_defaults_that_are_documented_are_those_of_the_program() {
    let smallest: toml::Table = SMALLEST.parse().unwrap();
    let expected = meaning(SMALLEST);
    let mut seen = 0;
    for (table, n, key, value) in defaults() {
        let value = toml::Value::try_from(&value).unwrap();
        let mut all = smallest.clone();
        let said = match all.get_mut(table) {
            None => &mut all,
            Some(toml::Value::Array(each)) => each[n].as_table_mut().unwrap(),
            Some(one) => one.as_table_mut().unwrap(),
        };
        assert!(said.insert(key.clone(), value.clone()).is_none(), "{table}.{key}");
        let text = toml::to_string(&all).unwrap();
        assert_eq!(meaning(&text), expected, "{table}.{key} = {value}");
        seen += 1;
    }
    assert!(seen > 25, "{seen}");
}
