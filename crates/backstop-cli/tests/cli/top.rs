//! `backstop top` where there is no terminal: one frame, or the figures.

use crate::place::{Place, lines};

fn place() -> Place {
    let place = Place::new();
    place.write("jobs.ndjson", &lines(12));
    place.json(["push", "emails", "--file", "jobs.ndjson"]);
    place.json(["push", "webhooks", "{}", "--kind", "deliver"]);
    place.run(["work", "webhooks", "--exec", "echo '410 Gone' >&2; exit 65", "--until-empty"]).exits(1);
    place
}

#[test]
fn a_frame_is_text_without_colours() {
    let place = place();
    let queues = place.run(["top", "--once"]).succeeded().stdout;
    for part in ["sqlite:backstop.db", "12 live", "1 dead", "QUEUE", "READY", "emails", "webhooks"] {
        assert!(queues.contains(part), "{part:?} is missing:\n{queues}");
    }
    assert!(!queues.contains('\x1b'), "{queues:?}");
    let dead = place.run(["top", "--once", "--view", "dead"]).succeeded().stdout;
    assert!(dead.contains("deliver") && dead.contains("410 Gone"), "{dead}");
}

#[test]
fn the_figures_are_there_for_programs() {
    let place = place();
    let figures = place.json(["top", "--once"]);
    let queues = figures["queues"].as_array().unwrap();
    assert_eq!(
        queues.iter().map(|queue| queue["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["emails", "webhooks"]
    );
    assert_eq!((&queues[0]["ready"], &queues[0]["rate"]["done"]), (&12.into(), &0.0.into()));
    assert!(queues[0]["oldest_ms"].as_i64().is_some_and(|age| age >= 0), "{figures}");
    assert_eq!((&figures["dead"]["total"], &figures["dead"]["groups"][0]["count"]), (&1.into(), &1.into()));
    for list in ["workers", "streams", "breakers"] {
        assert!(figures[list].is_array(), "{list}: {figures}");
    }
    assert_eq!(place.json(["top"])["queues"][0]["ready"], 12, "--json alone means once");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let place = place();
    place.run(["top"]).complains(2, &["no terminal", "try: backstop top --once"]);
    place.run(["top", "--once", "--interval", "1ms"]).complains(2, &["--interval must be from 200ms to 10m"]);
}
