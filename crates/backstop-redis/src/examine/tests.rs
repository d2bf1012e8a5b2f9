use super::*;

fn node(append: Option<Append>, info: &str) -> Node {
    Node {
        name: "server".to_owned(),
        info: info.to_owned(),
        append,
    }
}

#[test]
fn the_promise_is_that_of_the_weakest_master() {
    let check = |appends: &[Option<Append>], expected: &str| {
        let nodes: Vec<Node> = appends.iter().map(|append| node(*append, "")).collect();
        assert!(
            promise(&nodes).contains(expected),
            "{appends:?}: {}",
            promise(&nodes)
        );
    };
    check(
        &[Some(Append::Always), Some(Append::Always)],
        "survives a crash of Redis and a power cut",
    );
    check(
        &[Some(Append::Always), Some(Append::EverySecond)],
        "two seconds",
    );
    check(
        &[Some(Append::EverySecond), Some(Append::Off)],
        "may lose everything",
    );
    check(&[Some(Append::Off), None], "may lose everything");
    check(&[Some(Append::Always), None], "does not tell");
    check(
        &[Some(Append::Always), Some(Append::NotOnRewrite)],
        "rewrites its log",
    );
}

#[test]
fn what_the_log_says_is_graded() {
    let check = |append, grade| assert_eq!(log(&node(append, "")).grade, grade, "{append:?}");
    check(None, Grade::Warning);
    check(Some(Append::Off), Grade::Bad);
    check(Some(Append::Whenever), Grade::Bad);
    check(Some(Append::NotOnRewrite), Grade::Warning);
    check(Some(Append::EverySecond), Grade::Warning);
    check(Some(Append::Always), Grade::Good);
    assert_eq!(
        log(&node(Some(Append::Always), "aof_last_write_status:err")).grade,
        Grade::Bad
    );
}

#[test]
fn the_log_is_read_from_info_and_config() {
    let config = |when: &str| Some(vec![(b"appendfsync".to_vec(), when.as_bytes().to_vec())]);
    assert_eq!(
        append("aof_enabled:0\r\n", config("always")),
        Some(Append::Off)
    );
    assert_eq!(
        append("aof_enabled:1\r\n", config("always")),
        Some(Append::Always)
    );
    assert_eq!(
        append("aof_enabled:1\r\n", config("everysec")),
        Some(Append::EverySecond)
    );
    assert_eq!(append("aof_enabled:1\r\n", None), None);
}

#[test]
fn every_bad_value_is_graded_and_says_what_to_do() {
    let check = |finding: Finding, grade: Grade, what: &str| {
        assert_eq!(finding.grade, grade, "{finding:?}");
        assert!(finding.what.contains(what), "{finding:?}");
        assert_eq!(
            finding.advice.is_some(),
            grade != Grade::Good,
            "{finding:?}"
        );
    };
    let of = |info: &str| node(Some(Append::Always), info);
    check(
        eviction(&of("maxmemory_policy:noeviction")),
        Grade::Good,
        "noeviction",
    );
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-ttl",
        "",
    ] {
        check(
            eviction(&of(&format!("maxmemory_policy:{policy}"))),
            Grade::Bad,
            policy,
        );
    }
    check(
        snapshot(&of("rdb_last_bgsave_status:ok")),
        Grade::Good,
        "ok",
    );
    check(
        snapshot(&of("rdb_last_bgsave_status:err")),
        Grade::Warning,
        "err",
    );
    check(
        snapshot(&of("loading:1\r\nrdb_last_bgsave_status:ok")),
        Grade::Warning,
        "loading",
    );
    check(
        replication(&of("role:master\r\nconnected_slaves:2")),
        Grade::Good,
        "2 replicas",
    );
    check(replication(&of("role:slave")), Grade::Bad, "replica");
    check(gone("10.0.0.1:7000"), Grade::Bad, "10.0.0.1:7000");
}

#[test]
fn a_log_that_is_not_synced_while_it_is_rewritten_is_told() {
    let config = [
        ("appendfsync", "always"),
        ("no-appendfsync-on-rewrite", "yes"),
    ];
    let config = config.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(
        append("aof_enabled:1\r\n", Some(config.to_vec())),
        Some(Append::NotOnRewrite)
    );
    let config = vec![(b"appendfsync".to_vec(), b"no".to_vec())];
    assert_eq!(
        append("aof_enabled:1\r\n", Some(config)),
        Some(Append::Whenever)
    );
}
