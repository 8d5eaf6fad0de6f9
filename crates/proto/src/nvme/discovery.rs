//! The discovery log (Base 5.16.1.23): the subsystems that a host may connect to, and their
//! addresses.

use alloc::vec::Vec;

use wire::nvme::{DiscoveryEntry, DiscoveryHeader, SecureChannel, SubsystemKind, TransportKind};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::config::{Nqn, Port, Referral, Security};
use super::controller::Controller;
use super::identify::padded;
use super::state::State;

/// A transport requirement: flow control of submission queues can be disabled.
const FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;

/// A transport requirement: connections use a secure channel.
const CHANNEL_REQUIRED: u8 = 1;

/// A transport requirement: connections may use a secure channel. Hosts that have TLS ask for it
/// then, so a port without TLS does not say this.
const CHANNEL_POSSIBLE: u8 = 2;

/// The number of entries of the smallest admin queue that a controller has to accept (Base
/// 5.16.1.23, ASQSZ).
const ADMIN_QUEUE_ENTRIES: u16 = 32;

/// The entry flag for permitting a persistent connection to this discovery subsystem.
const PERSISTENT: u16 = 1 << 1;

/// Returns the discovery log as the controller's host sees it: this discovery subsystem and the
/// subsystems that admit the host, at each of their ports, and the referrals.
pub(super) fn discovery_log(state: &State, controller: &Controller) -> Vec<u8> {
    let own = Nqn::discovery();
    let mut entries: Vec<DiscoveryEntry> = Vec::new();
    for port in state.inventory.ports() {
        let here = entry(state, port, &own, SubsystemKind::DISCOVERY);
        entries.push(DiscoveryEntry { flags: U16::new(PERSISTENT), ..here });
        let open = state.inventory.subsystems().filter(|subsystem| {
            subsystem.is_at(port.id) && subsystem.hosts.contain(&controller.association.host)
        });
        for subsystem in open {
            entries.push(entry(state, port, &subsystem.nqn, SubsystemKind::NVM));
        }
    }
    for referral in state.inventory.referrals() {
        let Referral { id, family, address, service, security } = referral.clone();
        let port = Port { id, family, address, service, security };
        entries.push(entry(state, &port, &own, SubsystemKind::REFERRAL));
    }
    // The generation counts this host's own changes only, so it tells nothing about other hosts.
    let head = DiscoveryHeader {
        generation: U64::new(state.generations.of(&controller.association.host)),
        entries: U64::new(entries.len() as u64),
        ..DiscoveryHeader::new_zeroed()
    };
    let mut log = head.as_bytes().to_vec();
    log.extend_from_slice(entries.as_bytes());
    log
}

fn entry(state: &State, port: &Port, nqn: &Nqn, kind: SubsystemKind) -> DiscoveryEntry {
    let (channel, kind_of_channel) = match port.security {
        Security::None => (0, SecureChannel::NONE),
        Security::Possible => (CHANNEL_POSSIBLE, SecureChannel::TLS_1_3),
        Security::Required => (CHANNEL_REQUIRED, SecureChannel::TLS_1_3),
    };
    let mut specific = [0; 256];
    specific[0] = kind_of_channel.0;
    DiscoveryEntry {
        transport: TransportKind::TCP,
        family: port.family,
        kind,
        requirements: FLOW_CONTROL_OPTIONAL | channel,
        port: U16::new(port.id.0),
        cntlid: U16::new(u16::MAX),
        admin_queue_max: U16::new(
            ADMIN_QUEUE_ENTRIES.max(state.inventory.limits().queue_entries_max),
        ),
        service: padded(&port.service),
        nqn: nqn.to_field(),
        address: padded(&port.address),
        specific,
        ..DiscoveryEntry::new_zeroed()
    }
}
