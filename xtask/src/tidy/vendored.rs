//! Checks of vendored files: their licence is allowed, its text is present, and the files are
//! unchanged. A file `vendored.toml` in each vendored folder describes them.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::licences;
use super::tree::Tree;

/// The part of a path that all vendored files have.
const FOLDER: &str = "/vendor/";

/// The name of the file that describes a vendored folder, in that folder.
const NOTE: &str = "vendored.toml";

/// The description of a vendored folder, as its file has it.
#[derive(Deserialize)]
struct VendorNote {
    name: String,
    version: String,
    licence: String,
    licence_file: String,
    /// The origin of the files, and the checksum of the original archive.
    source: String,
    integrity: String,
    /// The SHA-256 checksum of each file, by the file's name.
    files: BTreeMap<String, String>,
}

/// Returns a line for each difference between vendored files and their description.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        if name == NOTE {
            match toml::from_str(&file.text) {
                Ok(note) => found.extend(check_note(tree, folder, &note)),
                Err(error) => found.push(format!("{}: {error}", file.path)),
            }
        } else if file.path.contains(FOLDER) && !tree.has(&format!("{folder}/{NOTE}")) {
            found.push(format!("{}: no {NOTE} says where it is from", file.path));
        }
    }
    found
}

fn check_note(tree: &Tree, folder: &str, note: &VendorNote) -> Vec<String> {
    let VendorNote { name, version, licence, licence_file, source, integrity, files } = note;
    let mut found = Vec::new();
    let mut say = |what: String| found.push(format!("{folder}: {what}"));
    if !licences::is_allowed(licence) {
        say(format!("{name} {version}: licence {licence} is not on the list"));
    }
    if !files.contains_key(licence_file) {
        say(format!("the text of the licence, {licence_file}, is not among the files"));
    }
    if !source.starts_with("https://") || !source.contains(version) || integrity.is_empty() {
        say(format!("the source {source} of version {version} is not told with its checksum"));
    }
    for file in tree.files.iter().filter(|file| file.path.starts_with(&format!("{folder}/"))) {
        let path = &file.path[folder.len() + 1..];
        match files.get(path) {
            _ if path == NOTE => {}
            None => say(format!("{path} is not in {NOTE}")),
            Some(sum) if *sum != sum_of(&file.text) => say(format!("{path} was changed")),
            Some(_) => {}
        }
    }
    for path in files.keys().filter(|path| !tree.has(&format!("{folder}/{path}"))) {
        say(format!("{path} is in {NOTE}, and is not there"));
    }
    found
}

fn sum_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(licence: &str, script: &str, others: &[(&str, &str)]) -> Vec<String> {
        let note = format!(
            "name = \"x\"\nversion = \"1.0\"\nlicence = \"{licence}\"\nlicence_file = \"LICENSE\"\n\
             source = \"https://example.org/x-1.0.tgz\"\nintegrity = \"sha512-x\"\n[files]\n\
             \"x.js\" = \"{}\"\nLICENSE = \"{}\"\n",
            sum_of("let x;"),
            sum_of("may")
        );
        let mut files = vec![
            ("a/vendor/x/vendored.toml", note.as_str()),
            ("a/vendor/x/x.js", script),
            ("a/vendor/x/LICENSE", "may"),
        ];
        files.extend(others);
        check(&Tree::of(&files))
    }

    #[test]
    fn what_was_changed_or_is_not_allowed_is_found() {
        assert_eq!(findings("MIT", "let x;", &[]), [""; 0]);
        assert!(findings("MIT", "let y;", &[])[0].ends_with("x.js was changed"));
        assert!(findings("GPL-3.0", "let x;", &[])[0].contains("not on the list"));
        let more = findings("MIT", "let x;", &[("a/vendor/x/y.js", "")]);
        assert!(more[0].contains("y.js is not in"), "{more:?}");
        let bare = findings("MIT", "let x;", &[("a/vendor/z/z.js", "")]);
        assert!(bare[0].contains("no vendored.toml"), "{bare:?}");
    }

    #[test]
    fn a_missing_file_is_found() {
        let note = "name = \"x\"\nversion = \"1\"\nlicence = \"MIT\"\nlicence_file = \"LICENSE\"\n\
                    source = \"https://x-1\"\nintegrity = \"y\"\n[files]\n\"x.js\" = \"0\"\n";
        let found = check(&Tree::of(&[("vendor/x/vendored.toml", note)]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("LICENSE") && found[1].ends_with("and is not there"));
    }
}
