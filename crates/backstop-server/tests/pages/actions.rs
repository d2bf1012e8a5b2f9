//! The audit's page.

use crate::given::ready;
use crate::site::Site;

#[tokio::test]
async fn the_audit_says_who_did_what_to_how_many_and_can_be_filtered() {
    let site = Site::new("");
    let id = ready(&site.test.backstop, "emails", "a").await;
    site.post("/jobs/act", &format!("action=cancel&id={id}")).await;
    site.post("/queues/emails/pause", "").await;
    let page = site.page("/audit").await;
    assert!(
        page.contains("job cancel") && page.contains("queue pause") && page.contains("token ada"),
        "{page}"
    );
    assert!(page.contains(&id.to_string()), "{page}");
    let found = site.page("/audit?what=pause").await;
    assert!(found.contains("queue pause") && !found.contains("job cancel"), "{found}");
    assert!(site.page("/audit?who=nobody").await.contains("No entry fits"));
}

#[tokio::test]
async fn a_long_audit_comes_in_pages() {
    let site = Site::new("");
    for n in 0..120 {
        let queue = format!("q{n}").parse().unwrap();
        site.test.backstop.changes("ada").pause(&queue).await.unwrap();
    }
    let first = site.page("/audit").await;
    assert_eq!(first.matches("queue pause").count(), 100);
    let next = next_of(&first).unwrap();
    assert!(next.starts_with("/audit?after="), "{next}");
    let rest = site.page(&next).await;
    assert_eq!(rest.matches("queue pause").count(), 20);
    assert!(next_of(&rest).is_none() && rest.contains("rel=\"prev\" href=\"/audit\""), "{rest}");
    for n in 0..120 {
        assert!(
            [&first, &rest].into_iter().filter(|page| page.contains(&format!("q{n}&#34;"))).count() == 1,
            "q{n}"
        );
    }
}

/// The address of the page behind this one.
fn next_of(page: &str) -> Option<String> {
    let link = page.split_once("rel=\"next\" href=\"")?.1.split_once('"')?.0;
    Some(link.replace("&#38;", "&"))
}

#[tokio::test]
async fn a_filter_looks_at_a_bounded_part_of_the_audit_and_offers_to_go_on() {
    let site = Site::new("");
    let audit = site.test.backstop.audit("ada");
    audit.note("job cancel", serde_json::json!({ "the": "oldest" })).await.unwrap();
    site.test.clock.advance(backstop::Span::secs(1));
    for _ in 0..backstop::audit::LOOKS_MAX {
        audit.note("queue pause", serde_json::Value::Null).await.unwrap();
    }
    let first = site.page("/audit?what=cancel").await;
    assert!(first.contains("None of the 1,000 entries that were looked at fits"), "{first}");
    assert!(first.contains("Go on looking") && !first.contains("No entry fits"), "{first}");
    let rest = site.page(&next_of(&first).unwrap()).await;
    assert!(rest.contains("job cancel") && next_of(&rest).is_none(), "{rest}");
}
