//! The strings that name devices on a command line or in a configuration
//! (docs/reference/devices.md).
//!
//! This module only parses the strings. The program opens the devices.

mod ftl;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use contract::BLOCK_BYTES;

use crate::sim_flash::Preset;
pub use ftl::FtlOptions;

/// A device, as `SCHEME:BODY[?key=value[&key=value]…]` names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The device to open.
    pub source: Source,
    /// The decorators around the device.
    pub decorations: Decorations,
}

/// The medium of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// `null:SIZE`: a device without data.
    Null {
        /// Size in bytes, a multiple of 512.
        bytes: u64,
    },
    /// `mem:SIZE`: a device in this process's memory.
    Mem {
        /// Size in bytes, a multiple of 512.
        bytes: u64,
    },
    /// `file:PATH[?size=SIZE&disk=IDENTITY]`: a regular file or a block device.
    File {
        /// Path of the file; everything up to the first `?`.
        path: String,
        /// Size in bytes of a file that must be created, a multiple of 512; `None` if the spec says
        /// no size.
        bytes: Option<u64>,
        /// The identity that the disk must have, or `any`; `None` if the spec has no `disk=`.
        disk: Option<String>,
    },
    /// `sim:MODEL[?size=SIZE&age=AGE&slow=TIMES]`: a device in this process's memory, with the
    /// latencies of simulated flash. The [seed](Decorations::seed) determines its random decisions.
    Sim {
        /// The preset of the simulated flash.
        preset: Preset,
        /// Size in bytes, a multiple of 512.
        bytes: u64,
        /// Factor of the program and erase times of a new device, at least 1.
        age: f64,
        /// Factor of all times of the real drive, at least 1.
        slow: u32,
    },
    /// `ftl:MEMBER[?ftl.spare=…]`: a volume of flash translation over another device. The spec's
    /// decorations are around the member.
    Ftl {
        /// The device below, neither `null:` nor `ftl:`.
        member: Box<Source>,
        /// The options of the volume.
        wishes: FtlOptions,
    },
}

impl Source {
    /// Returns the path of the file that stores the device's data; `None` for a device without a
    /// file.
    pub fn path(&self) -> Option<&str> {
        match self {
            Source::File { path, .. } => Some(path),
            Source::Ftl { member, .. } => member.path(),
            Source::Null { .. } | Source::Mem { .. } | Source::Sim { .. } => None,
        }
    }
}

/// The default size of a simulated device in bytes. Its data is in memory, and random writes soon
/// take all of it.
const SIM_BYTES: u64 = 1 << 30;

/// Faults and delays that any spec may ask for. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decorations {
    /// `delay=100us` or `delay=80us..120us`: the additional time of each request; `None` for no
    /// delay.
    pub delay: Option<Delay>,
    /// `fail_reads=0.01`: the share of reads that end in a media error, 0 to 1.
    pub fail_reads: f64,
    /// `fail_writes=0.01`: the share of writes (of any kind) that end in a media error, 0 to 1.
    pub fail_writes: f64,
    /// `seed=7`: the seed of random delays and faults.
    pub seed: u64,
}

/// The additional time of requests, uniform between two durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The shortest delay of a request.
    pub min: Duration,
    /// The longest delay, not below `min`.
    pub max: Duration,
}

impl Delay {
    /// Returns a delay that is equal for all requests.
    pub const fn fixed(delay: Duration) -> Self {
        Delay { min: delay, max: delay }
    }
}

const SCHEMES: &str = "null:SIZE, mem:SIZE, file:PATH[?size=SIZE], \
                       sim:MODEL[?size=SIZE&age=AGE&slow=TIMES], ftl:MEMBER[?ftl.spare=SHARE]";
