//! Loss detection (RFC 9002, section 6): by later numbers, by age, and by silence.

use core::time::Duration;

use contract::Instant;

use crate::control::Signal;
use crate::head::Ack;
use crate::path::Path;
use crate::piece::Piece;
use crate::proof::LEAST_BYTES;
use crate::sent::{SentPacketState, SentWindow};
use crate::slab::{Queue, Slab};

/// The distance between packet numbers at which the lower packet counts as lost, once the higher
/// one was acknowledged.
const REORDERED_MAX: u64 = 3;

/// The pieces of packets that are no longer in flight, in a queue of acknowledged and one of lost
/// pieces.
pub(crate) struct SettledPieces {
    pub acked: Queue,
    pub lost: Queue,
    /// Number of packets that are no longer in flight.
    pub packets: u16,
}

impl SettledPieces {
    pub(crate) const NOTHING: SettledPieces =
        SettledPieces { acked: Queue::EMPTY, lost: Queue::EMPTY, packets: 0 };
}

impl Path {
    /// Processes an acknowledgement of the peer. An acknowledgement of a number that was never sent
    /// is ignored.
    pub(crate) fn acknowledged(
        &mut self,
        now: Instant,
        (ack, echo): (Ack, bool),
        window: &mut SentWindow,
        pieces: &mut Slab<Piece>,
        landed: &mut SettledPieces,
    ) {
        let Some(last) = self.flight.next.checked_sub(1) else { return };
        let back = u64::from((last as u32).wrapping_sub(ack.highest));
        let Some(highest) = last.checked_sub(back) else { return };
        let (mut bytes, mut was_limited, mut was_not_lost) = (0, false, false);
        let mut delay = None;
        // Below the oldest in flight, only packets that were counted lost are of interest.
        let has_doubts = self.flight.doubted + 64 > highest;
        let least = if has_doubts { 0 } else { self.flight.oldest.min(highest) };
        for back in 0..=64.min(highest - least) {
            if back > 0 && ack.before >> (back - 1) & 1 == 0 {
                continue;
            }
            let Some(sent) = window.get(highest - back) else { continue };
            if sent.fate != SentPacketState::Done && sent.bytes > LEAST_BYTES {
                self.flight.suspect = self.flight.suspect.max(highest - back + 1);
                self.flight.swallowed = 0;
            }
            match sent.fate {
                SentPacketState::Done => {}
                SentPacketState::Lost => (sent.fate, was_not_lost) = (SentPacketState::Done, true),
                SentPacketState::InFlight => {
                    if back == 0 {
                        let held = Duration::from_micros(u64::from(ack.held_us));
                        let is_full = sent.bytes >= self.bytes / 2;
                        self.rtt.sample(now, now - sent.at, held, is_full);
                        delay = is_full.then(|| self.rtt.latest());
                    }
                    bytes += u32::from(sent.bytes);
                    was_limited |= sent.was_limited;
                    self.flight.bytes -= u32::from(sent.bytes);
                    self.flight.packets -= 1;
                    landed.packets += 1;
                    sent.land(SentPacketState::Done, pieces, &mut landed.acked);
                }
            }
        }
        if was_not_lost {
            self.control.was_not_lost();
        }
        self.flight.acked = self.flight.acked.max(highest + 1);
        if bytes == 0 {
            return;
        }
        self.flight.probes = 0;
        let signal = Signal {
            acked_bytes: bytes,
            delay,
            least: self.rtt.least(),
            smoothed: self.rtt.smoothed(),
            marked: echo,
            was_limited,
        };
        self.control.acknowledged(now, &signal);
        self.detect_losses(now, window, pieces, landed);
    }

    /// Counts packets as lost that are too old, or far enough below an acknowledged one. Sets the
    /// time of the next check.
    pub(crate) fn detect_losses(
        &mut self,
        now: Instant,
        window: &mut SentWindow,
        pieces: &mut Slab<Piece>,
        landed: &mut SettledPieces,
    ) {
        let age = self.rtt.lost_after();
        self.flight.loss_at = None;
        let mut is_oldest = true;
        for number in self.flight.oldest..self.flight.acked {
            let sent = window.get(number).filter(|sent| sent.fate == SentPacketState::InFlight);
            if let Some(sent) = sent {
                if number + REORDERED_MAX < self.flight.acked || now - sent.at >= age {
                    self.lose(number, window, pieces, landed);
                    self.control.lost(now, self.rtt.smoothed());
                } else {
                    let at = sent.at + age;
                    self.flight.loss_at =
                        Some(self.flight.loss_at.map_or(at, |other| other.min(at)));
                    is_oldest = false;
                }
            }
            if is_oldest {
                self.flight.oldest = number + 1;
            }
        }
    }

    /// Reacts to the peer's silence: the oldest packet's pieces are sent again, even if the window
    /// is full. The window is halved from the second probe on.
    pub(crate) fn probe(
        &mut self,
        now: Instant,
        window: &mut SentWindow,
        pieces: &mut Slab<Piece>,
        landed: &mut SettledPieces,
    ) {
        self.flight.probes = self.flight.probes.saturating_add(1);
        self.flight.probes_now = true;
        self.flight.asked_at = now;
        match self.flight.probes {
            1 => self.control.lost_without_cut(),
            _ => self.control.silent(now, self.rtt.smoothed()),
        }
        let oldest = (self.flight.oldest..self.flight.next).find(|number| {
            window.get(*number).is_some_and(|sent| sent.fate == SentPacketState::InFlight)
        });
        if let Some(number) = oldest {
            self.flight.oldest = number;
            self.lose(number, window, pieces, landed);
        }
    }

    /// Takes a packet out of flight as lost, and adds its pieces to the lost ones of `landed`.
    pub(crate) fn lose(
        &mut self,
        number: u64,
        window: &mut SentWindow,
        pieces: &mut Slab<Piece>,
        landed: &mut SettledPieces,
    ) {
        let Some(sent) = window.get(number) else { return };
        self.flight.doubted = self.flight.doubted.max(number + 1);
        if sent.bytes > LEAST_BYTES && number >= self.flight.suspect {
            self.flight.swallowed = self.flight.swallowed.saturating_add(1);
            self.flight.suspect = self.flight.next;
        }
        self.flight.bytes -= u32::from(sent.bytes);
        self.flight.packets -= 1;
        landed.packets += 1;
        sent.land(SentPacketState::Lost, pieces, &mut landed.lost);
    }
}
