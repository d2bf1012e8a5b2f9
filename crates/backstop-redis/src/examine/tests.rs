use super::*;

fn node(append: Option<AppendLogMode>, info: &str) -> MasterInfo {
    MasterInfo {
        name: "server".to_owned(),
        info: info.to_owned(),
        append,
    }
}

#[test]
fn the_promise_is_that_of_the_weakest_master() {
    let check = |appends: &[Option<AppendLogMode>], expected: &str| {
        let nodes: Vec<MasterInfo> = appends.iter().map(|append| node(*append, "")).collect();
        assert!(
            promise(&nodes).contains(expected),
            "{appends:?}: {}",
            promise(&nodes)
        );
    };
    check(
        &[Some(AppendLogMode::Always), Some(AppendLogMode::Always)],
        "survives a crash of Redis and a power cut",
    );
    check(
        &[
            Some(AppendLogMode::Always),
            Some(AppendLogMode::EverySecond),
        ],
        "two seconds",
    );
    check(
        &[Some(AppendLogMode::EverySecond), Some(AppendLogMode::Off)],
        "may lose everything",
    );
    check(&[Some(AppendLogMode::Off), None], "may lose everything");
    check(&[Some(AppendLogMode::Always), None], "does not tell");
    check(
        &[
            Some(AppendLogMode::Always),
            Some(AppendLogMode::NotOnRewrite),
        ],
        "rewrites its log",
    );
}

#[test]
fn what_the_log_says_is_graded() {
    let check = |append, grade| assert_eq!(log(&node(append, "")).severity, grade, "{append:?}");
    check(None, FindingSeverity::Warning);
    check(Some(AppendLogMode::Off), FindingSeverity::Bad);
    check(Some(AppendLogMode::Whenever), FindingSeverity::Bad);
    check(Some(AppendLogMode::NotOnRewrite), FindingSeverity::Warning);
    check(Some(AppendLogMode::EverySecond), FindingSeverity::Warning);
    check(Some(AppendLogMode::Always), FindingSeverity::Good);
    assert_eq!(
        log(&node(
            Some(AppendLogMode::Always),
            "aof_last_write_status:err"
        ))
        .severity,
        FindingSeverity::Bad
    );
}

#[test]
fn the_log_is_read_from_info_and_config() {
    let config = |when: &str| Some(vec![(b"appendfsync".to_vec(), when.as_bytes().to_vec())]);
    assert_eq!(
        append("aof_enabled:0\r\n", config("always")),
        Some(AppendLogMode::Off)
    );
    assert_eq!(
        append("aof_enabled:1\r\n", config("always")),
        Some(AppendLogMode::Always)
    );
    assert_eq!(
        append("aof_enabled:1\r\n", config("everysec")),
        Some(AppendLogMode::EverySecond)
    );
    assert_eq!(append("aof_enabled:1\r\n", None), None);
}

#[test]
fn every_bad_value_is_graded_and_says_what_to_do() {
    let check = |finding: StoreFinding, grade: FindingSeverity, what: &str| {
        assert_eq!(finding.severity, grade, "{finding:?}");
        assert!(finding.what.contains(what), "{finding:?}");
        assert_eq!(
            finding.advice.is_some(),
            grade != FindingSeverity::Good,
            "{finding:?}"
        );
    };
    let of = |info: &str| node(Some(AppendLogMode::Always), info);
    check(
        eviction(&of("maxmemory_policy:noeviction")),
        FindingSeverity::Good,
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
            FindingSeverity::Bad,
            policy,
        );
    }
    check(
        snapshot(&of("rdb_last_bgsave_status:ok")),
        FindingSeverity::Good,
        "ok",
    );
    check(
        snapshot(&of("rdb_last_bgsave_status:err")),
        FindingSeverity::Warning,
        "err",
    );
    check(
        snapshot(&of("loading:1\r\nrdb_last_bgsave_status:ok")),
        FindingSeverity::Warning,
        "loading",
    );
    check(
        replication(&of("role:master\r\nconnected_slaves:2")),
        FindingSeverity::Good,
        "2 replicas",
    );
    check(
        replication(&of("role:slave")),
        FindingSeverity::Bad,
        "replica",
    );
    check(gone("10.0.0.1:7000"), FindingSeverity::Bad, "10.0.0.1:7000");
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
        Some(AppendLogMode::NotOnRewrite)
    );
    let config = vec![(b"appendfsync".to_vec(), b"no".to_vec())];
    assert_eq!(
        append("aof_enabled:1\r\n", Some(config)),
        Some(AppendLogMode::Whenever)
    );
}
