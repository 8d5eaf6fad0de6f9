//! The policy of a volume: in which stream a page is placed, and which segment is collected.

/// The distribution of written and moved pages over streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A single stream.
    None,
    /// Three streams by heat.
    Heat3,
    /// Six streams by heat.
    Heat6,
}

/// The rule by which the collector chooses among the closed segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimRule {
    /// Chooses the fewest live pages among the oldest segments, in per cent of all closed ones: the
    /// baseline of the FlashNet paper (section 7.1.4).
    GreedyWindow {
        /// The share of the closed segments that are looked at, 1 to 100.
        percent: u8,
    },
    /// Chooses the highest age · (1 − u)/u, where u is the share of a segment's pages that are
    /// live.
    AgeBenefit,
}

/// The policy of a volume: where it places pages, and which segment it collects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The distribution of pages over streams.
    pub placement: Placement,
    /// The rule for the choice of victims.
    pub victims: VictimRule,
}

impl Policy {
    /// Three streams by heat, victims by age and benefit.
    pub const HEAT3: Policy =
        Policy { placement: Placement::Heat3, victims: VictimRule::AgeBenefit };

    /// Six streams by heat, victims by age and benefit.
    pub const HEAT6: Policy =
        Policy { placement: Placement::Heat6, victims: VictimRule::AgeBenefit };

    /// Returns the baseline: a single stream, and the fewest live pages among the oldest `percent`
    /// per cent of the segments.
    pub const fn baseline(percent: u8) -> Policy {
        Policy { placement: Placement::None, victims: VictimRule::GreedyWindow { percent } }
    }

    /// Returns the number of streams.
    pub const fn streams(self) -> u8 {
        match self.placement {
            Placement::None => 1,
            Placement::Heat3 => 3,
            Placement::Heat6 => 6,
        }
    }

    /// Returns the policy that a volume of this many streams uses.
    pub const fn of_streams(streams: u8) -> Policy {
        match streams {
            1 => Policy { placement: Placement::None, victims: VictimRule::AgeBenefit },
            6 => Policy::HEAT6,
            _ => Policy::HEAT3,
        }
    }

    /// Returns `true` for the baseline: collection at full speed in whole batches, and no log for
    /// lone writes.
    pub(crate) fn is_baseline(self) -> bool {
        matches!(self.victims, VictimRule::GreedyWindow { .. })
    }

    /// Returns the rule for the choice of victims. While hosts write all pages equally often
    /// (`even`), the age of a segment does not predict how long its pages live, so a rule by age
    /// becomes one by live pages alone.
    pub fn victims(self, even: bool) -> VictimRule {
        match self.victims {
            VictimRule::AgeBenefit if even => VictimRule::GreedyWindow { percent: 100 },
            victims => victims,
        }
    }

    /// Returns the number of the stream for a page of this heat. Stream 0 is for the hottest pages.
    pub fn stream(self, heat: u8) -> u8 {
        let edges: &[u8] = match self.placement {
            Placement::None => &[],
            Placement::Heat3 => &[240, 24],
            Placement::Heat6 => &[240, 120, 48, 18, 6],
        };
        edges.iter().take_while(|&&edge| heat < edge).count() as u8
    }
}
