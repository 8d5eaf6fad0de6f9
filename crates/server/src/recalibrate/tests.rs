//! Tests of recalibrations whose devices, namespaces and models change, without probes.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use contract::{Feedback, IoKind, Scheduler};
use control::WorkerController;
use control::admin::{Automatic, DevicePatch, Inventory, NamespacePatch};
use qos::QueueLimits;

use super::*;
use crate::config::Config;
use crate::live::LiveConfig;
use crate::live::tests::{live, open_gate, recalibrations};

const REST: &str = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
                    [[namespace]]\nname = \"data\"\ndevice = \"disk\"\nsize = \"32MiB\"\n\
                    [[namespace]]\nname = \"x\"\ndevice = \"disk\"\noffset = \"32MiB\"\nsize = \"16MiB\"\n\
                    [[namespace]]\nname = \"y\"\ndevice = \"disk\"\noffset = \"48MiB\"\nsize = \"16MiB\"\n";

/// Returns a configuration of a device with these settings, three namespaces, and a listener at a
/// free port.
fn config(device: &str) -> String {
    format!("[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\nmodel = \"a\"\n{device}{REST}")
}

const BY_ITSELF: &str = "recalibrate = \"idle\"\nrecalibrate_scratch = \"x\"\n";

/// Creates a server whose device is recalibrated automatically and may be overwritten in namespace
/// `x`.
fn server() -> (Arc<LiveConfig>, Arc<Recalibrations>) {
    let live = live(&config(BY_ITSELF));
    let all = recalibrations(&live);
    (live, all)
}

fn scratch(name: &str) -> DevicePatch {
    DevicePatch { recalibrate_scratch: Some(name.to_owned()), ..DevicePatch::default() }
}

fn off() -> DevicePatch {
    DevicePatch { recalibrate: Some(Automatic::Off), ..DevicePatch::default() }
}

impl Recalibrations {
    /// Begins an automatic recalibration, as if the device had drifted from its model.
    fn drifts(&self) {
        self.begin_automatically("disk", self.tools.tenants.now());
    }

    /// Records a measured model that is held back because not all promises fit into it.
    fn holds_back(&self) {
        self.drifts();
        let found = self.tools.tenants.registry().devices().model("disk").unwrap().clone();
        self.lock().jobs.get_mut("disk").unwrap().held = Some(found);
        self.end("disk", Phase::Held, None);
    }

    fn phase(&self) -> Phase {
        self.recalibration("disk").unwrap().unwrap().phase
    }

