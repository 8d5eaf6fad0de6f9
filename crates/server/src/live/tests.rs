//! Tests of live changes to a server without workers.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use contract::{ListenerId, Promise};
use control::admin::{
    Code, DrainServer, Inventory, NamespacePatch, NewNamespace, Recalibrator, RemoveListener,
    RemoveNamespace,
};
use control::{TenantChange, WorkerController, WorkerMailbox};
use dataplane::{DeviceTable, KernelInterface, ThreadAccounts, Volume, WorkerOrders};
use flash::Spec;
use io::{Clock, TcpOptions};
use qos::{DeviceModel, RatePoint};
use worker::{AccessRules, Fences, Listeners, Namespaces, SharedState};

use super::files::power::{self, Fault};
use super::*;
use crate::config::{DeviceCapacity, Mistakes};
use crate::fabric::Wakers;
use crate::listen::NUMBER_MAX;
use crate::recalibrate::{ModelStore, RecalibrationContext};
use crate::tenancy;
use crate::wait::SETTLE_MAX;

const LISTENER: &str = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
const DISK: &str = "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n";

/// Creates a server without workers that has this configuration.
pub(crate) fn live(config: &str) -> Arc<LiveConfig> {
    live_that_keeps(config, None)
}

/// Creates a server without workers, which keeps its changes in `store`.
fn live_that_keeps(config: &str, store: Option<Store>) -> Arc<LiveConfig> {
    let clock = Clock::start();
    live_at(config, (store, Changes::default()), Arc::new(move || clock.now()))
}

/// Creates a server without workers from its configuration and the state file at a path. Its
/// tenants have the time of `now`.
pub(crate) fn live_from(config: &str, state: &Path, now: control::Clock) -> Arc<LiveConfig> {
    let (store, changes) = Store::open(state, false).unwrap();
    live_at(config, (Some(store), changes), now)
}

fn live_at(
    config: &str,
    (store, changes): (Option<Store>, Changes),
    now: control::Clock,
) -> Arc<LiveConfig> {
    let base = Config::parse(config).unwrap();
    let config = changes.made_to(&base);
    let specs: Vec<Spec> = base.device.iter().map(|one| one.spec.parse().unwrap()).collect();
    let limits = Mistakes::collect(|wrong| base.limits_or(wrong)).unwrap();
    let needs = tenancy::TenancyInputs {
        base: &base,
        config: &config,
        listen: &[],
        specs: &specs,
        workers: 1,
        tenants_max: limits.tenants,
    };
    let tenants = Mistakes::collect(|wrong| tenancy::tenants(&needs, now, wrong)).unwrap();
    let open = |device: &spec::Device| {
        let spec: Spec = device.spec.parse().unwrap();
        (device.name.clone(), Volume::open(&spec).unwrap())
    };
    let places = Arc::new(DeviceTable::of(base.device.iter().map(open).collect()));
    let shared = Arc::new(SharedState {
        namespaces: Namespaces::new(Vec::new()),
        access: AccessRules::new(Vec::new()),
        listeners: Listeners::with_places(NUMBER_MAX),
        fences: Fences::default(),
        storage_epoch: 0.into(),
    });
    let ground = FixedParts {
        places,
        shared,
        fabric: Arc::default(),
        wakers: Wakers::default(),
        workers: 1,
        clock: Clock::start(),
        tenants,
        tcp: TcpOptions::default(),
        insecure: false,
        drain_limit: Duration::from_secs(10),
    };
    LiveConfig::new(ground, Vec::new(), base, changes, store).unwrap()
}

/// Creates the recalibrations of a server, without the thread that begins them.
pub(crate) fn recalibrations(live: &Arc<LiveConfig>) -> Arc<Recalibrations> {
    let FixedParts { tenants, places, clock, workers, .. } = &live.reconciler.ground;
    let (tenants, places) = (tenants.clone(), places.clone());
    let (clock, workers, chosen) = (*clock, *workers, KernelInterface::Epoll);
    let tools = RecalibrationContext {
        tenants,
        places,
        clock,
        accounts: ThreadAccounts::default(),
        workers,
        chosen,
    };
    let devices = &live.reconciler.seen().world.config.device;
    let all = Recalibrations::new(tools, live.clone(), devices);
    live.set_recalibrations(&all);
    all
}

