//! Conversations over channels, and a ledger of the messages to be sent and received.
//!
//! A client sends a number of messages on each channel; the server answers each. Every message
//! names its conversation, its number, its floor and its size, which determine its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use contract::{ConnId, Frame, FrameHead};

use super::key_randomness::Chance;
use super::world::Arena;
use crate::{AssociationId, Delivery, Endpoint, Event};

/// Length in bytes of a message without its body: 20 bytes before the body and 4 behind it.
const HEAD: usize = 24;

/// The manner in which a client and a server converse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConversationPlan {
    pub messages: u32,
    /// Maximum number of messages that a client sends ahead of the answers.
    pub ahead: u32,
    pub body_bytes_max: usize,
    /// Share of strict messages, in parts of 1000.
    pub strict: u32,
    /// Chance that a message received pauses its channel, in parts of 1000.
    pub pauses: u32,
}

/// The sending direction of a conversation, as its sender counts it.
#[derive(Default)]
struct SendingDirection {
    next: u32,
    floor: u32,
}

/// The receiving direction of a conversation, as its receiver counts it.
#[derive(Default)]
struct ReceivingDirection {
    whole: BTreeSet<u32>,
    partly: Vec<u8>,
}

/// The end of a conversation's channel at one node.
#[derive(Default)]
struct ConversationEnd {
    talk: Option<u32>,
    said: SendingDirection,
    heard: ReceivingDirection,
    is_client: bool,
    /// Number of answers that the server could not send yet for lack of room.
    owed: u32,
    is_paused: bool,
}

/// All conversations of a world.
pub(crate) struct TrialConversations {
    pub manner: ConversationPlan,
    pub chance: Chance,
    ends: BTreeMap<(usize, ConnId), ConversationEnd>,
    pub closed: BTreeMap<(usize, ConnId), contract::CloseReason>,
    pub down: Vec<(usize, AssociationId, crate::AssociationEnd)>,
    pub up: Vec<(usize, AssociationId)>,
    paused: Vec<(usize, ConnId)>,
    /// Number of messages that were received whole.
    pub whole: u64,
    pub bytes: u64,
    started: u32,
    bodies: i64,
}

fn byte(talk: u32, number: u32, at: usize) -> u8 {
    (talk.wrapping_mul(31) ^ number.wrapping_mul(0x9e37) ^ (at as u32).wrapping_mul(7)) as u8
}

impl TrialConversations {
    pub(crate) fn new(manner: ConversationPlan, seed: u64) -> TrialConversations {
        TrialConversations {
            manner,
            chance: Chance(seed),
            ends: BTreeMap::new(),
            closed: BTreeMap::new(),
            down: Vec::new(),
            up: Vec::new(),
            paused: Vec::new(),
            whole: 0,
            bytes: 0,
            started: 0,
            bodies: 0,
        }
    }

    /// Begins a conversation on a new channel. Returns `false` if there is no room for a channel.
    pub(crate) fn start(
        &mut self,
        endpoint: &mut Endpoint,
        node: usize,
        association: AssociationId,
        arena: &mut Arena,
    ) -> bool {
        let Some(conn) = endpoint.connect(association) else { return false };
        let talk = 2 * self.started;
        self.started += 1;
        let end =
            ConversationEnd { talk: Some(talk), is_client: true, ..ConversationEnd::default() };
        self.ends.insert((node, conn), end);
        self.go_on(endpoint, (node, conn), arena);
        true
    }

    /// Sends the messages that are due: a client's next ones, or the answers that a server still
    /// owes.
    fn go_on(&mut self, endpoint: &mut Endpoint, at: (usize, ConnId), arena: &mut Arena) {
        let manner = self.manner;
        loop {
            let end = self.ends.get_mut(&at).expect("an open channel");
            let said = end.said.next;
            let may = match end.is_client {
                true => {
                    said < manner.messages && said - (end.heard.whole.len() as u32) < manner.ahead
                }
                false => end.owed > 0,
            };
            if !may || endpoint.room() == 0 {
                break;
            }
            end.owed = end.owed.saturating_sub(1);
            self.say(endpoint, at, arena);
        }
        let end = &self.ends[&at];
        if end.is_client && end.heard.whole.len() as u32 == manner.messages {
            endpoint.finish(at.1);
        }
    }

