//! The changeable state of a running server as one document, in the form of a configuration file.
//!
//! An export has all tables. A document that leaves a table out says nothing of it, and an empty
//! table says that there is nothing of its kind. A document may come from another machine, so
//! nothing in it depends on the machine: numbers, names and UUIDs are written down.

use std::collections::{BTreeMap, BTreeSet};

use spec::{Host, Listener, Namespace, Secret, Subsystem, Tenant, diff};
use toml::{Table, Value};

use super::changes::{Changes, ListenChange};
use crate::config::effective::HIDDEN;
use crate::config::{Config, Mistakes};
use crate::fabric::derived_uuid;
use crate::listen::NUMBER_MAX;

/// The tables of a set-up, each with the noun of its entries and the key by which an entry is known.
const TABLES: [(&str, &str, &str); 7] = [
    ("device", "device", "name"),
    ("tenant", "tenant", "name"),
    ("namespace", "namespace", "number"),
    ("host", "host", "nqn"),
    ("subsystem", "subsystem", "nqn"),
    ("listen", "listener", "number"),
    ("access", "access rule", ""),
];

/// The keys, in any table of a document, whose values are secret and never shown.
const SECRETS: [&str; 6] =
    ["key", "former_key", "controller_key", "tls_key", "former_tls_key", "token"];

/// The changeable state of a running server, and the tables of the document that state it.
#[derive(Clone, Debug)]
pub struct Setup {
    config: Config,
    /// The tables that the document has.
    tables: BTreeSet<&'static str>,
}

impl Setup {
    /// Returns the set-up of a configuration whose numbers and names are filled in.
    pub(crate) fn of(config: &Config) -> Setup {
        let mut config = config.clone();
        config.device = config.all_devices();
        config.tenant = located(&config);
        let derived = derived_uuids(&config);
        for one in &mut config.namespace {
            let uuid = one.number.and_then(|number| derived.get(&number));
            one.uuid = one.uuid.take().or_else(|| uuid.map(Namespace::uuid_text));
        }
        let tables = TABLES.iter().map(|(table, ..)| *table).collect();
        Setup { config, tables }
    }

    /// Parses a document.
    ///
    /// # Errors
    /// Fails with all mistakes of form.
    pub fn parse(text: &str) -> Result<Setup, Mistakes> {
        let mut config = Config::parse(text)?;
        let keys: Table =
            toml::from_str(text).map_err(|error| Mistakes::at(None, error.message()))?;
        let known = |key: &str| TABLES.iter().find(|(table, ..)| *table == key);
        if let Some(key) = keys.keys().find(|key| known(key).is_none()) {
            return Err(Mistakes::at(
                None,
                format!(
                    "`{key}` is a setting of the configuration file and no part of a set-up; expected {}",
                    TABLES.map(|(table, ..)| format!("[[{table}]]")).join(", ")
                ),
            ));
        }
        config.is_settled = true;
        let tables = keys.keys().filter_map(|key| known(key).map(|(table, ..)| *table)).collect();
        Ok(Setup { config, tables })
    }

    /// Returns the set-up without keys and tokens.
    #[must_use]
    pub(crate) fn hidden(mut self) -> Setup {
        let hosts = std::mem::take(&mut self.config.host);
        self.config.host = hosts.into_iter().map(|host| host.hidden(HIDDEN)).collect();
        for rule in &mut self.config.access {
            rule.token = rule.token.as_ref().map(|_| Secret(HIDDEN.to_owned()));
        }
        self
    }

    /// Returns the set-up with the devices and the tenants alone.
    #[must_use]
    pub(crate) fn of_tenants(mut self) -> Setup {
        self.tables.retain(|table| ["device", "tenant"].contains(table));
        self
    }

    /// Returns the document of the set-up.
    ///
    /// # Errors
    /// Fails if it cannot be written as TOML.
    pub(crate) fn to_toml(&self) -> Result<String, String> {
        toml::to_string(&self.written()?).map_err(|error| error.to_string())
    }

    /// Returns the names of the hosts whose keys are hidden.
    pub fn hosts_without_their_keys(&self) -> Vec<&str> {
        let hosts = self.config.host.iter().filter(|host| hides(host));
        hosts.map(|host| host.nqn.as_str()).collect()
    }