/// Gives the server access to one silent worker. No order waits for it, so orders are done at once.
pub(crate) fn open_gate(live: &LiveConfig) -> (Arc<WorkerOrders>, Vec<WorkerMailbox>) {
    open_gate_of(live, 1)
}

/// Gives the server access to so many silent workers. No order waits for them, so orders are done
/// at once.
fn open_gate_of(live: &LiveConfig, workers: usize) -> (Arc<WorkerOrders>, Vec<WorkerMailbox>) {
    let tenants = live.reconciler.ground.tenants.clone();
    let (controller, boxes) = WorkerController::new(tenants, workers);
    let orders = Arc::new(WorkerOrders::new(0).0);
    let gate = WorkerAccess {
        orders: orders.clone(),
        wakers: Vec::new(),
        commands: controller.commands(),
    };
    live.set_gate(gate);
    (orders, boxes)
}

/// Returns the addition of a tenant without a promise.
fn plain(name: &str) -> TenantChange {
    TenantChange::Add(spec::Tenant::new(name))
}

#[test]
fn what_needs_no_disk_is_told_while_a_change_hangs_and_few_wait_for_it() {
    let live = live(DISK);
    // As while the disk of the state file does not answer.
    let hangs = live.lock();
    let (told, answer) = channel();
    let reader = live.clone();
    std::thread::spawn(move || {
        let namespaces = reader.namespaces().unwrap().namespaces.len();
        assert!(reader.namespace("ns1").is_ok() && reader.hosts().is_ok());
        assert!(reader.listeners().is_ok() && reader.listener_numbers().is_empty());
        told.send(namespaces)
    });
    assert_eq!(answer.recv_timeout(Duration::from_secs(60)), Ok(1));
    let wanted = more();
    let busy = |done: Result<(), Problem>| {
        assert_eq!(done.unwrap_err().code, Code::Busy);
    };
    busy(live.add_namespace(&wanted).map(drop));
    let begun = live.reconciler.ground.clock.now();
    for _ in 0..5 {
        busy(live.add_namespace(&wanted).map(drop));
        busy(live.change_tenant(&plain("anybody")).map(drop));
        busy(live.remove_tenant("anybody"));
    }
    assert!(live.reconciler.ground.clock.now().since(begun) < SETTLE_MAX, "each waited");
    drop(hangs);
    live.change_tenant(&plain("somebody")).unwrap();
}

/// Tests that a scratch namespace stays, whether the device's configuration has its name or its
/// number.
#[test]
fn a_namespace_that_a_device_has_as_scratch_stays() {
    for (scratch, stays) in [("ns2", true), ("2", true), ("02", true), ("ns1", false)] {
        let config = format!(
            "{DISK}recalibrate_scratch = \"{scratch}\"\n\
             [[namespace]]\ndevice = \"disk\"\nsize = \"32MiB\"\n[[namespace]]\ndevice = \"disk\"\n"
        );
        let live = live(&config);
        let inner = live.lock();
        let space = namespaces::find(&inner.world, "ns2").unwrap();
        let checked = namespaces::check_scratch(&inner.world, space);
        assert_eq!(checked.is_err(), stays, "{scratch}: {checked:?}");
        // A file says nothing of what was said by a command.
        let way_out = "`nearflash device set disk --recalibrate-scratch none`";
        let says = |problem: Problem| problem.message.contains(way_out);
        assert!(checked.map_or_else(says, |()| true), "{scratch}");
    }
}

/// The result of a change that enlarges a device, and of a restart after it.
struct GrowthResult {
    is_done: bool,
    /// `true` if the change made fewer file calls than the one that was to fail.
    is_over: bool,
    /// Size of the device's file in bytes.
    bytes: u64,
    /// Names of namespaces, and their sizes in bytes.
    namespaces: Vec<(String, u64)>,
}

