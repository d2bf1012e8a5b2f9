//! The board: one row for the problems, one for each of the four systems, one for this program
//! itself.

use serde_json::{Value, json};

/// The width of Grafana's grid.
const COLUMNS: usize = 24;
const PANELS_PER_ROW: usize = 3;
/// How high a panel is.
const HEIGHT: usize = 8;

/// How the values of a panel are read.
#[derive(Clone, Copy)]
enum PanelUnit {
    Count,
    PerSecond,
    Seconds,
    Share,
}

impl PanelUnit {
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
struct DashboardPanel {
    title: &'static str,
    about: &'static str,
    unit: PanelUnit,
    queries: &'static [(&'static str, &'static str)],
}

const PROBLEMS: [DashboardPanel; 6] = [
    DashboardPanel {
        title: "Store answers",
        about: "1 while the store answers in time.",
        unit: PanelUnit::Count,
        queries: &[("backstop_store_up", "{{instance}}")],
    },
    DashboardPanel {
        title: "Findings of the doctor",
        about: "What falls short of the promise, and what somebody should know.",
        unit: PanelUnit::Count,
        queries: &[("max by (grade) (backstop_doctor_findings)", "{{grade}}")],
    },
    DashboardPanel {
        title: "Dead letters",
        about: "Jobs that were given up and wait for somebody.",
        unit: PanelUnit::Count,
        queries: &[(
            "max by (queue) (backstop_dead_letters{queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    DashboardPanel {
        title: "Breakers and gates",
        about: "1 while a service is left alone, or a kind is not started.",
        unit: PanelUnit::Count,
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
    DashboardPanel {
        title: "Oldest expired lease",
        about: "For how long the jobs of a vanished worker have not been taken over, and how long that may take.",
        unit: PanelUnit::Seconds,
        queries: &[
            ("max(backstop_expired_lease_seconds)", "not taken over for"),
            ("max(backstop_recovery_bound_seconds)", "bound"),
        ],
    },
    DashboardPanel {
        title: "Workers",
        about: "Live workers, and how many serve which queue.",
        unit: PanelUnit::Count,
        queries: &[
            ("max(backstop_workers)", "all"),
            (
                "max by (queue) (backstop_queue_workers{queue=~\"$queue\"})",
                "{{queue}}",
            ),
        ],
    },
];

const QUEUES: [DashboardPanel; 6] = [
    DashboardPanel {
        title: "Ready",
        about: "Jobs that wait for a worker.",
        unit: PanelUnit::Count,
        queries: &[(
            "max by (queue) (backstop_queue_jobs{state=\"ready\",queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    DashboardPanel {
        title: "Age of the next job",
        about: "For how long the job that is claimed next could have run.",
        unit: PanelUnit::Seconds,
        queries: &[(
            "max by (queue) (backstop_queue_oldest_ready_seconds{queue=~\"$queue\"})",
            "{{queue}}",
        )],
    },
    DashboardPanel {
        title: "In and out",
        about: "Jobs a second: taken in, done, given up.",
        unit: PanelUnit::PerSecond,
        queries: &[(
            "sum by (event) (max by (queue, event) (rate(backstop_queue_jobs_total{queue=~\"$queue\"}[5m])))",
            "{{event}}",
        )],
    },
    DashboardPanel {
        title: "Runs by outcome",
        about: "Runs that ended in the processes that are scraped.",
        unit: PanelUnit::PerSecond,
        queries: &[(
            "sum by (outcome) (rate(backstop_runs_total{queue=~\"$queue\"}[5m]))",
            "{{outcome}}",
        )],
    },
    DashboardPanel {
        title: "Time of a run",
        about: "Half, and 99 of a hundred, runs were shorter.",
        unit: PanelUnit::Seconds,
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
    DashboardPanel {
        title: "Retrying and scheduled",
        about: "Jobs that wait for their time.",
        unit: PanelUnit::Count,
        queries: &[(
            "sum by (state) (max by (queue, state) (backstop_queue_jobs{state=~\"retrying|scheduled\",queue=~\"$queue\"}))",
            "{{state}}",
        )],
    },
];

const STREAMS: [DashboardPanel; 3] = [
    DashboardPanel {
        title: "Held records",
        about: "Records that wait for one that is missing, or for their turn.",
        unit: PanelUnit::Count,
        queries: &[("max by (stream) (backstop_stream_records)", "{{stream}}")],
    },
    DashboardPanel {
        title: "Timeouts and overflows",
        about: "Per record that had to wait; up to 5 % and 0.1 % are usual.",
        unit: PanelUnit::Share,
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
    DashboardPanel {
        title: "Handled, missed, late",
        about: "What became of positions, a second.",
        unit: PanelUnit::PerSecond,
        queries: &[(
            "sum by (event) (max by (stream, event) (rate(backstop_stream_events_total{event=~\"handled|misses|late|duplicates|dead\"}[5m])))",
            "{{event}}",
        )],
    },
];

const RECOVERY: [DashboardPanel; 3] = [
    DashboardPanel {
        title: "From detection to rerun",
        about: "Of jobs whose worker vanished: 99 of a hundred were quicker.",
        unit: PanelUnit::Seconds,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, queue) (rate(backstop_detect_to_rerun_seconds_bucket[15m])))",
            "{{queue}}",
        )],
    },
    DashboardPanel {
        title: "Schedules",
        about: "Instants that are missing now, and that were missed for good within an hour.",
        unit: PanelUnit::Count,
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
    DashboardPanel {
        title: "Sweeps",
        about: "Rows the last run found lost, and what does not match.",
        unit: PanelUnit::Count,
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

const TABLES: [DashboardPanel; 3] = [
    DashboardPanel {
        title: "Rows due",
        about: "Rows of adopted tables that the last pass found due.",
        unit: PanelUnit::Count,
        queries: &[("max by (table) (backstop_table_due)", "{{table}}")],
    },
    DashboardPanel {
        title: "Rows expired",
        about: "Rows past their last try.",
        unit: PanelUnit::Count,
        queries: &[("max by (table) (backstop_table_expired)", "{{table}}")],
    },
    DashboardPanel {
        title: "Rows by outcome",
        about: "Rows a second.",
        unit: PanelUnit::PerSecond,
        queries: &[(
            "sum by (outcome) (rate(backstop_table_rows_total[5m]))",
            "{{outcome}}",
        )],
    },
];

const SERVER: [DashboardPanel; 3] = [
    DashboardPanel {
        title: "Requests",
        about: "Requests a second, by status.",
        unit: PanelUnit::PerSecond,
        queries: &[(
            "sum by (status) (rate(backstop_http_requests_total[5m]))",
            "{{status}}",
        )],
    },
    DashboardPanel {
        title: "Time of a request",
        about: "99 of a hundred requests of a route were quicker.",
        unit: PanelUnit::Seconds,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, route) (rate(backstop_http_request_seconds_bucket[5m])))",
            "{{route}}",
        )],
    },
    DashboardPanel {
        title: "Answers of the store",
        about: "How long the store took to answer a scrape.",
        unit: PanelUnit::Seconds,
        queries: &[(
            "max by (instance) (backstop_store_answer_seconds)",
            "{{instance}}",
        )],
    },
];

/// The board as Grafana imports it; the data source is asked for.
pub fn board() -> String {
    let rows: [(&str, &[DashboardPanel]); 6] = [
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
                (at % PANELS_PER_ROW) * (COLUMNS / PANELS_PER_ROW),
                y + at / PANELS_PER_ROW * HEIGHT,
            ));
        }
        y += of_row.len().div_ceil(PANELS_PER_ROW) * HEIGHT;
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

fn drawn(panel: &DashboardPanel, id: usize, x: usize, y: usize) -> Value {
    let targets = panel.queries.iter().zip('A'..).map(|((query, legend), reference)| {
        json!({ "refId": reference.to_string(), "datasource": source(), "expr": query, "legendFormat": legend })
    });
    json!({
        "id": id,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source(),
        "gridPos": { "x": x, "y": y, "w": COLUMNS / PANELS_PER_ROW, "h": HEIGHT },
        "fieldConfig": { "defaults": { "unit": panel.unit.word(), "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
        "targets": targets.collect::<Vec<_>>(),
    })
}
