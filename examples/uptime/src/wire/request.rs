//! One request of a check: nothing is decided by it, it is there to be shown.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

/// One request of a check.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct RequestInfo {
    /// Its method.
    pub request_type: RequestType,
    /// What the server answered; nothing if it did not.
    #[serde(deserialize_with = "required")]
    pub http_status_code: Option<Number>,
    /// What was asked for.
    #[serde(default)]
    pub url: Option<String>,
    /// Bytes sent.
    #[serde(default)]
    pub request_body_size_bytes: Option<Number>,
    /// Bytes received.
    #[serde(default)]
    pub response_body_size_bytes: Option<Number>,
    /// How long it took.
    #[serde(default)]
    pub request_duration_us: Option<Number>,
    /// How long its parts took.
    #[serde(default)]
    pub durations: Option<Durations>,
    /// What came back, in base64, where that is wanted.
    #[serde(default)]
    pub response_body: Option<String>,
    /// With which headers, names and values.
    #[serde(default)]
    pub response_headers: Option<Vec<(String, String)>>,
    /// How long the certificate of the server is good; no part of the schema.
    #[serde(default)]
    pub certificate_info: Option<Value>,
}

/// The methods. Nothing is decided by them, so one that a newer checker knows is carried on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the words of the wire format")]
pub enum RequestType {
    Get,
    Post,
    Head,
    Put,
    Delete,
    Patch,
    Options,
    #[serde(untagged)]
    Other(String),
}

/// How long the parts of a request took.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the words of the wire format")]
pub struct Durations {
    pub dns_lookup: Option<Timing>,
    pub tcp_connection: Option<Timing>,
    pub tls_handshake: Option<Timing>,
    pub time_to_first_byte: Option<Timing>,
    pub send_request: Option<Timing>,
    pub receive_response: Option<Timing>,
}

/// When a part began, since 1970, and how long it took.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[expect(missing_docs, reason = "the words of the wire format")]
pub struct Timing {
    pub start_us: Number,
    pub duration_us: Number,
}

/// It may be null, not absent.
fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Number>, D::Error> {
    Option::deserialize(deserializer)
}
