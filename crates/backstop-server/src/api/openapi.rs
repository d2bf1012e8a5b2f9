//! The description of the API, in version 3.1 of its format.

use crate::App;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{any, get};
use backstop_core::State;
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
    let api = OpenApiRouter::with_openapi(empty(base)).nest("/v1", super::routes());
    let written = serde_json::to_value(api.merge(events).into_openapi());
    let mut document = written.expect("a description has only text, numbers and lists");
    narrow(&mut document);
    document
}

/// Says of texts that stand for something else what they can be: parameters are read as text, and
/// refused with a reason of ours.
fn narrow(document: &mut Value) {
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
                if let Some(schema) = of_parameter(path, name) {
                    parameter["schema"] = schema;
                }
            }
        }
    }
    for (field, schema) in [
        ("NewJob/properties/queue", name(QUEUE_NAME_MAX)),
        ("NewJob/properties/delay", duration()),
        (
            "NewJob/properties/priority",
            json!({ "type": ["string", "null"], "enum": PRIORITIES }),
        ),
        ("Lease/properties/queues/items", name(QUEUE_NAME_MAX)),
        ("End/properties/retry_in", duration()),
    ] {
        if let Some(described) = document.pointer_mut(&format!("/components/schemas/{field}")) {
            let description = described.get("description").cloned();
            *described = schema;
            description
                .into_iter()
                .for_each(|text| described["description"] = text);
        }
    }
}

fn of_parameter(path: &str, parameter: &str) -> Option<Value> {
    Some(match parameter {
        "queue" | "q" => name(QUEUE_NAME_MAX),
        "s" if path.starts_with("/v1/streams/") => name(STREAM_NAME_MAX),
        "state" => json!({ "type": "string", "enum": State::ALL.map(State::as_str) }),
        "limit" => json!({ "type": "integer" }),
        "holding" => json!({ "type": "boolean" }),
        "window" => json!({ "type": "string", "enum": ["5m", "1h", "24h", "7d"] }),
        "fingerprint" => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{16}$" }),
        "since" | "until" => json!({ "type": "string", "format": "date-time" }),
        "kind" => {
            json!({ "type": "string", "minLength": 1, "maxLength": KIND_BYTES_MAX, "pattern": "^[ -~]+$" })
        }
        "text" => json!({ "type": "string", "minLength": 1, "maxLength": SEARCH_CHARS_MAX }),
        "reason" => {
            json!({ "type": "string", "maxLength": REASON_CHARS_MAX, "pattern": "^[!-~][ -~]*$" })
        }
        _ => return None,
    })
}

/// The priorities of a job.
const PRIORITIES: [Option<&str>; 5] = [
    Some("critical"),
    Some("high"),
    Some("normal"),
    Some("low"),
    None,
];

fn name(max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": max, "pattern": "^[A-Za-z0-9._-]+$" })
}

fn duration() -> Value {
    json!({ "type": ["string", "null"], "pattern": "^([0-9]{1,4}(ms|s|m|h)|[0-9]{1,3}d)$" })
}

/// The route that shows it: `/openapi.json`.
pub fn described(base: &str) -> Router<App> {
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

fn empty(base: &str) -> OpenApi {
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
