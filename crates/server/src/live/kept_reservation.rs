//! A reservation in the form of the state file.

use proto::nvme::{HostId, Nqn, Registrant, StoredReservation};
use serde::{Deserialize, Serialize};
use wire::nvme::ReservationKind;

/// A reservation that persists through power loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptReservation {
    pub(super) subsystem: String,
    pub(super) nsid: u32,
    /// The UUID of the reserved namespace. A namespace number may be given to another namespace,
    /// but a UUID may not.
    pub(super) uuid: [u8; 16],
    generation: u32,
    registrants: Vec<(KeptRegistrant, u64)>,
    /// The reservation type by its number in the NVMe specification, with the holder; no holder if
    /// all registrants hold the reservation. `None` without a reservation.
    held: Option<(u8, Option<KeptRegistrant>)>,
}

/// A host that is registered with the namespace: its qualified name and its identifier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptRegistrant {
    host: String,
    id: [u8; 16],
}

impl KeptRegistrant {
    fn of(registrant: &Registrant) -> KeptRegistrant {
        KeptRegistrant { host: registrant.host.to_string(), id: registrant.id.0 }
    }

    fn registrant(&self) -> Option<Registrant> {
        Some(Registrant { host: Nqn::of_host(&self.host).ok()?, id: HostId(self.id) })
    }
}

impl KeptReservation {
    pub(super) fn of(reserved: &StoredReservation, uuid: [u8; 16]) -> KeptReservation {
        let registrants = reserved.registrants.iter();
        let held = reserved.held.as_ref();
        KeptReservation {
            subsystem: reserved.subsystem.to_string(),
            nsid: reserved.nsid,
            uuid,
            generation: reserved.generation,
            registrants: registrants.map(|(whom, key)| (KeptRegistrant::of(whom), *key)).collect(),
            held: held.map(|(kind, holder)| (kind.0, holder.as_ref().map(KeptRegistrant::of))),
        }
    }

    pub(super) fn reserved(&self) -> Option<StoredReservation> {
        let registrants = self.registrants.iter();
        let held = match &self.held {
            None => None,
            Some((kind, None)) => Some((ReservationKind(*kind), None)),
            Some((kind, Some(holder))) => {
                Some((ReservationKind(*kind), Some(holder.registrant()?)))
            }
        };
        Some(StoredReservation {
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
