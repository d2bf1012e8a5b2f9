use crate::place::{Place, ended, signal, wait_until};
use crate::serve::{HERE, serve};
use serde_json::{Value, json};

#[test]
fn a_breaker_opened_by_hand_stops_its_queue_until_it_is_reset() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\nbreaker = {}\n",
    );
    assert_eq!(place.json(["breaker", "list"]), json!({ "breakers": [] }));
    place.json(["breaker", "open", "q", "--why", "maintenance"]);
    place.json(["push", "q", "1", "--id", "a"]);
    let breaker = place.json(["breaker", "list"])["breakers"][0].take();
    assert_eq!(
        (&breaker["name"], &breaker["what"], &breaker["state"]),
        (&json!("q"), &json!("breaker"), &json!("open"))
    );
    assert_eq!(breaker["events"][0]["why"], "maintenance");
    let shown = place.run(["queue", "list"]).succeeded().stdout;
    assert!(shown.contains("q\tbreaker\t"), "{shown}");
    let shown = place.run(["top", "--once"]).succeeded().stdout;
    assert!(shown.contains("breaker"), "{shown}");
    let shown = place.run(["breaker", "list"]).succeeded().stdout;
    assert!(shown.contains("q\tbreaker\topen: jobs wait\t"), "{shown}");
    let why = place.json(["job", "why", "a"]);
    assert_eq!(why["gate"], "breaker_open");
    assert!(
        why["try"]
            .as_str()
            .unwrap()
            .contains("backstop breaker reset q"),
        "{why}"
    );
    let told = place.run(["doctor"]).stdout;
    assert!(
        told.contains("the breaker of queue q is open: maintenance"),
        "{told}"
    );
    place.json(["breaker", "reset", "q"]);
    assert_eq!(place.json(["job", "why", "a"])["gate"], "no_worker");
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(place.job("a")["state"], "done");
}

#[test]
fn a_breaker_that_is_not_there_cannot_be_reset() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    place.run(["breaker", "reset", "nosuch"]).complains(
        1,
        &[
            "there is no breaker or gate nosuch",
            "backstop breaker list",
        ],
    );
    place
        .run(["breaker", "open", "a b"])
        .complains(2, &["names no breaker"]);
}

#[test]
fn a_shut_gate_and_a_fine_one_are_told_apart_and_a_queue_nobody_knows_has_none() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    for name in ["q/Send", "q/Call"] {
        place.json(["breaker", "open", name]);
    }
    let shown = place.run(["queue", "list"]).succeeded().stdout;
    assert!(shown.contains("q\tgate\t"), "{shown}");
    place.json(["breaker", "reset", "q/Call"]);
    let shown = place.run(["breaker", "list"]).succeeded().stdout;
    assert!(shown.contains("q/Call\tgate\topen: jobs run\t"), "{shown}");
    assert!(shown.contains("q/Send\tgate\tshut: jobs wait\t"), "{shown}");
    let parts = [
        "there is no queue typo",
        "there are: q",
        "backstop queue list",
    ];
    place.run(["breaker", "open", "typo"]).complains(1, &parts);
    place
        .run(["breaker", "open", "typo/Send"])
        .complains(1, &parts);
    assert_eq!(
        place.json(["breaker", "list"])["breakers"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn who_pauses_a_queue_that_is_not_there_is_told() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    let answer = place.run(["queue", "pause", "typo"]).succeeded();
    assert!(
        answer
            .stderr
            .contains("there is no queue typo yet; it is paused when it comes"),
        "{answer:#?}"
    );
    let answer = place.run(["queue", "pause", "q"]).succeeded();
    assert!(!answer.stderr.contains("there is no queue"), "{answer:#?}");
}

#[test]
fn a_kind_whose_dead_letters_are_full_stops_and_says_why() {
    let place = Place::new();
    place.write("backstop.toml", "[queues.q]\nhandler = { exec = [\"sh\", \"-c\", \"exit 65\"] }\nconcurrency = 1\nprefetch = 0\ndead = { max = 2 }\n");
    for name in ["a", "b", "c", "d"] {
        place.json(["push", "q", "1", "--id", name, "--kind", "k"]);
    }
    let worker = place.start(["work", "q"]);
    wait_until("the gate is shut", || {
        place.json(["breaker", "list"])["breakers"][0]["shut"] == "full"
    });
    assert_eq!(place.count("q", "dead"), 2);
    assert_eq!(
        place.json(["breaker", "list"])["breakers"][0]["name"],
        "q/k"
    );
    let why = place.json(["job", "why", "d"]);
    assert_eq!(why["gate"], "gate_shut");
    assert!(
        why["why"]
            .as_str()
            .unwrap()
            .contains("dead letters are full (2 of 2)"),
        "{why}"
    );
    let told = place.run(["doctor"]).exits(1).stdout;
    assert!(
        told.contains("queue q has 2 dead letters of at most 2"),
        "{told}"
    );
    place.json(["dead", "delete", "--all", "--yes"]);
    wait_until("it goes on by itself", || place.count("q", "dead") == 2);
    signal(&worker, "TERM");
    let log = ended(worker).stderr;
    assert!(log.contains("WARN gate shut: q/k; its jobs wait"), "{log}");
}

#[test]
fn the_log_names_the_breaker_that_opens_and_closes_and_why() {
    let place = Place::new();
    let breaker =
        "breaker = { failure_threshold = 2, recovery_timeout = \"100ms\", success_threshold = 1 }";
    let retry = "retry = { kind = \"constant\", every = \"50ms\", max_attempts = 9 }";
    place.write(
        "backstop.toml",
        &format!("[queues.flaky]\nconcurrency = 1\nprefetch = 0\n{breaker}\n{retry}\n"),
    );
    place.json(["push", "flaky", "1"]);
    let line = "[ $BACKSTOP_ATTEMPT -gt 2 ]";
    let log = place
        .run(["work", "flaky", "--exec", line, "--until-empty"])
        .succeeded()
        .stderr;
    let told = |words: &str| {
        let line = log.lines().find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("{words:?} is missing: {log}"))
            .to_owned()
    };
    let open = told("WARN breaker open: flaky; its jobs wait");
    assert!(
        open.contains("cause=\"2 failures in a row\"")
            || open.contains("cause=2 failures in a row"),
        "{open}"
    );
    assert!(
        told("WARN breaker closed: flaky; its jobs run again").contains("1 probe succeeded"),
        "{log}"
    );
}