    fn written(&self) -> Result<Table, String> {
        let mut all = Table::try_from(&self.config).map_err(|error| error.to_string())?;
        all.retain(|key, _| self.tables.contains(key));
        Ok(all)
    }

    /// Returns a line for each entry that differs in `other`, of the tables that `other` has.
    ///
    /// # Errors
    /// Fails if a set-up cannot be written as TOML.
    pub fn lines_to(&self, other: &Setup) -> Result<Vec<String>, String> {
        let (before, after) = (self.written()?, other.written()?);
        let mut lines = Vec::new();
        for (table, noun, key) in TABLES.iter().filter(|(table, ..)| other.tables.contains(table)) {
            let (before, after) =
                (entries(before.get(*table), key), entries(after.get(*table), key));
            let different = diff(&before, &after, |one| one.0.clone());
            let mut before: BTreeMap<_, Table> = before.into_iter().collect();
            for (name, now) in different {
                let was = before.remove(&name);
                lines.push(line(&format!("{noun} {}", name.1), was, now.map(|one| one.1)));
            }
        }
        Ok(lines)
    }

    /// Returns the live changes that give a server of the configuration `base`, whose changes so
    /// far are `kept`, this set-up. Also returns the parts of the set-up that no live change can
    /// reach.
    ///
    /// # Errors
    /// Fails with the reason if the set-up makes no sense there.
    pub(crate) fn changes(
        &self,
        base: &Config,
        kept: &Changes,
    ) -> Result<(Changes, Vec<String>), String> {
        let now = kept.made_to(base);
        let mut wanted = now.clone();
        let has = |table: &str| self.tables.contains(table);
        if has("device") {
            if self.config.device.is_empty() {
                return Err("the document has no device; expected at least one".to_owned());
            }
            wanted.device = self.config.device.clone();
        }
        if has("tenant") {
            wanted.tenant = self.config.tenant.clone();
        }
        if has("namespace") {
            wanted.namespace = self.namespaces(&now);
        }
        if has("host") {
            wanted.host = self.hosts(&now)?;
        }
        if has("subsystem") {
            let own = || kept.own_name.clone().unwrap_or_else(crate::machine::own_name);
            wanted.subsystem = self.config.subsystems_named(own);
        }
        if has("listen") {
            self.listen(base, kept, &now, &mut wanted)?;
        }
        let mut left = Vec::new();
        let rules = |setup: Setup| setup.hidden().config.access;
        if has("access") && rules(self.clone()) != rules(Setup::of(&now)) {
            left.push(
                "access rules differ: they are of the configuration file, which has to say them; then \
                 upgrade or start the server"
                    .to_owned(),
            );
        }
        Ok((kept.to(base, &wanted), left))
    }

    /// Returns the document's namespaces. Leaves out a UUID that the server derives by itself, if
    /// the server's namespace has no other.
    fn namespaces(&self, now: &Config) -> Vec<Namespace> {
        let derived = derived_uuids(now);
        let leaves_it = now.namespace.iter().filter(|known| known.uuid.is_none());
        let leaves_it: BTreeSet<Option<u16>> = leaves_it.map(|known| known.number).collect();
        let mut all = self.config.numbered_namespaces();
        for one in &mut all {
            let by_itself = one.number.and_then(|number| derived.get(&number));
            let is_derived = one.uuid_bytes() == Ok(by_itself.copied());
            if leaves_it.contains(&one.number) && is_derived {
                one.uuid = None;
            }
        }
        all
    }

    /// Returns the document's hosts, with the server's own keys where the document hides them.
    fn hosts(&self, now: &Config) -> Result<Vec<Host>, String> {
        let mut all = self.config.host.clone();
        for host in all.iter_mut().filter(|host| hides(host)) {
            let known = now.host.iter().find(|known| known.nqn == host.nqn);
            let known = known.map_or([&None; 5], Host::secrets);
            let name = host.nqn.clone();
            for (key, own) in host.secrets_mut().into_iter().zip(known) {
                if key.as_ref().is_some_and(is_hidden) {
                    *key = Some(own.clone().ok_or_else(|| {
                        format!(
                            "host {}: the document hides its key, and the server has none; export with \
                             --config as the server's user, or write the key into the document",
                            name
                        )
                    })?);
                }
            }
        }
        Ok(all)
    }

