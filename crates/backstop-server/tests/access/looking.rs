//! Every route that only looks × what there is.

use crate::given::{GUARDED, Site, bearing, empty, request, to};
use crate::routes::all;
use axum::body::Body;
use axum::http::Method;
use backstop::audit::AuditEntry;
use backstop::rusqlite::Connection;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, ListCellsRequest};
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::path::Path;

/// Everything that a route with a name in it can be asked for is called `x`.
fn config(folder: &Path) -> String {
    let file = folder.join("app.db");
    let base = Connection::open(&file).unwrap();
    base.execute_batch(
        "CREATE TABLE rows (id INTEGER, done TEXT, at TEXT); INSERT INTO rows VALUES (1, NULL, '2020-01-01 00:00:00')",
    )
    .unwrap();
    let schedule = "[schedules.x]\ncron = \"30 8 * * *\"\nqueue = \"x\"\n";
    let sweep = format!(
        "[sweeps.x]\nurl = \"sqlite:{}\"\nquery = \"SELECT id FROM rows WHERE done IS NULL AND at <= :cutoff\"\nqueue = \"x\"\nunique_key = \"row:{{id}}\"\n",
        file.display()
    );
    format!("{GUARDED}{schedule}{sweep}[streams.x]\nstep = \"1m\"\n")
}

/// All that is kept but the audit, and the audit.
async fn kept(site: &Site) -> (String, Vec<Cell>, Vec<AuditEntry>) {
    let (store, now) = (site.backstop.store(), site.backstop.now());
    let queues = store.queues(now).await.unwrap();
    let jobs = site
        .backstop
        .jobs(&backstop_core::amend::Filter::default(), None, 100, 10)
        .await
        .unwrap();
    let streams = store.streams().await.unwrap();
    let query = ListCellsRequest {
        prefix: String::new(),
        after: None,
        limit: CELLS_MAX,
    };
    let mut cells = store.list_cells(query).await.unwrap();
    assert!(cells.len() < CELLS_MAX, "all of them");
    cells.retain(|cell| !cell.name.starts_with("audit/"));
    let audit = site.backstop.audit("").entries(1_000).await.unwrap();
    (format!("{queues:?} {jobs:?} {streams:?}"), cells, audit)
}

async fn post(site: &Site, token: &str, address: &str, body: Value) -> Value {
    let asked = bearing(request(Method::POST, address), token)
        .body(Body::from(body.to_string()))
        .unwrap();
    let (got, text) = site.read(asked).await;
    assert!(got.status.is_success(), "{address}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// A server with something of everything, and an administrator's token.
async fn given(folder: &Path) -> (Site, String) {
    let site = Site::new(&config(folder));
    let token = site.token(&[Scope::Admin], None).await.token;
    for id in ["dead", "x"] {
        post(
            &site,
            &token,
            "/v1/jobs",
            json!({ "queue": "x", "payload": { "token": 1 }, "id": id }),
        )
        .await;
    }
    let leased = post(
        &site,
        &token,
        "/v1/lease",
        json!({ "queues": ["x"], "worker": "w" }),
    )
    .await;
    let (id, lease) = (&leased["jobs"][0]["id"], &leased["jobs"][0]["lease"]);
    let end = json!({ "settle": [{ "id": id, "lease": lease, "outcome": "dead" }] });
    post(&site, &token, "/v1/settle", end).await;
    post(
        &site,
        &token,
        "/v1/streams/x/records",
        json!({ "key": "x", "position": 60_000, "payload": 1 }),
    )
    .await;
    site.backstop
        .breakers()
        .open(&"x".parse().unwrap(), "test")
        .await
        .unwrap();
    site.log_in(&token).await;
    (site, token)
}

#[tokio::test]
async fn looking_changes_nothing_but_the_audit_of_payloads() {
    let folder = tempfile::tempdir().unwrap();
    let (site, token) = given(folder.path()).await;
    let mut before = kept(&site).await;
    let routes = all().into_iter().filter(|route| !route.is_write());
    let mut addresses: Vec<String> = routes.map(|route| route.address).collect();
    assert!(addresses.len() >= 50, "{addresses:?}");
    let asked = [
        "/sweeps/x?look=dry",
        "/sweeps/x?look=compare",
        "/jobs/confirm?action=delete&all=matching",
        "/jobs/act?action=delete&all=matching&typed=delete",
        "/dead/confirm?action=delete&all=matching",
        "/dead/redrive?queue=x&canary=1&max_failures=0&then_rate=1/s",
        "/dead/dead",
        "/queues/x/pause",
        "/v1/queues/x/pause",
        "/v1/jobs/dead",
    ];
    addresses.extend(asked.map(str::to_owned));
    for address in addresses {
        for method in [Method::HEAD, Method::GET] {
            let got = site
                .ask(empty(bearing(request(method.clone(), &address), &token)))
                .await;
            assert!(
                !got.status.is_server_error(),
                "{method} {address}: {}",
                got.status
            );
            let after = kept(&site).await;
            assert_eq!(
                (&before.0, &before.1),
                (&after.0, &after.1),
                "{method} {address}"
            );
            let news = after.2.len() - before.2.len();
            let is_payload = ["/v1/jobs/x", "/v1/jobs/dead"].contains(&address.as_str());
            assert_eq!(
                news,
                usize::from(is_payload),
                "{method} {address}: {:?}",
                after.2
            );
            before = after;
        }
    }
    assert!(before.2.iter().any(|entry| entry.what == "job payload"));
    let refused = site.ask(empty(to(&all()[0]))).await;
    assert!(
        !refused.status.is_success(),
        "without a token none of it is seen"
    );
}