/// Makes a change while another thread confirms each change of a namespace, as a worker does.
fn beside_a_worker<T>(live: &LiveConfig, change: impl FnOnce() -> T) -> T {
    let tenants = &live.reconciler.ground.tenants;
    let meters = tenants.meters(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                if !tenants.registry().is_placed() {
                    meters.set_placed(meters.placed() + 1);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = change();
        is_over.store(true, Ordering::Release);
        done
    })
}

/// Returns the request for a namespace `more` of 1 MiB.
fn more() -> NewNamespace {
    NewNamespace {
        name: "more".to_owned(),
        bytes: 1 << 20,
        device: None,
        read_only: false,
        uuid: None,
        subsystems: None,
    }
}

/// Adds a namespace to a device that has no room for it, while the file calls of the state file
/// have the fault for their `n`-th call.
fn grow(n: usize, fault: fn(usize) -> Fault) -> GrowthResult {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (disk, state) = (folder.path().join("disk"), folder.path().join("state"));
    let config =
        format!("[[device]]\nname = \"disk\"\nspec = \"file:{}?size=1MiB\"\n", disk.display());
    let (store, _) = Store::open(&state, false).unwrap();
    let live = live_that_keeps(&config, Some(store));
    let wanted = more();
    let made = power::set_fault(Fault::None);
    power::set_fault(fault(made + n));
    let is_done = beside_a_worker(&live, || live.add_namespace(&wanted).is_ok());
    let is_over = power::set_fault(Fault::None) <= made + n;
    drop(live);
    let bytes = std::fs::metadata(&disk).unwrap().len();
    let (_, changes) = Store::open(&state, false).unwrap();
    let room = DeviceCapacity::of_blocks(bytes / 512);
    let spaces = changes.made_to(&Config::parse(&config).unwrap()).spaces(&[room]).unwrap();
    let namespaces = spaces.iter().map(|one| (one.name.clone(), one.place.blocks * 512)).collect();
    GrowthResult { is_done, is_over, bytes, namespaces }
}

#[test]
fn a_change_that_is_not_kept_makes_no_other_namespace_larger() {
    let old = || vec![("ns1".to_owned(), 1 << 20)];
    let new = || [old(), vec![("more".to_owned(), 1 << 20)]].concat();
    let mut failures = 0;
    for n in 0.. {
        // The disk fails once.
        let found = grow(n, Fault::Once);
        if found.is_done {
            assert_eq!((found.bytes, found.namespaces), (2 << 20, new()));
            match found.is_over {
                true => break,
                // What comes behind the change does not matter to it.
                false => continue,
            }
        }
        assert_eq!((found.bytes, found.namespaces), (1 << 20, old()), "failure {n}");
        // As of a process that is killed.
        let found = grow(n, Fault::From);
        let is_either = found.namespaces == old() || found.namespaces == new();
        assert!(!found.is_done && is_either, "death {n}: {:?}", found.namespaces);
        failures += 1;
    }
    assert!(failures > 10, "{failures} calls: the sizes are written down, and then the change");
}

#[test]
fn a_reload_makes_no_device_larger_that_a_namespace_has_the_rest_of() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let config = |rest: &str| {
        let spec = format!("file:{}?size=1MiB", disk.display());
        let device = format!("[[device]]\nname = \"disk\"\nspec = \"{spec}\"\n");
        format!("{device}{LISTENER}[[namespace]]\ndevice = \"disk\"\n{rest}")
    };
    let live = live(&config(""));
    let more = "[[namespace]]\ndevice = \"disk\"\noffset = \"1MiB\"\nsize = \"1MiB\"\n";
    let said = live.reload(Config::parse(&config(more)).unwrap()).unwrap_err().message;
    assert!(said.contains("write that one's size down"), "{said}");
    assert_eq!(std::fs::metadata(&disk).unwrap().len(), 1 << 20);
}

