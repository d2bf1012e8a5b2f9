use crate::place::Place;
use serde_json::json;

#[test]
fn a_token_is_made_listed_and_revoked_and_shown_once() {
    let place = Place::new();
    let made = place.json([
        "token",
        "create",
        "--scope",
        "work",
        "--scope",
        "push",
        "--scope",
        "push",
        "--name",
        "web",
        "--expires",
        "90d",
    ]);
    let (id, token) = (
        made["id"].as_str().unwrap(),
        made["token"].as_str().unwrap(),
    );
    assert_eq!(made.as_object().unwrap().len(), 2);
    assert!(
        token.starts_with("backstop_") && token.len() > 64,
        "{token}"
    );
    let answer = place.run(["token", "list", "--json"]).succeeded();
    assert!(!answer.stdout.contains(token), "it is shown once");
    let listed = &answer.json()["tokens"][0];
    assert_eq!(
        (&listed["id"], &listed["name"]),
        (&json!(id), &json!("web"))
    );
    assert_eq!(
        (&listed["scopes"], &listed["expired"]),
        (&json!(["push", "work"]), &json!(false))
    );
    assert!(
        place
            .run(["token", "list"])
            .succeeded()
            .stdout
            .contains("push, work")
    );
    assert_eq!(
        place.json(["token", "revoke", id]),
        json!({ "id": id, "revoked": true })
    );
    assert_eq!(place.json(["token", "list"]), json!({ "tokens": [] }));
    place
        .run(["token", "revoke", id])
        .complains(1, &["no token", "backstop token list"]);
}

#[test]
fn a_token_for_some_queues_says_which() {
    let place = Place::new();
    place.json(["token", "create", "--scope", "push", "--name", "everywhere"]);
    let args = [
        "--scope", "work", "--queue", "sms", "--queue", "emails", "--queue", "sms", "--name",
        "some",
    ];
    place.json(["token", "create"].into_iter().chain(args));
    let tokens = place.json(["token", "list"])["tokens"]
        .as_array()
        .unwrap()
        .clone();
    let queues =
        |name: &str| tokens.iter().find(|token| token["name"] == name).unwrap()["queues"].clone();
    assert_eq!(
        (queues("some"), queues("everywhere")),
        (json!(["emails", "sms"]), json!([]))
    );
    let told = place.run(["token", "list"]).succeeded().stdout;
    assert!(
        told.contains("QUEUES") && told.contains("emails, sms") && told.contains("all"),
        "{told}"
    );
    place
        .run(["token", "create", "--scope", "read", "--queue", "a b"])
        .complains(2, &["queue"]);
}

#[test]
fn the_file_of_the_store_does_not_hold_it() {
    let place = Place::new();
    let made = place.json(["token", "create", "--scope", "admin"]);
    let secret = made["token"]
        .as_str()
        .unwrap()
        .trim_start_matches("backstop_")
        .as_bytes();
    for name in ["backstop.db", "backstop.db-wal"] {
        let Ok(bytes) = std::fs::read(place.path(name)) else {
            continue;
        };
        assert!(
            !bytes.windows(secret.len()).any(|window| window == secret),
            "{name}"
        );
    }
}

#[test]
fn for_people_it_is_a_line_to_copy_and_a_note() {
    let answer = Place::new()
        .run(["token", "create", "--scope", "read"])
        .succeeded();
    assert!(
        answer.stdout.starts_with("backstop_") && answer.stdout.lines().count() == 1,
        "{answer:?}"
    );
    assert!(answer.stderr.contains("not shown again"), "{answer:?}");
}

#[test]
fn what_makes_no_sense_is_wrong_use() {
    let place = Place::new();
    place.run(["token", "create"]).complains(2, &["--scope"]);
    place
        .run(["token", "create", "--scope", "root"])
        .complains(2, &["push, work, read and admin"]);
    place
        .run(["token", "create", "--scope", "read", "--expires", "0s"])
        .complains(2, &["1s"]);
    place
        .run(["token", "create", "--scope", "read", "--name", "a\nb"])
        .complains(2, &["visible"]);
}
