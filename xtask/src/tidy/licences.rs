//! Checks that every linked package has a permissive licence, and that files under other licences are
//! known ones, apart, with the text of their licence.

use super::tree::Tree;
use crate::manifest::Manifest;

/// The allowed licences, by their SPDX identifiers.
const ALLOWED: [&str; 10] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "Unicode-3.0",
];

/// The files under a licence that is not allowed for packages, each with its licence. No package
/// contains them.
const APART: [(&str, &str); 1] = [("contrib/fio/nearflash.c", "GPL-2.0-only")];

/// The folder of files that belong to other projects' programs. Each names its licence.
const CONTRIBUTED: &str = "contrib/";

/// The name of the file with a licence's text, beside the files under that licence.
const TEXT: &str = "COPYING";

/// The words before the licence that a file names. Spelled in two parts so that this file passes.
const MARK: &str = concat!("SPDX-License-", "Identifier: ");

/// Returns a line for each file under a licence that is neither allowed nor known, and for each
/// whose licence or its text is missing.
pub(super) fn files(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let said = file.text.lines().find_map(|line| line.split_once(MARK));
        let said = said.map(|(_, licence)| licence.trim_end_matches("*/").trim());
        let is_apart = APART.iter().any(|(path, known)| *path == file.path && said == Some(*known));
        let trouble = match said {
            _ if is_apart && tree.has(&format!("{folder}/{TEXT}")) => continue,
            _ if is_apart => format!("no {TEXT} beside it"),
            None if file.path.starts_with(CONTRIBUTED) && name != TEXT => "says no licence".into(),
            Some(licence) if !is_allowed(licence) => {
                format!("licence {licence} is not on the list")
            }
            _ => continue,
        };
        found.push(format!("{}: {trouble}", file.path));
    }
    found
}

/// Returns a line for each package, of the workspace or linked with it, that cannot be used under
/// allowed licences alone.
pub(super) fn check(manifest: &Manifest) -> Vec<String> {
    let mut found = Vec::new();
    for package in &manifest.packages {
        let (name, version) = (&package.name, &package.version);
        match &package.license {
            None => found.push(format!("{name} {version}: says no licence")),
            Some(expression) if !is_allowed(expression) => {
                found.push(format!("{name} {version}: licence {expression} is not on the list"));
            }
            Some(_) => {}
        }
    }
    found
}

/// Returns `true` if allowed licences alone meet an SPDX expression, and `false` if they do not or
/// if the expression cannot be parsed.
pub(super) fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = either(&mut rest);
    rest.is_empty() && allowed == Some(true)
}

/// Parses `all (OR all)*` and removes it from `words`. Returns `true` if one of the alternatives is
/// allowed; `None` if the words do not parse.
fn either(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        allowed |= all(words)?;
    }
    Some(allowed)
}

/// Parses `one (AND one)*` and removes it from `words`. Returns `true` if all parts are allowed;
/// `None` if the words do not parse.
fn all(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        allowed &= one(words)?;
    }
    Some(allowed)
}

/// Parses a licence, with its exception if it has one, or an expression in brackets, and removes it
/// from `words`. Returns `true` if it is allowed; `None` if the words do not parse.
fn one(words: &mut &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let allowed = either(words)?;
        let (last, rest) = words.split_first()?;
        *words = rest;
        return (*last == ")").then_some(allowed);
    }
    if words.first() == Some(&"WITH") {
        let name = format!("{first} WITH {}", words.get(1)?);
        *words = &words[2..];
        return Some(ALLOWED.contains(&name.as_str()));
    }
    Some(ALLOWED.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let good = [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ];
        for expression in good {
            assert!(is_allowed(expression), "{expression}");
        }
        let bad = ["GPL-3.0", "MIT AND GPL-3.0", "", "MIT OR", "(MIT", "Apache-2.0 WITH Other"];
        for expression in bad {
            assert!(!is_allowed(expression), "{expression}");
        }
    }

    #[test]
    fn files_under_other_licences_are_known_and_apart() {
        let under = |licence: &str| format!("// {MARK}{licence}\nint x;\n");
        let (ours, theirs) = (under("MIT"), under("GPL-2.0-only"));
        let engine = ("contrib/fio/nearflash.c", theirs.as_str());
        let text = ("contrib/fio/COPYING", "GNU");
        let found = |all: &[(&str, &str)]| files(&Tree::of(all));
        assert_eq!(found(&[engine, text, ("crates/a.c", &ours), ("b.rs", "")]), [""; 0]);
        assert!(found(&[engine])[0].ends_with("no COPYING beside it"));
        assert!(found(&[("crates/a.c", &theirs)])[0].contains("not on the list"));
        assert!(found(&[("contrib/x/y.c", "int x;")])[0].ends_with("says no licence"));
        let other = under("GPL-3.0-only");
        assert!(found(&[("contrib/fio/nearflash.c", &other), text])[0].contains("GPL-3.0-only"));
    }

    #[test]
    fn the_package_is_named() {
        let text = r#"{"packages": [
            {"name": "good", "id": "g", "version": "1.0.0", "license": "MIT"},
            {"name": "viral", "id": "v", "version": "2.0.0", "license": "AGPL-3.0"},
            {"name": "mute", "id": "m", "version": "3.0.0"}], "workspace_members": []}"#;
        let found = check(&Manifest::parse(text).unwrap());
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("viral 2.0.0") && found[1].starts_with("mute 3.0.0"));
    }
}
