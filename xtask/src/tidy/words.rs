//! Private words: names of types and modules that an engineer of storage or networks would not
//! understand without this project's history, and names that say nothing because many types have
//! them.

use syn::visit::{self, Visit};

use super::lengths::is_test;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The largest number of types that may have one name.
const NAMESAKES_MAX: u64 = 4;

/// The refused words, each with the terms that replaced it.
const PRIVATE: [(&str, &str); 22] = [
    ("crew", "threads, workers"),
    ("door", "lock, port, client, listener"),
    ("foresight", "proposed promises"),
    ("happening", "event"),
    ("insecurity", "failure of TLS"),
    ("office", "control plane, admin state"),
    ("partings", "ends"),
    ("porter", "handshake thread"),
    ("rack", "socket table"),
    ("raider", "attacker"),
    ("ruse", "kind of attack"),
    ("scribe", "codec, writer"),
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

/// The names that say nothing when they stand alone.
const ALONE: &str = "Adopted Against Aged Agreed Allowed Alone Answered Around Arrived Arriving Asked At \
     Attached Audited Awaited Bed Before Begun Belief Below Beside Blame Blank Blocked Blow \
     Broken Built Busy Carried Chained Changed Charged Checked Chored Chosen Coarse Collected \
     Collecting Committing Copied Counted Decorated Deed Delayed Departed Described Desk \
     Dialled Dice Differs Doing Down Drawn Dropped Due Duty Elsewhere Encoded Ending Endless \
     Ends Entered Errand Executed Fate Faulty Fenced Finished Flying Foresight Forgets Freeing \
     Fresh Fused Gathered Gone Good Got Greeter Ground Grounds Grown Half Hall Hand Happening \
     Heard Held Hosted Inherited Inside Into Judged Keep Kept Kin Landed Landing Late Leaving \
     Left Lent Listed Live Loaded Look Looked Lot Made Manner Meaning Misfit Missing Mounted \
     Moved Near Needs Next Noted Now Nth Numbered Observed Of Offending Open Opened Opens \
     Orphan Other Others Over Owed Own Packed Paid Parcel Parked Partly Passed Picked Placed \
     Plain Played Polite Preparing Priced Promised Raider Raiders Ran Received Receiving \
     Redialled Released Reloaded Replied Reserved Retained Said Scraped Scribe Sealed Seat \
     Secured Sending Served Shaped Shelf Slow Speaks Spent Spoken Staged Stalled Stand Stands \
     Started Starving Stay Stays Still Styled Submitted Supposed Taken Talk Teller Through To \
     Touched Translated Treasury Two Unanswered Unfit Unsure Until Untouched Waited Waiting \
     Wanted Watched Which Who Why Wiped Wrong";

/// The names with a private word that are published, and so must not change.
const PUBLISHED: [&str; 1] = ["Ways"];

/// Returns a line for each type or module whose name has a private word, alone or in a compound, in
/// the singular or the plural.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources() {
        let Ok(parsed) = file.parsed() else { continue };
        let mut names = Names { found: Vec::new(), types_alone: false };
        names.visit_file(parsed);
        for name in names.found.iter().filter(|name| !PUBLISHED.contains(&name.as_str())) {
            let refused = PRIVATE.iter().filter(|(word, _)| has_word(name, word));
            found.extend(refused.map(|(word, terms)| {
                format!("{}: {name}: `{word}` is a private word; use {terms}", file.path)
            }));
            if ALONE.split_whitespace().any(|word| word == name) {
                found.push(format!("{}: {name}: says nothing alone; name the noun", file.path));
            }
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

/// Returns the rule on names that many types have, with the number of types of each name. Tests are
/// exempt.
pub(super) fn rule(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Ok(parsed) = file.parsed() else { continue };
        let mut types = Names { found: Vec::new(), types_alone: true };
        types.visit_file(parsed);
        for name in types.found {
            *measures.entry(name).or_default() += 1;
        }
    }
    Rule { name: "namesakes", unit: "types of this name", limit: NAMESAKES_MAX, measures }
}

/// The names of types, and those of modules too unless `types_alone`, which leaves out tests.
struct Names {
    found: Vec<String>,
    types_alone: bool,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Enum(of) => &of.ident,
            syn::Item::Mod(of) if self.types_alone && is_test(&of.attrs) => return,
            syn::Item::Mod(of) if !self.types_alone => &of.ident,
            syn::Item::Struct(of) => &of.ident,
            syn::Item::Trait(of) => &of.ident,
            syn::Item::Type(of) => &of.ident,
            _ => return visit::visit_item(self, item),
        };
        self.found.push(name.to_string());
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
        let alone = found("struct Said; struct SaidLine;");
        let line = "crates/a/src/lib.rs: Said: says nothing alone; name the noun";
        assert_eq!(alone, [line]);
        let others = "struct Doorbell; trait Railway {} struct Insight; struct Ways; fn door() {}";
        assert_eq!(found(others), [""; 0]);
    }

    #[test]
    fn a_name_that_many_types_have_is_found() {
        let files: Vec<(String, &str)> =
            (0..5).map(|n| (format!("crates/a/src/f{n}.rs"), "enum Kind {} struct Own;")).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let mut found = rule(&Tree::of(&files)).findings(&Tree::of(&files));
        found.sort();
        assert_eq!(
            found,
            ["Kind: 5 types of this name, at most 4", "Own: 5 types of this name, at most 4"]
        );
        assert_eq!(rule(&Tree::of(&files[..4])).findings(&Tree::of(&files[..4])), [""; 0]);
        let tests = "#[cfg(test)] mod tests { struct Own; }";
        assert!(rule(&Tree::of(&[("crates/a/src/lib.rs", tests)])).measures.is_empty());
    }
}
