//! The security claims of the documents, each with a test that would fail if the claim were false.

use super::tree::Tree;

/// The document with the security claims.
const DOCUMENT: &str = "docs/explanation/security.md";

/// The head of the column that names the tests of claims.
const COLUMN: &str = "shown by";

/// Returns a line for each claim without a test, and for each named test that does not exist. A
/// claim is a row of a table whose last column names tests in code spans. Outside of tables, a code
/// span of [four words](is_like_a_test) names a test.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(document) = tree.files.iter().find(|file| file.path == DOCUMENT) else {
        return vec![format!("{DOCUMENT}: there is no such document")];
    };
    let (mut found, mut is_claims, mut claims) = (Vec::new(), false, 0);
    for (line, number) in document.text.lines().zip(1..) {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            is_claims = false;
            let named = spans(line).filter(|name| is_like_a_test(name) && !is_test(tree, name));
            found.extend(
                named.map(|name| format!("{DOCUMENT}:{number}: there is no test `{name}`")),
            );
            continue;
        };
        let last = cells.rsplit('|').next().unwrap_or_default().trim();
        if last == COLUMN {
            is_claims = true;
            continue;
        }
        let is_rule = !last.is_empty() && last.chars().all(|c| matches!(c, '-' | ':'));
        if !is_claims || is_rule {
            continue;
        }
        claims += 1;
        let names: Vec<&str> = spans(last).collect();
        if names.is_empty() {
            found.push(format!("{DOCUMENT}:{number}: a claim without a test"));
        }
        let missing = names.iter().filter(|name| !is_test(tree, name));
        found.extend(missing.map(|name| format!("{DOCUMENT}:{number}: there is no test `{name}`")));
    }
    if claims == 0 {
        found.push(format!("{DOCUMENT}: no table has a column `{COLUMN}`"));
    }
    found
}

/// The document with the invariants of the architecture.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The words at the beginning of an invariant, and the words before its checks.
const INVARIANT: &str = "**Architecture Invariant:**";
const CHECKED_BY: &str = "Checked by";

/// Returns a line for each invariant that does not name the tests, tidy rules, lints or types that
/// hold it. They are code spans after the words `Checked by`; a named [test](is_like_a_test) must
/// exist.
pub(super) fn invariants(tree: &Tree) -> Vec<String> {
    let Some(document) = tree.files.iter().find(|file| file.path == ARCHITECTURE) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for paragraph in document.text.split("\n\n").filter(|text| text.starts_with(INVARIANT)) {
        let line = paragraph.lines().next().unwrap_or_default();
        let checks = paragraph.split_once(CHECKED_BY).map_or("", |(_, checks)| checks);
        let names: Vec<&str> = spans(checks).collect();
        if names.is_empty() {
            found.push(format!("{ARCHITECTURE}: names no check (`{CHECKED_BY} …`): {line}"));
        }
        let missing = names.iter().filter(|name| is_like_a_test(name) && !is_test(tree, name));
        found.extend(missing.map(|name| format!("{ARCHITECTURE}: there is no test `{name}`")));
    }
    found
}

/// Returns the texts between pairs of backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns `true` if a name has four or more words, as names of tests have and names of settings do
/// not.
fn is_like_a_test(name: &str) -> bool {
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    is_name && name.matches('_').count() >= 3
}

/// Returns `true` if some source file has a test function of this name.
fn is_test(tree: &Tree, name: &str) -> bool {
    let head = format!("fn {name}(");
    tree.sources().any(|file| {
        let mut is_marked = false;
        file.text.lines().any(|line| {
            let line = line.trim();
            is_marked |= line == "#[test]";
            let is_head = line.starts_with("fn ");
            let is_it = is_head && is_marked && line.starts_with(&head);
            is_marked &= !is_head;
            is_it
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\n#[ignore]\nfn it_holds() {\n}\n\nfn no_test() {\n}\n";

    fn found(document: &str) -> Vec<String> {
        check(&Tree::of(&[(DOCUMENT, document), ("a/b.rs", SOURCE)]))
    }

    #[test]
    fn an_invariant_needs_a_check_that_is_there() {
        let found = |text: &str| invariants(&Tree::of(&[(ARCHITECTURE, text), ("a/b.rs", SOURCE)]));
        let head = "# A\n\n**Architecture Invariant:** x\n`y`.";
        assert_eq!(found(&format!("{head} Checked by `it_holds` and `tidy`.\n\nMore")), [""; 0]);
        assert_eq!(found(head).len(), 1);
        assert!(found(&format!("{head} Checked by `it_does_not_hold`."))[0].contains("no test"));
    }

    #[test]
    fn a_claim_needs_a_test_that_is_there() {
        let head = "| who | cannot | shown by |\n|---|---|---|\n";
        assert!(found(&format!("{head}| a | b | `it_holds` |\n")).is_empty());
        let missing = found(&format!("{head}| a | b | `it_holds`, `no_test` |\n| a | b | |\n"));
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains(":3: there is no test `no_test`"));
        assert!(missing[1].contains(":4: a claim without a test"));
        let aside = "A bullet (`it_did_not_hold`, `it_holds`), a setting `a_b`, `a/b_c_d_e.rs`.\n";
        let missing = found(&format!("{aside}{head}| a | b | `it_holds` |\n"));
        assert_eq!(missing, ["docs/explanation/security.md:1: there is no test `it_did_not_hold`"]);
        assert_eq!(found("| a | b |\n|---|---|\n| c | `d` |\n").len(), 1, "no claims at all");
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