    /// Adds the document's listeners to `wanted`, and gives the ANA states there the listeners' new
    /// numbers. A listener that is there keeps its number. A new one gets its number in the
    /// document, or a free one if that is taken.
    fn listen(
        &self,
        base: &Config,
        kept: &Changes,
        now: &Config,
        wanted: &mut Config,
    ) -> Result<(), String> {
        let number_of = |one: &Listener| one.number.unwrap_or_default();
        let said = self.config.numbered_listeners(&[]);
        let own = base.numbered_listeners(&kept.added_listeners());
        let mut taken: BTreeSet<u16> = now.listen.iter().chain(&own).map(number_of).collect();
        let mut numbers = BTreeMap::new();
        let mut all: Vec<Listener> = Vec::new();
        for one in &said {
            let there = now.listen.iter().find(|there| there.url == one.url);
            let there = there.filter(|there| all.iter().all(|taken| taken.number != there.number));
            let number = match there {
                Some(there) => number_of(there),
                None => [number_of(one)]
                    .into_iter()
                    .chain(1..=NUMBER_MAX)
                    .find(|number| !taken.contains(number))
                    .ok_or_else(|| format!("all {NUMBER_MAX} numbers of listeners are taken"))?,
            };
            taken.insert(number);
            numbers.insert(number_of(one), number);
            all.push(Listener { number: Some(number), ..one.clone() });
        }
        all.sort_by_key(number_of);
        wanted.listen = all;
        if self.tables.contains("subsystem") {
            for ana in wanted.subsystem.iter_mut().flat_map(|one| &mut one.ana) {
                ana.listener = *numbers.get(&ana.listener).unwrap_or(&ana.listener);
            }
        }
        Ok(())
    }
}

impl Changes {
    /// Returns the changes that make the configuration `base` the configuration `wanted`, with the
    /// further data of these changes. Data about a device are kept if it stays the same device.
    pub(crate) fn to(&self, base: &Config, wanted: &Config) -> Changes {
        let (was, is) = (self.made_to(base).all_devices(), wanted.all_devices());
        let stays = |name: &String| {
            let find = |all: &[spec::Device]| all.iter().find(|one| one.name == *name).cloned();
            find(&is).is_some_and(|is| find(&was).is_none_or(|was| was.is_same_device(&is)))
        };
        let mut changes = Changes {
            tenants: diff(&located(base), &located(wanted), |one| one.name.clone()),
            namespaces: diff(&base.numbered_namespaces(), &wanted.namespace, |one| {
                one.number.unwrap_or_default()
            }),
            subsystems: {
                let own = || self.own_name.clone().unwrap_or_else(crate::machine::own_name);
                diff(&base.subsystems_named(own), &wanted.subsystem, Subsystem::name)
            },
            hosts: diff(&base.host, &wanted.host, |one| one.nqn.clone()),
            devices: diff(&base.all_devices(), &is, |one| one.name.clone()),
            listeners: self.listeners_to(base, &wanted.listen),
            ..self.clone()
        };
        changes.named_models.retain(|name, _| stays(name));
        changes.models.retain(|name, _| stays(name));
        changes.disks.retain(|name, _| stays(name));
        changes
    }

    /// Returns the changes from the listeners of the configuration `base` to `wanted`, by number.
    fn listeners_to(&self, base: &Config, wanted: &[Listener]) -> BTreeMap<u16, ListenChange> {
        let number_of = |one: &Listener| one.number.unwrap_or_default();
        let beside = |own: &[Listener], all: &[Listener]| -> Vec<Listener> {
            all.iter().filter(|one| !own.contains(one)).cloned().collect()
        };
        let added = beside(&base.numbered_listeners(&self.added_listeners()), wanted);
        let numbers: Vec<u16> = added.iter().map(number_of).collect();
        let own = base.numbered_listeners(&numbers);
        let gone = beside(wanted, &own).into_iter();
        let gone = gone.map(|one| (number_of(&one), ListenChange::Removed(one.url)));
        let new = beside(&own, wanted).into_iter();
        gone.chain(new.map(|one| (number_of(&one), ListenChange::Added(one.url)))).collect()
    }
}