#[test]
fn a_tenant_stays_on_its_device_and_is_not_kept_there() {
    let config = |devices: [&str; 2], of_gold: &str| {
        let device = |name: &str| format!("[[device]]\nname = \"{name}\"\nspec = \"null:1MiB\"\n");
        let namespace = format!("{LISTENER}[[namespace]]\ndevice = \"a\"\n");
        let gold = format!("[[tenant]]\nname = \"gold\"\n{of_gold}");
        format!("{}{namespace}{gold}", devices.map(device).concat())
    };
    let live = live(&config(["a", "b"], ""));
    let (_orders, _boxes) = open_gate(&live);
    let reload = |text: &str| live.reload(Config::parse(text).unwrap()).unwrap().later;
    // Named in the file, or the first by another order.
    for new in [config(["a", "b"], "device = \"b\"\n"), config(["b", "a"], "")] {
        let later = reload(&new);
        assert!(later.iter().any(|why| why.contains("\"gold\" (its device")), "{later:?}");
        assert_eq!(live.reconciler.ground.tenants.get("gold").unwrap().device, "a");
        // As when another process takes over.
        let mut inner = live.lock();
        inner.keep_tenants(&live.reconciler.ground.tenants.list()).unwrap();
        assert!(inner.changes.tenants.is_empty(), "{:?}", inner.changes.tenants);
    }
    assert_eq!(reload(&config(["a", "b"], "")), Vec::<String>::new());
}

/// Tests that the same reservations are stored again while a restart may find the change that
/// failed.
#[test]
fn reservations_are_kept_again_while_it_is_in_doubt_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(&folder.path().join("state"), false).unwrap();
    let live = live_that_keeps(DISK, Some(store));
    let mut inner = live.lock();
    inner.keep(Changes::default()).unwrap();
    let made = power::set_fault(Fault::None);
    power::set_fault(Fault::From(made));
    assert!(inner.keep(Changes::default()).is_err() && inner.is_in_doubt());
    assert!(inner.keep_those(Vec::new()).is_err(), "they are not known to be kept");
    power::set_fault(Fault::None);
    inner.keep_those(Vec::new()).unwrap();
    assert!(!inner.is_in_doubt());
    let made = power::set_fault(Fault::None);
    inner.keep_those(Vec::new()).unwrap();
    assert_eq!(power::set_fault(Fault::None), made, "nothing is to be written");
}