const DECORATION_KEYS: &str = "delay, fail_reads, fail_writes, seed";
const DELAY_FORM: &str = "a duration like 100us, 5ms or 1s, or two of them like 80us..120us";
const AGE_FORM: &str = "a number from 1 (new) to 100, like 1.5";
const SLOW_FORM: &str = "a whole number from 1 (as fast as the drive) to 1000, like 4";
const DISK_FORM: &str = "the identity of a disk without spaces, or `any`";
const SHARE_FORM: &str = "a share from 0 to 1, like 0.01";

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(SpecError::NoScheme { spec: text.to_owned() });
        };
        if scheme == "ftl" {
            return ftl::parse(rest);
        }
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut source = match scheme {
            "null" => Source::Null { bytes: size_of(scheme, body)? },
            "mem" => Source::Mem { bytes: size_of(scheme, body)? },
            "file" if body.is_empty() => return Err(SpecError::NoPath),
            "file" => Source::File { path: body.to_owned(), bytes: None, disk: None },
            "sim" => match Preset::named(body) {
                Some(preset) => Source::Sim { preset, bytes: SIM_BYTES, age: 1.0, slow: 1 },
                None => return Err(SpecError::UnknownModel { model: body.to_owned() }),
            },
            _ => return Err(SpecError::UnknownScheme { scheme: scheme.to_owned() }),
        };
        let mut decorations = Decorations::default();
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        for (place, pair) in pairs().enumerate() {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(SpecError::NoValue { key: pair.to_owned() });
            };
            let is_key = |other: &str| other.split_once('=').is_some_and(|(k, _)| k == key);
            if pairs().take(place).any(is_key) {
                return Err(SpecError::RepeatedKey { key: key.to_owned() });
            }
            match (&mut source, key) {
                (Source::File { bytes, .. }, "size") => *bytes = Some(size_of(scheme, value)?),
                (Source::File { disk, .. }, "disk") => *disk = Some(identity_of(key, value)?),
                (Source::Sim { bytes, .. }, "size") => *bytes = size_of(scheme, value)?,
                (Source::Sim { age, .. }, "age") => {
                    *age = parse_age(value).ok_or_else(|| SpecError::BadValue {
                        key: key.to_owned(),
                        value: value.to_owned(),
                        expected: AGE_FORM,
                    })?;
                }
                (Source::Sim { slow, .. }, "slow") => {
                    let parsed = value.parse().ok().filter(|times| (1..=1000).contains(times));
                    *slow = parsed.ok_or_else(|| SpecError::BadValue {
                        key: key.to_owned(),
                        value: value.to_owned(),
                        expected: SLOW_FORM,
                    })?;
                }
                _ => decorations.set(scheme, key, value)?,
            }
        }
        Ok(Spec { source, decorations })
    }
}

impl Decorations {
    /// Returns `true` if a device needs no decorator: there is no delay, and no share of failures.
    pub fn is_empty(&self) -> bool {
        self.delay.is_none() && self.fail_reads == 0.0 && self.fail_writes == 0.0
    }

    fn set(&mut self, scheme: &str, key: &str, value: &str) -> Result<(), SpecError> {
        let bad = |expected| SpecError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        match key {
            "delay" => self.delay = Some(parse_delay(value).ok_or_else(|| bad(DELAY_FORM))?),
            "fail_reads" => self.fail_reads = parse_share(value).ok_or_else(|| bad(SHARE_FORM))?,
            "fail_writes" => {
                self.fail_writes = parse_share(value).ok_or_else(|| bad(SHARE_FORM))?;
            }
            "seed" => self.seed = value.parse().map_err(|_| bad("a number below 2^64"))?,
            _ => {
                let scheme = scheme.to_owned();
                return Err(SpecError::UnknownKey { scheme, key: key.to_owned() });
            }
        }
        Ok(())
    }
}

fn identity_of(key: &str, value: &str) -> Result<String, SpecError> {
    match value.is_empty() || value.contains(char::is_whitespace) {
        false => Ok(value.to_owned()),
        true => Err(SpecError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected: DISK_FORM,
        }),
    }
}

fn size_of(scheme: &str, text: &str) -> Result<u64, SpecError> {
    parse_size(text).map_err(|reason| SpecError::BadSize {
        scheme: scheme.to_owned(),
        text: text.to_owned(),
        reason,
    })
}

