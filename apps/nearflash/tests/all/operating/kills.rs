//! Kills the real program at random instants of changes of every kind, and checks what its admin
//! API reports of these changes after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use crate::support::{Launch, Rng, Server, kills};
use control::admin::{
    AddDevice, AddListener, AdminAddress, AnaState, ChangeTenant, ChangeTenants, Client,
    ClientError, DevicePatch, DeviceStatus, Devices, HostPatch, HostStatus, Hosts, Listeners,
    NamespacePatch, Namespaces, NewNamespace, NewSubsystem, NewTenant, RemoveListener, RemoveNamed,
    RemoveNamespace, Secret, SetAna, SetNamed, Share, SubsystemPatch, Subsystems, TenantPatch,
    TenantStatus,
};

const KEY: &str = "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";
const MIB: u64 = 1 << 20;

/// The number of kills from which on some must have met a change in progress.
const KILLS_MIN: u32 = 12;

/// The number of names for things of each kind that the test adds and removes.
const NAMES: u64 = 3;

/// The expected state of an NVMe subsystem.
#[derive(Clone, Debug, Default, PartialEq)]
struct Subsystem {
    authenticate: bool,
    is_inaccessible: bool,
    tenant: Option<String>,
    hosts: Option<BTreeSet<String>>,
    /// The names of the subsystem's namespaces; `None` if it has all.
    namespaces: Option<BTreeSet<String>>,
}

/// The expected state of a server: the changes that operators have made.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    /// The weight of each tenant, by the tenant's name.
    tenants: BTreeMap<String, u32>,
    /// The size in bytes of each namespace and `true` if it is read-only, by the namespace's name.
    namespaces: BTreeMap<String, (u64, bool)>,
    subsystems: BTreeMap<String, Subsystem>,
    /// Each host by name: `true` if the host has a key, and the tenant that is charged for it, if
    /// any.
    hosts: BTreeMap<String, (bool, Option<String>)>,
    /// The paths of the listeners that are at Unix sockets.
    listeners: BTreeSet<String>,
    /// Each device by name: `true` if it has a model, `true` if it fails fast, and the idle seconds
    /// before a recalibration.
    devices: BTreeMap<String, (bool, bool, u32)>,
}

/// Returns `true` for the name of a subsystem that lists its namespaces. The configured subsystem
/// has all of them.
fn has_some(nqn: &str) -> bool {
    nqn.starts_with("nqn.2026-11.org.example:s")
}

impl State {
    /// Returns the state that a running server reports over its admin API.
    fn of(client: &mut Client) -> State {
        let subsystem = |one: control::admin::SubsystemStatus| {
            let named = |one: control::admin::Contained| one.name;
            let told = Subsystem {
                authenticate: one.authenticate,
                is_inaccessible: one.ana.iter().any(|ana| ana.state == AnaState::Inaccessible),
                tenant: one.tenant,
                hosts: one.hosts.map(|hosts| hosts.into_iter().collect()),
                namespaces: has_some(&one.nqn)
                    .then(|| one.namespaces.into_iter().map(named).collect()),
            };
            (one.nqn, told)
        };
        let tenants = client.tenants().unwrap().into_iter();
        let namespaces = client.read::<Namespaces>().unwrap().namespaces.into_iter();
        let subsystems = client.read::<Subsystems>().unwrap().subsystems.into_iter();
        let hosts = client.read::<Hosts>().unwrap().hosts.into_iter();
        let listeners = client.read::<Listeners>().unwrap().listeners.into_iter();
        let devices = client.read::<Devices>().unwrap().devices.into_iter();
        State {
            tenants: tenants.map(|one| (one.name, one.share.weight)).collect(),
            namespaces: namespaces.map(|one| (one.name, (one.bytes, one.read_only))).collect(),
            subsystems: subsystems.map(subsystem).collect(),
            hosts: hosts.map(|one| (one.nqn, (one.has_key, one.tenant))).collect(),
            listeners: listeners.map(|one| one.url).filter(|url| url.contains("unix")).collect(),
            devices: devices
                .map(|one| {
                    let said = one.settings.unwrap();
                    (one.name, (one.has_model, said.fail_fast, said.recalibrate_idle_seconds))
                })
                .collect(),
        }
    }

