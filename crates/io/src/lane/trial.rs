//! The slowed-down link of a benchmark (docs/adr/0051-shaped-lanes.md), set by an environment
//! variable: a rate, a frame size, a batching rule and a number of associations. Never set on a
//! production server.

use packets::batch::{Adaptive, Batch};
use packets::{Settings, Shape};

use crate::Error;

/// The environment variable with the settings of the slowed-down link.
const VARIABLE: &str = "NEARFLASH_PACKET_LINK";

const FORM: &str =
    "expected rate=NGbit, frame=BYTES, batch=never|turn|tyche|N or associations=N, with commas";

/// Bytes of an Ethernet frame that count on the link but not in the interface's MTU: preamble,
/// header, checksum and gap (IEEE 802.3).
const FRAME_BYTES: usize = 8 + 14 + 4 + 12;

/// The settings of the slowed-down link of a benchmark.
#[derive(Clone, Debug, Default)]
pub(crate) struct EmulatedLink {
    bits_per_second: Option<u64>,
    /// Bytes that an interface's frame may carry (MTU).
    frame: Option<usize>,
    rule: Option<Batch>,
    /// The number of associations among which a client divides its connections.
    associations: Option<usize>,
}

/// The most associations of a client.
const ASSOCIATIONS_MAX: usize = 4096;

impl EmulatedLink {
    /// Parses the requested trial from the environment; `None` if the variable is not set.
    ///
    /// # Errors
    /// Fails if the text makes no sense.
    pub(crate) fn of_environment() -> Result<Option<EmulatedLink>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let text = text.to_string_lossy();
        let trial = EmulatedLink::parse(&text)
            .ok_or_else(|| Error::new(format!("{VARIABLE}={text} is not understood; {FORM}")))?;
        tracing::warn!(link = %text, "packets are slowed down for a measurement ({VARIABLE})");
        Ok(Some(trial))
    }

    fn parse(text: &str) -> Option<EmulatedLink> {
        let mut trial = EmulatedLink::default();
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=')?;
            match key {
                "rate" => trial.bits_per_second = Some(bits(value)?),
                "frame" => trial.frame = Some(value.parse().ok().filter(|bytes| *bytes > 0)?),
                "batch" => trial.rule = Some(rule(value)?),
                "associations" => trial.associations = Some(associations(value)?),
                _ => return None,
            }
        }
        Some(trial)
    }

    /// Returns the size of the largest packet that fits a frame after `head` bytes of other
    /// protocols' headers, and is at most `most` bytes.
    pub(crate) fn packet_bytes(&self, head: usize, most: usize) -> usize {
        let least = Settings::PACKET_BYTES_MIN;
        let frame = self.frame.map_or(most, |frame| frame.saturating_sub(head));
        frame.clamp(least, most.max(least))
    }

    /// Returns the traffic shape of the link, whose frames have `head` bytes of other protocols'
    /// headers before each packet; `None` if no rate is set.
    pub(crate) fn shape(&self, head: usize) -> Option<Shape> {
        let overhead_bytes = FRAME_BYTES + head;
        self.bits_per_second.map(|bits_per_second| Shape { bits_per_second, overhead_bytes })
    }

    /// Returns the number of associations among which a client divides its connections; 1 if all
    /// share one.
    pub(crate) fn associations(&self) -> usize {
        self.associations.unwrap_or(1)
    }

    /// Returns the batching rule of sends: at the end that dials, the configured rule. A server's
    /// replies leave with the turn that served their batch, or each alone.
    pub(crate) fn rule(&self, dials: bool) -> Batch {
        match &self.rule {
            Some(Batch::Never) => Batch::Never,
            Some(rule) if dials => rule.clone(),
            _ => Batch::Turn,
        }
    }
}

/// Parses a rate such as `10Gbit` or `2500Mbit`.
fn bits(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix("Gbit") {
        Some(number) => (number, 1_000_000_000),
        None => (text.strip_suffix("Mbit")?, 1_000_000),
    };
    number.parse::<u64>().ok().filter(|number| (1..=1_000_000).contains(number)).map(|n| n * unit)
}

fn associations(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count| (1..=ASSOCIATIONS_MAX).contains(count))
}

fn rule(text: &str) -> Option<Batch> {
    match text {
        "never" => Some(Batch::Never),
        "turn" => Some(Batch::Turn),
        "tyche" => Some(Batch::Adaptive(Adaptive::new(contract::Instant::ZERO))),
        level => level.parse().ok().filter(|level| *level > 0).map(Batch::Static),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_written() {
        let trial = EmulatedLink::parse("rate=10Gbit,frame=9000,batch=8").unwrap();
        let shape = Shape { bits_per_second: 10_000_000_000, overhead_bytes: 66 };
        assert_eq!(trial.shape(28), Some(shape));
        assert_eq!(trial.packet_bytes(28, 32_768), 8972);
        assert_eq!(trial.packet_bytes(28, 1400), 1400, "the lane has a say, too");
        assert!(matches!(trial.rule(true), Batch::Static(8)));
        assert!(matches!(trial.rule(false), Batch::Turn), "a server answers as it is asked");
        let trial = EmulatedLink::parse("rate=2500Mbit,frame=100").unwrap();
        assert_eq!(trial.shape(4).unwrap().bits_per_second, 2_500_000_000);
        assert_eq!(trial.packet_bytes(4, 8996), Settings::PACKET_BYTES_MIN);
        let never = EmulatedLink::parse("batch=never").unwrap();
        assert!(matches!(never.rule(false), Batch::Never) && never.shape(28).is_none());
        assert!(matches!(
            EmulatedLink::parse("batch=tyche").unwrap().rule(true),
            Batch::Adaptive(_)
        ));
        assert_eq!(never.associations(), 1);
        assert_eq!(EmulatedLink::parse("associations=256").unwrap().associations(), 256);
        for bad in ["", "rate", "rate=10", "rate=0Gbit", "rate=x", "batch=0", "frame=0", "mtu=9"] {
            assert!(EmulatedLink::parse(bad).is_none(), "{bad}");
        }
        for bad in ["associations=0", "associations=4097", "associations=x"] {
            assert!(EmulatedLink::parse(bad).is_none(), "{bad}");
        }
    }
}
