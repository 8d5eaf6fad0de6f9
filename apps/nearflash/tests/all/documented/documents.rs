//! Tests that the documents are true: their examples are the files that compile, their
//! configurations are accepted, the options that they name exist, and every key is explained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Launch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the text of each fenced block of a document in this language, with the line before its
/// fence.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<(&'a str, String)> {
    let fence = format!("```{language}");
    let (mut found, mut before, mut lines) = (Vec::new(), "", text.lines());
    while let Some(line) = lines.next() {
        if line == fence {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((before, inside.join("\n") + "\n"));
        } else if line.starts_with("```") {
            lines.by_ref().take_while(|line| *line != "```").for_each(drop);
        }
        before = line;
    }
    found
}

/// Returns the source of an example without the `//!` comment at its top.
fn without_head(source: &str) -> String {
    let body = source.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    body.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn examples_are_the_files_that_compile() {
    let pages = [
        ("README.md", "rust", 1),
        ("docs/how-to/use-from-rust.md", "rust", 2),
        ("docs/how-to/use-from-c.md", "c", 2),
    ];
    for (page, language, count) in pages {
        let text = read(page);
        let examples = blocks(&text, language);
        assert_eq!(examples.len(), count, "{page}");
        for (before, example) in &examples {
            let path = before.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
            let path =
                path.unwrap_or_else(|| panic!("no file named before an example: {before:?}"));
            assert!(*example == without_head(&read(path)), "the example of {page} is not {path}");
        }
    }
}

#[test]
fn the_device_model_of_the_documents_is_understood() {
    let text = read("docs/reference/device-models.md");
    let examples = blocks(&text, "toml");
    assert_eq!(examples.len(), 1);
    let file = qos::ModelFile::parse(&examples[0].1).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((file.write, file.p95.len(), file.sizes.len()), (1_000, 2, 2));
}

#[test]
fn configurations_of_the_documents_are_understood() {
    for (path, count) in [
        ("docs/reference/configuration.md", 1),
        ("docs/tutorials/getting-started.md", 1),
        ("docs/tutorials/linux-volume.md", 1),
    ] {
        let text = read(path);
        let examples = blocks(&text, "toml");
        assert_eq!(examples.len(), count, "{path}");
        for (_, config) in examples {
            // What is checked is looked at, too, and these files are an operator's.
            let folders = ["\"/etc/nearflash/admin.", "\"/var/log/nearflash/"];
            let is_here = |line: &&str| !folders.iter().any(|folder| line.contains(folder));
            let config = config.lines().filter(is_here).collect::<Vec<_>>().join("\n");
            let (code, said) = Launch::config(&config).with("--check").fail();
            assert_eq!(code, 0, "{path}: {said}");
        }
    }
}

/// Returns the keys of a table of the configuration. The program lists them in its error for an
/// unknown key.
fn keys(table: &str) -> Vec<String> {
    let (code, said) = Launch::config(&format!("{table}\nno_such_key = 1")).with("--check").fail();
    assert_eq!(code, 1);
    let (_, list) = said.split_once("expected").unwrap_or_else(|| panic!("no list in {said}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_is_explained_and_in_the_example() {
    let text = read("docs/reference/configuration.md");
    let example = &blocks(&text, "toml")[0].1;
    let (lists, single) = (
        ["device", "tenant", "listen", "namespace", "access", "subsystem", "host"],
        ["admin", "authentication", "limits"],
    );
    let tables = [&lists[..], &single[..]].concat();
    let named = |name: &str| match single.contains(&name) {
        true => format!("[{name}]"),
        false => format!("[[{name}]]"),
    };
    for table in tables.iter().map(|name| named(name)).chain([String::new()]) {
        let known = keys(&table);
        assert!(!known.is_empty(), "{table}");
        for key in known {
            if table.is_empty() && tables.contains(&&*key) {
                assert!(text.contains(&format!("[{key}]")), "[{key}] is not explained");
                continue;
            }
            assert!(text.contains(&format!("\n| `{key}` | ")), "{table} {key} is not explained");
            let used = example.contains(&format!("\n{key} = ")) || example.starts_with(&key);
            assert!(used, "{table} {key} is not in the example");
        }
    }
}

#[test]
fn defaults_of_the_limits_are_those_of_the_program() {
    let text = read("docs/reference/configuration.md");
    let defaults = worker::Limits::default();
    for (key, value) in [
        ("in_flight", defaults.in_flight.to_string()),
        ("in_flight_of_connection", defaults.in_flight_of_connection.to_string()),
        ("unsent_of_connection", format!("`\"{}MiB\"`", defaults.unsent_of_connection >> 20)),
        ("carried", format!("`\"{}MiB\"`", defaults.carried >> 20)),
        ("stuck_seconds", defaults.stuck.as_secs().to_string()),
        ("drain_seconds", defaults.drain.as_secs().to_string()),
    ] {
        assert!(text.contains(&format!("\n| `{key}` | {value} | ")), "{key} is {value}");
    }
}

/// Returns the help text of a command, given by its words.
fn help(command: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_nearflash"))
        .args(command)
        .arg("--help")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command:?} --help");
    String::from_utf8(ran.stdout).unwrap()
}

/// Returns the names of the commands that a help text lists.
fn listed_commands(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").collect()
}

/// Returns the paths of the pages for readers: the README and the documents, without results and
/// decisions.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true if path == "docs/adr" || path == "docs/results" => {}
                true => folders.push(path),
                false if path.ends_with(".md") => pages.push(path),
                false => {}
            }
        }
    }
    pages
}

