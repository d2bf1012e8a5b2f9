use super::*;
use crate::job::JobId;
use crate::time::Span;
use proptest::prelude::*;
use serde_json::json;

fn key(text: &str) -> UniqueKey {
    UniqueKey::new(text).expect("a key")
}

fn held(state: Option<JobState>) -> FindingFacts {
    FindingFacts {
        holder: Some(UniqueKeyHolder {
            job: JobId::named("holder"),
            state,
        }),
        ..FindingFacts::default()
    }
}

fn check(known: FindingFacts, expected: FindingDecision) {
    assert_eq!(judge([(&key("k"), known)], 3), [expected], "{known:?}");
}

#[test]
fn a_row_whose_job_is_queued_running_or_waiting_is_alive() {
    for state in [
        JobState::Scheduled,
        JobState::Ready,
        JobState::Running,
        JobState::Retrying,
    ] {
        check(held(Some(state)), FindingDecision::Alive);
        check(
            FindingFacts {
                is_dead: true,
                recovered: 9,
                ..held(Some(state))
            },
            FindingDecision::Alive,
        );
    }
}

#[test]
fn a_row_whose_job_is_dead_is_not_recovered() {
    check(
        FindingFacts {
            is_dead: true,
            ..FindingFacts::default()
        },
        FindingDecision::Dead,
    );
    check(
        FindingFacts {
            is_dead: true,
            recovered: 9,
            ..FindingFacts::default()
        },
        FindingDecision::Dead,
    );
    check(held(Some(JobState::Dead)), FindingDecision::Dead);
}

#[test]
fn a_key_that_outlasts_its_job_keeps_its_row_from_being_done_twice() {
    for state in [Some(JobState::Done), Some(JobState::Cancelled), None] {
        check(held(state), FindingDecision::Spent);
    }
}

#[test]
fn a_lost_row_is_recovered_until_that_is_in_vain() {
    for recovered in 0..3 {
        check(
            FindingFacts {
                recovered,
                ..FindingFacts::default()
            },
            FindingDecision::Recover,
        );
    }
    check(
        FindingFacts {
            recovered: 3,
            ..FindingFacts::default()
        },
        FindingDecision::GiveUp,
    );
}

#[test]
fn rows_with_one_key_get_one_job() {
    let (a, b) = (key("a"), key("b"));
    let alive = held(Some(JobState::Ready));
    let judged = judge(
        [
            (&a, FindingFacts::default()),
            (&a, FindingFacts::default()),
            (&b, alive),
            (&b, alive),
        ],
        3,
    );
    assert_eq!(
        judged,
        [
            FindingDecision::Recover,
            FindingDecision::Repeated,
            FindingDecision::Alive,
            FindingDecision::Alive
        ]
    );
}

fn row() -> QueryRow {
    let columns: Vec<String> = ["id", "name", "amount", "gone", "Big"]
        .map(str::to_owned)
        .to_vec();
    let big = decimal("123456789012345678901234567890");
    QueryRow::new(
        columns.into(),
        vec![
            json!(7),
            json!("O'Brien {id}"),
            json!(1.5),
            Value::Null,
            big,
        ],
    )
}

fn fill(json: &Value) -> Value {
    PayloadTemplate::parse(json)
        .expect("a shape")
        .fill(&row())
        .expect("its columns are there")
}

#[test]
fn a_column_alone_keeps_its_type_and_between_text_it_is_text() {
    let payload = json!({"id": "{id}", "text": "no. {id}", "half": ["{amount}", "{ gone }"], "fixed": [true, 2], "in": {"n": "{name}"}});
    let filled = json!({"id": 7, "text": "no. 7", "half": [1.5, null], "fixed": [true, 2], "in": {"n": "O'Brien {id}"}});
    assert_eq!(
        fill(&payload),
        filled,
        "and what a value says is never a template"
    );
    assert_eq!(
        fill(&json!("{big}")),
        json!("123456789012345678901234567890")
    );
    assert_eq!(fill(&json!("{gone}-{id}")), json!("-7"));
    assert_eq!(
        PayloadTemplate::Row.fill(&row()).expect("the row")["name"],
        "O'Brien {id}"
    );
}

