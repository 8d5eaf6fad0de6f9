//! Known offenders against the rules, whose measures may only shrink.
//!
//! `xtask/ratchet.toml` has a table for each rule, with a line for each offender and its measure. A
//! check fails if a measure is above both the rule's limit and the offender's line. `cargo xtask
//! tidy --lower` writes the measures that have become smaller.

use std::collections::BTreeMap;

use super::tree::Tree;

/// The path of the file with the offenders, from the root of the repository.
pub(super) const FILE: &str = "xtask/ratchet.toml";

/// The measures of a rule, by the name of what is measured.
pub(super) type Measures = BTreeMap<String, u64>;

/// A rule with its limit and the measures of the tree.
pub(super) struct Rule {
    /// The name of the rule, and of its table in the file.
    pub(super) name: &'static str,
    /// The unit of the measures, in the words of findings.
    pub(super) unit: &'static str,
    /// The largest measure that needs no line in the file.
    pub(super) limit: u64,
    /// The measures of the tree, small and large.
    pub(super) measures: Measures,
}

impl Rule {
    /// Returns a finding for each measure that is above both the limit and its line in the file.
    pub(super) fn findings(&self, tree: &Tree) -> Vec<String> {
        let lines = read(tree);
        let allowed = |name: &str| {
            let line = lines.get(self.name).and_then(|rule| rule.get(name)).copied();
            line.unwrap_or(self.limit).max(self.limit)
        };
        let over = self.measures.iter().filter(|(name, measure)| **measure > allowed(name));
        over.map(|(name, measure)| {
            format!("{name}: {measure} {}, at most {}", self.unit, allowed(name))
        })
        .collect()
    }

    /// Returns the rule's lines for the file: the measures above the limit, none above its line in
    /// `before`.
    fn lowered(&self, before: Option<&Measures>) -> Measures {
        let over = self.measures.iter().filter(|(_, measure)| **measure > self.limit);
        over.map(|(name, &measure)| {
            let line = before.and_then(|before| before.get(name)).copied();
            (name.clone(), line.unwrap_or(measure).min(measure))
        })
        .collect()
    }
}

/// Returns the text of the file with the lines of all rules, lowered to the measures of the tree.
///
/// # Errors
/// Fails if the new lines cannot be written as TOML.
pub(super) fn lower(tree: &Tree, rules: &[Rule]) -> Result<String, String> {
    let before = read(tree);
    let after: BTreeMap<&str, Measures> =
        rules.iter().map(|rule| (rule.name, rule.lowered(before.get(rule.name)))).collect();
    let text = toml::to_string(&after).map_err(|error| error.to_string())?;
    Ok(format!(
        "# Larger than the rule allows. A line may only shrink: `cargo xtask tidy --lower`.\n\n{text}"
    ))
}

fn read(tree: &Tree) -> BTreeMap<String, Measures> {
    let file = tree.files.iter().find(|file| file.path == FILE);
    file.and_then(|file| toml::from_str(&file.text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(measure: u64) -> Rule {
        let measures = Measures::from([("a".to_owned(), measure), ("b".to_owned(), 1)]);
        Rule { name: "fields", unit: "fields", limit: 3, measures }
    }

    #[test]
    fn an_offender_may_shrink_and_not_grow() {
        let kept = Tree::of(&[(FILE, "[fields]\na = 5\n")]);
        assert_eq!(rule(5).findings(&kept), [""; 0]);
        assert_eq!(rule(6).findings(&kept), ["a: 6 fields, at most 5"]);
        assert_eq!(rule(4).findings(&Tree::of(&[])), ["a: 4 fields, at most 3"]);
        assert_eq!(rule(3).findings(&Tree::of(&[])), [""; 0]);
    }

    #[test]
    fn lines_are_lowered_and_never_raised() {
        let kept = Tree::of(&[(FILE, "[fields]\na = 5\n")]);
        assert!(lower(&kept, &[rule(4)]).unwrap().ends_with("[fields]\na = 4\n"));
        assert!(lower(&kept, &[rule(9)]).unwrap().ends_with("[fields]\na = 5\n"));
        assert!(!lower(&kept, &[rule(3)]).unwrap().contains("a ="));
    }
}
