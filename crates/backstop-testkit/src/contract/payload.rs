//! Payloads keep every byte.

use crate::given::{LEASE, Scene, job};
use backstop_core::Span;
use backstop_core::amend::Filter;
use backstop_core::limits::PAYLOAD_BYTES_MAX;
use backstop_core::port::Store;
use std::sync::Arc;

/// Claims, seizures, lookups and lists return the payload unchanged, and no store interprets it.
pub async fn payload_bytes_come_back_identical(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (name, bytes) in payloads() {
        scene.insert([job("q", name).payload(bytes.clone())]).await;
        // Comparing without printing: a mebibyte in an assertion message helps nobody.
        let same = |payload: &backstop_core::Payload| payload.as_bytes() == bytes;
        assert!(same(&scene.job(name).await.payload), "{name}, ready");
        assert!(same(&scene.claim_one("q").await.payload), "{name}, claimed");
        scene.pass(LEASE.plus(Span::micros(1)));
        let seized = scene.seize("rescuer").await;
        assert!(same(&seized[0].run.payload), "{name}, seized");
        scene
            .settle(&seized[0].run.lease, crate::given::dead())
            .await;
        assert!(same(&scene.job(name).await.payload), "{name}, dead");
    }
    let listed = scene.list(&Filter::default()).await;
    let mut listed: Vec<Vec<u8>> = listed
        .iter()
        .map(|job| job.payload.as_bytes().to_vec())
        .collect();
    let mut all: Vec<Vec<u8>> = payloads().into_iter().map(|(_, bytes)| bytes).collect();
    listed.sort();
    all.sort();
    assert!(listed == all, "a listed payload differs");
}

fn payloads() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("empty", Vec::new()),
        ("null", text("null")),
        ("an escaped NUL", text(r#"{"a":"\u0000"}"#)),
        ("raw NUL bytes", b"\0\0{\"a\":\"\0\"}\0".to_vec()),
        ("a lone surrogate", text(r#""\ud800""#)),
        ("2^63", text("9223372036854775808")),
        ("1e400", text("1e400")),
        (
            "a float of many digits",
            text("0.1000000000000000055511151231257827"),
        ),
        ("minus zero", text("-0.0")),
        ("duplicate keys", text(r#"{"a":1,"a":2}"#)),
        ("white space", text(" [1 ,\t2]\r\n")),
        ("unordered keys", text(r#"{"b":1,"a":{"d":1,"c":2}}"#)),
        ("unicode", text("\"é 名前 🙂 \u{2028}\"")),
        ("not UTF-8", vec![0xff, 0xfe, 0x80, b'"', 0xc3, 0x28]),
        ("every byte", (0..=255).collect()),
        (
            "a mebibyte",
            (0..PAYLOAD_BYTES_MAX).map(|n| (n % 251) as u8).collect(),
        ),
    ]
}
