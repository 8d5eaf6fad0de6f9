//! `[[tenant]]`: tenants, to whom requests are charged, with their promises.

use contract::{Promise, Share, Slo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TablePosition;
use crate::text::NAME_BYTES_MAX;

/// Maximum length of a note, in characters.
const NOTE_CHARS_MAX: usize = 200;

/// A tenant and the promise to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
pub struct Tenant {
    /// Name of the tenant.
    pub name: String,
    /// The promise.
    pub promise: Promise,
    /// Device that the promise holds for; `None` for the first.
    pub device: Option<String>,
    /// Free text of the operators about the tenant; never empty.
    pub note: Option<String>,
    /// The position of the entry in its file.
    pub nth: TablePosition,
}

/// A tenant and its SLO; best effort without a latency.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tenant")]
struct Written {
    /// Name of the tenant. `default` is the tenant of all clients without another one.
    name: String,
    /// Promised tail latency of reads, in microseconds; 0 makes the tenant best effort.
    #[serde(default)]
    latency_us: u32,
    /// Percentile of reads for which the promised latency holds.
    percentile: Option<f64>,
    /// Promised requests a second; required with a latency.
    #[serde(default)]
    iops: u32,
    /// Percentage of reads among the promised requests.
    read_percent: Option<u8>,
    /// Bytes of a typical request; 0 means 4096.
    #[serde(default)]
    request_bytes: u32,
    /// Device that the promise holds for. By default the first.
    device: Option<String>,
    /// Best effort only: weight of the tenant's share of the tokens that promises leave.
    weight: Option<u32>,
    /// Best effort only: most tokens a second that the tenant gets. By default unlimited.
    cap_tokens: Option<u64>,
    /// Free text about the tenant, at most 200 characters. By default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Tenant {
    /// Returns a best-effort tenant with the default share.
    pub fn new(name: &str) -> Tenant {
        let promise = Promise::default();
        Tenant {
            name: name.to_owned(),
            promise,
            device: None,
            note: None,
            nth: TablePosition::default(),
        }
    }

    /// Checks whether a tenant may have this name.
    ///
    /// # Errors
    /// Fails with the name, and with what was expected.
    pub fn check_name(name: &str) -> Result<(), String> {
        let bad = |c: char| c.is_control() || c == '"';
        let is_good = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name.trim() == name
            && !name.contains(bad);
        match is_good {
            true => Ok(()),
            false => Err(format!(
                "{name:?} is no name of a tenant: 1 to {NAME_BYTES_MAX} bytes without quotes, \
                 control characters, and blanks at its ends"
            )),
        }
    }

    /// Checks whether a text may be the note of a tenant. An empty text means no note.
    ///
    /// # Errors
    /// Fails with what was expected.
    pub fn check_note(note: &str) -> Result<(), String> {
        match note.chars().count() {
            0..=NOTE_CHARS_MAX if !note.contains(char::is_control) => Ok(()),
            count => Err(format!(
                "a note of {count} characters; expected at most {NOTE_CHARS_MAX} in one line, without \
                 control characters"
            )),
        }
    }

    /// Returns the tenant with `first`, the first device, as its device if it names none.
    pub fn on(self, first: Option<&str>) -> Tenant {
        Tenant { device: self.device.or_else(|| first.map(str::to_owned)), ..self }
    }
}

impl TryFrom<Written> for Tenant {
    type Error = String;

    fn try_from(written: Written) -> Result<Tenant, String> {
        let Written { name, latency_us, percentile, iops, read_percent, request_bytes, .. } =
            written;
        let or = |told: u32, default: u32| if told == 0 { default } else { told };
        let tenths = percentile.map_or(0.0, |percentile| (percentile * 10.0).round());
        let slo = (latency_us > 0).then(|| Slo {
            latency_us,
            percentile_tenths: or(tenths as u32, Slo::PERCENTILE_TENTHS.into()) as u16,
            iops,
            read_percent: read_percent.unwrap_or(Slo::READ_PERCENT),
            request_bytes: or(request_bytes, Slo::REQUEST_BYTES),
        });
        let (weight, cap_tokens) = (written.weight, written.cap_tokens);
        let has_share = weight.is_some() || cap_tokens.is_some();
        let weight = weight.unwrap_or(Share::default().weight);
        let promise = Promise::of(slo, has_share.then_some(Share { weight, cap_tokens }));
        let promise = promise.map_err(|why| format!("tenant {name:?}: {why}"))?;
        let promise = promise.over(Share::default());
        let note = written.note.filter(|note| !note.is_empty());
        let checked = note.as_deref().map_or(Ok(()), Tenant::check_note);
        checked.map_err(|why| format!("tenant {name:?}: {why}"))?;
        Ok(Tenant { name, promise, device: written.device, note, nth: TablePosition::default() })
    }
}

impl From<Tenant> for Written {
    fn from(tenant: Tenant) -> Written {
        let (slo, share) = match tenant.promise {
            Promise::LatencyCritical(slo) => (Some(slo), None),
            Promise::BestEffort(share) => (None, Some(share)),
        };
        Written {
            name: tenant.name,
            latency_us: slo.map_or(0, |slo| slo.latency_us),
            percentile: slo.map(|slo| f64::from(slo.percentile_tenths) / 10.0),
            iops: slo.map_or(0, |slo| slo.iops),
            read_percent: slo.map(|slo| slo.read_percent),
            request_bytes: slo.map_or(0, |slo| slo.request_bytes),
            device: tenant.device,
            weight: share.map(|share| share.weight),
            cap_tokens: share.and_then(|share| share.cap_tokens),
            note: tenant.note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Tenant, toml::de::Error> {
        toml::from_str(&format!("name = \"gold\"\n{text}"))
    }

    #[test]
    fn a_tenant_is_written_flat_and_read_again() {
        for text in [
            "",
            "weight = 3\ncap_tokens = 9",
            "latency_us = 500\niops = 7",
            "note = \"ticket 7, ask Ana – before noon\"",
            "latency_us = 500\npercentile = 99.9\niops = 7\nread_percent = 80\ndevice = \"d\"",
        ] {
            let tenant = parse(text).unwrap();
            let again: Tenant = toml::from_str(&toml::to_string(&tenant).unwrap()).unwrap();
            assert_eq!(again, tenant, "{text}");
        }
        let promise = |text| parse(text).unwrap().promise;
        let strict = Promise::LatencyCritical(Slo::new(500, 7, 100));
        assert_eq!(promise("latency_us = 500\niops = 7\nrequest_bytes = 0"), strict);
        assert_eq!(promise("latency_us = 0\niops = 7"), Promise::default());
        let capped = Share { weight: 1, cap_tokens: Some(9) };
        assert_eq!(promise("cap_tokens = 9"), Promise::BestEffort(capped));
    }

    #[test]
    fn a_latency_and_a_share_exclude_each_other() {
        let error = parse("latency_us = 500\niops = 7\nweight = 2").unwrap_err().to_string();
        assert!(error.contains("tenant \"gold\": weight and cap_tokens are of best"), "{error}");
    }

    #[test]
    fn a_note_is_one_line_of_bounded_length() {
        let note = |text: &str| parse(&format!("note = {text:?}")).map(|tenant| tenant.note);
        let longest = "é".repeat(200);
        assert_eq!(note(&longest).unwrap(), Some(longest));
        assert_eq!((note("").unwrap(), parse("").unwrap().note), (None, None));
        for bad in ["é".repeat(201), "two\nlines".to_owned()] {
            let error = note(&bad).unwrap_err().to_string();
            assert!(error.contains("tenant \"gold\": a note of"), "{error}");
        }
    }

    #[test]
    fn names_have_limits_and_devices_a_default() {
        for name in ["", " a", "a\"", "a\n", &"a".repeat(65)] {
            let error = Tenant::check_name(name).unwrap_err();
            assert!(error.contains("is no name of a tenant"), "{name}");
        }
        assert_eq!(parse("").unwrap().on(Some("d")).device.as_deref(), Some("d"));
    }
}
