use super::*;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn listens(addr: SocketAddr) -> bool {
    TcpStream::connect(addr).is_ok()
}

#[test]
fn postgres_answers_restarts_and_is_gone_at_the_end() {
    let postgres = Postgres::start(postgres::Settings::default());
    assert_eq!(
        postgres
            .sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'backstop'")
            .trim(),
        "f"
    );
    assert_eq!(postgres.sql("SHOW fsync").trim(), "off");
    postgres.sql("CREATE TABLE kept (n int)");
    postgres.kill();
    assert!(!listens(postgres.addr()));
    postgres.restart();
    assert_eq!(postgres.sql("SELECT count(*) FROM kept").trim(), "0");
    postgres.kill_backends();
    let folder = PathBuf::from(postgres.sql("SHOW data_directory").trim());
    postgres.restart();
    postgres.stop();
    assert!(folder.exists());
    assert!(!listens(postgres.addr()));
    drop(postgres);
    assert!(!folder.exists(), "its folder goes with it");
}

#[test]
fn the_role_of_the_address_makes_schemas() {
    let url = postgres().url();
    let script = "CREATE SCHEMA made; SELECT 'yes'";
    let said = Command::new("psql")
        .args([&url, "-X", "-q", "-A", "-t", "-c", script])
        .output();
    assert_eq!(
        String::from_utf8_lossy(&said.expect("psql").stdout).trim(),
        "yes"
    );
    assert_ne!(postgres().fresh_url(), postgres().fresh_url());
}

#[test]
fn mariadb_gives_a_database_to_each_and_is_gone_at_the_end() {
    let mariadb = Mariadb::start();
    let (url, other) = (mariadb.fresh_url(), mariadb.fresh_url());
    assert_ne!(url, other);
    mariadb.sql_in(
        &url,
        "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)",
    );
    assert_eq!(mariadb.sql_in(&url, "SELECT n FROM kept").trim(), "7");
    let folder = PathBuf::from(mariadb.sql("SELECT @@datadir").trim());
    assert!(folder.exists());
    let addr = mariadb.addr();
    drop(mariadb);
    assert!(
        !folder.exists() && !listens(addr),
        "it goes with its folder"
    );
}

#[test]
fn redis_keeps_what_it_answered_when_it_is_killed() {
    let settings = redis::Settings {
        append: redis::Append::Always,
        ..Default::default()
    };
    let redis = Redis::start(settings);
    assert_eq!(redis.cli(&["set", "k", "v"]).trim(), "OK");
    redis.kill();
    assert!(!listens(redis.addr()));
    redis.restart();
    assert_eq!(redis.cli(&["get", "k"]).trim(), "v");
    redis.stop();
    assert!(!listens(redis.addr()));
}

#[test]
fn a_cluster_serves_all_slots_and_survives_a_master() {
    let cluster = Cluster::start(1);
    let owner = |key: &str| {
        let owns = |node: &&Redis| !node.cli(&["get", key]).starts_with("MOVED");
        cluster
            .masters()
            .into_iter()
            .find(owns)
            .expect("every slot has a master")
    };
    let master = owner("k");
    assert_eq!(master.cli(&["set", "k", "v"]).trim(), "OK");
    master.until_replicated();
    cluster.fail_over(master);
    let successor = owner("k");
    assert_ne!(successor.addr(), master.addr());
    assert_eq!(successor.cli(&["get", "k"]).trim(), "v");
    assert_eq!(cluster.masters().len(), 3);
}

#[test]
fn sentinels_promote_the_replica() {
    let sentinel = Sentinel::start();
    assert!(sentinel.url().starts_with("redis+sentinel://127.0.0.1:"));
    sentinel.fail_over();
    assert_eq!(sentinel.replica().cli(&["set", "k", "v"]).trim(), "OK");
}

#[test]
fn a_bouncer_passes_statements_on() {
    let bouncer = Bouncer::start(postgres());
    let said = Command::new("psql")
        .args([&bouncer.url(), "-X", "-A", "-t", "-c", "SELECT 7"])
        .output();
    assert_eq!(
        String::from_utf8_lossy(&said.expect("psql").stdout).trim(),
        "7",
        "{}",
        bouncer.log()
    );
}

/// What the next test runs as a process of its own, to be killed.
#[test]
fn victim() {
    if std::env::var_os("BACKSTOP_SERVER_VICTIM").is_some() {
        println!(
            "\nserver {}",
            Redis::start(redis::Settings::default()).addr()
        );
        std::thread::sleep(PATIENCE);
    }
}

#[test]
fn a_server_ends_with_a_process_that_is_killed() {
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "servers::tests::victim", "--nocapture"])
        .env("BACKSTOP_SERVER_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
    let addr: SocketAddr = lines
        .find_map(|line| {
            line.expect("text")
                .strip_prefix("server ")
                .map(|addr| addr.parse().expect("an address"))
        })
        .expect("it says where");
    assert!(listens(addr));
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    until(|| !listens(addr));
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
