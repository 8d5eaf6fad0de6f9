//! Checks of documents: links and named paths must exist.

use std::collections::BTreeSet;

use super::tree::{File, Tree};

/// Returns a line for each link within the repository whose target does not exist. URLs are not
/// followed.
pub(super) fn links(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.documents() {
        for (line, target) in link_targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { file.path.clone() } else { beside(&file.path, path) };
            if !tree.has(&path) {
                found.push(format!("{}:{line}: link to {target}: no such file", file.path));
            } else if !anchor.is_empty() && !has_anchor(tree, &path, anchor) {
                found.push(format!("{}:{line}: link to {target}: no such heading", file.path));
            }
        }
    }
    found
}

/// Returns a line for each path that does not exist, named in a code span of the architecture, of
/// the guide for contributors or of `docs/`.
pub(super) fn named_paths(tree: &Tree) -> Vec<String> {
    let tops: BTreeSet<&str> =
        tree.paths.iter().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    let mut found = Vec::new();
    let checked = |file: &&File| {
        file.path.starts_with("docs/")
            || ["ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&&*file.path)
    };
    for file in tree.documents().filter(checked) {
        for (number, line) in prose(&file.text) {
            for span in line.split('`').skip(1).step_by(2) {
                let path = span.trim_end_matches('/');
                let top = path.split('/').next().unwrap_or_default();
                let names_path = tops.contains(top) && path.chars().all(is_path_character);
                if names_path && !tree.has(path) {
                    found.push(format!("{}:{number}: `{span}` does not exist", file.path));
                }
            }
        }
    }
    found
}

/// Reports a missing change log, or a change log without a section for the next release.
pub(super) fn changelog(tree: &Tree) -> Vec<String> {
    let has = tree.files.iter().any(|file| {
        file.path == "CHANGELOG.md" && file.text.lines().any(|l| l.starts_with("## [Unreleased]"))
    });
    if has { Vec::new() } else { vec!["CHANGELOG.md: no `## [Unreleased]` section".to_owned()] }
}

fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '*')
}

/// Returns the lines of a document outside of its fenced blocks, with their line numbers from 1.
pub(super) fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// Returns the targets of `[text](target)` and `[name]: target` in a document, with their line
/// numbers.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in prose(text) {
        let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for part in spoken.split("](").skip(1) {
            let inside = part.split(')').next().unwrap_or_default();
            let target = inside.split_whitespace().next().unwrap_or_default();
            targets.push((number, target.to_owned()));
        }
        if let Some((name, target)) = spoken.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            targets.push((number, target.trim().to_owned()));
        }
    }
    targets
}

/// Returns the path from the root of the link `relative` in the file `from`.
fn beside(from: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns `true` if the document at `path` has a heading with this anchor. Anchors of files that
/// are no documents are not checked.
fn has_anchor(tree: &Tree, path: &str, anchor: &str) -> bool {
    let Some(file) = tree.documents().find(|file| file.path == path) else { return true };
    prose(&file.text).iter().any(|(_, line)| line.starts_with('#') && slug(line) == anchor)
}

/// Returns the anchor of a heading: lower case, without punctuation, hyphens for spaces.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_is_found() {
        let text = "# One, two\n[a](b.md) [c](#one-two) `[x](y)` [d](https://e.org/f)\n\
                    ```\n[g](none)\n```\n[h](none.md)\n[i](../README.md#nothing)\n\n[j]: gone.md\n";
        let tree = Tree::of(&[("docs/a.md", text), ("docs/b.md", ""), ("README.md", "# Top")]);
        let found = links(&tree);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("docs/a.md:6: link to none.md"));
        assert!(found[1].contains("no such heading"));
        assert!(found[2].contains("gone.md"));
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        let text = "`crates/a/src/lib.rs`, `crates/a/*`, `crates/`, `read/write`, `crates/a::B`\n\
                    and `crates/gone.rs`\n";
        let source = ("crates/a/src/lib.rs", "");
        let found = named_paths(&Tree::of(&[("ARCHITECTURE.md", text), source]));
        assert_eq!(found, ["ARCHITECTURE.md:2: `crates/gone.rs` does not exist"]);
    }

    #[test]
    fn a_missing_changelog_is_found() {
        assert_eq!(changelog(&Tree::of(&[("CHANGELOG.md", "# Changelog\n")])).len(), 1);
        let good = Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")]);
        assert_eq!(changelog(&good), [""; 0]);
    }
}