#[test]
fn a_listener_that_a_worker_has_refused_is_none_after_a_reload() {
    let live = live(DISK);
    let (orders, _boxes) = open_gate(&live);
    let config = format!("{DISK}[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n");
    orders.cannot_listen(ListenerId(0), "no descriptors are left".to_owned());
    let later = live.reload(Config::parse(&config).unwrap()).unwrap().later;
    assert!(later.iter().any(|why| why.contains("no descriptors are left")), "{later:?}");
    assert!(live.listeners().unwrap().listeners.is_empty());
    // It is tried again, and not called by what the other was.
    assert_eq!(live.reload(Config::parse(&config).unwrap()).unwrap(), ReloadReport::default());
    let listed = live.listeners().unwrap().listeners;
    assert_eq!(listed.iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
    assert!(live.lock().open[0].at.id != ListenerId(0));
}

#[test]
fn a_listener_gets_the_number_that_it_asks_for() {
    let live = live(DISK);
    let (_orders, _boxes) = open_gate(&live);
    let add = |number| {
        let listener = spec::Listener::from_argument("reflex://127.0.0.1:0");
        let added = live.add_listener(&spec::Listener { number, ..listener });
        added.map(|listener| listener.number).map_err(|problem| problem.code)
    };
    assert_eq!(add(Some(7)), Ok(7));
    assert_eq!((add(Some(7)), add(Some(0))), (Err(Code::Taken), Err(Code::Invalid)));
    assert_eq!(add(None), Ok(2), "the configuration has the first");
}

/// Tests that the place of a closed listener is used again, and its identifier is not.
#[test]
fn places_of_listeners_are_given_again_and_their_identifiers_are_not() {
    let live = live(DISK);
    open_gate_of(&live, 0);
    let mut ids = HashSet::new();
    for _ in 0..=NUMBER_MAX {
        let listener = spec::Listener::from_argument("reflex://127.0.0.1:0");
        let added = live.add_listener(&listener).unwrap();
        assert_eq!(added.number, 2);
        assert!(ids.insert(live.lock().open[0].at.id), "an identifier comes again");
        live.remove_listener("2", RemoveListener::default()).unwrap();
    }
    assert!(live.lock().departed.len() < 2, "they are forgotten");
}

#[test]
fn the_numbers_of_a_file_hold_after_a_reload_and_when_an_added_listener_goes() {
    let live = live(DISK);
    open_gate_of(&live, 0);
    let folder = tempfile::tempdir().unwrap();
    let config = |names: &[&str]| {
        let path = |name: &&str| folder.path().join(name).display().to_string();
        let listen = |name| format!("[[listen]]\nurl = \"reflex+unix:{}\"\n", path(name));
        Config::parse(&format!("{DISK}{}", names.iter().map(listen).collect::<String>())).unwrap()
    };
    let listed = || {
        let all = live.listeners().unwrap().listeners.into_iter();
        let each = all.map(|one| (one.number, one.url.rsplit('/').next().unwrap().to_owned()));
        each.collect::<Vec<_>>()
    };
    let is = |all: &[(u16, &str)]| {
        assert_eq!(listed(), all.iter().map(|(n, s)| (*n, (*s).to_owned())).collect::<Vec<_>>());
    };
    live.reload(config(&["a", "b", "c"])).unwrap();
    let id_of =
        |number: u16| live.lock().open.iter().find(|open| open.at.number == number).unwrap().at.id;
    let of_c = id_of(3);
    // As a restart would number them.
    assert_eq!(live.reload(config(&["a", "c"])).unwrap(), ReloadReport::default());
    is(&[(1, "a"), (2, "c")]);
    assert_eq!(id_of(2), of_c, "it is the same listener");
    let url = format!("reflex+unix:{}", folder.path().join("x").display());
    live.add_listener(&spec::Listener::from_argument(&url)).unwrap();
    live.reload(config(&["a", "c", "d"])).unwrap();
    is(&[(1, "a"), (2, "c"), (3, "x"), (4, "d")]);
    live.remove_listener("3", RemoveListener::default()).unwrap();
    is(&[(1, "a"), (2, "c"), (4, "d")]);
    assert_eq!(live.reload(config(&["a", "c", "d"])).unwrap(), ReloadReport::default());
    is(&[(1, "a"), (2, "c"), (4, "d")]);
    // The number that is left out is free for another that is added.
    live.add_listener(&spec::Listener::from_argument(&url)).unwrap();
    is(&[(1, "a"), (2, "c"), (3, "x"), (4, "d")]);
}

/// Tests the undoing of a change on a device that delivers less by now than was promised on it.
#[test]
fn a_measured_model_stays_stored_if_the_configured_one_does_not_fit() {
    let live = live(&format!("{DISK}model = \"a\"\n{LISTENER}"));
    let all = recalibrations(&live);
    let tenants = &live.reconciler.ground.tenants;
    let rate = RatePoint { latency_us: 1_000, mixed: 10_000_000, read_only: 10_000_000 };
    let measured = DeviceModel::device_a().with_p99(vec![rate]).unwrap();
    live.keep_model("disk", Some(&measured)).unwrap();
    tenants.registry().set_model("disk", measured, tenants.now()).unwrap();
    let stored = || live.lock().changes.models.get("disk").cloned();
    let before = stored();
    let slo = contract::Slo { percentile_tenths: 990, ..contract::Slo::new(1_000, 1_000, 100) };
    tenants.register("gold", Promise::LatencyCritical(slo), None).unwrap();
    let refused = all.reset_model("disk").unwrap_err();
    assert!(refused.message.contains("99th percentile"), "{}", refused.message);
    assert!(before.is_some() && stored() == before, "{:?}", stored());
    tenants.unregister("gold").unwrap();
    all.reset_model("disk").unwrap();
    assert_eq!(stored(), None);
}

#[test]
fn what_a_tenant_gave_up_for_a_change_that_is_not_made_is_its_own_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(&folder.path().join("state"), false).unwrap();
    let config = |of_gold: u32, more: &str| {
        let tenant = |name: &str, iops: u32| {
            format!("[[tenant]]\nname = \"{name}\"\nlatency_us = 2000\niops = {iops}\n")
        };
        let tenants = tenant("gold", of_gold) + &tenant("silver", 70_000);
        format!("{DISK}model = \"a\"\n{LISTENER}{tenants}{more}")
    };
    let live = live_that_keeps(&config(70_000, ""), Some(store));
    let tenants = &live.reconciler.ground.tenants;
    let slower = DeviceModel::device_a().slowed(4);
    tenants.registry().set_model("disk", slower, tenants.now()).unwrap();
    let promised = || {
        let device = &tenants.devices()[0];
        assert!(device.tokens_promised > device.tokens.unwrap(), "{device:?}");
        let gold = tenants.get("gold").unwrap();
        (gold.promise.slo().unwrap().iops, gold.tokens_needed)
    };
    assert_eq!(promised(), (70_000, 70_000));
    let slo = contract::Slo { iops: 20_000, ..tenants.get("gold").unwrap().promise.slo().unwrap() };
    let less = TenantChange::Set {
        name: "gold".to_owned(),
        to: Some(slo).into(),
        note: None,
        device: None,
    };
    let made = power::set_fault(Fault::None);
    power::set_fault(Fault::From(made));
    assert_eq!(live.change_tenant(&less).unwrap_err().code, Code::NotKept);
    assert_eq!(live.change_tenant(&plain("new")).unwrap_err().code, Code::NotKept);
    power::set_fault(Fault::None);
    assert_eq!((promised(), tenants.find("new")), ((70_000, 70_000), None));
    let nowhere = "[[tenant]]\nname = \"tin\"\n[[namespace]]\ndevice = \"disk\"\nsize = \"1GiB\"\n";
    let refused = live.reload(Config::parse(&config(20_000, nowhere)).unwrap());
    assert!(refused.unwrap_err().message.contains("do not fit"));
    assert_eq!((promised(), tenants.find("tin")), ((70_000, 70_000), None));
    // It would not be promised that today.
    live.change_tenant(&less).unwrap();
    let slo = contract::Slo { iops: 70_000, ..slo };
    let more = TenantChange::Set {
        name: "gold".to_owned(),
        to: Some(slo).into(),
        note: None,
        device: None,
    };
    assert_eq!(live.change_tenant(&more).unwrap_err().code, Code::TooMuch);
}

