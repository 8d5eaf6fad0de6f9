//! The live changes to a configuration: for each changed object, its current state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spec::{Ana, ChangedValues, Device, Host, Listener, Namespace, Subsystem, Tenant, over};

use super::kept_reservation::KeptReservation;
use crate::config::{Config, KeptModel, KnownDevices};
use crate::listen::{ListenAt, Protocol};

/// The live change of a listener, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ListenChange {
    /// The listener was added; holds its URL with the bound address.
    Added(String),
    /// The listener was removed; holds its URL in the configuration. The URL is empty if the
    /// listener had been added live; then no listener of the configuration gets its number.
    Removed(String),
}

impl ListenChange {
    /// Returns the change of a listener that was added live and removed. Its number stays unused.
    pub(super) fn reserved() -> ListenChange {
        ListenChange::Removed(String::new())
    }

    /// Returns `true` for a listener that was added live and removed, of which only the number is
    /// kept.
    pub(super) fn is_reserved(&self) -> bool {
        matches!(self, ListenChange::Removed(url) if url.is_empty())
    }
}

/// The live changes to a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tenants: ChangedValues<String, Tenant>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) namespaces: ChangedValues<u16, Namespace>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) subsystems: ChangedValues<String, Subsystem>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) hosts: ChangedValues<String, Host>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) devices: ChangedValues<String, Device>,
    /// The changed listeners by number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) listeners: BTreeMap<u16, ListenChange>,
    /// The name of the subsystem that the configuration leaves unnamed, as of the first change. The
    /// name follows from the machine's. If the machine were renamed, the changes would belong to no
    /// subsystem, and a new one would let everybody in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) own_name: Option<String>,
    /// The NVMe reservations that hosts have made with persistence through power loss.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reservations: Vec<KeptReservation>,
    /// The text of the models that operators have named, by device, as of the change. So a server
    /// starts even if a model's file is gone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) named_models: BTreeMap<String, String>,
    /// Models that recalibrations measured, by device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) models: BTreeMap<String, KeptModel>,
    /// The identities of the disks that have served, by device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) disks: BTreeMap<String, String>,
}

impl Changes {
    /// Returns `true` if the changes record the name of the unnamed subsystem, or the configuration
    /// leaves no subsystem unnamed.
    pub(crate) fn is_of(&self, base: &Config) -> bool {
        self.own_name.is_some() || !base.leaves_name()
    }

    /// Returns these changes with the name of the subsystem that `base` leaves unnamed, since that
    /// name may change with the machine's.
    pub(crate) fn of(self, base: &Config) -> Changes {
        let own_name = match self.own_name {
            None if base.leaves_name() => Some(crate::machine::own_name()),
            known => known,
        };
        Changes { own_name, ..self }
    }

    /// Returns a copy without the changed objects, which has only the own name, the reservations,
    /// the models and the identities of disks.
    pub(crate) fn besides(&self) -> Changes {
        let Changes { own_name, reservations, named_models, models, disks, .. } = self.clone();
        Changes { own_name, reservations, named_models, models, disks, ..Changes::default() }
    }

    /// Returns the numbers that configured listeners without a number do not get: those of added
    /// listeners, and those that are reserved for added listeners since removed.
    pub(crate) fn added_listeners(&self) -> Vec<u16> {
        let is_added = |change: &ListenChange| {
            matches!(change, ListenChange::Added(_)) || change.is_reserved()
        };
        self.listeners.iter().filter(|(_, one)| is_added(one)).map(|(n, _)| *n).collect()
    }

    /// Returns a warning for each ANA state of a changed subsystem that names a listener which the
    /// configuration no longer has, or which speaks another protocol now. Such a state has no
    /// effect, but is kept until its subsystem changes again, because the listener may return.
    pub fn dormant(&self, base: &Config) -> Vec<String> {
        let listen = self.listeners_of(base);
        let mut lines = Vec::new();
        for (nqn, subsystem) in &self.subsystems {
            let ana = subsystem.iter().flat_map(|subsystem| &subsystem.ana);
            for ana in ana.filter(|ana| !leads_hosts(&listen, ana)) {
                lines.push(format!(
                    "subsystem {nqn}: what was said of listener {} with `listener ana` counts for \
                     nothing: there is no such listener of NVMe's",
                    ana.listener
                ));
            }
        }
        lines.extend(self.other_files(base));
        lines
    }