/// Parses a size like `512`, `4KiB`, `64MiB`, `1GiB` or `2TiB` into bytes: a nonzero multiple of
/// 512. `K`, `M`, `G` and `T` mean the same binary units.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(SizeError::Malformed);
    }
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(SizeError::Malformed),
    };
    let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
    let bytes = number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)?;
    match bytes {
        0 => Err(SizeError::Zero),
        _ if bytes % BLOCK_BYTES as u64 != 0 => Err(SizeError::NotBlocks),
        _ => Ok(bytes),
    }
}

/// Formats a size in bytes in the largest unit that divides it: `4 KiB`, `1536 B`.
pub fn size_text(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| format!("{bytes} B"), |(unit, shift)| format!("{} {unit}", bytes >> shift))
}

fn parse_delay(text: &str) -> Option<Delay> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (parse_duration(min)?, parse_duration(max)?);
    (min <= max).then_some(Delay { min, max })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.parse::<u64>().ok()?.checked_mul(nanos)?))
}

fn parse_share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

fn parse_age(text: &str) -> Option<f64> {
    text.parse().ok().filter(|age| (1.0..=100.0).contains(age))
}

/// The reason that a string names no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The string has no `:`.
    NoScheme {
        /// The whole spec, as given.
        spec: String,
    },
    /// The word before the `:` is unknown.
    UnknownScheme {
        /// The unknown kind of device, as given.
        scheme: String,
    },
    /// A size is invalid.
    BadSize {
        /// The kind of device, such as `file`.
        scheme: String,
        /// The text of the size.
        text: String,
        /// The fault of the size.
        reason: SizeError,
    },
    /// `file:` without a path.
    NoPath,
    /// The text after `sim:` names no model of a device.
    UnknownModel {
        /// The unknown name of a flash model, as given.
        model: String,
    },
    /// The device cannot be the member of an `ftl:` device.
    BadMember {
        /// The member's kind and body, such as `null:1GiB`.
        member: String,
    },
    /// An option without `=`.
    NoValue {
        /// The name of the option.
        key: String,
    },
    /// The kind of device does not have the option.
    UnknownKey {
        /// The kind of device, such as `file`.
        scheme: String,
        /// The name of the option.
        key: String,
    },
    /// An option is given more than once.
    RepeatedKey {
        /// The name of the option.
        key: String,
    },
    /// The value of an option is invalid.
    BadValue {
        /// The name of the option.
        key: String,
        /// The value of the option, as given.
        value: String,
        /// The expected form of the value.
        expected: &'static str,
    },
}

/// The reason why a text is no valid size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// The text is not a number with a known unit.
    Malformed,
    /// The size is zero.
    Zero,
    /// The size is not a multiple of 512 bytes.
    NotBlocks,
    /// The size does not fit 64 bits.
    TooLarge,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::NoScheme { spec } => {
                write!(f, "device `{spec}` does not say its kind; expected one of {SCHEMES}")
            }
            SpecError::UnknownScheme { scheme } => {
                write!(f, "unknown kind of device `{scheme}:`; expected one of {SCHEMES}")
            }
            SpecError::BadSize { scheme, text, reason } => {
                write!(f, "`{text}` is no size for a `{scheme}:` device: {reason}")
            }
            SpecError::NoPath => {
                f.write_str("`file:` needs a path; expected file:PATH[?size=SIZE]")
            }
            SpecError::UnknownModel { model } => {
                write!(f, "unknown model `{model}` of a `sim:` device; expected one of ")?;
                f.write_str("a, b, c, cloud, small")
            }
            SpecError::BadMember { member } => write!(
                f,
                "`{member}` cannot be the member of an `ftl:` device, which has to keep data as it \
                 is; expected a `file:`, `mem:` or `sim:` device"
            ),
            SpecError::NoValue { key } => {
                write!(f, "option `{key}` has no value; expected `{key}=VALUE`")
            }
            SpecError::UnknownKey { scheme, key } => {
                let (own, between) = match scheme.as_str() {
                    "file" => ("size, disk", ", "),
                    "sim" => ("size, age, slow", ", "),
                    "ftl" => (ftl::KEYS, ", "),
                    _ => ("", ""),
                };
                let known = DECORATION_KEYS;
                write!(
                    f,
                    "unknown option `{key}` of a `{scheme}:` device; known: {own}{between}{known}"
                )
            }
            SpecError::RepeatedKey { key } => write!(f, "option `{key}` is given twice"),
            SpecError::BadValue { key, value, expected } => {
                write!(f, "`{value}` is no value for option `{key}`; expected {expected}")
            }
        }
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::Malformed => {
                "expected a whole number with B, KiB, MiB, GiB, TiB (or K, M, G, T), like 64MiB"
            }
            SizeError::Zero => "it must be more than zero",
            SizeError::NotBlocks => "it must be a multiple of 512 bytes",
            SizeError::TooLarge => "it must be below 2^64 bytes",
        })
    }
}

