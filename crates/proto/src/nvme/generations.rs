//! Generations of the discovery log, by host: the number of changes visible to that host.

use alloc::collections::BTreeMap;

use super::config::Nqn;

/// The most hosts that have a generation of their own.
const HOSTS_MAX: usize = 1024;

/// The generation of the discovery log for each host that has read it. Separate generations keep a
/// host from learning about changes for others.
#[derive(Debug)]
pub(super) struct Generations {
    of: BTreeMap<Nqn, u64>,
    /// The generation of all other hosts, which is at least that of any forgotten host.
    others: u64,
}

impl Default for Generations {
    fn default() -> Generations {
        Generations { of: BTreeMap::new(), others: 1 }
    }
}

impl Generations {
    /// Returns the generation of the log for a host.
    pub(super) fn of(&self, host: &Nqn) -> u64 {
        self.of.get(host).copied().unwrap_or(self.others)
    }

    /// Begins to count changes for a host separately. May forget another host's generation to make
    /// room.
    pub(super) fn keep(&mut self, host: &Nqn) {
        if self.of.contains_key(host) {
            return;
        }
        if self.of.len() >= HOSTS_MAX
            && let Some((_, generation)) = self.of.pop_first()
        {
            // The log may change for the forgotten host without being counted.
            self.others = self.others.max(generation + 1);
        }
        self.of.insert(host.clone(), self.others);
    }

    /// Counts a change that is visible to the hosts that `whom` selects.
    pub(super) fn count(&mut self, whom: impl Fn(&Nqn) -> bool) {
        self.of.iter_mut().filter(|(host, _)| whom(host)).for_each(|(_, own)| *own += 1);
    }

    /// Raises the host's generation to at least `generation`, which another process has reported to
    /// the host.
    pub(super) fn raise(&mut self, host: &Nqn, generation: u64) {
        self.keep(host);
        let own = self.of.entry(host.clone()).or_insert(generation);
        *own = generation.max(*own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn host(n: usize) -> Nqn {
        Nqn::new(&format!("nqn.2026-01.io.x:h{n}")).unwrap()
    }

    #[test]
    fn a_forgotten_host_never_sees_an_earlier_generation() {
        let mut generations = Generations::default();
        generations.keep(&host(1000));
        assert_eq!(generations.of(&host(1000)), 1);
        for _ in 0..3 {
            generations.count(|whom| *whom == host(1000));
        }
        assert_eq!(generations.of(&host(1000)), 4);
        (2000..2000 + HOSTS_MAX).for_each(|n| generations.keep(&host(n)));
        assert!(generations.of.len() <= HOSTS_MAX);
        assert!(generations.of(&host(1000)) > 4, "it was forgotten");
        assert_eq!(generations.of(&host(2000)), 1, "of others it learns nothing");
    }
}
