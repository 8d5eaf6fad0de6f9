//! Reading of a configuration from its file. All mistakes of form are reported at once.
//!
//! A mistake of TOML's syntax ends the search, since the meaning of the rest is unknown. In a file
//! of valid syntax, a value of a wrong form is removed and the rest is read again.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use spec::{ConfigLocation, TablePosition};
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};
use zeroize::Zeroizing;

use super::mistakes::Mistakes;
use super::{Config, mistake};

/// Maximum number of mistakes of form that a search reports.
const FOUND_MAX: usize = 100;

/// A step on the path to a value in a TOML document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Key(String),
    /// The element of a list that begins at this byte of the text.
    Begins(usize),
}

impl Config {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or with all mistakes of form, with the file and lines.
    pub fn read(path: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        // It may have tokens and keys.
        let text = Zeroizing::new(text);
        Config::parse(&text).map_err(|mistakes| mistakes.told(Some((path, &text))))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// Fails with all mistakes of form.
    pub fn parse(text: &str) -> Result<Config, Mistakes> {
        let at = |error: &Error, way: &[PathStep]| {
            let what = mistake::explain(text, error, &names(way));
            (Some(ConfigLocation::Line(line_of(text, error))), what)
        };
        let mut root = DeTable::parse(text).map_err(|error| {
            let (place, what) = at(&error, &[]);
            Mistakes::at(place, what)
        })?;
        let mut mistakes = Mistakes::default();
        let mut taken_out: Vec<Vec<PathStep>> = Vec::new();
        for _ in 0..FOUND_MAX {
            let error = match Config::deserialize(Deserializer::from(root.clone())) {
                Ok(config) if mistakes.is_empty() => return Ok(config.numbered()),
                Ok(_) => break,
                Err(error) => error,
            };
            let start = error.span().unwrap_or_default().start;
            let way = way_to(root.get_ref(), start).unwrap_or_default();
            // It is missing because it was wrong.
            let follows = missing(&error).is_some_and(|key| {
                let mut whole = way.clone();
                whole.push(PathStep::Key(key.to_owned()));
                taken_out.contains(&whole)
            });
            if !follows {
                let (place, what) = at(&error, &way);
                mistakes.add(place, what);
            }
            if way.is_empty() {
                break;
            }
            take_out(root.get_mut(), &way);
            taken_out.push(way);
        }
        Err(mistakes)
    }

    /// Returns the configuration after setting, in each entry of a repeated table, the entry's
    /// position.
    fn numbered(mut self) -> Config {
        macro_rules! number {
            ($($table:ident),*) => {
                $(self.$table.iter_mut().enumerate().for_each(|(n, one)| one.nth = TablePosition(Some(n)));)*
            };
        }
        number!(device, listen, namespace, access, tenant, subsystem, host);
        self
    }
}

fn line_of(text: &str, error: &Error) -> usize {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    text[..start].matches('\n').count() + 1
}

/// Returns the required key that a parser's error says is missing; `None` for any other error.
fn missing(error: &Error) -> Option<&str> {
    error.message().strip_prefix("missing field `")?.strip_suffix('`')
}

/// Returns the last table and the last key of a path, without positions in lists.
fn names(way: &[PathStep]) -> (String, String) {
    let keys = way.iter().filter_map(|step| match step {
        PathStep::Key(key) => Some(key.clone()),
        PathStep::Begins(_) => None,
    });
    let mut keys = keys.rev();
    let key = keys.next().unwrap_or_default();
    (keys.next().unwrap_or_default(), key)
}

/// Returns the path to the value at this byte of the text; `None` if no value of the table is
/// there.
fn way_to(table: &DeTable<'_>, at: usize) -> Option<Vec<PathStep>> {
    table.iter().find_map(|(key, value)| {
        let step = || PathStep::Key(key.get_ref().to_string());
        if key.span().contains(&at) {
            return Some(vec![step()]);
        }
        within(value.get_ref(), value.span(), at).map(|way| [vec![step()], way].concat())
    })
}

fn within(value: &DeValue<'_>, span: Range<usize>, at: usize) -> Option<Vec<PathStep>> {
    let inner = match value {
        DeValue::Table(table) => way_to(table, at),
        DeValue::Array(list) => list.iter().find_map(|one| {
            let way = within(one.get_ref(), one.span(), at)?;
            Some([vec![PathStep::Begins(one.span().start)], way].concat())
        }),
        _ => None,
    };
    inner.or_else(|| span.contains(&at).then(Vec::new))
}

/// Removes the value that a path leads to.
fn take_out(table: &mut DeTable<'_>, way: &[PathStep]) {
    let [PathStep::Key(key), rest @ ..] = way else { return };
    if rest.is_empty() {
        table.remove(key.as_str());
        return;
    }
    if let Some(value) = table.get_mut(key.as_str()) {
        take_out_of(value.get_mut(), rest);
    }
}

fn take_out_of(value: &mut DeValue<'_>, way: &[PathStep]) {
    match (value, way) {
        (DeValue::Table(table), _) => take_out(table, way),
        (DeValue::Array(list), [PathStep::Begins(start)]) => {
            let kept = list.iter().filter(|one| one.span().start != *start).cloned();
            let mut all = DeArray::new();
            kept.for_each(|one| all.push(one));
            *list = all;
        }
        (DeValue::Array(list), [PathStep::Begins(start), rest @ ..]) => {
            if let Some(one) = list.iter_mut().find(|one| one.span().start == *start) {
                take_out_of(one.get_mut(), rest);
            }
        }
        _ => {}
    }
}
