//! The JSON Schema of configuration files: every key, the ranges of numbers, and every default that
//! does not depend on the machine or on other entries.

use serde_json::{Map, Value, json};

use super::effective::Effective;
use super::{Config, ranges};
use crate::live::Changes;

/// A file of all tables, with the required keys alone. All other keys of its effective configuration
/// are defaults.
pub(crate) const SMALLEST: &str = "\
[[device]]
name = \"d\"
spec = \"null:1GiB\"
model = \"a\"
[[listen]]
url = \"reflex://127.0.0.1:0\"
[[namespace]]
device = \"d\"
[[access]]
from = \"anyone\"
rights = \"read\"
[[tenant]]
name = \"promised\"
latency_us = 1000
iops = 1000
[[tenant]]
name = \"best-effort\"
[[subsystem]]
[[host]]
nqn = \"nqn.2014-08.org.example:h\"
[authentication]
[limits]
";

/// The keys whose defaults depend on the entry's position, on the machine, or on other entries.
/// Their descriptions state the defaults.
const OF_THEIR_PLACE: [(&str, &str); 6] = [
    ("namespace", "name"),
    ("namespace", "number"),
    ("namespace", "size"),
    ("listen", "number"),
    ("tenant", "device"),
    ("subsystem", "nqn"),
];

/// The tables of a configuration file, each with the name that the JSON Schema gives to the type of
/// its entries.
const TABLES: [(&str, &str); 9] = [
    ("device", "AddDevice"),
    ("listen", "AddListener"),
    ("namespace", "Namespace"),
    ("access", "AccessRule"),
    ("tenant", "Tenant"),
    ("subsystem", "Subsystem"),
    ("host", "Host"),
    ("authentication", "AuthenticationConfig"),
    ("limits", "Limits"),
];

/// A default: the table (empty for the top level), the position of the entry that had the default, the
/// key and its value.
pub(crate) type Default = (&'static str, usize, String, Value);

/// Returns the JSON Schema of configuration files, as JSON text.
pub fn text() -> String {
    let mut schema = schemars::schema_for!(Config).to_value();
    without_empty_defaults(&mut schema);
    for (table, _, key, value) in defaults() {
        if let Some(one) = property(&mut schema, table, &key) {
            one.insert("default".to_owned(), value);
        }
    }
    let named = TABLES.iter().map(|(table, _)| *table).chain(["", "ana"]);
    for table in named {
        for (key, range) in ranges::of_table(table) {
            let Some(one) = property(&mut schema, table, key) else { continue };
            if one.get("type").is_some_and(is_number) {
                one.insert("minimum".to_owned(), json!(range.start()));
                one.insert("maximum".to_owned(), json!(range.end()));
            }
        }
    }
    serde_json::to_string_pretty(&schema).expect("a schema is JSON")
}

/// Returns every default that does not depend on the machine or on other entries.
pub(crate) fn defaults() -> Vec<Default> {
    let said: toml::Table = SMALLEST.parse().expect("it is a file");
    let smallest = Config::parse(SMALLEST).expect("it is a configuration");
    let effective = Effective::of(&Changes::default().made_to(&smallest));
    let effective = effective.map(|all| serde_json::to_value(all).expect("it is JSON"));
    let effective = effective.expect("its limits can be");
    let mut found: Vec<Default> = Vec::new();
    for key in ["workers", "cpus"] {
        found.push(("", 0, key.to_owned(), effective[key].clone()));
    }
    for (table, _) in TABLES {
        let (each, said) = match &effective[table] {
            Value::Array(each) => (each.clone(), said[table].as_array().cloned()),
            one => (vec![one.clone()], Some(vec![said[table].clone()])),
        };
        for (n, (entry, said)) in each.iter().zip(said.expect("a list")).enumerate() {
            let is_said = |key: &String| said.get(key.as_str()).is_some();
            let fields = entry.as_object().expect("a table").iter();
            let taken = fields.filter(|(key, value)| {
                !is_said(key) && !value.is_null() && !OF_THEIR_PLACE.contains(&(table, key))
            });
            found.extend(taken.map(|(key, value)| (table, n, key.clone(), value.clone())));
        }
    }
    // A best-effort tenant has no keys of a promise.
    let is_of_promise = |one: &Default| matches!(one, ("tenant", 1, key, _) if key != "weight");
    found.retain(|one| !is_of_promise(one));
    found
}

fn is_number(kind: &Value) -> bool {
    let is = |one: &Value| one == "integer";
    is(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is))
}

/// Returns the JSON Schema of a table's key, to be changed; `None` if the schema has no such key.
fn property<'a>(
    schema: &'a mut Value,
    table: &str,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    let name = TABLES.iter().find(|(one, _)| *one == table).map(|(_, name)| *name);
    let of = match (table, name) {
        ("", _) => schema,
        ("ana", _) => &mut schema["$defs"]["Ana"],
        (_, name) => &mut schema["$defs"][name?],
    };
    of["properties"].get_mut(key)?.as_object_mut()
}

/// Removes every `default` that is null or an object from a JSON Schema.
fn without_empty_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("default").is_some_and(|one| one.is_null() || one.is_object()) {
                fields.remove("default");
            }
            fields.values_mut().for_each(without_empty_defaults);
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty_defaults),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects all keys with their schemas, and `true` for required keys.
    fn keys(value: &Value, at: &str, found: &mut Vec<(String, Value, bool)>) {
        let Value::Object(fields) = value else { return };
        if let Some(Value::Object(properties)) = fields.get("properties") {
            let required = fields.get("required").and_then(Value::as_array);
            for (key, one) in properties {
                let needed = required.is_some_and(|list| list.iter().any(|name| name == key));
                found.push((format!("{at}.{key}"), one.clone(), needed));
            }
        }
        for key in ["$defs", "properties"] {
            if let Some(Value::Object(inner)) = fields.get(key) {
                inner.iter().for_each(|(name, one)| keys(one, name, found));
            }
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(inner)) = fields.get(key) {
                inner.iter().for_each(|one| keys(one, at, found));
            }
        }
    }

    fn all_keys() -> Vec<(String, Value, bool)> {
        let schema: Value = serde_json::from_str(&text()).unwrap();
        let mut found = Vec::new();
        keys(&schema, "", &mut found);
        assert!(found.len() > 60, "{}", found.len());
        found
    }

    #[test]
    fn every_key_is_described() {
        let silent: Vec<String> = all_keys()
            .into_iter()
            .filter(|(_, one, _)| one["description"].as_str().is_none_or(str::is_empty))
            .map(|(name, ..)| name)
            .collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn every_key_that_may_be_left_out_has_a_default_or_says_what_holds_without_it() {
        let silent: Vec<String> = all_keys()
            .into_iter()
            .filter(|(_, one, needed)| !needed && one.get("default").is_none())
            .filter(|(_, one, _)| {
                let said = one["description"].as_str().unwrap_or_default();
                !["By default", "without one", "required"].iter().any(|word| said.contains(word))
            })
            .map(|(name, ..)| name)
            .collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn a_schema_knows_every_table_and_what_numbers_may_be() {
        let schema: Value = serde_json::from_str(&text()).unwrap();
        for (table, name) in TABLES {
            assert!(schema["properties"][table].is_object(), "{table}");
            assert!(schema["$defs"][name]["properties"].is_object(), "{name}");
        }
        assert_eq!(schema["additionalProperties"], false);
        let limit = &schema["$defs"]["Limits"]["properties"]["connections"];
        assert_eq!((&limit["minimum"], &limit["default"]), (&json!(1), &json!(65_536)));
    }
}
