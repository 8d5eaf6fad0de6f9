//! The operations of a lane that are on their way through the worker's ring, and its pauses.

use io_uring::types::Timespec;

/// An operation of a lane, whose completion has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum XdpCall {
    /// A send: the kernel looks at the frames to send.
    Send,
    /// A wake: a driver looks at the chunks to receive into.
    Wake,
    /// The pause before the next try at a card that is down.
    Retry,
    /// The pause after a wake that changed nothing.
    Rest,
    /// The pause before the next look at the chunks that were sent.
    Look,
}

impl XdpCall {
    const ALL: [XdpCall; 5] =
        [XdpCall::Send, XdpCall::Wake, XdpCall::Retry, XdpCall::Rest, XdpCall::Look];

    /// Returns the call with a completion's number.
    pub(super) fn of(number: u64) -> Option<XdpCall> {
        XdpCall::ALL.into_iter().find(|call| *call as u64 == number)
    }
}

/// The calls that are under way, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingCalls(u8);

impl PendingCalls {
    pub(super) fn has(self, call: XdpCall) -> bool {
        self.0 & 1 << call as u64 != 0
    }

    pub(super) fn begin(&mut self, call: XdpCall) {
        self.0 |= 1 << call as u64;
    }

    pub(super) fn end(&mut self, call: XdpCall) {
        self.0 &= !(1 << call as u64);
    }
}

const fn milliseconds(count: u32) -> Timespec {
    Timespec::new().nsec(count * 1_000_000)
}

/// The pauses between tries at a card that is down; the last one is repeated.
static RETRIES: [Timespec; 6] = [
    milliseconds(10),
    milliseconds(20),
    milliseconds(40),
    milliseconds(80),
    milliseconds(160),
    milliseconds(320),
];

static REST: Timespec = milliseconds(10);
static LOOK: Timespec = milliseconds(1);

/// Returns the length of a pause: of the `n`-th one, if it is for a card that is down.
pub(super) fn pause(call: XdpCall, n: usize) -> &'static Timespec {
    match call {
        XdpCall::Look => &LOOK,
        XdpCall::Rest => &REST,
        XdpCall::Send | XdpCall::Wake | XdpCall::Retry => &RETRIES[n.min(RETRIES.len() - 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_its_number_and_is_under_way_alone() {
        let mut under_way = PendingCalls::default();
        for call in XdpCall::ALL {
            assert_eq!(XdpCall::of(call as u64), Some(call));
            assert!(!under_way.has(call));
            under_way.begin(call);
            assert_eq!(
                XdpCall::ALL.map(|one| under_way.has(one)),
                XdpCall::ALL.map(|one| one == call)
            );
            under_way.end(call);
        }
        assert_eq!(XdpCall::of(XdpCall::ALL.len() as u64), None);
    }
}
