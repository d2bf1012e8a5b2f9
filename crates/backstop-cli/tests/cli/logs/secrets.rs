//! Secrets planted wherever one can be, and looked for in everything that is said.

use crate::place::{Answer, Place};
use crate::serve::{HERE, Served, served};
use backstop_testkit::servers::postgres;
use serde_json::Value;
use std::process::Stdio;

/// What all of them begin with.
const CANARY: &str = "canary";

const CONFIG: &str = r#"
[server]
origins = ["https://jobs.example.org"]

[queues.mail]
handler = { exec = ["sh", "-c", "echo 'at main, token: canary-stack, tried canary-store' >&2; echo 'login failed, password=canary-error' >&2; exit 65"] }

[queues.web]
handler = { http = "http://ada:canary-login@127.0.0.1:1/hook?key=canary-parameter" }
retry = { kind = "constant", every = "10ms", max_attempts = 1 }

[streams.s]
step = "1m"
"#;

/// Databases of a user's that cannot be reached, and what a collector wants: passwords all the
/// same.
const ELSEWHERE: &str = r#"
[sweeps.lost]
url = "postgres://ada:canary-sweep@127.0.0.1:1/app?password=canary-parameter"
query = "SELECT id FROM rows WHERE at <= :cutoff"
queue = "mail"
unique_key = "row:{id}"

[tables.backlog]
url = "mysql://ada:canary-table@127.0.0.1:1/app"
table = "BACKLOG"

[schedules.daily]
cron = "30 8 * * *"
queue = "mail"
payload = { password = "canary-schedule" }

[telemetry]
otlp = "http://127.0.0.1:1"
headers = { x-api-key = "canary-header" }
"#;

/// Commands that list something; what shows one payload whole is asked for by name, and is not
/// here.
const LISTS: [&str; 17] = [
    "job list",
    "job list --all",
    "job why mail-1",
    "job why web-1",
    "job overlaps",
    "dead stats",
    "dead groups",
    "dead list",
    "dead audit",
    "dead redrive --list",
    "queue list",
    "breaker list",
    "stream list",
    "stream show s k",
    "token list",
    "config check",
    "top --once --interval 200ms",
];

/// Pages and answers for whoever may only read.
const READ: [&str; 35] = [
    "/",
    "/queues",
    "/queues/mail",
    "/queues/web",
    "/jobs",
    "/jobs/mail-1",
    "/jobs/web-1",
    "/dead",
    "/dead?view=letters",
    "/dead/mail-1",
    "/dead/web-1",
    "/workers",
    "/breakers",
    "/kinds",
    "/streams/s",
    "/streams/s/keys/k",
    "/metrics",
    "/v1/jobs",
    "/v1/jobs/mail-1",
    "/v1/dead",
    "/v1/queues",
    "/v1/streams/s/keys/k",
    "/schedules",
    "/schedules/daily",
    "/sweeps",
    "/sweeps/lost",
    "/tables",
    "/policy",
    "/v1/schedules",
    "/v1/sweeps",
    "/v1/tables",
    "/v1/breakers",
    "/v1/dead/groups",
    "/v1/jobs/mail-1/why",
    "/v1/capabilities",
];

/// Fails if it says any of them.
fn check(what: &str, text: &str) {
    let found = text.lines().find(|line| line.contains(CANARY));
    assert!(found.is_none(), "{what} says {found:?}");
}

fn check_answer(what: &str, answer: &Answer) {
    check(what, &answer.stdout);
    check(what, &answer.stderr);
}

/// A store with a password, where jobs with secrets died of errors with secrets.
fn given() -> Place {
    let place = Place::at(
        postgres()
            .fresh_url()
            .replace("backstop@", "backstop:canary-store@"),
    );
    place.write("backstop.toml", CONFIG);
    let payload = r#"{"to":"ada","password":"canary-payload"}"#;
    for (queue, id) in [("mail", "mail-1"), ("web", "web-1")] {
        check_answer(
            "push",
            &place
                .run(["push", queue, payload, "--id", id, "-vv"])
                .succeeded(),
        );
    }
    let record = [
        "stream",
        "push",
        "s",
        payload,
        "--key",
        "k",
        "--position",
        "60000",
        "-vv",
    ];
    check_answer("stream push", &place.run(record).succeeded());
    place
}

#[test]
fn a_secret_is_in_no_log_and_in_no_list() {
    let place = given();
    for format in ["text", "json"] {
        let work = [
            "--log-format",
            format,
            "work",
            "mail",
            "web",
            "--until-empty",
            "-vv",
        ];
        let answer = place.run(work).exits(i32::from(format == "text"));
        check_answer("work", &answer);
    }
    let dead = place.json(["dead", "list"]);
    assert_eq!(
        dead["dead"].as_array().map(Vec::len),
        Some(2),
        "both died: {dead}"
    );
    assert!(dead.to_string().contains("[redacted]"), "{dead}");
    for line in LISTS {
        for more in ["-vv", "--json"] {
            let answer = place.run(line.split(' ').chain([more]));
            assert_eq!(answer.code, Some(0), "{line}: {answer:#?}");
            check_answer(line, &answer);
        }
    }
    for more in ["-vv", "--json"] {
        // The server of the tests does not wait for the disk, and the doctor says that this falls
        // short.
        check_answer("doctor", &place.run(["doctor", more]).exits(1));
    }
}

/// A server that says all it can into a file.
fn serving(place: &Place) -> Served {
    let log = std::fs::File::create(place.path("log")).unwrap();
    let mut command = place.command(["serve", "--json", "-vv"].iter().chain(&HERE));
    served(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap())
}

#[test]
fn a_secret_is_on_no_page_and_in_no_answer() {
    let place = given();
    let bearer = |scope: &str| {
        let made: Value = place.json(["token", "create", "--scope", scope]);
        format!(
            "Authorization: Bearer {}\r\n",
            made["token"].as_str().unwrap()
        )
    };
    let (reader, admin) = (bearer("read"), bearer("admin"));
    place.run(["work", "mail", "web", "--until-empty"]).exits(1);
    place.write("backstop.toml", &format!("{CONFIG}{ELSEWHERE}"));
    let served = serving(&place);
    // Who did what is for those who could have done it, and says no secret to them either.
    let audit = ["/audit", "/v1/audit"].map(|path| (path, &admin));
    for (path, bearer) in READ.map(|path| (path, &reader)).into_iter().chain(audit) {
        let (status, body) = served.ask(&format!("GET {path}"), bearer, "");
        assert!(matches!(status, 200 | 303), "{path}: {status} {body}");
        check(path, &body);
    }
    served.stop();
    check("the server's log", &place.read("log"));
}
