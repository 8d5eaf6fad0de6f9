//! The allowed dependencies between the workspace's packages.

use crate::manifest::Manifest;

/// The workspace's packages, each with the packages of the workspace that it may depend on outside
/// of tests.
const RULES: &[(&str, &[&str])] = &[
    ("nearflash-contract", &[]),
    ("nearflash-wire", &[]),
    ("nearflash-crc", &[]),
    ("nearflash-proto", &["nearflash-contract", "nearflash-crc", "nearflash-wire"]),
    ("nearflash-qos", &["nearflash-contract"]),
    ("nearflash-flash", &["nearflash-contract", "nearflash-wire"]),
    ("nearflash-ftl", &["nearflash-contract", "nearflash-crc", "nearflash-wire"]),
    ("nearflash-contigfs", &["nearflash-contract", "nearflash-crc", "nearflash-wire"]),
    ("nearflash-packets", &["nearflash-contract", "nearflash-crc", "nearflash-wire"]),
    (
        "nearflash-io",
        &["nearflash-contract", "nearflash-crc", "nearflash-wire", "nearflash-packets"],
    ),
    ("nearflash-worker", &["nearflash-contract", "nearflash-proto"]),
    ("nearflash-client", &["nearflash-contract", "nearflash-crc", "nearflash-proto"]),
    ("nearflash-spec", &["nearflash-contract", "nearflash-flash"]),
    ("nearflash-control", &["nearflash-contract", "nearflash-qos", "nearflash-spec"]),
    (
        "nearflash-sim",
        &[
            "nearflash-worker",
            "nearflash-control",
            "nearflash-client",
            "nearflash-flash",
            "nearflash-packets",
            "nearflash-proto",
            "nearflash-qos",
            "nearflash-contract",
            "nearflash-wire",
        ],
    ),
    ("nearflash", &["nearflash-client", "nearflash-io", "nearflash-proto", "nearflash-contract"]),
    (
        "nearflash-attach",
        &["nearflash-client", "nearflash-io", "nearflash-contract", "nearflash-wire"],
    ),
    ("nearflash-capi", &["nearflash", "nearflash-io"]),
    ("nearflash-python", &["nearflash", "nearflash-io"]),
    (
        "nearflash-dataplane",
        &[
            "nearflash-contigfs",
            "nearflash-contract",
            "nearflash-proto",
            "nearflash-qos",
            "nearflash-flash",
            "nearflash-ftl",
            "nearflash-io",
            "nearflash-worker",
            "nearflash-control",
            "nearflash-spec",
        ],
    ),
    (
        "nearflash-server",
        &[
            "nearflash-contract",
            "nearflash-wire",
            "nearflash-proto",
            "nearflash-qos",
            "nearflash-flash",
            "nearflash-ftl",
            "nearflash-io",
            "nearflash-worker",
            "nearflash-control",
            "nearflash-dataplane",
            "nearflash-spec",
        ],
    ),
    (
        "nearflash-mount",
        &[
            "nearflash-contigfs",
            "nearflash-contract",
            "nearflash-flash",
            "nearflash-io",
            "nearflash-dataplane",
            "nearflash-proto",
            "nearflash-wire",
        ],
    ),
    (
        "nearflash-figures",
        &[
            "nearflash-contract",
            "nearflash-wire",
            "nearflash-proto",
            "nearflash-qos",
            "nearflash-flash",
            "nearflash-ftl",
            "nearflash-packets",
            "nearflash-worker",
            "nearflash-client",
            "nearflash-sim",
        ],
    ),
    (
        "nearflash-lab",
        &[
            "nearflash-contract",
            "nearflash-wire",
            "nearflash-proto",
            "nearflash-qos",
            "nearflash-flash",
            "nearflash-ftl",
            "nearflash-io",
            "nearflash-packets",
            "nearflash-worker",
            "nearflash-client",
            "nearflash-control",
            "nearflash-dataplane",
            "nearflash-figures",
            "nearflash-server",
        ],
    ),
    (
        "nearflash-cli",
        &[
            "nearflash-attach",
            "nearflash-client",
            "nearflash-control",
            "nearflash-flash",
            "nearflash-io",
            "nearflash-lab",
            "nearflash-mount",
            "nearflash-server",
        ],
    ),
    ("trials", &["nearflash-crc", "nearflash-wire", "xtask"]),
    ("xtask", &[]),
];

