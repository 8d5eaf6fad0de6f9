//! Limits on the length of files and functions. Tests are exempt.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Signature};

use super::tree::{File, Tree};

/// The largest number of lines that a file may have, without its tests.
const FILE_LINES_MAX: usize = 800;

/// The largest number of lines that a function may have, from its signature to its closing bracket.
const FUNCTION_LINES_MAX: usize = 70;

/// Returns a line for each source file that is too long.
pub(super) fn files(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let lines = lines_without_tests(file);
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", file.path));
        }
    }
    found
}

/// Returns a line for each function that is too long.
pub(super) fn functions(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Ok(parsed) = file.parsed() else { continue };
        let mut visitor = Functions { path: &file.path, found: &mut found };
        visitor.visit_file(parsed);
    }
    found
}

/// Returns the number of lines of a file, those of its modules of tests left out.
pub(super) fn lines_without_tests(file: &File) -> usize {
    let tests = file.parsed().map_or(0, |parsed| {
        parsed.items.iter().filter(|item| is_test_module(item)).map(lines_of).sum()
    });
    file.text.lines().count() - tests
}

fn is_test_module(item: &syn::Item) -> bool {
    matches!(item, syn::Item::Mod(module) if is_test(&module.attrs))
}

/// Returns `true` if `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]` is among the attributes.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return attribute.path().is_ident("test");
        };
        let condition = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
    })
}

pub(super) fn lines_of(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line - span.start().line + 1
}

struct Functions<'a> {
    path: &'a str,
    found: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &Signature, block: &Block) {
        let start = signature.span().start().line;
        let lines = block.span().end().line - start + 1;
        if lines > FUNCTION_LINES_MAX {
            let (path, name) = (self.path, &signature.ident);
            self.found.push(format!(
                "{path}:{start}: fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.measure(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(head: &str, lines: usize) -> String {
        format!("{head} {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found_wherever_it_stands() {
        let long = function("/// Doc.\n#[inline]\nfn long()", FUNCTION_LINES_MAX + 1);
        let fits = function("fn fits()", FUNCTION_LINES_MAX);
        let text = format!("{fits}impl A {{ {long} }}\ntrait B {{ {long} }}\nmod c {{ {long} }}\n");
        let found = functions(&Tree::of(&[("a/src/a.rs", &text)]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("fn long has 71 lines"));
    }

    #[test]
    fn tests_may_be_long() {
        let long = function("fn long()", 200);
        let text = format!(
            "#[cfg(test)] mod tests {{ {long} }}\n#[test] {long}\n\
             #[cfg(all(test, not(feature = \"a\")))] mod more {{ {long} }}"
        );
        assert_eq!(functions(&Tree::of(&[("a/src/a.rs", &text)])), [""; 0]);
        assert_eq!(functions(&Tree::of(&[("a/tests/a.rs", &long)])), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found_without_its_tests() {
        let code = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}\n}}\n");
        let fits = Tree::of(&[("a/src/a.rs", &format!("{code}{tests}"))]);
        assert_eq!(files(&fits), [""; 0]);
        let long = Tree::of(&[("a/src/a.rs", &format!("{code}//\n{tests}"))]);
        assert!(files(&long)[0].contains("801 lines"), "{:?}", files(&long));
    }
}
