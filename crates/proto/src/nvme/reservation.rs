//! Reservations (Base 7.2 to 7.5 and 8.19): which hosts may read and write a namespace.
//!
//! A registrant is a host by its name and its identifier together. Authentication proves the name,
//! so no host takes another's registration by claiming its identifier.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wire::nvme::{ReservationKind, ReservationNoticeKind, Status};

use super::config::{HostId, Nqn};
use crate::takeover::{Reader, TakeoverRefusal, Writer};

/// The most notices that may wait at a controller; beyond it the oldest is dropped (Base
/// 5.16.1.24).
const NOTICES_MAX: usize = 255;

/// A host, as reservations identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// The host's qualified name.
    pub host: Nqn,
    /// The identifier that the host gave in its Connect.
    pub id: HostId,
}

/// The reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservation {
    /// The number of registrations, of their replacements and removals, and of preemptions (PR
    /// generation, Base 7.5).
    pub(super) generation: u32,
    /// Registrants with their keys, in the order of their registration.
    pub(super) registrants: Vec<(Registrant, u64)>,
    /// The reservation's kind and holder. An absent holder stands for all registrants; `None` means
    /// that the namespace is not reserved.
    pub(super) held: Option<(ReservationKind, Option<Registrant>)>,
    /// `true` if the reservation persists through power loss.
    pub(super) persists: bool,
}

impl Reservation {
    /// Returns whether a host may read, and whether it may write (Base 8.19, figure "Command
    /// Behavior in the Presence of a Reservation").
    pub(super) fn allows(&self, host: &Registrant) -> (bool, bool) {
        let Some((kind, holder)) = &self.held else { return (true, true) };
        let holds = holder.as_ref() == Some(host);
        let registered = self.key_of(host).is_some();
        match *kind {
            ReservationKind::WRITE_EXCLUSIVE => (true, holds),
            ReservationKind::EXCLUSIVE_ACCESS => (holds, holds),
            ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS | ReservationKind::WRITE_EXCLUSIVE_ALL => {
                (true, registered)
            }
            _ => (registered, registered),
        }
    }

    /// Returns `true` if the fields agree with each other, and there are at most `most`
    /// registrants.
    pub(super) fn is_sound(&self, most: usize) -> bool {
        let own = &self.registrants;
        if own.len() > most {
            return false;
        }
        let twice = own
            .iter()
            .enumerate()
            .any(|(at, (host, _))| own[..at].iter().any(|(before, _)| before == host));
        let held_well = self.held.as_ref().is_none_or(|(kind, holder)| match (kind.0, holder) {
            (1..=4, Some(holder)) => self.key_of(holder).is_some(),
            (5 | 6, None) => !own.is_empty(),
            _ => false,
        });
        !twice && held_well
    }

    /// Returns `true` if a host has fewer rights under `now` than under this reservation.
    pub(super) fn takes_from(&self, host: &Registrant, now: &Reservation) -> bool {
        let ((reads, writes), (reads_now, writes_now)) = (self.allows(host), now.allows(host));
        reads && !reads_now || writes && !writes_now
    }

    /// Returns the key that a host has registered; `None` if the host is not registered.
    pub(super) fn key_of(&self, host: &Registrant) -> Option<u64> {
        self.registrants.iter().find(|(known, _)| known == host).map(|(_, key)| *key)
    }

    /// Returns `true` if a host holds the reservation, alone or together with all registrants.
    pub(super) fn is_holder(&self, host: &Registrant) -> bool {
        match &self.held {
            None => false,
            Some((_, Some(holder))) => holder == host,
            Some((_, None)) => self.key_of(host).is_some(),
        }
    }

