//! The options of `ftl:` devices: `ftl:MEMBER[?…&ftl.spare=10%&ftl.segment=2MiB&ftl.streams=3&…]`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use super::{Source, Spec, SpecError, parse_duration, parse_size};

/// The options of a volume of flash translation; `None` where the spec has no such option. They
/// determine the shape of a new volume. An existing volume must have the shape that they name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlOptions {
    /// `ftl.spare=10%`: the member's space over the volume's, less one, in thousandths.
    pub spare_per_mille: Option<u32>,
    /// `ftl.segment=2MiB`: the unit in which space is freed, in bytes, a power of two.
    pub segment_bytes: Option<u64>,
    /// `ftl.streams=3`: the number of streams by heat: 1, 3 or 6.
    pub streams: Option<u8>,
    /// `ftl.virtual=1TiB`: the size of a thin volume in bytes, a multiple of 4 KiB.
    pub virtual_bytes: Option<u64>,
    /// `ftl.files=ignore`: the volume is served as if it had no file system. The shape of a volume
    /// does not depend on it.
    pub ignores_files: bool,
    /// `ftl.absorb=1ms`: the time for which a write of less than a page waits for others of its page.
    /// The shape of a volume does not depend on it.
    pub absorb: Option<Duration>,
}

/// Maximum time for which a write waits for others of its page.
const ABSORB_MAX: Duration = Duration::from_millis(10);

const SPARE_FORM: &str = "a percentage from 2% to 400%, like 10%";
const SEGMENT_FORM: &str = "a power of two from 32KiB to 128MiB, like 2MiB";
const STREAMS_FORM: &str = "1, 3 or 6";
const VIRTUAL_FORM: &str = "a multiple of 4KiB below 16TiB, like 1TiB";
const FILES_FORM: &str = "ignore";
const ABSORB_FORM: &str = "a time up to 10ms, like 1ms";

/// The keys of the options of `ftl:` devices, for error messages.
pub(super) const KEYS: &str =
    "ftl.spare, ftl.segment, ftl.streams, ftl.virtual, ftl.files, ftl.absorb";

impl FtlOptions {
    /// Returns `true` if no option is set.
    pub fn is_empty(&self) -> bool {
        *self == FtlOptions::default()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let bad = |expected| SpecError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        match key {
            "ftl.spare" => {
                let spare = parse_spare(value).ok_or_else(|| bad(SPARE_FORM))?;
                self.spare_per_mille = Some(spare);
            }
            "ftl.segment" => {
                let bytes = parse_size(value).ok();
                let fits =
                    |bytes: &u64| bytes.is_power_of_two() && (15..=27).contains(&bytes.ilog2());
                self.segment_bytes = Some(bytes.filter(fits).ok_or_else(|| bad(SEGMENT_FORM))?);
            }
            "ftl.streams" => {
                let streams = value.parse().ok().filter(|streams| matches!(streams, 1 | 3 | 6));
                self.streams = Some(streams.ok_or_else(|| bad(STREAMS_FORM))?);
            }
            "ftl.virtual" => {
                let bytes = parse_size(value).ok();
                let fits = |bytes: &u64| bytes.is_multiple_of(4096) && (1..1 << 44).contains(bytes);
                self.virtual_bytes = Some(bytes.filter(fits).ok_or_else(|| bad(VIRTUAL_FORM))?);
            }
            "ftl.files" => match value {
                FILES_FORM => self.ignores_files = true,
                _ => return Err(bad(FILES_FORM)),
            },
            "ftl.absorb" => {
                let absorb = parse_duration(value).filter(|absorb| *absorb <= ABSORB_MAX);
                self.absorb = Some(absorb.ok_or_else(|| bad(ABSORB_FORM))?);
            }
            _ => {
                let scheme = "ftl".to_owned();
                return Err(SpecError::UnknownKey { scheme, key: key.to_owned() });
            }
        }
        Ok(())
    }
}

