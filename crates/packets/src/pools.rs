//! The tables that all associations of an endpoint share. All memory is allocated when they are
//! created.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use contract::{Buf, ConnId};

use crate::channel::{Channel, State};
use crate::credits;
use crate::directory::Directory;
use crate::event::{Event, MessageBody};
use crate::incoming::HeldPiece;
use crate::loss::SettledPieces;
use crate::message::Message;
use crate::packet::Loan;
use crate::path::Path;
use crate::peer_address::PeerAddress;
use crate::piece::Piece;
use crate::sent::{SentPacketState, SentWindow};
use crate::settings::{LANES_MAX, Settings};
use crate::slab::{NONE, Slab};

/// Maximum number of paths that one search for an idle sent window visits.
const SEARCHED_MAX: u32 = 64;

/// A buffer of received bytes, with the number of its pieces that the user has not given back.
pub(crate) struct Chunk {
    /// The buffer; `None` while the packet in it is being read.
    pub buf: Option<Buf>,
    pub holds: u32,
}

/// Events that were counted since the endpoint was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that could not be parsed, or whose checksum or seal was wrong.
    pub malformed: u64,
    /// Packets of no association, with a wrong cookie, from an unknown address, or without the seal
    /// of their association. Handshake packets that fit nothing count, too.
    pub unknown: u64,
    /// Packets that had arrived before.
    pub repeated: u64,
    /// Packets that were not acknowledged because there was no room for their pieces.
    pub refused: u64,
    /// Packets that associations have sent; those of the handshake do not count.
    pub sent: u64,
    /// Pieces that were sent again.
    pub resent: u64,
    /// Times that a path was left, since the peer was silent there and not elsewhere.
    pub paths_left: u64,
    /// Times that the peer proved that it receives by a path, the first one of its association
    /// aside.
    pub paths_proven: u64,
    /// Hellos that were dropped because more came than the rate limit answers.
    pub hellos_dropped: u64,
}

/// The addresses of an endpoint, and the conditions under which pieces, hellos and opens are
/// accepted there and packets leave.
pub(crate) struct AdmissionRules {
    /// The address on each lane, which peers are told if there are several; `None` for lanes that
    /// the endpoint has not.
    pub peer_addresses: [Option<PeerAddress>; LANES_MAX],
    /// Bit n: lane n accepts a packet now.
    pub lanes_with_room: u8,
    /// The number of queued events from which on no piece is accepted, until the user fetches some.
    events_room: usize,
    /// `true` while hellos and opens are left unanswered, so that their senders repeat them.
    pub is_held: bool,
}

/// The tables that all associations of an endpoint share.
pub(crate) struct Pools {
    pub paths: Slab<Path>,
    pub windows: Slab<SentWindow>,
    pub pieces: Slab<Piece>,
    pub messages: Slab<Message>,
    pub channels: Slab<Channel>,
    pub holds: Slab<HeldPiece>,
    pub chunks: Slab<Chunk>,
    pub loans: Slab<Loan>,
    /// Places of channels, by association and name.
    pub names: Directory,
    /// Number of channels of each association, by its place.
    pub channels_of: Vec<u32>,
    generations: Vec<u32>,
    pub events: VecDeque<Event>,
    pub returned: VecDeque<Buf>,
    pub gate: AdmissionRules,
    pub counters: Counters,
    /// The path where the last search for an idle window ended, and where the next one starts.
    hand: u32,
}

impl Pools {
    pub(crate) fn new(settings: &Settings) -> Pools {
        // Each message, channel and association has a known number of events. Deliveries stop
        // when there are too many of them (`has_room`).
        let ends =
            settings.messages_max + 2 * settings.channels_max + 2 * settings.associations_max;
        // One that dials hears of addresses, once for each of its probes.
        let told = LANES_MAX * settings.associations_max.min(64);
        Pools {
            paths: Slab::new(settings.paths_max),
            windows: Slab::new(settings.windows_max),
            pieces: Slab::new(settings.pieces_max),
            messages: Slab::new(settings.messages_max),
            channels: Slab::new(settings.channels_max),
            holds: Slab::new(settings.holds_max),
            chunks: Slab::new(settings.chunks_max),
            loans: Slab::new(settings.pieces_max),
            names: Directory::new(settings.channels_max),
            channels_of: vec![0; settings.associations_max],
            generations: vec![0; settings.channels_max],
            events: VecDeque::with_capacity(ends + told + 2 * settings.holds_max),
            returned: VecDeque::with_capacity(settings.chunks_max + 1),
            gate: AdmissionRules {
                peer_addresses: [None; LANES_MAX],
                lanes_with_room: u8::MAX,
                events_room: ends + settings.holds_max,
                is_held: false,
            },
            counters: Counters::default(),
            hand: 0,
        }
    }

    /// Returns `true` if a path's lane accepts a packet now.
    pub(crate) fn lane_has_room(&self, path: u32) -> bool {
        self.gate.lanes_with_room >> (self.paths[path].lane % 8) & 1 == 1
    }

    /// Returns the key of a channel in the directory of names.
    pub(crate) fn key(association: u32, name: u16) -> u64 {
        u64::from(association) << 16 | u64::from(name)
    }

    /// Returns the place, in the table of channels, of the channel that has this name in an
    /// association; `None` if there is none.
    pub(crate) fn find(&self, association: u32, name: u16) -> Option<u32> {
        self.names.get(Pools::key(association, name))
    }

