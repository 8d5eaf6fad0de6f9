//! Private words: names of types and modules that an engineer of storage or networks would not
//! understand without this project's history.

use syn::visit::{self, Visit};

use super::tree::Tree;

/// The refused words, each with the terms that replaced it.
const PRIVATE: [(&str, &str); 15] = [
    ("door", "lock, port, client, listener"),
    ("office", "control plane, admin state"),
    ("porter", "handshake thread"),
    ("rack", "socket table"),
    ("ruse", "kind of attack"),
    ("sight", "view, reading"),
    ("sighting", "reading"),
    ("station", "peer address, worker"),
    ("tell", "message"),
    ("thrift", "memory trim"),
    ("told", "message, note, report"),
    ("toll", "report"),
    ("way", "route, path, transport"),
    ("weather", "impairments"),
    ("wish", "operation, option"),
];

/// The names with a private word that are published, and so must not change.
const PUBLISHED: [&str; 1] = ["Ways"];

/// Returns a line for each type or module whose name has a private word, alone or in a compound, in
/// the singular or the plural.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources() {
        let Ok(parsed) = file.parsed() else { continue };
        let mut names = Names(Vec::new());
        names.visit_file(parsed);
        for name in names.0.iter().filter(|name| !PUBLISHED.contains(&name.as_str())) {
            let refused = PRIVATE.iter().filter(|(word, _)| has_word(name, word));
            found.extend(refused.map(|(word, terms)| {
                format!("{}: {name}: `{word}` is a private word; use {terms}", file.path)
            }));
        }
    }
    found
}

/// Returns `true` if a name in camel case or snake case has this word, or its plural with `s`.
fn has_word(name: &str, word: &str) -> bool {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c.is_uppercase() || c == '_' {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("one is there").extend(c.to_lowercase());
        }
    }
    words.iter().any(|one| one == word || one.strip_suffix('s') == Some(word))
}

struct Names(Vec<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Enum(of) => &of.ident,
            syn::Item::Mod(of) => &of.ident,
            syn::Item::Struct(of) => &of.ident,
            syn::Item::Trait(of) => &of.ident,
            syn::Item::Type(of) => &of.ident,
            _ => return visit::visit_item(self, item),
        };
        self.0.push(name.to_string());
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_word_in_a_name_is_found() {
        let found = |text: &str| check(&Tree::of(&[("crates/a/src/lib.rs", text)]));
        for (text, name) in [
            ("struct Door;", "Door"),
            ("enum NbdDoor {}", "NbdDoor"),
            ("mod doors {}", "doors"),
            ("#[cfg(test)] mod tests { type OpenDoors = u8; }", "OpenDoors"),
        ] {
            let line = "`door` is a private word; use lock, port, client, listener";
            assert_eq!(found(text), [format!("crates/a/src/lib.rs: {name}: {line}")]);
        }
        let others = "struct Doorbell; trait Railway {} struct Insight; struct Ways; fn door() {}";
        assert_eq!(found(others), [""; 0]);
    }
}
