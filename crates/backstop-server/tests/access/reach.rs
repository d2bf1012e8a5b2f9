//! Every route × a token for some queues.

use crate::given::{GUARDED, Site, bearing, empty, login, request, to};
use crate::routes::{Route, all};
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use backstop::core::port::CellSwap;
use backstop_server::access::{RequiredAccess, RouteScope, Scope, route_scope};
use serde_json::{Value, json};

/// The queue that the token is for, and one that it is not.
const OWN: &str = "own";
const OTHER: &str = "other";

/// What is sent to a route that a token for some queues is let into.
enum Case {
    /// This body; it names the queue.
    Body(fn(&Given, &str) -> Value),
    /// This address; it names the queue, or a job of it.
    Address(fn(&str) -> String),
    /// Nothing: it lists, and shows only what is the caller's.
    List,
    /// Nothing, and it is about no queue.
    Nowhere,
}

use Case::{Address, Body as Sent, List, Nowhere};

/// A case for every route that is open to such a token: one that is missing here fails the test.
fn case(route: &Route) -> Case {
    match (route.method().as_str(), route.pattern.as_str()) {
        ("POST", "/v1/jobs") => Sent(|_, queue| json!({ "queue": queue, "payload": 1 })),
        ("POST", "/v1/jobs/batch") => Sent(
            |_, queue| json!({ "jobs": [{ "queue": OWN, "payload": 1 }, { "queue": queue, "payload": 1 }] }),
        ),
        ("POST", "/v1/lease") => Sent(|_, queue| json!({ "queues": [OWN, queue] })),
        ("POST", "/v1/settle") => Sent(|given, queue| json!({ "settle": [given.end(queue)] })),
        ("POST", "/v1/beat") => {
            Sent(|given, queue| json!({ "worker": "w", "leases": [given.lease(queue)] }))
        }
        (
            "GET",
            "/v1/jobs" | "/v1/queues" | "/v1/dead" | "/v1/dead/stats" | "/v1/dead/groups"
            | "/v1/breakers" | "/v1/kinds" | "/v1/capabilities" | "/v1/bulk",
        ) => List,
        ("POST", "/v1/breakers/{b}/open") => Address(|queue| format!("/v1/breakers/{queue}/open")),
        ("GET" | "DELETE", "/v1/jobs/{id}") => Address(|queue| format!("/v1/jobs/{queue}-ready")),
        ("GET", "/v1/jobs/{id}/why") => Address(|queue| format!("/v1/jobs/{queue}-ready/why")),
        ("POST", "/v1/jobs/{id}/retry") => Address(|queue| format!("/v1/jobs/{queue}-dead/retry")),
        ("POST", "/v1/jobs/{id}/cancel") => {
            Address(|queue| format!("/v1/jobs/{queue}-ready/cancel"))
        }
        ("POST", "/v1/queues/{q}/pause") => Address(|queue| format!("/v1/queues/{queue}/pause")),
        ("POST", "/v1/queues/{q}/resume") => Address(|queue| format!("/v1/queues/{queue}/resume")),
        ("POST", "/v1/breakers/{b}/reset") => {
            Address(|queue| format!("/v1/breakers/{queue}/reset"))
        }
        ("POST", "/v1/dead/move") => {
            Sent(|_, queue| json!({ "ids": [format!("{OWN}-dead")], "to": queue }))
        }
        ("POST", "/v1/dead/redrive") => Sent(|_, queue| json!({ "matching": { "queue": queue } })),
        ("POST", "/v1/dead/requeue") | ("DELETE", "/v1/dead") => {
            Sent(|_, queue| json!({ "oldest": 1, "queue": queue }))
        }
        ("POST", "/v1/bulk/preview" | "/v1/bulk") => {
            Sent(|_, queue| json!({ "action": "cancel", "matching": { "queue": queue } }))
        }
        ("GET", "/v1/bulk/{id}") => Address(|queue| format!("/v1/bulk/{queue}-run")),
        ("POST", "/v1/bulk/{id}/stop") => Address(|queue| format!("/v1/bulk/{queue}-run/stop")),
        ("POST", "/v1/bulk/{id}/resume") => Address(|queue| format!("/v1/bulk/{queue}-run/resume")),
        ("GET", "/openapi.json") => Nowhere,
        (method, pattern) => {
            panic!("{method} {pattern} is open to tokens for some queues, and has no case here")
        }
    }
}

