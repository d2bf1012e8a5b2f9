use super::*;

fn met(nodes: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
    nodes
        .iter()
        .map(|(node, id)| ((*node).to_owned(), id.map(str::to_owned)))
        .collect()
}

#[test]
fn a_server_is_another_if_its_id_was_not_there_before() {
    let mut known = BTreeMap::new();
    assert!(
        !record_servers(&mut known, met(&[("a", Some("1")), ("b", Some("2"))])),
        "the first are no others"
    );
    assert!(!record_servers(
        &mut known,
        met(&[("a", Some("1")), ("b", Some("2"))])
    ));
    assert!(
        record_servers(&mut known, met(&[("a", Some("3")), ("b", Some("2"))])),
        "a was started again"
    );
    assert!(
        record_servers(&mut known, met(&[("c", Some("4")), ("b", Some("2"))])),
        "c took the place of a"
    );
    assert!(
        !record_servers(&mut known, met(&[("c", Some("2")), ("b", Some("4"))])),
        "both were known"
    );
}

#[test]
fn a_server_that_does_not_answer_for_a_while_is_the_one_it_was() {
    let mut known = BTreeMap::new();
    record_servers(&mut known, met(&[("a", Some("1")), ("b", Some("2"))]));
    assert!(!record_servers(
        &mut known,
        met(&[("a", None), ("b", Some("2"))])
    ));
    assert!(!record_servers(
        &mut known,
        met(&[("a", Some("1")), ("b", Some("2"))])
    ));
    assert!(!record_servers(
        &mut known,
        met(&[("a", None), ("b", Some("2"))])
    ));
    assert!(
        record_servers(&mut known, met(&[("a", Some("5")), ("b", Some("2"))])),
        "it came back as another"
    );
}

fn range(host: &str, port: i64) -> Value {
    let node = |host: &str, port| {
        Value::Array(vec![
            Value::BulkString(host.as_bytes().to_vec()),
            Value::Int(port),
        ])
    };
    Value::Array(vec![
        Value::Int(0),
        Value::Int(9),
        node(host, port),
        node("replica", 1),
    ])
}

#[test]
fn the_masters_are_read_from_the_slots() {
    let slots = Value::Array(vec![range("a", 1), range("b", 2), range("a", 1)]);
    assert_eq!(
        masters(slots),
        Some(["a:1", "b:2"].map(str::to_owned).into())
    );
    assert_eq!(
        masters(Value::Array(vec![range("", 1)])),
        None,
        "one whose address nobody tells"
    );
}

#[test]
fn a_master_that_is_gone_takes_no_other_answer_with_it() {
    let gone = || (String::from("gone"), Err(too_slow()));
    let there = || (String::from("there"), Ok(Value::Okay));
    let refused = || {
        (
            String::from("strict"),
            Err(RedisError::from((ErrorKind::AuthenticationFailed, "no"))),
        )
    };
    let answers = reachable_of(vec![gone(), there()]).expect("one of them answered");
    assert_eq!(
        answers,
        [
            ("gone".to_owned(), None),
            ("there".to_owned(), Some(Value::Okay))
        ]
    );
    assert!(
        reachable_of(vec![gone(), gone()]).is_err(),
        "nobody answered"
    );
    assert!(
        reachable_of(vec![there(), refused()]).is_err(),
        "what is refused is said"
    );
}