    fn names(&self, tenant: &str) -> bool {
        let is_it = |named: &Option<String>| named.as_deref() == Some(tenant);
        self.hosts.values().any(|(_, named)| is_it(named))
            || self.subsystems.values().any(|one| is_it(&one.tenant))
    }
}

/// A change that the test requests from the admin API.
#[derive(Debug)]
enum Change {
    AddTenant(String, u32),
    SetTenant(String, u32),
    RemoveTenant(String),
    /// Several changes of tenants in one request: tenants to add and tenants to change, with their
    /// weights, and tenants to remove.
    Batch(Vec<(String, u32)>, Vec<(String, u32)>, Vec<String>),
    AddNamespace(String, u64),
    ResizeNamespace(String, u64),
    CloseNamespace(String, bool),
    RenameNamespace(String, String),
    RemoveNamespace(String),
    AddSubsystem(String),
    Authenticate(String, bool),
    Charge(String, Option<String>),
    Allow(String, String),
    Attach(String, String),
    Detach(String, String),
    Ana(String, bool),
    RemoveSubsystem(String),
    SetHost(String, bool, Option<String>),
    RemoveHost(String),
    AddListener(String),
    RemoveListener(String),
    AddDevice(String, bool),
    SetDevice(String, bool, u32),
    RemoveDevice(String),
}

fn share(weight: u32) -> Option<Share> {
    Some(Share { weight, cap_tokens: None })
}

fn batch(new: &[(String, u32)], others: &[(String, u32)], gone: &[String]) -> ChangeTenants {
    let new = new.iter().cloned().map(|(name, weight)| {
        ChangeTenant::Add(NewTenant {
            name,
            device: None,
            slo: None,
            share: share(weight),
            note: None,
        })
    });
    let others = others.iter().cloned().map(|(name, weight)| {
        ChangeTenant::Set(SetNamed {
            name,
            slo: None,
            share: share(weight),
            note: None,
            device: None,
        })
    });
    let gone = gone.iter().cloned().map(|name| ChangeTenant::Remove(RemoveNamed { name }));
    ChangeTenants { changes: new.chain(others).chain(gone).collect() }
}

fn set(client: &mut Client, nqn: &str, to: SubsystemPatch) -> Result<(), ClientError> {
    client.send_to(nqn, &to).map(drop)
}

impl Change {
    /// Returns the name of the kind of change, such as `AddTenant`.
    fn kind(&self) -> String {
        let text = format!("{self:?}");
        text[..text.find('(').unwrap()].to_owned()
    }

