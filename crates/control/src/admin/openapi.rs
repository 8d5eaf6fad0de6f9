//! The OpenAPI 3.1 document of the API, generated from the table of operations.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::audit::is_change;
use super::input::InputSchema;
use super::operation::{AnswerSchema, Operation, StatusMeaning};
use super::operations::operations;
use super::problem::Failure;

/// The description of the API at the beginning of the OpenAPI document.
const ABOUT: &str = "What a running server has and does: tenants, devices, namespaces, NVMe \
                     subsystems and hosts, listeners, workers and connections, to be shown and \
                     changed; what they did lately; metrics. A name in a path is percent-encoded. \
                     Beside what stands at each resource, any request can be answered with 400 (its \
                     path, query or body makes no sense), 403 (who asks is not let in), 405, 408 (it \
                     took too long), 413 (its body is too large) or 500 (among others when a change \
                     cannot be kept), each with a body like that of a 404.";

/// A kind of resource: its path is `/v1/KIND`, and of one of them `/v1/KIND/NAME`.
struct Kind {
    name: &'static str,
    /// The description of the path parameter that names a resource of this kind.
    named: &'static str,
    /// The status and meaning of the answer if nothing has the name in the path.
    unknown: StatusMeaning,
}

/// The kinds of resources whose paths may have a name.
const KINDS: [Kind; 8] = [
    Kind { name: "tenants", named: "The tenant's name", unknown: (404, "") },
    Kind { name: "devices", named: "The device's name", unknown: (422, "There is no such device") },
    Kind { name: "namespaces", named: "The namespace's name or number", unknown: (404, "") },
    Kind { name: "subsystems", named: "The subsystem's qualified name", unknown: (404, "") },
    Kind { name: "hosts", named: "The host's qualified name", unknown: (404, "") },
    Kind { name: "listeners", named: "The listener's number or address", unknown: (404, "") },
    Kind {
        name: "workers",
        named: "The worker's number",
        unknown: (404, "There is no such worker"),
    },
    Kind {
        name: "connections",
        named: "The connection's name",
        unknown: (404, "There is no such connection (any more), or worker"),
    },
];

/// Failures in the layers that every request passes before its operation (`gate.rs`, `audit.rs`).
const OF_ALL: [StatusMeaning; 4] = [
    (401, "From elsewhere: there is no token, or one that the server does not know"),
    (403, "Who asks is not let in, or the token is for reading only"),
    (408, "It took too long; a change may still have been made"),
    (429, "From elsewhere: too many wrong tokens came from this address (`retry-after`)"),
];

/// Failures of requests for changes in the layers that every request passes before its operation.
const OF_CHANGES: [StatusMeaning; 3] = [
    (409, "It is in use, or another process is taking over: nothing was changed"),
    (500, "It cannot be kept, so it was not done; or its record in the audit log is owed"),
    (503, "The audit log takes no records: nothing was changed"),
];

