//! `/openapi.json` says what the router does, and the router does what it says.

use crate::given::{given, given_with};
use axum::http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Every route there is.
const ROUTES: &str = "
    POST /jobs · POST /jobs/batch · GET /jobs · GET /jobs/{id} · DELETE /jobs/{id} · POST /jobs/{id}/retry · POST /jobs/{id}/cancel · GET /jobs/{id}/why
    POST /lease · POST /settle · POST /beat
    GET /queues · POST /queues/{q}/pause · POST /queues/{q}/resume · POST /queues/pause · POST /queues/resume
    GET /dead/stats · GET /dead/groups · GET /dead · POST /dead/requeue · POST /dead/move · POST /dead/redrive · GET /dead/redrives · POST /dead/redrives/{id}/stop · POST /dead/redrives/{id}/resume · DELETE /dead
    POST /bulk/preview · POST /bulk · GET /bulk · GET /bulk/{id} · POST /bulk/{id}/stop · POST /bulk/{id}/resume
    POST /streams/{s}/records · GET /streams · GET /streams/{s}/keys · GET /streams/{s}/keys/{k} · DELETE /streams/{s}/keys/{k}
    POST /streams/{s}/keys/{k}/resume · POST /streams/{s}/keys/{k}/skip · POST /streams/{s}/keys/{k}/enable · POST /streams/{s}/keys/{k}/disable
    GET /events
    GET /schedules · GET /schedules/{s}/runs · POST /schedules/{s}/trigger · POST /schedules/{s}/pause · POST /schedules/{s}/resume · GET /sweeps · POST /sweeps/{s}/run · GET /tables · GET /workers · POST /workers/{w}/quiet · POST /workers/{w}/resume · POST /workers/{w}/stop · GET /breakers · POST /breakers/{b}/reset · POST /breakers/{b}/open · GET /audit · GET /capabilities · GET /kinds
";

fn described(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = |(path, item): (&String, &Value)| {
        let path = path.strip_prefix("/v1").expect("under /v1").to_owned();
        let words = item
            .as_object()
            .expect("methods")
            .keys()
            .cloned()
            .collect::<Vec<_>>();
        words
            .into_iter()
            .map(move |method| format!("{} {path}", method.to_uppercase()))
    };
    paths.iter().flat_map(methods).collect()
}

#[tokio::test]
async fn the_document_names_every_route_and_no_other() {
    let document = given().get("/openapi.json").await.ok();
    assert!(
        document["openapi"].as_str().unwrap().starts_with("3.1"),
        "{}",
        document["openapi"]
    );
    let expected: BTreeSet<String> = ROUTES
        .lines()
        .flat_map(|line| line.split('·'))
        .map(|route| route.trim().to_owned())
        .filter(|route| !route.is_empty())
        .collect();
    assert_eq!(described(&document), expected);
}

#[tokio::test]
async fn the_router_has_each_method_of_the_document_and_refuses_all_others() {
    let api = given();
    let document = api.get("/openapi.json").await.ok();
    // Events are served with the pages, and never end.
    let paths = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| *path != "/v1/events");
    for (path, item) in paths {
        let filled = path
            .replace("{id}", "x")
            .replace("{q}", "x")
            .replace("{s}", "x")
            .replace("{k}", "x")
            .replace("{b}", "x")
            .replace("{w}", "x");
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let is_described = item.get(method.as_str().to_lowercase()).is_some();
            let status = api.ask(method.clone(), &filled, "").await.status.as_u16();
            assert_eq!(status != 405, is_described, "{method} {path}: {status}");
        }
    }
}

#[tokio::test]
async fn every_operation_says_what_it_answers_and_every_reference_leads_somewhere() {
    let document = given().get("/openapi.json").await.ok();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{method} {path}"
            );
            assert!(responses.contains_key("default"), "{method} {path}");
            assert!(
                operation["summary"].is_string() || operation["description"].is_string(),
                "{method} {path}"
            );
        }
    }
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(
            document.pointer(pointer).is_some(),
            "{pointer} leads nowhere"
        );
    }
}