/// Returns the tenants of a configuration, each with its device. A tenant without one is on the
/// first device.
pub(super) fn located(config: &Config) -> Vec<Tenant> {
    let first = config.device_names().into_iter().next();
    config.tenant.iter().map(|one| one.clone().on(first.as_deref())).collect()
}

/// Returns the UUIDs that a server derives for its namespaces, by number. A namespace of several
/// subsystems has a UUID in each, and is left out.
fn derived_uuids(config: &Config) -> BTreeMap<u16, [u8; 16]> {
    let all = config.numbered_namespaces();
    let named: Vec<(u16, &str)> = all
        .iter()
        .map(|one| (one.number.unwrap_or_default(), one.name.as_deref().unwrap_or_default()))
        .collect();
    let mut found: BTreeMap<u16, Vec<[u8; 16]>> = BTreeMap::new();
    for subsystem in config.named_subsystems() {
        for (nsid, number) in subsystem.exports(&named).unwrap_or_default() {
            found.entry(number).or_default().push(derived_uuid(&subsystem.name(), nsid, number));
        }
    }
    let only = |(number, uuids): (u16, Vec<[u8; 16]>)| match uuids[..] {
        [uuid] => Some((number, uuid)),
        _ => None,
    };
    found.into_iter().filter_map(only).collect()
}

fn is_hidden(secret: &Secret) -> bool {
    secret.0 == HIDDEN
}

fn hides(host: &Host) -> bool {
    host.secrets().into_iter().flatten().any(is_hidden)
}

/// Returns the entries of a table, each with the key by which it is known: a number to sort by, and
/// its name in words.
fn entries(table: Option<&Value>, key: &str) -> Vec<((u32, String), Table)> {
    let all = table.and_then(Value::as_array).into_iter().flatten();
    let all = all.filter_map(Value::as_table).zip(1..);
    let named = all.map(|(entry, position)| {
        let name = match entry.get(key) {
            Some(Value::Integer(number)) => {
                let name = entry.get("name").map(|name| format!(" {name}")).unwrap_or_default();
                return ((*number as u32, format!("{number}{name}")), entry.clone());
            }
            Some(Value::String(name)) => name.clone(),
            _ => return ((position, position.to_string()), entry.clone()),
        };
        ((0, format!("{name:?}")), entry.clone())
    });
    named.collect()
}