/// A server with a ready, a running and a dead job in each of two queues.
struct Given {
    site: Site,
    admin: String,
    token: String,
    running: Vec<Value>,
}

impl Given {
    async fn new() -> Self {
        let site = Site::new(GUARDED);
        let admin = site.token(&[Scope::Admin], None).await.token;
        let token = site.token_for(&[Scope::Admin], &[OWN]).await;
        let mut given = Self {
            site,
            admin,
            token,
            running: Vec::new(),
        };
        for queue in [OTHER, OWN] {
            for name in ["running", "dead"] {
                let job = json!({ "queue": queue, "payload": 1, "id": format!("{queue}-{name}") });
                given.ok(&given.admin, Method::POST, "/v1/jobs", &job).await;
                let ask = json!({ "queues": [queue], "worker": "w" });
                let leased = given
                    .ok(&given.admin, Method::POST, "/v1/lease", &ask)
                    .await["jobs"][0]
                    .take();
                given.running.push(leased);
            }
            let mut end = given.running.pop().unwrap();
            end = json!({ "id": end["id"], "lease": end["lease"], "outcome": "dead" });
            given
                .ok(
                    &given.admin,
                    Method::POST,
                    "/v1/settle",
                    &json!({ "settle": [end] }),
                )
                .await;
            let ready = json!({ "queue": queue, "payload": 1, "id": format!("{queue}-ready") });
            given
                .ok(&given.admin, Method::POST, "/v1/jobs", &ready)
                .await;
            given
                .site
                .backstop
                .breakers()
                .open(&queue.parse().unwrap(), "test")
                .await
                .unwrap();
            given.leave_a_run(queue).await;
        }
        given.site.backstop.run_times().write().await.unwrap();
        given
    }

    /// A bulk action of a queue, as a server that went down in good order leaves it. Its state is
    /// none of the queue's: nothing of it fits.
    async fn leave_a_run(&self, queue: &str) {
        let backstop = &self.site.backstop;
        let now = serde_json::to_value(backstop.now()).unwrap();
        let which = json!({ "jobs": { "queue": queue, "kind": null, "state": "cancelled", "fingerprint": null } });
        let report = json!({
            "id": format!("{queue}-run"), "who": "grace", "expected": null, "back": "", "started_at": now,
            "ended_at": null, "seen_at": now, "count": 0, "refused": 0, "refusals": [], "error": null,
            "target": { "what": "job delete", "deed": "delete", "to": null, "which": which },
            "is_stop_asked": false, "is_left": true, "cursor": null, "runner": 1,
        });
        let value = Some(serde_json::to_vec(&report).unwrap());
        let swap = CellSwap {
            name: format!("bulk/{queue}-run"),
            seen: None,
            version: 7,
            value,
        };
        backstop.store().swap(vec![swap]).await.unwrap();
    }

