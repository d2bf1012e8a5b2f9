use super::*;
use backstop_core::rate::RateLimit;
use backstop_core::{RetryPolicy, Span};

const FILE: &str = r#"
[store]
url = "sqlite:file.db"
durability = "relaxed"

[queues.detection_queue]
handler = { exec = ["python3", "detect.py"], timeout = "30s" }
concurrency = 3
prefetch = 0
retry = { kind = "steps", delays = ["10s", "20s"], max_attempts = 5 }
lease = "20s"
keep_done = "0s"
keep_done_max = 7
keep_cancelled = "2d"
dead = { keep = "90d" }

[queues.plain]
timeout = "5m"
"#;

fn file(text: &str) -> Result<Config, InvalidConfig> {
    resolve(
        Some(ConfigFile {
            path: "backstop.toml",
            text,
        }),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
}

fn store(url: &str) -> ConfigOverrides {
    ConfigOverrides {
        store: Some(StoreAddress::new(url)),
        ..ConfigOverrides::default()
    }
}

/// `text` is refused, and the message has all of `parts`.
fn check_refused(text: &str, parts: &[&str]) {
    let message = file(text).expect_err(text).to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in:\n{message}");
    }
}

#[test]
fn nothing_written_means_the_defaults() {
    let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
    assert_eq!(
        (config.store.as_written(), config.durability),
        ("sqlite:backstop.db", Durability::Full)
    );
    assert!(config.queues.is_empty());
    assert_eq!(file("").unwrap().store.as_written(), "sqlite:backstop.db");
}

