//! Commands and web services as handlers of rows.

use crate::databases::Database;
use crate::ground::{
    Dates, FIBONACCI, at_noon, create, due, fresh, insert, minutes, noon, run, states, table,
};
use backstop::tables::RowJobHandler;
use backstop::{Exec, Http};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a service was sent: its request line, and the row.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// A service that answers by the key of the row: 1 is taken, 2 breaks it, for 3 it has no time.
fn serve() -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/invoice",
        listener.local_addr().expect("an address")
    );
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.expect("a connection"), &kept);
        }
    });
    (url, seen)
}

fn answer(stream: TcpStream, seen: &Seen) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            stream.read_line(&mut head).expect("a line") > 0,
            "a whole request: {head}"
        );
    }
    let length = head.to_ascii_lowercase();
    let length = length
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    let row: Value = serde_json::from_slice(&body).expect("a row as JSON");
    let status = match id(&row) {
        Some(1) => "204 No Content",
        Some(2) => "500 Internal Server Error",
        _ => "503 Service Unavailable",
    };
    let line = head.lines().next().unwrap_or_default().to_owned();
    seen.lock().expect("requests").push((line, row));
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream
        .get_mut()
        .write_all(text.as_bytes())
        .expect("an answer");
}

/// The key of a row, however its database spells the column.
fn id(row: &Value) -> Option<i64> {
    row.get("ID")
        .or_else(|| row.get("id"))
        .and_then(Value::as_i64)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_the_row_and_its_answer_decides() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[1, 2, 3].map(|id| (id, "NEW", fresh(minutes(-id)))),
        );
        let (url, seen) = serve();
        let service = Http::new(&url)
            .expect("an address")
            .handler()
            .expect("a handler");
        let test = at_noon();
        let adopted = test
            .backstop
            .adopted_table(&table(&database, FIBONACCI).handler(RowJobHandler::new(service)));
        let pass = run(&adopted, noon()).await;
        assert_eq!(
            (pass.succeeded, pass.failed),
            (1, 2),
            "{} {pass:?}",
            database.url()
        );
        let mut told: Vec<&str> = pass
            .failures
            .iter()
            .map(|failure| failure.error.as_str())
            .collect();
        told.sort_unstable();
        assert!(
            told[0].contains("500") && told[1].contains("503"),
            "{told:?}"
        );
        let mut seen = seen.lock().expect("requests").clone();
        seen.sort_by_key(|(_, row)| id(row));
        assert!(
            seen.iter()
                .all(|(line, _)| line == "POST /invoice HTTP/1.1"),
            "{seen:?}"
        );
        assert_eq!(
            seen.iter().map(|(_, row)| id(row)).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3)]
        );
        assert!(
            seen.iter()
                .all(|(_, row)| row.as_object().is_some_and(|row| row.len() == 6)),
            "{seen:?}"
        );
        assert_eq!(
            states(&adopted, noon()).await,
            [0, 2, 1],
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_has_no_time_leaves_its_row_and_one_that_never_will_makes_it_an_error() {
    // The row is on stdin; 75 is for later, 65 for never.
    const LINE: &str =
        r#"read row; case "$row" in *'"ID":1,'*|*'"id":1,'*) exit 75;; *) exit 65;; esac"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[1, 2].map(|id| (id, "NEW", fresh(minutes(-id)))),
        );
        let test = at_noon();
        let adopted = test.backstop.adopted_table(
            &table(&database, FIBONACCI).handler(RowJobHandler::new(Exec::shell(LINE))),
        );
        let pass = run(&adopted, noon()).await;
        assert_eq!(
            (pass.released, pass.failed),
            (1, 1),
            "{} {pass:?}",
            database.url()
        );
        assert_eq!(
            states(&adopted, noon()).await,
            [1, 1, 0],
            "{}",
            database.url()
        );
        assert_eq!(
            database.count("BACKLOG WHERE ID = 1 AND FAILURES = 0 AND LAST_FAILURE IS NULL"),
            1
        );
        assert_eq!(
            database.count("BACKLOG WHERE ID = 2 AND FAILURES = 1"),
            1,
            "{}",
            database.url()
        );
        assert_eq!(
            due(&adopted, noon()).await,
            [json!(1)],
            "{}",
            database.url()
        );
        assert_eq!(
            due(&adopted, minutes(1)).await,
            [json!(1), json!(2)],
            "a row is never given up for that"
        );
    }
}
