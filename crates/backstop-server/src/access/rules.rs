//! What a request needs: one table over methods and paths. What stands in no row needs everything.
//!
//! Paths are those of the router, without the path everything is mounted under: `{q}` stands for
//! one part, so a request and the pattern it matched are judged alike.

use super::caller::Scope;
use axum::http::Method;

/// What a request needs to be let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequiredAccess {
    Public,
    /// A token or a session, whatever its rights.
    AnyCaller,
    Scope(Scope),
}

/// How far a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteScope {
    /// As far as the caller does: its route refuses other queues, and leaves them out of lists.
    OwnQueues,
    /// Across queues, or to what belongs to none.
    AllQueues,
}

/// What is done, as far as rights go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RouteMethod {
    Get,
    Post,
    Delete,
}

use RequiredAccess::Public;
use RouteMethod::{Delete, Get, Post};

const PUSH: RequiredAccess = RequiredAccess::Scope(Scope::Push);
const WORK: RequiredAccess = RequiredAccess::Scope(Scope::Work);
const READ: RequiredAccess = RequiredAccess::Scope(Scope::Read);
const ADMIN: RequiredAccess = RequiredAccess::Scope(Scope::Admin);

/// The first row that fits counts. `*` is one part, `**` is any number of them, none included.
const ACCESS_RULES: &[(RouteMethod, &str, RequiredAccess)] = &[
    // Without a token.
    (Get, "/healthz", Public),
    (Get, "/readyz", Public),
    (Get, "/login", Public),
    (Post, "/login", Public),
    (Post, "/logout", Public),
    (Get, "/assets/**", Public),
    // Producers.
    (Post, "/v1/jobs", PUSH),
    (Post, "/v1/jobs/batch", PUSH),
    (Post, "/v1/streams/*/records", PUSH),
    // Workers.
    (Post, "/v1/lease", WORK),
    (Post, "/v1/settle", WORK),
    (Post, "/v1/beat", WORK),
    // What one's own token is good for.
    (Get, "/v1/capabilities", RequiredAccess::AnyCaller),
    // Who did what is for those who could have done it.
    (Get, "/v1/audit", ADMIN),
    (Get, "/audit/**", ADMIN),
    // Whoever looks. A count that is asked for with a body changes nothing.
    (Post, "/v1/bulk/preview", READ),
    (Get, "/v1/**", READ),
    (Get, "/metrics", READ),
    (Get, "/openapi.json", READ),
    (Get, "/", READ),
    (Get, "/queues/**", READ),
    (Get, "/kinds/**", READ),
    (Get, "/jobs/**", READ),
    (Get, "/dead/**", READ),
    (Get, "/streams/**", READ),
    (Get, "/schedules/**", READ),
    (Get, "/sweeps/**", READ),
    (Get, "/tables/**", READ),
    (Get, "/workers/**", READ),
    (Get, "/breakers/**", READ),
    (Get, "/policy/**", READ),
];

/// What is open to tokens for some queues. Whatever stands here asks [`super::QueueScope`] about
/// each queue it touches or shows.
const QUEUE_SCOPED_ROUTES: &[(RouteMethod, &str)] = &[
    (Post, "/v1/jobs"),
    (Post, "/v1/jobs/batch"),
    (Post, "/v1/lease"),
    (Post, "/v1/settle"),
    (Post, "/v1/beat"),
    (Get, "/v1/jobs"),
    (Get, "/v1/jobs/*"),
    (Delete, "/v1/jobs/*"),
    (Get, "/v1/jobs/*/why"),
    (Post, "/v1/jobs/*/retry"),
    (Post, "/v1/jobs/*/cancel"),
    (Get, "/v1/queues"),
    (Post, "/v1/queues/*/pause"),
    (Post, "/v1/queues/*/resume"),
    (Get, "/v1/dead"),
    (Delete, "/v1/dead"),
    (Get, "/v1/dead/stats"),
    (Get, "/v1/dead/groups"),
    (Post, "/v1/dead/requeue"),
    (Post, "/v1/dead/move"),
    (Post, "/v1/dead/redrive"),
    (Post, "/v1/bulk/preview"),
    (Post, "/v1/bulk"),
    (Get, "/v1/bulk"),
    (Get, "/v1/bulk/*"),
    (Post, "/v1/bulk/*/stop"),
    (Post, "/v1/bulk/*/resume"),
    (Get, "/v1/kinds"),
    (Get, "/v1/breakers"),
    (Post, "/v1/breakers/*/reset"),
    (Post, "/v1/breakers/*/open"),
    // Say nothing of any queue but the caller's own.
    (Get, "/v1/capabilities"),
    (Get, "/openapi.json"),
];

