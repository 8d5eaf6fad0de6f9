//! The routes of a client to its server: pairs of a local lane (a socket or network card)
//! and an address (an address) of the server.
//!
//! Over UDP any lane may reach any address, so the first lane dials, and each further address of
//! the server gets a lane of its own. On Ethernet segments the lanes exist from the start, and each
//! lane reaches only the addresses in its segment.

use alloc::vec::Vec;

use crate::peer_address::PeerAddress;
use crate::settings::LANES_MAX;

/// A route to a server: a local lane, and the server's address that the lane reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The number of the lane.
    pub lane: u8,
    /// The server's address; `None` to probe each address that the server will announce.
    pub to: Option<PeerAddress>,
}

/// The mapping between the lanes of a client and the addresses of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DialMode {
    /// Each address gets a lane when the address is known, and the first lane dials all addresses.
    #[default]
    ByAddress,
    /// Each lane is in an Ethernet segment of its own, and reaches no address in another segment.
    BySegment,
}

/// The known routes to a server, and the addresses that the server announced.
#[derive(Default)]
pub(crate) struct Routes {
    mode: DialMode,
    /// The lane and the server's address of each route that is known from the start.
    known: Vec<(u8, PeerAddress)>,
    /// The lanes that probe the addresses which the server announces.
    searching: Vec<u8>,
    /// The index in `known` of the route to dial next, or dialled last.
    nth: usize,
    /// Addresses that the server announced: with [`DialMode::ByAddress`] in the order of their lanes,
    /// after the first lane.
    further: Vec<PeerAddress>,
}

impl Routes {
    /// Sets the server's addresses, all dialled through the first lane.
    pub(crate) fn reach(&mut self, servers: &[PeerAddress]) {
        (self.mode, self.nth) = (DialMode::ByAddress, 0);
        self.known = servers.iter().map(|peer_address| (0, *peer_address)).collect();
        self.searching.clear();
        self.further.reserve(LANES_MAX);
    }

    /// Sets the routes to the server for lanes that already exist, one for each Ethernet segment.
    pub(crate) fn reach_by(&mut self, routes: &[Route]) {
        (self.mode, self.nth) = (DialMode::BySegment, 0);
        self.known =
            routes.iter().filter_map(|route| route.to.map(|to| (route.lane, to))).collect();
        self.searching =
            routes.iter().filter(|route| route.to.is_none()).map(|route| route.lane).collect();
        self.further.reserve(LANES_MAX);
    }

    /// Returns the lane and the address to dial; `None` if no address is known.
    pub(crate) fn dialled(&self) -> Option<(u8, PeerAddress)> {
        self.known.get(self.nth).copied()
    }

    /// Returns the route `number` places after the current one, cyclically; `None` if there are not
    /// as many routes.
    pub(crate) fn nth(&self, number: usize) -> Option<(u8, PeerAddress)> {
        let count = self.known.len();
        (number < count).then(|| self.known[(self.nth + number) % count])
    }

    /// Clears the addresses that the server announced, since a new association begins.
    pub(crate) fn begin(&mut self) {
        self.further.clear();
    }

    /// Makes the next dial take another route, if there is one.
    pub(crate) fn turn(&mut self) {
        self.nth = (self.nth + 1) % self.known.len().max(1);
    }

    /// Returns `true` if the user configured the address, so that the server's word need not be
    /// trusted.
    pub(crate) fn names(&self, peer_address: &PeerAddress) -> bool {
        self.known.iter().any(|(_, named)| named == peer_address)
    }

    /// Records an address that the server announced. Returns `true` if the address is new and there
    /// is room for it.
    pub(crate) fn note(&mut self, peer_address: PeerAddress) -> bool {
        let is_named = match self.mode {
            DialMode::ByAddress => {
                self.dialled().is_some_and(|(_, dialled)| dialled == peer_address)
            }
            DialMode::BySegment => self.names(&peer_address),
        };
        let is_new = !is_named && !self.further.contains(&peer_address);
        let may = is_new && self.further.len() + 1 < LANES_MAX;
        if may {
            self.further.push(peer_address);
        }
        may
    }

    /// Returns the announced address that lane `lane` reaches, or will reach; `None` if there is no
    /// such address, or with [`DialMode::BySegment`].
    pub(crate) fn address_of(&self, lane: usize) -> Option<PeerAddress> {
        let has_lane = self.mode == DialMode::ByAddress;
        self.further.get(lane.checked_sub(1)?).copied().filter(|_| has_lane)
    }

    /// Returns the number of the lane for the address that was recorded last.
    pub(crate) fn last_lane(&self) -> usize {
        self.further.len()
    }

    /// Removes the announced address of a lane that could not be created.
    pub(crate) fn forgo(&mut self, lane: usize) {
        if self.address_of(lane).is_some() {
            self.further.remove(lane - 1);
        }
    }

    /// Returns the lanes that probe the address recorded last. The order starts with another lane
    /// for each address, since an association has a limited number of paths.
    pub(crate) fn searching(&self) -> impl Iterator<Item = u8> {
        let (lanes, first) = (&self.searching, self.further.len().saturating_sub(1));
        (0..lanes.len()).map(move |n| lanes[(first + n) % lanes.len()])
    }

    /// Returns `true` if the lanes exist from the start, one for each Ethernet segment.
    pub(crate) fn is_by_segment(&self) -> bool {
        self.mode == DialMode::BySegment
    }
}
