use super::*;
use crate::telemetry::exported;
use backstop_testkit::servers::promtool;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What a series is, minute by minute: as promtool writes it, over forty minutes.
type Series = (&'static str, &'static str);

/// A store as it should be.
const HEALTHY: [Series; 26] = [
    ("backstop_store_up{instance=\"a\"}", "1+0x40"),
    ("backstop_doctor_findings{grade=\"bad\"}", "0+0x40"),
    ("backstop_doctor_findings{grade=\"warning\"}", "1+0x40"),
    ("backstop_doctor_failed", "0+0x20 1 0+0x19"),
    ("backstop_doctor_age_seconds", "30+60x40"),
    ("backstop_queue_jobs{queue=\"q\",state=\"ready\"}", "5+0x40"),
    ("backstop_queue_workers{queue=\"q\"}", "1+0x40"),
    ("backstop_queue_paused{queue=\"q\"}", "0+0x40"),
    ("backstop_queue_oldest_ready_seconds{queue=\"q\"}", "3+0x40"),
    (
        "backstop_queue_jobs_total{queue=\"q\",event=\"dead\"}",
        "100+0x40",
    ),
    ("backstop_dead_letters{queue=\"q\"}", "100+0x40"),
    ("backstop_dead_letters_max{queue=\"q\"}", "10000+0x40"),
    ("backstop_expired_lease_seconds", "2+0x40"),
    ("backstop_recovery_bound_seconds", "18+0x40"),
    ("backstop_schedule_unfired{schedule=\"s\"}", "0+0x40"),
    ("backstop_schedule_given_up{schedule=\"s\"}", "0+0x40"),
    ("backstop_sweep_last_enqueued{sweep=\"w\"}", "0+0x40"),
    ("backstop_sweep_last_failed{sweep=\"w\"}", "0+0x40"),
    (
        "backstop_sweep_last_unseen{sweep=\"w\"}",
        "0+0x20 1+0x5 0+0x14",
    ),
    (
        "backstop_reconcile_rows_without_jobs{sweep=\"w\"}",
        "0+0x40",
    ),
    (
        "backstop_table_last_failed{table=\"t\",instance=\"a\"}",
        "0+0x40",
    ),
    ("backstop_breaker_open{queue=\"q\"}", "0+0x40"),
    (
        "backstop_stream_events_total{stream=\"s\",event=\"added\"}",
        "0+100x40",
    ),
    (
        "backstop_stream_events_total{stream=\"s\",event=\"timeout\"}",
        "0+4x40",
    ),
    (
        "backstop_stream_events_total{stream=\"s\",event=\"circuit_breaker\"}",
        "0+0x40",
    ),
    ("backstop_stream_records{stream=\"s\"}", "3 5 4 2 6 3+0x36"),
];

