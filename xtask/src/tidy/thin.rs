//! The check that the program stays thin: serving and measuring belong to crates of their own.

use super::lengths::lines_without_tests;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The folder of the program's sources.
const PROGRAM: &str = "apps/nearflash/src";

/// The largest number of lines that the program's sources may have, without tests.
const LINES_MAX: u64 = 5_000;

/// Measures the program by the lines of its sources, without tests.
pub(super) fn rule(tree: &Tree) -> Rule {
    let ours = tree.sources().filter(|file| file.path.starts_with(PROGRAM) && !file.is_test());
    let lines: usize = ours.map(lines_without_tests).sum();
    let measures = Measures::from([(PROGRAM.to_owned(), lines as u64)]);
    Rule { name: "thin-program", unit: "lines", limit: LINES_MAX, measures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_grows_is_found() {
        let text = "const A: u8 = 0;\n".repeat(5_001);
        let tree = Tree::of(&[("apps/nearflash/src/main.rs", &text)]);
        assert_eq!(rule(&tree).findings(&tree), ["apps/nearflash/src: 5001 lines, at most 5000"]);
        assert!(rule(&Tree::of(&[("crates/a/src/lib.rs", &text)])).findings(&tree).is_empty());
    }
}
