//! Somebody who does what the model is told: a client of protocol `reflex`, or an NVMe host.

use contract::{BufPool, Instant};

use crate::network::Port;
use crate::nvme::NvmeHost;
use crate::steady::Steady;

/// See the module.
pub(crate) enum Good {
    Reflex(Box<Steady>),
    Nvme(Box<NvmeHost>),
}

/// The same of either.
macro_rules! either {
    ($good:expr, $one:ident => $body:expr) => {
        match $good {
            Good::Reflex($one) => $body,
            Good::Nvme($one) => $body,
        }
    };
}

impl Good {
    /// Takes what has ended and sends what it still has to; whether anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        either!(self, one => one.turn(now))
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        either!(self, one => one.wake_at())
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        either!(self, one => one.port())
    }

    /// Nothing goes wrong any more: what it sends from now on must succeed.
    pub(crate) fn calm_down(&mut self) {
        either!(self, one => one.calm_down());
    }

    /// Whether it has done all that it wanted.
    pub(crate) fn is_content(&self) -> bool {
        either!(self, one => one.is_content())
    }

    /// Whether it has sent all it wanted.
    pub(crate) fn has_sent(&self) -> bool {
        either!(self, one => one.has_sent())
    }

    /// Requests that have ended.
    pub(crate) fn ended(&self) -> u64 {
        either!(self, one => one.ended)
    }

    pub(crate) fn describe(&self) -> String {
        either!(self, one => one.describe())
    }

    /// Takes it apart, when it is content, for its buffers.
    pub(crate) fn into_pool(self) -> BufPool {
        either!(self, one => one.into_pool())
    }
}