/// How far a request goes, by its method and the path of the router it leads to. What nobody
/// thought of goes across.
pub fn route_scope(method: &Method, path: &str) -> RouteScope {
    let is_own = |verb| {
        QUEUE_SCOPED_ROUTES
            .iter()
            .any(|(of, pattern)| *of == verb && matches_pattern(pattern, path))
            .then_some(RouteScope::OwnQueues)
    };
    route_method(method)
        .and_then(is_own)
        .unwrap_or(RouteScope::AllQueues)
}

/// What a request needs, by its method and the path of the router it leads to.
pub fn required_access(method: &Method, path: &str) -> RequiredAccess {
    let fits = |(of, pattern, _): &&(RouteMethod, &str, RequiredAccess)| {
        Some(*of) == route_method(method) && matches_pattern(pattern, path)
    };
    ACCESS_RULES
        .iter()
        .find(fits)
        .map_or(ADMIN, |(_, _, need)| *need)
}

/// Looks at one thing, or at what the server remembers.
const CHEAP_ROUTES: &[&str] = &[
    "/v1/events",
    "/v1/capabilities",
    "/v1/jobs/*",
    "/v1/bulk/*",
    "/metrics",
    "/openapi.json",
];

/// Counts the jobs that match before it answers.
const COUNTING: &[&str] = &["/v1/bulk/preview", "/v1/bulk", "/jobs/act", "/dead/act"];

/// Whether a request is a list, a search, a count or a page: something that may take the store
/// long, and of which one caller has only a few under way.
pub(crate) fn is_expensive(method: &Method, path: &str) -> bool {
    let is_dear = match route_method(method) {
        Some(Get) => !CHEAP_ROUTES
            .iter()
            .any(|pattern| matches_pattern(pattern, path)),
        Some(Post) => COUNTING.contains(&path),
        Some(Delete) | None => false,
    };
    is_dear && matches!(required_access(method, path), RequiredAccess::Scope(_))
}

fn route_method(method: &Method) -> Option<RouteMethod> {
    match *method {
        Method::GET | Method::HEAD => Some(Get),
        Method::POST => Some(Post),
        Method::DELETE => Some(Delete),
        _ => None,
    }
}

