//! Amounts of tokens, rates, and the exact arithmetic that joins them with time.
//!
//! Three scales, all integers:
//!
//! - a *token* of the paper is what one random read of 4 KiB costs;
//! - a *unit* is a hundredth of it: requests are priced, and rates are counted, in units;
//! - a *nano-unit* is a billionth of a unit: balances are held in these (as `i64`), because a rate in
//!   units a second times a time in nanoseconds is a whole number of them. No fraction is ever
//!   dropped, so there is none to carry.

/// Units of a token: of one random read of 4 KiB under a mixed load.
pub const TOKEN: u32 = 100;

/// Nano-units of a unit.
pub const NANO: i64 = 1_000_000_000;

/// The highest rate that the arithmetic supports, in units a second: 80 million reads of 4 KiB.
pub const RATE_MAX: u64 = 8_000_000_000;

/// The balance, in nano-units, above which a latency-critical tenant may submit: −50 tokens (paper,
/// section 3.2.2). On a device with chores, a tenant submits while it owes less than the dearest
/// request that was promised to it, if that is more.
pub const NEG_LIMIT: i64 = -50 * TOKEN as i64 * NANO;

/// The most units by which a tenant on the short way may be ahead of its rate: the deficit that
/// Algorithm 1 allows.
pub const AHEAD_MAX: u64 = NEG_LIMIT.unsigned_abs() / NANO as u64;

/// The longest time for which a tenant without demand gets tokens afterwards, in nanoseconds, and
/// the longest time that a round counts for: ten times the longest of the paper's rounds. A device
/// that was idle cannot serve more later to make up for it.
pub const ROUND_NANOS_MAX: u64 = 1_000_000;

/// The longest time between rounds for which tenants that waited get tokens, in nanoseconds, and
/// the time for which a latency-critical tenant gets back unused tokens. A worker or a client that
/// loses its processor comes back within about this time; a longer stall breaks an SLO under any
/// scheduler.
pub const STALL_NANOS_MAX: u64 = 20_000_000;

/// Returns the nano-units that a rate in units a second generates in so many nanoseconds.
pub fn generated(rate: u64, nanos: u64) -> i64 {
    i64::try_from(u128::from(rate) * u128::from(nanos)).unwrap_or(i64::MAX)
}

/// Converts units to nano-units; returns `i64::MAX` if there are too many.
pub fn nano(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX).saturating_mul(NANO)
}

/// Returns the tokens that a latency-critical tenant with this balance gets for `nanos`: the full
/// rate while the tenant has less than `full`, and above that at most the tokens of
/// [`ROUND_NANOS_MAX`]. So a deficit is repaid however late, and a leap of the clock does not
/// become a burst.
pub fn credit(balance: i64, full: i64, rate: u64, nanos: u64) -> i64 {
    let missing = full.saturating_sub(balance).max(0);
    generated(rate, nanos).min(missing.saturating_add(generated(rate, ROUND_NANOS_MAX)))
}

/// Returns the donation of a latency-critical tenant whose balance is above its limit: 90 % of the
/// whole balance (paper, section 3.2.2).
pub fn donation(balance: i64) -> i64 {
    (i128::from(balance) * 9 / 10) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_makes_itself_in_a_second() {
        assert_eq!(generated(42_000_000, 1_000_000_000), nano(42_000_000));
        assert_eq!(generated(1, 1), 1);
        assert_eq!(generated(RATE_MAX, u64::MAX), i64::MAX);
    }

    #[test]
    fn a_leap_repays_a_deficit_and_no_more() {
        let hour = 3_600_000_000_000;
        let full = nano(10);
        let rate = 1_000_000;
        assert_eq!(credit(-nano(5_000), full, rate, hour), nano(5_010) + nano(1_000));
        assert_eq!(credit(nano(500), full, rate, hour), nano(1_000));
        assert_eq!(credit(-nano(5_000), full, rate, 1_000), nano(1));
    }

    #[test]
    fn a_donation_does_not_overflow() {
        assert_eq!(donation(10), 9);
        assert_eq!(donation(i64::MAX), (i128::from(i64::MAX) * 9 / 10) as i64);
    }
}
