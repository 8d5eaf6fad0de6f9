//! Checks of Rust sources and of words in any file.

use syn::{AttrStyle, Attribute, Meta};

use super::tree::{File, Tree};

/// The folders of the crates that only compute on values: they must not make system calls.
const PURE: [&str; 9] =
    ["contract", "wire", "crc", "proto", "qos", "flash", "ftl", "contigfs", "packets"];

/// The folders in which clocks may be read: the crate of the outer loop, the driver of the
/// simulated world, and programs.
const CLOCKS: [&str; 7] =
    ["crates/io/", "crates/sim/", "crates/server/", "crates/lab/", "apps/", "trials/", "xtask/"];

/// The files that read the time of day, which may jump: for the stamps of an audit record, a model,
/// a log of latencies and the files of a mounted file system, and beside the kernel's stamps of
/// packets. Nothing else is measured by it.
const WALL: [&str; 6] = [
    "crates/io/src/clock.rs",
    "crates/io/src/lane/socket.rs",
    "crates/server/src/audit.rs",
    "crates/lab/src/bench/log.rs",
    "crates/lab/src/calibrate/findings.rs",
    "crates/mount/src/maintain.rs",
];

/// The words by which the time of day is read.
const WALL_WORDS: [&str; 3] = ["SystemTime", "Realtime", "since_1970()"];

/// The words and macros that mark work as unfinished. Spelled in two parts so that this file
/// passes.
const LEFTOVERS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimplemented", "!"),
    concat!("db", "g!"),
];

/// The beginnings of paths that exist on one machine only. Spelled in two parts so that this file
/// passes.
const MACHINE: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk"), concat!("../sha", "red")];

/// Returns a line for each source file that cannot be parsed.
pub(super) fn parses(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources() {
        if let Err(error) = file.parsed() {
            let line = error.span().start().line;
            found.push(format!("{}:{line}: does not parse: {error}", file.path));
        }
    }
    found
}

/// Returns a line for each source file without a module comment.
pub(super) fn module_docs(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources() {
        let Ok(parsed) = file.parsed() else { continue };
        if !parsed.attrs.iter().any(|a| is_inner(a) && a.path().is_ident("doc")) {
            found.push(format!("{}: no module documentation (`//!`)", file.path));
        }
    }
    found
}

/// Returns a line for each pure crate that lacks the attribute `no_std` or `forbid(unsafe_code)`.
pub(super) fn pure_crates(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for name in PURE {
        let path = format!("crates/{name}/src/lib.rs");
        let attributes = match tree.files.iter().find(|file| file.path == path) {
            Some(file) => file.parsed().map(|f| f.attrs.clone()).unwrap_or_default(),
            None => Vec::new(),
        };
        if !attributes.iter().any(|a| is_inner(a) && a.path().is_ident("no_std")) {
            found.push(format!("{path}: a pure crate without `#![no_std]`"));
        }
        if !attributes.iter().any(forbids_unsafe) {
            found.push(format!("{path}: a pure crate without `#![forbid(unsafe_code)]`"));
        }
    }
    found
}

fn is_inner(attribute: &Attribute) -> bool {
    matches!(attribute.style, AttrStyle::Inner(_))
}

fn forbids_unsafe(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let named = list.path.is_ident("forbid") && list.tokens.to_string().contains("unsafe_code");
    named && is_inner(attribute)
}

/// Returns a line for each permission to read a clock (which clippy forbids) in a file where time
/// must come in as an argument. Tests may read clocks for their time limits.
pub(super) fn clocks(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let lint = "clippy::disallowed_methods";
    for file in tree.sources().filter(|file| !file.is_test()) {
        if !CLOCKS.iter().any(|place| file.path.starts_with(place)) {
            report(file, lint, "time comes in as an argument here", &mut found, |_, _| true);
        }
    }
    found
}

/// Returns a line for each place of the product outside [`WALL`] that reads the time of day, which
/// an operator or a time server may set at any moment.
pub(super) fn wall_clocks(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let is_product = |path: &str| {
        ["crates/", "apps/", "python/"].iter().any(|folder| path.starts_with(folder))
            && !path.contains("/examples/")
    };
    for file in tree.sources().filter(|file| !file.is_test() && is_product(&file.path)) {
        if !WALL.contains(&&*file.path) {
            for word in WALL_WORDS {
                report(file, word, "the time of day may jump", &mut found, |before, _| {
                    !before.is_some_and(is_word)
                });
            }
        }
    }
    found
}

