//! Counters of a volume since its opening, and its state.

/// The wear of a volume: how often its segments were opened to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// The least wear of a segment.
    pub least: u32,
    /// The sum of the wear of all segments.
    pub sum: u64,
    /// The greatest wear of a segment.
    pub greatest: u32,
}

/// Counters and state of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of pages that hosts wrote.
    pub host_pages: u64,
    /// Number of pages that the collector moved.
    pub moved_pages: u64,
    /// Number of pages that hosts wrote in batches of lone writes.
    pub lone_pages: u64,
    /// Number of pages of batches: data and headers.
    pub log_pages: u64,
    /// Number of pages of batch headers.
    pub header_pages: u64,
    /// Number of pages of checkpoints and superblocks that were written.
    pub checkpoint_pages: u64,
    /// Number of pages that the collector read.
    pub collect_read_pages: u64,
    /// Number of segments that became victims.
    pub victims: u64,
    /// Number of rounds of flushes that began.
    pub flushes: u64,
    /// Number of checkpoints that were completed.
    pub checkpoints: u64,
    /// Number of pages that the collector found damaged or could not read, so that their data is
    /// lost.
    pub poisoned: u64,
    /// Number of times that a member failed to write a batch.
    pub write_failures: u64,
    /// Number of victims that the collector gave up: it could not read a batch's header, without
    /// which it does not find their live pages.
    pub stuck: u64,
    /// Number of free segments now.
    pub free: u32,
    /// The wear of the segments now.
    pub wear: Wear,
    /// `true` if the volume takes no writes any more.
    pub read_only: bool,
}

impl Report {
    /// Returns the pages written to members, metadata included, for each page that hosts wrote.
    pub fn amplification(&self) -> f64 {
        (self.log_pages + self.checkpoint_pages) as f64 / self.host_pages.max(1) as f64
    }

    /// Returns the counters less those of `earlier`, with the present state.
    pub fn since(&self, earlier: &Report) -> Report {
        Report {
            host_pages: self.host_pages - earlier.host_pages,
            moved_pages: self.moved_pages - earlier.moved_pages,
            lone_pages: self.lone_pages - earlier.lone_pages,
            log_pages: self.log_pages - earlier.log_pages,
            header_pages: self.header_pages - earlier.header_pages,
            checkpoint_pages: self.checkpoint_pages - earlier.checkpoint_pages,
            collect_read_pages: self.collect_read_pages - earlier.collect_read_pages,
            victims: self.victims - earlier.victims,
            flushes: self.flushes - earlier.flushes,
            checkpoints: self.checkpoints - earlier.checkpoints,
            poisoned: self.poisoned - earlier.poisoned,
            write_failures: self.write_failures - earlier.write_failures,
            stuck: self.stuck - earlier.stuck,
            free: self.free,
            wear: self.wear,
            read_only: self.read_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_the_later_counts_and_the_present_state() {
        let earlier = Report {
            host_pages: 10,
            poisoned: 1,
            write_failures: 2,
            stuck: 3,
            free: 9,
            ..Report::default()
        };
        let wear = Wear { least: 1, sum: 6, greatest: 4 };
        let now = Report {
            host_pages: 15,
            poisoned: 5,
            write_failures: 2,
            stuck: 4,
            free: 7,
            wear,
            read_only: true,
            ..Report::default()
        };
        let expected = Report {
            host_pages: 5,
            poisoned: 4,
            stuck: 1,
            free: 7,
            wear,
            read_only: true,
            ..Report::default()
        };
        assert_eq!(now.since(&earlier), expected);
    }
}
