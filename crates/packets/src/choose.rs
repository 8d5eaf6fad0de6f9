//! The choice of the path for the next packet of an association.

use core::time::Duration;

use contract::Instant;

use crate::association::Association;
use crate::pack::AllowedRecords;
use crate::pools::Pools;
use crate::sent::SentPacketState;
use crate::slab::NONE;

/// The time without a packet after which a path is asked for its round-trip time, while the
/// association has something to send. Otherwise a path that was slow once would not be tried again.
const FORGOTTEN: Duration = Duration::from_millis(100);

/// Returns the path for the next packet with records, and the load of the packet. A path that has
/// to be probed comes first: it gets a ping if another path answers, and messages otherwise. Then
/// comes the path that would deliver the packet first. Returns `None` if no path may send, or no
/// record waits.
pub(crate) fn choose(
    association: &mut Association,
    pools: &mut Pools,
    now: Instant,
) -> Option<(u32, AllowedRecords)> {
    let asking = association.paths().find(|path| {
        let may = pools.paths[*path].flight.probes_now && pools.lane_has_room(*path);
        may && is_free(pools, *path)
    });
    if let Some(path) = asking {
        let answers = |other: u32| other != path && pools.paths[other].answers();
        let may_wait = association.paths().any(answers) && pools.pieces.free() > 0;
        let load = if may_wait { AllowedRecords::Ping } else { AllowedRecords::Any };
        association.words.pings |= load == AllowedRecords::Ping || !association.words.are_any();
        return Some((path, load));
    }
    if !association.words.are_any() || is_spent(association, pools) {
        return None;
    }
    if let Some(path) = forgotten(association, pools, now) {
        association.words.pings = true;
        return Some((path, AllowedRecords::Ping));
    }
    fastest(association, pools, now).map(|path| (path, AllowedRecords::Any))
}

/// Returns a path that has carried nothing for so long that its round-trip time may have changed,
/// or was never measured. Returns `None` if there is none, or the association has one path.
fn forgotten(association: &Association, pools: &mut Pools, now: Instant) -> Option<u32> {
    if association.paths[1] == NONE || pools.pieces.free() == 0 {
        return None;
    }
    association.paths().find(|place| {
        let path = &pools.paths[*place];
        let is_idle = path.flight.packets == 0 && now - path.flight.asked_at >= FORGOTTEN;
        path.answers() && is_idle && pools.lane_has_room(*place) && is_free(pools, *place)
    })
}

/// Returns `true` if the credits are used up. Packets on silent paths do not count while another
/// path answers, so that the retransmission of their pieces need not wait for credits.
fn is_spent(association: &Association, pools: &Pools) -> bool {
    if association.in_flight < association.credits {
        return false;
    }
    let (mut answering, mut counted) = (false, 0);
    for path in association.paths().map(|path| &pools.paths[path]).filter(|path| path.answers()) {
        (answering, counted) = (true, counted + path.flight.packets);
    }
    !answering || counted >= association.credits
}

/// Returns the path that would deliver a full packet first, of those with room for one. Paths
/// that leave a probe unanswered are left out while another path answers.
fn fastest(association: &Association, pools: &mut Pools, now: Instant) -> Option<u32> {
    let mut best: Option<(Duration, u32)> = None;
    let (mut has_answering, mut is_best_answering) = (false, false);
    for place in association.paths() {
        let path = &pools.paths[place];
        let (bytes, answers) = (u32::from(path.bytes), path.answers());
        has_answering |= answers;
        let may = path.is_proven && path.paced_until <= now && path.has_room(bytes);
        let may = may && pools.lane_has_room(place);
        if may && (answers || !has_answering) && is_free(pools, place) {
            let delivery = pools.paths[place].delivery(bytes);
            if answers && !is_best_answering || best.is_none_or(|(least, _)| delivery < least) {
                (best, is_best_answering) = (Some((delivery, place)), answers);
            }
        }
    }
    best.filter(|_| is_best_answering || !has_answering).map(|(_, path)| path)
}

/// Returns `true` if a path has a window of sent packets whose slot for the next packet is free.
fn is_free(pools: &mut Pools, path: u32) -> bool {
    if !pools.arm(path) {
        return false;
    }
    let path = &pools.paths[path];
    pools.windows[path.flight.window].evicted(path.flight.next).fate != SentPacketState::InFlight
}