    /// Creates a channel and returns its place; `None` if the table is full.
    pub(crate) fn make(&mut self, association: u32, serial: u32, state: State) -> Option<u32> {
        let place = self.channels.take(Channel::new(association, serial, 0, state))?;
        self.channels[place].generation = self.generations[place as usize];
        self.names.insert(Pools::key(association, serial as u16), place);
        self.channels_of[association as usize] += 1;
        Some(place)
    }

    /// Returns the identifier of the channel at a place.
    pub(crate) fn conn(&self, place: u32) -> ConnId {
        ConnId { index: place, generation: self.generations[place as usize] }
    }

    /// Returns the place of the channel with an identifier; `None` if the channel is gone.
    pub(crate) fn place(&self, conn: ConnId) -> Option<u32> {
        let channel = self.channels.get(conn.index)?;
        (channel.generation == conn.generation).then_some(conn.index)
    }

    /// Removes a channel that is over for both ends, unless one of its messages needs it, or it is
    /// queued for sending.
    pub(crate) fn release(&mut self, place: u32) {
        let channel = &self.channels[place];
        let State::Gone(why) = channel.state else { return };
        if channel.messages > 0 || channel.speaks {
            return;
        }
        let conn = self.conn(place);
        let channel = self.channels.give(place);
        self.names.remove(Pools::key(channel.association, channel.name()));
        self.channels_of[channel.association as usize] -= 1;
        self.generations[place as usize] = self.generations[place as usize].wrapping_add(1);
        self.events.push_back(Event::Closed { conn, reason: why.reason() });
    }

    /// Removes a message that is finished. Its channel is removed, too, if it only waited for the
    /// message.
    pub(crate) fn settle(&mut self, place: u32) {
        if !self.messages[place].is_over() {
            return;
        }
        let message = self.messages.give(place);
        let (channel, bytes) = (message.channel, message.bytes);
        let conn = self.conn(channel);
        if message.kind == crate::piece::PieceKind::Data {
            let buf = message.into_body().map(MessageBody);
            self.events.push_back(Event::Sent { conn, buf });
        }
        let channel_of = &mut self.channels[channel];
        channel_of.messages -= 1;
        channel_of.out.unsent -= bytes;
        self.release(channel);
    }

    /// Frees a piece that will not be sent again.
    pub(crate) fn discard(&mut self, piece: u32) {
        let message = self.pieces.give(piece).message;
        if message != NONE {
            self.messages[message].pieces -= 1;
            self.settle(message);
        }
    }

    /// Counts every packet in flight on a path as lost, and returns the pieces.
    pub(crate) fn lose_all(&mut self, path: u32) -> SettledPieces {
        let mut landed = SettledPieces::NOTHING;
        let path = &mut self.paths[path];
        if path.flight.window == NONE {
            return landed;
        }
        let window = &mut self.windows[path.flight.window];
        for number in path.flight.oldest..path.flight.next {
            if window.get(number).is_some_and(|sent| sent.fate == SentPacketState::InFlight) {
                path.lose(number, window, &mut self.pieces, &mut landed);
            }
        }
        landed
    }

    /// Drops the messages that a channel has not wholly sent, and the received pieces that wait for
    /// delivery. Returns `true` if the channel's open was dropped, too: then the peer has never
    /// heard of the channel.
    pub(crate) fn drop_words(&mut self, place: u32) -> bool {
        let mut was_opening = false;
        while let Some(message) = self.channels[place].out.queue.pop(&mut self.messages) {
            let queued = &mut self.messages[message];
            was_opening |= queued.kind == crate::piece::PieceKind::Open;
            queued.is_dropped = true;
            self.settle(message);
        }
        let Pools { channels, holds, chunks, returned, .. } = self;
        channels[place].incoming.clear(holds, |hold| let_go(chunks, returned, hold.chunk));
        was_opening
    }

    /// Returns `true` if there is room for a piece that arrived. The last places are kept for
    /// pieces that are delivered at once.
    pub(crate) fn has_room(&self, is_due: bool) -> bool {
        let is_plenty = self.holds.free() > 1 && self.chunks.free() > 0;
        self.events.len() < self.gate.events_room && (is_due || is_plenty)
    }

    /// Returns the credits that each of `associations` associations may be granted now.
    pub(crate) fn grant(&self, associations: usize) -> u16 {
        let free = self.chunks.free().min(self.holds.free());
        let is_pressed = 4 * free < self.chunks.max();
        credits::grant(self.chunks.max(), free, associations, is_pressed)
    }

    /// Gives a path a sent window: a free one, or the one of a path without packets in flight.
    /// Returns `false` if there is none now.
    pub(crate) fn arm(&mut self, path: u32) -> bool {
        if self.paths[path].flight.window != NONE {
            return true;
        }
        let window = self.windows.take(SentWindow::new()).or_else(|| self.idle_window());
        let Some(window) = window else { return false };
        self.paths[path].flight.window = window;
        true
    }

    fn idle_window(&mut self) -> Option<u32> {
        for _ in 0..SEARCHED_MAX {
            self.hand = (self.hand + 1) % self.paths.max() as u32;
            let Some(path) = self.paths.get_mut(self.hand) else { continue };
            if path.flight.packets == 0 && path.flight.window != NONE {
                let window = core::mem::replace(&mut path.flight.window, NONE);
                self.windows[window] = SentWindow::new();
                return Some(window);
            }
        }
        None
    }
}

/// Ends a piece's use of its chunk. The end of the last use returns the chunk's buffer.
pub(crate) fn let_go(chunks: &mut Slab<Chunk>, returned: &mut VecDeque<Buf>, chunk: u32) {
    if chunk == NONE {
        return;
    }
    chunks[chunk].holds -= 1;
    if chunks[chunk].holds == 0 {
        returned.extend(chunks.give(chunk).buf);
    }
}
