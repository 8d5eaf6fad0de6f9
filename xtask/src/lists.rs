//! The lists of tests: each test of the repository is in exactly one.
//!
//! A test without `#[ignore]` is in the short run. An ignored one names its list in the reason
//! (`#[ignore = "browser: …"]`). The tests of `cargo xtask interop` have a column for it
//! (`trials/src/interop/list.rs`). `cargo xtask tidy` refuses anything else.

use xtask::shell;

use crate::tidy::tree::Tree;

/// The lists of ignored tests, each with the commands that run it.
pub(crate) const LISTS: &[(&str, &str)] = &[
    ("browser", "cargo xtask ci, step dashboard: one in short runs, all in full ones"),
    ("full", "cargo xtask ci --full, step slow tests"),
    ("ops", "cargo xtask bench ops and cargo xtask soak operating"),
    ("soak", "cargo xtask soak tests"),
];

/// A test with the attribute `#[ignore]`.
struct Ignored<'a> {
    place: String,
    /// The test's name; empty if no function follows.
    name: &'a str,
    /// The list: the beginning of the attribute's reason, up to the colon. Empty without a reason.
    list: &'a str,
}

/// Returns the names of the ignored tests of the list `list` whose files are below `folder`, a path
/// from the root.
pub(crate) fn names(list: &str, folder: &str) -> Result<Vec<String>, String> {
    let tree = Tree::read(&shell::root())?;
    let found = ignored(&tree).into_iter();
    let found = found.filter(|one| one.list == list && one.place.starts_with(folder));
    Ok(found.map(|one| one.name.to_owned()).collect())
}

/// Returns a line for each ignored test that names no known list.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let stray = ignored(tree)
        .into_iter()
        .filter(|one| one.name.is_empty() || !LISTS.iter().any(|(list, _)| *list == one.list));
    let lists: Vec<&str> = LISTS.iter().map(|(list, _)| *list).collect();
    let lists = lists.join(", ");
    stray
        .map(|Ignored { place, name, .. }| {
            format!("{place}: the reason of {name:?} has to begin with its list: {lists}")
        })
        .collect()
}

fn ignored(tree: &Tree) -> Vec<Ignored<'_>> {
    let mut found = Vec::new();
    let is_ours = |path: &str| !path.starts_with("xtask/");
    for file in tree.sources().filter(|file| is_ours(&file.path)) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("#[ignore") else { continue };
            let reason = rest.strip_prefix(" = \"").unwrap_or_default();
            let list = reason.split_once(": ").map_or("", |(list, _)| list);
            let head = lines[number..].iter().find_map(|line| line.strip_prefix("fn "));
            let name = head.and_then(|head| head.split('(').next()).unwrap_or_default();
            found.push(Ignored { place: format!("{}:{}", file.path, number + 1), name, list });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ignored_test_of_the_repository_stands_in_one_list() {
        let tree = Tree::read(&shell::root()).unwrap();
        assert_eq!(check(&tree), [""; 0]);
        assert!(ignored(&tree).len() > 4, "there are such tests");
    }

    #[test]
    fn a_test_without_a_list_is_named() {
        for attribute in ["#[ignore]", "#[ignore = \"too slow\"]", "#[ignore = \"other: x\"]"] {
            let source = format!("#[test]\n{attribute}\nfn it_is_slow() {{}}\n");
            let found = check(&Tree::of(&[("crates/a/src/a.rs", &source)]));
            assert!(found.len() == 1 && found[0].contains("it_is_slow"), "{found:?}");
        }
        let good = "#[test]\n#[ignore = \"full: minutes\"]\nfn it_is_slow() {}\n";
        assert_eq!(check(&Tree::of(&[("crates/a/src/a.rs", good)])), [""; 0]);
    }
}
