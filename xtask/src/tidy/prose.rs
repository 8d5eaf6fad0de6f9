//! Checks of prose: doc comments must name their noun, and lines of Markdown must fit.

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta};

use super::documents::prose;
use super::lengths::is_test;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The opening words of doc comments that point at something instead of naming it.
const POINTING: [&str; 20] = [
    "It",
    "Its",
    "They",
    "Their",
    "That",
    "This",
    "Those",
    "One",
    "Which",
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whose",
    "How",
    "Where",
    "Whether",
    "The same",
    "See there",
    "See the module",
];

/// The largest number of characters that a line of Markdown may have.
const LINE_MAX: usize = 100;

/// Counts, by package, the doc comments that open with a pointing word.
pub(super) fn openings(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        let Ok(parsed) = file.parsed() else { continue };
        let mut docs = Docs { openings: 0 };
        docs.comment(&parsed.attrs);
        docs.visit_file(parsed);
        *measures.entry(package.to_owned()).or_default() += docs.openings;
    }
    let unit =
        "doc comments that open by pointing (It, This, Those, What, Which, Whether, The same …)";
    Rule { name: "openings", unit, limit: 0, measures }
}

/// Counts, by document, the lines with too many characters. Lines of tables, links, images and code
/// are exempt.
pub(super) fn lines(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    for file in tree.documents() {
        let long = prose(&file.text).into_iter().filter(|(_, line)| {
            let is_fixed = line.starts_with('|') || line.starts_with('[') || line.starts_with("![");
            !is_fixed && line.chars().count() > LINE_MAX
        });
        measures.insert(file.path.clone(), long.count() as u64);
    }
    Rule { name: "markdown-lines", unit: "lines above 100 characters", limit: 0, measures }
}

struct Docs {
    openings: u64,
}

impl Docs {
    fn comment(&mut self, attributes: &[Attribute]) {
        let first = attributes.iter().find_map(|attribute| {
            let Meta::NameValue(pair) = &attribute.meta else { return None };
            let Expr::Lit(text) = &pair.value else { return None };
            let Lit::Str(text) = &text.lit else { return None };
            attribute.path().is_ident("doc").then(|| text.value())
        });
        self.openings += u64::from(first.is_some_and(|line| points(line.trim())));
    }
}

/// Returns `true` if a sentence opens with a pointing word.
fn points(sentence: &str) -> bool {
    POINTING.iter().any(|opening| {
        let rest = sentence.strip_prefix(opening);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

impl<'ast> Visit<'ast> for Docs {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        let attributes = match item {
            Item::Const(of) => &of.attrs,
            Item::Enum(of) => &of.attrs,
            Item::Fn(of) => &of.attrs,
            Item::Impl(of) => &of.attrs,
            Item::Macro(of) => &of.attrs,
            Item::Static(of) => &of.attrs,
            Item::Struct(of) => &of.attrs,
            Item::Trait(of) => &of.attrs,
            Item::Type(of) => &of.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            self.comment(attributes);
            visit::visit_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.comment(&field.attrs);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.comment(&variant.attrs);
        visit::visit_variant(self, variant);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(of) => self.comment(&of.attrs),
            syn::ImplItem::Const(of) => self.comment(&of.attrs),
            syn::ImplItem::Type(of) => self.comment(&of.attrs),
            _ => {}
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        match item {
            syn::TraitItem::Fn(of) => self.comment(&of.attrs),
            syn::TraitItem::Const(of) => self.comment(&of.attrs),
            syn::TraitItem::Type(of) => self.comment(&of.attrs),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_comments_that_point_are_counted() {
        let text = "//! What is here.\n/// The same.\nfn a() {}\n/// Returns the slot.\nfn b() {}\n\
            /// One of them.\nstruct C { /// Its size.\n d: u8, /// Items of it.\n e: u8 }\n\
            impl C { /// Whether it may.\n fn f() {} }\n#[cfg(test)] mod t { /// It.\n fn g() {} }";
        let tree = Tree::of(&[("crates/a/src/lib.rs", text)]);
        assert!(openings(&tree).findings(&tree)[0].starts_with("crates/a: 5 doc comments"));
    }

    #[test]
    fn long_lines_of_text_are_counted() {
        let long = "a ".repeat(51);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\n{long}\n{}\n", &long[..100]);
        let tree = Tree::of(&[("docs/a.md", &text)]);
        assert_eq!(
            lines(&tree).findings(&tree),
            ["docs/a.md: 2 lines above 100 characters, at most 0"]
        );
    }
}
