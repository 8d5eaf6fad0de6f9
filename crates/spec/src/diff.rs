//! The difference of two lists of objects, and its application.

use std::collections::{BTreeMap, BTreeSet};

/// The new values of changed objects by key; `None` for an object that is gone.
pub type ChangedValues<K, T> = BTreeMap<K, Option<T>>;

/// Returns the changes from the list `old` to the list `new`: the new value of each object that is
/// new or differs, and `None` for each removed object. `key` returns the key of an object, which is
/// unique within a list.
pub fn diff<K: Ord, T: Clone + PartialEq>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> K,
) -> ChangedValues<K, T> {
    let mut before: BTreeMap<K, &T> = old.iter().map(|one| (key(one), one)).collect();
    let mut changed = ChangedValues::new();
    for one in new {
        let of = key(one);
        if before.remove(&of).is_none_or(|was| was != one) {
            changed.insert(of, Some(one.clone()));
        }
    }
    changed.extend(before.into_keys().map(|gone| (gone, None)));
    changed
}

/// Returns the list with these changes applied: changed objects keep their position, new ones
/// follow in the order of their keys.
pub fn over<K: Ord, T: Clone>(
    list: Vec<T>,
    changed: &ChangedValues<K, T>,
    key: impl Fn(&T) -> K,
) -> Vec<T> {
    let known: BTreeSet<K> = list.iter().map(&key).collect();
    let kept = list.into_iter().filter_map(|one| match changed.get(&key(&one)) {
        None => Some(one),
        Some(now) => now.clone(),
    });
    let mut all: Vec<T> = kept.collect();
    let added = changed.iter().filter(|(key, _)| !known.contains(key));
    all.extend(added.filter_map(|(_, one)| one.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_replaces_removes_and_adds() {
        let old = vec![("a", 1), ("b", 2), ("c", 3)];
        let new = [("a", 1), ("c", 4), ("d", 5)];
        let changed = diff(&old, &new, |one| one.0);
        assert_eq!(changed, [("b", None), ("c", Some(("c", 4))), ("d", Some(("d", 5)))].into());
        assert_eq!(over(old.clone(), &changed, |one| one.0), new);
        assert!(diff(&old, &old, |one| one.0).is_empty());
        // A start is the difference to nothing.
        assert_eq!(over(Vec::new(), &diff(&[], &new, |one| one.0), |one| one.0), new);
    }
}
