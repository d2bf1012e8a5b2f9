use crate::place::{Place, ended, lines, signal, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A server that runs.
pub(crate) struct Served {
    child: Child,
    address: String,
}

pub(crate) fn serve(place: &Place, args: &[&str]) -> Served {
    served(place.start(["serve", "--json"].iter().chain(args)))
}

/// Waits until it says where it is.
pub(crate) fn served(mut child: Child) -> Served {
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{:#?}", ended(child));
    let told: Value = serde_json::from_str(&line).unwrap();
    let url = told["url"].as_str().unwrap();
    let address = url
        .split("://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    Served { child, address }
}

impl Served {
    /// The status and the body of an answer.
    pub(crate) fn ask(&self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let body = text
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .unwrap();
        (status, body)
    }

    fn push(&self, queue: &str, id: &str) {
        let body = json!({ "queue": queue, "payload": {}, "id": id }).to_string();
        let (status, text) = self.ask("POST /v1/jobs", "", &body);
        assert_eq!(status, 201, "{text}");
    }

    pub(crate) fn state(&self, id: &str) -> String {
        let (_, text) = self.ask(&format!("GET /v1/jobs/{id}"), "", "");
        serde_json::from_str::<Value>(&text).unwrap()["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Ends in good order; what it wrote to stderr.
    pub(crate) fn stop(self) -> String {
        signal(&self.child, "TERM");
        ended(self.child).succeeded().stderr
    }
}

pub(crate) const HERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn it_answers_over_http_runs_the_handlers_and_stops_when_told() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n",
    );
    let served = serve(&place, &HERE);
    served.push("q", "a");
    wait_until("the job's end", || served.state("a") == "done");
    served.stop();
    assert_eq!(place.job("a")["state"], "done");
}

#[test]
fn it_leaves_nothing_in_the_folder_for_what_is_temporary() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n",
    );
    let temporary = place.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.command(["serve", "--json"].iter().chain(&HERE));
    command
        .env("TMPDIR", &temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let served = served(command.spawn().unwrap());
    let left = || std::fs::read_dir(&temporary).unwrap().count();
    served.push("q", "a");
    wait_until("the job's end", || served.state("a") == "done");
    assert_eq!((served.ask("GET /", "", "").0, left()), (200, 0));
    served.stop();
    assert_eq!(left(), 0);
}

/// The numbers of the sockets that listen for TCP, as this process sees the network.
fn listening() -> Vec<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let rows = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == "0A")
        .map(|row| format!("socket:[{}]", row[9]))
        .collect()
}

#[test]
fn it_listens_at_one_place_and_at_no_other() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n[streams.s]\nstep = \"1m\"\n",
    );
    let served = serve(&place, &HERE);
    served.push("q", "a");
    wait_until("the job's end", || served.state("a") == "done");
    assert_eq!(served.ask("GET /metrics", "", "").0, 200);
    let open = std::fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap();
    let open: Vec<String> = open
        .filter_map(|entry| {
            std::fs::read_link(entry.ok()?.path())
                .ok()?
                .to_str()
                .map(str::to_owned)
        })
        .collect();
    let listening = listening();
    assert_eq!(
        open.iter().filter(|name| listening.contains(name)).count(),
        1,
        "{open:?}"
    );
    served.stop();
}

#[test]
fn workers_elsewhere_need_nobody_else_to_keep_house() {
    let place = Place::new();
    let served = serve(&place, &HERE);
    let body = json!({ "queue": "q", "payload": {}, "id": "later", "delay": "200ms" }).to_string();
    assert_eq!(served.ask("POST /v1/jobs", "", &body).0, 201);
    wait_until("the job being ready", || served.state("later") == "ready");
    let lease = json!({ "queues": ["q"], "max": 1, "worker": "w", "lease_ms": 500 }).to_string();
    let (status, text) = served.ask("POST /v1/lease", "", &lease);
    assert!(status == 200 && text.contains("\"attempt\":1"), "{text}");
    wait_until("the lost job being taken back", || {
        served.state("later") == "ready"
    });
    served.stop();
}

