//! Every route × what nobody meant to send: mutated bodies, parameters and paths, and headers of
//! all kinds. The seed is fixed: what is found is found again.

use crate::given::config;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use backstop::testing::start;
use backstop_server::access::{NewToken, Scope, TokenRegistry};
use backstop_server::{App, api, serve};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::collections::BTreeSet;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Requests of a kind for each route.
const CASES: u32 = 32;

/// What a program sends that means well; each is sent, mutated, to every route.
const BODIES: [&str; 9] = [
    r#"{"queue":"q","payload":{"n":1},"id":"a","kind":"k","priority":"high","unique_key":"u","run_at":"2026-01-01T00:00:00Z","retry":{"kind":"constant","every":"1s"}}"#,
    r#"{"jobs":[{"queue":"q","payload":1},{"queue":"q","payload":[null]}]}"#,
    r#"{"queues":["q"],"max":1,"worker":"w","wait_ms":10,"lease_ms":15000}"#,
    r#"{"settle":[{"id":"a","lease":"4000000000000000-1-3a98--q","outcome":"failed","error":{"message":"boom","type":"T"}}]}"#,
    r#"{"worker":"w","leases":[{"id":"a","lease":"4000000000000000-1-3a98--q"}]}"#,
    r#"{"ids":["a","b"],"queue":"q","to":"r"}"#,
    r#"{"matching":{"queue":"q","text":"x","since":"2026-01-01T00:00:00Z"},"canary":1,"max_failures":0,"then_rate":"10/s"}"#,
    r#"{"records":[{"key":"k","position":60,"step":60,"payload":{}},{"key":"k","position":120,"step":60}]}"#,
    r#"{"key":"k","position":9007199254740991,"step":60,"payload":{},"tenant":"t"}"#,
];

/// Values that programs trip over.
const ODD: [&str; 20] = [
    "null",
    "-1",
    "0",
    "1e999",
    "-0.0",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{202e}é\"",
    "[]",
    "{}",
    "[[[[[[[[]]]]]]]]",
    "true",
    "{\"\":{\"\":null}}",
    "\"9999-12-31T23:59:59.999999999Z\"",
    "\"-262144-01-01T00:00:00Z\"",
    "\"../../etc/passwd\"",
];

/// Names of parameters, and what is none.
const NAMES: [&str; 14] = [
    "limit",
    "cursor",
    "queue",
    "kind",
    "state",
    "text",
    "since",
    "until",
    "fingerprint",
    "error_type",
    "who",
    "holding",
    "at",
    "%00",
];

/// What is done to a text.
#[derive(Clone, Debug)]
enum Edit {
    /// A byte becomes another.
    Flip(Index, u8),
    /// What is behind here is left out.
    Cut(Index),
    /// The part between two places comes twice.
    Double(Index, Index),
    /// What stands between one colon or comma and the next becomes this.
    Odd(Index, &'static str),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Flip(at, byte)),
        any::<Index>().prop_map(Edit::Cut),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Double(from, to)),
        (any::<Index>(), select(&ODD[..])).prop_map(|(at, odd)| Edit::Odd(at, odd)),
        (any::<Index>(), select(&ODD[..])).prop_map(|(at, odd)| Edit::Odd(at, odd)),
    ];
    vec(edit, 0..4)
}

fn edited(text: &str, edits: &[Edit]) -> Vec<u8> {
    edits
        .iter()
        .fold(text.as_bytes().to_vec(), |mut bytes, edit| {
            if bytes.is_empty() {
                return bytes;
            }
            match edit {
                Edit::Flip(at, byte) => {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                Edit::Cut(at) => bytes.truncate(at.index(bytes.len())),
                Edit::Double(from, to) => {
                    let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                    let part = bytes[from.min(to)..from.max(to)].to_vec();
                    bytes.splice(from.min(to)..from.min(to), part);
                }
                Edit::Odd(at, odd) => {
                    let marks = (0..bytes.len()).filter(|at| matches!(bytes[*at], b':' | b','));
                    let marks: Vec<usize> = marks.collect();
                    if !marks.is_empty() {
                        let from = marks[at.index(marks.len())] + 1;
                        let behind = bytes[from..]
                            .iter()
                            .position(|byte| matches!(byte, b',' | b'}' | b']'));
                        bytes.splice(from..from + behind.unwrap_or(0), odd.bytes());
                    }
                }
            }
            bytes
        })
}

/// Bytes as they stand in an address.
fn encoded(bytes: &[u8]) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    bytes.iter().map(encode).collect()
}

