use crate::place::{Place, ended, json_args, signal, wait_until};
use crate::stores::on_every_store;
use backstop::{Span, Time};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

on_every_store! {
    missing_runs_are_listed_and_nothing_is_changed,
    missing_runs_are_made_up_once_by_whoever_works,
    what_becomes_of_missing_runs_is_told_and_the_list_agrees,
    a_paused_schedule_skips_and_a_triggered_one_runs,
    workers_that_are_killed_while_they_fire_leave_nothing_out_and_nothing_twice,
}

const DIGESTS: &str = r#"
[schedules.weekly_digest]
cron = "30 8 * * 6"
timezone = "Europe/London"
since = "2017-01-01T00:00:00Z"
queue = "digests"
missed = { policy = "all", max = 1, look_back = "7d", grace = "30m" }

[schedules.daily_digest]
cron = "30 8 * * *"
timezone = "Europe/London"
since = "2017-01-01T00:00:00Z"
queue = "digests"
kind = "DailyDigest"
payload = { range = "daily" }
missed = { policy = "skip", look_back = "7d", grace = "30m" }
"#;

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Time::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// A schedule for every minute since so many minutes ago. Its handler writes a payload at once:
/// lines of several workers do not mix.
fn configure_minutely(place: &Place, minutes: i64, missed: &str) {
    let since = now().before(Span::minutes(minutes));
    place.write(
        "backstop.toml",
        &format!(
            "[queues.q]\nhandler = {{ exec = [\"sh\", \"-c\", 'echo \"$(cat)\" >> ran'] }}\nconcurrency = 1\n\
             [schedules.tick]\ncron = \"* * * * *\"\nsince = \"{since}\"\nqueue = \"q\"\npayload = {{ n = 1 }}\nmissed = {{ {missed} }}\n"
        ),
    );
}

fn runs(place: &Place) -> Vec<Value> {
    place.json(["schedule", "runs", "tick", "--limit", "1000"])["runs"]
        .as_array()
        .unwrap()
        .clone()
}

/// The instants of the jobs that ran, in order.
fn ran(place: &Place) -> Vec<String> {
    let text = place.read("ran");
    let payloads = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut instants: Vec<String> = payloads
        .map(|payload| payload["instant"].as_str().unwrap().to_owned())
        .collect();
    instants.sort();
    instants
}