    /// Returns a warning for each namespace whose live change names another file than the
    /// configuration does.
    fn other_files(&self, base: &Config) -> Vec<String> {
        let said = base.numbered_namespaces();
        let line = |(number, changed): (&u16, &Option<Namespace>)| {
            let file = changed.as_ref()?.file.as_ref()?;
            let is_it = |one: &&Namespace| one.number == Some(*number);
            let configured = said.iter().find(is_it).and_then(|one| one.file.as_ref());
            let words = match configured {
                Some(other) if other == file => return None,
                Some(other) => format!("the file {other:?}"),
                None => "no file".to_owned(),
            };
            Some(format!(
                "namespace {number} is the file {file:?}, which the state file holds since the namespace \
                 was changed by an operator; the configuration names {words} for it, which does not \
                 count; change the state with `nearflash state import`"
            ))
        };
        self.namespaces.iter().filter_map(line).collect()
    }

    /// Returns a configuration with these changes applied, and with its default numbers and names
    /// filled in.
    pub fn made_to(&self, base: &Config) -> Config {
        let number = |namespace: &Namespace| namespace.number.unwrap_or_default();
        let nqn = Subsystem::name;
        let mut config = base.clone();
        if !self.devices.is_empty() {
            let known = base.all_devices();
            config.device = over(known, &self.devices, |device| device.name.clone());
        }
        config.listen = self.listeners_of(base);
        config.tenant = over(config.tenant, &self.tenants, |tenant| tenant.name.clone());
        config.namespace = over(base.numbered_namespaces(), &self.namespaces, number);
        let own = || self.own_name.clone().unwrap_or_else(crate::machine::own_name);
        let subsystems = self.subsystems_over(&config.listen);
        config.subsystem = over(base.subsystems_named(own), &subsystems, nqn);
        config.host = over(config.host, &self.hosts, |host| host.nqn.clone());
        config.known = KnownDevices {
            named_models: self.named_models.clone(),
            measured_models: self.models.clone(),
            disks: self.disks.clone(),
        };
        config.is_settled = true;
        config
    }

    /// Returns `true` if the ANA state of a changed subsystem names the listener of this number.
    pub(crate) fn names_way(&self, number: u16) -> bool {
        let mut ana = self.subsystems.values().flatten().flat_map(|subsystem| &subsystem.ana);
        ana.any(|ana| ana.listener == number)
    }

    /// Returns the changed subsystems, without the ANA states of listeners that do not exist or do
    /// not speak NVMe.
    fn subsystems_over(&self, listen: &[Listener]) -> ChangedValues<String, Subsystem> {
        let mut all = self.subsystems.clone();
        let each = all.values_mut().flatten();
        each.for_each(|subsystem| subsystem.ana.retain(|ana| leads_hosts(listen, ana)));
        all
    }

    /// Returns the listeners of a configuration with these changes applied, by number.
    fn listeners_of(&self, base: &Config) -> Vec<Listener> {
        let mut all = base.numbered_listeners(&self.added_listeners());
        for (number, change) in &self.listeners {
            match change {
                ListenChange::Added(url) => {
                    let number = Some(*number);
                    all.push(Listener { number, ..Listener::from_argument(url) });
                }
                // Its place may be another since, and its URL that of several, of port 0.
                ListenChange::Removed(url) => {
                    let is_it = |one: &Listener| one.url == *url;
                    let same = |one: &Listener| is_it(one) && one.number == Some(*number);
                    let found = all.iter().position(same).or_else(|| all.iter().position(is_it));
                    found.map(|at| all.remove(at));
                }
            }
        }
        all.sort_by_key(|one| one.number);
        all
    }
}

