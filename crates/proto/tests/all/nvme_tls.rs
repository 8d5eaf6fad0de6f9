//! Tests of connections over TLS at the controller: who may connect by which names, which keys a
//! fabric knows, and what discovery says.

use contract::{ProtocolError, Psk};
use nearflash_proto::nvme::psk::{TlsIdentity, TlsKey};
use nearflash_proto::nvme::{
    Config, Fabric, Host as Known, Origin, PortId, Referral, Security, psks,
};
use nearflash_proto::nvme_tcp::{Digests, HostEvent, HostSession, TransferSizes};
use wire::nvme::{
    AddressFamily, Completion, ConnectData, DiscoveryEntry, DiscoveryHeader, LogPage,
    SecureChannel, Status, SubsystemKind,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::nvme_host::*;
use crate::nvme_tcp_pair::{DEPTH, Target, connect_entry};

/// Sends a Connect by the names in `data`, and returns its completion.
fn answer(target: &mut Target, data: &ConnectData) -> Completion {
    let mut host = HostSession::new(Digests::default(), DEPTH);
    target.feed(&host.greeting());
    let said = std::mem::take(&mut target.out);
    host.next_event(&mut &said[..]).unwrap();
    let mut out = Vec::new();
    host.command(&connect_entry(false), TransferSizes::default(), data.as_bytes(), &mut out);
    target.feed(&out);
    let said = std::mem::take(&mut target.out);
    let event = host.next_event(&mut &said[..]).unwrap();
    let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
    completion
}

#[test]
fn who_has_proven_one_name_connects_by_no_other() {
    let (name, other) = (host(1).nqn, host(2).nqn);
    let invalid = Status::CONNECT_INVALID;
    for (identity, status, at) in [
        (format!("NVMe1R01 {name} {SUBSYSTEM} digest="), Status::SUCCESS, 0),
        (format!("NVMe0R02 {name} {SUBSYSTEM}"), Status::SUCCESS, 0),
        (format!("NVMe1R01 {other} {SUBSYSTEM} digest="), Status::CONNECT_INVALID_HOST, 0),
        (format!("NVMe1R01 {name} {DISCOVERY} digest="), invalid, 1 << 16 | 256),
        (format!("NVMe1R01 {name} {OTHER_SUBSYSTEM} digest="), invalid, 1 << 16 | 256),
        // Whatever it is, no host has proven it.
        ("nonsense".to_owned(), Status::CONNECT_INVALID_HOST, 0),
    ] {
        let (target, data) = Target::new();
        let mut target = target.secured(&identity);
        let completion = answer(&mut target, &data);
        assert_eq!(completion.status().plain(), status, "{identity}");
        if status == Status::SUCCESS {
            assert_eq!(target.ended, None);
        } else {
            assert_eq!(
                (completion.result.get(), target.ended),
                (at, Some(ProtocolError::Ended(0)))
            );
        }
    }
}

#[test]
fn a_session_over_tls_does_not_move_before_its_connect() {
    let (target, data) = Target::new();
    assert!(target.is_settled());
    let mut target = target.secured(&format!("NVMe0R01 {} {SUBSYSTEM}", host(1).nqn));
    assert!(!target.is_settled());
    assert_eq!(answer(&mut target, &data).status(), Status::SUCCESS);
    assert!(target.is_settled());
    target.travel();
}

fn key(byte: u8) -> TlsKey {
    TlsKey::new(&[byte; 32], None).unwrap()
}

/// Returns a configuration whose first host has these keys.
fn with_keys(tls_key: Option<TlsKey>, former_tls_key: Option<TlsKey>) -> Config {
    let mut config = config();
    config.hosts = vec![Known {
        nqn: nqn(&host(1).nqn),
        tenant: None,
        key: None,
        former_key: None,
        controller_key: None,
        methods: None,
        tls_key,
        former_tls_key,
    }];
    config
}

#[test]
fn a_fabric_knows_the_keys_of_its_hosts_alone() {
    let who = TlsIdentity::new(&host(1).nqn, SUBSYSTEM).unwrap();
    let zero = format!("NVMe0R01 {} {SUBSYSTEM}", host(1).nqn);
    let [new, old] = [key(1), key(2)].map(|key| key.offered(&who));
    let both = fabric(&with_keys(Some(key(1)), Some(key(2))));
    let find = |fabric: &Fabric, identity: &str| -> Vec<Psk> {
        psks(fabric, &[identity.as_bytes()]).map(|(_, psks)| psks).unwrap_or_default()
    };
    // Under an identity of version 1, its own key in each form of derivation.
    let of = |byte: u8, identity: &str| -> Vec<Psk> {
        key(byte).psks(&who, identity.as_bytes()).collect()
    };
    for (byte, offer) in [(1, &new), (2, &old)] {
        let found = find(&both, &offer.identity);
        assert_eq!(found.first(), Some(&offer.psk));
        assert_eq!(found, of(byte, &offer.identity));
    }
    // Under one of version 0, each key in each form of derivation.
    let all = find(&both, &zero);
    assert_eq!(all.len(), 4);
    assert!(key(1).psks(&who, zero.as_bytes()).eq(all[..2].iter().cloned()), "the new one first");
    let one = fabric(&with_keys(Some(key(1)), None));
    assert_eq!(find(&one, &new.identity), of(1, &new.identity));
    assert_eq!(find(&one, &old.identity), []);
    assert_eq!(find(&one, &zero.replace("host1", "host2")), []);
    assert_eq!(find(&one, "nonsense"), []);
    // Of several, the first one with a key, by its place among all.
    let several = ["nonsense", &old.identity, &new.identity, &zero].map(str::as_bytes);
    assert_eq!(psks(&one, &several), Some((2, of(1, &new.identity))));
    assert_eq!(psks(&one, &several[..2]), None);
}

/// Returns the origin of a connection over TLS with this key, for the first host.
fn over_tls(byte: u8, conn: u32) -> Origin {
    let who = TlsIdentity::new(&host(1).nqn, SUBSYSTEM).unwrap();
    let proven = Some(key(byte).offered(&who).psk.mark);
    Origin { proven, ..Origin::plain(PortId(1), place(0, conn)) }
}

#[test]
fn a_key_that_was_replaced_connects_nobody() {
    let fabric = fabric(&with_keys(Some(key(1)), None));
    let connected = |byte: u8, conn| {
        let opened = open_from(&fabric, &host(1), SUBSYSTEM, over_tls(byte, conn));
        opened.map(drop).map_err(|completion| completion.status().plain())
    };
    let refused = Err(Status::CONNECT_INVALID_HOST);
    assert_eq!([connected(1, 0), connected(2, 1)], [Ok(()), refused]);
    // Both are good while the new key replaces the old one.
    let known = |config: Config| config.hosts[0].clone();
    fabric.set_host(known(with_keys(Some(key(2)), Some(key(1))))).unwrap();
    assert_eq!([connected(1, 2), connected(2, 3)], [Ok(()), Ok(())]);
    fabric.set_host(known(with_keys(Some(key(2)), None))).unwrap();
    assert_eq!([connected(1, 4), connected(2, 5)], [refused, Ok(())]);
}

#[test]
fn a_controller_that_was_created_over_tls_has_no_queue_without_it() {
    let fabric = fabric(&with_keys(Some(key(1)), None));
    let mut session = open_from(&fabric, &host(1), SUBSYSTEM, over_tls(1, 0)).unwrap();
    session.enable();
    let refused = session.io(1, place(0, 1)).unwrap_err();
    assert_eq!(refused.status().plain(), Status::CONNECT_INVALID_HOST);
    assert!(session.io_from(1, over_tls(1, 2)).is_ok());
    // A host that began without TLS may add it.
    let plain = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 3));
    assert!(plain.io(1, place(0, 4)).is_ok() && plain.io_from(2, over_tls(1, 5)).is_ok());
}