fn missing_runs_are_listed_and_nothing_is_changed(place: &Place) {
    place.write("backstop.toml", DIGESTS);
    let line = |schedule: &str, day: &str| {
        format!(r#"{{"schedule":"{schedule}","instant":"2026-{day}T08:30:00Z"}}"#)
    };
    let args = ["schedule", "missed", "--at", "2026-11-16T09:00:00Z"];
    let expected = [
        line("daily_digest", "11-10"),
        line("daily_digest", "11-11"),
        line("daily_digest", "11-12"),
        line("daily_digest", "11-13"),
        line("daily_digest", "11-14"),
        line("weekly_digest", "11-14"),
        line("daily_digest", "11-15"),
    ];
    for _ in 0..2 {
        let told = place.run(json_args(args)).succeeded().stdout;
        assert_eq!(told, format!("{{\"missed\":[{}]}}\n", expected.join(",")));
    }
    let later = place.json([
        "schedule",
        "missed",
        "weekly_digest",
        "daily_digest",
        "--at",
        "2026-11-16T09:00:01Z",
    ]);
    assert_eq!(later["missed"].as_array().unwrap().len(), 8);
    let summer = place.json([
        "schedule",
        "missed",
        "weekly_digest",
        "--at",
        "2026-06-29T09:00:01+01:00",
    ]);
    assert_eq!(
        summer["missed"],
        json!([{ "schedule": "weekly_digest", "instant": "2026-06-27T07:30:00Z" }])
    );
    let table = place.run(args).succeeded().stdout;
    assert!(
        table.starts_with(
            "SCHEDULE\tINSTANT\tDUE\tWHAT BECOMES OF IT\ndaily_digest\t2026-11-10T08:30:00Z\t6d"
        ),
        "{table}"
    );
    assert_eq!(
        place.json(["schedule", "runs", "daily_digest"])["runs"],
        json!([])
    );
}

fn missing_runs_are_made_up_once_by_whoever_works(place: &Place) {
    configure_minutely(
        place,
        10,
        "policy = \"all\", max = 3, look_back = \"1h\", grace = \"2m\"",
    );
    let missed = place.json(["schedule", "missed"])["missed"]
        .as_array()
        .unwrap()
        .len();
    assert!((7..=9).contains(&missed), "{missed}");
    let listed = place.json(["schedule", "list"])["schedules"][0].take();
    assert_eq!(
        (&listed["name"], &listed["paused"]),
        (&json!("tick"), &json!(false))
    );
    assert!(
        listed["missing"].as_u64().unwrap() >= 7 && listed["next"].is_string(),
        "{listed}"
    );
    // Three at once, and then one more.
    let workers: Vec<_> = (0..3)
        .map(|_| place.start(["work", "--until-empty"]))
        .collect();
    for worker in workers {
        ended(worker).succeeded();
    }
    let until = now().to_string();
    place.run(["work", "--until-empty"]).succeeded();
    let (mut runs, mut ran) = (runs(place), ran(place));
    // What became due since then may be on its way.
    runs.retain(|run| run["instant"].as_str().unwrap() < until.as_str());
    ran.retain(|instant| instant.as_str() < until.as_str());
    let of = |what: &str| runs.iter().filter(|run| run["what"] == what).count();
    // One that was at the end of its grace may have come in just behind it.
    assert!((3..=4).contains(&of("made_up")), "{runs:#?}");
    assert!(of("missed") >= 4 && of("due") == 0, "{runs:#?}");
    let mut fired: Vec<&str> = runs
        .iter()
        .filter(|run| run["job"].is_string())
        .map(|run| run["instant"].as_str().unwrap())
        .collect();
    fired.reverse();
    assert_eq!(ran, fired, "each ran once");
    assert!(
        runs.iter()
            .filter(|run| run["what"] == "missed")
            .all(|run| run["why"] == "over max")
    );
    let job = place.job(
        runs.iter().find(|run| run["what"] == "made_up").unwrap()["job"]
            .as_str()
            .unwrap(),
    );
    assert_eq!(
        (&job["state"], &job["payload"]["n"]),
        (&json!("done"), &json!(1))
    );
    let still = place.json(["schedule", "missed"])["missed"]
        .as_array()
        .unwrap()
        .clone();
    let mut given_up: Vec<&str> = runs
        .iter()
        .filter(|run| run["what"] == "missed")
        .map(|run| run["instant"].as_str().unwrap())
        .collect();
    given_up.reverse();
    let still: Vec<&str> = still
        .iter()
        .map(|missed| missed["instant"].as_str().unwrap())
        .collect();
    assert_eq!(still, given_up, "what was given up is still missing");
    let listed = place.json(["schedule", "list"])["schedules"][0].take();
    // A minute may have passed meanwhile.
    assert!(
        listed["last"]["instant"].as_str().unwrap() >= *fired.last().unwrap(),
        "{listed}"
    );
}

fn what_becomes_of_missing_runs_is_told_and_the_list_agrees(place: &Place) {
    configure_minutely(
        place,
        25,
        "policy = \"all\", max = 2, look_back = \"1h\", grace = \"5m\"",
    );
    let told = place.run(["schedule", "missed"]).succeeded();
    let of = |text: &str, what: &str| text.lines().filter(|line| line.ends_with(what)).count();
    assert_eq!(of(&told.stdout, "\tto be made up"), 2, "{told:#?}");
    assert!(
        of(&told.stdout, "\tto be given up: over max") >= 16,
        "{told:#?}"
    );
    assert!(
        told.stderr.contains("what is still to be done"),
        "{told:#?}"
    );
    place.run(["work", "--until-empty"]).succeeded();
    let told = place.run(["schedule", "missed"]).succeeded();
    let given_up = of(&told.stdout, "\tgiven up: over max");
    assert!(
        given_up >= 16 && given_up + 1 == told.stdout.lines().count(),
        "{told:#?}"
    );
    assert!(!told.stderr.contains("to be done"), "{told:#?}");
    let listed = place.run(["schedule", "list"]).succeeded().stdout;
    assert!(
        listed.contains(&format!("\t0 and {given_up} given up\n")),
        "{listed}"
    );
}

fn a_paused_schedule_skips_and_a_triggered_one_runs(place: &Place) {
    configure_minutely(
        place,
        0,
        "policy = \"all\", look_back = \"1h\", grace = \"2m\"",
    );
    assert_eq!(
        place.json(["schedule", "pause", "tick"]),
        json!({ "name": "tick", "paused": true })
    );
    let told = place.run(["schedule", "pause", "tick"]).succeeded().stdout;
    assert!(told.contains("was paused already"), "{told}");
    let listed = place.json(["schedule", "list"])["schedules"][0].take();
    assert_eq!(
        (&listed["paused"], &listed["next"]),
        (&json!(true), &Value::Null)
    );
    let triggered = place.json(["schedule", "trigger", "tick"]);
    place.run(["work", "--until-empty"]).succeeded();
    assert_eq!(
        place.job(triggered["job"].as_str().unwrap())["state"],
        "done"
    );
    let by_hand = runs(place)
        .into_iter()
        .find(|run| run["what"] == "triggered")
        .unwrap();
    assert_eq!(
        (&by_hand["job"], &by_hand["instant"]),
        (&triggered["job"], &triggered["instant"])
    );
    assert_eq!(
        place.json(["schedule", "resume", "tick"]),
        json!({ "name": "tick", "paused": false })
    );
    assert_eq!(
        place.json(["schedule", "list"])["schedules"][0]["paused"],
        json!(false)
    );
    let table = place.run(["schedule", "list"]).succeeded().stdout;
    assert!(table.starts_with("SCHEDULE\tCRON\tTIME ZONE"), "{table}");
    let table = place.run(["schedule", "runs", "tick"]).succeeded().stdout;
    assert!(table.contains("triggered"), "{table}");
}

fn workers_that_are_killed_while_they_fire_leave_nothing_out_and_nothing_twice(place: &Place) {
    configure_minutely(
        place,
        300,
        "policy = \"all\", max = 1000, look_back = \"1d\", grace = \"1m\"",
    );
    for wait_ms in [30, 80, 150, 220] {
        let mut workers: Vec<_> = (0..2).map(|_| place.start(["work"])).collect();
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
    }
    let until = now();
    place
        .run([
            "work",
            "q",
            "--exec",
            "exit 0",
            "--until-empty",
            "--lease",
            "1s",
        ])
        .succeeded();
    let mut runs = runs(place);
    // What became due since then may be on its way, and what became due shortly before may be in
    // the hands of one that was killed.
    let left_to_others = Span::secs(5);
    let instant = |run: &Value| run["instant"].as_str().unwrap().parse::<Time>().unwrap();
    runs.retain(|run| instant(run) < until.before(left_to_others));
    assert!((299..=302).contains(&runs.len()), "{}", runs.len());
    let mut instants: Vec<Time> = runs.iter().map(instant).collect();
    instants.sort_unstable();
    assert!(
        instants
            .windows(2)
            .all(|pair| pair[1].since(pair[0]) == Span::minutes(1)),
        "{instants:?}"
    );
    assert!(
        runs.iter().all(|run| run["job"].is_string()),
        "each has its job"
    );
    let others = place.count("q", "done") - runs.len() as u64;
    assert!(others <= 2, "{others} jobs of no instant");
}

#[test]
fn a_worker_with_nothing_but_schedules_fires_them() {
    let place = Place::new();
    let since = now().before(Span::minutes(5));
    place.write(
        "backstop.toml",
        &format!(
            "[schedules.tick]\ncron = \"* * * * *\"\nsince = \"{since}\"\nqueue = \"elsewhere\"\n"
        ),
    );
    let worker = place.start(["work"]);
    wait_until("late runs are in their queue", || {
        place.count("elsewhere", "ready") >= 5
    });
    signal(&worker, "TERM");
    let answer = ended(worker).succeeded();
    assert!(answer.stderr.contains("fires tick"), "{answer:#?}");
}

#[test]
fn a_schedule_nobody_knows_is_named_with_what_to_do() {
    let place = Place::new();
    place.write("backstop.toml", DIGESTS);
    for command in ["trigger", "pause", "resume", "runs", "missed"] {
        place
            .run(["schedule", command, "nosuch"])
            .complains(2, &["there is no schedule nosuch", "[schedules.nosuch]"]);
    }
    place
        .run(["schedule", "missed", "--at", "noon"])
        .complains(2, &["not a time"]);
    place.write(
        "backstop.toml",
        "[schedules.s]\ncron = \"0 30 8 * * *\"\nqueue = \"q\"\n",
    );
    place
        .run(["schedule", "list"])
        .complains(2, &["[schedules.s]", "write five"]);
    place.write(
        "backstop.toml",
        "[schedules.s]\ncron = \"@daily\"\nqueu = \"q\"\n",
    );
    place
        .run(["schedule", "list"])
        .complains(2, &[":3:1: ", "unknown field `queu`"]);
}

#[test]
fn what_is_no_longer_configured_is_still_shown() {
    let place = Place::new();
    place.write("backstop.toml", DIGESTS);
    place.json(["schedule", "pause", "daily_digest"]);
    place.write("backstop.toml", "");
    let listed = place.json(["schedule", "list"])["schedules"][0].take();
    assert_eq!(
        (&listed["name"], &listed["configured"], &listed["paused"]),
        (&json!("daily_digest"), &json!(false), &json!(true))
    );
    place.json(["schedule", "resume", "daily_digest"]);
}

#[test]
fn the_help_teaches() {
    let place = Place::new();
    for command in ["list", "runs", "missed", "trigger", "pause", "resume"] {
        let help = place
            .run(["schedule", command, "--help"])
            .succeeded()
            .stdout;
        assert!(help.contains("Examples:"), "{command}");
    }
}

#[test]
fn the_ledgers_of_all_schedules_are_one_list() {
    let place = Place::new();
    let schedule =
        |name: &str| format!("[schedules.{name}]\ncron = \"30 8 * * *\"\nqueue = \"{name}\"\n");
    place.write("backstop.toml", &(schedule("one") + &schedule("two")));
    for name in ["one", "two"] {
        place.json(["schedule", "trigger", name]);
    }
    let told = place.run(["schedule", "runs"]).succeeded().stdout;
    assert!(
        told.starts_with("SCHEDULE\tINSTANT") && told.contains("one\t") && told.contains("two\t"),
        "{told}"
    );
    let ledgers = place.json(["schedule", "runs"])["schedules"].take();
    let names: Vec<_> = ledgers
        .as_array()
        .unwrap()
        .iter()
        .map(|ledger| ledger["schedule"].clone())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(ledgers[0]["runs"][0]["what"], "triggered");
}
