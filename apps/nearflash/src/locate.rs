//! The line of a configuration file that an error is about.
//!
//! Errors name what they are about as people do (`namespace 2: …`, `tenant "gold": …`); here that
//! leads back to the place in the file. The place of a mistake in the syntax the parser knows by
//! itself.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line that an error about a file is about, if it names a table of the file.
pub(crate) fn line_of(text: &str, error: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let root = root.get_ref();
    let (name, rest) = error.split_once([' ', '.', ':'])?;
    if name == "limits" {
        let key = rest.split([' ', ':']).next()?;
        let DeValue::Table(limits) = root.get("limits")?.get_ref() else { return None };
        return Some(line_at(text, limits.get(key)?.span().start));
    }
    let (table, rest) = match error.strip_prefix("access rule ") {
        Some(rest) => ("access", rest),
        None => (name, rest),
    };
    let DeValue::Array(entries) = root.get(table)?.get_ref() else { return None };
    let subject = rest.split(": ").next()?;
    let entry = match subject.parse::<usize>() {
        Ok(number) => entries.get(number.checked_sub(1)?)?,
        Err(_) => {
            let wanted = subject.trim_matches('"');
            entries.iter().find(|entry| is_named(entry, wanted))?
        }
    };
    let DeValue::Table(fields) = entry.get_ref() else { return None };
    // The field whose value the error quotes, else the table.
    let quoted = fields.iter().find(|(key, value)| match value.get_ref() {
        DeValue::String(said) => key.get_ref() != "name" && error.contains(&format!("{said:?}")),
        _ => rest.split_once(": ").is_some_and(|(_, said)| said.contains(&**key.get_ref())),
    });
    let start = quoted.map_or(entry.span().start, |(key, _)| key.span().start);
    Some(line_at(text, start))
}

fn is_named(entry: &Spanned<DeValue<'_>>, wanted: &str) -> bool {
    let DeValue::Table(fields) = entry.get_ref() else { return false };
    ["name", "nqn", "url", "spec"].iter().any(|key| {
        let value = fields.get(*key).map(Spanned::get_ref);
        matches!(value, Some(DeValue::String(said)) if said == wanted)
    })
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "workers = 1\n\
                        [[device]]\n\
                        name = \"fast\"\n\
                        spec = \"mem:64MiB\"\n\
                        \n\
                        [[namespace]]\n\
                        device = \"fast\"\n\
                        [[namespace]]\n\
                        device = \"slow\"\n\
                        [[tenant]]\n\
                        name = \"gold\"\n\
                        [limits]\n\
                        tenants = 0\n";

    #[test]
    fn errors_lead_to_their_lines() {
        for (error, line) in [
            ("namespace 2: there is no device \"slow\"; there are: fast", Some(9)),
            ("namespace 1: its blocks do not fit", Some(6)),
            ("tenant \"gold\": needs more", Some(10)),
            ("limits.tenants is 0; expected a number from 1", Some(13)),
            ("limits.carried: what", None),
            ("namespace 3: is not there", None),
            ("something else", None),
        ] {
            assert_eq!(line_of(TEXT, error), line, "{error}");
        }
    }
}