#[test]
fn braces_are_written_twice() {
    assert_eq!(fill(&json!("{{id}} {{{id}}}")), json!("{id} {7}"));
    for (text, expected) in [
        ("{id", "without its }"),
        ("a}b", "without its {"),
        ("{}", "without a column"),
        ("{ }", "without a column"),
        ("{a{b}}", "without its }"),
    ] {
        let refused = TextTemplate::parse(text).expect_err(text).to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn an_unknown_column_is_named_with_those_there_are() {
    let template = TextTemplate::parse("k:{nonsense}").expect("a template");
    let refused = template
        .check(row().columns())
        .expect_err("no such column")
        .to_string();
    let expected =
        "there is no column `nonsense` in the query; it has `id`, `name`, `amount`, `gone`, `Big`";
    assert_eq!(refused, expected);
    assert!(
        PayloadTemplate::parse(&json!({"a": ["{x}"]}))
            .expect("a shape")
            .check(row().columns())
            .is_err()
    );
    assert!(PayloadTemplate::Row.check(row().columns()).is_ok());
}

#[test]
fn a_key_is_never_made_of_null() {
    let template = TextTemplate::parse("k:{gone}").expect("a template");
    assert_eq!(
        template.fill(&row()),
        Err(InvalidRow::Null("gone".to_owned()))
    );
    assert_eq!(
        TextTemplate::parse("{id}:{name}")
            .expect("a template")
            .fill(&row()),
        Ok("7:O'Brien {id}".to_owned())
    );
}

#[test]
fn a_key_tells_whether_it_came_of_a_template() {
    let fits = |template: &str, text: &str| {
        TextTemplate::parse(template)
            .expect("a template")
            .fits(text)
    };
    for (template, text, expected) in [
        ("content_change:{id}", "content_change:7", true),
        ("content_change:{id}", "content_changes:7", false),
        ("a:{x}:b", "a:1:b", true),
        ("a:{x}:b", "a:1:b:b", true),
        ("a:{x}:b", "a:1:c", false),
        ("{x}-{y}", "1-2", true),
        ("{x}-{y}", "12", false),
        ("fixed", "fixed", true),
        ("fixed", "fixed1", false),
        ("{x}", "anything", true),
    ] {
        assert_eq!(fits(template, text), expected, "{template} and {text}");
    }
}

#[test]
fn a_row_is_known_by_its_id_or_its_first_column() {
    let named = |names: &[&str]| {
        let columns: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        QueryRow::new(columns.into(), vec![json!("first"), json!("second")]).id()
    };
    assert_eq!(named(&["a", "id"]), json!("second"));
    assert_eq!(named(&["a", "ID"]), json!("second"));
    assert_eq!(named(&["a", "b"]), json!("first"));
    assert_eq!(named(&[]), Value::Null);
}

#[test]
fn a_decimal_is_a_number_where_nothing_is_lost() {
    for (digits, expected) in [
        ("12", json!(12)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(u64::MAX)),
        ("18446744073709551616", json!("18446744073709551616")),
        ("1.50", json!(1.5)),
        ("0.1", json!(0.1)),
        ("+007.250", json!(7.25)),
        ("0.30000000000000004", json!(0.300_000_000_000_000_04)),
        ("123456789.0123456789", json!("123456789.0123456789")),
        ("NaN", json!("NaN")),
        ("1e5", json!("1e5")),
    ] {
        assert_eq!(decimal(digits), expected, "{digits}");
    }
}

fn bind(query: &str, dialect: SqlDialect) -> String {
    BoundQuery::new(query, dialect).expect(query).sql
}

#[test]
fn the_cutoff_becomes_a_parameter_of_its_database() {
    let query = "SELECT id FROM t WHERE a <= :cutoff AND b<:cutoff;\n";
    assert_eq!(
        bind(query, SqlDialect::Sqlite),
        "SELECT id FROM t WHERE a <= ?1 AND b<?1\n"
    );
    assert_eq!(
        bind(query, SqlDialect::Postgres),
        "SELECT id FROM t WHERE a <= $1 AND b<$1\n"
    );
    assert_eq!(
        bind(query, SqlDialect::Mysql),
        "SELECT id FROM t WHERE a <= ? AND b<?\n"
    );
    assert_eq!(
        BoundQuery::new(query, SqlDialect::Mysql)
            .expect("a query")
            .cutoffs,
        2
    );
}

#[test]
fn strings_names_and_comments_are_left_alone() {
    let all = [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql];
    for text in [
        "':cutoff'",
        "'it''s :cutoff'",
        "\":cutoff\"",
        "/* :cutoff ; */",
        "-- :cutoff ;\n",
        ":cutoffs",
        "x::text",
    ] {
        for dialect in all {
            let marker = BoundQuery::new(":cutoff", dialect).expect("a query").sql;
            assert_eq!(
                bind(&format!("{text} :cutoff"), dialect),
                format!("{text} {marker}"),
                "{dialect:?}"
            );
        }
    }
    for (text, dialect) in [
        ("`:cutoff`", SqlDialect::Mysql),
        ("`:cutoff`", SqlDialect::Sqlite),
        ("[:cutoff]", SqlDialect::Sqlite),
        ("'a\\' :cutoff'", SqlDialect::Mysql),
        ("\"a\\\" :cutoff\"", SqlDialect::Mysql),
        ("# :cutoff\n", SqlDialect::Mysql),
        ("E'a\\' :cutoff'", SqlDialect::Postgres),
        ("$$ :cutoff ; $$", SqlDialect::Postgres),
        ("$a$ :cutoff $$ $a$", SqlDialect::Postgres),
        ("/* /* :cutoff */ :cutoff */", SqlDialect::Postgres),
    ] {
        let marker = BoundQuery::new(":cutoff", dialect).expect("a query").sql;
        assert_eq!(
            bind(&format!("{text} :cutoff"), dialect),
            format!("{text} {marker}")
        );
    }
    assert_eq!(
        bind("a[1:2] ':' :cutoff", SqlDialect::Postgres),
        "a[1:2] ':' $1"
    );
    assert_eq!(bind("5--1 :cutoff", SqlDialect::Mysql), "5--1 ?");
    assert_eq!(bind("'a\\' :cutoff", SqlDialect::Postgres), "'a\\' $1");
}

#[test]
fn a_query_is_one_statement_with_a_cutoff() {
    for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql] {
        assert_eq!(
            BoundQuery::new("SELECT 1", dialect),
            Err(InvalidQuery::NoCutoff)
        );
        assert_eq!(
            BoundQuery::new("SELECT ':cutoff'", dialect),
            Err(InvalidQuery::NoCutoff)
        );
        assert_eq!(
            BoundQuery::new("SELECT :cutoff; DROP TABLE t", dialect),
            Err(InvalidQuery::Several)
        );
        assert!(BoundQuery::new("SELECT :cutoff ; -- the end\n ;", dialect).is_ok());
    }
    let wrapped =
        BoundQuery::new("SELECT :cutoff -- the end", SqlDialect::Postgres).expect("a query");
    assert_eq!(
        wrapped.as_json_rows(5),
        "SELECT row_to_json(q)::text FROM (\nSELECT $1 -- the end\n) AS q LIMIT 5"
    );
}

proptest! {
    #[test]
    fn any_text_is_taken_apart_without_harm(text in "\\PC*", which in 0..3_usize) {
        let dialect = [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql][which];
        let _ = BoundQuery::new(&text, dialect);
        let _ = TextTemplate::parse(&text).map(|template| template.fits(&text));
    }

    #[test]
    fn a_filled_key_fits_its_template(values in proptest::collection::vec("[a-z:]{0,5}", 2)) {
        let template = TextTemplate::parse("a:{x}:b:{y}").expect("a template");
        let columns: Vec<String> = vec!["x".to_owned(), "y".to_owned()];
        let row = QueryRow::new(columns.into(), values.into_iter().map(Value::from).collect());
        prop_assert!(template.fits(&template.fill(&row).expect("a key")));
    }
}

const BEGAN: Time = Time::from_millis(1_000_000_000);

fn turn(ended: bool) -> SweepTurn {
    SweepTurn {
        began: BEGAN,
        until: BEGAN.after(Span::minutes(10)),
        runner: "one".to_owned(),
        ended,
    }
}

fn check_turn(standing: Option<&SweepTurn>, after: Span, may: bool) {
    let begun = SweepTurn::begin(
        standing,
        "two",
        Span::minutes(30),
        Span::minutes(10),
        BEGAN.after(after),
    );
    assert_eq!(begun.is_ok(), may, "{standing:?} {after}");
}

#[test]
fn one_run_a_period_whoever_runs_it() {
    check_turn(None, Span::ZERO, true);
    check_turn(Some(&turn(true)), Span::minutes(29), false);
    check_turn(Some(&turn(true)), Span::minutes(30), true);
}

#[test]
fn a_runner_that_died_is_followed_when_its_time_is_over() {
    check_turn(Some(&turn(false)), Span::minutes(9), false);
    check_turn(Some(&turn(false)), Span::minutes(10), true);
    let taken = SweepTurn::begin(Some(&turn(false)), "two", Span::ZERO, Span::ZERO, BEGAN)
        .expect_err("it runs");
    assert_eq!(
        (taken.runner.as_str(), taken.again),
        ("one", BEGAN.after(Span::minutes(10)))
    );
}

#[test]
fn a_clock_that_was_set_back_stops_no_sweep() {
    let before = |minutes| BEGAN.before(Span::minutes(minutes));
    assert_eq!(
        SweepTurn::next(Some(&turn(true)), Span::minutes(30), before(2)),
        before(2)
    );
    assert!(
        SweepTurn::next(Some(&turn(false)), Span::minutes(30), before(1)) > before(1),
        "clocks differ a little"
    );
}

#[test]
fn a_cutoff_in_text_is_in_whole_seconds_of_utc() {
    let cutoff: Time = "2026-11-15T08:30:59.999999Z".parse().expect("a time");
    assert_eq!(cutoff_text(cutoff), "2026-11-15 08:30:59");
    assert_eq!(cutoff_text(Time::from_micros(-1)), "1969-12-31 23:59:59");
}

#[test]
fn a_query_that_begins_like_no_select_is_refused() {
    for query in [
        "SELECT 1",
        "  -- why\n/* and so */ select 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "((SELECT 1) UNION (SELECT 2))",
        "VALUES (1)",
        "TABLE a",
    ] {
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql] {
            assert_eq!(BoundQuery::check_reads(query, dialect), Ok(()), "{query}");
        }
    }
    for query in [
        "",
        "DELETE FROM a",
        "-- SELECT\nUPDATE a SET b = 1",
        "'SELECT'",
        "SELECTED",
        "; SELECT 1",
    ] {
        assert_eq!(
            BoundQuery::check_reads(query, SqlDialect::Postgres),
            Err(InvalidQuery::NotASelect),
            "{query}"
        );
    }
}
