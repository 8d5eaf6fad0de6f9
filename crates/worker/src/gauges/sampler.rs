//! A random choice of requests and turns to measure, independent of patterns in the load.

/// A random choice of one in `one_in` events.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The number of events to skip before the next choice.
    left: usize,
    /// Maximum number of events skipped in a row.
    most: u32,
    /// The state of the random numbers, with an equal start in every worker.
    state: u32,
}

impl Sampler {
    /// Creates a sampler that picks one event in `one_in`.
    pub(crate) fn new(one_in: u32) -> Sampler {
        Sampler { left: 0, most: 2 * one_in - 1, state: 0x9e37_79b9 }
    }

    /// Counts `come` more events, and returns the index of the first one that is picked. The caller
    /// counts the events behind that index with another call.
    #[inline]
    pub(crate) fn skip(&mut self, come: usize) -> Option<usize> {
        if self.left >= come {
            self.left -= come;
            return None;
        }
        let place = self.left;
        // Xorshift with the shifts of Marsaglia (2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.left = (self.state % self.most) as usize;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_is_picked_and_never_in_step() {
        let mut sampler = Sampler::new(32);
        let mut picked = Vec::new();
        // Turns of 1 to 64 requests.
        let mut first = 0;
        for turn in 0..20_000 {
            let (mut place, end) = (first, first + 1 + turn % 64);
            while let Some(skipped) = sampler.skip(end - place) {
                picked.push(place + skipped);
                place += skipped + 1;
            }
            first = end;
        }
        let share = first as f64 / picked.len() as f64;
        assert!((31.0..33.0).contains(&share), "one in {share}");
        // Whatever the period of a load up to 64 requests, each of them is looked at.
        for period in 2..=64 {
            let mut seen = vec![0; period];
            picked.iter().for_each(|place| seen[place % period] += 1);
            let even = picked.len() as f64 / period as f64;
            let sound = seen.iter().all(|n| (0.7..1.3).contains(&(f64::from(*n) / even)));
            assert!(sound, "{period}: {seen:?}");
        }
    }
}
