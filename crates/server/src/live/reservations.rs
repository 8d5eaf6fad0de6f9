//! The reservations of hosts that asked for them to persist.

use std::sync::Arc;

use proto::nvme::{HostId, Nqn, Registrant, Reserved};
use serde::{Deserialize, Serialize};
use wire::nvme::ReservationKind;

use super::reconciler::Reconciler;
use super::{Inner, Live};

/// A reservation that persists through power loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptReservation {
    subsystem: String,
    nsid: u32,
    /// Which namespace that was: another one may get its number.
    uuid: [u8; 16],
    generation: u32,
    registrants: Vec<(KeptHost, u64)>,
    /// The kind by its number; the holder, unless all registrants are.
    held: Option<(u8, Option<KeptHost>)>,
}

/// A registrant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptHost {
    host: String,
    id: [u8; 16],
}

impl KeptHost {
    fn of(registrant: &Registrant) -> KeptHost {
        KeptHost { host: registrant.host.to_string(), id: registrant.id.0 }
    }

    fn registrant(&self) -> Option<Registrant> {
        Some(Registrant { host: Nqn::new(&self.host).ok()?, id: HostId(self.id) })
    }
}

impl KeptReservation {
    fn of(reserved: &Reserved, uuid: [u8; 16]) -> KeptReservation {
        let registrants = reserved.registrants.iter();
        let held = reserved.held.as_ref();
        KeptReservation {
            subsystem: reserved.subsystem.to_string(),
            nsid: reserved.nsid,
            uuid,
            generation: reserved.generation,
            registrants: registrants.map(|(whom, key)| (KeptHost::of(whom), *key)).collect(),
            held: held.map(|(kind, holder)| (kind.0, holder.as_ref().map(KeptHost::of))),
        }
    }

    fn reserved(&self) -> Option<Reserved> {
        let registrants = self.registrants.iter();
        let held = match &self.held {
            None => None,
            Some((kind, None)) => Some((ReservationKind(*kind), None)),
            Some((kind, Some(holder))) => {
                Some((ReservationKind(*kind), Some(holder.registrant()?)))
            }
        };
        Some(Reserved {
            subsystem: Nqn::new(&self.subsystem).ok()?,
            nsid: self.nsid,
            generation: self.generation,
            registrants: registrants
                .map(|(whom, key)| Some((whom.registrant()?, *key)))
                .collect::<Option<_>>()?,
            held,
            persists: true,
        })
    }
}

/// Starts the thread that keeps reservations, if they are to be kept.
pub(super) fn start_keeper(live: &Arc<Live>) -> Result<(), String> {
    if live.lock().store.is_none() {
        return Ok(());
    }
    let keeper = Arc::downgrade(live);
    let keep = move || {
        if let Some(live) = keeper.upgrade() {
            keep(&live);
        }
    };
    live.reconciler.ground.wakers.start_keeper(keep)
}

/// Puts back the reservations that were kept, and has them kept from now on.
pub(super) fn restore(to: &Reconciler, inner: &Inner) {
    let Some(fabric) = to.fabric() else { return };
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

/// Keeps the reservations as they are now, and lets those hosts know who wait for that.
pub(super) fn keep(live: &Live) {
    let Some(fabric) = live.fabric() else { return };
    let mut inner = live.lock();
    if inner.is_frozen {
        inner.keeps_later = true;
        return;
    }
    let (change, reserved) = fabric.reservations_to_keep();
    let kept = |reserved: &Reserved| {
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
