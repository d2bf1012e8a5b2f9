use super::*;

/// A server with nothing to say against it.
fn sound() -> Settings {
    let on = || "on".to_owned();
    Settings {
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
fn check(finding: &Finding, grade: Grade, what: &str) {
    assert_eq!(finding.grade, grade, "{finding:?}");
    assert!(finding.what.contains(what), "{finding:?}");
    assert_eq!(
        finding.advice.is_some(),
        grade != Grade::Good,
        "what is wrong says what to do: {finding:?}"
    );
}

fn crash_settings(settings: &Settings) -> [Finding; 2] {
    [fsync(settings), full_page_writes(settings)]
}

#[test]
fn a_sound_server_is_good_in_every_respect() {
    let settings = sound();
    for finding in crash_settings(&settings) {
        check(&finding, Grade::Good, "= on");
    }
    check(&version(&settings), Grade::Good, "PostgreSQL 17.2");
    check(
        &synchronous_commit(&settings, Commit::Durable),
        Grade::Good,
        "synchronous_commit = on",
    );
    check(
        &standby(&settings),
        Grade::Good,
        "without synchronous standbys",
    );
    check(&autovacuum(&settings), Grade::Good, "autovacuum = on");
    check(&snapshot(&settings), Grade::Good, "no transaction");
    check(
        &statement_timeout(&settings, Pooler::None),
        Grade::Good,
        "4500ms",
    );
    check(&connections(&settings, 8), Grade::Good, "10 of 100");
    assert!(checksums(&settings).is_none());
    assert!(
        promise(&settings, Commit::Durable)
            .contains("survives a crash of this process and of the server")
    );
}

#[test]
fn a_server_that_does_not_wait_for_its_disk_promises_nothing() {
    for settings in [
        Settings {
            fsync: "off".to_owned(),
            ..sound()
        },
        Settings {
            full_page_writes: "off".to_owned(),
            ..sound()
        },
    ] {
        let bad: Vec<Finding> = crash_settings(&settings)
            .into_iter()
            .filter(|finding| finding.grade != Grade::Good)
            .collect();
        assert_eq!(bad.len(), 1);
        check(&bad[0], Grade::Bad, "= off");
        assert!(promise(&settings, Commit::Durable).contains("may lose or damage everything"));
    }
}

#[test]
fn a_commit_that_does_not_wait_may_lose_the_last_moments() {
    let off = Settings {
        synchronous_commit: "off".to_owned(),
        ..sound()
    };
    check(
        &synchronous_commit(&off, Commit::Durable),
        Grade::Bad,
        "synchronous_commit = off",
    );
    check(
        &synchronous_commit(&sound(), Commit::Quick),
        Grade::Warning,
        "relaxed",
    );
    for promise in [
        promise(&off, Commit::Durable),
        promise(&sound(), Commit::Quick),
    ] {
        assert!(promise.contains("may lose the last moments"), "{promise}");
    }
    let local = Settings {
        synchronous_commit: "local".to_owned(),
        ..sound()
    };
    check(
        &synchronous_commit(&local, Commit::Durable),
        Grade::Good,
        "local",
    );
}

#[test]
fn a_synchronous_standby_is_promised_only_if_commits_wait_for_it() {
    let with = |commit: &str| Settings {
        synchronous_commit: commit.to_owned(),
        standby_names: "s1".to_owned(),
        ..sound()
    };
    for commit in ["remote_apply", "on", "remote_write"] {
        assert!(
            promise(&with(commit), Commit::Durable).contains("synchronous standby lives"),
            "{commit}"
        );
    }
    assert!(!promise(&with("local"), Commit::Durable).contains("standby"));
    check(
        &standby(&with("on")),
        Grade::Good,
        "synchronous standbys: s1",
    );
    check(
        &standby(&Settings {
            is_standby: true,
            ..sound()
        }),
        Grade::Bad,
        "in recovery",
    );
}

#[test]
fn versions_that_damage_indexes_are_told() {
    for (number, grade) in [
        (140_000, Grade::Bad),
        (140_003, Grade::Bad),
        (140_004, Grade::Good),
        (150_000, Grade::Good),
    ] {
        check(
            &version(&Settings {
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
        &autovacuum(&Settings {
            autovacuum: "off".to_owned(),
            ..sound()
        }),
        Grade::Warning,
        "autovacuum = off",
    );
    let held = |secs| Settings {
        snapshot_secs: Some(secs),
        ..sound()
    };
    check(
        &snapshot(&held(SNAPSHOT_SECS_MAX)),
        Grade::Good,
        "no transaction",
    );
    check(
        &snapshot(&held(SNAPSHOT_SECS_MAX + 1)),
        Grade::Warning,
        "301 s",
    );
    let seen = snapshot(&Settings {
        sees_others: false,
        ..sound()
    });
    assert!(
        seen.grade == Grade::Good && seen.what.contains("of this role"),
        "it tells no more than it sees: {seen:?}"
    );
    assert!(
        seen.advice
            .is_some_and(|advice| advice.contains("pg_read_all_stats"))
    );
    check(
        &snapshot(&Settings {
            sees_others: false,
            ..held(301)
        }),
        Grade::Warning,
        "301 s",
    );
    let full = |connections| Settings {
        connections,
        ..sound()
    };
    check(&connections(&full(90), 8), Grade::Good, "up to 9");
    check(&connections(&full(91), 8), Grade::Warning, "91 of 100");
    let endless = Settings {
        statement_timeout: "0".to_owned(),
        ..sound()
    };
    for (pooler, advice) in [
        (Pooler::Transaction, "ALTER ROLE"),
        (Pooler::None, "`options`"),
    ] {
        let finding = statement_timeout(&endless, pooler);
        check(&finding, Grade::Warning, "statement_timeout = 0");
        assert!(finding.advice.is_some_and(|said| said.contains(advice)));
    }
    let unchecked = checksums(&Settings {
        data_checksums: "off".to_owned(),
        ..sound()
    });
    assert!(
        unchecked.is_some_and(|finding| finding.grade == Grade::Good && finding.advice.is_some())
    );
}
