use crate::place::Place;
use serde_json::json;

#[test]
fn a_queue_has_its_shape() {
    let place = Place::new();
    place.feed(b"1\n2\n", ["push", "emails", "-"]).succeeded();
    place.json(["push", "emails", "3", "--delay", "1h"]);
    let mut queue = place.json(["queue", "list"])["queues"][0].take();
    assert!(
        queue["next_ready_at"]
            .take()
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    let expected = json!({
        "name": "emails", "paused": false, "scheduled": 1, "ready": 2, "running": 0, "retrying": 0, "done": 0,
        "dead": 0, "cancelled": 0, "totals": { "enqueued": 3, "done": 0, "dead": 0, "cancelled": 0 },
        "next_ready_at": null, "max_size": null, "overflow": "reject", "dead_max": 10_000,
        "is_under_pressure": false,
    });
    assert_eq!(queue, expected);
    let text = place.run(["queue", "list"]).succeeded().stdout;
    assert!(
        text.starts_with("QUEUE\tRUNS") && text.contains("emails\tyes\t1\t2\t0"),
        "{text}"
    );
}

#[test]
fn a_paused_queue_keeps_its_jobs_until_it_is_resumed() {
    let place = Place::new();
    assert_eq!(
        place.json(["queue", "pause", "q"]),
        json!({ "name": "q", "paused": true })
    );
    place.json(["push", "q", "1", "--id", "a"]);
    let queues = place.json(["queue", "list"]);
    assert_eq!(queues["queues"][0]["paused"], true);
    let text = place.run(["queue", "list"]).succeeded().stdout;
    assert!(text.contains("\nq\tpaused\t0\t1\t"), "{text}");
    assert_eq!(place.json(["queue", "resume", "q"])["paused"], false);
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(place.job("a")["state"], "done");
}

#[test]
fn all_queues_are_paused_together_and_those_are_resumed() {
    let place = Place::new();
    for queue in ["a", "b"] {
        place.json(["push", queue, "1"]);
    }
    place.json(["queue", "pause", "b"]);
    assert_eq!(
        place.json(["queue", "pause", "--all"]),
        json!({ "count": 1, "queues": ["a"] })
    );
    assert_eq!(
        place.run(["queue", "resume", "--all"]).succeeded().stdout,
        "a\n"
    );
    let queues = place.json(["queue", "list"]);
    assert_eq!(
        [
            &queues["queues"][0]["paused"],
            &queues["queues"][1]["paused"]
        ],
        [false, true]
    );
    place.run(["queue", "pause"]).exits(2);
    place.run(["queue", "pause", "a", "--all"]).exits(2);
}

#[test]
fn clear_removes_what_waits_and_nothing_else() {
    let place = Place::new();
    place.json(["push", "q", "1", "--id", "gone"]);
    place
        .run(["work", "q", "--exec", "exit 65", "--until-empty"])
        .exits(1);
    place.feed(b"1\n2\n", ["push", "q", "-"]).succeeded();
    place.json(["push", "q", "3", "--delay", "1h"]);
    place.json(["push", "other", "4"]);
    place
        .run(["queue", "clear", "q"])
        .complains(2, &["3 jobs", "try: backstop queue clear q --yes"]);
    assert_eq!(place.count("q", "ready"), 2, "nothing was removed");
    assert_eq!(
        place.json(["queue", "clear", "q", "--yes"]),
        json!({ "count": 3 })
    );
    assert_eq!(
        (place.count("q", "dead"), place.count("other", "ready")),
        (1, 1)
    );
    assert_eq!(
        place
            .run(["queue", "clear", "q", "--yes"])
            .succeeded()
            .stdout,
        "0 jobs removed from q\n"
    );
}

#[test]
fn how_full_a_queue_is_stands_apart_from_whether_it_runs() {
    let place = Place::new();
    place.write("backstop.toml", "[queues.q]\nmax_size = 2\n");
    place.feed(b"1\n2\n", ["push", "q", "-"]).succeeded();
    let text = place.run(["queue", "list"]).succeeded().stdout;
    assert!(
        text.contains("\tROOM\n") && text.contains("\nq\tyes\t") && text.contains("\tfull\n"),
        "{text}"
    );
}
