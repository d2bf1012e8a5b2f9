//! The description of the API, in version 3.1 of its format.

use crate::App;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{any, get};
use backstop_core::JobState;
use backstop_core::limits::{
    KIND_BYTES_MAX, QUEUE_NAME_MAX, REASON_CHARS_MAX, SEARCH_CHARS_MAX, STREAM_NAME_MAX,
};
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Server};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The name of how a caller says who it is.
const TOKEN: &str = "token";

/// What the API is, path by path, on a server under the path `base`.
pub fn description(base: &str) -> Value {
    // Events are pages' as well, and mounted with them.
    let events = OpenApiRouter::<App>::new().routes(routes!(crate::events::events));
    let api = OpenApiRouter::with_openapi(empty_document(base)).nest("/v1", super::routes());
    let written = serde_json::to_value(api.merge(events).into_openapi());
    let mut document = written.expect("a description has only text, numbers and lists");
    add_constraints(&mut document);
    document
}

/// Says of texts that stand for something else what they can be: parameters are read as text, and
/// refused with a reason of ours.
fn add_constraints(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths {
        for operation in item
            .as_object_mut()
            .into_iter()
            .flat_map(serde_json::Map::values_mut)
        {
            let parameters = operation
                .get_mut("parameters")
                .and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default();
                if let Some(schema) = parameter_schema(path, name) {
                    // An empty one says nothing: a form sends all of its fields.
                    parameter["schema"] = match parameter["in"].as_str() {
                        Some("query") => json!({ "anyOf": [schema, { "const": "" }] }),
                        _ => schema,
                    };
                }
            }
        }
    }
    for (field, schema) in [
        ("NewJob/properties/queue", name_schema(QUEUE_NAME_MAX)),
        (
            "NewJob/properties/kind",
            nullable(text_schema(KIND_BYTES_MAX, "^[^\\x00]+$")),
        ),
        (
            "BulkAction/properties/action",
            json!({ "type": "string", "enum": ["retry", "cancel", "delete", "move"] }),
        ),
        (
            "BulkAction/properties/of",
            json!({ "type": ["string", "null"], "enum": ["jobs", "dead", null] }),
        ),
        (
            "BulkAction/properties/to",
            nullable(name_schema(QUEUE_NAME_MAX)),
        ),
        (
            "DeadSelection/properties/ids",
            json!({ "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } }),
        ),
        (
            "DeadSelection/properties/matching",
            json!({ "type": "object", "minProperties": 1 }),
        ),
        (
            "DeadSelection/properties/oldest",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        (
            "DeadSelection/properties/queue",
            name_schema(QUEUE_NAME_MAX),
        ),
        ("DeadSelection/properties/all", json!({ "const": true })),
        ("NewJob/properties/delay", duration_schema()),
        (
            "NewJob/properties/priority",
            json!({ "type": ["string", "null"], "enum": PRIORITIES }),
        ),
        ("Lease/properties/queues/items", name_schema(QUEUE_NAME_MAX)),
        ("End/properties/retry_in", duration_schema()),
        // What was never handed out is stale, whatever it is.
        ("End/properties/lease", json!({})),
        ("Held/properties/lease", json!({})),
        ("Lease/properties/pid", integer_schema(u32::MAX)),
        ("Lease/properties/concurrency", integer_schema(u32::MAX)),
        ("Beat/properties/pid", integer_schema(u32::MAX)),
        ("Beat/properties/concurrency", integer_schema(u32::MAX)),
        ("Error/properties/http_status", integer_schema(u16::MAX)),
    ] {
        if let Some(property) = document.pointer_mut(&format!("/components/schemas/{field}")) {
            let description = property.get("description").cloned();
            *property = schema;
            if let Some(text) = description {
                property["description"] = text;
            }
        }
    }
    if let Some(selection) = document.pointer_mut("/components/schemas/DeadSelection") {
        let required_alone =
            |field: &str| json!({ "required": [field], "not": { "required": ["queue"] } });
        selection["oneOf"] = json!([
            { "required": ["ids"] },
            required_alone("matching"),
            { "required": ["oldest", "queue"] },
            required_alone("all"),
        ]);
    }
}

fn parameter_schema(path: &str, parameter: &str) -> Option<Value> {
    Some(match parameter {
        "queue" | "q" => name_schema(QUEUE_NAME_MAX),
        "s" if path.starts_with("/v1/streams/") => name_schema(STREAM_NAME_MAX),
        "state" => json!({ "type": "string", "enum": JobState::ALL.map(JobState::as_str) }),
        "limit" => json!({ "type": "number" }),
        "holding" => json!({ "type": "boolean" }),
        "window" => json!({ "type": "string", "enum": ["5m", "1h", "24h", "7d"] }),
        "fingerprint" => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{16}$" }),
        "since" | "until" => json!({ "type": "string", "format": "date-time" }),
        "kind" => text_schema(KIND_BYTES_MAX, "^[^\\x00]+$"),
        "text" => json!({ "type": "string", "minLength": 1, "maxLength": SEARCH_CHARS_MAX }),
        "reason" => text_schema(REASON_CHARS_MAX, &format!("^[^\\s{HIDDEN}][^{HIDDEN}]*$")),
        // What these lists give out as `next`; anything else is refused.
        "cursor" if ["/v1/jobs", "/v1/dead", "/v1/audit"].contains(&path) => {
            json!({ "type": "string", "pattern": "^[!-~]+$" })
        }
        _ => return None,
    })
}

/// Characters that a reason has none of: controls, line ends, and what turns text around.
const HIDDEN: &str = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069";

/// The priorities of a job.
const PRIORITIES: [Option<&str>; 5] = [
    Some("critical"),
    Some("high"),
    Some("normal"),
    Some("low"),
    None,
];

fn name_schema(max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": max, "pattern": "^[A-Za-z0-9._-]+$" })
}

/// Text of a length from 1 to `max`.
fn text_schema(max: usize, pattern: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": max, "pattern": pattern })
}

fn integer_schema(max: impl Into<u32>) -> Value {
    json!({ "type": ["integer", "null"], "minimum": 0, "maximum": max.into() })
}

fn nullable(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// Durations that are never too long; a few that are longer, or have a fraction, are taken too.
fn duration_schema() -> Value {
    let days = "[0-9]{1,3}|[12][0-9]{3}|3[0-5][0-9]{2}|36[0-5][0-9]|3660";
    let pattern =
        format!("^([0-9]{{1,11}}ms|[0-9]{{1,8}}s|[0-9]{{1,6}}m|[0-9]{{1,4}}h|({days})d)$");
    json!({ "type": ["string", "null"], "pattern": pattern })
}

/// The route that shows it: `/openapi.json`.
pub fn description_route(base: &str) -> Router<App> {
    let text = Bytes::from(description(base).to_string());
    let show = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, "application/json")], text) }
    };
    // What is nested under /v1 does not answer for the slash behind it.
    Router::new()
        .route("/openapi.json", get(show))
        .route("/v1/", any(super::no_such_route))
}

fn empty_document(base: &str) -> OpenApi {
    let info = InfoBuilder::new()
        .title("backstop")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("The backlog engine that never drops work. Errors are application/problem+json, with a detail that says what to do."))
        .build();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `backstop token create`. On a server that only this machine reaches nobody needs one."))
        .build();
    let components = ComponentsBuilder::new()
        .security_scheme(TOKEN, SecurityScheme::Http(bearer))
        .build();
    let (with_token, without) = (
        SecurityRequirement::new(TOKEN, [""; 0]),
        SecurityRequirement::default(),
    );
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([Server::new(if base.is_empty() {
            "/"
        } else {
            base
        })]))
        .components(Some(components))
        .security(Some([with_token, without]))
        .build()
}
