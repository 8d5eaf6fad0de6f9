//! The ports, which are the traits of `crates/contract`, and their limits: few methods, so that
//! they stay easy to implement, and no default body that panics.

use syn::visit::Visit;

use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The largest number of methods that a port may have.
const METHODS_MAX: u64 = 8;

/// The macros that a default body of a port may not have: an implementer that forgets the method
/// would panic.
const PANICS: [&str; 4] = ["panic", "unreachable", "unimplemented", "todo"];

/// Measures each port by its number of methods.
pub(super) fn rule(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    each_trait(tree, |path, port| {
        let methods = port.items.iter().filter(|item| matches!(item, syn::TraitItem::Fn(_)));
        measures.insert(format!("{path} {}", port.ident), methods.count() as u64);
    });
    Rule { name: "port-methods", unit: "methods", limit: METHODS_MAX, measures }
}

/// Counts, by port, the methods with a default body that panics.
pub(super) fn defaults(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    each_trait(tree, |path, port| {
        for item in &port.items {
            let syn::TraitItem::Fn(method) = item else { continue };
            let mut panics = Panics(false);
            if let Some(body) = &method.default {
                panics.visit_block(body);
            }
            *measures.entry(format!("{path} {}", port.ident)).or_default() += u64::from(panics.0);
        }
    });
    Rule { name: "port-panics", unit: "default bodies that panic", limit: 0, measures }
}

fn each_trait(tree: &Tree, mut visit: impl FnMut(&str, &syn::ItemTrait)) {
    for file in tree.sources().filter(|file| file.path.starts_with("crates/contract/src/")) {
        let Ok(parsed) = file.parsed() else { continue };
        for item in &parsed.items {
            if let syn::Item::Trait(port) = item {
                visit(&file.path, port);
            }
        }
    }
}

struct Panics(bool);

impl<'ast> Visit<'ast> for Panics {
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.0 |= PANICS.iter().any(|name| call.path.is_ident(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_too_many_methods_is_found() {
        let methods =
            |count: usize| (0..count).map(|n| format!("fn m{n}(&self);")).collect::<String>();
        let of = |count| format!("trait Port {{ {} }}", methods(count));
        let found = |text: &str| {
            let tree = Tree::of(&[("crates/contract/src/port.rs", text)]);
            rule(&tree).findings(&tree)
        };
        assert_eq!(found(&of(8)), [""; 0]);
        assert_eq!(found(&of(9)), ["crates/contract/src/port.rs Port: 9 methods, at most 8"]);
    }

    #[test]
    fn a_default_that_panics_is_found() {
        let text = "trait Port { fn a(&self) { unreachable!(\"x\") } fn b(&self) {} }";
        let tree = Tree::of(&[("crates/contract/src/port.rs", text)]);
        let found = defaults(&tree).findings(&tree);
        assert_eq!(
            found,
            ["crates/contract/src/port.rs Port: 1 default bodies that panic, at most 0"]
        );
    }
}