fn matches_pattern(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for expected in pattern.split('/') {
        match (expected, parts.next()) {
            ("**", _) => return true,
            ("*", Some(part)) if !part.is_empty() => {}
            (expected, Some(part)) if expected == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expected: RequiredAccess) {
        assert_eq!(
            required_access(&method.parse().unwrap(), path),
            expected,
            "{method} {path}"
        );
    }

    #[test]
    fn every_documented_route_has_its_right() {
        for (method, path, expected) in [
            ("POST", "/v1/jobs", PUSH),
            ("POST", "/v1/jobs/batch", PUSH),
            ("POST", "/v1/streams/{s}/records", PUSH),
            ("POST", "/v1/lease", WORK),
            ("POST", "/v1/settle", WORK),
            ("POST", "/v1/beat", WORK),
            ("GET", "/v1/jobs", READ),
            ("HEAD", "/v1/jobs", READ),
            ("GET", "/v1/jobs/{id}", READ),
            ("GET", "/v1/jobs/{id}/why", READ),
            ("GET", "/v1/queues", READ),
            ("GET", "/v1/dead/stats", READ),
            ("POST", "/v1/bulk/preview", READ),
            ("GET", "/v1/bulk", READ),
            ("GET", "/v1/bulk/{id}", READ),
            ("POST", "/v1/bulk", ADMIN),
            ("POST", "/v1/bulk/{id}/stop", ADMIN),
            ("POST", "/v1/bulk/{id}/resume", ADMIN),
            ("GET", "/v1/events", READ),
            ("GET", "/metrics", READ),
            ("GET", "/openapi.json", READ),
            ("GET", "/v1/audit", ADMIN),
            ("GET", "/v1/capabilities", RequiredAccess::AnyCaller),
            ("POST", "/v1/breakers/{b}/open", ADMIN),
            ("POST", "/v1/schedules/{s}/trigger", ADMIN),
            ("POST", "/v1/dead/redrives/{id}/stop", ADMIN),
            ("POST", "/v1/streams/{s}/keys/{k}/skip", ADMIN),
            ("DELETE", "/v1/jobs/{id}", ADMIN),
            ("POST", "/v1/jobs/{id}/retry", ADMIN),
            ("POST", "/v1/jobs/{id}/cancel", ADMIN),
            ("POST", "/v1/queues/{q}/pause", ADMIN),
            ("POST", "/v1/dead/requeue", ADMIN),
            ("DELETE", "/v1/dead", ADMIN),
            ("DELETE", "/v1/streams/{s}/keys/{k}", ADMIN),
            ("POST", "/v1/sweeps/{s}/run", ADMIN),
            ("POST", "/v1/breakers/{b}/reset", ADMIN),
            ("GET", "/v1/audit", ADMIN),
            ("GET", "/audit", ADMIN),
            ("GET", "/", READ),
            ("GET", "/queues", READ),
            ("GET", "/streams/{s}/keys/{k}", READ),
            ("POST", "/queues/{q}/pause", ADMIN),
            ("POST", "/queues", ADMIN),
            ("POST", "/dead", ADMIN),
        ] {
            check(method, path, expected);
        }
    }

    #[test]
    fn lists_and_pages_are_expensive_and_work_is_not() {
        for (method, path) in [
            ("GET", "/v1/jobs"),
            ("GET", "/v1/dead/groups"),
            ("GET", "/v1/queues"),
            ("GET", "/v1/workers"),
            ("GET", "/v1/jobs/{id}/why"),
            ("GET", "/v1/audit"),
            ("POST", "/v1/bulk/preview"),
            ("POST", "/v1/bulk"),
            ("POST", "/jobs/act"),
            ("POST", "/dead/act"),
            ("GET", "/"),
            ("GET", "/jobs"),
            ("HEAD", "/dead"),
        ] {
            assert!(
                is_expensive(&method.parse().unwrap(), path),
                "{method} {path}"
            );
        }
        for (method, path) in [
            ("GET", "/healthz"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("GET", "/v1/events"),
            ("GET", "/v1/jobs/{id}"),
            ("POST", "/v1/jobs"),
            ("POST", "/v1/jobs/batch"),
            ("POST", "/v1/lease"),
            ("POST", "/v1/settle"),
            ("POST", "/v1/beat"),
            ("POST", "/v1/bulk/{id}/stop"),
            ("GET", "/assets/backstop.css"),
            ("GET", "/login"),
        ] {
            assert!(
                !is_expensive(&method.parse().unwrap(), path),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn nothing_else_is_open() {
        for (method, path) in [
            ("GET", "/healthz"),
            ("HEAD", "/readyz"),
            ("GET", "/login"),
            ("GET", "/assets/a.css"),
        ] {
            check(method, path, Public);
        }
        for (method, path) in [
            ("POST", "/healthz"),
            ("GET", "/logout"),
            ("GET", "/healthz/"),
            ("GET", "/assetsx/a"),
            ("POST", "/assets/a.css"),
            ("PUT", "/login"),
        ] {
            check(method, path, ADMIN);
        }
    }

    #[test]
    fn what_stands_in_no_row_needs_everything() {
        for (method, path) in [
            ("GET", "/nowhere"),
            ("GET", "/v2/jobs"),
            ("POST", "/v1/anything"),
            ("POST", "/v1/jobs/"),
            ("POST", "/v1//jobs"),
            ("POST", "/v1/jobs/batch/x"),
            ("POST", "/v1/streams//records"),
            ("OPTIONS", "/v1/jobs"),
            ("PUT", "/v1/jobs"),
            ("PATCH", "/v1/jobs"),
            ("TRACE", "/"),
            ("QUERY", "/v1/jobs"),
            ("GET", ""),
        ] {
            check(method, path, ADMIN);
        }
    }
}