/// Returns the document, as served at `/openapi.json`.
pub fn document() -> Value {
    let mut settings =
        SchemaSettings::draft2020_12().with_transform(RecursiveTransform(set_maximum));
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let failure = generator.subschema_for::<Failure>();
    let mut paths = Map::new();
    for operation in operations() {
        let method = operation.method.as_str().to_lowercase();
        let described = describe(&operation, &mut generator, &failure);
        paths.entry(operation.path).or_insert_with(|| json!({}))[method] = described;
    }
    let licence = "MIT OR Apache-2.0";
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "nearflash admin API",
            "description": ABOUT,
            "license": { "name": licence, "identifier": licence },
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator, failure: &Schema) -> Value {
    let named = name_in(operation.path);
    let mut parameters: Vec<Value> =
        named.iter().map(|(name, kind)| parameter_of(name, kind)).collect();
    let mut described = json!({ "operationId": operation.id, "summary": operation.summary });
    if let Some(description) = operation.description {
        described["description"] = description.into();
    }
    let mut is_bare = parameters.is_empty();
    match (operation.input)(generator) {
        InputSchema::Nothing => {}
        InputSchema::Query(schema) => {
            parameters.extend(members_of(schema));
            is_bare = false;
        }
        InputSchema::Body(schema, media) => {
            let content =
                media.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema })));
            let content: Map<String, Value> = content.collect();
            described["requestBody"] = json!({ "content": content, "required": true });
            is_bare = false;
        }
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    let (status, meaning) = operation.success;
    let mut success = json!({ "description": said(status, meaning) });
    match operation.answer {
        AnswerSchema::Nothing => {}
        AnswerSchema::Json(schema) => {
            success["content"] = json!({ "application/json": { "schema": schema(generator) } });
        }
        AnswerSchema::Text(media) => {
            success["content"] = json!({ media: { "schema": { "type": "string" } } });
        }
    }
    let mut responses = Map::from_iter([(status.to_string(), success)]);
    let of_changes = is_change(&operation.method, operation.path).then_some(OF_CHANGES);
    let invalid = (!is_bare).then_some((400, ""));
    let unknown = named.map(|(_, kind)| kind.unknown);
    let own = operation.failures.iter().copied().chain(invalid).chain(unknown);
    for (status, meaning) in own.chain(OF_ALL).chain(of_changes.into_iter().flatten()) {
        let content = json!({ "application/json": { "schema": failure } });
        let response = json!({ "description": said(status, meaning), "content": content });
        responses.entry(status.to_string()).or_insert(response);
    }
    described["responses"] = responses.into();
    described
}

/// Returns `meaning`, or the general meaning of the status if `meaning` is empty.
fn said(status: u16, meaning: &'static str) -> &'static str {
    match (meaning, status) {
        ("", 200) => "The answer",
        ("", 201) => "It was made",
        ("", 202) => "It has begun",
        ("", 204) => "It was done",
        ("", 400) => "The path, the query or the body makes no sense; the message says why",
        ("", 404) => "There is nothing of this name",
        ("", 501) => "This server has nothing of this kind",
        _ => meaning,
    }
}

/// Returns the name of the variable part of a path, and the kind of resource; `None` if no part is
/// variable.
fn name_in(path: &str) -> Option<(&str, &Kind)> {
    let (name, _) = path.split_once('{')?.1.split_once('}')?;
    let kind = path.split('/').nth(2)?;
    Some((name, KINDS.iter().find(|known| known.name == kind)?))
}

/// Returns the OpenAPI description of the path parameter `name`.
fn parameter_of(name: &str, kind: &Kind) -> Value {
    let schema = match name {
        "number" => json!({ "type": "integer", "minimum": 0, "maximum": usize::MAX }),
        _ => json!({ "type": "string" }),
    };
    json!({
        "name": name, "in": "path", "required": true, "description": kind.named, "schema": schema,
    })
}

/// Returns the members of a query's schema as OpenAPI parameters.
fn members_of(mut query: Schema) -> Vec<Value> {
    RecursiveTransform(set_maximum).transform(&mut query);
    let query = query.to_value();
    let is_required = |name: &String| {
        query["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    let members = query["properties"].as_object().into_iter().flatten();
    let parameter = |(name, schema): (&String, &Value)| {
        let (required, mut schema) = (is_required(name), schema.clone());
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // An omitted parameter is absent; none is `null`.
        if schema["default"].is_null() {
            schema.as_object_mut().and_then(|schema| schema.remove("default"));
        }
        if let Some(kind) = schema["type"].as_array().and_then(|kinds| kinds.first()).cloned() {
            schema["type"] = kind;
        }
        json!({
            "name": name, "in": "query", "required": required, "description": description,
            "schema": schema,
        })
    };
    members.map(parameter).collect()
}

/// Sets the maximum of a number to what its parser accepts.
fn set_maximum(schema: &mut Schema) {
    let maximum = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => u64::from(u32::MAX),
        Some("uint64" | "uint") => u64::MAX,
        _ => return,
    };
    schema.ensure_object().entry("maximum").or_insert(maximum.into());
}
