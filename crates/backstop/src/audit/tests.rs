use super::*;
use crate::testing::{TestBackstop, start};
use backstop_core::QueueName;
use backstop_core::port::{CellSwap, QueueState};
use backstop_core::redact::{REDACTED, Redaction};

fn reason(text: &str) -> AuditReason {
    text.parse().unwrap()
}

async fn newest(test: &TestBackstop) -> AuditEntry {
    test.backstop
        .audit("")
        .entries(1)
        .await
        .unwrap()
        .pop()
        .unwrap()
}

#[tokio::test]
async fn a_reason_stands_in_every_entry_from_there_on_and_in_no_other() {
    let test = start();
    let ada = test.backstop.changes("ada");
    let queue: QueueName = "q".parse().unwrap();
    for (changes, expected) in [
        (
            ada.clone().because(reason("down until noon")),
            Some("down until noon"),
        ),
        (ada.clone().because(None), None),
        (
            ada.clone()
                .because(reason("one"))
                .because(reason("another")),
            Some("another"),
        ),
        (ada, None),
    ] {
        test.clock.advance(backstop_core::Span::secs(1));
        test.backstop
            .store()
            .set_queue_state(queue.clone(), QueueState::Active, test.backstop.now())
            .await
            .unwrap();
        changes.pause(&queue).await.unwrap();
        assert_eq!(newest(&test).await.reason.as_deref(), expected);
    }
}

#[tokio::test]
async fn whoever_is_named_after_the_reason_has_it_still() {
    let test = start();
    let fixed = test.backstop.audit("").because(reason("fixed")).by("ada");
    let change = async { Ok::<_, StoreError>((1, ())) };
    fixed.record("clear", Value::Null, change).await.unwrap();
    let entry = newest(&test).await;
    assert_eq!(
        (entry.who.as_str(), entry.reason.as_deref()),
        ("ada", Some("fixed"))
    );
}

#[tokio::test]
async fn secrets_of_a_reason_are_neither_kept_nor_shown() {
    let test = start();
    let audit = test
        .backstop
        .audit("ada")
        .because(reason("rotated, password=hunter2"));
    let noted = audit.open_entry("queue pause", Value::Null).await.unwrap();
    audit.record_end(noted, 1, None).await;
    let part = audit.journal().page::<AuditEntry>(None, 10).await.unwrap();
    let hidden = format!("rotated, password={REDACTED}");
    assert_eq!(part.entries[0].1.reason.as_deref(), Some(hidden.as_str()));

    // What is known to be secret only later is not shown from then on.
    let audit = test.backstop.audit("ada").because(reason("pin=1234"));
    test.clock.advance(backstop_core::Span::secs(1));
    audit.open_entry("queue pause", Value::Null).await.unwrap();
    let backstop = test.backstop.clone().redacting(Redaction::of(["pin"]));
    let page = backstop.audit("").page(None, 1, |_| true).await.unwrap();
    assert_eq!(page.entries[0].reason.as_deref(), Some("pin=[redacted]"));
    assert_eq!(backstop.audit("").entries(1).await.unwrap(), page.entries);
}

#[tokio::test]
async fn entries_without_a_reason_read_and_are_written_as_before() {
    let test = start();
    let old =
        br#"{"at":"2025-12-31T23:00:00Z","who":"ada","what":"requeue","selection":{"all":true},"count":3}"#;
    let name = format!("{PREFIX}-0000000000000000001-0000000000000001");
    let swap = CellSwap {
        name,
        seen: None,
        version: 1,
        value: Some(old.to_vec()),
    };
    test.backstop.store().swap(vec![swap]).await.unwrap();
    let entry = newest(&test).await;
    assert_eq!(
        (entry.who.as_str(), entry.count, entry.reason.clone()),
        ("ada", Some(3), None)
    );
    assert_eq!(serde_json::to_vec(&entry).unwrap(), old);
}

#[tokio::test]
async fn a_flood_of_entries_by_one_caller_leaves_those_of_others() {
    let test = start();
    let now = test.backstop.now();
    let write = |who: &str, number: usize| {
        let micros = i64::try_from(number).expect("a test has few entries");
        let at = now.after(backstop_core::Span::micros(micros));
        let entry =
            json!({ "at": at, "who": who, "what": "queue pause", "selection": null, "count": 1 });
        let name = format!("{PREFIX}-{:019}-{number:016x}", i64::MAX - at.as_micros());
        CellSwap {
            name,
            seen: None,
            version: 1,
            value: Some(serde_json::to_vec(&entry).unwrap()),
        }
    };
    let swaps: Vec<CellSwap> = std::iter::once(write("ada", 0))
        .chain((1..=AUDIT_RECENT_MAX + 500).map(|number| write("flood", number)))
        .collect();
    for part in swaps.chunks(CELLS_MAX) {
        test.backstop.store().swap(part.to_vec()).await.unwrap();
    }
    for _ in 0..2 {
        trim::trim(&test.backstop, now).await.unwrap();
    }
    let audit = test.backstop.audit("");
    let entries = audit
        .journal()
        .newest::<AuditEntry>(usize::MAX)
        .await
        .unwrap();
    assert_eq!(entries.len(), AUDIT_RECENT_MAX);
    assert_eq!(
        entries.last().unwrap().who,
        "ada",
        "the oldest of all is still there"
    );
}
