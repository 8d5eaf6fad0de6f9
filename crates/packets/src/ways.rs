//! The ways of a client to its server: the lanes of this end, and the stations of the server.
//!
//! Over UDP any lane may lead anywhere, so the first lane dials, and each further station of the
//! server gets a lane of its own. In segments of Ethernet the lanes are there from the start, and
//! each of them reaches what is in its segment.

use alloc::vec::Vec;

use crate::settings::LANES_MAX;
use crate::station::Station;

/// A way to a server: a lane of this end, and the server's station that the lane reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of the lane.
    pub lane: u8,
    /// The server's station; `None` for each station that the server will tell, which are probed.
    pub to: Option<Station>,
}

/// The relation between the lanes of a client and the stations of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Routes {
    /// Each station gets a lane when it is known, and the first lane dials all of them.
    #[default]
    ByStation,
    /// Each lane is in a segment of its own, and leads to no station of another one.
    BySegment,
}

/// The ways to a server.
#[derive(Default)]
pub(crate) struct Ways {
    routes: Routes,
    /// The lane and the station of each way that is known from the start.
    known: Vec<(u8, Station)>,
    /// The lanes by which the stations are probed that the server tells.
    searching: Vec<u8>,
    /// The number of the way that is dialled next, or was dialled last.
    nth: usize,
    /// The server's further stations: by station, in the order of the lanes behind the first; by
    /// segment, those that the server told.
    further: Vec<Station>,
}

impl Ways {
    /// Sets the stations of the server, which the first lane dials.
    pub(crate) fn reach(&mut self, servers: &[Station]) {
        (self.routes, self.nth) = (Routes::ByStation, 0);
        self.known = servers.iter().map(|station| (0, *station)).collect();
        self.searching.clear();
        self.further.reserve(LANES_MAX);
    }

    /// Sets the ways to the server, by lanes that are there.
    pub(crate) fn reach_by(&mut self, ways: &[Way]) {
        (self.routes, self.nth) = (Routes::BySegment, 0);
        self.known = ways.iter().filter_map(|way| way.to.map(|to| (way.lane, to))).collect();
        self.searching = ways.iter().filter(|way| way.to.is_none()).map(|way| way.lane).collect();
        self.further.reserve(LANES_MAX);
    }

    /// Returns the lane and the station that are dialled now; `None` if no station is known.
    pub(crate) fn dialled(&self) -> Option<(u8, Station)> {
        self.known.get(self.nth).copied()
    }

    /// Returns the way with this number, from the one that is dialled now; `None` behind the last.
    pub(crate) fn way(&self, number: usize) -> Option<(u8, Station)> {
        let count = self.known.len();
        (number < count).then(|| self.known[(self.nth + number) % count])
    }

    /// Forgets the further stations, since a new association begins.
    pub(crate) fn begin(&mut self) {
        self.further.clear();
    }

    /// Makes the next dial take another way, if there is one.
    pub(crate) fn turn(&mut self) {
        self.nth = (self.nth + 1) % self.known.len().max(1);
    }

    /// Returns `true` if the user has named the station, so that it is no claim of the server.
    pub(crate) fn names(&self, station: &Station) -> bool {
        self.known.iter().any(|(_, named)| named == station)
    }

    /// Notes a further station of the server. Returns `true` if it is new.
    pub(crate) fn note(&mut self, station: Station) -> bool {
        let is_named = match self.routes {
            Routes::ByStation => self.dialled().is_some_and(|(_, dialled)| dialled == station),
            Routes::BySegment => self.names(&station),
        };
        let is_new = !is_named && !self.further.contains(&station);
        let may = is_new && self.further.len() + 1 < LANES_MAX;
        if may {
            self.further.push(station);
        }
        may
    }

    /// Returns the further station that lane `lane` leads to, or is to lead to; `None` if there is
    /// none, or the lanes are there from the start.
    pub(crate) fn station_of(&self, lane: usize) -> Option<Station> {
        let has_lane = self.routes == Routes::ByStation;
        self.further.get(lane.checked_sub(1)?).copied().filter(|_| has_lane)
    }

    /// Returns the number of the lane for the station that was noted last.
    pub(crate) fn last_lane(&self) -> usize {
        self.further.len()
    }

    /// Removes the further station for which there is no lane.
    pub(crate) fn forgo(&mut self, lane: usize) {
        if self.station_of(lane).is_some() {
            self.further.remove(lane - 1);
        }
    }

    /// Returns the lanes by which the station that was noted last is probed. They begin with another
    /// lane for each station, since an association has room for some paths only.
    pub(crate) fn searching(&self) -> impl Iterator<Item = u8> {
        let (lanes, first) = (&self.searching, self.further.len().saturating_sub(1));
        (0..lanes.len()).map(move |n| lanes[(first + n) % lanes.len()])
    }

    /// Returns `true` if the lanes are there from the start.
    pub(crate) fn is_by_segment(&self) -> bool {
        self.routes == Routes::BySegment
    }
}