#[test]
fn queues_of_workers_elsewhere_have_the_bounds_and_breakers_of_the_configuration() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.full]\nmax_size = 2\ndead.max = 7\nbreaker = { failure_threshold = 3 }\n",
    );
    let served = serve(&place, &HERE);
    let queue = || {
        let (_, text) = served.ask("GET /v1/queues", "", "");
        serde_json::from_str::<Value>(&text).unwrap()["queues"][0].clone()
    };
    wait_until("the bounds being known", || queue()["max_size"] == 2);
    assert_eq!(queue()["dead_max"], 7, "{}", queue());
    let (_, breakers) = served.ask("GET /v1/breakers", "", "");
    assert!(breakers.contains("full"), "{breakers}");
    served.push("full", "a");
    served.push("full", "b");
    let body = json!({ "queue": "full", "payload": {}, "id": "c" }).to_string();
    let (status, text) = served.ask("POST /v1/jobs", "", &body);
    assert_eq!(status, 429, "{text}");
    served.stop();
}

/// The only redrive there is.
fn redrive(served: &Served) -> Value {
    let (_, text) = served.ask("GET /v1/dead/redrives", "", "");
    serde_json::from_str::<Value>(&text).unwrap()["redrives"][0].clone()
}

#[test]
fn a_redrive_of_a_killed_server_is_gone_on_with_once_by_the_next_ones() {
    const LETTERS: usize = 40;
    let place = Place::new();
    let letter = |n| json!({ "id": format!("l{n}"), "queue": "q", "error": "boom", "original_job": { "payload": n } });
    let letters: Vec<String> = (0..LETTERS).map(|n| letter(n).to_string()).collect();
    place.write("letters.ndjson", &letters.join("\n"));
    place.json(["dead", "import", "letters.ndjson"]);
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n",
    );
    let mut first = serve(&place, &HERE);
    let plan = json!({ "all": true, "canary": 2, "then_rate": "10/s" }).to_string();
    assert_eq!(first.ask("POST /v1/dead/redrive", "", &plan).0, 202);
    wait_until("letters behind the canary", || {
        redrive(&first)["requeued"].as_u64() > Some(2)
    });
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let servers = [serve(&place, &HERE), serve(&place, &HERE)];
    assert_ne!(
        redrive(&servers[0])["phase"],
        "done",
        "it was killed in the middle"
    );
    wait_until("the end of the redrive", || {
        redrive(&servers[1])["phase"] == "done"
    });
    assert_eq!(redrive(&servers[0])["requeued"], LETTERS);
    for server in servers {
        server.stop();
    }
    let audit = place.json(["dead", "audit"]);
    let runs = audit["audit"].as_array().unwrap().iter();
    let runs = runs.filter(|entry| {
        entry["what"]
            .as_str()
            .is_some_and(|what| what.starts_with("redrive "))
    });
    assert_eq!(runs.count(), 2, "begun once, gone on with once: {audit}");
}

#[test]
fn a_redrive_of_a_server_that_was_stopped_is_gone_on_with_at_once() {
    let place = Place::new();
    let letter =
        json!({ "id": "a", "queue": "q", "error": "boom", "original_job": { "payload": 1 } });
    place.write("letters.ndjson", &letter.to_string());
    place.json(["dead", "import", "letters.ndjson"]);
    let first = serve(&place, &HERE);
    let plan = json!({ "all": true, "canary": 1 }).to_string();
    assert_eq!(first.ask("POST /v1/dead/redrive", "", &plan).0, 202);
    wait_until("the canary", || redrive(&first)["phase"] == "watching");
    first.stop();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n",
    );
    let second = serve(&place, &HERE);
    wait_until("the end of the redrive", || {
        redrive(&second)["phase"] == "done"
    });
    second.stop();
}

