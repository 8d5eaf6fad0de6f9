//! `cargo xtask tidy`: the rules of the code that no compiler knows.
//!
//! Each check is a function from the files (or from what cargo says of the packages) to findings,
//! and has a test that shows it can fail. Style that rustfmt and clippy know is not checked here.

mod arrows;
mod circles;
mod claims;
mod documents;
mod lengths;
mod licences;
mod objects;
mod plane;
mod ports;
mod prose;
mod ratchet;
mod shapes;
mod source;
mod thin;
pub(crate) mod tree;
mod unsafe_code;
mod vendored;
mod words;

use crate::lists;
use crate::manifest::Manifest;
use tree::Tree;
use xtask::shell;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct TidyOptions {
    /// Lower the lines of xtask/ratchet.toml to what is measured now
    #[arg(long)]
    lower: bool,
}

/// Runs all checks and prints their findings. With `--lower`, the ratchet's file is written first.
pub(crate) fn run(options: &TidyOptions) -> Result<(), String> {
    if options.lower {
        let tree = Tree::read(&shell::root())?;
        let text = ratchet::lower(&tree, &rules(&tree))?;
        let file = shell::root().join(ratchet::FILE);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let found = findings()?;
    if found.is_empty() {
        println!("tidy");
        return Ok(());
    }
    let (findings, count) = (found.join("\n"), found.len());
    Err(format!(
        "{findings}\n{count} findings (names of {} follow a rename by --lower)",
        ratchet::FILE
    ))
}

/// Returns a line for each violation of a rule; an empty list means that the tree is tidy.
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
        source::wall_clocks,
        source::leftovers,
        source::machine_paths,
        unsafe_code::check,
        lengths::files,
        lengths::functions,
        documents::links,
        documents::named_paths,
        documents::changelog,
        vendored::check,
        licences::files,
        claims::check,
        claims::invariants,
        shapes::check,
        lists::check,
        words::check,
    ] {
        found.extend(check(&tree));
    }
    found.extend(rules(&tree).iter().flat_map(|rule| rule.findings(&tree)));
    Ok(found)
}

/// Returns the rules that have a limit, with the measures of this tree.
fn rules(tree: &Tree) -> Vec<ratchet::Rule> {
    let mut rules = objects::rules(tree);
    rules.extend([
        circles::rule(tree),
        plane::rule(tree),
        ports::defaults(tree),
        ports::rule(tree),
        prose::lines(tree),
        prose::openings(tree),
        thin::rule(tree),
        words::rule(tree),
    ]);
    rules
}