/// A part of a path: never an empty one, which is another path.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("q".to_owned()),
        Just("..%2F..%2Fetc".to_owned()),
        Just("%00".to_owned()),
        Just("%ff%fe".to_owned()),
        Just("x".repeat(4_000)),
        vec(any::<u8>(), 1..24).prop_map(|bytes| encoded(&bytes)),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        select(&ODD[..]).prop_map(|odd| encoded(odd.as_bytes())),
        vec(any::<u8>(), 0..16).prop_map(|bytes| encoded(&bytes)),
        Just("q".to_owned()),
        Just("1".to_owned()),
        Just("%".to_owned()),
    ];
    let pair = (select(&NAMES[..]), value).prop_map(|(name, value)| format!("{name}={value}"));
    vec(pair, 0..4).prop_map(|pairs| pairs.join("&"))
}

/// A server in a runtime of its own, on virtual time: whoever asks to wait is not waited for.
struct Given {
    runtime: Runtime,
    router: Router,
    token: String,
}

const OPEN: &str = "";
const GUARDED: &str = "[server]\nlisten = \"0.0.0.0:7007\"\nplain_http = true\n";

impl Given {
    fn new(text: &str) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let backstop = start().backstop;
        let new = NewToken {
            name: "ada".to_owned(),
            scopes: vec![Scope::Admin],
            queues: Vec::new(),
            expires_in: None,
        };
        let token = runtime
            .block_on(TokenRegistry::of(&backstop).create("test", new))
            .unwrap()
            .token;
        let router = serve::router(&App::new(backstop, config(text), ""));
        Self {
            runtime,
            router,
            token,
        }
    }

    fn ask(&self, mut request: Request<Body>) -> (StatusCode, HeaderMap, String) {
        let host = HeaderValue::from_static("localhost:7007");
        request.headers_mut().entry(header::HOST).or_insert(host);
        self.runtime.block_on(async {
            let (head, body) = self
                .router
                .clone()
                .oneshot(request)
                .await
                .unwrap()
                .into_parts();
            let is_endless = head
                .headers
                .get(header::CONTENT_TYPE)
                .is_some_and(|kind| kind == "text/event-stream");
            let text = if is_endless {
                Vec::new()
            } else {
                to_bytes(body, 64 << 20).await.unwrap().to_vec()
            };
            (
                head.status,
                head.headers,
                String::from_utf8_lossy(&text).into_owned(),
            )
        })
    }

    /// It answers, and as if nothing had been.
    fn answers(&self) {
        let well = Request::get("/v1/queues")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let (status, _, text) = self.ask(well.body(Body::empty()).unwrap());
        assert_eq!(status, StatusCode::OK, "{text}");
    }
}

/// Every route that the API describes.
fn routes() -> Vec<(Method, String)> {
    let described = serde_json::to_value(api::description("")).unwrap();
    let mut routes = Vec::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_uppercase().parse().unwrap(), path.clone()));
        }
    }
    assert!(routes.len() >= 37, "{routes:?}");
    routes
}

/// An address of a route, with these names in it.
fn address(pattern: &str, names: &[String], query: &str) -> String {
    let mut names = names.iter().cycle();
    let part = |part: &str| {
        if part.starts_with('{') {
            names.next().cloned().unwrap_or_default()
        } else {
            part.to_owned()
        }
    };
    let path: Vec<String> = pattern.split('/').map(part).collect();
    format!("{}?{query}", path.join("/"))
}

/// Tries `test` with many of `strategy`; the first that fails is made as small as it can be, and
/// told.
fn many<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(found) = runner.run(strategy, test) {
        panic!("{found}");
    }
}

#[test]
fn no_body_no_parameter_and_no_path_breaks_a_route() {
    let given = Given::new(OPEN);
    for (method, pattern) in routes() {
        let bodies = (select(&BODIES[..]), edits()).prop_map(|(body, edits)| edited(body, &edits));
        many(
            &(bodies, vec(name(), 2), query()),
            |(body, names, query)| {
                let address = address(&pattern, &names, &query);
                let Ok(request) = Request::builder()
                    .method(&method)
                    .uri(&address)
                    .body(Body::from(body.clone()))
                else {
                    return Ok(());
                };
                let (status, headers, text) = given.ask(request);
                let is_told = status.is_success()
                    || headers[header::CONTENT_TYPE] == "application/problem+json";
                if status.as_u16() < 500 && is_told {
                    return Ok(());
                }
                let body = String::from_utf8_lossy(&body).into_owned();
                Err(TestCaseError::fail(format!(
                    "{method} {address} {body}: {status} {text}"
                )))
            },
        );
        given.answers();
    }
}