#[test]
fn devices_that_grew_for_a_reload_that_is_refused_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let device = |name: &str| {
        let path = path(name);
        let spec = format!("file:{}?size=1MiB", path.display());
        format!("[[device]]\nname = \"{name}\"\nspec = \"{spec}\"\n")
    };
    let devices = device("first") + &device("second") + LISTENER;
    let live = live(&devices);
    let space =
        |device: &str, rest: &str| format!("[[namespace]]\ndevice = \"{device}\"\nsize = {rest}\n");
    let new = [
        &devices,
        &space("first", "\"1MiB\""),
        &space("second", "\"1MiB\""),
        &space("first", "\"1MiB\"\noffset = \"1MiB\""),
        &space("first", "\"1MiB\"\noffset = \"2MiB\""),
        // No file has as much.
        &space("second", "\"8388608TiB\"\noffset = \"1MiB\""),
    ];
    let new = new.map(String::as_str).concat();
    let said = live.reload(Config::parse(&new).unwrap()).unwrap_err().message;
    assert!(said.contains("cannot make the file larger"), "{said}");
    for name in ["first", "second"] {
        assert_eq!(std::fs::metadata(path(name)).unwrap().len(), 1 << 20, "{name}");
        let volume = live.reconciler.ground.places.find(name).unwrap().volume;
        assert_eq!(volume.bytes(), 1 << 20, "{name}");
    }
}

#[test]
fn a_server_that_drains_takes_no_other_configuration() {
    let live = live(DISK);
    let (orders, _boxes) = open_gate(&live);
    orders.stop_by(live.reconciler.ground.clock.now() + Duration::from_secs(600), &[]);
    let problem = live.reload(Config::parse(&format!("{DISK}{LISTENER}")).unwrap()).unwrap_err();
    assert_eq!(problem.code, Code::Busy);
    assert!(problem.message.contains("this server is draining"), "{}", problem.message);
    assert!(live.listeners().unwrap().listeners.is_empty());
}