impl core::error::Error for SpecError {}
impl core::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    pub(super) fn spec(text: &str) -> Spec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(super) fn complaint(text: &str) -> String {
        text.parse::<Spec>().expect_err(text).to_string()
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_divides_them() {
        let sizes = [(0, "0 B"), (1536, "1536 B"), (4096, "4 KiB"), (1 << 30, "1 GiB")];
        for (bytes, text) in sizes {
            assert_eq!(size_text(bytes), text);
        }
        assert_eq!(size_text(3 << 40), "3 TiB");
    }

    #[test]
    fn each_source() {
        assert_eq!(spec("null:512").source, Source::Null { bytes: 512 });
        assert_eq!(spec("null:2TiB").source, Source::Null { bytes: 2 << 40 });
        assert_eq!(spec("mem:64M").source, Source::Mem { bytes: 64 << 20 });
        let file = |path: &str, bytes| Source::File { path: path.to_owned(), bytes, disk: None };
        assert_eq!(spec("file:/dev/vdb").source, file("/dev/vdb", None));
        assert_eq!(spec("file:./a:b?size=1GiB").source, file("./a:b", Some(1 << 30)));
        assert!(spec("file:a?size=4KiB").decorations.is_empty());
        let disk = Some("eui.0025-part1".to_owned());
        let path = "/dev/a".to_owned();
        let expected = Source::File { path, bytes: None, disk };
        assert_eq!(spec("file:/dev/a?disk=eui.0025-part1").source, expected);
        let sim = |preset, bytes, age| Source::Sim { preset, bytes, age, slow: 1 };
        assert_eq!(spec("sim:a").source, sim(Preset::A, SIM_BYTES, 1.0));
        let Spec { source, decorations } = spec("sim:cloud?size=1GiB&age=1.5&seed=9");
        assert_eq!(source, sim(Preset::Cloud, 1 << 30, 1.5));
        assert_eq!((decorations.seed, decorations.is_empty()), (9, true));
        let slow = Source::Sim { preset: Preset::A, bytes: SIM_BYTES, age: 1.0, slow: 4 };
        assert_eq!(spec("sim:a?slow=4").source, slow);
    }

