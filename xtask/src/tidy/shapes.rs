//! Second shapes of nouns: structs that are named as a noun of `crates/spec`, and are not there.

use syn::visit::{self, Visit};

use super::lengths::is_test;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The crate that has the nouns.
const HOME: &str = "crates/spec/";

/// The nouns of a specification.
const NOUNS: [&str; 7] =
    ["Tenant", "Device", "Namespace", "Subsystem", "Host", "Listener", "Limits"];

/// Counts, by package, the structs of a noun outside its home.
pub(super) fn rule(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    for file in tree.sources().filter(|file| !file.is_test() && !file.path.starts_with(HOME)) {
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        let Ok(parsed) = syn::parse_file(&file.text) else { continue };
        let mut shapes = Shapes(0);
        shapes.visit_file(&parsed);
        *measures.entry(package.to_owned()).or_default() += shapes.0;
    }
    Rule { name: "shapes", unit: "structs of a noun of crates/spec", limit: 0, measures }
}

struct Shapes(u64);

impl<'ast> Visit<'ast> for Shapes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        let stem = name.strip_prefix("Add").or(name.strip_prefix("Set")).unwrap_or(&name);
        let stem = stem.strip_suffix("Config").unwrap_or(stem);
        self.0 += u64::from(NOUNS.contains(&stem));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_shape_of_a_noun_is_found() {
        let found = |path: &str, text: &str| {
            let tree = Tree::of(&[(path, text)]);
            rule(&tree).findings(&tree)
        };
        let path = "crates/server/src/config.rs";
        for name in ["Tenant", "AddTenant", "SetHost", "LimitsConfig"] {
            let said = found(path, &format!("struct {name};"));
            assert_eq!(said, ["crates/server: 1 structs of a noun of crates/spec, at most 0"]);
        }
        assert_eq!(found("crates/spec/src/tenant.rs", "struct Tenant;"), [""; 0]);
        let others = "struct Tenants; struct HostId; #[cfg(test)] mod tests { struct Host; }";
        assert_eq!(found(path, others), [""; 0]);
    }
}