    /// Returns the state in which this change leaves a server that was in the state `to`.
    fn apply(&self, to: &State) -> State {
        let mut state = to.clone();
        match self {
            Change::AddTenant(name, weight) | Change::SetTenant(name, weight) => {
                state.tenants.insert(name.clone(), *weight);
            }
            Change::RemoveTenant(name) => drop(state.tenants.remove(name)),
            Change::Batch(new, others, gone) => {
                state.tenants.extend(new.iter().chain(others).cloned());
                state.tenants.retain(|name, _| !gone.contains(name));
            }
            Change::AddNamespace(name, bytes) => {
                assert_eq!(state.namespaces.insert(name.clone(), (*bytes, false)), None);
            }
            Change::ResizeNamespace(name, bytes) => {
                state.namespaces.get_mut(name).unwrap().0 = *bytes;
            }
            Change::CloseNamespace(name, is_closed) => {
                state.namespaces.get_mut(name).unwrap().1 = *is_closed;
            }
            Change::RenameNamespace(name, new) => {
                let own = state.namespaces.remove(name).unwrap();
                assert_eq!(state.namespaces.insert(new.clone(), own), None);
                let all = state.subsystems.values_mut();
                all.filter_map(|one| one.namespaces.as_mut()).for_each(|own| {
                    if own.remove(name) {
                        own.insert(new.clone());
                    }
                });
            }
            Change::RemoveNamespace(name) => {
                state.namespaces.remove(name);
                let all = state.subsystems.values_mut();
                all.filter_map(|one| one.namespaces.as_mut()).for_each(|own| {
                    own.remove(name);
                });
            }
            Change::AddSubsystem(nqn) => {
                let namespaces = Some(BTreeSet::new());
                let new = Subsystem { namespaces, ..Subsystem::default() };
                state.subsystems.insert(nqn.clone(), new);
            }
            Change::RemoveSubsystem(nqn) => drop(state.subsystems.remove(nqn)),
            Change::SetHost(nqn, key, tenant) => {
                state.hosts.insert(nqn.clone(), (*key, tenant.clone()));
            }
            Change::RemoveHost(nqn) => drop(state.hosts.remove(nqn)),
            Change::AddListener(url) => assert!(state.listeners.insert(url.clone())),
            Change::RemoveListener(url) => assert!(state.listeners.remove(url)),
            Change::AddDevice(name, has_model) => {
                assert_eq!(state.devices.insert(name.clone(), (*has_model, false, 60)), None);
            }
            Change::SetDevice(name, fail_fast, seconds) => {
                let device = state.devices.get_mut(name).unwrap();
                *device = (device.0, *fail_fast, *seconds);
            }
            Change::RemoveDevice(name) => assert!(state.devices.remove(name).is_some()),
            Change::Authenticate(nqn, ..)
            | Change::Charge(nqn, ..)
            | Change::Allow(nqn, ..)
            | Change::Attach(nqn, ..)
            | Change::Detach(nqn, ..)
            | Change::Ana(nqn, ..) => self.apply_within(state.subsystems.get_mut(nqn).unwrap()),
        }
        state
    }

    fn apply_within(&self, one: &mut Subsystem) {
        match self {
            Change::Authenticate(_, is_on) => one.authenticate = *is_on,
            Change::Charge(_, tenant) => one.tenant.clone_from(tenant),
            Change::Allow(_, host) => {
                one.hosts.get_or_insert_default().insert(host.clone());
            }
            Change::Attach(_, name) => {
                one.namespaces.as_mut().unwrap().insert(name.clone());
            }
            Change::Detach(_, name) => {
                one.namespaces.as_mut().unwrap().remove(name);
            }
            Change::Ana(_, is_inaccessible) => one.is_inaccessible = *is_inaccessible,
            other => unreachable!("{other:?}"),
        }
    }

