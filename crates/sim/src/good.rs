//! A well-behaved peer of the server: a client of protocol `reflex` or of NBD, an NVMe host, or a
//! queue of an attached volume.

use contract::{BufPool, Instant};

use crate::attach::AttachedQueue;
use crate::nbd::NbdPeer;
use crate::nvme::NvmeHost;
use crate::port::Port;
use crate::steady::SteadyClient;

/// A well-behaved peer of the server.
pub(crate) enum WellBehavedPeer {
    Reflex(Box<SteadyClient>),
    Nvme(Box<NvmeHost>),
    Nbd(Box<NbdPeer>),
    Attached(Box<AttachedQueue>),
}

contract::variants!(each, WellBehavedPeer: Reflex, Nvme, Nbd, Attached);

impl WellBehavedPeer {
    /// Processes ended requests and sends due ones. Returns `true` if anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        each!(self, one => one.turn(now))
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        each!(self, one => one.wake_at())
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        each!(self, one => one.port())
    }

    /// Announces the end of all faults: requests from now on must succeed.
    pub(crate) fn calm_down(&mut self) {
        each!(self, one => one.calm_down());
    }

    /// Returns `true` if the peer has finished its work.
    pub(crate) fn is_content(&self) -> bool {
        each!(self, one => one.is_content())
    }

    /// Returns `true` if the peer has sent all requests of its workload.
    pub(crate) fn has_sent(&self) -> bool {
        each!(self, one => one.has_sent())
    }

    /// Returns the number of requests that have ended.
    pub(crate) fn ended(&self) -> u64 {
        each!(self, one => one.ended)
    }

    pub(crate) fn describe(&self) -> String {
        each!(self, one => one.describe())
    }

    /// Takes the buffers of a peer that has finished.
    pub(crate) fn into_pool(self) -> BufPool {
        each!(self, one => one.into_pool())
    }
}
