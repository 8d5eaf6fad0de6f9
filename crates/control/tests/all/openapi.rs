//! Tests that the OpenAPI document keeps what it once described: programs are generated from it.
//!
//! `openapi.json` beside this file is an early document, from another generator. A later document
//! may describe more, and in other words.

use std::collections::{BTreeMap, BTreeSet};

use nearflash_control::admin::document;
use serde_json::Value;

/// Facts of a document by their place, in words that do not depend on the generator.
type Outline = BTreeMap<String, BTreeSet<String>>;

/// Returns the facts of a document: operations with their parameters, bodies and answers, and
/// schemas with their members and values.
fn outline(document: &Value) -> Outline {
    let mut facts = Outline::new();
    for (path, methods) in object(&document["paths"]) {
        for (method, operation) in object(methods) {
            let place = format!("{method} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let is_required = parameter["required"] == true;
                let words = format!("{} {} {is_required}", parameter["in"], parameter["name"]);
                fact(&mut facts, &place, words);
            }
            let content =
                |of: &Value| format!("{:?}", kinds(&of["content"]["application/json"]["schema"]));
            if operation["requestBody"].is_object() {
                fact(&mut facts, &place, format!("body {}", content(&operation["requestBody"])));
            }
            for (status, answer) in object(&operation["responses"]) {
                fact(&mut facts, &place, format!("answer {status} {}", content(answer)));
            }
        }
    }
    for (name, schema) in object(&document["components"]["schemas"]) {
        for value in kinds(schema) {
            fact(&mut facts, name, value);
        }
        for (member, schema) in object(&schema["properties"]) {
            let required = schema_has(&document["components"]["schemas"][name], member);
            let words = format!("{member}: {:?}, required: {required}", kinds(schema));
            fact(&mut facts, name, words);
        }
    }
    facts
}

fn fact(facts: &mut Outline, place: &str, words: String) {
    facts.entry(place.to_owned()).or_default().insert(words);
}

/// Returns `true` if an object's schema requires a member.
fn schema_has(schema: &Value, member: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == member))
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Returns the types, references and values that a schema allows, in one form for `oneOf`, `anyOf`,
/// `enum` and `const`. The members of an alternative stand for the alternative.
fn kinds(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Some(reference) = schema["$ref"].as_str() {
        found.insert(reference.to_owned());
    }
    for alternative in ["oneOf", "anyOf", "allOf"] {
        for one in schema[alternative].as_array().into_iter().flatten() {
            found.extend(kinds(one));
            found.extend(
                object(&one["properties"]).map(|(name, of)| format!("{name}: {:?}", kinds(of))),
            );
        }
    }
    let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    found.extend(values.map(Value::to_string));
    match &schema["type"] {
        Value::String(kind) => drop(found.insert(kind.clone())),
        Value::Array(all) => found.extend(all.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    }
    if schema["items"].is_object() {
        found.insert(format!("of {:?}", kinds(&schema["items"])));
    }
    found
}

fn golden() -> Value {
    serde_json::from_str(include_str!("openapi.json")).unwrap()
}

/// Returns the facts of `before` that `now` lacks.
fn lost(before: &Value, now: &Value) -> Vec<String> {
    let (before, now) = (outline(before), outline(now));
    let missing = before.iter().flat_map(|(place, facts)| {
        let known = now.get(place);
        let gone = facts.iter().filter(move |fact| !known.is_some_and(|all| all.contains(*fact)));
        gone.map(move |fact| format!("{place}: {fact}"))
    });
    missing.collect()
}

#[test]
fn the_document_keeps_what_it_described() {
    let now = document();
    assert_eq!(lost(&golden(), &now), Vec::<String>::new());
    assert!(now["openapi"].as_str().unwrap().starts_with("3.1."));
}

#[test]
fn a_lost_member_or_answer_or_value_is_found() {
    let golden = golden();
    let without = |pointer: &str, name: &str| {
        let mut now = golden.clone();
        let removed = now.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name);
        assert!(removed.is_some(), "{pointer} has {name}");
        lost(&golden, &now)
    };
    assert_eq!(without("/paths/~1v1~1hosts", "get").len(), 6);
    assert_eq!(without("/paths/~1v1~1hosts~1{name}/put/responses", "404").len(), 1);
    assert_eq!(without("/paths/~1v1~1hosts~1{name}/put", "requestBody").len(), 1);
    assert_eq!(without("/paths/~1v1~1hosts~1{name}/put", "parameters").len(), 1);
    assert_eq!(without("/components/schemas/SetHost/properties", "tenant").len(), 1);
    assert!(!without("/components/schemas/SetTenant", "required").is_empty());
    assert_eq!(without("/components/schemas/AnaState", "enum").len(), 5);
}