    /// Requests the change from the server's admin API.
    fn ask(&self, client: &mut Client) -> Result<(), ClientError> {
        let none = SubsystemPatch::default();
        match self {
            Change::AddTenant(name, weight) => {
                let (name, share) = (name.clone(), share(*weight));
                client
                    .send(&NewTenant { name, device: None, slo: None, share, note: None })
                    .map(drop)
            }
            Change::SetTenant(name, weight) => {
                let to = TenantPatch { slo: None, share: share(*weight), note: None, device: None };
                client.send_to(name, &to).map(drop)
            }
            Change::RemoveTenant(name) => client.delete::<TenantStatus>(name),
            Change::Batch(new, others, gone) => client.send(&batch(new, others, gone)).map(drop),
            Change::AddNamespace(name, bytes) => {
                let (name, bytes, subsystems) = (name.clone(), *bytes, Some(Vec::new()));
                let device = Some("disk".to_owned());
                let (read_only, uuid) = (false, None);
                let new = NewNamespace { name, bytes, device, read_only, uuid, subsystems };
                client.send(&new).map(drop)
            }
            Change::ResizeNamespace(name, bytes) => {
                let (bytes, shrink) = (Some(*bytes), true);
                let to = NamespacePatch { bytes, shrink, ..NamespacePatch::default() };
                client.send_to(name, &to).map(drop)
            }
            Change::CloseNamespace(name, is_closed) => {
                let read_only = Some(*is_closed);
                let to = NamespacePatch { read_only, ..NamespacePatch::default() };
                client.send_to(name, &to).map(drop)
            }
            Change::RenameNamespace(name, new) => {
                let to = NamespacePatch { name: Some(new.clone()), ..NamespacePatch::default() };
                client.send_to(name, &to).map(drop)
            }
            Change::RemoveNamespace(name) => client.send_to(name, &RemoveNamespace::default()),
            Change::AddSubsystem(nqn) => {
                let (nqn, namespaces) = (nqn.clone(), Some(Vec::new()));
                let (hosts, tenant, authenticate) = (None, None, false);
                let new = NewSubsystem { nqn, hosts, namespaces, tenant, authenticate };
                client.send(&new).map(drop)
            }
            Change::Authenticate(nqn, is_on) => {
                set(client, nqn, SubsystemPatch { authenticate: Some(*is_on), ..none })
            }
            Change::Charge(nqn, tenant) => {
                let tenant = Some(tenant.clone().unwrap_or_default());
                set(client, nqn, SubsystemPatch { tenant, ..none })
            }
            Change::Allow(nqn, host) => {
                set(client, nqn, SubsystemPatch { allow: vec![host.clone()], ..none })
            }
            Change::Attach(nqn, name) => {
                set(client, nqn, SubsystemPatch { attach: vec![name.clone()], ..none })
            }
            Change::Detach(nqn, name) => {
                set(client, nqn, SubsystemPatch { detach: vec![name.clone()], ..none })
            }
            Change::Ana(nqn, is_inaccessible) => {
                let state = match is_inaccessible {
                    true => AnaState::Inaccessible,
                    false => AnaState::Optimized,
                };
                let to = SetAna { state, subsystem: Some(nqn.clone()), group: None };
                client.send_to("1", &to).map(drop)
            }
            Change::RemoveSubsystem(nqn) => client.delete::<control::admin::SubsystemStatus>(nqn),
            Change::SetHost(nqn, has_key, tenant) => {
                let key = Some(Secret(if *has_key { KEY.to_owned() } else { String::new() }));
                let tenant = Some(tenant.clone().unwrap_or_default());
                client.send_to(nqn, &HostPatch { tenant, key, ..HostPatch::default() }).map(drop)
            }
            Change::RemoveHost(nqn) => client.delete::<HostStatus>(nqn),
            Change::AddListener(url) => client.send(&AddListener::from_argument(url)).map(drop),
            Change::RemoveListener(url) => {
                client.send_to(url, &RemoveListener::default()).map(drop)
            }
            Change::AddDevice(name, has_model) => {
                let plain = AddDevice::new(name.clone(), "null:1MiB".to_owned());
                let new = AddDevice { model: has_model.then(|| "a".to_owned()), ..plain };
                client.send(&new).map(drop)
            }
            Change::SetDevice(name, fail_fast, seconds) => {
                let (fail_fast, recalibrate_idle_seconds) = (Some(*fail_fast), Some(*seconds));
                let to =
                    DevicePatch { fail_fast, recalibrate_idle_seconds, ..DevicePatch::default() };
                client.send_to(name, &to).map(drop)
            }
            Change::RemoveDevice(name) => client.delete::<DeviceStatus>(name),
        }
    }
}

/// The random choices of one run, which decide the changes.
struct RandomChanges(Rng);

