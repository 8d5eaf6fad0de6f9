//! Tests that a restart after any power cut finds the last confirmed change, or one requested after
//! it.

use std::path::Path;

use super::super::files::power::{self, Fault};
use super::*;
use crate::config::Config;

/// A server that stores changes in a state file.
struct Server {
    store: Store,
    /// The changes that the last successful call stored.
    kept: Changes,
    /// All states that the server tried to store, oldest first.
    tried: Vec<Changes>,
}

impl Server {
    fn start(path: &Path, tried: Vec<Changes>) -> Server {
        let (store, kept) = Store::open(path, false).unwrap();
        Server { store, kept, tried }
    }

    /// Makes a change, mostly of a tenant. Returns `true` if the change is stored.
    fn change(&mut self, n: usize) -> bool {
        let mut changes = self.kept.clone();
        let name = format!("t{}", n / 2);
        let is_whole = n.is_multiple_of(4);
        if is_whole {
            let key = Some(spec::Secret(format!("key {n}")));
            let nqn = "nqn.x".to_owned();
            let host = spec::Host { key, ..spec::Host::of_name(nqn.clone()) };
            changes.hosts.insert(nqn, Some(host));
        } else {
            let text = format!("[[tenant]]\nname = {name:?}\nweight = {n}\n");
            let tenant = Config::parse(&text).unwrap().tenant.pop();
            changes.tenants.insert(name.clone(), tenant);
        }
        self.tried.push(changes.clone());
        let saved = match is_whole {
            true => self.store.save(&changes),
            false => self.store.save_tenant(&changes, &name),
        };
        if saved.is_ok() {
            power::answered(self.tried.len() as u64 - 1);
            self.kept = changes;
        }
        saved.is_ok()
    }
}

/// Opens the state file in every state that a power cut may leave, and checks that the last
/// confirmed change is found. Returns the number of states.
fn look_everywhere(tried: &[Changes]) -> usize {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("state");
    power::cut_everywhere(folder.path(), |answered| {
        let kept = match Store::open(&path, false) {
            Ok((_, kept)) => kept,
            Err(error) => panic!("after change {answered}: {error}"),
        };
        let found = tried.iter().rposition(|tried| *tried == kept).expect("it was never wanted");
        assert!(found >= answered as usize, "change {found} is found, {answered} was answered");
        // The way back leads somewhere, once there is one.
        let is_long_ago = answered > 8;
        assert!(!is_long_ago || read_previous(&path).is_ok_and(|kept| kept.is_some()));
    })
}

#[test]
fn every_answered_change_survives_a_power_cut() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut server = Server::start(&folder.path().join("state"), vec![Changes::default()]);
    for n in 0..14 {
        assert!(server.change(n));
    }
    let states = look_everywhere(&server.tried);
    assert!(states > 90, "{states}");
}

/// Tests that a server that starts after a kill builds only on changes that no power cut undoes.
#[test]
fn a_server_that_was_killed_builds_on_nothing_that_a_power_cut_undoes() {
    for n in 0.. {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("state");
        let mut server = Server::start(&path, vec![Changes::default()]);
        let made = power::set_fault(Fault::None);
        power::set_fault(Fault::From(made + n));
        let is_over = (0..6).all(|n| server.change(n));
        power::set_fault(Fault::None);
        let mut server = Server::start(&path, server.tried);
        let found = server.tried.iter().rposition(|tried| *tried == server.kept).unwrap();
        power::answered(found as u64);
        for n in 6..9 {
            assert!(server.change(n));
        }
        look_everywhere(&server.tried);
        if is_over {
            assert!(n > 30, "{n} calls");
            return;
        }
    }
}

#[test]
fn a_change_that_the_disk_refused_takes_none_with_it() {
    for n in 0.. {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut server = Server::start(&folder.path().join("state"), vec![Changes::default()]);
        let made = power::set_fault(Fault::None);
        power::set_fault(Fault::Once(made + n));
        let kept = (0..7).filter(|n| server.change(*n)).count();
        power::set_fault(Fault::None);
        assert!(kept >= 6 && server.change(7), "one call fails one change");
        let is_over = power::set_fault(Fault::None) <= made + n;
        look_everywhere(&server.tried);
        if is_over {
            return;
        }
    }
}

/// Tests that the state that a start finds is synced, or that the store is in doubt, so that the
/// next change writes it again.
#[test]
fn what_is_found_at_a_start_is_synced_or_in_doubt() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("state");
    let mut server = Server::start(&path, vec![Changes::default()]);
    (0..3).for_each(|n| assert!(server.change(n)));
    for n in 0..3 {
        let made = power::set_fault(Fault::None);
        power::set_fault(Fault::Once(made + n));
        server = Server::start(&path, server.tried);
        power::set_fault(Fault::None);
        assert!(server.store.is_in_doubt() && server.store.log.is_none(), "call {n}");
    }
    let server = Server::start(&path, server.tried);
    assert!(!server.store.is_in_doubt() && server.store.log.is_some());
}