#[test]
fn every_key_arrives() {
    let config = file(FILE).unwrap();
    assert_eq!(
        (config.store.as_written(), config.durability),
        ("sqlite:file.db", Durability::Relaxed)
    );
    let queue = &config.queues[&QueueName::new("detection_queue").unwrap()];
    let steps = br#"{"kind":"steps","delays":["10s","20s"],"max_attempts":5}"#;
    let settings = &queue.settings;
    assert!(
        format!("{:?}", queue.handler).contains(r#""python3", args: ["detect.py"]"#),
        "{:?}",
        queue.handler
    );
    assert_eq!((settings.concurrency, settings.prefetch), (3, Some(0)));
    assert_eq!(settings.retry, RetryPolicy::from_json(steps).unwrap());
    assert_eq!(
        (settings.timeout, settings.lease),
        (Some(Span::secs(30)), Span::secs(20))
    );
    assert_eq!(
        (settings.retention.done_for, settings.retention.done_max),
        (Span::ZERO, 7)
    );
    assert_eq!(
        (
            settings.retention.cancelled_for,
            settings.retention.dead_for
        ),
        (Span::days(2), Span::days(90))
    );
}

#[test]
fn what_an_entry_does_not_say_is_as_usual() {
    let config = file(FILE).unwrap();
    let queue = &config.queues[&QueueName::new("plain").unwrap()];
    let usual = QueueSettings::default();
    assert!(queue.handler.is_none());
    assert_eq!(queue.settings.timeout, Some(Span::minutes(5)));
    assert_eq!(
        (queue.settings.concurrency, queue.settings.lease),
        (usual.concurrency, usual.lease)
    );
    assert_eq!(
        (queue.settings.retention, queue.settings.retry.clone()),
        (usual.retention, usual.retry)
    );
}

#[test]
fn what_comes_later_wins() {
    let written = Some(ConfigFile {
        path: "f",
        text: FILE,
    });
    let none = ConfigOverrides::default;
    let url = |environment, flags| {
        resolve(written, environment, flags)
            .unwrap()
            .store
            .to_string()
    };
    assert_eq!(url(none(), none()), "sqlite:file.db");
    assert_eq!(url(store("sqlite:env.db"), none()), "sqlite:env.db");
    assert_eq!(url(store("sqlite:env.db"), store("memory:")), "memory:");
    let full = ConfigOverrides {
        durability: Some(Durability::Full),
        ..ConfigOverrides::default()
    };
    assert_eq!(
        resolve(written, full, none()).unwrap().durability,
        Durability::Full
    );
}

#[test]
fn the_environment_is_read_by_name_and_its_mistakes_are_named() {
    let environment = |store: &str, durability: &str| {
        let values = BTreeMap::from([
            (ENV_STORE, store.to_owned()),
            (ENV_DURABILITY, durability.to_owned()),
        ]);
        ConfigOverrides::from_environment(|name| values.get(name).cloned())
    };
    assert_eq!(environment("", "").unwrap(), ConfigOverrides::default());
    let both = ConfigOverrides {
        store: Some(StoreAddress::new("memory:")),
        durability: Some(Durability::Relaxed),
        ..ConfigOverrides::default()
    };
    assert_eq!(environment("memory:", "relaxed").unwrap(), both);
    let message = environment("", "often").unwrap_err().to_string();
    assert!(
        message.contains("BACKSTOP_DURABILITY") && message.contains("relaxed"),
        "{message}"
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_what_is_allowed() {
    check_refused(
        "[store]\npath = \"x\"\n",
        &["backstop.toml", ":2:1: ", "`path`", "`url`"],
    );
    check_refused(
        "\n\n[sstore]\n",
        &[":3:2: ", "`sstore`", "`store`", "`queues`"],
    );
    check_refused(
        "[queues.q]\nlease = \"15s\"\nconcurency = 8",
        &[":3:1: ", "`concurrency`"],
    );
    check_refused(
        "[queues.q]\nhandler = { exec = [\"a\"], time = \"1s\" }",
        &[":2:27: ", "`timeout`"],
    );
    check_refused(
        "[queues.q]\ndead = { for = \"1d\" }",
        &[":2:10: ", "`keep`"],
    );
}

#[test]
fn a_wrong_value_is_refused_with_its_place_and_what_to_write() {
    check_refused("[queues.q]\nlease = 15", &[":2:9: "]);
    check_refused(
        "[queues.q]\nlease = \"15\"",
        &[":2:9: ", "such as 500ms, 10s"],
    );
    check_refused(
        "[store]\ndurability = \"often\"",
        &[":2:14: ", "`full`", "`relaxed`"],
    );
    check_refused(
        "[queues.q]\nretry = { kind = \"magic\" }",
        &[":2:9: ", "kinds are exponential"],
    );
    check_refused("[queues.q\n", &[":1:"]);
}

#[test]
fn no_message_shows_the_stores_password() {
    for text in [
        "[store]\nurll = \"postgres://u:hunter2@h/db\"",
        "[store]\nurl = \"postgres://u:hunter2@h/db\" x",
        "[store]\ndurability = \"postgres://u:hunter2@h/db\"",
    ] {
        let message = file(text).expect_err(text).to_string();
        assert!(
            !message.contains("hunter2") && message.contains(":2:"),
            "{message}"
        );
    }
    let config = file("[store]\nurl = \"postgres://u:hunter2@h/db\"").unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn an_entry_that_cannot_work_is_refused() {
    check_refused("[queues.\"a b\"]", &["[queues.a b]", "A-Z a-z"]);
    check_refused(
        "[queues.q]\nhandler = { exec = [] }",
        &["[queues.q]", "`exec` is empty"],
    );
    check_refused(
        "[queues.q]\nlease = \"1ms\"",
        &["[queues.q]", "`lease` must be from"],
    );
    check_refused(
        "[queues.q]\nconcurrency = 0",
        &["`concurrency` must be from 1"],
    );
    check_refused(
        "[queues.q]\ntimeout = \"1s\"\nhandler = { exec = [\"a\"], timeout = \"2s\" }",
        &["keep one of them"],
    );
}

#[cfg(feature = "http")]
mod http {
    use super::*;

    fn handler(text: &str) -> String {
        let config = file(&format!("[queues.q]\n{text}")).unwrap();
        format!("{:?}", config.queues[&QueueName::new("q").unwrap()].handler)
    }

    #[test]
    fn a_web_service_is_a_handler_within_the_time_limit_of_its_queue() {
        let shown =
            handler("handler = { http = \"http://127.0.0.1:9000/detect\", timeout = \"7s\" }");
        assert!(
            shown.contains("http://127.0.0.1:9000/detect") && shown.contains("7000000"),
            "{shown}"
        );
        let shown = handler("timeout = \"8s\"\nhandler = { http = \"http://h/\" }");
        assert!(shown.contains("8000000"), "{shown}");
        let shown =
            handler("handler = { http = \"https://u:secret@h/?k=secret\", ca = \"ca.pem\" }");
        assert!(
            shown.contains("30000000") && shown.contains("ca.pem") && !shown.contains("secret"),
            "{shown}"
        );
        let shown =
            handler("handler = { http = \"http://169.254.1.1/\", allow_link_local = true }");
        assert!(shown.contains("Allowed"), "{shown}");
        let shown =
            handler("handler = { http = \"http://10.0.0.7/\", allow = [\"10.0.0.0/8\", \"::1\"] }");
        assert!(
            shown.contains("10.0.0.0") && shown.contains("::1"),
            "{shown}"
        );
    }

    #[test]
    fn a_handler_that_cannot_be_called_is_refused_by_its_key() {
        for (handler, parts) in [
            (
                "{ http = \"http://h/\", exec = [\"a\"] }",
                &["`exec` and `http`", "keep one of them"][..],
            ),
            ("{ }", &["neither `exec` nor `http`"]),
            ("{ timeout = \"1s\" }", &["neither `exec` nor `http`"]),
            ("{ http = \"\" }", &["`http`: this is not an address"]),
            ("{ http = \"127.0.0.1:9000\" }", &["`http`: "]),
            (
                "{ http = \"ftp://h/\" }",
                &["`http`: only http:// and https://"],
            ),
            (
                "{ http = \"http://169.254.169.254/\" }",
                &["`http`: 169.254.169.254", "allow_link_local"],
            ),
            (
                "{ http = \"http://h/\", ca = \"ca.pem\" }",
                &["`http`: `ca` is for https://"],
            ),
            (
                "{ http = \"http://h/\", allow = [] }",
                &["`http`: `allow` names no network"],
            ),
            (
                "{ http = \"http://h/\", allow = [\"h\"] }",
                &["`http`: `allow`: \"h\" is no network"],
            ),
            (
                "{ http = \"http://127.0.0.1/\", allow = [\"10.0.0.0/8\"] }",
                &["`http`: 127.0.0.1 is in none of the networks of `allow`"],
            ),
            (
                "{ exec = [\"a\"], allow = [\"::1\"] }",
                &["`allow`", "beside `exec`"],
            ),
            (
                "{ exec = [\"a\"], ca = \"ca.pem\" }",
                &["`ca`", "beside `exec`"],
            ),
            (
                "{ exec = [\"a\"], allow_link_local = true }",
                &["`allow_link_local`", "beside `exec`"],
            ),
        ] {
            check_refused(
                &format!("[queues.q]\nhandler = {handler}"),
                &[&["[queues.q]"], parts].concat(),
            );
        }
        check_refused(
            "[queues.q]\nhandler = { htp = \"http://h/\" }",
            &[":2:13: ", "`http`"],
        );
    }

    #[test]
    fn no_refusal_shows_a_services_password() {
        for handler in [
            "{ http = \"ftp://u:secret@h/\" }",
            "{ http = \"http://u:secret@h:99999/\" }",
            "{ htp = \"http://u:secret@h/\" }",
            "{ http = \"http://u:secret@169.254.1.1/\" }",
            "{ http = \"http://u:secret@h/\", exec = [\"a\"] }",
        ] {
            let message = file(&format!("[queues.q]\nhandler = {handler}"))
                .expect_err(handler)
                .to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}

const SCHEDULE: &str = r#"
[schedules.daily_digest]
cron = "30 8 * * *"
timezone = "Europe/London"
since = "2017-01-01T00:00:00Z"        # default: when the schedule was first registered
queue = "digests"
kind = "DailyDigest"
payload = { range = "daily", at = 2026-01-01, deep = [{ n = 1 }] }
missed = { policy = "all", max = 7, look_back = "7d", grace = "30m" }     # skip | one | all

[schedules.plain]
cron = "@hourly"
queue = "q"
"#;

#[test]
fn a_schedule_is_read_as_documented() {
    let config = file(SCHEDULE).unwrap();
    let schedule = &config.schedules[&ScheduleName::new("daily_digest").unwrap()];
    assert_eq!(
        (schedule.rule().as_str(), schedule.kind.as_str()),
        ("30 8 * * * Europe/London", "DailyDigest")
    );
    assert_eq!(schedule.since.unwrap().to_string(), "2017-01-01T00:00:00Z");
    assert_eq!(
        serde_json::Value::Object(schedule.payload.clone()),
        serde_json::json!({ "range": "daily", "at": "2026-01-01", "deep": [{ "n": 1 }] })
    );
    let usual = backstop_core::schedule::MissedSettings::default();
    assert_eq!(
        schedule.missed,
        backstop_core::schedule::MissedSettings {
            policy: backstop_core::schedule::MissedPolicy::All,
            ..usual
        }
    );
    let plain = &config.schedules[&ScheduleName::new("plain").unwrap()];
    assert_eq!(
        (plain.rule().as_str(), plain.kind.as_str()),
        ("@hourly UTC", "default")
    );
    assert_eq!((plain.missed, plain.since), (usual, None));
}

#[test]
fn a_schedule_that_cannot_be_is_refused_with_what_to_write() {
    let entry = |more: &str| format!("[schedules.s]\nqueue = \"q\"\n{more}\n");
    check_refused(
        &entry("cron = \"* * * * *\"\ncorn = 1"),
        &[":4:1: ", "unknown field `corn`"],
    );
    check_refused(
        &entry("missed = { polcy = 1 }\ncron = \"@daily\""),
        &[":3:", "unknown field `polcy`"],
    );
    check_refused(
        "[schedules.s]\ncron = \"@daily\"\n",
        &["missing field `queue`"],
    );
    check_refused(&entry(""), &["missing field `cron`"]);
    check_refused(
        &entry("cron = \"0 30 8 * * *\""),
        &["[schedules.s]", "`cron`", "6 fields; write five"],
    );
    check_refused(
        &entry("cron = \"61 8 * * *\""),
        &["[schedules.s]", "`cron`"],
    );
    check_refused(
        &entry("cron = \"@daily\"\ntimezone = \"Mars\""),
        &["`Mars` is not a time zone"],
    );
    check_refused(
        &entry("cron = \"@daily\"\nmissed = { grace = \"8d\" }"),
        &["missed.grace is 8d"],
    );
    check_refused(
        &entry("cron = \"@daily\"\nmissed = { policy = \"some\" }"),
        &[":4:", "`some`"],
    );
    check_refused(
        &entry("cron = \"@daily\"\nmissed = { max = 0 }"),
        &["missed.max is 0"],
    );
    check_refused(
        "[schedules.\"a b\"]\ncron = \"@daily\"\nqueue = \"q\"\n",
        &["not a schedule's name"],
    );
}

#[test]
fn a_rate_limit_arrives_and_one_that_cannot_work_is_refused() {
    let of = |text: &str| {
        let config = file(&format!("[queues.q]\nrate_limit = {text}\n")).unwrap();
        config.queues[&QueueName::new("q").unwrap()]
            .settings
            .rate_limit
            .unwrap()
    };
    let limit = RateLimit::new(21_600, Span::secs(60));
    assert_eq!(
        of(r#"{ count = 21600, per = "60s", over = "5m" }"#),
        limit.over(Span::minutes(5))
    );
    assert_eq!(
        of(r#"{ count = 21600, per = "60s", over = "1s", burst = 3 }"#),
        limit.over(Span::secs(1)).burst(3)
    );
    assert_eq!(of(r#"{ count = 21600, per = "60s" }"#).over, None);
    check_refused(
        "[queues.q]\nrate_limit = { count = 0, per = \"60s\" }",
        &["[queues.q]", "rate_limit", "`count`"],
    );
    check_refused(
        "[queues.q]\nrate_limit = { count = 1, per = \"60s\", each = 1 }",
        &["each", ":2:"],
    );
}

#[test]
fn telemetry_says_where_spans_go() {
    let config = file("[telemetry]\notlp = \"http://127.0.0.1:4318/\"\nservice = \"orders\"\nsample = 0.25\nheaders = { authorization = \"Bearer hunter2\" }").unwrap();
    let telemetry = &config.telemetry;
    assert_eq!(
        telemetry.otlp.as_deref(),
        Some("http://127.0.0.1:4318/v1/traces")
    );
    assert_eq!(
        (telemetry.service.as_deref(), telemetry.sample),
        (Some("orders"), Some(0.25))
    );
    assert!(
        !format!("{config:?}").contains("hunter2"),
        "a header is a secret"
    );
    assert_eq!(file("").unwrap().telemetry, TelemetryConfig::default());
    check_refused(
        "[telemetry]\notlp = \"127.0.0.1:4318\"",
        &["[telemetry]", "http://127.0.0.1:4318"],
    );
    check_refused(
        "[telemetry]\nsample = 2.0",
        &["[telemetry]", "from 0.0 to 1.0"],
    );
    check_refused("[telemetry]\nsampel = 1.0", &["sampel", ":2:"]);
}

#[test]
fn whoever_stops_a_worker_waits_as_long_as_it_says() {
    let grace = |text: &str| file(text).expect("it can be used").grace;
    assert_eq!(
        [grace(""), grace("grace = \"10m\"")],
        [Span::secs(30), Span::minutes(10)]
    );
    check_refused("grace = \"25h\"", &["`grace` is 25h", "\"1d\""]);
}
