//! Mistakes of a configuration, collected so that all are reported at once, each with its place.
//!
//! Code that finds a mistake continues with a stand-in. So independent mistakes are found too, and
//! mistakes that only follow from another one are not. A mistake knows its table, entry and key.
//! Its line is looked up for the report. Settings of the command line, and settings changed at run
//! time, have no line.

use std::fmt::{self, Display};
use std::path::Path;

use spec::ConfigLocation;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum number of mistakes in a report.
const TOLD_MAX: usize = 20;

/// Returns the line of a place, from 1, in a file of this text, which `root` is parsed from; `None`
/// if the file has no such place.
fn line(place: ConfigLocation, text: &str, root: Option<&DeTable<'_>>) -> Option<usize> {
    let line_at = |offset: usize| text[..offset].matches('\n').count() + 1;
    let value = |table: &str| root?.get(table).map(Spanned::get_ref);
    // `[limits]` has the key's line where the file has the key; an entry's first line is its head.
    let of_key = |table: &DeTable<'_>, key: &str| {
        table.get_key_value(key).map(|(key, _)| line_at(key.span().start))
    };
    match place {
        ConfigLocation::Line(line) => Some(line),
        ConfigLocation::Key(key) => of_key(root?, key),
        ConfigLocation::In(table, key) => match value(table)? {
            DeValue::Table(fields) => of_key(fields, key).or_else(|| of_key(root?, table)),
            _ => of_key(root?, table),
        },
        ConfigLocation::Entry(table, n, key) => {
            let DeValue::Array(entries) = value(table)? else { return None };
            let entry = entries.get(n)?;
            let found = match (entry.get_ref(), key) {
                (DeValue::Table(fields), Some(key)) => of_key(fields, key),
                _ => None,
            };
            found.or_else(|| Some(line_at(entry.span().start)))
        }
    }
}

/// A mistake in a configuration, and its place; `None` if the mistake has no place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mistake {
    place: Option<ConfigLocation>,
    /// The message: the mistake, and the expected form.
    what: String,
}

/// The mistakes of a configuration, in the order in which they were found. As an error, the list is
/// not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Returns a list of one mistake.
    pub(crate) fn at(
        place: impl Into<Option<ConfigLocation>>,
        what: impl Into<String>,
    ) -> Mistakes {
        Mistakes(vec![Mistake { place: place.into(), what: what.into() }])
    }

    /// Adds a mistake.
    pub(crate) fn add(
        &mut self,
        place: impl Into<Option<ConfigLocation>>,
        what: impl Into<String>,
    ) {
        self.0.push(Mistake { place: place.into(), what: what.into() });
    }

    /// Returns the value of `made`. If it is an error, adds that as a mistake at this place and
    /// returns `None`.
    pub(crate) fn take<T>(
        &mut self,
        place: impl Into<Option<ConfigLocation>>,
        made: Result<T, String>,
    ) -> Option<T> {
        made.map_err(|what| self.add(place, what)).ok()
    }

    /// Returns the number of mistakes so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if no mistake has been found so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `make` with an empty list. Returns the result if `make` found no mistake, and the list
    /// otherwise.
    pub(crate) fn collect<T>(make: impl FnOnce(&mut Mistakes) -> T) -> Result<T, Mistakes> {
        let mut mistakes = Mistakes::default();
        let made = make(&mut mistakes);
        if mistakes.is_empty() { Ok(made) } else { Err(mistakes) }
    }

    /// Returns the mistakes, one a line, sorted by their lines in `file`, which is a path and a
    /// text.
    pub fn told(&self, file: Option<(&Path, &str)>) -> String {
        // What cannot be understood has its lines already.
        let parsed = file.and_then(|(_, text)| DeTable::parse(text).ok());
        let root = parsed.as_ref().map(Spanned::get_ref);
        let line = |mistake: &Mistake| line(mistake.place?, file?.1, root);
        let mut told: Vec<(Option<usize>, &Mistake)> =
            self.0.iter().map(|mistake| (line(mistake), mistake)).collect();
        told.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let say = |(line, mistake): &(Option<usize>, &Mistake)| match line {
            Some(line) => {
                let path = file.map_or(Path::new(""), |(path, _)| path);
                format!("{}:{line}: {}", path.display(), mistake.what)
            }
            None => mistake.what.clone(),
        };
        let mut lines: Vec<String> = told.iter().take(TOLD_MAX).map(say).collect();
        if let more @ 1.. = told.len().saturating_sub(TOLD_MAX) {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n")
    }
}

/// Writes the mistakes on one line, without their places.
impl Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, mistake) in self.0.iter().take(TOLD_MAX).enumerate() {
            write!(f, "{}{}", if n == 0 { "" } else { "; " }, mistake.what)?;
        }
        match self.0.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl From<Mistakes> for String {
    fn from(mistakes: Mistakes) -> String {
        mistakes.to_string()
    }
}

/// Creates a mistake that has no place in a file.
impl From<String> for Mistakes {
    fn from(what: String) -> Mistakes {
        Mistakes::at(None, what)
    }
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
                        [limits]\n\
                        tenants = 0\n";

    #[test]
    fn places_lead_to_their_lines() {
        let parsed = DeTable::parse(TEXT).unwrap();
        for (place, line) in [
            (ConfigLocation::Key("workers"), Some(1)),
            (ConfigLocation::Key("cpus"), None),
            (ConfigLocation::Entry("namespace", 1, Some("device")), Some(9)),
            (ConfigLocation::Entry("namespace", 1, Some("size")), Some(8)),
            (ConfigLocation::Entry("namespace", 0, None), Some(6)),
            (ConfigLocation::Entry("namespace", 2, None), None),
            (ConfigLocation::Entry("tenant", 0, None), None),
            (ConfigLocation::In("limits", "tenants"), Some(11)),
            (ConfigLocation::In("limits", "carried"), Some(10)),
            (ConfigLocation::In("admin", "listen"), None),
            (ConfigLocation::Line(7), Some(7)),
        ] {
            assert_eq!(super::line(place, TEXT, Some(parsed.get_ref())), line, "{place:?}");
        }
    }

    #[test]
    fn mistakes_are_told_by_line_and_not_without_end() {
        let mut mistakes = Mistakes::default();
        mistakes.add(None, "nowhere");
        mistakes.add(ConfigLocation::In("limits", "tenants"), "none");
        mistakes.add(ConfigLocation::Key("workers"), "few");
        let file = Some((Path::new("a.toml"), TEXT));
        assert_eq!(mistakes.told(file), "a.toml:1: few\na.toml:11: none\nnowhere");
        assert_eq!(mistakes.to_string(), "nowhere; none; few");
        (0..30).for_each(|_| mistakes.add(ConfigLocation::Line(3), "three"));
        let told = mistakes.told(file);
        assert_eq!((told.lines().count(), told.lines().last()), (21, Some("and 13 more")));
        assert!(mistakes.to_string().ends_with("; and 13 more"));
    }
}
