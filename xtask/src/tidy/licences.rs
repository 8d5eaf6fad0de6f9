//! Checks that every linked package has a permissive licence.

use crate::manifest::Manifest;

/// The allowed licences.
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

/// Reports packages that cannot be used under an allowed licence.
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

/// Returns true if an SPDX expression can be met with allowed licences alone. An expression that
/// cannot be parsed is not allowed.
pub(super) fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = either(&mut rest);
    rest.is_empty() && allowed == Some(true)
}

/// `all (OR all)*`
fn either(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        allowed |= all(words)?;
    }
    Some(allowed)
}

/// `one (AND one)*`
fn all(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        allowed &= one(words)?;
    }
    Some(allowed)
}

/// Parses a licence, with its exception if it has one, or an expression in brackets.
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