#[tokio::test]
async fn a_lease_says_what_becomes_of_numbers_that_cannot_be() {
    let document = given().get("/openapi.json").await.ok();
    let lease = &document["components"]["schemas"]["Lease"]["properties"];
    assert_eq!(lease["max"]["type"], json!(["integer", "null"]), "{lease}");
    for (field, words) in [
        ("max", "With 0, or less, none is taken"),
        ("lease_ms", "less than 500 ms counts as 500 ms"),
    ] {
        assert!(
            lease[field]["description"]
                .as_str()
                .unwrap()
                .replace('\n', " ")
                .contains(words),
            "{lease}"
        );
    }
}

#[tokio::test]
async fn it_says_where_the_api_is_and_how_a_caller_says_who_it_is() {
    for (base, url) in [("", "/"), ("/backstop", "/backstop")] {
        let document = serde_json::to_value(backstop_server::api::description(base)).unwrap();
        assert_eq!(document["servers"][0]["url"], url);
        assert_eq!(
            document.pointer("/components/securitySchemes/token/scheme"),
            Some(&json!("bearer"))
        );
        assert_eq!(
            document["security"],
            json!([{ "token": [] }, {}]),
            "this machine needs none"
        );
    }
}

/// What is written is what is described: no field more, and none less of those that are always
/// there.
fn check_shape(document: &Value, schema: &str, written: &Value) {
    let schema = document
        .pointer(&format!("/components/schemas/{schema}"))
        .unwrap();
    let described = schema["properties"].as_object().unwrap();
    let written = written.as_object().unwrap();
    for name in written.keys() {
        assert!(described.contains_key(name), "{name} is not described");
    }
    for name in schema["required"].as_array().unwrap() {
        assert!(
            written.contains_key(name.as_str().unwrap()),
            "{name} is not written"
        );
    }
}

#[tokio::test]
async fn a_job_is_written_as_it_is_described() {
    let api = given();
    let document = api.get("/openapi.json").await.ok();
    api.post("/v1/jobs", json!({ "queue": "q", "payload": 1, "id": "a" }))
        .await
        .ok();
    check_shape(&document, "Job", &api.get("/v1/jobs/a").await.ok());
    api.post("/v1/lease", json!({ "queues": ["q"], "worker": "w" }))
        .await
        .ok();
    check_shape(&document, "Job", &api.get("/v1/jobs/a").await.ok());
    let described = &document["components"]["schemas"]["Job"]["properties"]["started_at"];
    assert_eq!(
        (&described["type"], &described["format"]),
        (&json!(["string", "null"]), &json!("date-time")),
        "{described}"
    );
}

#[tokio::test]
async fn dead_letters_and_redrives_are_written_as_they_are_described() {
    let api = given();
    let document = api.get("/openapi.json").await.ok();
    api.post("/v1/jobs", json!({ "queue": "q", "payload": 1, "id": "a" }))
        .await
        .ok();
    let leased = api
        .post("/v1/lease", json!({ "queues": ["q"], "worker": "w" }))
        .await
        .ok();
    let error = json!({ "message": "boom", "type": "Boom" });
    let end = json!({ "id": "a", "lease": leased["jobs"][0]["lease"], "outcome": "dead", "error": error });
    api.post("/v1/settle", json!({ "settle": [end] }))
        .await
        .ok();
    let letters = api.get("/v1/dead").await.ok();
    let letter = &letters["dead"][0];
    check_shape(&document, "DeadLetter", letter);
    check_shape(&document, "OriginalJob", &letter["original_job"]);
    check_shape(&document, "Failure", &letter["original_job"]["errors"][0]);
    let started = api
        .post("/v1/dead/redrive", json!({ "all": true, "canary": 1 }))
        .await;
    check_shape(
        &document,
        "Redrive",
        &serde_json::from_str(&started.text).unwrap(),
    );
    let redrives = api.get("/v1/dead/redrives").await.ok();
    check_shape(&document, "Redrive", &redrives["redrives"][0]);
    api.post("/v1/queues/q/pause", Value::Null).await.ok();
    let audit = api.get("/v1/audit").await.ok();
    check_shape(&document, "Audit", &audit);
    check_shape(&document, "AuditEntry", &audit["entries"][0]);
}