#[test]
fn each_body_is_taken_by_a_route_as_it_is() {
    // What is mutated must be taken before it is: else nothing behind the first check is ever
    // reached.
    let routes = [
        "/v1/jobs",
        "/v1/jobs/batch",
        "/v1/lease",
        "/v1/settle",
        "/v1/beat",
        "/v1/dead/move",
        "/v1/dead/redrive",
        "/v1/streams/s/records",
        "/v1/streams/s/records",
    ];
    let given = Given::new(OPEN);
    for (body, route) in BODIES.into_iter().zip(routes) {
        let (status, _, text) = given.ask(Request::post(route).body(Body::from(body)).unwrap());
        assert!(status.is_success(), "{route} {body}: {status} {text}");
    }
}

/// The names of all headers that answers have.
const ANSWERED: [&str; 15] = [
    "allow",
    "cache-control",
    "content-length",
    "content-security-policy",
    "content-type",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "location",
    "referrer-policy",
    "retry-after",
    "vary",
    "www-authenticate",
    "x-accel-buffering",
    "x-content-type-options",
    "x-frame-options",
];

/// A mark that is in every odd value that has room for it.
const MARK: &[u8] = b"zyxw";

/// Odd values of a header; two of them are two headers of the same name.
fn values(given: &Given) -> Vec<Vec<HeaderValue>> {
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
    let high: Vec<u8> = MARK.iter().copied().chain(0x80..=0xff).collect();
    let long = [MARK, &b"a".repeat(15 << 10)].concat();
    let token = format!("Bearer {}", given.token);
    let mut values = vec![
        vec![value(b"")],
        vec![value(&high)],
        vec![value(&long)],
        vec![value(b"zyxw"), value(b"localhost:7007")],
        vec![value(b"localhost:7007"), value(&high)],
        vec![value(token.as_bytes()), value(b"Bearer zyxw")],
        vec![
            value(b"zyxw=1; zyxw"),
            value(b"backstop_session=zyxw; __Host-backstop_session=\xff"),
        ],
        vec![value(b"00-zyxw-\xff-01")],
        vec![value(b"zyxw, ,, 999.1.1.1")],
        vec![value(b"http://\xff@zyxw:99999/%0d%0aset-cookie: a=b")],
        vec![value(b"\tzyxw\t")],
    ];
    values.extend((0x80..=0xff_u8).step_by(9).map(|byte| vec![value(&[byte])]));
    values
}

#[test]
fn no_header_of_a_request_breaks_an_answer_or_comes_back_in_one() {
    let names = [
        "host",
        "origin",
        "cookie",
        "authorization",
        "x-forwarded-for",
        "last-event-id",
        "traceparent",
    ];
    let known = BTreeSet::from(ANSWERED);
    for text in [OPEN, GUARDED] {
        let given = Given::new(text);
        let odd = values(&given);
        for (method, address) in [
            ("GET", "/v1/queues"),
            ("POST", "/v1/jobs"),
            ("GET", "/v1/events"),
            ("GET", "/"),
            ("GET", "/login"),
        ] {
            for (name, values) in names
                .iter()
                .flat_map(|name| odd.iter().map(move |values| (name, values)))
            {
                let body = Body::from(r#"{"queue":"q","payload":1}"#);
                let mut request = Request::builder()
                    .method(method)
                    .uri(address)
                    .body(body)
                    .unwrap();
                if *name != "authorization" {
                    let token = format!("Bearer {}", given.token).parse().unwrap();
                    request.headers_mut().insert(header::AUTHORIZATION, token);
                }
                for value in values {
                    request
                        .headers_mut()
                        .append(HeaderName::from_static(name), value.clone());
                }
                let (status, headers, _) = given.ask(request);
                let what = format!("{method} {address} {name}: {values:?}");
                // A viewer too many is told so; nothing else here may fail.
                let is_full = address == "/v1/events" && status == StatusCode::SERVICE_UNAVAILABLE;
                assert!(status.as_u16() < 500 || is_full, "{what}: {status}");
                for (name, value) in &headers {
                    assert!(known.contains(name.as_str()), "{what}: {name}");
                    let is_echo = value
                        .as_bytes()
                        .windows(MARK.len())
                        .any(|part| part == MARK);
                    assert!(
                        !is_echo && value.as_bytes().is_ascii(),
                        "{what}: {name}: {value:?}"
                    );
                }
            }
        }
        given.answers();
    }
}
