//! The check of the worker's plane: no locks, no waiting, no dynamic dispatch in code that a turn
//! runs.

use syn::visit::{self, Visit};

use super::lengths::is_test;
use super::ratchet::{Measures, Rule};
use super::tree::Tree;

/// The folders below `crates` of the crates whose code runs inside a worker's turn.
const PLANE: [&str; 4] = ["contract", "worker", "proto", "qos"];

/// Files and folders of other crates whose code a worker's thread runs in a turn or between two
/// turns.
const BESIDE: [&str; 16] = [
    "crates/control/src/mailboxes.rs",
    "crates/dataplane/src/worker_orders.rs",
    "crates/dataplane/src/interface.rs",
    "crates/dataplane/src/orders.rs",
    "crates/dataplane/src/sessions.rs",
    "crates/io/src/device/",
    "crates/io/src/epoll/",
    "crates/io/src/outer.rs",
    "crates/io/src/socket_table.rs",
    "crates/io/src/reactor.rs",
    "crates/io/src/ring.rs",
    "crates/io/src/sendblock.rs",
    "crates/io/src/sockets/",
    "crates/io/src/spread.rs",
    "crates/io/src/uring/",
    "crates/io/src/waker.rs",
];

/// The types and functions that may not be mentioned, since they wait for another thread.
const WAITS: [&str; 6] = ["Mutex", "RwLock", "Condvar", "SpinMutex", "Once", "sleep"];

/// The methods that may not be called, since they wait for another thread.
const WAITING: [&str; 1] = ["lock"];

/// Counts, by file of the plane, the mentions of locks, of waiting for them, of sleeping and of
/// `dyn`.
pub(super) fn rule(tree: &Tree) -> Rule {
    let mut measures = Measures::new();
    let mut tests = Vec::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let is_of_plane = file.crate_name().is_some_and(|name| PLANE.contains(&name))
            && file.path.contains("/src/");
        if !is_of_plane && !BESIDE.iter().any(|beside| file.path.starts_with(beside)) {
            continue;
        }
        let Ok(parsed) = file.parsed() else { continue };
        tests.extend(test_modules(&file.path, parsed));
        let mut mentions = Mentions(0);
        mentions.visit_file(parsed);
        measures.insert(file.path.clone(), mentions.0);
    }
    measures.retain(|path, _| !tests.contains(path));
    Rule {
        name: "plane",
        unit: "mentions of locks, waiting, sleep and dyn in the worker's plane",
        limit: 0,
        measures,
    }
}

/// Returns the paths of the files that the file at `path` declares as modules for tests alone.
fn test_modules(path: &str, file: &syn::File) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = ["/lib", "/mod"].iter().find_map(|root| stem.strip_suffix(root)).unwrap_or(stem);
    let declared = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => {
            Some(format!("{folder}/{}.rs", module.ident))
        }
        _ => None,
    });
    declared.collect()
}

struct Mentions(u64);

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        self.0 += u64::from(WAITS.iter().any(|name| segment.ident == name));
        visit::visit_path_segment(self, segment);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.0 += u64::from(WAITING.iter().any(|name| call.method == name));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_type_trait_object(&mut self, object: &'ast syn::TypeTraitObject) {
        self.0 += 1;
        visit::visit_type_trait_object(self, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        rule(&tree).findings(&tree)
    }

    #[test]
    fn locks_sleep_and_dyn_are_counted() {
        let text =
            "struct A { a: std::sync::Mutex<u8>, b: Box<dyn B> } fn f() { std::thread::sleep(x) }";
        let found_ = found("crates/worker/src/a.rs", text);
        assert!(found_[0].starts_with("crates/worker/src/a.rs: 3 mentions"), "{found_:?}");
    }

    #[test]
    fn files_that_workers_run_elsewhere_are_counted() {
        let text = "fn f() { a.lock(); b.lock(); c.try_lock(); }";
        for path in ["crates/io/src/spread.rs", "crates/io/src/device/file.rs"] {
            let found = found(path, text);
            assert!(found[0].starts_with(&format!("{path}: 2 mentions")), "{found:?}");
        }
        assert!(found("crates/io/src/listen.rs", text).is_empty());
    }

    #[test]
    fn tests_and_other_crates_are_free() {
        let text = "struct A { a: std::sync::Mutex<u8> }";
        assert!(found("crates/control/src/a.rs", text).is_empty());
        assert!(
            found("crates/worker/src/a.rs", &format!("#[cfg(test)] mod tests {{ {text} }}"))
                .is_empty()
        );
        let root = ("crates/worker/src/lib.rs", "#[cfg(test)] mod a; mod b;");
        let tree =
            Tree::of(&[root, ("crates/worker/src/a.rs", text), ("crates/worker/src/b.rs", text)]);
        let found = rule(&tree).findings(&tree);
        assert!(found.len() == 1 && found[0].starts_with("crates/worker/src/b.rs"), "{found:?}");
    }
}
