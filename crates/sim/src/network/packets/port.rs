//! A host's end of the network of packets.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::rc::Rc;

use contract::{Buf, Instant, ListenerId, NetEvent, Streams};
use flash::Rng;
use packets::{Packets, PeerAddress, SealSettings, Settings, TransportSettings};

use super::air::SharedAir;
use super::wire::ProcessLane;

/// The network of packets as one host sees it: the endpoint of its present process.
#[derive(Clone)]
pub(crate) struct PacketPort {
    air: SharedAir,
    place: usize,
    packets: Rc<RefCell<Packets<ProcessLane>>>,
    settings: Rc<TransportSettings>,
    secrets: Rc<RefCell<Rng>>,
    /// The number of buffers of the host in which its user gets received bytes.
    buffers: usize,
}

impl PacketPort {
    pub(super) fn new(
        air: SharedAir,
        place: usize,
        settings: TransportSettings,
        secrets: Rng,
        buffers: Vec<Buf>,
    ) -> PacketPort {
        let secrets = Rc::new(RefCell::new(secrets));
        let count = buffers.len();
        let packets = begin(&air, place, &settings, &secrets, buffers);
        let (packets, settings) = (Rc::new(RefCell::new(packets)), Rc::new(settings));
        PacketPort { air, place, packets, settings, secrets, buffers: count }
    }

    /// Returns the `packets` endpoint of the host's present process.
    pub(crate) fn packets(&self) -> RefMut<'_, Packets<ProcessLane>> {
        self.packets.borrow_mut()
    }

    /// Sets the time that the network and its endpoints see.
    pub(crate) fn settle(&self, now: Instant) {
        self.air.borrow_mut().now = now;
    }

    /// Returns the present time of the network.
    pub(crate) fn now(&self) -> Instant {
        self.air.borrow().now
    }

    /// Returns the host's number.
    pub(crate) fn host(&self) -> usize {
        self.place
    }

    /// Returns the time at which the host has something to do next; `None` for never.
    pub(crate) fn arrives_at(&self) -> Option<Instant> {
        let arrives_at = self.air.borrow().arrives_at(self.place);
        [arrives_at, self.packets.borrow().wake_at()].into_iter().flatten().min()
    }

    /// Kills the host's process: its connections end at once. In half of the cases the other ends
    /// are told.
    pub(crate) fn kill(&self, now: Instant) {
        self.settle(now);
        let mut packets = self.packets();
        packets.lanes()[0].has_ended = self.secrets.borrow_mut().happens(0.5);
        packets.abandon();
        packets.lanes()[0].has_ended = true;
    }

    /// Kills the host's process with its user, and takes its buffers back.
    pub(crate) fn bury(&self, now: Instant) {
        self.kill(now);
        let mut packets = self.packets();
        let mut events = Vec::new();
        for _ in 0..8 {
            packets.poll(now, &mut events, usize::MAX);
            for event in events.drain(..) {
                if let NetEvent::Received { buf, .. } = event {
                    packets.give(buf);
                }
            }
            packets.kick(now);
        }
    }

    /// Accepts connections, in the same process or a new one.
    pub(crate) fn listen(&self, is_new: bool) {
        let mut packets = self.packets();
        if is_new {
            packets.leave();
            let bufs = packets.take_apart();
            assert!(bufs.len() == self.buffers, "every receive buffer is back");
            *packets = begin(&self.air, self.place, &self.settings, &self.secrets, bufs);
        }
        packets.listen(Some(ListenerId(0)));
    }

    /// Returns the number of connections of the present process; a dead one has none.
    pub(crate) fn connections(&self) -> usize {
        let mut packets = self.packets();
        let has_ended = packets.lanes()[0].has_ended;
        if has_ended { 0 } else { packets.connections() }
    }

    /// Returns `true` if nothing is sent or held.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.packets.borrow().is_at_rest()
    }

    /// Describes why the host is not at rest, for a failure's message.
    pub(crate) fn describe(&self) -> String {
        let packets = self.packets.borrow();
        let (connections, rests) = (packets.connections(), packets.is_at_rest());
        let (place, reading) = (self.place, packets.reading());
        format!("place {place}: {connections} connections, at rest {rests}, {reading:?}")
    }

    /// Takes the buffers in which the user gets received bytes, at the end of the world.
    pub(super) fn take_buffers(&mut self) -> Vec<Buf> {
        self.packets().take_apart()
    }
}

impl fmt::Debug for PacketPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketPort of place {}", self.place)
    }
}

/// Returns the endpoint of a new process.
fn begin(
    air: &SharedAir,
    place: usize,
    settings: &TransportSettings,
    secrets: &Rc<RefCell<Rng>>,
    buffers: Vec<Buf>,
) -> Packets<ProcessLane> {
    let draw = || {
        let mut secret = [0; 32];
        for eight in secret.chunks_mut(8) {
            eight.copy_from_slice(&secrets.borrow_mut().number().to_le_bytes());
        }
        secret
    };
    let accepts = settings.endpoint.accepts;
    let sealed = settings.endpoint.sealed.clone();
    let endpoint = Settings { secret: draw(), ..settings.endpoint.clone() };
    let sealed = sealed.map(|sealed| SealSettings { chance: draw(), ..sealed });
    let endpoint = Settings { sealed, ..endpoint };
    let settings = TransportSettings { endpoint, ..settings.clone() };
    let lane = ProcessLane { air: air.clone(), place, has_ended: false };
    let mut packets = Packets::new(settings, vec![lane], buffers);
    match accepts {
        true => packets.listen(Some(ListenerId(0))),
        false => packets.dial_to(&[PeerAddress::Internet(air.borrow().server())]),
    }
    packets
}
