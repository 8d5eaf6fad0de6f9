//! A peer whose address changes: a translator of addresses (NAT) gave it another port, or it went
//! to another network.
//!
//! Only packets that authenticate count, so an association without a key stays at its address. A
//! newest packet of a path that comes from another address is taken, and answered by a small probe
//! to that address. The path stays where it is until the probe's number comes back from there: who
//! copies packets of the peer and sends them from an address of its own gets a probe for each, no
//! larger than the copy, and nothing else (RFC 9000, section 9.3). There are no timers: the peer
//! repeats what is not acknowledged, and each repetition is answered by another probe.
//!
//! Deliberately not here: the address of an acceptor, which the end that dialled knows.

use wire::packets::{PacketKind, ProbeBody, TAG_BYTES};
use zerocopy::{FromBytes, IntoBytes};

use crate::association::Association;
use crate::event::AssociationId;
use crate::head::{HEAD_BYTES, ParsedHead};
use crate::packet::Packet;
use crate::path::Path;
use crate::peer_address::PeerAddress;
use crate::pools::Pools;
use crate::secret::Secret;

/// The size of a probe to another address in bytes.
const PROBE_BYTES: usize = HEAD_BYTES + size_of::<ProbeBody>() + TAG_BYTES;

/// A probe that is to be sent to another address, from which packets of the peer came by a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressProbe {
    pub association: AssociationId,
    path: u32,
    peer_address: PeerAddress,
    /// The number that the peer has to return from there.
    challenge: u64,
}

/// Returns the path of a sealed packet that came from another address than the path's; `None` if
/// the peer's address cannot change. The packet is not authenticated yet.
pub(crate) fn path_of_moved(
    association: &Association,
    pools: &Pools,
    head: &ParsedHead,
    lane: u8,
) -> Option<u32> {
    let id = head.mark?.path;
    let is_its = |path: &u32| (pools.paths[*path].lane, pools.paths[*path].id) == (lane, id);
    association.paths().find(is_its).filter(|_| !association.words.is_initiator)
}

/// Returns the probe in answer to an authentic packet that has come by a path from another address;
/// `None` unless the packet is the path's newest, and no smaller than the probe. An older one was
/// on its way for long, or is a copy.
pub(crate) fn answer_to(
    (association, path): (&Association, u32),
    (pools, secret): (&Pools, &Secret),
    head: &ParsedHead,
    peer_address: PeerAddress,
) -> Option<AddressProbe> {
    let Path { receipt, id, .. } = &pools.paths[path];
    let number = receipt.seen.complete(head.number, 32);
    let is_newest = receipt.seen.highest().is_none_or(|highest| number > highest);
    let challenge = secret.challenge(&peer_address, (association.cookie, *id));
    let is_answered = is_newest && head.bytes >= PROBE_BYTES;
    is_answered.then(|| AddressProbe {
        association: association.id(),
        path,
        peer_address,
        challenge,
    })
}

/// Writes a probe to another address. It has no acknowledgement, which belongs to the address where
/// the peer is known to be.
pub(crate) fn ask(
    association: &Association,
    pools: &mut Pools,
    credits: u16,
    there: &AddressProbe,
    packet: &mut Packet,
) {
    let path = &mut pools.paths[there.path];
    packet.begin(path.lane, there.peer_address, usize::from(association.packet_bytes));
    let body = ProbeBody { challenge: there.challenge.into(), echo: 0.into() };
    packet.append(body.as_bytes());
    let number = path.flight.next;
    path.flight.next += 1;
    let head = ParsedHead {
        kind: PacketKind::PROBE,
        ack_now: false,
        echo: false,
        bytes: 0,
        association: association.peer.place,
        cookie: association.peer.cookie,
        number: number as u32,
        ack: None,
        credits,
        mark: None,
    };
    (packet.path, packet.number) = (path.id, number);
    packet.finish(head, &pools.messages);
    pools.counters.sent += 1;
}

/// Moves a path to the address from which this probe came, if the probe returns the number that was
/// sent there. What is in flight went to the old address, and leaves again.
pub(crate) fn move_path(
    association: &mut Association,
    (pools, secret): (&mut Pools, &Secret),
    (place, from): (u32, PeerAddress),
    packet: &[u8],
) {
    let path = &mut pools.paths[place];
    let Ok((body, _)) = ProbeBody::read_from_prefix(&packet[HEAD_BYTES..]) else { return };
    let cookie = association.cookie;
    if path.to == from || body.echo.get() != secret.challenge(&from, (cookie, path.id)) {
        return;
    }
    path.to = from;
    path.is_proven = true;
    path.flight.probes = 0;
    path.rtt.forget_least();
    path.control.restart();
    pools.counters.paths_proven += 1;
    let landed = pools.lose_all(place);
    association.land(pools, landed);
}