/// How many jobs of the only queue were cancelled.
fn cancelled(served: &Served) -> u64 {
    let (_, text) = served.ask("GET /v1/queues", "", "");
    serde_json::from_str::<Value>(&text).unwrap()["queues"][0]["cancelled"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_bulk_action_of_a_killed_server_is_gone_on_with_once_by_the_next_ones() {
    const JOBS: u64 = 30_000;
    let place = Place::new();
    place.write("jobs.ndjson", &lines(JOBS));
    place.json(["push", "q", "--file", "jobs.ndjson"]);
    let mut first = serve(&place, &HERE);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(
        first
            .ask("POST /jobs/act", form, "action=cancel&queue=q&all=matching")
            .0,
        303
    );
    wait_until("some of them being called off", || cancelled(&first) > 0);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let before = place.count("q", "cancelled");
    assert!(before < JOBS, "it was killed in the middle");
    let servers = [serve(&place, &HERE), serve(&place, &HERE)];
    wait_until("all of them being called off", || {
        cancelled(&servers[1]) == JOBS
    });
    let told = |place: &Place| {
        let audit = place.json(["dead", "audit"])["audit"]
            .as_array()
            .unwrap()
            .clone();
        let runs = audit.iter().filter(|entry| entry["what"] == "job cancel");
        runs.map(|entry| entry["count"].as_u64())
            .collect::<Vec<_>>()
    };
    wait_until("the note of it", || {
        told(&place).first() == Some(&Some(JOBS - before))
    });
    assert_eq!(
        told(&place),
        [Some(JOBS - before), None],
        "begun once, gone on with once, each job once"
    );
    for server in servers {
        server.stop();
    }
}

#[test]
fn it_stands_under_a_path_and_says_where() {
    let place = Place::new();
    let mut child = place.start(["serve", "--listen", "127.0.0.1:0", "--base", "/jobs"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(
        line.contains("/jobs/v1, dashboard at http://127.0.0.1:")
            && line.trim_end().ends_with("/jobs/"),
        "{line}"
    );
    signal(&child, "INT");
    ended(child).succeeded();
}

#[test]
fn it_follows_the_configuration_and_refuses_a_bad_one() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.a]\nhandler = { exec = [\"true\"] }\n",
    );
    let served = serve(&place, &HERE);
    // Asked of the server: no command can be run beside a configuration with a mistake.
    let reloads = || {
        let (_, text) = served.ask("GET /v1/audit", "", "");
        let mut audit: Value = serde_json::from_str(&text).unwrap();
        let mut entries: Vec<Value> = serde_json::from_value(audit["entries"].take()).unwrap();
        entries.retain(|entry| entry["what"] == "config reload" && !entry["count"].is_null());
        entries
    };
    place.write(
        "backstop.toml",
        "[queues.b]\nhandler = { exec = [\"true\"] }\n",
    );
    signal(&served.child, "HUP");
    served.push("b", "of_b");
    wait_until("the new handler's run", || served.state("of_b") == "done");
    wait_until("the note of it", || reloads().len() == 1);
    served.push("a", "of_a");
    place.write(
        "backstop.toml",
        "[queues.b]\nhandler = { exec = [\"./send-mial\"] }\n",
    );
    signal(&served.child, "HUP");
    wait_until("the note of the program that is not there", || {
        reloads().iter().any(|entry| {
            entry["error"]
                .as_str()
                .is_some_and(|why| why.contains("./send-mial"))
        })
    });
    place.write("backstop.toml", "[queues.b]\nhandlerr = 1\n");
    signal(&served.child, "HUP");
    served.push("b", "again");
    wait_until("the standing handler's run", || {
        served.state("again") == "done"
    });
    assert_eq!(
        served.state("of_a"),
        "ready",
        "what has no handler any more waits"
    );
    wait_until("the note of the mistake", || reloads().len() == 3);
    std::fs::remove_file(place.path("backstop.toml")).unwrap();
    signal(&served.child, "HUP");
    wait_until("the note of the file that is gone", || reloads().len() == 4);
    served.push("b", "still");
    wait_until("the standing handler's run", || {
        served.state("still") == "done"
    });
    let told = reloads();
    signal(&served.child, "TERM");
    let stderr = ended(served.child).succeeded().stderr;
    assert!(stderr.contains("backstop.toml cannot be read"), "{stderr}");
    for queue in ["a", "b"] {
        let told = format!(
            "serve {queue}\na dead worker's job runs again within 18s, by the leases of the configuration; a worker over HTTP "
        );
        assert!(stderr.contains(&told), "{told:?} is missing: {stderr}");
    }
    assert!(
        stderr.contains("refused, the old one stays in force") && stderr.contains(":2:1: "),
        "{stderr}"
    );
    assert_eq!((told.len(), &told[0]["count"]), (4, &json!(0)), "{told:?}");
    assert!(
        told[1]["error"].as_str().unwrap().contains(":2:1: "),
        "{told:?}"
    );
    let file = json!({ "file": "backstop.toml" });
    assert!(
        told.iter().all(|entry| entry["selection"] == file),
        "even of the file that is gone: {told:?}"
    );
}

/// Whatever a configuration can have running.
const EVERYTHING: &str = r#"
    [queues.a]
    handler = { exec = ["true"] }
    [streams.uptime]
    handler = { exec = ["true"] }
    [schedules.daily]
    cron = "30 8 * * *"
    queue = "a"
    [sweeps.changes]
    url = "sqlite:rows.db"
    query = "SELECT id FROM rows WHERE at <= :cutoff"
    queue = "a"
    unique_key = "{id}"
    [tables.invoices]
    url = "sqlite:rows.db"
    table = "invoices"
    strategy = { kind = "fibonacci" }
    handler = { exec = ["true"] }
"#;

#[test]
fn it_says_what_it_works_on_and_in_json_every_line_of_its_log_is_json() {
    let place = Place::new();
    place.write("backstop.toml", EVERYTHING);
    let served = serve(&place, &["--listen", "127.0.0.1:0", "--log-format", "json"]);
    signal(&served.child, "HUP");
    let reloads = || {
        served
            .ask("GET /v1/audit", "", "")
            .1
            .matches("config reload")
            .count()
    };
    wait_until("the note of it", || reloads() == 1);
    place.write("backstop.toml", "[queues.a]\nhandlerr = 1\n");
    signal(&served.child, "HUP");
    wait_until("the note of the mistake", || {
        served.ask("GET /v1/audit", "", "").1.contains("handlerr")
    });
    signal(&served.child, "TERM");
    let stderr = ended(served.child).succeeded().stderr;
    let told: Vec<Value> = stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}: {stderr}")))
        .collect();
    for (level, words, times) in [
        // `doctor` tells what the store promises.
        ("info", "survives", 0),
        ("info", "handlers of the configuration serve a", 2),
        ("info", "a dead worker's job runs again within", 2),
        (
            "info",
            "handlers of the configuration serve the streams uptime",
            2,
        ),
        ("info", " fires daily", 2),
        ("info", "lost work is looked for by changes", 2),
        ("info", "table invoices is worked off every", 2),
        (
            "info",
            "the configuration was read again and is in force",
            1,
        ),
        ("warn", "refused, the old one stays in force", 1),
        ("info", "stopping: ", 1),
    ] {
        let found = told
            .iter()
            .filter(|line| line["message"].as_str().unwrap().contains(words));
        let found: Vec<&Value> = found.filter(|line| line["level"] == level).collect();
        assert_eq!(found.len(), times, "{words}: {stderr}");
    }
}

/// The worker of a server, once it serves this queue.
fn worker_of(place: &Place, queue: &str) -> String {
    let serves = |worker: &&Value| worker["queues"] == json!([queue]) && worker["state"] == "live";
    let mut found = None;
    wait_until("its worker", || {
        let listed = place.json(["worker", "list"]);
        let worker = listed["workers"].as_array().unwrap().iter().find(serves);
        found = worker.map(|worker| worker["name"].as_str().unwrap().to_owned());
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn its_worker_is_stopped_and_the_server_goes_on_and_keeps_house_until_it_reads_its_configuration_again()
 {
    let place = Place::new();
    let app = rusqlite::Connection::open(place.path("app.db")).unwrap();
    app.execute_batch("CREATE TABLE change (id INTEGER PRIMARY KEY, at TEXT)")
        .unwrap();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n[sweeps.lost]\nurl = \"sqlite:app.db\"\nquery = \"SELECT id FROM change WHERE at <= :cutoff\"\n\
         every = \"1s\"\nqueue = \"found\"\nunique_key = \"change:{id}\"\npayload = { id = \"{id}\" }\n",
    );
    let served = serve(&place, &HERE);
    let name = worker_of(&place, "q");
    place
        .run(["worker", "stop", &name])
        .complains(2, &["nobody can be asked here", "--yes"]);
    place.run(["worker", "stop", &name, "--yes"]).succeeded();
    wait_until("its end", || {
        let listed = place.json(["worker", "list"]);
        let workers = listed["workers"].as_array().unwrap();
        workers
            .iter()
            .any(|worker| worker["name"] == *name && worker["state"] == "stopped")
            && workers
                .iter()
                .any(|worker| worker["state"] == "live" && worker["queues"] == json!([]))
    });
    served.push("q", "a");
    // Schedules and sweeps go on: others may work on what they put into queues.
    app.execute_batch("INSERT INTO change VALUES (1, '2020-01-01 00:00:00')")
        .unwrap();
    wait_until("what the sweep finds", || {
        place.count("found", "ready") == 1
    });
    // House is kept: a job that is due becomes ready although nobody asks for it.
    let later = json!({ "queue": "q", "payload": {}, "id": "later", "delay": "500ms" }).to_string();
    assert_eq!(served.ask("POST /v1/jobs", "", &later).0, 201);
    wait_until("its time", || served.state("later") == "ready");
    assert_eq!(served.state("a"), "ready", "nothing is run");
    signal(&served.child, "HUP");
    wait_until("the job's end", || served.state("a") == "done");
    signal(&served.child, "TERM");
    let stderr = ended(served.child).succeeded().stderr;
    assert!(
        stderr.contains("the worker was asked to stop: the server goes on"),
        "{stderr}"
    );
}

#[test]
fn a_server_without_handlers_is_not_in_the_list_of_workers() {
    let place = Place::new();
    let served = serve(&place, &HERE);
    wait_until("its beat", || {
        let listed = place.json(["worker", "list"]);
        !listed["workers"].as_array().unwrap().is_empty()
    });
    let listed = place.run(["worker", "list"]).succeeded();
    assert!(
        listed.stdout.is_empty() && listed.stderr.contains("not listed: 1 without queues"),
        "{listed:#?}"
    );
    let page = served.ask("GET /workers", "", "").1;
    assert!(page.contains("No worker was heard of"), "{page}");
    place.json(["push", "q", "1"]);
    let worker = place.start([
        "work",
        "q",
        "--exec",
        "while [ ! -e go ]; do sleep 0.05; done",
    ]);
    wait_until("its run", || place.count("q", "running") == 1);
    let listed = place.run(["worker", "list"]).succeeded().stdout;
    let mut lines = listed
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let (titles, row) = (lines.next().unwrap(), lines.next().unwrap());
    let cell = |title: &str| row[titles.iter().position(|there| *there == title).unwrap()];
    assert_eq!(lines.count(), 0, "{listed}");
    assert_eq!(
        (cell("HOLDS"), cell("PLACES").split(' ').next().unwrap()),
        ("1", "1"),
        "{listed}"
    );
    place.write("go", "");
    signal(&worker, "TERM");
    ended(worker).succeeded();
    let listed = place.run(["worker", "list"]).succeeded();
    assert!(
        listed.stdout.contains("stopped") && listed.stderr.contains("not listed: 1 without"),
        "{listed:#?}"
    );
    signal(&served.child, "TERM");
    ended(served.child).succeeded();
}

#[test]
fn a_worker_of_its_own_ends_when_it_is_asked_to() {
    let place = Place::new();
    let child = place.start(["work", "q", "--exec", "true"]);
    let name = worker_of(&place, "q");
    place.run(["worker", "quiet", &name]).succeeded();
    assert_eq!(
        place.json(["worker", "resume", &name]),
        json!({ "name": name, "asked": null, "changed": true })
    );
    place.run(["worker", "stop", &name, "--yes"]).succeeded();
    let stderr = ended(child).succeeded().stderr;
    assert!(
        stderr.contains("stopped: an operator asked for it"),
        "{stderr}"
    );
    place
        .run(["worker", "stop", "nobody", "--yes"])
        .complains(1, &["there is no worker nobody", "backstop worker list"]);
}

#[test]
fn names_of_secrets_that_are_read_again_count_for_the_api() {
    let place = Place::new();
    place.write("backstop.toml", "");
    let served = serve(&place, &HERE);
    served.push("q", "a");
    let lease = json!({ "queues": ["q"], "max": 1, "worker": "w" }).to_string();
    let (_, leased) = served.ask("POST /v1/lease", "", &lease);
    let leased: Value = serde_json::from_str(&leased).unwrap();
    let error = json!({ "message": "no entry with birthplace=Leipzig" });
    let lease = &leased["jobs"][0]["lease"];
    let failed =
        json!({ "settle": [{ "id": "a", "lease": lease, "outcome": "dead", "error": error }] });
    let (status, text) = served.ask("POST /v1/settle", "", &failed.to_string());
    assert_eq!(
        (status, served.state("a").as_str()),
        (200, "dead"),
        "{text}"
    );
    let letters = || served.ask("GET /v1/dead", "", "").1;
    assert!(letters().contains("Leipzig"), "{}", letters());
    place.write("backstop.toml", "redact = [\"birthplace\"]\n");
    signal(&served.child, "HUP");
    wait_until("the new names being heeded", || {
        !letters().contains("Leipzig")
    });
    assert!(
        letters().contains("no entry with birthplace"),
        "{}",
        letters()
    );
    served.stop();
}

#[test]
fn away_from_this_machine_it_does_not_start_without_tokens_and_encryption() {
    let place = Place::new();
    let open = ["serve", "--listen", "0.0.0.0:0"];
    place.run(open).complains(
        2,
        &[
            "no token in the store",
            "backstop token create --scope admin",
            "tls = ",
            "plain_http = true",
        ],
    );
    let token = place.json(["token", "create", "--scope", "read"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    place.run(open).complains(
        2,
        &["would not be encrypted", "tls = ", "plain_http = true"],
    );
    place.write("backstop.toml", "[server]\nplain_http = true\n");
    let served = serve(&place, &open[1..]);
    let served = Served {
        address: served.address.replace("0.0.0.0", "127.0.0.1"),
        ..served
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(served.ask("GET /v1/queues", "", "").0, 401);
    assert_eq!(
        served
            .ask("GET /v1/queues", "Authorization: Bearer backstop_x\r\n", "")
            .0,
        401
    );
    assert_eq!(served.ask("GET /v1/queues", &bearer, "").0, 200);
    assert_eq!(served.ask("POST /v1/jobs", &bearer, "{}").0, 403);
    served.stop();
}

#[test]
fn behind_a_proxy_it_does_not_start_without_tokens_wherever_it_listens() {
    let place = Place::new();
    place.write("backstop.toml", "[server]\nplain_http = true\n");
    let near = ["serve", "--listen", "127.0.0.1:0"];
    place.run(near).complains(
        2,
        &[
            "the proxy before 127.0.0.1:0",
            "no token",
            "leave `origins` and `plain_http` out",
        ],
    );
    let token = place.json(["token", "create", "--scope", "read"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let served = serve(&place, &near[1..]);
    assert_eq!(served.ask("GET /v1/queues", "", "").0, 401);
    assert_eq!(
        served
            .ask(
                "GET /v1/queues",
                &format!("Authorization: Bearer {token}\r\n"),
                ""
            )
            .0,
        200
    );
    served.stop();
}

/// A worker over HTTP that could neither keep nor end its run meanwhile would be given up, and its
/// job would run twice.
#[test]
fn requests_are_answered_as_long_as_something_runs() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"sh\", \"-c\", \"until [ -e go ]; do sleep 0.1; done\"] }\n",
    );
    let served = serve(&place, &HERE);
    served.push("q", "slow");
    served.push("elsewhere", "kept");
    let ask = json!({ "queues": ["elsewhere"], "worker": "w", "max": 1 }).to_string();
    let (_, leased) = served.ask("POST /v1/lease", "", &ask);
    let lease = serde_json::from_str::<Value>(&leased).unwrap()["jobs"][0]["lease"].clone();
    wait_until("the job's start", || served.state("slow") == "running");
    signal(&served.child, "TERM");
    wait_until("its leaving", || served.ask("GET /readyz", "", "").0 == 503);
    let beat = json!({ "worker": "w", "leases": [{ "id": "kept", "lease": lease }] }).to_string();
    assert_eq!(served.ask("POST /v1/beat", "", &beat).0, 200);
    let end =
        json!({ "settle": [{ "id": "kept", "lease": lease, "outcome": "done" }] }).to_string();
    let (status, settled) = served.ask("POST /v1/settle", "", &end);
    assert!(status == 200 && settled.contains("applied"), "{settled}");
    place.write("go", "");
    ended(served.child).succeeded();
    assert_eq!(
        (&place.job("slow")["state"], &place.job("kept")["state"]),
        (&json!("done"), &json!("done"))
    );
}

#[test]
fn a_second_signal_calls_running_jobs_off() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"sleep\", \"60\"] }\n",
    );
    let served = serve(&place, &HERE);
    served.push("q", "slow");
    wait_until("the job's start", || served.state("slow") == "running");
    signal(&served.child, "TERM");
    wait_until("its leaving", || served.ask("GET /readyz", "", "").0 == 503);
    // Signals that come together count as one; the second is sent until it has an effect.
    let mut served = served;
    wait_until("the end", || {
        let is_over = served.child.try_wait().unwrap().is_some();
        if !is_over {
            signal(&served.child, "TERM");
        }
        is_over
    });
    ended(served.child).succeeded();
    assert_eq!(place.job("slow")["state"], "ready", "given back");
}

#[test]
fn what_cannot_be_listened_at_is_told() {
    let place = Place::new();
    place
        .run(["serve", "--listen", "example.org"])
        .complains(2, &["--listen", "127.0.0.1:7007"]);
    place
        .run(["serve", "--base", "jobs"])
        .complains(2, &["--base", "/backstop"]);
    place.write(
        "backstop.toml",
        "[server]\nlisten = \"127.0.0.1:0\"\ntls = { cert = \"none.pem\", key = \"none.pem\" }\n",
    );
    place.run(["serve"]).complains(2, &["none.pem", "PEM"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    place.write("backstop.toml", "");
    place
        .run(["serve", "--listen", &address])
        .complains(1, &[&address, "free port"]);
}

#[test]
fn two_servers_on_one_postgres_share_jobs_and_tokens() {
    two_servers_share_jobs_and_tokens(&Place::at(
        backstop_testkit::servers::postgres().fresh_url(),
    ));
}

#[test]
fn two_servers_on_one_redis_share_jobs_and_tokens() {
    two_servers_share_jobs_and_tokens(&Place::at(backstop_testkit::servers::redis().fresh_url()));
}

fn two_servers_share_jobs_and_tokens(place: &Place) {
    place.write(
        "backstop.toml",
        "[server]\norigins = [\"https://jobs.example.org\"]\n[queues.q]\nhandler = { exec = [\"true\"] }\n",
    );
    let token = place.json(["token", "create", "--scope", "admin"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let (one, other) = (serve(place, &HERE), serve(place, &HERE));
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let body = json!({ "queue": "q", "payload": {}, "id": "a" }).to_string();
    assert_eq!(one.ask("POST /v1/jobs", &bearer, &body).0, 201);
    wait_until("its end, seen from the other", || {
        other
            .ask("GET /v1/jobs/a", &bearer, "")
            .1
            .contains("\"done\"")
    });
    no_job_is_handed_out_twice(&one, &other, &bearer);
    one.stop();
    other.stop();
}

/// Many jobs, leased through both servers at once.
fn no_job_is_handed_out_twice(one: &Served, other: &Served, bearer: &str) {
    const JOBS: usize = 300;
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| json!({ "queue": "shared", "payload": n }))
        .collect();
    let pushed = one.ask(
        "POST /v1/jobs/batch",
        bearer,
        &json!({ "jobs": jobs }).to_string(),
    );
    assert_eq!(pushed.0, 200, "{}", pushed.1);
    let lease = json!({ "queues": ["shared"], "max": 7, "worker": "w" }).to_string();
    let leased = |server: &Served| {
        let mut ids = Vec::new();
        loop {
            let (status, body) = server.ask("POST /v1/lease", bearer, &lease);
            assert_eq!(status, 200, "{body}");
            let told: serde_json::Value = serde_json::from_str(&body).unwrap();
            let jobs = told["jobs"].as_array().unwrap().clone();
            if jobs.is_empty() {
                return ids;
            }
            ids.extend(
                jobs.iter()
                    .map(|job| job["id"].as_str().unwrap().to_owned()),
            );
        }
    };
    let mut all = std::thread::scope(|scope| {
        let askers = [one, other, one, other].map(|server| scope.spawn(move || leased(server)));
        askers
            .into_iter()
            .flat_map(|asker| asker.join().unwrap())
            .collect::<Vec<String>>()
    });
    all.sort();
    let handed = all.len();
    all.dedup();
    assert_eq!(
        (handed, all.len()),
        (JOBS, JOBS),
        "each is handed out, and none twice"
    );
}