    #[test]
    fn decorations_go_with_every_source() {
        let Spec { source, decorations } = spec("file:x?delay=80us..1ms&size=1M&fail_reads=0.5");
        let path = "x".to_owned();
        assert_eq!(source, Source::File { path, bytes: Some(1 << 20), disk: None });
        let (min, max) = (Duration::from_micros(80), Duration::from_millis(1));
        assert_eq!(decorations.delay, Some(Delay { min, max }));
        assert_eq!(decorations.fail_reads, 0.5);
        let decorations = spec("mem:1GiB?fail_writes=1&seed=7").decorations;
        assert_eq!((decorations.fail_writes, decorations.seed), (1.0, 7));
        let decorations = spec("null:1GiB?delay=100us").decorations;
        assert_eq!(decorations.delay, Some(Delay::fixed(Duration::from_micros(100))));
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1023", Err(SizeError::NotBlocks)),
            ("0", Err(SizeError::Zero)),
            ("0GiB", Err(SizeError::Zero)),
            ("", Err(SizeError::Malformed)),
            ("GiB", Err(SizeError::Malformed)),
            ("1.5GiB", Err(SizeError::Malformed)),
            ("-512", Err(SizeError::Malformed)),
            ("1GB", Err(SizeError::Malformed)),
            ("4K", Ok(4096)),
            ("16777215TiB", Ok(16_777_215 << 40)),
            ("16777216TiB", Err(SizeError::TooLarge)),
            ("99999999999999999999", Err(SizeError::TooLarge)),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn complaints_say_what_and_what_instead() {
        assert_eq!(
            complaint("sum:a"),
            "unknown kind of device `sum:`; expected one of null:SIZE, mem:SIZE, \
             file:PATH[?size=SIZE], sim:MODEL[?size=SIZE&age=AGE&slow=TIMES], \
             ftl:MEMBER[?ftl.spare=SHARE]"
        );
        assert_eq!(
            complaint("sim:d?size=1GiB"),
            "unknown model `d` of a `sim:` device; expected one of a, b, c, cloud, small"
        );
        assert_eq!(
            complaint("sim:a?ages=2"),
            "unknown option `ages` of a `sim:` device; known: size, age, slow, delay, fail_reads, \
             fail_writes, seed"
        );
        assert_eq!(
            complaint("sim:a?slow=0.5"),
            "`0.5` is no value for option `slow`; expected a whole number from 1 (as fast as the \
             drive) to 1000, like 4"
        );
        assert_eq!(
            complaint("sim:a?age=0.5"),
            "`0.5` is no value for option `age`; expected a number from 1 (new) to 100, like 1.5"
        );
        assert_eq!(
            complaint("null:1000"),
            "`1000` is no size for a `null:` device: it must be a multiple of 512 bytes"
        );
        assert_eq!(
            complaint("null:1GiB?size=1GiB"),
            "unknown option `size` of a `null:` device; known: delay, fail_reads, fail_writes, seed"
        );
        assert_eq!(
            complaint("file:a?siz=1"),
            "unknown option `siz` of a `file:` device; known: size, disk, delay, fail_reads, \
             fail_writes, seed"
        );
        assert_eq!(
            complaint("file:?size=1G"),
            "`file:` needs a path; expected file:PATH[?size=SIZE]"
        );
        assert_eq!(complaint("mem:1G?seed=1&seed=1"), "option `seed` is given twice");
        assert_eq!(
            complaint("mem:1G?delay"),
            "option `delay` has no value; expected `delay=VALUE`"
        );
        for bad in ["delay=5", "delay=2us..1us", "fail_reads=2", "fail_writes=NaN", "seed=-1"] {
            let text = alloc::format!("mem:1G?{bad}");
            assert!(complaint(&text).contains("; expected a"), "{bad}");
        }
        assert!(complaint("volume0").contains("does not say its kind"));
    }

    #[test]
    fn no_string_panics_and_every_size_is_whole_blocks() {
        let words = [
            "null:",
            "mem:",
            "file:",
            "sim:a",
            "age",
            "?",
            "&",
            "=",
            "size",
            "delay",
            "seed",
            "fail_reads",
            "1",
            "512",
            "4KiB",
            "..",
            "us",
            "GiB",
            "0.5",
            "é",
            ":",
            "18446744073709551615",
            "T",
        ];
        let mut chance = crate::Rng::new(5);
        let mut parsed = 0;
        for _ in 0..50_000 {
            let mut text = String::new();
            for _ in 0..chance.within(1..=7) {
                text.push_str(words[chance.within(0..=words.len() as u64 - 1) as usize]);
            }
            match text.parse::<Spec>() {
                Ok(Spec {
                    source:
                        Source::Null { bytes } | Source::Mem { bytes } | Source::Sim { bytes, .. },
                    ..
                }) => {
                    assert!(bytes > 0 && bytes % 512 == 0, "{text}");
                    parsed += 1;
                }
                Ok(_) => parsed += 1,
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        assert!(parsed > 500, "only {parsed} of the strings meant something");
    }
}