    /// All that is known of the other queue: its counts, its breaker, and every job of it, whole.
    async fn of_other(&self) -> Value {
        let look = async |address: &str| {
            self.ok(&self.admin, Method::GET, address, &Value::Null)
                .await
        };
        let queues = look("/v1/queues").await;
        let mut queue = queues["queues"]
            .as_array()
            .unwrap()
            .iter()
            .find(|queue| queue["name"] == OTHER)
            .unwrap()
            .clone();
        queue.as_object_mut().unwrap().remove("next_ready");
        let breakers = look("/v1/breakers").await;
        let breakers: Vec<&Value> = breakers["breakers"].as_array().unwrap().iter().collect();
        let breakers: Vec<&&Value> = breakers
            .iter()
            .filter(|breaker| breaker["name"] == OTHER)
            .collect();
        let mut jobs = Vec::new();
        for name in ["running", "dead", "ready"] {
            let mut job = look(&format!("/v1/jobs/{OTHER}-{name}")).await;
            // How deep the caller's own queue was is no matter of this one.
            job.as_object_mut().unwrap().remove("errors");
            jobs.push(job);
        }
        assert_eq!(
            look(&format!("/v1/jobs?queue={OTHER}")).await["jobs"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        json!({ "queue": queue, "breakers": breakers, "jobs": jobs })
    }

    fn lease(&self, queue: &str) -> Value {
        let job = self
            .running
            .iter()
            .find(|job| job["queue"] == queue)
            .unwrap();
        json!({ "id": job["id"], "lease": job["lease"] })
    }

    fn end(&self, queue: &str) -> Value {
        let mut end = self.lease(queue);
        end["outcome"] = json!("done");
        end
    }

    async fn ask(
        &self,
        token: &str,
        method: Method,
        address: &str,
        body: &Value,
    ) -> (StatusCode, String) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = bearing(request(method, address), token)
            .body(Body::from(text))
            .unwrap();
        let (got, text) = self.site.read(request).await;
        (got.status, text)
    }

    async fn ok(&self, token: &str, method: Method, address: &str, body: &Value) -> Value {
        let (status, text) = self.ask(token, method.clone(), address, body).await;
        assert!(status.is_success(), "{method} {address}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What a route answers that is asked about a queue.
    async fn about(&self, route: &Route, queue: &str) -> (StatusCode, String) {
        let (address, body) = match case(route) {
            Sent(body) => (route.address.clone(), body(self, queue)),
            Address(address) => (address(queue), Value::Null),
            List | Nowhere => (route.address.clone(), Value::Null),
        };
        self.ask(&self.token, route.method(), &address, &body).await
    }
}

fn is_own(route: &Route) -> bool {
    route_scope(&route.method(), &route.pattern) == RouteScope::OwnQueues
}

fn guarded() -> impl Iterator<Item = Route> {
    all()
        .into_iter()
        .filter(|route| route.need() != RequiredAccess::Public)
}

#[tokio::test]
async fn what_goes_across_queues_is_refused_with_the_reason() {
    let given = Given::new().await;
    for route in guarded().filter(|route| !is_own(route)) {
        let (got, text) = given
            .site
            .read(empty(bearing(to(&route), &given.token)))
            .await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{route:?}: {text}");
        assert!(text.contains("for queue own only"), "{route:?}: {text}");
        let is_problem = got.text(header::CONTENT_TYPE) == "application/problem+json";
        assert!(
            route.is_page() || is_problem && text.contains("other-queues"),
            "{route:?}: {text}"
        );
    }
}

#[tokio::test]
async fn its_own_queue_is_open_to_it() {
    for route in guarded().filter(is_own) {
        // Each on a server of its own: some take away what the next one needs.
        let (status, text) = Given::new().await.about(&route, OWN).await;
        assert!(status.is_success(), "{route:?}: {status} {text}");
    }
}

#[tokio::test]
async fn of_another_queue_it_changes_and_sees_nothing() {
    for route in guarded().filter(is_own) {
        let given = Given::new().await;
        let (status, text) = given.about(&route, OTHER).await;
        match case(&route) {
            List => {
                assert!(
                    status.is_success() && text.contains(OWN),
                    "{route:?}: {status} {text}"
                );
                assert!(!text.contains(OTHER), "{route:?}: {text}");
            }
            Nowhere => assert!(status.is_success(), "{route:?}: {status} {text}"),
            Sent(_) | Address(_) => {
                assert!(
                    matches!(status.as_u16(), 403 | 404),
                    "{route:?}: {status} {text}"
                );
                assert!(text.contains("queue own"), "{route:?}: {text}");
            }
        }
        assert_eq!(
            given.of_other().await,
            Given::new().await.of_other().await,
            "{route:?} changed it"
        );
    }
}

#[tokio::test]
async fn whatever_names_another_queue_or_none_is_refused() {
    let given = Given::new().await;
    for (method, address, body) in [
        ("GET", "/v1/jobs?queue=other", Value::Null),
        ("GET", "/v1/dead?queue=other", Value::Null),
        ("GET", "/v1/dead/groups?queue=other", Value::Null),
        ("POST", "/v1/dead/requeue", json!({ "all": true })),
        (
            "POST",
            "/v1/dead/requeue",
            json!({ "matching": { "kind": "default" } }),
        ),
        (
            "POST",
            "/v1/dead/requeue",
            json!({ "matching": { "queue": "other" } }),
        ),
        (
            "POST",
            "/v1/dead/requeue",
            json!({ "ids": ["own-dead", "other-dead"] }),
        ),
        (
            "POST",
            "/v1/dead/requeue",
            json!({ "ids": ["own-dead", "nowhere"] }),
        ),
        (
            "POST",
            "/v1/dead/move",
            json!({ "ids": ["other-dead"], "to": "own" }),
        ),
        ("POST", "/v1/dead/redrive", json!({ "all": true })),
        ("POST", "/v1/dead/redrive", json!({ "ids": ["other-dead"] })),
        (
            "POST",
            "/v1/dead/redrive",
            json!({ "ids": ["own-dead", "other-dead"] }),
        ),
        (
            "POST",
            "/v1/dead/redrive",
            json!({ "ids": ["other-dead"], "queue": "other" }),
        ),
        ("DELETE", "/v1/dead", json!({ "all": true })),
        (
            "POST",
            "/v1/bulk",
            json!({ "action": "retry", "all": true }),
        ),
        (
            "POST",
            "/v1/bulk",
            json!({ "action": "retry", "matching": { "kind": "default" } }),
        ),
        (
            "POST",
            "/v1/bulk",
            json!({ "action": "retry", "of": "dead", "matching": { "queue": "other" } }),
        ),
        (
            "POST",
            "/v1/bulk",
            json!({ "action": "move", "to": "other", "matching": { "queue": "own" } }),
        ),
        (
            "POST",
            "/v1/bulk/preview",
            json!({ "action": "retry", "of": "dead", "all": true }),
        ),
        ("POST", "/v1/breakers/other%2Fdefault/reset", Value::Null),
        ("GET", "/v1/jobs?cursor=other:", Value::Null),
        ("GET", "/v1/jobs?cursor=nonsense", Value::Null),
    ] {
        let (status, text) = given
            .ask(&given.token, method.parse().unwrap(), address, &body)
            .await;
        let expected: &[u16] = if address.contains("cursor") {
            &[400]
        } else {
            &[403, 404]
        };
        assert!(
            expected.contains(&status.as_u16()),
            "{method} {address} {body}: {status} {text}"
        );
        assert!(!text.contains("other-dead"), "{text}");
    }
    let (status, _) = given
        .ask(&given.admin, Method::GET, "/v1/jobs/own-dead", &Value::Null)
        .await;
    assert_eq!(status, StatusCode::OK);
    let stats = given
        .ok(&given.admin, Method::GET, "/v1/dead/stats", &Value::Null)
        .await;
    assert_eq!(
        stats,
        json!({ "queues": { "other": 1, "own": 1 }, "total": 2 }),
        "nothing was changed"
    );
}

#[tokio::test]
async fn a_list_over_several_queues_goes_on_from_one_to_the_next() {
    let given = Given::new().await;
    let token = given
        .site
        .token_for(&[Scope::Read], &["empty", OWN, OTHER, "void"])
        .await;
    for (list, of) in [("/v1/jobs?limit=2", "jobs"), ("/v1/dead?limit=2", "dead")] {
        let whole = given
            .ok(
                &given.admin,
                Method::GET,
                &list.replace("=2", "=100"),
                &Value::Null,
            )
            .await;
        let mut wanted: Vec<String> = ids(&whole[of]);
        let (mut found, mut address) = (Vec::new(), list.to_owned());
        loop {
            let page = given.ok(&token, Method::GET, &address, &Value::Null).await;
            found.extend(ids(&page[of]));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            address = format!("{list}&cursor={next}");
        }
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted, "{list}");
    }
    let groups = given
        .ok(&token, Method::GET, "/v1/dead/groups", &Value::Null)
        .await;
    assert_eq!(groups["groups"].as_array().unwrap().len(), 2);
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn its_rights_are_still_its_rights() {
    let given = Given::new().await;
    let reader = given.site.token_for(&[Scope::Read], &[OWN]).await;
    let pushed = json!({ "queue": OWN, "payload": 1 });
    let (status, text) = given.ask(&reader, Method::POST, "/v1/jobs", &pushed).await;
    assert!(
        status == StatusCode::FORBIDDEN && text.contains("scope push"),
        "{status} {text}"
    );
    given
        .ok(&reader, Method::GET, "/v1/jobs/own-ready", &Value::Null)
        .await;
}

#[tokio::test]
async fn a_dead_letter_says_nothing_of_other_queues() {
    let given = Given::new().await;
    let whole = given
        .ok(
            &given.admin,
            Method::GET,
            "/v1/dead?queue=own",
            &Value::Null,
        )
        .await;
    assert!(
        whole["dead"][0]["context"]["queue_depths"]["other"].is_u64(),
        "{whole}"
    );
    for address in ["/v1/dead", "/v1/jobs/own-dead", "/v1/jobs?state=dead"] {
        let (status, text) = given
            .ask(&given.token, Method::GET, address, &Value::Null)
            .await;
        assert!(
            status.is_success() && !text.contains(OTHER),
            "{address}: {text}"
        );
    }
}

#[tokio::test]
async fn the_dashboard_says_why_it_does_not_let_it_in() {
    let given = Given::new().await;
    let (got, text) = given.site.read(login(&given.token, "")).await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(
        text.contains("for queue own only") && got.text(header::SET_COOKIE).is_empty(),
        "{text}"
    );
    // On the login page itself, with what to do and the field to do it in.
    for said in ["role=\"alert\"", "without --queue", "name=\"token\"", "/v1"] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[tokio::test]
async fn a_redrive_by_ids_is_of_its_own_letters_and_is_bound_to_their_queue() {
    let given = Given::new().await;
    let plan = json!({ "ids": ["own-dead"], "canary": 1 });
    let started = given
        .ok(&given.token, Method::POST, "/v1/dead/redrive", &plan)
        .await;
    assert_eq!(started["selection"]["queue"], OWN, "{started}");
    assert_eq!(started["picked"], 1, "{started}");
}

#[tokio::test]
async fn a_token_for_work_undoes_no_order_of_a_worker_that_it_goes_by_the_name_of() {
    use backstop::core::WorkerName;
    use backstop::core::worker_command::WorkerCommand;
    use backstop::workers::LISTED;
    let site = Site::new(GUARDED);
    let token = site.token_for(&[Scope::Work], &[OWN]).await;
    let name = "web-1/4711/a3f09c";
    let worker = site
        .backstop
        .worker()
        .name(name)
        .services(backstop::ServicePlacement::CallersRuntime);
    let running = worker
        .handle_raw(OTHER, |_: backstop::Run| async {
            Ok::<(), backstop::RunError>(())
        })
        .start()
        .unwrap();
    let seen = async || {
        site.backstop
            .workers(LISTED)
            .await
            .unwrap()
            .into_iter()
            .find(|one| one.status.name.as_str() == name)
    };
    while seen().await.is_none_or(|worker| worker.about.pid.is_none()) {
        tokio::task::yield_now().await;
    }
    site.backstop
        .changes("ada")
        .command_worker(&WorkerName::new(name), WorkerCommand::Quiet)
        .await
        .unwrap()
        .unwrap();
    for about in [
        json!({ "worker": name, "pid": 1 }),
        json!({ "worker": name }),
        json!({ "worker": name, "started_at": "2026-01-01T00:00:00Z" }),
    ] {
        site.clock.advance(backstop::Span::secs(3));
        let request = bearing(request(Method::POST, "/v1/beat"), &token)
            .body(Body::from(about.to_string()))
            .unwrap();
        let (got, told) = site.read(request).await;
        assert_eq!(
            (got.status, told.contains("quiet")),
            (StatusCode::OK, false),
            "{about}: {told}"
        );
        let worker = seen().await.unwrap();
        assert!(worker.active_command.is_some(), "it stands: {about}");
        assert_eq!(worker.about.pid, Some(std::process::id()), "{about}");
    }
    drop(running);
}