    /// Registers a key. Fails if the host has another key already, unless `ignore` is set: then the
    /// key is replaced. Fails, too, if `most` hosts are registered.
    pub(super) fn register(
        &mut self,
        host: &Registrant,
        key: u64,
        ignore: bool,
        most: usize,
    ) -> Result<ReservationNotices, Status> {
        match self.key_of(host) {
            Some(known) if known == key => return Ok(ReservationNotices::default()),
            Some(_) if ignore => return self.replace(host, None, key),
            Some(_) => return Err(Status::RESERVATION_CONFLICT.dnr()),
            None if self.registrants.len() >= most => return Err(Status::INTERNAL.dnr()),
            None => self.registrants.push((host.clone(), key)),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(ReservationNotices::default())
    }

    /// Replaces the key of a registered host. Fails if the host's key is not `current`; `None`
    /// skips this check.
    pub(super) fn replace(
        &mut self,
        host: &Registrant,
        current: Option<u64>,
        key: u64,
    ) -> Result<ReservationNotices, Status> {
        self.check_key(host, current)?;
        let own = self.registrants.iter_mut().find(|(known, _)| known == host);
        own.expect("its key was checked").1 = key;
        self.generation = self.generation.wrapping_add(1);
        Ok(ReservationNotices::default())
    }

    /// Removes a registration, and the reservation if the host held it alone or was the last
    /// registrant. Fails if the host's key is not `current`; `None` skips this check.
    pub(super) fn unregister(
        &mut self,
        host: &Registrant,
        current: Option<u64>,
    ) -> Result<ReservationNotices, Status> {
        self.check_key(host, current)?;
        let held = self.held.clone();
        let was_holder = self.is_holder(host);
        self.registrants.retain(|(known, _)| known != host);
        self.generation = self.generation.wrapping_add(1);
        match held {
            Some((kind, Some(_))) if was_holder => {
                self.held = None;
                Ok(ReservationNotices::released(kind, self.others(host)))
            }
            Some((_, None)) if self.registrants.is_empty() => {
                self.held = None;
                Ok(ReservationNotices::default())
            }
            _ => Ok(ReservationNotices::default()),
        }
    }

    /// Acquires the reservation for a registrant. Fails if it is held, except by this host and in
    /// this kind.
    pub(super) fn acquire(
        &mut self,
        host: &Registrant,
        kind: ReservationKind,
    ) -> Result<ReservationNotices, Status> {
        match &self.held {
            None => {
                self.hold(host, kind);
                Ok(ReservationNotices::default())
            }
            Some((held, _)) if *held == kind && self.is_holder(host) => {
                Ok(ReservationNotices::default())
            }
            Some(_) => Err(Status::RESERVATION_CONFLICT.dnr()),
        }
    }

    /// Removes the registrations of a key, and takes over the reservation if that key holds it. A
    /// host that names its own key without taking over the reservation also loses its own
    /// registration (Base 8.19.7). A host that loses its registration is notified of that alone; a
    /// host that keeps its registration is notified if a reservation of another kind was released.
    pub(super) fn preempt(
        &mut self,
        host: &Registrant,
        key: u64,
        kind: ReservationKind,
    ) -> Result<ReservationNotices, Status> {
        let held = self.held.clone();
        let everybody = matches!(held, Some((_, None))) && key == 0;
        let of_holder = match &held {
            Some((_, Some(holder))) => self.key_of(holder) == Some(key),
            _ => false,
        };
        if key == 0 && !everybody {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let takes_it = everybody || of_holder;
        // A host that takes over the reservation stays registered, whatever its key.
        let is_gone = |known: &Registrant, own: u64| match known == host {
            true => !takes_it && own == key,
            false => everybody || own == key,
        };
        let (gone, kept): (Vec<_>, Vec<_>) = core::mem::take(&mut self.registrants)
            .into_iter()
            .partition(|(known, own)| is_gone(known, *own));
        self.registrants = kept;
        if gone.is_empty() && !takes_it {
            return Err(Status::RESERVATION_CONFLICT.dnr());
        }
        self.generation = self.generation.wrapping_add(1);
        let told = gone.into_iter().map(|(known, _)| known).filter(|known| known != host);
        let mut all = notices(ReservationNoticeKind::REGISTRATION_PREEMPTED, told);
        match held {
            Some((before, _)) if takes_it => {
                self.hold(host, kind);
                if before != kind {
                    let others = self.others(host).into_iter();
                    all.extend(notices(ReservationNoticeKind::RELEASED, others));
                }
            }
            Some((_, None)) if self.registrants.is_empty() => self.held = None,
            _ => {}
        }
        Ok(ReservationNotices { notices: all })
    }

    /// Releases the reservation if the host holds it, and else does nothing. Fails if the host
    /// holds it in another kind.
    pub(super) fn release(
        &mut self,
        host: &Registrant,
        kind: ReservationKind,
    ) -> Result<ReservationNotices, Status> {
        match &self.held {
            Some((held, _)) if self.is_holder(host) => {
                if *held != kind {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                self.held = None;
                Ok(ReservationNotices::released(kind, self.others(host)))
            }
            _ => Ok(ReservationNotices::default()),
        }
    }

    /// Removes the reservation and all registrations.
    pub(super) fn clear(&mut self, host: &Registrant) -> ReservationNotices {
        let others = self.others(host);
        self.held = None;
        self.registrants.clear();
        self.generation = self.generation.wrapping_add(1);
        ReservationNotices {
            notices: notices(ReservationNoticeKind::PREEMPTED, others.into_iter()),
        }
    }

    fn hold(&mut self, host: &Registrant, kind: ReservationKind) {
        let of_all = matches!(
            kind,
            ReservationKind::WRITE_EXCLUSIVE_ALL | ReservationKind::EXCLUSIVE_ACCESS_ALL
        );
        self.held = Some((kind, (!of_all).then(|| host.clone())));
    }

    fn check_key(&self, host: &Registrant, current: Option<u64>) -> Result<(), Status> {
        match (self.key_of(host), current) {
            (Some(known), Some(current)) if known == current => Ok(()),
            (Some(_), None) => Ok(()),
            _ => Err(Status::RESERVATION_CONFLICT.dnr()),
        }
    }

    fn others(&self, host: &Registrant) -> Vec<Registrant> {
        let others = self.registrants.iter().filter(|(known, _)| known != host);
        others.map(|(known, _)| known.clone()).collect()
    }
}

/// The notices that a change of a reservation causes, each for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReservationNotices {
    pub(super) notices: Vec<(ReservationNoticeKind, Registrant)>,
}

impl ReservationNotices {
    /// Returns the notices of a release: one for each of `others` if the released kind gave rights
    /// to all registrants, else none.
    fn released(kind: ReservationKind, others: Vec<Registrant>) -> ReservationNotices {
        match kind {
            ReservationKind::WRITE_EXCLUSIVE | ReservationKind::EXCLUSIVE_ACCESS => {
                ReservationNotices::default()
            }
            _ => ReservationNotices {
                notices: notices(ReservationNoticeKind::RELEASED, others.into_iter()),
            },
        }
    }
}

/// Returns one notice of this kind for each host.
fn notices(
    kind: ReservationNoticeKind,
    hosts: impl Iterator<Item = Registrant>,
) -> Vec<(ReservationNoticeKind, Registrant)> {
    hosts.map(|host| (kind, host)).collect()
}

/// Reservation notices that wait for a controller's host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notices {
    /// The number of notices since the controller was created.
    pub(super) count: u64,
    /// The notices that the host has not read, oldest first: number, kind and namespace identifier.
    pub(super) waiting: VecDeque<(u64, ReservationNoticeKind, u32)>,
}

impl Notices {
    /// Encodes the notices for another process: the total number (8 bytes), then the waiting ones.
    pub(super) fn put(&self, to: &mut Writer) -> Result<(), TakeoverRefusal> {
        to.put(self.count.to_le_bytes());
        to.count(self.waiting.len())?;
        for (number, kind, nsid) in &self.waiting {
            to.put(number.to_le_bytes());
            to.put([kind.0]);
            to.put(nsid.to_le_bytes());
        }
        Ok(())
    }

    /// Decodes notices from another process.
    pub(super) fn take(input: &mut Reader<'_>) -> Result<Notices, TakeoverRefusal> {
        let (count, waiting) = (input.u64()?, input.count(8 + 1 + 4)?);
        if waiting > NOTICES_MAX || count > u64::MAX / 2 {
            return Err(TakeoverRefusal::Value("reservation notices"));
        }
        let waiting = (0..waiting)
            .map(|_| Ok((input.u64()?, ReservationNoticeKind(input.u8()?), input.u32()?)))
            .collect::<Result<_, TakeoverRefusal>>()?;
        Ok(Notices { count, waiting })
    }

    pub(super) fn add(&mut self, kind: ReservationNoticeKind, nsid: u32) {
        self.count += 1;
        if self.waiting.len() == NOTICES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.count, kind, nsid));
    }
}
