//! OpenAPI description, generated from the route table and from the derived schemas of request and response bodies.

pub(crate) mod shape;

use axum::extract::State;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::app_state::App;
use crate::problem::Sent;
use crate::request::{Answered, ok};
use crate::routes::{Deadline, ROUTES, Route, Verb};
use crate::token::Role;

/// A function that returns a schema and registers the schemas that it refers to with the generator.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// Returns the schema of a type.
pub(crate) fn describe<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Returns the OpenAPI 3.1 description.
pub(crate) async fn document(State(_): State<App>) -> Answered {
    ok(&described())
}

/// The schemas of request bodies (`read`) and response bodies (`written`). They differ: only a request body may omit an optional field.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.meta_schema = None;
            settings.definitions_path = "/components/schemas".into();
        });
        let written = settings.clone().for_serialize().into_generator();
        Self { read: settings.for_deserialize().into_generator(), written }
    }

    fn all(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        all.append(&mut self.read.take_definitions(true));
        all
    }
}

fn described() -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(route.verb.word().to_ascii_lowercase(), operation(route, &mut schemas));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidelock",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Streams, documents, leases, runs, work and schedules of one store. Keys are written as in the command \
                line, kind(\"text\", 42), and percent-encoded in paths. Times are RFC 3339. Rejections are application/problem+json with a code that \
                `tidelock explain` describes.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas.all(),
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let (status, answer) = route.answer;
    let (answer, problem) = (answer(&mut schemas.written), describe::<Sent<'_>>(&mut schemas.written));
    let well = |says: &str| json!({"description": says, "content": {route.media: {"schema": answer}}});
    let mut operation = json!({
        "operationId": name(route),
        "summary": route.summary,
        "x-role": route.role.word(),
        "parameters": parameters(route),
        "responses": {
            status.to_string(): well("Success"),
            "default": {"description": "Rejected", "content": {"application/problem+json": {"schema": problem}}},
        },
    });
    if let Value::Object(fields) = &mut operation {
        if let Some(body) = route.body {
            let content = json!({"application/json": {"schema": body(&mut schemas.read)}});
            fields.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
        }
        if let Some(Value::Object(responses)) = fields.get_mut("responses") {
            if route.lasts == Deadline::Waits {
                responses.insert("202".to_owned(), well("Not yet"));
            }
            if route.path == "/api/v1/state/{key}" && route.verb == Verb::Get {
                responses.insert("304".to_owned(), json!({"description": "Not modified"}));
            }
        }
        if route.role == Role::Open {
            fields.insert("security".to_owned(), json!([]));
        }
    }
    operation
}

/// Returns the operation id of a route, such as `get_streams_key_events`.
fn name(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1");
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    format!("{}_{}", route.verb.word().to_ascii_lowercase(), words.join("_"))
}

/// Adds an example to a `key` parameter, which explains the grammar of keys best.
fn with_example(name: &str, mut parameter: Value) -> Value {
    if let (Value::Object(fields), "key") = (&mut parameter, name) {
        fields.insert("example".to_owned(), json!("order(\"o-1\", 7)"));
    }
    parameter
}

fn parameters(route: &Route) -> Vec<Value> {
    let named = |place: &str, name: &str, required: bool| json!({"name": name, "in": place, "required": required, "schema": {"type": "string"}});
    let inside = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = inside.map(|name| with_example(name, named("path", name, true))).collect();
    all.extend(route.query.iter().map(|name| {
        let bare = name.trim_end_matches('!');
        match bare {
            "limit" => json!({"name": bare, "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}}),
            "fence" => json!({"name": bare, "in": "query", "required": bare != *name, "schema": {"type": "integer", "minimum": 0}}),
            "blocked" | "leased" | "internal" => json!({"name": bare, "in": "query", "schema": {"type": "boolean"}}),
            _ => named("query", bare, bare != *name),
        }
    }));
    if route.path == "/api/v1/events/tail" {
        all.push(named("header", "Last-Event-ID", false));
    }
    if route.path == "/api/v1/state/{key}" {
        all.push(named("header", "If-None-Match", false));
        if route.verb != Verb::Get {
            all.push(named("header", "If-Match", false));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_under_a_name_of_its_own() {
        let document = described();
        let mut names = BTreeSet::new();
        for route in ROUTES {
            let path = document["paths"].get(route.path).unwrap();
            let operation = path.get(route.verb.word().to_ascii_lowercase()).unwrap();
            assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{}", route.path);
            assert_eq!(operation["x-role"], route.role.word());
        }
        let described: usize =
            document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(described, ROUTES.len());
    }

    #[test]
    fn every_reference_has_a_schema_and_every_schema_is_used() {
        let document = described();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut used = BTreeSet::new();
        references(&document, &mut used);
        assert_eq!(used, schemas.keys().cloned().collect::<BTreeSet<_>>());
        let second = schemas.keys().find(|name| name.ends_with(|c: char| c.is_ascii_digit()));
        assert_eq!(
            second, None,
            "two types have one name; give one of them another with #[schemars(rename)]"
        );
    }

    fn references(value: &Value, used: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    used.insert(to.strip_prefix("#/components/schemas/").unwrap().to_owned());
                }
                fields.values().for_each(|value| references(value, used));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, used)),
            _ => {}
        }
    }
}