/// What makes which alert fire: the series that stand in for the healthy ones.
const AILING: [(&str, &[Series]); 24] = [
    (
        "BackstopStoreDown",
        &[("backstop_store_up{instance=\"a\"}", "1+0x20 0+0x20")],
    ),
    (
        "BackstopNotScraped",
        &[("backstop_store_up{instance=\"a\"}", "1+0x5 _x35")],
    ),
    (
        "BackstopPromiseBroken",
        &[("backstop_doctor_findings{grade=\"bad\"}", "2+0x40")],
    ),
    (
        "BackstopDoctorFails",
        &[("backstop_doctor_failed", "0+0x20 1+0x20")],
    ),
    (
        "BackstopDoctorOld",
        &[("backstop_doctor_age_seconds", "0+120x40")],
    ),
    (
        "BackstopQueueNotServed",
        &[("backstop_queue_workers{queue=\"q\"}", "1+0x10 0+0x30")],
    ),
    (
        "BackstopQueueStuck",
        &[(
            "backstop_queue_oldest_ready_seconds{queue=\"q\"}",
            "0+60x40",
        )],
    ),
    (
        "BackstopDeadLettersGrowing",
        &[(
            "backstop_queue_jobs_total{queue=\"q\",event=\"dead\"}",
            "100+2x40",
        )],
    ),
    (
        "BackstopDeadLettersDeep",
        &[("backstop_dead_letters{queue=\"q\"}", "8001+0x40")],
    ),
    (
        "BackstopExpiredLeases",
        &[("backstop_expired_lease_seconds", "0+5x40")],
    ),
    (
        "BackstopRecoverySlow",
        &[
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"20\"}",
                "0+0x40",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"30\"}",
                "0+3x40",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"+Inf\"}",
                "0+3x40",
            ),
        ],
    ),
    (
        "BackstopRecoverySlow",
        &[
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"20\"}",
                "_x30 0+0x10",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"30\"}",
                "_x30 3+0x10",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"+Inf\"}",
                "_x30 3+0x10",
            ),
        ],
    ),
    (
        "BackstopScheduleUnfired",
        &[("backstop_schedule_unfired{schedule=\"s\"}", "1+0x40")],
    ),
    (
        "BackstopScheduleMissed",
        &[("backstop_schedule_given_up{schedule=\"s\"}", "_x20 2+0x20")],
    ),
    (
        "BackstopSweepFound",
        &[("backstop_sweep_last_enqueued{sweep=\"w\"}", "3+0x40")],
    ),
    (
        "BackstopSweepFailed",
        &[("backstop_sweep_last_failed{sweep=\"w\"}", "1+0x40")],
    ),
    (
        "BackstopSweepUnseen",
        &[("backstop_sweep_last_unseen{sweep=\"w\"}", "1+0x40")],
    ),
    (
        "BackstopTableFailing",
        &[
            (
                "backstop_table_last_failed{table=\"t\",instance=\"a\"}",
                "0+0x20 1+0x20",
            ),
            (
                "backstop_table_last_failed{table=\"t\",instance=\"b\"}",
                "_x20 1+0x20",
            ),
        ],
    ),
    (
        "BackstopReconcileUnmatched",
        &[(
            "backstop_reconcile_rows_without_jobs{sweep=\"w\"}",
            "1+0x40",
        )],
    ),
    (
        "BackstopBreakerOpen",
        &[("backstop_breaker_open{queue=\"q\"}", "1+0x40")],
    ),
    (
        "BackstopGateShut",
        &[("backstop_gate_shut{queue=\"q\",kind=\"k\"}", "1+0x40")],
    ),
    (
        "BackstopStreamTimeouts",
        &[(
            "backstop_stream_events_total{stream=\"s\",event=\"timeout\"}",
            "0+6x40",
        )],
    ),
    (
        "BackstopStreamOverflows",
        &[(
            "backstop_stream_events_total{stream=\"s\",event=\"circuit_breaker\"}",
            "0+1x40",
        )],
    ),
    (
        "BackstopStreamHeldGrowing",
        &[("backstop_stream_records{stream=\"s\"}", "3+2x40")],
    ),
];

/// What looks alike and is none of an alert's business.
const SILENT: [(&str, &[Series]); 6] = [
    (
        "BackstopTableFailing",
        &[
            (
                "backstop_table_last_failed{table=\"t\",instance=\"a\"}",
                "1+0x40",
            ),
            (
                "backstop_table_last_failed{table=\"t\",instance=\"b\"}",
                "0+0x40",
            ),
        ],
    ),
    (
        "BackstopRecoverySlow",
        &[
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"20\"}",
                "_x10 0+0x30",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"+Inf\"}",
                "_x10 3+0x30",
            ),
        ],
    ),
    (
        "BackstopQueueNotServed",
        &[
            ("backstop_queue_workers{queue=\"q\"}", "0+0x40"),
            ("backstop_queue_paused{queue=\"q\"}", "1+0x40"),
        ],
    ),
    (
        "BackstopQueueNotServed",
        &[
            ("backstop_queue_workers{queue=\"q\"}", "0+0x40"),
            ("backstop_queue_jobs{queue=\"q\",state=\"ready\"}", "0+0x40"),
        ],
    ),
    (
        "BackstopQueueStuck",
        &[
            (
                "backstop_queue_oldest_ready_seconds{queue=\"q\"}",
                "0+60x40",
            ),
            ("backstop_queue_paused{queue=\"q\"}", "1+0x40"),
        ],
    ),
    (
        "BackstopRecoverySlow",
        &[
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"20\"}",
                "0+3x40",
            ),
            (
                "backstop_detect_to_rerun_seconds_bucket{queue=\"q\",le=\"+Inf\"}",
                "0+3x40",
            ),
        ],
    ),
];