#[test]
fn a_server_drains_or_is_taken_over_but_not_both() {
    let live = live(DISK);
    let (orders, _boxes) = open_gate(&live);
    live.freeze().unwrap();
    let drain = || live.drain_server(DrainServer::default()).map_err(|problem| problem.code);
    assert_eq!(drain(), Err(Code::Busy));
    {
        // As while a disk hangs.
        let _hangs = live.lock();
        assert_eq!(drain(), Err(Code::Busy));
    }
    assert!(!orders.stops());
    live.thaw();
    {
        let _hangs = live.lock();
        drain().unwrap();
    }
    assert!(orders.stops());
    let refused = live.freeze().unwrap_err();
    assert!(refused.contains("this server is draining"), "{refused}");
    assert!(!live.lock().is_frozen, "who waits is not told that another takes over");
    live.change_tenant(&plain("late")).unwrap();
}

/// Tests that a server without a state file discards nothing: a namespace that was added may have
/// got blocks of one that was removed, and which a restart brings back.
#[test]
fn a_server_that_keeps_no_state_discards_nothing() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = format!("file:{}?size=1MiB", folder.path().join("disk").display());
    let live = live(&format!(
        "[[device]]\nname = \"disk\"\nspec = \"{spec}\"\n\
         [[namespace]]\nname = \"kept\"\ndevice = \"disk\"\nsize = \"1MiB\"\n"
    ));
    let removed =
        |name, discard| live.remove_namespace(name, RemoveNamespace { force: false, discard });
    let (gone, added, refused) = beside_a_worker(&live, || {
        (removed("kept", false), live.add_namespace(&more()).map(drop), removed("more", true))
    });
    assert_eq!((gone, added), (Ok(()), Ok(())));
    let message = refused.unwrap_err().message;
    assert!(message.contains("may have these blocks again"), "{message}");
    let names = live.spaces().into_iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names, ["more"]);
}

#[test]
fn blocks_that_are_being_given_back_go_to_nobody() {
    const TWO: &str = "[[device]]\nname = \"other\"\nspec = \"null:8MiB\"\n";
    const KEPT: &str = "[[namespace]]\nname = \"kept\"\ndevice = \"disk\"\nsize = \"1MiB\"\n";
    let new = || live(&format!("{DISK}{TWO}{KEPT}"));
    let live = new();
    let place =
        |device, first| worker::Namespace { device, first, blocks: 2_048, read_only: false };
    let wanted = |name: &str| NewNamespace {
        name: name.to_owned(),
        bytes: 1 << 20,
        device: None,
        read_only: false,
        uuid: None,
        subsystems: None,
    };
    // As while a disk discards the blocks behind the namespace, and blocks of the other device.
    live.lock().freeing = vec![place(0, 2_048), place(1, 0)];
    live.add_namespace(&wanted("later")).unwrap();
    let firsts =
        |live: &LiveConfig| live.spaces().iter().map(|one| one.place.first).collect::<Vec<_>>();
    assert_eq!(firsts(&live), [0, 4_096]);
    live.change_tenant(&plain("late")).unwrap();
    let larger = NamespacePatch { bytes: Some(2 << 20), ..NamespacePatch::default() };
    let grown = live.set_namespace("kept", &larger).unwrap_err();
    assert!(grown.message.contains("being given back"), "{}", grown.message);
    let text = format!("{DISK}{}", KEPT.replace("1MiB", "4MiB"));
    let reloaded = live.reload(Config::parse(&text).unwrap()).map(drop);
    let removed = live.remove_device("other");
    for refused in [reloaded, removed] {
        let problem = refused.unwrap_err();
        assert_eq!(problem.code, Code::Busy);
        assert!(problem.message.contains("being given back"), "{}", problem.message);
    }
    assert!(live.freeze().unwrap_err().contains("being given back"));
    let another = new();
    another.add_namespace(&wanted("later")).unwrap();
    assert_eq!(firsts(&another), [0, 2_048], "nothing is being given back there");
}