/// Returns the line that describes a difference: the entry added, changed or removed.
fn line(what: &str, was: Option<Table>, is: Option<Table>) -> String {
    let shown = |key: &str, value: &Value| match SECRETS.contains(&key) {
        true => HIDDEN.to_owned(),
        false => value.to_string(),
    };
    let (was, is) = match (was, is) {
        (_, None) => return format!("remove {what}"),
        (None, Some(is)) => {
            let keys =
                is.iter().filter(|(key, _)| !["name", "nqn", "number"].contains(&key.as_str()));
            let said = keys.map(|(key, value)| format!("{key} = {}", shown(key, value)));
            let said = said.collect::<Vec<_>>().join(", ");
            return format!("add {what}{}{said}", if said.is_empty() { "" } else { ": " });
        }
        (Some(was), Some(is)) => (was, is),
    };
    let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let other = keys.into_iter().filter(|key| was.get(*key) != is.get(*key)).map(|key| {
        let side =
            |side: &Table| side.get(key).map_or("none".to_owned(), |value| shown(key, value));
        format!("{key} = {} (was {})", side(&is), side(&was))
    });
    format!("change {what}: {}", other.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[[device]]\nname = \"d\"\nspec = \"null:8MiB\"\n\
                        [[listen]]\nurl = \"nvme-tcp://127.0.0.1:1\"\n\
                        [[tenant]]\nname = \"gold\"\n";

    fn base() -> Config {
        Config::parse(BASE).unwrap()
    }

    fn changes(document: &str, kept: &Changes) -> Result<(Changes, Vec<String>), String> {
        Setup::parse(document).unwrap().changes(&base(), kept)
    }

    fn document(changes: &Changes) -> String {
        Setup::of(&changes.made_to(&base())).to_toml().unwrap()
    }

    #[test]
    fn a_server_that_has_the_set_up_has_nothing_to_change() {
        let kept = Changes::default().of(&base());
        let own = document(&kept);
        assert!(own.contains("host = []") && own.contains("uuid = "), "{own}");
        assert_eq!(changes(&own, &kept).unwrap(), (kept.clone(), vec![]));
        let more = "[[tenant]]\nname = \"tin\"\n[[host]]\nnqn = \"nqn.x:a\"\nkey = \"k\"\n";
        let (after, left) = changes(more, &kept).unwrap();
        assert!(left.is_empty() && document(&after).contains("key = \"k\""));
        assert_eq!(changes(&document(&after), &after).unwrap().0, after);
        assert_eq!(changes(&own, &after).unwrap().0, kept, "and back again");
    }

    #[test]
    fn a_table_that_is_left_out_stays_and_an_empty_one_goes() {
        let kept = changes("[[host]]\nnqn = \"nqn.x:a\"\n", &Changes::default()).unwrap().0;
        let after = changes("listen = []\ntenant = []\n", &kept).unwrap().0.made_to(&base());
        assert_eq!((after.listen.len(), after.tenant.len(), after.host.len()), (0, 0, 1));
        assert_eq!(
            changes("device = []\n", &kept).unwrap_err(),
            "the document has no device; expected at least one"
        );
        let (_, left) = changes("[[access]]\nuid = 1\nrights = \"read\"\n", &kept).unwrap();
        assert!(left[0].contains("access rules differ"), "{left:?}");
    }

    #[test]
    fn a_listener_keeps_its_number_or_gets_a_free_one_and_its_states_follow() {
        let subsystem = "[[subsystem]]\nnqn = \"nqn.x:s\"\n\
                         ana = [{ listener = 1, state = \"inaccessible\" }]\n";
        let listen = |port: u16| format!("[[listen]]\nurl = \"nvme-tcp://127.0.0.1:{port}\"\n");
        let wanted = |text: &str| {
            let after = changes(text, &Changes::default()).unwrap().0;
            let config = after.made_to(&base());
            assert_eq!(changes(text, &after).unwrap().0, after, "{text}");
            let numbers = config.listen.iter().map(|one| one.number.unwrap());
            (
                numbers.collect::<Vec<_>>(),
                config
                    .subsystem
                    .iter()
                    .flat_map(|one| one.ana.clone())
                    .map(|ana| ana.listener)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(wanted(&format!("{}{subsystem}", listen(1))), (vec![1], vec![1]));
        assert_eq!(
            wanted(&format!("{}{subsystem}", listen(7))),
            (vec![2], vec![2]),
            "1 is another's"
        );
        let both = format!("{}{}{subsystem}", listen(7), listen(1));
        assert_eq!(wanted(&both), (vec![1, 2], vec![2]));
    }

    #[test]
    fn hidden_keys_are_the_servers_own_and_no_line_shows_a_key() {
        let host = |key: &str| format!("[[host]]\nnqn = \"nqn.x:a\"\nkey = \"{key}\"\n");
        let kept = changes(&host("secret"), &Changes::default()).unwrap().0;
        assert_eq!(changes(&host(HIDDEN), &kept).unwrap().0, kept);
        let refused = changes(&host(HIDDEN), &Changes::default()).unwrap_err();
        assert!(refused.contains("host nqn.x:a: the document hides its key"), "{refused}");
        let setup = |changes: &Changes| Setup::of(&changes.made_to(&base()));
        let other = changes(&host("other"), &kept).unwrap().0;
        assert_eq!(
            setup(&kept).lines_to(&setup(&other)).unwrap(),
            ["change host \"nqn.x:a\": key = (hidden) (was (hidden))"]
        );
        let lines = setup(&Changes::default()).lines_to(&setup(&kept)).unwrap();
        assert_eq!(lines, ["add host \"nqn.x:a\": key = (hidden)"]);
        assert_eq!(setup(&kept).hidden().hosts_without_their_keys(), ["nqn.x:a"]);
    }

    #[test]
    fn settings_that_are_no_part_of_a_set_up_are_refused() {
        let refused = Setup::parse("workers = 2\n").unwrap_err().to_string();
        assert!(refused.contains("`workers` is a setting"), "{refused}");
        assert!(Setup::parse("[[tenant]]\nnam = 1\n").is_err());
    }
}
