use super::*;

/// A server without any problem.
fn sound() -> ServerSettings {
    let on = || "on".to_owned();
    ServerSettings {
        version: "17.2".to_owned(),
        version_number: 170_002,
        fsync: on(),
        synchronous_commit: on(),
        full_page_writes: on(),
        autovacuum: on(),
        statement_timeout: "4500ms".to_owned(),
        data_checksums: on(),
        standby_names: String::new(),
        is_standby: false,
        connections_max: 100,
        connections: 10,
        snapshot_secs: None,
        database: "shop".to_owned(),
        bytes: 0,
        sees_others: true,
    }
}

#[track_caller]
fn check(finding: &StoreFinding, grade: FindingSeverity, what: &str) {
    assert_eq!(finding.severity, grade, "{finding:?}");
    assert!(finding.what.contains(what), "{finding:?}");
    assert_eq!(
        finding.advice.is_some(),
        grade != FindingSeverity::Good,
        "what is wrong says what to do: {finding:?}"
    );
}

fn crash_settings(settings: &ServerSettings) -> [StoreFinding; 2] {
    [fsync(settings), full_page_writes(settings)]
}

#[test]
fn a_sound_server_is_good_in_every_respect() {
    let settings = sound();
    for finding in crash_settings(&settings) {
        check(&finding, FindingSeverity::Good, "= on");
    }
    check(
        &version(&settings),
        FindingSeverity::Good,
        "PostgreSQL 17.2",
    );
    check(
        &synchronous_commit(&settings, CommitMode::Durable),
        FindingSeverity::Good,
        "synchronous_commit = on",
    );
    check(
        &standby(&settings),
        FindingSeverity::Good,
        "without synchronous standbys",
    );
    check(
        &autovacuum(&settings),
        FindingSeverity::Good,
        "autovacuum = on",
    );
    check(
        &snapshot(&settings),
        FindingSeverity::Good,
        "no transaction",
    );
    check(
        &statement_timeout(&settings, PoolerMode::None),
        FindingSeverity::Good,
        "4500ms",
    );
    check(
        &connections(&settings, 8),
        FindingSeverity::Good,
        "10 of 100",
    );
    assert!(checksums(&settings).is_none());
    assert!(
        promise(&settings, CommitMode::Durable)
            .contains("survives a crash of this process and of the server")
    );
}

#[test]
fn a_server_that_does_not_wait_for_its_disk_promises_nothing() {
    for settings in [
        ServerSettings {
            fsync: "off".to_owned(),
            ..sound()
        },
        ServerSettings {
            full_page_writes: "off".to_owned(),
            ..sound()
        },
    ] {
        let bad: Vec<StoreFinding> = crash_settings(&settings)
            .into_iter()
            .filter(|finding| finding.severity != FindingSeverity::Good)
            .collect();
        assert_eq!(bad.len(), 1);
        check(&bad[0], FindingSeverity::Bad, "= off");
        assert!(promise(&settings, CommitMode::Durable).contains("may lose or damage everything"));
    }
}

#[test]
fn a_commit_that_does_not_wait_may_lose_the_last_moments() {
    let off = ServerSettings {
        synchronous_commit: "off".to_owned(),
        ..sound()
    };
    check(
        &synchronous_commit(&off, CommitMode::Durable),
        FindingSeverity::Bad,
        "synchronous_commit = off",
    );
    check(
        &synchronous_commit(&sound(), CommitMode::Quick),
        FindingSeverity::Warning,
        "relaxed",
    );
    for promise in [
        promise(&off, CommitMode::Durable),
        promise(&sound(), CommitMode::Quick),
    ] {
        assert!(promise.contains("may lose the last moments"), "{promise}");
    }
    let local = ServerSettings {
        synchronous_commit: "local".to_owned(),
        ..sound()
    };
    check(
        &synchronous_commit(&local, CommitMode::Durable),
        FindingSeverity::Good,
        "local",
    );
}

#[test]
fn a_synchronous_standby_is_promised_only_if_commits_wait_for_it() {
    let with = |commit: &str| ServerSettings {
        synchronous_commit: commit.to_owned(),
        standby_names: "s1".to_owned(),
        ..sound()
    };
    for commit in ["remote_apply", "on", "remote_write"] {
        assert!(
            promise(&with(commit), CommitMode::Durable).contains("synchronous standby lives"),
            "{commit}"
        );
    }
    assert!(!promise(&with("local"), CommitMode::Durable).contains("standby"));
    check(
        &standby(&with("on")),
        FindingSeverity::Good,
        "synchronous standbys: s1",
    );
    check(
        &standby(&ServerSettings {
            is_standby: true,
            ..sound()
        }),
        FindingSeverity::Bad,
        "in recovery",
    );
}

#[test]
fn versions_that_damage_indexes_are_told() {
    for (number, grade) in [
        (140_000, FindingSeverity::Bad),
        (140_003, FindingSeverity::Bad),
        (140_004, FindingSeverity::Good),
        (150_000, FindingSeverity::Good),
    ] {
        check(
            &version(&ServerSettings {
                version_number: number,
                ..sound()
            }),
            grade,
            "PostgreSQL",
        );
    }
}

#[test]
fn what_only_slows_down_is_a_warning() {
    check(
        &autovacuum(&ServerSettings {
            autovacuum: "off".to_owned(),
            ..sound()
        }),
        FindingSeverity::Warning,
        "autovacuum = off",
    );
    let held = |secs| ServerSettings {
        snapshot_secs: Some(secs),
        ..sound()
    };
    check(
        &snapshot(&held(SNAPSHOT_SECS_MAX)),
        FindingSeverity::Good,
        "no transaction",
    );
    check(
        &snapshot(&held(SNAPSHOT_SECS_MAX + 1)),
        FindingSeverity::Warning,
        "301 s",
    );
    let seen = snapshot(&ServerSettings {
        sees_others: false,
        ..sound()
    });
    assert!(
        seen.severity == FindingSeverity::Good && seen.what.contains("of this role"),
        "it tells no more than it sees: {seen:?}"
    );
    assert!(
        seen.advice
            .is_some_and(|advice| advice.contains("pg_read_all_stats"))
    );
    check(
        &snapshot(&ServerSettings {
            sees_others: false,
            ..held(301)
        }),
        FindingSeverity::Warning,
        "301 s",
    );
    let full = |connections| ServerSettings {
        connections,
        ..sound()
    };
    check(&connections(&full(90), 8), FindingSeverity::Good, "up to 9");
    check(
        &connections(&full(91), 8),
        FindingSeverity::Warning,
        "91 of 100",
    );
    let endless = ServerSettings {
        statement_timeout: "0".to_owned(),
        ..sound()
    };
    for (pooler, advice) in [
        (PoolerMode::Transaction, "ALTER ROLE"),
        (PoolerMode::None, "`options`"),
    ] {
        let finding = statement_timeout(&endless, pooler);
        check(&finding, FindingSeverity::Warning, "statement_timeout = 0");
        assert!(finding.advice.is_some_and(|said| said.contains(advice)));
    }
    let unchecked = checksums(&ServerSettings {
        data_checksums: "off".to_owned(),
        ..sound()
    });
    assert!(unchecked.is_some_and(
        |finding| finding.severity == FindingSeverity::Good && finding.advice.is_some()
    ));
}
