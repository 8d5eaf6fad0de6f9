//! The documents hold what they promise: examples are the files that compile, configurations are
//! understood, options exist, and every key is explained.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Launch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a document in this language, each with the line before it.
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

/// A source without the documentation at its top.
fn without_head(source: &str) -> String {
    let body = source.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    body.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn examples_of_the_readme_are_the_files_that_compile() {
    let readme = read("README.md");
    let examples = blocks(&readme, "rust");
    assert_eq!(examples.len(), 2);
    for (before, text) in examples {
        let path = before.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let path = path.unwrap_or_else(|| panic!("no file named before an example: {before:?}"));
        assert!(text == without_head(&read(path)), "the example is not {path}");
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

/// The keys of a table, as the program's own complaint about an unknown one lists them.
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

fn help(command: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_nearflash"))
        .args([command, "--help"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command} --help");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn commands_of_the_documents_exist() {
    let mut seen = 0;
    for path in ["README.md", "docs/tutorials/getting-started.md", "docs/tutorials/linux-volume.md"]
    {
        let text = read(path);
        for (_, block) in blocks(&text, "sh") {
            for line in block.lines().filter(|line| line.starts_with("nearflash ")) {
                let mut words = line.split(' ').skip(1);
                let command = words.next().expect("a command");
                if command.starts_with("--") {
                    continue;
                }
                let help = help(command);
                for option in words.filter(|word| word.starts_with("--")) {
                    assert!(help.contains(option), "{path}: {line}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10, "the documents show commands");
}

#[test]
fn every_option_of_the_server_is_explained() {
    let text = read("docs/reference/configuration.md");
    let help = help("serve");
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<&str> = options.filter_map(|line| line.split([' ', ',']).next()).collect();
    assert!(options.len() > 8, "{options:?}");
    for option in options {
        assert!(text.contains(&format!("`--{option}")), "--{option} is not explained");
    }
}
