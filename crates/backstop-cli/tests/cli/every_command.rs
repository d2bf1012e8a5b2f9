//! Every command there is, on every store, with the store named by `--store` alone.

use crate::place::{Answer, Place};
use crate::serve::{HERE, serve};
use crate::stores::on_every_store;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::sync::LazyLock;

on_every_store! {
    every_command_works,
}

/// Every command that takes `--store`, as the program's own help lists them: `job list`.
pub(crate) static COMMANDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let (place, mut found, mut ahead) = (Place::new(), BTreeSet::new(), vec![Vec::<String>::new()]);
    while let Some(path) = ahead.pop() {
        let help = place
            .run(path.iter().map(String::as_str).chain(["-h"]))
            .succeeded()
            .stdout;
        let below = subcommands(&help);
        if below.is_empty() && help.contains("--store <URL>") {
            found.insert(path.join(" "));
        }
        ahead.extend(below.into_iter().map(|name| [&path[..], &[name]].concat()));
    }
    found
});

/// The names under `Commands:`; lines that go on with what is said of one are indented further.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let entries = listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  "));
    let names = entries
        .filter(|entry| !entry.starts_with(' '))
        .filter_map(|entry| entry.split(' ').next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The command that a line begins with.
pub(crate) fn command_of(line: &str) -> String {
    let ends = line
        .match_indices(' ')
        .map(|(at, _)| at)
        .chain([line.len()]);
    let mut names = ends
        .map(|end| &line[..end])
        .filter(|name| COMMANDS.contains(*name));
    names
        .next()
        .unwrap_or_else(|| panic!("{line}: no command that takes --store"))
        .to_owned()
}

/// One store, gone over command by command.
struct Walk {
    place: Place,
    store: String,
    /// The commands that were run.
    walked: BTreeSet<String>,
}

impl Walk {
    /// Runs a command, its words between spaces, on the store.
    fn run(&mut self, line: &str) -> Answer {
        self.walked.insert(command_of(line));
        self.place
            .run(line.split(' ').chain(["--store", self.store.as_str()]))
    }

    /// Runs one that ends with this code and has this among its results.
    fn exits(&mut self, code: i32, line: &str, says: &str) -> Answer {
        let answer = self.run(line);
        assert_eq!(answer.code, Some(code), "{line}: {answer:#?}");
        assert!(
            answer.stdout.contains(says),
            "{line}: {says:?} is missing: {answer:#?}"
        );
        answer
    }

    /// Runs commands that succeed, each beside a part of its results.
    fn through(&mut self, steps: &[(&str, &str)]) {
        for (line, says) in steps {
            self.exits(0, line, says);
        }
    }

    fn configure(&self, text: &str) {
        self.place.write("backstop.toml", text);
    }

    /// Runs statements in the database of an application.
    fn sql(&self, statements: &str) {
        Connection::open(self.place.path("app.db"))
            .unwrap()
            .execute_batch(statements)
            .unwrap();
    }
}

fn every_command_works(place: &Place) {
    // Not the file that is used where no store is named: a command that does not heed the flag
    // would make that one.
    let store = place.store().replace("backstop.db", "named.db");
    let mut walk = Walk {
        place: Place::new(),
        store,
        walked: BTreeSet::new(),
    };
    the_store_itself(&mut walk);
    the_demo(&mut walk);
    what_opens_no_store(&mut walk);
    jobs_and_queues(&mut walk);
    breakers(&mut walk);
    dead_letters(&mut walk);
    tokens_and_a_server(&mut walk);
    streams(&mut walk);
    schedules(&mut walk);
    sweeps(&mut walk);
    tables(&mut walk);
    measurements_and_drills(&mut walk);
    let left_out: Vec<&String> = COMMANDS.difference(&walk.walked).collect();
    assert!(left_out.is_empty(), "no step here runs {left_out:?}");
    assert!(
        !walk.place.path("backstop.db").exists(),
        "a command used the usual file"
    );
}

fn the_store_itself(walk: &mut Walk) {
    walk.through(&[("migrate", "from version 0 to ")]);
    let examined = walk.run("doctor --json");
    // The PostgreSQL of the tests does not wait for the disk, which falls short of the promise.
    let falls_short = examined.stdout.contains(r#""grade":"bad""#);
    let examined = examined.exits(i32::from(falls_short));
    assert!(examined.stdout.contains("acknowledged"), "{examined:#?}");
}

/// Before jobs are removed by hand: the demo counts those of all queues as lost.
fn the_demo(walk: &mut Walk) {
    walk.through(&[("demo --seconds 1 --listen 127.0.0.1:0 --quiet", "none lost")]);
}

fn what_opens_no_store(walk: &mut Walk) {
    let scheme = walk.store.split(':').next().unwrap().to_owned();
    walk.exits(0, "config check --json", &format!(r#""store":"{scheme}:"#));
    walk.place.write(
        "replayed.ndjson",
        r#"{"at_ms":0,"key":"a","position":60000}"#,
    );
    walk.through(&[
        (
            r#"stream replay --stream {"step":"1m"} --input replayed.ndjson"#,
            "1 handled",
        ),
        ("policy preview", "| Attempt |"),
        (
            "policy simulate --rate 20/s --outage 20s --outage-at 10s --for 1m",
            "Outage:",
        ),
        ("alerts --prometheus", "- alert: BackstopStoreDown"),
        ("completions bash", "_backstop"),
    ]);
}

fn jobs_and_queues(walk: &mut Walk) {
    walk.through(&[
        (r#"push parcels {"to":"ada"} --id first"#, "inserted"),
        ("queue pause parcels", "parcels is paused"),
        ("job why first", "paused"),
        ("queue resume parcels", "parcels runs"),
        ("queue pause --all", "parcels"),
        ("queue resume --all", "parcels"),
        ("work parcels --exec true --until-empty", "1 done"),
        ("job show first", " done"),
        ("push parcels 2 --id second", "inserted"),
        (
            "job list --queue parcels --state ready",
            "parcels\t–\tready",
        ),
        ("job cancel second", "1 job cancelled"),
        ("job retry second", "1 job made ready"),
        ("queue list", "parcels\tyes"),
        ("top --once --interval 200ms", "parcels"),
        ("queue clear parcels --yes", "1 job removed from parcels"),
        ("job delete first", "1 job deleted"),
        ("job overlaps --json", r#"{"overlaps":["#),
    ]);
}

fn breakers(walk: &mut Walk) {
    walk.through(&[
        (
            "breaker open parcels --why maintenance",
            "parcels: open until it is reset",
        ),
        ("breaker list", "parcels\tbreaker\topen"),
        ("breaker reset parcels", "parcels: reset"),
    ]);
}

/// Leaves one letter to be redriven.
fn dead_letters(walk: &mut Walk) {
    walk.configure(
        "[queues.served]\nhandler = { exec = [\"sh\", \"-c\", \"echo boom >&2; exit 65\"] }\n",
    );
    let jobs = ["l1", "l2", "l3", "l4"].map(|id| format!(r#"{{"id":"{id}","payload":1}}"#));
    walk.place.write("jobs.ndjson", &jobs.join("\n"));
    walk.through(&[("push served --file jobs.ndjson", "4 inserted")]);
    walk.exits(1, "work served --until-empty", "4 dead");
    walk.through(&[
        ("dead stats", "served\t4"),
        ("dead groups --queue served", "boom"),
        ("dead list --queue served", "boom"),
        ("dead show l1", "boom"),
        (
            "dead export --queue served --output dead.ndjson",
            "4 dead letters written",
        ),
        ("dead clear served --yes", "4 dead letters removed"),
        ("dead import dead.ndjson", "4 dead letters taken in"),
        ("dead requeue l1", "1 dead letter requeued"),
        (
            "dead move l2 --to elsewhere",
            "1 dead letter moved to elsewhere",
        ),
        ("dead delete l3 --yes", "1 dead letter deleted"),
        ("dead audit", "\timport\t4\t"),
    ]);
}

/// The server's handler runs what is redriven.
fn tokens_and_a_server(walk: &mut Walk) {
    let made = walk
        .exits(
            0,
            "token create --scope admin --name ada --json",
            "backstop_",
        )
        .json();
    let revoke = format!("token revoke {}", made["id"].as_str().unwrap());
    walk.through(&[("token list", "ada"), (&revoke, "is revoked")]);
    walk.configure("[queues.served]\nhandler = { exec = [\"true\"] }\n");
    walk.walked.insert(command_of("serve"));
    let served = serve(
        &walk.place,
        &[&HERE[..], &["--store", walk.store.as_str()]].concat(),
    );
    let (status, queues) = served.ask("GET /v1/queues", "", "");
    assert!(status == 200 && queues.contains("\"served\""), "{queues}");
    walk.through(&[(
        "dead redrive --queue served --canary 1",
        "finished: 1 requeued",
    )]);
    workers(walk);
    served.stop();
}

/// The server's worker is asked for everything there is; the server goes on.
fn workers(walk: &mut Walk) {
    let listed = walk.exits(0, "worker list --json", "\"host\"").json();
    let serves = |worker: &&serde_json::Value| worker["queues"] == serde_json::json!(["served"]);
    let worker = listed["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(serves)
        .unwrap();
    let name = worker["name"].as_str().unwrap();
    walk.through(&[
        ("worker list", name),
        (
            &format!("worker quiet {name}"),
            "takes no new jobs within seconds",
        ),
        (&format!("worker resume {name}"), "goes on within seconds"),
        (&format!("worker stop {name} --yes"), "ends what it runs"),
    ]);
}

fn streams(walk: &mut Walk) {
    walk.configure(
        "[streams.sensors]\nkey = \"/id\"\nposition = \"/at\"\nstep = \"1m\"\non_dead = \"halt\"\n\
         handler = { exec = [\"sh\", \"-c\", \"exit 65\"] }\n",
    );
    walk.place.write(
        "records.ndjson",
        "{\"id\":\"a\",\"at\":120000}\n{\"id\":\"a\",\"at\":180000}\n",
    );
    walk.through(&[
        (
            "stream push sensors 1 --key a --position 60000",
            "a 60000 held",
        ),
        ("stream list", "sensors\t1\t1"),
        ("stream keys sensors", "\na\t"),
        ("stream show sensors a", "held 60000 since"),
        (
            "stream serve sensors --exec true --until-empty",
            "1 handled",
        ),
        ("stream push sensors --file records.ndjson", "2 held"),
    ]);
    // It ends at a record that fails for good.
    walk.exits(1, "stream serve sensors --until-empty", "1 failed for good");
    walk.through(&[
        (
            "stream resume sensors a --skip",
            "a goes on past the record",
        ),
        (
            "stream forget sensors a --disable --yes",
            "a forgotten with ",
        ),
        ("stream enable sensors a", "a is enabled"),
    ]);
}

fn schedules(walk: &mut Walk) {
    walk.configure(
        "[schedules.nightly]\ncron = \"30 8 * * *\"\nsince = \"2017-01-01T00:00:00Z\"\nqueue = \"digests\"\n\
         missed = { policy = \"skip\", look_back = \"7d\", grace = \"30m\" }\n",
    );
    walk.through(&[
        ("schedule list", "nightly\t30 8 * * *"),
        (
            "schedule missed --at 2026-11-16T09:00:00Z",
            "nightly\t2026-11-15T08:30:00Z",
        ),
        (
            "schedule pause nightly",
            "nightly: paused until it is resumed",
        ),
        (
            "schedule resume nightly",
            "nightly: goes on with its next instant",
        ),
        ("schedule trigger nightly", "is in queue digests"),
        ("schedule runs nightly", "triggered"),
    ]);
}

fn sweeps(walk: &mut Walk) {
    walk.configure(
        "[sweeps.lost]\nurl = \"sqlite:app.db\"\nolder_than = \"1h\"\nevery = \"30m\"\nqueue = \"found\"\n\
         query = \"SELECT id FROM changes WHERE created_at <= :cutoff ORDER BY id\"\n\
         kind = \"Change\"\nunique_key = \"change:{id}\"\npayload = { id = \"{id}\" }\n",
    );
    walk.sql(
        "CREATE TABLE changes (id INTEGER PRIMARY KEY, created_at TEXT);
         INSERT INTO changes VALUES (1, '2020-03-01 10:00:00'), (2, '2020-03-01 11:00:00')",
    );
    walk.through(&[
        (
            "sweep --dry-run",
            "lost: 2 found, 0 alive, 0 dead, 2 to enqueue",
        ),
        ("sweep", "lost: 2 found, 0 alive, 0 dead, 2 enqueued"),
        ("reconcile", "lost: 0 rows without a live job"),
    ]);
}

fn tables(walk: &mut Walk) {
    walk.configure(
        "[tables.bills]\nurl = \"sqlite:app.db\"\ntable = \"BACKLOG\"\nmax_age = \"90d\"\n\
         strategy = { kind = \"fibonacci\", unit = \"1m\", cap = \"1d\" }\n",
    );
    walk.sql(
        "CREATE TABLE BACKLOG (ID INTEGER PRIMARY KEY, STATUS TEXT NOT NULL, DATE_INSERTED TEXT NOT NULL,
           FAILURES INTEGER NOT NULL DEFAULT 0, LAST_FAILURE TEXT);
         INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES (1, 'NEW', '2026-03-01 07:00:00'),
           (2, 'NEW', '2026-03-01 11:52:00')",
    );
    walk.through(&[
        (
            "table check bills --at 2026-03-01T12:00:00Z",
            "It can be worked off as it is.",
        ),
        ("table due bills --at 2026-03-01T12:00:00Z", "ROW\n2\n1\n"),
        (
            "table run bills --at 2026-03-01T12:00:00Z --exec true",
            "bills: 2 due, 2 succeeded, 0 failed",
        ),
        (
            "table status bills --at 2026-03-01T12:00:00Z",
            "bills: 0 new, 0 error, 2 success",
        ),
    ]);
}

/// What else `bench` measures, it measures in files of its own, whatever the store.
fn measurements_and_drills(walk: &mut Walk) {
    let size = "--jobs 1000 --present 0 --samples 3 --repeat 1 --callers 4 --handlers 8";
    walk.through(&[
        (&format!("bench {size}"), "full cycle, 8 handlers"),
        ("bench streams --quick", "records in order"),
        ("bench pages --quick", "addresses take over 200 ms"),
        ("drill --lease 1s", "promised within"),
    ]);
}