/// Parses a percentage with at most one decimal place, like `7%` or `7.5%`, into thousandths.
fn parse_spare(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if tenths.len() != 1 || !digits(whole) || !digits(tenths) {
        return None;
    }
    let per_mille = whole.parse::<u32>().ok()?.checked_mul(10)? + tenths.parse::<u32>().ok()?;
    (20..=4000).contains(&per_mille).then_some(per_mille)
}

/// Parses the text behind `ftl:`. The options without the prefix `ftl.` are the member's.
pub(super) fn parse(rest: &str) -> Result<Spec, SpecError> {
    let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut wishes = FtlOptions::default();
    let mut member = String::from(body);
    let (mut seen, mut mark) = (alloc::vec::Vec::new(), '?');
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key, value)) if key.starts_with("ftl.") => {
                if seen.contains(&key) {
                    return Err(SpecError::RepeatedKey { key: key.to_owned() });
                }
                seen.push(key);
                wishes.set(key, value)?;
            }
            _ => {
                member.push(mark);
                member.push_str(pair);
                mark = '&';
            }
        }
    }
    let Spec { source, decorations } = member.parse()?;
    if let Source::File { disk: Some(_), .. } = source {
        // Its superblocks identify the volume.
        let scheme = "ftl".to_owned();
        return Err(SpecError::UnknownKey { scheme, key: "disk".to_owned() });
    }
    if matches!(source, Source::Ftl { .. } | Source::Null { .. }) {
        return Err(SpecError::BadMember { member: body.to_owned() });
    }
    Ok(Spec { source: Source::Ftl { member: Box::new(source), wishes }, decorations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::{complaint, spec};

    #[test]
    fn options_of_the_member_and_of_the_volume() {
        let text = "ftl:file:./a?size=1GiB&ftl.spare=7.5%&delay=1us&ftl.streams=6\
                    &ftl.segment=4MiB&ftl.virtual=1TiB&ftl.files=ignore&ftl.absorb=1ms";
        let Spec { source, decorations } = spec(text);
        let member =
            Box::new(Source::File { path: "./a".to_owned(), bytes: Some(1 << 30), disk: None });
        let wishes = FtlOptions {
            spare_per_mille: Some(75),
            segment_bytes: Some(4 << 20),
            streams: Some(6),
            virtual_bytes: Some(1 << 40),
            ignores_files: true,
            absorb: Some(Duration::from_millis(1)),
        };
        assert_eq!(source, Source::Ftl { member, wishes });
        assert_eq!(source.path(), Some("./a"));
        assert!(decorations.delay.is_some());
        let member = Box::new(Source::Mem { bytes: 64 << 20 });
        let wishes = FtlOptions::default();
        assert_eq!(spec("ftl:mem:64MiB").source, Source::Ftl { member, wishes });
    }

    #[test]
    fn complaints_say_what_and_what_instead() {
        assert_eq!(
            complaint("ftl:mem:1GiB?ftl.spare=1%"),
            "`1%` is no value for option `ftl.spare`; expected a percentage from 2% to 400%, like 10%"
        );
        assert_eq!(
            complaint("ftl:mem:1GiB?ftl.spar=10%"),
            "unknown option `ftl.spar` of a `ftl:` device; known: ftl.spare, ftl.segment, \
             ftl.streams, ftl.virtual, ftl.files, ftl.absorb, delay, fail_reads, fail_writes, seed"
        );
        for bad in ["ftl:null:1GiB", "ftl:ftl:mem:1GiB"] {
            assert!(complaint(bad).contains("cannot be the member of an `ftl:` device"), "{bad}");
        }
        for bad in [
            "ftl.segment=3MiB",
            "ftl.segment=16KiB",
            "ftl.streams=2",
            "ftl.virtual=16TiB",
            "ftl.files=none",
            "ftl.absorb=11ms",
        ] {
            let text = alloc::format!("ftl:mem:1G?{bad}");
            assert!(complaint(&text).contains("; expected "), "{bad}");
        }
        assert_eq!(
            complaint("ftl:mem:1G?ftl.streams=1&ftl.streams=1"),
            "option `ftl.streams` is given twice"
        );
        assert!(complaint("ftl:tape:1").starts_with("unknown kind of device `tape:`"));
    }
}