#[test]
fn discovery_says_where_tls_is_required_or_possible() {
    for (security, requirements, channel) in [
        (Security::None, 1 << 2, SecureChannel::NONE),
        (Security::Possible, 1 << 2 | 2, SecureChannel::TLS_1_3),
        (Security::Required, 1 << 2 | 1, SecureChannel::TLS_1_3),
    ] {
        let mut config = config();
        config.ports.iter_mut().for_each(|port| port.security = security);
        config.referrals = vec![Referral {
            id: PortId(9),
            family: AddressFamily::IPV4,
            address: "192.0.2.1".to_owned(),
            service: "8009".to_owned(),
            security,
        }];
        let fabric = fabric(&config);
        let mut discovery = connect(&fabric, &host(1), DISCOVERY, 1, place(0, 0));
        let log = discovery.log(LogPage::DISCOVERY, 16 * 1024).unwrap();
        let (header, _) = DiscoveryHeader::read_from_prefix(&log).unwrap();
        let entries = log[1024..].chunks_exact(1024).take(header.entries.get() as usize);
        let entries: Vec<DiscoveryEntry> =
            entries.map(|entry| DiscoveryEntry::read_from_bytes(entry).unwrap()).collect();
        let kinds: Vec<SubsystemKind> = entries.iter().map(|entry| entry.kind).collect();
        assert!(kinds.contains(&SubsystemKind::NVM) && kinds.ends_with(&[SubsystemKind::REFERRAL]));
        for entry in entries {
            assert_eq!((entry.requirements, entry.specific[0]), (requirements, channel.0));
        }
    }
}