impl RandomChanges {
    fn roll(&mut self, below: u64) -> u64 {
        self.0.roll(below)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.roll(all.len() as u64) as usize]
    }

    fn tenant(&mut self, state: &State) -> Option<String> {
        let all: Vec<&String> = state.tenants.keys().filter(|name| name.starts_with('t')).collect();
        (!all.is_empty() && self.roll(2) == 0).then(|| (*self.of(&all)).clone())
    }

    /// Draws a change that is possible in this state.
    fn change(&mut self, state: &State, socket: &mut impl FnMut() -> String) -> Change {
        let n = self.roll(NAMES);
        match self.roll(7) {
            6 => self.batch(state),
            0 => {
                let (name, weight) = (format!("t{n}"), 1 + self.roll(1000) as u32);
                match state.tenants.contains_key(&name) {
                    false => Change::AddTenant(name, weight),
                    true if self.roll(2) == 0 && !state.names(&name) => Change::RemoveTenant(name),
                    true => Change::SetTenant(name, weight),
                }
            }
            1 => {
                let (name, bytes) = (format!("n{n}"), (1 + self.roll(4)) * MIB);
                let other = format!("n{}", self.roll(NAMES));
                match state.namespaces.get(&name) {
                    None => Change::AddNamespace(name, bytes),
                    Some((_, is_closed)) if self.roll(3) == 0 => {
                        Change::CloseNamespace(name, !is_closed)
                    }
                    Some(_) if self.roll(2) == 0 && !state.namespaces.contains_key(&other) => {
                        Change::RenameNamespace(name, other)
                    }
                    Some((own, _)) if *own == bytes => Change::RemoveNamespace(name),
                    Some((own, _)) if *own > bytes => Change::ResizeNamespace(name, bytes),
                    // What lies behind it may be another's.
                    Some(_) => Change::RemoveNamespace(name),
                }
            }
            2 => self.change_within(state, format!("nqn.2026-11.org.example:s{n}")),
            3 => {
                let nqn = format!("nqn.2026-11.org.example:h{n}");
                match state.hosts.contains_key(&nqn) && self.roll(3) == 0 {
                    true => Change::RemoveHost(nqn),
                    false => Change::SetHost(nqn, self.roll(2) == 0, self.tenant(state)),
                }
            }
            4 => match state.listeners.iter().next() {
                Some(url) if state.listeners.len() as u64 > n => {
                    Change::RemoveListener(url.clone())
                }
                _ => Change::AddListener(socket()),
            },
            _ => {
                let (name, seconds) = (format!("d{n}"), self.roll(1000) as u32);
                match state.devices.contains_key(&name) {
                    // The one that has a model.
                    _ if self.roll(4) == 0 => {
                        Change::SetDevice("disk".to_owned(), self.roll(2) == 0, seconds)
                    }
                    true if self.roll(2) == 0 => Change::SetDevice(name, false, seconds),
                    true => Change::RemoveDevice(name),
                    false => Change::AddDevice(name, self.roll(2) == 0),
                }
            }
        }
    }

    /// Draws a batch of changes: tenants to add, tenants whose weight changes, and tenants to
    /// remove, to which nothing refers.
    fn batch(&mut self, state: &State) -> Change {
        let (mut new, mut others, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..40 {
            let (name, weight) = (format!("t{n}"), 1 + self.roll(1000) as u32);
            match (state.tenants.contains_key(&name), self.roll(2) == 0) {
                (false, true) => new.push((name, weight)),
                (true, true) => others.push((name, weight)),
                (true, false) if !state.names(&name) => gone.push(name),
                _ => {}
            }
        }
        Change::Batch(new, others, gone)
    }

    /// Draws a change of a subsystem.
    fn change_within(&mut self, state: &State, nqn: String) -> Change {
        let Some(own) = state.subsystems.get(&nqn) else { return Change::AddSubsystem(nqn) };
        let all: Vec<String> =
            state.namespaces.keys().filter(|name| name.starts_with('n')).cloned().collect();
        match self.roll(6) {
            0 => Change::RemoveSubsystem(nqn),
            1 => Change::Authenticate(nqn, !own.authenticate),
            2 => Change::Charge(nqn, self.tenant(state)),
            3 => Change::Allow(nqn, format!("nqn.2026-11.org.example:h{}", self.roll(NAMES))),
            4 => Change::Ana(nqn, !own.is_inaccessible),
            _ if all.is_empty() => Change::RemoveSubsystem(nqn),
            _ => {
                let name = self.of(&all).clone();
                match own.namespaces.as_ref().unwrap().contains(&name) {
                    true => Change::Detach(nqn, name),
                    false => Change::Attach(nqn, name),
                }
            }
        }
    }
}

