//! Types that have grown too large: by the lines of their `impl`, its files, their fields and
//! flags.
//!
//! A limit on files alone would only split a type over many files; these limits apply to the type.
//! Tests are exempt, and so are the structs from which clap makes options.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Fields, Type};

use super::lengths::{is_test, lines_of};
use super::ratchet::{Measures, Rule};
use super::tree::{File, Tree};

/// The largest number of lines that all inherent `impl` blocks of a type may have together.
const IMPL_LINES_MAX: u64 = 600;

/// The largest number of files that may have inherent `impl` blocks of a type.
const IMPL_FILES_MAX: u64 = 3;

/// The largest number of fields that a struct may have.
const FIELDS_MAX: u64 = 16;

/// The largest number of fields of the type `bool` that a struct may have.
const BOOLS_MAX: u64 = 3;

/// The package and the name of a type, in one text.
type Name = String;

#[derive(Default)]
struct Object {
    impl_lines: u64,
    impl_files: BTreeSet<String>,
    fields: u64,
    bools: u64,
}

/// Returns the four rules on types, with the measures of all types of the tree.
pub(super) fn rules(tree: &Tree) -> Vec<Rule> {
    let objects = objects(tree);
    let measure = |of: fn(&Object) -> u64| -> Measures {
        objects.iter().map(|(name, object)| (name.clone(), of(object))).collect()
    };
    let rule = |name, unit, limit, of| Rule { name, unit, limit, measures: measure(of) };
    vec![
        rule("impl-lines", "lines of `impl`", IMPL_LINES_MAX, |object| object.impl_lines),
        rule("impl-files", "files with an `impl`", IMPL_FILES_MAX, |object| {
            object.impl_files.len() as u64
        }),
        rule("fields", "fields", FIELDS_MAX, |object| object.fields),
        rule("bools", "fields that are bool", BOOLS_MAX, |object| object.bools),
    ]
}

fn objects(tree: &Tree) -> BTreeMap<Name, Object> {
    let mut objects = BTreeMap::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        let Ok(parsed) = file.parsed() else { continue };
        Objects { package, file, objects: &mut objects }.visit_file(parsed);
    }
    objects
}

struct Objects<'a> {
    package: &'a str,
    file: &'a File,
    objects: &'a mut BTreeMap<Name, Object>,
}

impl Objects<'_> {
    fn object(&mut self, name: &syn::Ident) -> &mut Object {
        self.objects.entry(format!("{} {name}", self.package)).or_default()
    }
}

impl<'ast> Visit<'ast> for Objects<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let derives = item.attrs.iter().filter(|attribute| attribute.path().is_ident("derive"));
        let is_options = derives.into_iter().any(|derive| {
            let words = quote_words(derive);
            words.iter().any(|word| matches!(&**word, "Args" | "Parser"))
        });
        if is_options {
            return;
        }
        let Fields::Named(fields) = &item.fields else { return };
        let bools = fields.named.iter().filter(|field| is_bool(&field.ty)).count() as u64;
        let object = self.object(&item.ident);
        // Types of one name in several modules of a package count as the largest.
        object.fields = object.fields.max(fields.named.len() as u64);
        object.bools = object.bools.max(bools);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_some() || is_test(&item.attrs) {
            return;
        }
        let Type::Path(path) = &*item.self_ty else { return };
        let Some(last) = path.path.segments.last() else { return };
        let (lines, file) = (lines_of(item) as u64, self.file.path.clone());
        let object = self.object(&last.ident);
        object.impl_lines += lines;
        object.impl_files.insert(file);
    }
}

fn quote_words(attribute: &syn::Attribute) -> Vec<String> {
    let syn::Meta::List(list) = &attribute.meta else { return Vec::new() };
    let text = list.tokens.to_string();
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
}

fn is_bool(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.is_ident("bool"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", text), ("crates/a/src/b.rs", "impl A {}")]);
        rules(&tree).iter().flat_map(|rule| rule.findings(&tree)).collect()
    }

    #[test]
    fn a_type_is_too_large_by_each_measure() {
        let fields: String = (0..17).map(|n| format!("f{n}: u8,")).collect();
        assert_eq!(
            found(&format!("struct A {{ {fields} }}")),
            ["crates/a A: 17 fields, at most 16"]
        );
        let bools = "struct A { a: bool, b: bool, c: bool, d: bool }";
        assert_eq!(found(bools), ["crates/a A: 4 fields that are bool, at most 3"]);
        let long = format!("impl A {{ fn a() {{ {} }} }}", "\n".repeat(600));
        assert_eq!(found(&long), ["crates/a A: 602 lines of `impl`, at most 600"]);
        let spread: Vec<(String, &str)> =
            (0..4).map(|n| (format!("crates/a/src/f{n}.rs"), "impl A {}")).collect();
        let spread: Vec<(&str, &str)> = spread.iter().map(|(p, t)| (&**p, *t)).collect();
        let tree = Tree::of(&spread);
        let files: Vec<String> = rules(&tree).iter().flat_map(|r| r.findings(&tree)).collect();
        assert_eq!(files, ["crates/a A: 4 files with an `impl`, at most 3"]);
    }

    #[test]
    fn tests_traits_and_options_are_free() {
        let fields: String = (0..40).map(|n| format!("f{n}: bool,")).collect();
        assert!(found(&format!("#[derive(Debug, clap::Args)] struct A {{ {fields} }}")).is_empty());
        assert!(found(&format!("#[cfg(test)] mod tests {{ struct A {{ {fields} }} }}")).is_empty());
        let long = format!("impl B for A {{ fn a() {{ {} }} }}", "\n".repeat(900));
        assert!(found(&long).is_empty());
    }
}
