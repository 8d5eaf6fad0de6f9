//! Asynchronous events (Base 5.2): requests that wait, events that wait, and events that are masked
//! until their log page is read.

use alloc::vec::Vec;

use wire::nvme::{CommandId, Event, LogPage, notice};

use crate::takeover::{Reader, TakeoverRefusal, Writer};

/// The most event requests that may wait.
pub(super) const EVENT_REQUESTS_MAX: usize = 4;

/// All events, in the order in which they are sent.
const EVENTS: [Event; 5] =
    [Event::NAMESPACE, Event::ANA, Event::RESERVATION, Event::DISCOVERY, Event::TEMPERATURE];

/// The bit of feature 0Bh that enables warnings of the temperature.
const OF_TEMPERATURE: u32 = 1 << 1;

/// The events of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Events {
    /// The notices and warnings that the host has enabled, as bits of feature 0Bh.
    pub(super) wanted: u32,
    /// Event requests, oldest first; at most [`EVENT_REQUESTS_MAX`].
    requests: Vec<CommandId>,
    /// Events that wait for a request, as bits by their index in [`EVENTS`].
    waiting: u8,
    /// Events that were sent and whose log page has not been read, as bits.
    masked: u8,
}

impl Events {
    /// Adds an event request. Returns `false` if [`EVENT_REQUESTS_MAX`] of them wait already.
    pub(super) fn park(&mut self, cid: CommandId) -> bool {
        let fits = self.requests.len() < EVENT_REQUESTS_MAX;
        if fits {
            self.requests.push(cid);
        }
        fits
    }

    /// Removes the request that an Abort names. Returns `false` if there is none.
    pub(super) fn abort(&mut self, cid: CommandId) -> bool {
        let at = self.requests.iter().position(|waiting| *waiting == cid);
        at.map(|at| self.requests.remove(at)).is_some()
    }

    /// Queues an event for the host, unless the host has disabled or masked events of this kind.
    pub(super) fn raise(&mut self, event: Event) {
        let wanted = match event {
            Event::NAMESPACE => self.wanted & notice::NAMESPACE != 0,
            Event::ANA => self.wanted & notice::ANA != 0,
            Event::DISCOVERY => self.wanted & notice::DISCOVERY != 0,
            Event::TEMPERATURE => self.wanted & OF_TEMPERATURE != 0,
            _ => true,
        };
        let bit = bit_of(event);
        if wanted && self.masked & bit == 0 {
            self.waiting |= bit;
        }
    }

    /// Drops the waiting events of a log page and unmasks its events, because the host has read the
    /// page.
    pub(super) fn read(&mut self, page: LogPage) {
        for (at, event) in EVENTS.iter().enumerate() {
            if event.page == page {
                self.waiting &= !(1 << at);
                self.masked &= !(1 << at);
            }
        }
    }

    /// Takes the next event to send, with the request that it completes; `None` unless both an
    /// event and a request wait.
    pub(super) fn next(&mut self) -> Option<(CommandId, Event)> {
        let at = (0..EVENTS.len()).find(|at| self.waiting & (1 << at) != 0)?;
        if self.requests.is_empty() {
            return None;
        }
        let cid = self.requests.remove(0);
        self.waiting &= !(1 << at);
        self.masked |= 1 << at;
        Some((cid, EVENTS[at]))
    }
}

impl Events {
    /// Encodes the events for another process: enabled (4 bytes), waiting and masked (1 each), and
    /// the requests.
    pub(super) fn put(&self, to: &mut Writer) -> Result<(), TakeoverRefusal> {
        to.put(self.wanted.to_le_bytes());
        to.put([self.waiting, self.masked]);
        to.count(self.requests.len())?;
        self.requests.iter().for_each(|cid| to.put(cid.to_le_bytes()));
        Ok(())
    }

    /// Decodes events from another process.
    pub(super) fn take(input: &mut Reader<'_>) -> Result<Events, TakeoverRefusal> {
        let (wanted, waiting, masked) = (input.u32()?, input.u8()?, input.u8()?);
        let count = input.count(2)?;
        if (waiting | masked) >> EVENTS.len() != 0 || count > EVENT_REQUESTS_MAX {
            return Err(TakeoverRefusal::Value("events"));
        }
        let requests = (0..count).map(|_| input.u16()).collect::<Result<_, _>>()?;
        Ok(Events { wanted, requests, waiting, masked })
    }
}

fn bit_of(event: Event) -> u8 {
    EVENTS.iter().position(|known| *known == event).map_or(0, |at| 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_sent_once_until_its_page_is_read() {
        let mut events = Events { wanted: notice::NAMESPACE, ..Events::default() };
        events.raise(Event::NAMESPACE);
        assert_eq!(events.next(), None, "nobody waits");
        assert!(events.park(5));
        assert_eq!(events.next(), Some((5, Event::NAMESPACE)));
        assert!(events.park(6));
        events.raise(Event::NAMESPACE);
        assert_eq!(events.next(), None, "masked");
        events.read(LogPage::CHANGED_NAMESPACES);
        assert_eq!(events.next(), None, "the page told what happened");
        events.raise(Event::NAMESPACE);
        assert_eq!(events.next(), Some((6, Event::NAMESPACE)));
    }

    #[test]
    fn what_nobody_asked_for_is_not_sent() {
        let mut events = Events::default();
        assert!(events.park(1));
        events.raise(Event::ANA);
        events.raise(Event::DISCOVERY);
        assert_eq!(events.next(), None);
        events.raise(Event::RESERVATION);
        assert_eq!(events.next(), Some((1, Event::RESERVATION)));
    }

    #[test]
    fn requests_have_a_limit_and_can_be_aborted() {
        let mut events = Events::default();
        let taken = (0..=EVENT_REQUESTS_MAX as u16).filter(|cid| events.park(*cid)).count();
        assert_eq!(taken, EVENT_REQUESTS_MAX);
        assert!(events.abort(2));
        assert!(!events.abort(2));
        assert!(events.park(9));
    }
}