/// A change that was requested and not answered before the kill, and the state after it.
struct PendingChange {
    kind: String,
    after: State,
}

/// Kills the server `NEARFLASH_KILLS` times. After each restart the server must report all answered
/// changes, and the change in progress either as a whole or not at all.
#[test]
fn a_kill_at_any_instant_of_any_change_leaves_the_state_before_or_after_it() {
    let kills = kills(12);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // A file that grows, and the namespace that has the rest of it because nobody has said its
    // size.
    let config = format!(
        "[[device]]\nname = \"disk\"\nspec = \"file:{}?size=1MiB\"\nmodel = \"a\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.example:configured\"\n\
         [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n",
        path("disk")
    );
    std::fs::write(path("nearflash.toml"), config).unwrap();
    let admin = path("admin.sock");
    let start = || -> Server {
        Launch::new(&["--config", &path("nearflash.toml"), "--admin", &admin]).start()
    };
    let mut sockets = 0;
    let mut chance = RandomChanges(Rng::of(0x9e37_79b9_7f4a_7c15));
    let (mut answered, mut asked): (Option<State>, Option<PendingChange>) = (None, None);
    let (mut found, mut done) = (BTreeMap::<String, (u32, u32)>::new(), 0_u64);
    for _ in 0..kills {
        let mut server = start();
        let mut client = Client::new(AdminAddress::Unix(admin.clone().into())).unwrap();
        let there = State::of(&mut client);
        let before = answered.get_or_insert_with(|| there.clone());
        if let Some(PendingChange { kind, after }) = asked.take() {
            let counts = found.entry(kind.clone()).or_default();
            match (there == *before, there == after) {
                (true, _) => counts.0 += 1,
                (false, true) => counts.1 += 1,
                _ => panic!("{kind}: {there:#?}\nis neither {before:#?}\nnor {after:#?}"),
            }
        } else {
            assert_eq!(there, *before, "nothing was under way");
        }
        answered = Some(there);
        // Most of them while the change is being kept, which is over before workers have taken it.
        let window = if chance.roll(4) == 0 { 60_000 } else { 6_000 };
        let delay = Duration::from_micros(chance.roll(window));
        let shared = Mutex::new((&mut answered, &mut asked, &mut done, &mut chance, &mut sockets));
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut shared = shared.lock().unwrap();
                let (answered, asked, done, chance, sockets) = &mut *shared;
                loop {
                    let state = answered.as_ref().unwrap();
                    // Not ports, which other programs may take between two servers.
                    let mut socket = || {
                        **sockets += 1;
                        format!("reflex+unix:{}", path(&format!("{sockets}.sock")))
                    };
                    let change = chance.change(state, &mut socket);
                    let after = change.apply(state);
                    **asked = Some(PendingChange { kind: change.kind(), after: after.clone() });
                    match change.ask(&mut client) {
                        Ok(()) => (**answered, **asked, **done) = (Some(after), None, **done + 1),
                        Err(error) if error.code().is_none() => return, // it was killed
                        Err(error) => panic!("{change:?}: {error}\n{state:#?}"),
                    }
                }
            });
            std::thread::sleep(delay);
            server.kill();
            changes.join().unwrap();
        });
    }
    let (old, new) = found.values().fold((0, 0), |(old, new), one| (old + one.0, new + one.1));
    println!(
        "{kills} kills in {done} changes: {old} found the state before a change, {new} the one after"
    );
    found.iter().for_each(|(kind, (old, new))| println!("{kind}: {old} before, {new} after"));
    assert!(kills < KILLS_MIN || old + new > 0, "none of {kills} kills met a change");
}