    fn say(&mut self, endpoint: &mut Endpoint, at: (usize, ConnId), arena: &mut Arena) {
        let strict = self.chance.per_mille(self.manner.strict);
        let bytes = self.chance.below(self.manner.body_bytes_max + 1);
        let end = self.ends.get_mut(&at).expect("an open channel");
        let (talk, number) = (end.talk.expect("known by now"), end.said.next);
        if strict {
            end.said.floor = number;
        }
        let words = [talk, number, end.said.floor, bytes as u32];
        end.said.next += 1;
        if strict {
            end.said.floor = number + 1;
        }
        let mut head = [0; HEAD];
        for (word, to) in words.iter().zip(head.chunks_mut(4)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let mut buf = arena.take(bytes);
        for (n, to) in buf.prefix_mut(bytes).iter_mut().enumerate() {
            *to = byte(talk, number, n);
        }
        // Some of the bytes of the head go behind the body.
        let head = FrameHead::with_tail(&head[..20], &head[20..]);
        self.bodies += 1;
        endpoint.send(at.1, Frame { head, body: Some(buf), body_len: bytes }, strict);
    }

    /// Processes an event of a node: receives and sends messages, and keeps the ledger.
    pub(crate) fn follow(
        &mut self,
        endpoint: &mut Endpoint,
        node: usize,
        event: Event,
        arena: &mut Arena,
    ) {
        match event {
            Event::Up(association) => self.up.push((node, association)),
            Event::AddressAnnounced(..) => {}
            Event::Down(association, why) => self.down.push((node, association, why)),
            Event::Opened { conn, .. } => {
                let end = self.ends.entry((node, conn)).or_default();
                assert!(end.is_client || end.talk.is_none(), "a channel opens once");
            }
            Event::Received { conn, delivery } => {
                self.hear(endpoint, (node, conn), delivery, arena);
            }
            Event::Sent { buf, .. } => {
                self.bodies -= 1;
                arena.give(buf.expect("every message has a body").0);
                // Whoever had no room may go on now.
                let ends: Vec<_> = self.ends.keys().copied().filter(|at| at.0 == node).collect();
                for at in ends {
                    self.go_on(endpoint, at, arena);
                }
            }
            Event::Closed { conn, reason } => {
                assert!(self.ends.remove(&(node, conn)).is_some(), "an open channel closes");
                self.closed.insert((node, conn), reason);
            }
        }
    }

    fn hear(
        &mut self,
        endpoint: &mut Endpoint,
        at: (usize, ConnId),
        delivery: Delivery,
        arena: &mut Arena,
    ) {
        let end = self.ends.get_mut(&at).expect("bytes come on open channels");
        assert_eq!(delivery.offset as usize, end.heard.partly.len(), "bytes come in order");
        end.heard.partly.extend_from_slice(endpoint.bytes(&delivery));
        let is_last = delivery.is_last;
        endpoint.give(delivery);
        if !is_last {
            return;
        }
        let bytes = core::mem::take(&mut end.heard.partly);
        let word = |n: usize| u32::from_le_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap());
        let (talk, number, floor, body) = (word(0), word(1), word(2), word(3) as usize);
        assert_eq!(bytes.len(), HEAD + body, "the message has its size");
        let sound = (0..body).all(|n| bytes[20 + n] == byte(talk, number, n));
        assert!(sound, "the message has its bytes");
        match end.is_client {
            true => assert_eq!(end.talk, Some(talk - 1)),
            false => assert_eq!(*end.talk.get_or_insert(talk + 1), talk + 1),
        }
        assert!(end.heard.whole.insert(number), "message {number} comes once");
        let below = end.heard.whole.range(..floor).count() as u32;
        assert_eq!(below, floor, "message {number} is above its floor {floor}");
        (self.whole, self.bytes) = (self.whole + 1, self.bytes + bytes.len() as u64);
        if !end.is_client {
            end.owed += 1;
        }
        if self.chance.per_mille(self.manner.pauses) && !self.ends[&at].is_paused {
            endpoint.pause(at.1);
            self.ends.get_mut(&at).expect("an open channel").is_paused = true;
            self.paused.push(at);
        }
        self.go_on(endpoint, at, arena);
    }

    /// Resumes the paused channels of a node.
    pub(crate) fn resume(&mut self, endpoint: &mut Endpoint, node: usize) {
        self.paused.retain(|at| {
            if at.0 == node {
                endpoint.resume(at.1);
            }
            at.0 != node
        });
        for (_, end) in self.ends.iter_mut().filter(|(at, _)| at.0 == node) {
            end.is_paused = false;
        }
    }

    /// Returns the number of open channels, of all nodes together.
    pub(crate) fn open(&self) -> usize {
        self.ends.len()
    }

    /// Asserts that every message was sent, received and answered.
    pub(crate) fn assert_done(&self, channels: u64) {
        assert_eq!(self.open(), 0, "every channel has closed");
        assert_eq!(self.whole, 2 * channels * u64::from(self.manner.messages));
        assert_eq!(self.bodies, 0, "every body has returned");
    }
}
