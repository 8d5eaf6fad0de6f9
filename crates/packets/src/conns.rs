//! The connections of a transport over packets: identifiers that stay valid while channels come and
//! go.

use alloc::vec::Vec;

use contract::{ConnId, TenantId};

use crate::slab::NONE;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    Vacant,
    /// A dial that has no channel yet. The state ends when a channel can be opened, or with the
    /// association.
    Waiting,
    /// A dial whose channel the peer has not answered yet.
    Dialling,
    /// Both ends know the connection. Either may end the state.
    Open,
    /// The user has closed the connection. The end of its channel ends the state.
    Closing,
}

/// A connection and its channel.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    generation: u32,
    pub state: State,
    /// The channel's identifier in the endpoint; its index is [`NONE`] if there is no channel.
    pub channel: ConnId,
    /// The tenant for which the connection's frames count.
    pub account: TenantId,
    /// Number of frames that were sent and whose buffers were not returned.
    pub frames: u32,
    /// The number of the poll whose event takes further received bytes of the connection, and the
    /// event's index in the queue of events.
    pub open: (u64, u32),
}

/// The table of connections.
pub(crate) struct Conns {
    /// The index of this table's first connection. Lower indices belong to another transport.
    base: u32,
    all: Vec<Conn>,
    /// The places that are free, used as a stack.
    free: Vec<u32>,
    /// The place of each channel's connection, by the channel's index; [`NONE`] if it has none.
    by_channel: Vec<u32>,
    /// Number of frames whose buffers were not returned, by account.
    accounts: Vec<u32>,
}

impl Conns {
    pub(crate) fn new(base: u32, max: usize, channels: usize) -> Conns {
        let vacant = Conn {
            generation: 0,
            state: State::Vacant,
            channel: ConnId { index: NONE, generation: 0 },
            account: TenantId(0),
            frames: 0,
            open: (0, 0),
        };
        Conns {
            base,
            all: alloc::vec![vacant; max],
            free: (0..max as u32).rev().collect(),
            by_channel: alloc::vec![NONE; channels],
            accounts: Vec::new(),
        }
    }

    /// Returns the number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes a free place and returns it; `None` if every place is taken.
    pub(crate) fn take(&mut self, state: State) -> Option<u32> {
        let place = self.free.pop()?;
        self.all[place as usize].state = state;
        Some(place)
    }

    /// Assigns a channel to a connection.
    pub(crate) fn tie(&mut self, place: u32, channel: ConnId) {
        self.all[place as usize].channel = channel;
        self.by_channel[channel.index as usize] = place;
    }

    /// Frees a place and returns the identifier of its connection.
    pub(crate) fn vacate(&mut self, place: u32) -> ConnId {
        let id = self.id(place);
        let conn = &mut self.all[place as usize];
        debug_assert!(conn.frames == 0, "frames return before their connection ends");
        if conn.channel.index != NONE {
            self.by_channel[conn.channel.index as usize] = NONE;
        }
        conn.generation = conn.generation.wrapping_add(1);
        (conn.state, conn.account) = (State::Vacant, TenantId(0));
        conn.channel = ConnId { index: NONE, generation: 0 };
        self.free.push(place);
        id
    }

    /// Returns the identifier of the connection at a place.
    pub(crate) fn id(&self, place: u32) -> ConnId {
        ConnId { index: self.base + place, generation: self.all[place as usize].generation }
    }

    /// Returns the place of the connection with this identifier; `None` if the connection is gone.
    pub(crate) fn find(&self, id: ConnId) -> Option<u32> {
        let place = id.index.checked_sub(self.base)?;
        let conn = self.all.get(place as usize)?;
        (conn.generation == id.generation && conn.state != State::Vacant).then_some(place)
    }

    /// Returns the channel of the connection with this identifier; `None` if it has none, or is
    /// gone.
    pub(crate) fn channel(&self, id: ConnId) -> Option<ConnId> {
        let channel = self.all[self.find(id)? as usize].channel;
        (channel.index != NONE).then_some(channel)
    }

    /// Returns the place of the connection to which a channel is assigned; `None` if there is none.
    pub(crate) fn of_channel(&self, channel: ConnId) -> Option<u32> {
        let place = *self.by_channel.get(channel.index as usize)?;
        (place != NONE && self.all[place as usize].channel == channel).then_some(place)
    }

    /// Returns the connection at a place.
    pub(crate) fn at(&mut self, place: u32) -> &mut Conn {
        &mut self.all[place as usize]
    }

    /// Counts the frames of a connection for another account from now on.
    pub(crate) fn charge(&mut self, id: ConnId, account: TenantId) {
        let to = account.0 as usize;
        if to >= self.accounts.len() {
            self.accounts.resize(to + 1, 0);
        }
        let Some(place) = self.find(id) else { return };
        let conn = &mut self.all[place as usize];
        if let Some(from) = self.accounts.get_mut(conn.account.0 as usize) {
            *from -= conn.frames;
        }
        self.accounts[to] += conn.frames;
        conn.account = account;
    }

    /// Counts a frame that the connection at a place has sent.
    pub(crate) fn add_frame(&mut self, place: u32) {
        let conn = &mut self.all[place as usize];
        let of = conn.account.0 as usize;
        if of >= self.accounts.len() {
            self.accounts.resize(of + 1, 0);
        }
        conn.frames += 1;
        self.accounts[of] += 1;
    }

    /// Counts that the buffer of a connection's frame was returned.
    pub(crate) fn remove_frame(&mut self, place: u32) {
        let conn = &mut self.all[place as usize];
        conn.frames -= 1;
        self.accounts[conn.account.0 as usize] -= 1;
    }

    /// Returns the number of an account's frames whose buffers were not returned.
    pub(crate) fn queued(&self, account: TenantId) -> usize {
        self.accounts.get(account.0 as usize).map_or(0, |frames| *frames as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_connection() {
        let mut conns = Conns::new(100, 2, 4);
        let place = conns.take(State::Open).unwrap();
        let first = conns.id(place);
        assert_eq!((first.index, conns.find(first)), (100, Some(place)));
        assert_eq!(conns.channel(first), None);
        let channel = ConnId { index: 3, generation: 7 };
        conns.tie(place, channel);
        assert_eq!((conns.channel(first), conns.of_channel(channel)), (Some(channel), Some(place)));
        assert_eq!(conns.of_channel(ConnId { generation: 8, ..channel }), None);
        assert!(conns.take(State::Open).is_some() && conns.take(State::Open).is_none());
        assert_eq!(conns.vacate(place), first);
        assert_eq!((conns.find(first), conns.of_channel(channel)), (None, None));
        let again = conns.take(State::Open).unwrap();
        assert_ne!(conns.id(again), first);
        assert_eq!(conns.find(ConnId { index: 1, generation: 0 }), None, "another table's");
    }

    #[test]
    fn frames_count_for_the_account_that_is_charged() {
        let mut conns = Conns::new(0, 2, 2);
        let place = conns.take(State::Open).unwrap();
        conns.add_frame(place);
        conns.add_frame(place);
        let id = conns.id(place);
        assert_eq!((conns.queued(TenantId(0)), conns.queued(TenantId(5))), (2, 0));
        conns.charge(id, TenantId(5));
        assert_eq!((conns.queued(TenantId(0)), conns.queued(TenantId(5))), (0, 2));
        conns.remove_frame(place);
        assert_eq!(conns.queued(TenantId(5)), 1);
    }
}
