//! Second shapes of nouns: types outside of `crates/spec` that are named like a type in it. Each
//! needs a reason, which is listed here.

use syn::visit::{self, Visit};

use super::lengths::is_test;
use super::tree::Tree;

/// The folder of the crate that has the nouns.
const HOME: &str = "crates/spec";

/// The types of a specification, in `crates/spec`.
const NOUNS: [&str; 8] =
    ["AccessRule", "Device", "Host", "Limits", "Listener", "Namespace", "Subsystem", "Tenant"];

/// The prefixes that make the name of a second shape from a noun.
const PREFIXES: [&str; 5] = ["Add", "Change", "Kept", "New", "Set"];

/// The suffixes that make the name of a second shape from a noun.
const SUFFIXES: [&str; 8] =
    ["Change", "Config", "Entry", "Info", "Patch", "Settings", "Setup", "Status"];

/// The reason of a report on the running server: the noun together with its measurements.
const STATUS: &str = "a status document";

/// The reason of a body of the admin API, whose members are older than the nouns and must not
/// change.
const BODY: &str = "the JSON of the admin API";

/// The reason of a type in the data path, which has neither names nor files of things.
const RESOLVED: &str = "numbers in place of names, for workers and sessions";

/// The reason of a message of a protocol, about a namespace.
const WIRE: &str = "what a client is told of a namespace";

/// The reason of a type for something else that has a similar name.
const OTHER: &str = "another noun";

/// The second shapes that are allowed: the package, the name and the reason.
const STAY: [(&str, &str, &str); 33] = [
    ("crates/client", "Host", OTHER),
    ("crates/contract", "Namespace", RESOLVED),
    ("crates/contract", "NamespaceInfo", WIRE),
    ("crates/control", "ChangeTenant", BODY),
    ("crates/control", "DeviceEntry", "the registry's device, with its promises"),
    ("crates/control", "DeviceInfo", STATUS),
    ("crates/control", "DevicePatch", BODY),
    ("crates/control", "DeviceSettings", BODY),
    ("crates/control", "DeviceSetup", "the device with its model read"),
    ("crates/control", "DeviceStatus", STATUS),
    ("crates/control", "HostPatch", BODY),
    ("crates/control", "HostStatus", STATUS),
    ("crates/control", "ListenerPatch", BODY),
    ("crates/control", "ListenerStatus", STATUS),
    ("crates/control", "NamespacePatch", BODY),
    ("crates/control", "NamespaceStatus", STATUS),
    ("crates/control", "NewNamespace", BODY),
    ("crates/control", "NewSubsystem", BODY),
    ("crates/control", "NewTenant", BODY),
    ("crates/control", "SubsystemPatch", BODY),
    ("crates/control", "SubsystemStatus", STATUS),
    ("crates/control", "TenantChange", "one step from a list of tenants to another"),
    ("crates/control", "TenantInfo", STATUS),
    ("crates/control", "TenantPatch", BODY),
    ("crates/control", "TenantStatus", STATUS),
    ("crates/io", "Listener", "the open socket"),
    ("crates/proto", "Host", RESOLVED),
    ("crates/proto", "Limits", RESOLVED),
    ("crates/proto", "Namespace", RESOLVED),
    ("crates/proto", "Subsystem", RESOLVED),
    ("crates/qos", "Tenant", "the cells that the workers of a device share"),
    ("crates/sim", "Host", OTHER),
    ("crates/worker", "Limits", RESOLVED),
];

/// Returns a line for each second shape without a reason, and for each reason without a shape.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    check_with(tree, &STAY)
}

fn check_with(tree: &Tree, stay: &[(&str, &str, &str)]) -> Vec<String> {
    let mut shapes = Vec::new();
    for file in tree.sources().filter(|file| !file.is_test()) {
        let Some((package, _)) = file.path.split_once("/src/") else { continue };
        let Ok(parsed) = file.parsed() else { continue };
        let mut found = Shapes(Vec::new());
        found.visit_file(parsed);
        shapes.extend(found.0.into_iter().map(|name| (package.to_owned(), name)));
    }
    shapes.retain(|(package, _)| package != HOME);
    let is_of = |(package, name): &(String, String), one: &(&str, &str, &str)| {
        (package.as_str(), name.as_str()) == (one.0, one.1)
    };
    let new = shapes.iter().filter(|shape| !stay.iter().any(|one| is_of(shape, one)));
    let new = new.map(|(package, name)| {
        format!("{package}: {name} is a second shape of a noun of {HOME}; use the noun")
    });
    let gone = stay.iter().filter(|one| !shapes.iter().any(|shape| is_of(shape, one)));
    let gone = gone.map(|(package, name, why)| {
        format!("{package}: {name} ({why}) is gone; take its line out of the rule")
    });
    new.chain(gone).collect()
}

struct Shapes(Vec<String>);

impl Shapes {
    fn see(&mut self, ident: &syn::Ident) {
        let name = ident.to_string();
        let stem = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
        let stem = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)).unwrap_or(stem);
        if NOUNS.contains(&stem) {
            self.0.push(name);
        }
    }
}

impl<'ast> Visit<'ast> for Shapes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.see(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.see(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "crates/server/src/config.rs";

    #[test]
    fn a_second_shape_of_a_noun_is_found() {
        let found = |path: &str, text: &str| check_with(&Tree::of(&[(path, text)]), &[]);
        for name in ["Tenant", "AddTenant", "SetHost", "LimitsConfig", "NewDevice", "TenantPatch"] {
            let said = found(SERVER, &format!("struct {name};"));
            let wanted =
                format!("crates/server: {name} is a second shape of a noun of crates/spec");
            assert_eq!(said, [format!("{wanted}; use the noun")]);
        }
        assert_eq!(found(SERVER, "enum ChangeTenant {}").len(), 1);
        assert_eq!(found("crates/spec/src/tenant.rs", "struct Tenant;"), [""; 0]);
        let others = "struct Tenants; struct HostId; #[cfg(test)] mod tests { struct Host; }";
        assert_eq!(found(SERVER, others), [""; 0]);
    }

    #[test]
    fn a_reason_stays_as_long_as_its_shape() {
        let found = |text: &str| {
            check_with(&Tree::of(&[(SERVER, text)]), &[("crates/server", "HostStatus", STATUS)])
        };
        assert_eq!(found("struct HostStatus;"), [""; 0]);
        let gone =
            "crates/server: HostStatus (a status document) is gone; take its line out of the rule";
        assert_eq!(found("struct Hosts;"), [gone]);
    }
}