/// Pairs of packages of which the first may not depend on the second even in tests: the pure crates
/// and the planes above them stay free of system calls, and `io` knows nothing of its users.
const NOT_IN_TESTS: &[(&str, &str)] = &[
    ("nearflash-contract", "nearflash-io"),
    ("nearflash-wire", "nearflash-io"),
    ("nearflash-proto", "nearflash-io"),
    ("nearflash-qos", "nearflash-io"),
    ("nearflash-flash", "nearflash-io"),
    ("nearflash-spec", "nearflash-io"),
    ("nearflash-ftl", "nearflash-io"),
    ("nearflash-contigfs", "nearflash-io"),
    ("nearflash-packets", "nearflash-io"),
    ("nearflash-worker", "nearflash-io"),
    ("nearflash-client", "nearflash-io"),
    ("nearflash-control", "nearflash-io"),
    ("nearflash-sim", "nearflash-io"),
    ("nearflash-io", "nearflash-worker"),
    ("nearflash-io", "nearflash-qos"),
];

/// Returns a line for each dependency between the workspace's packages that the tables do not
/// allow, and for each package without a rule.
pub(super) fn check(manifest: &Manifest) -> Vec<String> {
    let mut found = Vec::new();
    let ours = manifest.ours();
    for (name, package) in &ours {
        let Some((_, allowed)) = RULES.iter().find(|(of, _)| of == name) else {
            found.push(format!("{name}: a package without a rule in xtask/src/tidy/arrows.rs"));
            continue;
        };
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            if !ours.contains_key(to) || to == *name {
                continue;
            }
            if dependency.kind.as_deref() == Some("dev") {
                if NOT_IN_TESTS.contains(&(*name, to)) {
                    found.push(format!("{name} → {to}: {name} never names {to}, tests included"));
                }
            } else if !allowed.contains(&to) {
                let rule =
                    if allowed.is_empty() { "nothing of ours".into() } else { allowed.join(", ") };
                found.push(format!("{name} → {to}: {name} may depend on {rule}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_depends_on(dependency: &str) -> Vec<String> {
        let text = format!(
            r#"{{"packages": [
                {{"name": "nearflash-worker", "id": "t", "dependencies": [{dependency}]}},
                {{"name": "nearflash-io", "id": "i"}}, {{"name": "nearflash-proto", "id": "p"}},
                {{"name": "nearflash-flash", "id": "f"}}, {{"name": "libc", "id": "l"}}],
                "workspace_members": ["t", "i", "p", "f"]}}"#
        );
        check(&Manifest::parse(&text).unwrap())
    }

    #[test]
    fn a_forbidden_arrow_is_named_with_its_rule() {
        let found = target_depends_on(r#"{"name": "nearflash-io"}"#);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("nearflash-worker → nearflash-io"), "{found:?}");
        assert!(found[0].contains("may depend on nearflash-contract, nearflash-proto"));
        assert_eq!(target_depends_on(r#"{"name": "nearflash-io", "kind": "dev"}"#).len(), 1);
    }

    #[test]
    fn allowed_arrows_and_other_peoples_crates_pass() {
        let good = r#"{"name": "nearflash-proto"}, {"name": "libc"},
                      {"name": "nearflash-flash", "kind": "dev"}"#;
        assert_eq!(target_depends_on(good), [""; 0]);
    }

    #[test]
    fn a_new_package_needs_a_rule() {
        let text = r#"{"packages": [{"name": "new", "id": "n"}], "workspace_members": ["n"]}"#;
        let found = check(&Manifest::parse(text).unwrap());
        assert!(found[0].contains("without a rule"), "{found:?}");
    }
}
