//! Changes without workers.

use std::sync::mpsc::channel;

use contract::ListenerId;
use control::admin::{AddNamespace, Estate};
use control::{Desk, PostBox};
use flash::Spec;
use target::{Access, Fences, Listeners, Namespaces};

use super::*;
use crate::config::Mistakes;
use crate::listen::NUMBER_MAX;
use crate::orders::Orders;
use crate::tenancy;
use crate::volumes::Volume;

const DISK: &str = "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n";

/// A server without workers, that has this.
fn live(config: &str) -> Arc<Live> {
    let base = Config::parse(config).unwrap();
    let clock = Clock::start();
    let now: control::Clock = Arc::new(move || clock.now());
    let config = base.with(&Changes::default());
    let specs: Vec<Spec> = base.device.iter().map(|one| one.spec.parse().unwrap()).collect();
    let limits = Mistakes::collect(|wrong| base.limits_or(wrong)).unwrap();
    let needs = tenancy::Needs {
        base: &base,
        config: &config,
        listen: &[],
        specs: &specs,
        workers: 1,
        tenants_max: limits.tenants,
    };
    let tenants = Mistakes::collect(|wrong| tenancy::tenants(&needs, now, wrong)).unwrap();
    let open = |device: &crate::config::DeviceConfig| {
        let spec: Spec = device.spec.parse().unwrap();
        (device.name.clone(), Volume::open(&spec).unwrap())
    };
    let places = Arc::new(Places::of(base.device.iter().map(open).collect()));
    let shared = Arc::new(Parts {
        namespaces: Namespaces::new(Vec::new()),
        access: Access::new(Vec::new()),
        listeners: Listeners::with_places(NUMBER_MAX),
        fences: Fences::default(),
    });
    let ground = Ground {
        places,
        shared,
        fabric: Arc::default(),
        wakers: Wakers::default(),
        workers: 1,
        clock,
        tenants,
        tcp: TcpOptions::default(),
        insecure: false,
        drain_limit: Duration::from_secs(10),
    };
    Live::new(ground, Vec::new(), base, Changes::default(), None).unwrap()
}

/// Opens its gate, behind which nobody is: what is ordered is done at once.
fn open_gate(live: &Live) -> (Arc<Orders>, Vec<PostBox>) {
    let (desk, boxes) = Desk::new(live.ground.tenants.clone(), 1);
    let orders = Arc::new(Orders::new(0));
    let gate = Gate { orders: orders.clone(), wakers: Vec::new(), foreman: desk.foreman() };
    live.set_gate(gate);
    (orders, boxes)
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
    let wanted = AddNamespace {
        name: "more".to_owned(),
        bytes: 1 << 20,
        device: None,
        read_only: false,
        subsystems: None,
    };
    let busy = |done: Result<(), Problem>| {
        assert_eq!(done.unwrap_err().code, Code::Busy);
    };
    busy(live.add_namespace(&wanted).map(drop));
    let begun = live.ground.clock.now();
    for _ in 0..100 {
        busy(live.add_namespace(&wanted).map(drop));
        busy(live.keep_tenant("anybody"));
        busy(live.remove_tenant("anybody"));
    }
    assert!(live.ground.clock.now().since(begun) < SETTLE_MAX, "each waited");
    drop(hangs);
    live.keep_tenant("nobody").unwrap();
}

/// However the device's configuration names it: a start looks for that number.
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
    }
}

#[test]
fn a_listener_that_a_worker_has_refused_is_none_after_a_reload() {
    let live = live(DISK);
    let (orders, _boxes) = open_gate(&live);
    let config = format!("{DISK}[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n");
    orders.cannot_listen(ListenerId(0), "no descriptors are left".to_owned());
    let later = live.reload(Config::parse(&config).unwrap()).unwrap();
    assert!(later.iter().any(|why| why.contains("no descriptors are left")), "{later:?}");
    assert!(live.listeners().unwrap().listeners.is_empty());
    // It is tried again, and not called by what the other was.
    assert_eq!(live.reload(Config::parse(&config).unwrap()).unwrap(), Vec::<String>::new());
    let listed = live.listeners().unwrap().listeners;
    assert_eq!(listed.iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
    assert!(live.lock().open[0].at.id != ListenerId(0) && live.open_sockets().1.is_empty());
}
