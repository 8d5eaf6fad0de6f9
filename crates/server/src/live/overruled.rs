//! Changed entries of a configuration that have no effect, because operators have changed the same
//! objects at run time.

use spec::{ChangedValues, Namespace, Subsystem, diff};

use super::Changes;
use crate::config::Config;

/// Returns the names of objects that differ between two configurations but are overridden by
/// `changes`.
pub(super) fn overruled(old: &Config, new: &Config, changes: &Changes) -> Vec<String> {
    let mut all = Vec::new();
    let devices = (old.all_devices(), new.all_devices());
    add(
        &mut all,
        &changes.devices,
        &devices,
        |one| one.name.clone(),
        |name| format!("device {name:?}"),
    );
    let tenants = (old.tenant.clone(), new.tenant.clone());
    add(
        &mut all,
        &changes.tenants,
        &tenants,
        |one| one.name.clone(),
        |name| format!("tenant {name:?}"),
    );
    let number = |one: &Namespace| one.number.unwrap_or_default();
    let namespaces = (old.numbered_namespaces(), new.numbered_namespaces());
    let name_of = |number: &u16| {
        let is_it = |one: &&Namespace| one.number == Some(*number);
        let known = || namespaces.1.iter().chain(&namespaces.0);
        known().find(is_it).and_then(|one| one.name.clone()).unwrap_or_default()
    };
    add(&mut all, &changes.namespaces, &namespaces, number, |number| {
        format!("namespace {:?}", name_of(number))
    });
    let own = || changes.own_name.clone().unwrap_or_else(crate::machine::own_name);
    let subsystems = (old.subsystems_named(own), new.subsystems_named(own));
    let name = |nqn: &String| format!("subsystem {nqn}");
    add(&mut all, &changes.subsystems, &subsystems, Subsystem::name, name);
    let hosts = (old.host.clone(), new.host.clone());
    add(&mut all, &changes.hosts, &hosts, |one| one.nqn.clone(), |nqn| format!("host {nqn}"));
    all
}

/// Adds the overridden objects of one kind, given those of the old and of the new configuration.
fn add<K: Ord, T: Clone + PartialEq>(
    all: &mut Vec<String>,
    changed: &ChangedValues<K, T>,
    (were, are): &(Vec<T>, Vec<T>),
    key: impl Fn(&T) -> K,
    name: impl Fn(&K) -> String,
) {
    let different = diff(were, are, key).into_iter();
    let lost = different.filter(|(of, is)| changed.get(of).is_some_and(|now| now != is));
    all.extend(lost.map(|(of, _)| name(&of)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_and_does_not_count_is_named() {
        let parse = |text: &str| Config::parse(text).unwrap();
        let old = parse(
            "[[tenant]]\nname = \"gold\"\nweight = 2\n[[tenant]]\nname = \"tin\"\n\
             [[host]]\nnqn = \"nqn.x:a\"\n[[subsystem]]\nnqn = \"nqn.x:s\"\n",
        );
        let new = parse(
            "[[device]]\nname = \"d\"\nspec = \"null:1MiB\"\n\
             [[namespace]]\ndevice = \"d\"\nsize = \"1MiB\"\n\
             [[tenant]]\nname = \"gold\"\nweight = 3\n[[tenant]]\nname = \"tin\"\nweight = 4\n",
        );
        let tenants = |text: &str| {
            let each = parse(text).tenant.into_iter();
            each.map(|one| (one.name.clone(), Some(one))).collect::<ChangedValues<String, _>>()
        };
        let mut changes = Changes {
            // The one was given what it has in the new file as well.
            tenants: tenants(
                "[[tenant]]\nname = \"gold\"\nweight = 7\n[[tenant]]\nname = \"tin\"\nweight = 4\n",
            ),
            namespaces: [(1, None), (9, None)].into(),
            subsystems: [("nqn.x:s".to_owned(), old.subsystem.first().cloned())].into(),
            hosts: [("nqn.x:a".to_owned(), None)].into(),
            devices: [("d".to_owned(), None)].into(),
            ..Changes::default()
        };
        assert_eq!(
            overruled(&old, &new, &changes),
            ["device \"d\"", "tenant \"gold\"", "namespace \"ns1\"", "subsystem nqn.x:s"],
            "a host that is gone is gone from both"
        );
        assert_eq!(overruled(&new, &new, &changes), Vec::<String>::new());
        changes.tenants.insert("gold".to_owned(), None);
        assert_eq!(overruled(&new, &old, &changes).len(), 4);
        assert_eq!(overruled(&old, &new, &Changes::default()), Vec::<String>::new());
    }
}