    /// Begins a recalibration as the thread does before the first probe. Returns the place where
    /// probes may write.
    fn begins(&self) -> Result<Option<BlockRange>, Problem> {
        let asked = self.begin("disk").unwrap();
        self.scratch("disk", &asked, &Arc::default())
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tests that reads which take longer than the model says are told and begin a recalibration, in
/// time that the test makes up: the worker's scheduler measures, and the control plane's thread
/// looks.
#[test]
fn a_drift_is_told_and_begins_a_recalibration() {
    let (_live, all) = server();
    let tenants = &all.tools.tenants;
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _lines = tracing::subscriber::set_default(lines);
    let (mut controller, _boxes) = WorkerController::new(tenants.clone(), 1);
    let mut scheduler = tenants.scheduler(0, 0, QueueLimits { slots: 8, of_tenant: 8 });
    let drift = || tenants.registry().devices().infos()[0].drift.unwrap();
    let begun = tenants.now();
    let mut steps = 0;
    while !matches!(drift(), Drift::Drifted { .. }) {
        assert!(matches!(drift(), Drift::Unknown(_)) && !log.text().contains("has drifted"));
        all.look_at_devices(&mut HashMap::new());
        assert!(all.lock().jobs.is_empty(), "nothing is wrong yet");
        steps += 1;
        let now = begun + steps * Duration::from_millis(100);
        scheduler.begin_round(now);
        while scheduler.next().is_some() {}
        (0..200).for_each(|_| scheduler.ended(IoKind::Read, Duration::from_millis(20)));
        controller.serve(now);
        assert!(steps < 200, "no drift is found within 20 s of virtual time");
    }
    assert_eq!(log.text().matches("has drifted from its model").count(), 1, "{}", log.text());
    all.look_at_devices(&mut HashMap::new());
    let told = all.recalibration("disk").unwrap().unwrap();
    assert!(told.automatic && told.phase == Phase::Waiting, "{told:?}");
    assert_eq!(told.asked.scratch.as_deref(), Some("x"));
}

#[test]
fn a_job_that_waits_follows_what_is_said_of_its_device() {
    let (live, all) = server();
    all.drifts();
    let waits_for = || {
        let told = all.recalibration("disk").unwrap().unwrap();
        assert_eq!(told.phase, Phase::Waiting);
        told.asked.scratch
    };
    assert_eq!(waits_for().as_deref(), Some("x"));
    live.set_device("disk", &scratch("y")).unwrap();
    assert_eq!(waits_for().as_deref(), Some("y"));
    live.set_device("disk", &scratch("")).unwrap();
    assert_eq!(waits_for(), None);
    live.set_device("disk", &off()).unwrap();
    assert_eq!(all.phase(), Phase::Cancelled);
    all.lock().jobs.clear();
    all.drifts();
    assert!(all.lock().jobs.is_empty(), "none begins any more");
}

/// Tests that a job that has begun does not write to a namespace that is no longer the device's
/// scratch namespace.
#[test]
fn a_job_that_begins_writes_nowhere_that_is_not_scratch_any_more() {
    let (live, all) = server();
    for to in [scratch(""), off()] {
        all.lock().jobs.clear();
        all.drifts();
        let asked = all.begin("disk").unwrap();
        live.set_device("disk", &to).unwrap();
        assert!(all.scratch("disk", &asked, &Arc::default()).is_err(), "{to:?}");
        assert!(all.lock().probing.is_none());
        all.give_way("disk");
        assert_eq!(all.phase(), Phase::Cancelled, "it does not come again");
    }
}

#[test]
fn nothing_else_is_said_of_a_device_before_its_probes_have_ended() {
    let (live, all) = server();
    all.drifts();
    assert!(all.begins().unwrap().is_some());
    let quick = DevicePatch { recalibrate_idle_seconds: Some(1), ..DevicePatch::default() };
    live.set_device("disk", &quick).unwrap();
    assert!(all.lock().is_wanted("disk"), "that changes nothing about where it writes");
    let said = live.set_device("disk", &scratch("")).unwrap_err();
    assert_eq!(said.code, Code::Busy, "{}", said.message);
    assert_eq!(all.lock().policy("disk").scratch.as_deref(), Some("x"), "nothing has changed");
    assert!(!all.lock().is_wanted("disk"));
    all.end("disk", Phase::Cancelled, None);
    live.set_device("disk", &scratch("")).unwrap();
    assert_eq!(all.lock().policy("disk").scratch, None);
}

#[test]
fn a_reload_says_nothing_else_of_a_device_before_its_probes_have_ended() {
    let (live, all) = server();
    all.drifts();
    assert!(all.begins().unwrap().is_some());
    let (_orders, _boxes) = open_gate(&live);
    let reload = || live.reload(Config::parse(&config("")).unwrap()).unwrap().later;
    let later = reload();
    assert!(later.len() == 1 && later[0].contains("still at the device"), "{later:?}");
    assert!(all.lock().policy("disk").is_automatic);
    all.end("disk", Phase::Cancelled, None);
    assert_eq!(reload(), Vec::<String>::new());
    assert!(!all.lock().policy("disk").is_automatic);
}

/// Tests that an operator's request keeps its scratch namespace, whatever the device's settings
/// are.
#[test]
fn what_an_operator_has_asked_for_goes_on_whatever_is_said_of_the_device() {
    let (live, all) = server();
    let how = StartRecalibration { when: When::Idle, scratch: Some("x".into()), accept: false };
    Recalibrator::start(&*all, "disk", &how).unwrap();
    live.set_device("disk", &scratch("")).unwrap();
    assert_eq!(all.phase(), Phase::Waiting);
    assert!(all.begins().unwrap().is_some());
    live.set_device("disk", &off()).unwrap();
    assert!(all.lock().is_wanted("disk"));
}

/// Tests that a waiting job does not overwrite another namespace that got the name of its scratch
/// namespace.
#[test]
fn who_waits_to_overwrite_a_namespace_takes_no_other_that_gets_its_name() {
    let (live, all) = server();
    let how = StartRecalibration { when: When::Idle, scratch: Some("y".into()), accept: false };
    Recalibrator::start(&*all, "disk", &how).unwrap();
    assert!(all.begins().unwrap().is_some());
    all.lock().probing = None;
    for (name, new) in [("y", "z"), ("data", "y")] {
        let to = NamespacePatch { name: Some(new.to_owned()), ..NamespacePatch::default() };
        live.set_namespace(name, &to).unwrap();
    }
    let refused = all.begins().unwrap_err();
    // That one shares its blocks with nobody, and could be overwritten.
    assert!(refused.message.contains("another one"), "{}", refused.message);
    assert!(all.lock().probing.is_none());
}

/// Returns the change by which the device gets the model `cloud` in place of `a`.
fn other_model() -> DevicePatch {
    DevicePatch { model: Some("cloud".to_owned()), ..DevicePatch::default() }
}

#[test]
fn what_is_held_back_is_forgotten_with_the_model_beside_which_it_was_found() {
    let (live, all) = server();
    all.holds_back();
    live.set_device("disk", &scratch("y")).unwrap();
    assert_eq!(all.phase(), Phase::Held, "it has the same model");
    live.set_device("disk", &other_model()).unwrap();
    assert_eq!(all.phase(), Phase::Cancelled);
    assert_eq!(all.accept("disk").unwrap_err().code, Code::NotFound);
    let registry = all.tools.tenants.registry();
    assert_eq!(
        registry.devices().model("disk").unwrap(),
        registry.devices().configured_model("disk").unwrap()
    );
}

#[test]
fn who_resets_a_model_goes_back_to_the_one_that_an_operator_names_meanwhile() {
    let (_live, all) = server();
    let tenants = &all.tools.tenants;
    let (modelling, resetter) = (all.modelling.lock().unwrap(), all.clone());
    let (told, begins) = channel();
    let resets = std::thread::spawn(move || {
        told.send(()).unwrap();
        resetter.reset_model("disk")
    });
    begins.recv().unwrap();
    // What comes of it does not depend on how far it is by then.
    std::thread::sleep(Duration::from_millis(100));
    let other = crate::tenancy::model("cloud").unwrap();
    tenants.registry().configure_model("disk", other.clone(), tenants.now()).unwrap();
    drop(modelling);
    resets.join().unwrap().unwrap();
    assert_eq!(tenants.registry().devices().model("disk").unwrap(), &other);
}

/// Tests that operators do not wait while a disk does not store a model, since each would occupy a
/// thread.
#[test]
fn operators_do_not_wait_for_a_model_that_a_disk_does_not_keep() {
    let (live, all) = server();
    all.holds_back();
    // As while what was measured is kept; and somebody has waited for the end of that before.
    let keeps = all.modelling.lock().unwrap();
    all.is_stuck.store(true, Ordering::Release);
    let (told, answer) = channel();
    let operator = all.clone();
    std::thread::spawn(move || {
        let set = live.set_device("disk", &other_model()).map(drop);
        let (reset, accepted) = (operator.reset_model("disk"), operator.accept("disk").map(drop));
        told.send([set, reset, accepted].map(|done| done.map_err(|problem| problem.code)))
    });
    let done = answer.recv_timeout(Duration::from_secs(60)).expect("nobody waits for good");
    assert_eq!(done, [Err(Code::Busy); 3]);
    drop(keeps);
    all.reset_model("disk").unwrap();
}

/// Tests that a measurement is not refused because a change was in progress when it began.
#[test]
fn what_a_change_is_in_the_way_of_is_tried_again_for_a_while() {
    let tried = |fails: u32, code, rests: u32| {
        let (mut tries, mut rested) = (0, 0);
        let attempt = || {
            tries += 1;
            if tries > fails { Ok(()) } else { Err(Problem::new(code, "another change")) }
        };
        let rest = || {
            rested += 1;
            rested <= rests
        };
        let done = patiently(attempt, rest);
        (done.map_err(|problem| problem.code), tries)
    };
    let ever = u32::MAX;
    assert_eq!(tried(0, Code::Busy, ever), (Ok(()), 1));
    assert_eq!(tried(3, Code::Busy, ever), (Ok(()), 4));
    assert_eq!(tried(ever, Code::Busy, ever), (Err(Code::Busy), SCRATCH_TRIES));
    assert_eq!(tried(3, Code::Invalid, ever), (Err(Code::Invalid), 1));
    assert_eq!(tried(ever, Code::Busy, 1), (Err(Code::Busy), 2), "nobody wants it any more");
}

#[test]
fn a_device_is_added_with_its_policy_but_for_a_namespace_that_cannot_be_there_yet() {
    let (live, all) = server();
    let _workers = open_gate(&live);
    let new = spec::Device {
        model: Some("a".to_owned()),
        recalibrate: Automatic::Idle,
        recalibrate_idle_seconds: Some(5),
        ..spec::Device::new("new".to_owned(), "null:1MiB".to_owned())
    };
    let named = spec::Device { recalibrate_scratch: Some("data".to_owned()), ..new.clone() };
    assert_eq!(live.add_device(&named).unwrap_err().code, Code::Invalid);
    live.add_device(&new).unwrap();
    let policy = all.lock().policy("new");
    assert_eq!((policy.is_automatic, policy.idle_after), (true, Duration::from_secs(5)));
}
