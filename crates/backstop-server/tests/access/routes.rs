//! The routes of the router itself: those that the API describes, and those that the sources name.

use axum::http::Method;
use backstop_server::access::{RequiredAccess, required_access};
use backstop_server::{api, pages};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A route: its method, its pattern, and an address that leads to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Route {
    pub(crate) pattern: String,
    method: String,
    pub(crate) address: String,
}

impl Route {
    fn new(method: &str, pattern: &str) -> Self {
        let part = |part: &str| {
            if part.starts_with('{') {
                "x".to_owned()
            } else {
                part.to_owned()
            }
        };
        let parts: Vec<String> = pattern.split('/').map(part).collect();
        Self {
            pattern: pattern.to_owned(),
            method: method.to_uppercase(),
            address: parts.join("/"),
        }
    }

    pub(crate) fn method(&self) -> Method {
        self.method.parse().unwrap()
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.method(), Method::GET | Method::HEAD)
    }

    pub(crate) fn need(&self) -> RequiredAccess {
        required_access(&self.method(), &self.pattern)
    }

    /// Whether people come here, who are sent to log in.
    pub(crate) fn is_page(&self) -> bool {
        let of_programs = ["/v1/", "/metrics", "/openapi.json", "/healthz", "/readyz"];
        !of_programs
            .iter()
            .any(|start| self.pattern.starts_with(start))
    }
}

/// Every route.
pub(crate) fn all() -> Vec<Route> {
    let mut routes: BTreeSet<Route> = described().into_iter().collect();
    let mut files = Vec::new();
    find_sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    for file in files {
        routes.extend(written(&std::fs::read_to_string(file).unwrap()));
    }
    routes.into_iter().collect()
}

/// Those that change something, or may.
pub(crate) fn writes() -> Vec<Route> {
    all().into_iter().filter(Route::is_write).collect()
}

fn described() -> Vec<Route> {
    let document = serde_json::to_value(api::description("")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, item): (&String, &serde_json::Value)| {
        let methods: Vec<String> = item.as_object().unwrap().keys().cloned().collect();
        methods
            .into_iter()
            .map(|method| Route::new(&method, path))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

fn find_sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_sources(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !path.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
}

/// The routes that a source names: `.route("/path", get(…).post(…))`.
fn written(source: &str) -> Vec<Route> {
    let mut routes = Vec::new();
    for rest in source.split(".route(").skip(1) {
        let Some(rest) = rest.trim_start().strip_prefix('"') else {
            panic!("a route without a path: {rest:.60}")
        };
        let (pattern, rest) = rest.split_once('"').unwrap();
        let served = &rest[..end_of_call(rest)];
        // An address at which there is said to be nothing is no route.
        if served.contains("no_such_route") {
            continue;
        }
        let has = |method: &str| {
            served
                .split(|c: char| !c.is_alphanumeric() && c != '(')
                .any(|word| word.starts_with(&format!("{method}(")))
        };
        let methods = ["get", "post", "put", "patch", "delete"]
            .into_iter()
            .filter(|method| has(method));
        let found: Vec<Route> = methods.map(|method| Route::new(method, pattern)).collect();
        assert!(!found.is_empty(), "{pattern} has no method: {served}");
        routes.extend(found);
    }
    routes
}

/// Where the call ends whose opening bracket stands before `rest`.
fn end_of_call(rest: &str) -> usize {
    let mut depth = 1;
    let end = rest.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    end.map_or(rest.len(), |(at, _)| at)
}

#[test]
fn the_list_of_pages_has_every_page_and_no_other() {
    let is_page = |route: &&Route| {
        !route.is_write() && route.is_page() && !route.pattern.starts_with("/assets/")
    };
    let routes = all();
    let pages: BTreeSet<&str> = routes
        .iter()
        .filter(is_page)
        .map(|route| route.pattern.as_str())
        .collect();
    assert_eq!(BTreeSet::from(pages::ADDRESSES), pages);
}

#[test]
fn all_kinds_of_routes_are_found() {
    let routes = all();
    let has = |method: &str, pattern: &str| {
        routes
            .iter()
            .any(|route| route.method == method && route.pattern == pattern)
    };
    for (method, pattern) in [
        ("POST", "/v1/jobs"),
        ("DELETE", "/v1/dead"),
        ("GET", "/v1/events"),
        ("POST", "/login"),
        ("POST", "/logout"),
        ("GET", "/openapi.json"),
        ("GET", "/streams/{stream}"),
        ("POST", "/schedules/{schedule}/pause"),
    ] {
        assert!(
            has(method, pattern),
            "{method} {pattern} is not among {routes:#?}"
        );
    }
}

/// What does over the API what a form of a page does, where its address does not say so itself.
fn twins(form: &str) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match form {
        "/jobs/{}/payload" => &[("GET", "/v1/jobs/{}")],
        "/queues" => &[("POST", "/v1/queues/pause"), ("POST", "/v1/queues/resume")],
        "/jobs/act" => &[
            ("POST", "/v1/jobs/{}/retry"),
            ("POST", "/v1/jobs/{}/cancel"),
            ("DELETE", "/v1/jobs/{}"),
        ],
        "/dead/act" => &[
            ("POST", "/v1/dead/requeue"),
            ("POST", "/v1/dead/move"),
            ("DELETE", "/v1/dead"),
        ],
        "/streams/{}/keys/{}/forget" => &[("DELETE", "/v1/streams/{}/keys/{}")],
        "/breakers/reset" => &[("POST", "/v1/breakers/{}/reset")],
        "/breakers/open" => &[("POST", "/v1/breakers/{}/open")],
        "/workers/quiet" => &[("POST", "/v1/workers/{}/quiet")],
        "/workers/resume" => &[("POST", "/v1/workers/{}/resume")],
        "/workers/stop" => &[("POST", "/v1/workers/{}/stop")],
        _ => return None,
    })
}

/// Forms without one: bulk actions, which have an API of their own, and being logged in, which is
/// for people.
const WITHOUT_TWIN: [&str; 4] = [
    "/jobs/runs/{}/stop",
    "/jobs/runs/{}/resume",
    "/login",
    "/logout",
];

#[test]
fn whatever_a_form_of_a_page_does_the_api_does_too() {
    let anonymous = |pattern: &str| {
        let part = |part: &str| {
            if part.starts_with('{') {
                "{}".to_owned()
            } else {
                part.to_owned()
            }
        };
        pattern.split('/').map(part).collect::<Vec<_>>().join("/")
    };
    let routes: BTreeSet<(String, String)> = all()
        .iter()
        .map(|route| (route.method.clone(), anonymous(&route.pattern)))
        .collect();
    let has = |method: &str, path: &str| routes.contains(&(method.to_owned(), path.to_owned()));
    let forms: Vec<String> = writes()
        .iter()
        .filter(|route| route.is_page())
        .map(|route| anonymous(&route.pattern))
        .collect();
    assert!(forms.len() >= 21, "{forms:?}");
    for form in forms
        .iter()
        .filter(|form| !WITHOUT_TWIN.contains(&form.as_str()))
    {
        match twins(form) {
            Some(twins) => assert!(
                twins.iter().all(|(method, path)| has(method, path)),
                "{form}: {twins:?}"
            ),
            None => assert!(
                has("POST", &format!("/v1{form}")),
                "{form} has no twin under /v1"
            ),
        }
    }
}
