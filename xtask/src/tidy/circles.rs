//! Circular dependencies of modules: files that can only be understood together, because each
//! refers to the others.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use super::lengths::is_test;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The largest number of files in a circle that is allowed: a module and one of its parts may need
/// each other.
const FILES_MAX: u64 = 2;

/// A path of names from the crate's root, of a module or of something in it.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    /// The names that the module defines.
    defines: BTreeSet<String>,
    /// The names that the module imports, each with the path from the crate's root that it stands
    /// for.
    imports: BTreeMap<String, Path>,
    /// The paths from the crate's root that the module mentions.
    mentions: BTreeSet<Path>,
}

/// Measures each circle in a package by its number of files, under the path of its first file.
pub(super) fn rule(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    let mut packages: BTreeMap<String, BTreeMap<Path, Module>> = BTreeMap::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Some((package, rest)) = file.path.split_once("/src/") else { continue };
        let Ok(parsed) = file.parsed() else { continue };
        let module = path_of(rest);
        let mut names = Names { here: module.clone(), module: Module::default() };
        names.module.file.clone_from(&file.path);
        names.visit_file(parsed);
        packages.entry(package.to_owned()).or_default().insert(module, names.module);
    }
    for modules in packages.values() {
        for circle in circles(&arrows(modules)) {
            let first = circle.iter().min().cloned().unwrap_or_default();
            measures.insert(first, circle.len() as u64);
        }
    }
    Rule { name: "circles", unit: "files in one circle of modules", limit: FILES_MAX, measures }
}

/// Returns the path of the module in a file below `src`: `a/b.rs` and `a/b/mod.rs` are both `a::b`.
fn path_of(file: &str) -> Path {
    let names = file.trim_end_matches(".rs").split('/');
    let mut path: Path = names.map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// Returns the dependencies between files: for each file, the files that define the names which it
/// mentions or imports.
fn arrows(modules: &BTreeMap<Path, Module>) -> BTreeMap<String, BTreeSet<String>> {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for module in modules.values() {
        let to = arrows.entry(module.file.clone()).or_default();
        for mention in module.mentions.iter().chain(module.imports.values()) {
            let place = definition(modules, mention, 8);
            to.extend(place.filter(|file| *file != module.file));
        }
    }
    arrows
}

/// Returns the file that defines a path, found through at most `steps` imports; `None` if the path
/// leads to no module of the crate.
fn definition(modules: &BTreeMap<Path, Module>, path: &[String], steps: usize) -> Option<String> {
    let length = (0..=path.len()).rev().find(|&length| modules.contains_key(&path[..length]))?;
    let module = &modules[&path[..length]];
    let Some(name) = path.get(length) else { return Some(module.file.clone()) };
    if module.defines.contains(name) || steps == 0 {
        return Some(module.file.clone());
    }
    match module.imports.get(name) {
        Some(from) if from != path => definition(modules, from, steps - 1),
        _ if length == 0 => None,
        _ => Some(module.file.clone()),
    }
}

/// Returns the circles of files: each file of a circle reaches all others of it by arrows.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(file) = left.pop() {
            for next in arrows.get(&file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|file| (file, reached(file))).collect();
    let (mut found, mut done) = (Vec::new(), BTreeSet::new());
    for (file, to) in &reach {
        if !to.contains(*file) || done.contains(*file) {
            continue;
        }
        let is_in = |other: &&String| reach.get(other).is_some_and(|back| back.contains(*file));
        let circle: Vec<String> = to.iter().filter(is_in).cloned().collect();
        done.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

struct Names {
    here: Path,
    module: Module,
}

impl Names {
    /// Returns the path from the crate's root that `names` stands for in this module; `None` for
    /// other crates and for names that the module does not define.
    fn rooted(&self, names: &[String]) -> Option<Path> {
        let (first, mut base, mut rest) = (names.first()?, Path::new(), names);
        match &**first {
            "crate" => rest = &names[1..],
            "self" => (base, rest) = (self.here.clone(), &names[1..]),
            "super" => {
                base.clone_from(&self.here);
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child if self.module.defines.contains(child) => base.clone_from(&self.here),
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn import(&mut self, tree: &UseTree, above: &[String]) {
        match tree {
            UseTree::Path(path) => {
                let names = [above, &[path.ident.to_string()]].concat();
                self.import(&path.tree, &names);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, above)),
            UseTree::Name(name) => {
                self.bring(&name.ident.to_string(), &name.ident.to_string(), above)
            }
            UseTree::Rename(name) => {
                self.bring(&name.ident.to_string(), &name.rename.to_string(), above)
            }
            UseTree::Glob(_) => {
                let path = self.rooted(above);
                self.module.mentions.extend(path);
            }
        }
    }

    fn bring(&mut self, name: &str, called: &str, above: &[String]) {
        let names = match name {
            "self" => above.to_vec(),
            _ => [above, &[name.to_owned()]].concat(),
        };
        let called = if called == "self" {
            above.last().cloned().unwrap_or_default()
        } else {
            called.to_owned()
        };
        if let Some(path) = self.rooted(&names) {
            self.module.imports.insert(called, path);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_file(&mut self, file: &'ast syn::File) {
        for item in &file.items {
            let name = match item {
                Item::Const(of) => &of.ident,
                Item::Enum(of) => &of.ident,
                Item::Fn(of) => &of.sig.ident,
                Item::Static(of) => &of.ident,
                Item::Struct(of) => &of.ident,
                Item::Trait(of) => &of.ident,
                Item::Type(of) => &of.ident,
                Item::Mod(of) => &of.ident,
                _ => continue,
            };
            self.module.defines.insert(name.to_string());
        }
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1
            && let Some(path) = self.rooted(&names)
        {
            self.module.mentions.insert(path);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let tree = Tree::of(&files);
        rule(&tree).findings(&tree)
    }

    #[test]
    fn a_circle_of_three_files_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() { super::c::g() }"),
            ("c.rs", "use crate::A; pub fn g() {}"),
        ];
        assert_eq!(
            found(&files),
            ["crates/x/src/a.rs: 3 files in one circle of modules, at most 2"]
        );
    }

    #[test]
    fn a_module_and_its_part_may_need_each_other() {
        let files = [
            ("lib.rs", "mod a; pub use a::A;"),
            ("a.rs", "mod part; pub struct A; fn f() { part::g() }"),
            ("a/part.rs", "use super::A; pub fn g() {}"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