/// Returns a line for each mark of unfinished work in any file.
pub(super) fn leftovers(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for word in LEFTOVERS {
            report(file, word, "unfinished work", &mut found, |before, after| {
                let ends = word.ends_with('!') || !after.is_some_and(is_word);
                ends && !before.is_some_and(is_word)
            });
        }
    }
    found
}

/// Returns a line for each path of one particular machine in any file.
pub(super) fn machine_paths(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        for path in MACHINE {
            report(file, path, "a path of one machine", &mut found, |before, after| {
                let starts = !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '*'));
                let ends = path.ends_with('/') || !after.is_some_and(|c| is_word(c) || c == '-');
                starts && ends
            });
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Adds a line to `found` for each place in `file` at which `word` stands between characters that
/// `fits` accepts; `what` names the offence.
fn report(
    file: &File,
    word: &str,
    what: &str,
    found: &mut Vec<String>,
    fits: impl Fn(Option<char>, Option<char>) -> bool,
) {
    for (number, line) in file.text.lines().enumerate() {
        let hit = line.match_indices(word).any(|(place, _)| {
            let before = line[..place].chars().next_back();
            fits(before, line[place + word.len()..].chars().next())
        });
        if hit {
            found.push(format!("{}:{}: {what}: {word}", file.path, number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_does_not_parse_is_found() {
        let tree = Tree::of(&[("a.rs", "fn ("), ("b.rs", "fn b() {}")]);
        let found = parses(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:1: does not parse"));
    }

    #[test]
    fn a_module_without_documentation_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/a.rs", "/// An item.\nfn a() {}"),
            ("crates/a/src/b.rs", "//! A module.\nfn a() {}"),
        ]);
        assert_eq!(module_docs(&tree).len(), 1);
        assert!(module_docs(&tree)[0].starts_with("crates/a/src/a.rs:"));
    }

    #[test]
    fn a_pure_crate_must_say_both() {
        let good = "//! Doc.\n#![no_std]\n#![forbid(unsafe_code)]\n";
        let all: Vec<(String, &str)> =
            PURE.iter().map(|name| (format!("crates/{name}/src/lib.rs"), good)).collect();
        let mut files: Vec<(&str, &str)> = all.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        assert_eq!(pure_crates(&Tree::of(&files)), [""; 0]);
        files[0].1 = "//! #![no_std] only talked about\n#![deny(unsafe_code)]";
        assert_eq!(pure_crates(&Tree::of(&files)).len(), 2);
        assert_eq!(pure_crates(&Tree::of(&files[1..])).len(), 2);
    }

    #[test]
    fn leave_to_read_a_clock_is_found() {
        let text = "//! Doc.\n#![allow(clippy::disallowed_methods)]\n";
        let tree = Tree::of(&[("crates/qos/src/a.rs", text), ("crates/io/src/clock.rs", text)]);
        let found = clocks(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/qos/src/a.rs:2:"), "{found:?}");
    }

    #[test]
    fn readers_of_the_time_of_day_are_found() {
        let text = "//! Doc.\nfn a() -> Duration { io::since_1970() }\n";
        let other = "//! Doc.\nfn a() { SystemTime::now(); }\n";
        let tree = Tree::of(&[
            ("crates/mount/src/maintain.rs", text),
            ("crates/qos/src/a.rs", text),
            ("apps/nearflash/src/a.rs", other),
            ("crates/io/examples/a.rs", other),
        ]);
        let found = wall_clocks(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("crates/qos/src/a.rs:2:") || found[1].contains("qos"),
            "{found:?}"
        );
    }

    #[test]
    fn leftovers_are_found_as_words() {
        let bad = format!("// {}: later\nlet a = {}();\n", LEFTOVERS[1], LEFTOVERS[3]);
        let tree = Tree::of(&[("a.rs", &bad), ("b.rs", "// MAXXXL and mastodon!\n")]);
        let found = leftovers(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:1:") && found[1].starts_with("a.rs:2:"));
    }

    #[test]
    fn machine_paths_are_found_but_not_names_like_them() {
        let bad = format!("see {}me\nat {}/a\n", MACHINE[0], MACHINE[2]);
        let good = "src/worker.rs, /workload, target/work and a/root/b";
        let found = machine_paths(&Tree::of(&[("a.md", &bad), ("b.md", good)]));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
