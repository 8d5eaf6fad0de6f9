//! The persistent reservations of hosts: storing and restoring them.

use proto::nvme::{Fabric, StoredReservation};

use super::LiveState;
use super::kept_reservation::KeptReservation;

/// Restores the stored reservations in the fabric. If there is a state file, the fabric answers
/// later changes of persistent reservations only once they are stored.
pub(super) fn restore(fabric: &Fabric, inner: &LiveState) {
    for kept in &inner.changes.reservations {
        let is_it = inner.world.uuid_of(&kept.subsystem, kept.nsid) == Some(kept.uuid);
        let reserved = kept.reserved().filter(|_| is_it);
        let restored = reserved.map(|reserved| fabric.restore_reservation(reserved));
        if !matches!(restored, Some(Ok(()))) {
            let (subsystem, nsid) = (&kept.subsystem, kept.nsid);
            tracing::warn!(subsystem, nsid, "a kept reservation fits no namespace any more");
        }
    }
    if inner.store.is_some() {
        fabric.keep_reservations();
    }
}

/// Stores the present NVMe reservations, and answers the hosts that wait for their durability.
/// While another process takes over, notes only that reservations are to be stored later.
pub(super) fn keep(fabric: &Fabric, inner: &mut LiveState) {
    if inner.is_frozen {
        inner.keeps_later = true;
        return;
    }
    let (change, reserved) = fabric.reservations_to_keep();
    let kept = |reserved: &StoredReservation| {
        let uuid = inner.world.uuid_of(reserved.subsystem.as_str(), reserved.nsid)?;
        Some(KeptReservation::of(reserved, uuid))
    };
    let reservations: Vec<KeptReservation> = reserved.iter().filter_map(kept).collect();
    let outcome = inner.keep_those(reservations);
    if let Err(problem) = &outcome {
        tracing::error!(error = problem.message, "a reservation is not kept");
    }
    fabric.kept_reservations(change, outcome.is_ok());
}
