//! The reservations of a fabric on their way to another process
//! (docs/adr/0015-moving-controllers.md), including those that do not persist.
//!
//! The format is little-endian: magic `nffabric` (8 bytes), hand-over version (2), length of the
//! rest (4), then the reservations. Each has its namespace (2), generation (4), persistence flag
//! (1), registrants, kind held (1; zero for none), and holder (4). The holder is an index into the
//! registrants; `u32::MAX` means all.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use contract::NamespaceId;
use wire::nvme::ReservationKind;

use super::config::HostId;
use super::exported::take_host;
use super::reservation::{Registrant, Reservation};
use super::reservations::Reservations;
use crate::takeover::{BODY_BYTES_MAX, Reader, TakeoverRefusal, Writer};

const MAGIC: [u8; 8] = *b"nffabric";

/// The encoded index of the holder if all registrants hold the reservation, or no host does.
const ALL: u32 = u32::MAX;

/// The encoded sizes in bytes of a reservation without registrants, and of a registrant with the
/// shortest name.
const RESERVATION_BYTES: usize = 2 + 4 + 1 + 4 + 1 + 4;
const REGISTRANT_BYTES: usize = 4 + 16 + 8;

/// Encodes all reservations for another process.
///
/// # Errors
/// Returns a [`TakeoverRefusal`] if they are too large.
pub(super) fn encode(reservations: &Reservations) -> Result<Vec<u8>, TakeoverRefusal> {
    let mut to = Writer::begin(MAGIC);
    let all = reservations.iter();
    to.count(all.len())?;
    all.into_iter().try_for_each(|(id, own)| put_reservation(&mut to, *id, own))?;
    to.sealed(BODY_BYTES_MAX)
}

/// Decodes reservations with at most this many registrants each.
///
/// # Errors
/// Returns a [`TakeoverRefusal`] if the bytes are foreign, of another version, truncated, or
/// inconsistent.
pub(super) fn decode(
    bytes: &[u8],
    most: usize,
) -> Result<BTreeMap<NamespaceId, Reservation>, TakeoverRefusal> {
    let input = &mut Reader::open(bytes, MAGIC)?;
    let mut all = BTreeMap::new();
    for _ in 0..input.count(RESERVATION_BYTES)? {
        let (id, own) = take_reservation(input)?;
        if !own.is_sound(most) || all.insert(id, own).is_some() {
            return Err(TakeoverRefusal::Value("reservation"));
        }
    }
    if input.0.is_empty() { Ok(all) } else { Err(TakeoverRefusal::Length) }
}

fn put_reservation(
    to: &mut Writer,
    id: NamespaceId,
    own: &Reservation,
) -> Result<(), TakeoverRefusal> {
    to.put(id.0.to_le_bytes());
    to.put(own.generation.to_le_bytes());
    to.flag(own.persists);
    to.count(own.registrants.len())?;
    for (host, key) in &own.registrants {
        to.string(host.host.as_str().as_bytes())?;
        to.put(host.id.0);
        to.put(key.to_le_bytes());
    }
    let (kind, holder) = own.held.as_ref().map_or((0, &None), |(kind, holder)| (kind.0, holder));
    let place = holder.as_ref().and_then(|holder| {
        own.registrants.iter().position(|(host, _)| host == holder).map(|place| place as u32)
    });
    to.put([kind]);
    to.put(place.unwrap_or(ALL).to_le_bytes());
    Ok(())
}

fn take_reservation(input: &mut Reader<'_>) -> Result<(NamespaceId, Reservation), TakeoverRefusal> {
    let (id, generation) = (NamespaceId(input.u16()?), input.u32()?);
    let persists = input.flag("reservation")?;
    let mut registrants = Vec::new();
    for _ in 0..input.count(REGISTRANT_BYTES)? {
        let host = Registrant { host: take_host(input)?, id: HostId(input.array()?) };
        registrants.push((host, input.u64()?));
    }
    let (kind, place) = (input.u8()?, input.u32()?);
    let holder = registrants.get(place as usize).map(|(host, _)| host.clone());
    let held = (kind != 0).then_some((ReservationKind(kind), holder));
    match place == ALL || (place as usize) < registrants.len() && kind != 0 {
        true => Ok((id, Reservation { generation, registrants, held, persists })),
        false => Err(TakeoverRefusal::Value("reservation")),
    }
}
