//! Credits: the number of packets that a peer may have outstanding to this end, so that packets are
//! not dropped for lack of memory.

/// The minimum of an association's credits. With fewer, a lost packet could not be recovered.
pub(crate) const LEAST: u16 = 2;

/// The maximum of an association's credits: twice as many packets as one path may have in flight.
const MOST: usize = 256;

/// The number of credits that all associations together get for each chunk, which is a receive
/// buffer. Peers seldom use their credits all at once.
const OVERCOMMIT: usize = 4;

/// Returns the credits of one of `associations` associations that share `chunks` chunks, of which
/// `free` are free now. `is_pressed` halves the association's share, since few chunks are free.
pub(crate) fn grant(chunks: usize, free: usize, associations: usize, is_pressed: bool) -> u16 {
    let share = OVERCOMMIT * chunks / associations.max(1);
    let share = if is_pressed { share / 2 } else { share };
    (share.min(free).min(MOST) as u16).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_follow_what_is_free() {
        let table = [
            // chunks, free, associations, pressed → credits
            (4096, 4096, 1, false, 256),
            (4096, 4096, 256, false, 64),
            (4096, 4096, 256, true, 32),
            (4096, 10, 256, false, 10),
            (4096, 0, 1, false, 2),
            (256, 256, 4096, false, 2),
            (256, 256, 0, false, 256),
        ];
        for (chunks, free, associations, is_pressed, credits) in table {
            assert_eq!(grant(chunks, free, associations, is_pressed), credits);
        }
    }
}
