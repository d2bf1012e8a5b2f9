//! The board: one row for the problems, one for each of the four systems, one for this program
//! itself.

use serde_json::{Value, json};

/// The width of Grafana's grid.
const COLUMNS: usize = 24;
/// Panels beside each other.
const ABREAST: usize = 3;
/// How high a panel is.
const HEIGHT: usize = 8;

/// How the values of a panel are read.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    PerSecond,
    Seconds,
    Share,
}

impl Unit {
    const fn word(self) -> &'static str {
        match self {
            Self::Count => "short",
            Self::PerSecond => "ops",
            Self::Seconds => "s",
            Self::Share => "percentunit",
        }
    }
}

/// A panel: its title, what it tells, its unit, and its queries with their legends.
struct Panel {
    title: &'static str,
    about: &'static str,
    unit: Unit,
    queries: &'static [(&'static str, &'static str)],
}

const PROBLEMS: [Panel; 6] = [
    Panel {
        title: "Store answers",
        about: "1 while the store answers in time.",
        unit: Unit::Count,
        queries: &[("backstop_store_up", "{{instance}}")],
    },
    Panel {
        title: "Findings of the doctor",
        about: "What falls short of the promise, and what somebody should know.",
        unit: Unit::Count,
        queries: &[("max by (grade) (backstop_doctor_findings)", "{{grade}}")],
    },
    Panel {
        title: "Dead letters",
        about: "Jobs that were given up and wait for somebody.",
        unit: Unit::Count,
        queries: &[(
            "max by (queue) (backstop_dead_letters{queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    Panel {
        title: "Breakers and gates",
        about: "1 while a service is left alone, or a kind is not started.",
        unit: Unit::Count,
        queries: &[
            (
                "max by (queue) (backstop_breaker_open{queue=~\"$queue\"})",
                "breaker {{queue}}",
            ),
            (
                "max by (queue, kind) (backstop_gate_shut{queue=~\"$queue\"})",
                "gate {{queue}}/{{kind}}",
            ),
        ],
    },
    Panel {
        title: "Oldest expired lease",
        about: "For how long the jobs of a vanished worker have not been taken over, and how long that may take.",
        unit: Unit::Seconds,
        queries: &[
            ("max(backstop_expired_lease_seconds)", "not taken over for"),
            ("max(backstop_recovery_bound_seconds)", "bound"),
        ],
    },
    Panel {
        title: "Workers",
        about: "Live workers, and how many serve which queue.",
        unit: Unit::Count,
        queries: &[
            ("max(backstop_workers)", "all"),
            (
                "max by (queue) (backstop_queue_workers{queue=~\"$queue\"})",
                "{{queue}}",
            ),
        ],
    },
];

const QUEUES: [Panel; 6] = [
    Panel {
        title: "Ready",
        about: "Jobs that wait for a worker.",
        unit: Unit::Count,
        queries: &[(
            "max by (queue) (backstop_queue_jobs{state=\"ready\",queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    Panel {
        title: "Age of the next job",
        about: "For how long the job that is claimed next could have run.",
        unit: Unit::Seconds,
        queries: &[(
            "max by (queue) (backstop_queue_oldest_ready_seconds{queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    Panel {
        title: "In and out",
        about: "Jobs a second: taken in, done, given up.",
        unit: Unit::PerSecond,
        queries: &[(
            "sum by (event) (max by (queue, event) (rate(backstop_queue_jobs_total{queue=~\"$queue\"}[5m])))",
            "{{event}}",
        )],
    },
    Panel {
        title: "Runs by outcome",
        about: "Runs that ended in the processes that are scraped.",
        unit: Unit::PerSecond,
        queries: &[(
            "sum by (outcome) (rate(backstop_runs_total{queue=~\"$queue\"}[5m]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Time of a run",
        about: "Half, and 99 of a hundred, runs were shorter.",
        unit: Unit::Seconds,
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(backstop_run_seconds_bucket{queue=~\"$queue\"}[5m])))",
                "half",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(backstop_run_seconds_bucket{queue=~\"$queue\"}[5m])))",
                "99 %",
            ),
        ],
    },
    Panel {
        title: "Retrying and scheduled",
        about: "Jobs that wait for their time.",
        unit: Unit::Count,
        queries: &[(
            "sum by (state) (max by (queue, state) (backstop_queue_jobs{state=~\"retrying|scheduled\",queue=~\"$queue\"}))",
            "{{state}}",
        )],
    },
];

const STREAMS: [Panel; 3] = [
    Panel {
        title: "Held records",
        about: "Records that wait for one that is missing, or for their turn.",
        unit: Unit::Count,
        queries: &[("max by (stream) (backstop_stream_records)", "{{stream}}")],
    },
    Panel {
        title: "Timeouts and overflows",
        about: "Per record that had to wait; up to 5 % and 0.1 % are usual.",
        unit: Unit::Share,
        queries: &[
            (
                "max by (stream) (increase(backstop_stream_events_total{event=\"timeout\"}[30m])) / max by (stream) (increase(backstop_stream_events_total{event=\"added\"}[30m]))",
                "{{stream}} timeouts",
            ),
            (
                "max by (stream) (increase(backstop_stream_events_total{event=\"circuit_breaker\"}[30m])) / max by (stream) (increase(backstop_stream_events_total{event=\"added\"}[30m]))",
                "{{stream}} overflows",
            ),
        ],
    },
    Panel {
        title: "Handled, missed, late",
        about: "What became of positions, a second.",
        unit: Unit::PerSecond,
        queries: &[(
            "sum by (event) (max by (stream, event) (rate(backstop_stream_events_total{event=~\"handled|misses|late|duplicates|dead\"}[5m])))",
            "{{event}}",
        )],
    },
];

const RECOVERY: [Panel; 3] = [
    Panel {
        title: "From detection to rerun",
        about: "Of jobs whose worker vanished: 99 of a hundred were quicker.",
        unit: Unit::Seconds,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, queue) (rate(backstop_detect_to_rerun_seconds_bucket[15m])))",
            "{{queue}}",
        )],
    },
    Panel {
        title: "Schedules",
        about: "Instants that are missing now, and that were missed for good within an hour.",
        unit: Unit::Count,
        queries: &[
            (
                "max by (schedule) (backstop_schedule_unfired)",
                "{{schedule}} missing",
            ),
            (
                "max by (schedule) (backstop_schedule_given_up)",
                "{{schedule}} missed",
            ),
        ],
    },
    Panel {
        title: "Sweeps",
        about: "Rows the last run found lost, and what does not match.",
        unit: Unit::Count,
        queries: &[
            (
                "max by (sweep) (backstop_sweep_last_enqueued)",
                "{{sweep}} found",
            ),
            (
                "max by (sweep) (backstop_reconcile_rows_without_jobs)",
                "{{sweep}} rows without jobs",
            ),
            (
                "max by (sweep) (backstop_reconcile_jobs_without_rows)",
                "{{sweep}} jobs without rows",
            ),
        ],
    },
];

const TABLES: [Panel; 3] = [
    Panel {
        title: "Rows due",
        about: "Rows of adopted tables that the last pass found due.",
        unit: Unit::Count,
        queries: &[("max by (table) (backstop_table_due)", "{{table}}")],
    },
    Panel {
        title: "Rows expired",
        about: "Rows past their last try.",
        unit: Unit::Count,
        queries: &[("max by (table) (backstop_table_expired)", "{{table}}")],
    },
    Panel {
        title: "Rows by outcome",
        about: "Rows a second.",
        unit: Unit::PerSecond,
        queries: &[(
            "sum by (outcome) (rate(backstop_table_rows_total[5m]))",
            "{{outcome}}",
        )],
    },
];

const SERVER: [Panel; 3] = [
    Panel {
        title: "Requests",
        about: "Requests a second, by status.",
        unit: Unit::PerSecond,
        queries: &[(
            "sum by (status) (rate(backstop_http_requests_total[5m]))",
            "{{status}}",
        )],
    },
    Panel {
        title: "Time of a request",
        about: "99 of a hundred requests of a route were quicker.",
        unit: Unit::Seconds,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, route) (rate(backstop_http_request_seconds_bucket[5m])))",
            "{{route}}",
        )],
    },
    Panel {
        title: "Answers of the store",
        about: "How long the store took to answer a scrape.",
        unit: Unit::Seconds,
        queries: &[(
            "max by (instance) (backstop_store_answer_seconds)",
            "{{instance}}",
        )],
    },
];

/// The board as Grafana imports it; the data source is asked for.
pub fn board() -> String {
    let rows: [(&str, &[Panel]); 6] = [
        ("Problems", &PROBLEMS),
        ("Queues, retries and dead letters", &QUEUES),
        ("Ordered streams", &STREAMS),
        ("Nothing gets lost: recovery, schedules, sweeps", &RECOVERY),
        ("Adopted tables", &TABLES),
        ("This server", &SERVER),
    ];
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, of_row) in rows {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": title,
            "collapsed": false,
            "panels": [],
            "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
        }));
        y += 1;
        for (at, panel) in of_row.iter().enumerate() {
            let id = panels.len() + 1;
            panels.push(drawn(
                panel,
                id,
                (at % ABREAST) * (COLUMNS / ABREAST),
                y + at / ABREAST * HEIGHT,
            ));
        }
        y += of_row.len().div_ceil(ABREAST) * HEIGHT;
    }
    let board = json!({
        "title": "backstop",
        "uid": "backstop",
        "tags": ["backstop"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "timezone": "browser",
        "templating": { "list": variables() },
        "panels": panels,
    });
    format!("{board:#}\n")
}

/// What is chosen above the board: where the numbers come from, and which queues are looked at.
fn variables() -> Value {
    json!([
        { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
        {
            "name": "queue",
            "label": "Queue",
            "type": "query",
            "datasource": source(),
            "query": { "query": "label_values(backstop_queue_jobs, queue)", "refId": "queues" },
            "refresh": 2,
            "includeAll": true,
            "multi": true,
            "allValue": ".*",
            "current": { "text": "All", "value": "$__all" },
        },
    ])
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn drawn(panel: &Panel, id: usize, x: usize, y: usize) -> Value {
    let targets = panel.queries.iter().zip('A'..).map(|((query, legend), reference)| {
        json!({ "refId": reference.to_string(), "datasource": source(), "expr": query, "legendFormat": legend })
    });
    json!({
        "id": id,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source(),
        "gridPos": { "x": x, "y": y, "w": COLUMNS / ABREAST, "h": HEIGHT },
        "fieldConfig": { "defaults": { "unit": panel.unit.word(), "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
        "targets": targets.collect::<Vec<_>>(),
    })
}