/// Returns the command lines that call `nearflash` in the `sh` blocks of a page, without their
/// comments.
fn shown_calls(text: &str) -> Vec<&str> {
    let (mut language, mut calls) = (None, Vec::new());
    for line in text.lines().map(str::trim) {
        match (line.strip_prefix("```"), language) {
            (Some(begun), None) => language = Some(begun),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) if line.starts_with("nearflash ") => {
                calls.push(line.split(" #").next().unwrap_or(line).trim_end());
            }
            _ => {}
        }
    }
    calls
}

#[test]
fn commands_of_the_documents_exist() {
    let (mut helps, mut seen) = (BTreeMap::<Vec<String>, String>::new(), 0);
    let mut help_of = |command: &[&str]| {
        let key = command.iter().map(|word| (*word).to_owned()).collect();
        helps.entry(key).or_insert_with(|| help(command)).clone()
    };
    for page in pages() {
        let text = read(&page);
        for call in shown_calls(&text) {
            let words: Vec<&str> = call.split_whitespace().skip(1).collect();
            if words[0].starts_with("--") {
                continue;
            }
            let mut help = help_of(&words[..1]);
            let parts = listed_commands(&help);
            if !parts.is_empty() && !words[1].contains("://") {
                assert!(parts.contains(&words[1]), "{page}: {call}: there are {parts:?}");
                help = help_of(&words[..2]);
            }
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{page}: {call}: there is no {option}");
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "the documents show commands: {seen} options");
}

#[test]
fn every_command_is_in_the_reference() {
    let page = read("docs/reference/commands.md");
    let program = help(&[]);
    let commands = listed_commands(&program);
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let row = page.lines().find(|line| {
            let cell = line.strip_prefix("| `").unwrap_or_default();
            cell.strip_prefix(command).is_some_and(|rest| rest.starts_with(['`', ' ']))
        });
        let row = row.unwrap_or_else(|| panic!("{command} has no row"));
        for part in listed_commands(&help(&[command])) {
            let named = [format!("`{part}`"), format!("`{command} {part}")];
            let is_named = named.iter().any(|name| row.contains(name) || page.contains(&named[1]));
            assert!(is_named, "{command} {part} is not named");
        }
    }
}

#[test]
fn the_index_leads_to_every_page() {
    let index = read("docs/README.md");
    for page in pages() {
        let Some(path) = page.strip_prefix("docs/") else { continue };
        if path != "README.md" {
            assert!(index.contains(&format!("({path})")), "docs/README.md does not lead to {page}");
        }
    }
}

#[test]
fn every_option_of_the_server_is_explained() {
    let text = read("docs/reference/configuration.md");
    let help = help(&["serve"]);
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<&str> = options.filter_map(|line| line.split([' ', ',']).next()).collect();
    assert!(options.len() > 8, "{options:?}");
    for option in options {
        assert!(text.contains(&format!("`--{option}")), "--{option} is not explained");
    }
}
