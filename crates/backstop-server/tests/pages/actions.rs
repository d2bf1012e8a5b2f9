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
    assert!(first.contains("rel=\"next\" href=\"/audit?skip=100\""), "{first}");
    let rest = site.page("/audit?skip=100").await;
    assert_eq!(rest.matches("queue pause").count(), 20);
}
