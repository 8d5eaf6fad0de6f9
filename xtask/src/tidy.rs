//! `cargo xtask tidy`: the rules of the code that no compiler knows.
//!
//! Each check is a function from the files (or from what cargo says of the packages) to findings,
//! and has a test that shows it can fail. Style that rustfmt and clippy know is not checked here.

mod arrows;
mod claims;
mod documents;
mod lengths;
mod licences;
mod source;
mod tree;
mod unsafe_code;
mod vendored;

use crate::manifest::Manifest;
use tree::Tree;
use xtask::shell;

/// Prints the findings.
pub(crate) fn run() -> Result<(), String> {
    let found = findings()?;
    if found.is_empty() {
        println!("tidy");
        return Ok(());
    }
    Err(format!("{}\n{} findings", found.join("\n"), found.len()))
}

/// Every break of a rule, one line each; none means that the tree is tidy.
pub(crate) fn findings() -> Result<Vec<String>, String> {
    let manifest = Manifest::load()?;
    let tree = Tree::read(&shell::root())?;
    let mut found = arrows::check(&manifest);
    found.extend(licences::check(&manifest));
    for check in [
        source::parses,
        source::module_docs,
        source::pure_crates,
        source::clocks,
        source::leftovers,
        source::machine_paths,
        unsafe_code::check,
        lengths::files,
        lengths::functions,
        documents::links,
        documents::named_paths,
        documents::changelog,
        vendored::check,
        claims::check,
    ] {
        found.extend(check(&tree));
    }
    Ok(found)
}