#[tokio::test]
async fn schedules_groups_and_runs_of_sweeps_are_written_as_they_are_described() {
    let (_folder, address) = crate::recovery::database();
    let config = crate::recovery::sweep(&address, crate::recovery::UNPROCESSED);
    let api = given_with(&format!(
        "{config}\n[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"q\"\n"
    ));
    let document = api.get("/openapi.json").await.ok();
    api.bury("q", "dead", "boom").await;
    let groups = api.get("/v1/dead/groups").await.ok();
    check_shape(&document, "DeadGroup", &groups["groups"][0]);
    check_shape(&document, "DeadSample", &groups["groups"][0]["sample"]);
    let triggered = api
        .post("/v1/schedules/daily/trigger", Value::Null)
        .await
        .ok();
    check_shape(&document, "ScheduleTriggered", &triggered);
    let paused = api
        .post("/v1/schedules/daily/pause", Value::Null)
        .await
        .ok();
    assert_eq!(paused, json!({ "name": "daily", "paused": true }));
    let known: backstop::ScheduleName = "gone".parse().unwrap();
    api.backstop.schedules().pause(&known).await.unwrap();
    let schedules = api.get("/v1/schedules").await.ok()["schedules"].clone();
    for schedule in schedules.as_array().unwrap() {
        check_shape(&document, "Schedule", schedule);
    }
    assert_eq!(
        (&schedules[0]["paused"], &schedules[1]["configured"]),
        (&json!(true), &json!(false))
    );
    check_shape(&document, "ScheduleMissed", &schedules[0]["missed"]);
    api.post("/v1/sweeps/changes/run", json!({})).await.ok();
    let sweeps = api.get("/v1/sweeps").await.ok();
    check_shape(&document, "Sweep", &sweeps["sweeps"]["changes"]);
    check_shape(
        &document,
        "SweepPastRun",
        &sweeps["sweeps"]["changes"]["runs"][0],
    );
    check_shape(
        &document,
        "Capabilities",
        &api.get("/v1/capabilities").await.ok(),
    );
}

#[tokio::test]
async fn texts_that_stand_for_something_say_what_they_can_be() {
    let document = given().get("/openapi.json").await.ok();
    let parameter = |path: &str, name: &str| {
        let parameters = document["paths"][path]["get"]["parameters"]
            .as_array()
            .unwrap();
        let schema = &parameters.iter().find(|one| one["name"] == name).unwrap()["schema"];
        // Or it is empty.
        schema.pointer("/anyOf/0").unwrap_or(schema).clone()
    };
    assert_eq!(
        parameter("/v1/jobs", "queue")["pattern"],
        "^[A-Za-z0-9._-]+$"
    );
    assert_eq!(
        parameter("/v1/jobs", "state")["enum"]
            .as_array()
            .unwrap()
            .len(),
        7
    );
    assert_eq!(parameter("/v1/jobs", "limit")["type"], "number");
    assert_eq!(parameter("/v1/jobs", "kind")["pattern"], r"^[^\x00]+$");
    assert_eq!(parameter("/v1/jobs", "cursor")["pattern"], "^[!-~]+$");
    let schema = |pointer: &str| document.pointer(&format!("/components/schemas/{pointer}"));
    let queues = schema("Lease/properties/queues").unwrap();
    assert_eq!(
        (&queues["minItems"], &queues["maxItems"]),
        (&json!(1), &json!(256)),
        "{queues}"
    );
    assert_eq!(
        schema("BulkAction/properties/action/enum"),
        Some(&json!(["retry", "cancel", "delete", "move"]))
    );
    assert!(schema("DeadSelection/oneOf").is_some());
    assert_eq!(
        parameter("/v1/kinds", "window")["enum"],
        json!(["5m", "1h", "24h", "7d"])
    );
    assert_eq!(
        parameter("/v1/dead", "fingerprint")["pattern"],
        "^[0-9a-fA-F]{16}$"
    );
    assert_eq!(parameter("/v1/streams/{s}/keys", "s")["maxLength"], 120);
}

#[tokio::test]
async fn what_a_change_of_dead_letters_takes_is_described_and_no_more() {
    let document = given().get("/openapi.json").await.ok();
    let schema = |method: &str, path: &str| {
        let body = &document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"];
        body["$ref"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(schema("delete", "/v1/dead"), "DeadSelection");
    assert_eq!(schema("post", "/v1/dead/requeue"), "DeadSelection");
    assert_eq!(schema("post", "/v1/dead/move"), "DeadMove");
    assert_eq!(schema("post", "/v1/dead/redrive"), "DeadRedrive");
    let fields = document["components"]["schemas"]["DeadSelection"]["properties"]
        .as_object()
        .unwrap();
    let fields: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        BTreeSet::from(["all", "ids", "matching", "oldest", "queue"])
    );
}