#[test]
fn the_servers_log_names_the_breakers_and_gates_of_workers_over_http() {
    let place = Place::new();
    let breaker =
        "breaker = { failure_threshold = 1, recovery_timeout = \"100ms\", success_threshold = 1 }";
    let retry = "retry = { kind = \"constant\", every = \"50ms\", max_attempts = 9 }";
    let gate = "dead = { gate = { deaths = 1, within = \"1m\" } }";
    place.write(
        "backstop.toml",
        &format!("[queues.flaky]\n{breaker}\n{retry}\n[queues.poison]\n{gate}\n"),
    );
    place.json(["push", "flaky", "1"]);
    place.json(["push", "poison", "1", "--kind", "k"]);
    let served = serve(&place, &HERE);
    let post = |path: &str, body: &Value| -> Value {
        let (status, text) = served.ask(&format!("POST {path}"), "", &body.to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let run = |queue: &str, outcome: &str| {
        let mut job = Value::Null;
        wait_until("a job to run", || {
            let asked = json!({ "queues": [queue], "worker": "w" });
            job = post("/v1/lease", &asked)["jobs"]
                .get(0)
                .cloned()
                .unwrap_or_default();
            job.is_object()
        });
        let end = json!({ "id": job["id"], "lease": job["lease"], "outcome": outcome });
        post("/v1/settle", &json!({ "settle": [end] }));
    };
    run("flaky", "failed");
    run("flaky", "done");
    run("poison", "dead");
    let log = served.stop();
    for words in [
        "WARN breaker open: flaky; its jobs wait",
        "WARN breaker closed: flaky; its jobs run again",
        "WARN gate shut: poison/k; its jobs wait",
    ] {
        assert!(log.contains(words), "{words:?} is missing: {log}");
    }
}

#[test]
fn settings_that_could_stick_are_refused() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nbreaker = { success_threshold = 4 }\n",
    );
    place
        .run(["queue", "list"])
        .complains(2, &["success_threshold", "half_open_max_calls"]);
    place.write("backstop.toml", "[queues.q]\nmax_size = 0\n");
    place.run(["queue", "list"]).complains(2, &["max_size"]);
    place.write("backstop.toml", "[queues.q]\noverflow = \"drop_oldest\"\n");
    place.run(["queue", "list"]).complains(2, &["max_size"]);
}

#[test]
fn secrets_are_hidden_in_lists_and_named_in_the_configuration() {
    let place = Place::new();
    place.json([
        "push",
        "q",
        r#"{"user":"ada","password":"hunter2","pin":1}"#,
        "--id",
        "a",
    ]);
    let listed = place.json(["job", "list"])["jobs"][0]["payload"].take();
    assert_eq!(
        listed,
        json!({ "user": "ada", "password": "[redacted]", "pin": 1 })
    );
    assert_eq!(
        place.job("a")["payload"]["password"],
        "hunter2",
        "one job is shown whole"
    );
    place.write("backstop.toml", "redact = [\"pin\"]\n");
    let listed = place.json(["job", "list"])["jobs"][0]["payload"].take();
    assert_eq!(
        listed,
        json!({ "user": "ada", "password": "hunter2", "pin": "[redacted]" })
    );
}