/// Returns `true` if the listener of the ANA state exists and speaks NVMe. A listener with a wrong
/// URL counts, since the URL is reported as a mistake of its own.
fn leads_hosts(listen: &[Listener], ana: &Ana) -> bool {
    let found = listen.iter().find(|one| one.number == Some(ana.listener));
    let parsed = found.map(|one| ListenAt::parse(&one.url));
    parsed.is_some_and(|parsed| parsed.map_or(true, |at| at.protocol == Protocol::NvmeTcp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::AnaState;

    #[test]
    fn listeners_are_added_and_removed_wherever_they_stand() {
        let config = |ports: &[u16]| {
            let one = |port| format!("[[listen]]\nurl = \"reflex://127.0.0.1:{port}\"\n");
            Config::parse(&ports.iter().map(one).collect::<String>()).unwrap()
        };
        let url = |port: u16| format!("reflex://127.0.0.1:{port}");
        let added = (4, ListenChange::Added(url(9)));
        let removed = (2, ListenChange::Removed(url(2)));
        let changes = Changes { listeners: [added, removed].into(), ..Changes::default() };
        let listed = |ports: &[u16]| {
            let listen = changes.made_to(&config(ports)).listen.into_iter();
            let listed = listen.map(|one| {
                let port = one.url.rsplit(':').next().unwrap().parse().unwrap();
                (one.number.unwrap(), port)
            });
            listed.collect::<Vec<(u16, u16)>>()
        };
        assert_eq!(listed(&[1, 2, 3]), [(1, 1), (3, 3), (4, 9)]);
        assert_eq!(listed(&[2, 3]), [(2, 3), (4, 9)], "it stands elsewhere now");
        assert_eq!(listed(&[1, 3]), [(1, 1), (2, 3), (4, 9)], "the file leaves it out, too");
        assert_eq!(listed(&[1, 2, 3, 5]), [(1, 1), (3, 3), (4, 9), (5, 5)], "one more in the file");
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), changes);
        let twice = Changes::default().made_to(&changes.made_to(&config(&[1])));
        assert_eq!(twice.listen.len(), 2);
        let none = [(1, ListenChange::Removed("reflex://127.0.0.1:7420".to_owned()))].into();
        let none = Changes { listeners: none, ..Changes::default() };
        let nowhere = none.made_to(&Config::default());
        assert!(nowhere.listen.is_empty() && nowhere.listeners().unwrap().is_empty());
    }

    #[test]
    fn without_changes_only_names_are_filled_in() {
        let config = Config::parse("[[device]]\nname = \"d\"\nspec = \"mem:1MiB\"\n").unwrap();
        let with = Changes::default().made_to(&config);
        assert_eq!(with.namespace.len(), 1);
        assert_eq!(with.namespace[0].name.as_deref(), Some("ns1"));
        assert!(with.subsystem[0].nqn.as_deref().unwrap().starts_with("nqn."));
        assert_eq!(Changes::default().made_to(&with).namespace, with.namespace);
    }

    /// Tests that a renamed machine does not forget which hosts may connect.
    #[test]
    fn who_may_connect_stays_when_the_machine_is_renamed() {
        let config = Config::default();
        let subsystem = Subsystem {
            nqn: Some(crate::machine::own_name()),
            hosts: Some(vec!["nqn.x:a".to_owned()]),
            ..Subsystem::default()
        };
        let changed = [(crate::machine::own_name(), Some(subsystem.clone()))].into();
        let changes = Changes { subsystems: changed, ..Changes::default() }.of(&config);
        assert_eq!(changes.own_name, Some(crate::machine::own_name()));
        assert_eq!(changes.made_to(&config).subsystem, [subsystem]);
        // As found by a machine of another name.
        let text = serde_json::to_string(&changes).unwrap();
        let elsewhere =
            text.replace(&crate::machine::own_name(), "nqn.2026-11.io.nearflash:before");
        let with = serde_json::from_str::<Changes>(&elsewhere).unwrap().made_to(&config);
        assert_eq!(with.subsystem.len(), 1);
        assert_eq!(with.subsystem[0].hosts, Some(vec!["nqn.x:a".to_owned()]));
        let named = Config::parse("[[subsystem]]\nnqn = \"nqn.x:b\"\n").unwrap();
        assert_eq!(Changes::default().of(&named).own_name, None);
    }

    /// Tests that an ANA state of a removed listener is left out, reported and kept. A start would
    /// refuse it as a mistake, and nobody could edit it in the state file.
    #[test]
    fn what_was_said_of_a_listener_that_is_gone_is_left_out_and_told_and_stays() {
        let config = |urls: &[&str]| {
            let one = |url| format!("[[listen]]\nurl = \"{url}\"\n");
            let subsystem = "[[subsystem]]\nnqn = \"nqn.x:a\"\n".to_owned();
            Config::parse(&(urls.iter().map(one).collect::<String>() + &subsystem)).unwrap()
        };
        let way = |listener| Ana { listener, group: 1, state: AnaState::Inaccessible };
        let nqn = Some("nqn.x:a".to_owned());
        let subsystem = Subsystem { nqn, ana: vec![way(1), way(2)], ..Subsystem::default() };
        let changed = [("nqn.x:a".to_owned(), Some(subsystem)), ("gone".to_owned(), None)].into();
        let changes = Changes { subsystems: changed, ..Changes::default() };
        let (first, second) = ("nvme-tcp://127.0.0.1:1", "nvme-tcp://127.0.0.1:2");
        let ways = |urls: &[&str]| {
            let base = config(urls);
            let with = changes.made_to(&base);
            let ways = with.subsystem[0].ana.iter().map(|ana| ana.listener);
            (ways.collect::<Vec<u16>>(), changes.dormant(&base).len())
        };
        assert_eq!(ways(&[first, second]), (vec![1, 2], 0));
        assert_eq!(ways(&[first]), (vec![1], 1));
        assert_eq!(ways(&[first, "reflex://127.0.0.1:2"]), (vec![1], 1));
        assert_eq!(ways(&[first, "nonsense"]), (vec![1, 2], 0), "that is another mistake");
        let told = changes.dormant(&config(&[first]));
        assert!(told[0].contains("nqn.x:a") && told[0].contains("listener 2"), "{told:?}");
        assert!(changes.names_way(2) && !changes.names_way(3));
        // The file's own is the operator's to mend.
        let text = "[[subsystem]]\nana = [{ listener = 9, state = \"inaccessible\" }]\n";
        let said = Changes::default().made_to(&Config::parse(text).unwrap());
        assert_eq!(said.subsystem[0].ana.len(), 1);
    }

    #[test]
    fn a_stored_path_that_is_not_the_configured_one_is_told() {
        let config = |files: &[&str]| {
            let one = |file| format!("[[namespace]]\ndevice = \"d\"\nfile = \"{file}\"\n");
            let device = "[[device]]\nname = \"d\"\nspec = \"ftl:file:./d\"\n".to_owned();
            Config::parse(&(device + &files.iter().map(one).collect::<String>())).unwrap()
        };
        let base = config(&["/one", "/two"]);
        let changed =
            base.numbered_namespaces().into_iter().map(|one| (one.number.unwrap(), Some(one)));
        let changes = Changes { namespaces: changed.collect(), ..Changes::default() };
        assert_eq!(changes.dormant(&base), Vec::<String>::new());
        let told = changes.dormant(&config(&["/one", "/two.old"]));
        assert!(
            told.len() == 1 && told[0].contains("namespace 2 is the file \"/two\""),
            "{told:?}"
        );
        assert!(told[0].contains("names the file \"/two.old\""), "{told:?}");
        let told = changes.dormant(&config(&["/one"]));
        assert!(told.len() == 1 && told[0].contains("names no file"), "{told:?}");
    }

    #[test]
    fn the_last_namespace_may_go() {
        let config = Config::parse("[[device]]\nname = \"d\"\nspec = \"mem:1MiB\"\n").unwrap();
        let gone = Changes { namespaces: [(1, None)].into(), ..Changes::default() };
        assert!(gone.made_to(&config).namespace.is_empty());
    }
}