/// A test for promtool: with these series instead of the healthy ones, so many of an alert fire
/// after forty minutes.
fn case(text: &mut String, series: &[Series], alert: &str, fires: bool) {
    text.push_str("  - interval: 1m\n    input_series:\n");
    let healthy = HEALTHY
        .iter()
        .filter(|(name, _)| series.iter().all(|(other, _)| other != name));
    for (name, values) in healthy.chain(series) {
        let _ = writeln!(text, "      - series: '{name}'\n        values: '{values}'");
    }
    let selected = format!("ALERTS{{alertstate=\"firing\"{alert}}}");
    let _ = writeln!(
        text,
        "    promql_expr_test:\n      - expr: 'count({selected})'\n        eval_time: 40m"
    );
    if fires {
        text.push_str("        exp_samples:\n          - labels: '{}'\n            value: 1\n");
    }
}

fn named(alert: &str) -> String {
    format!(",alertname=\"{alert}\"")
}

/// Runs promtool over the rules and a file of tests.
fn promtool_accepts(args: &[&str], tests: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("backstop.yml"), RULES).unwrap();
    if let Some(tests) = tests {
        std::fs::write(folder.path().join("tests.yml"), tests).unwrap();
    }
    let output = promtool()
        .args(args)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (told, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{told}{complaint}");
}

const TESTS_HEAD: &str = "rule_files: [backstop.yml]\nevaluation_interval: 1m\ntests:\n";

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    promtool_accepts(&["check", "rules", "backstop.yml"], None);
}

#[test]
fn each_alert_fires_on_what_it_is_for() {
    let mut tests = TESTS_HEAD.to_owned();
    for (alert, series) in AILING {
        case(&mut tests, series, &named(alert), true);
    }
    promtool_accepts(&["test", "rules", "tests.yml"], Some(&tests));
}

#[test]
fn no_alert_fires_on_what_is_none_of_its_business() {
    let mut tests = TESTS_HEAD.to_owned();
    case(&mut tests, &[], "", false);
    for (alert, series) in SILENT {
        case(&mut tests, series, &named(alert), false);
    }
    // What one alert is for is silent for all others.
    for (alert, series) in AILING {
        if alert != "BackstopNotScraped" {
            case(
                &mut tests,
                series,
                &format!(",alertname!=\"{alert}\""),
                false,
            );
        }
    }
    promtool_accepts(&["test", "rules", "tests.yml"], Some(&tests));
}

#[test]
fn every_alert_is_tried_and_says_what_to_do() {
    let alerts: Vec<&str> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let tried: BTreeSet<&str> = AILING.iter().map(|(alert, _)| *alert).collect();
    assert_eq!(alerts.iter().copied().collect::<BTreeSet<_>>(), tried);
    for part in ["severity:", "summary:", "description:", "action:"] {
        let lines = RULES.lines().filter(|line| line.trim().starts_with(part));
        assert_eq!(lines.count(), alerts.len(), "{part}");
    }
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let named = words.filter(|word| word.starts_with("backstop_"));
    named
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[test]
fn rules_and_board_ask_only_for_what_is_exported() {
    let exported = exported();
    for name in names(RULES).union(&names(&board())) {
        assert!(
            exported.contains(name),
            "{name} is asked for, and nobody tells it"
        );
    }
}

#[test]
fn the_board_can_be_imported_and_asks_for_its_data_source() {
    let board: serde_json::Value = serde_json::from_str(&board()).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let rows: Vec<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|row| row["title"].as_str().unwrap())
        .collect();
    for system in ["queues", "streams", "lost", "tables"] {
        assert!(
            rows.iter().any(|row| row.to_lowercase().contains(system)),
            "{system}: {rows:?}"
        );
    }
    let ids: BTreeSet<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len(), "every panel has an id of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(
            panel["datasource"]["uid"], "${datasource}",
            "{}",
            panel["title"]
        );
        let queries = panel["targets"].as_array().unwrap();
        assert!(
            !queries.is_empty()
                && queries
                    .iter()
                    .all(|query| !query["expr"].as_str().unwrap().is_empty())
        );
    }
    assert_eq!(board["templating"]["list"][0]["type"], "datasource");
}

#[test]
fn promtool_reads_every_query_of_the_board() {
    let board: serde_json::Value = serde_json::from_str(&board()).unwrap();
    let mut rules = "groups:\n  - name: board\n    rules:\n".to_owned();
    let targets = board["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    for (at, target) in targets.enumerate() {
        let query = target["expr"]
            .as_str()
            .unwrap()
            .replace("$queue", ".*")
            .replace('\'', "''");
        let _ = writeln!(
            rules,
            "      - record: board:query:{at}\n        expr: '{query}'"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("board.yml"), rules).unwrap();
    let output = promtool()
        .args(["check", "rules", "board.yml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
