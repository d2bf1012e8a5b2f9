//! The audit's page.

use crate::given::ready;
use crate::site::Site;

#[tokio::test]
async fn the_audit_says_who_did_what_to_how_many_and_can_be_filtered() {
    let site = Site::new("");
    let id = ready(&site.test.backstop, "emails", "a").await;
    site.post("/jobs/act", &format!("action=cancel&id={id}"))
        .await;
    site.post("/queues/emails/pause", "").await;
    let page = site.page("/audit").await;
    assert!(
        page.contains("job cancel") && page.contains("queue pause") && page.contains("token ada"),
        "{page}"
    );
    assert!(page.contains(&id.to_string()), "{page}");
    let found = site.page("/audit?what=pause").await;
    assert!(
        found.contains("queue pause") && !found.contains("job cancel"),
        "{found}"
    );
    assert!(
        site.page("/audit?who=nobody")
            .await
            .contains("No entry fits")
    );
}

#[tokio::test]
async fn a_long_audit_comes_in_pages() {
    let site = Site::new("");
    for n in 0..120 {
        let queue = format!("q{n}").parse().unwrap();
        site.test
            .backstop
            .changes("ada")
            .pause(&queue)
            .await
            .unwrap();
    }
    let first = site.page("/audit").await;
    assert_eq!(first.matches("queue pause").count(), 100);
    let next = next_of(&first).unwrap();
    assert!(next.starts_with("/audit?after="), "{next}");
    let rest = site.page(&next).await;
    assert_eq!(rest.matches("queue pause").count(), 20);
    assert!(
        next_of(&rest).is_none() && rest.contains("rel=\"prev\" href=\"/audit\""),
        "{rest}"
    );
    for n in 0..120 {
        assert!(
            [&first, &rest]
                .into_iter()
                .filter(|page| page.contains(&format!("q{n}&#34;")))
                .count()
                == 1,
            "q{n}"
        );
    }
}

/// The address of the page behind this one.
fn next_of(page: &str) -> Option<String> {
    let link = page
        .split_once("rel=\"next\" href=\"")?
        .1
        .split_once('"')?
        .0;
    Some(link.replace("&#38;", "&"))
}

#[tokio::test]
async fn a_filter_looks_at_a_bounded_part_of_the_audit_and_offers_to_go_on() {
    let site = Site::new("");
    let audit = site.test.backstop.audit("ada");
    audit
        .open_entry("job cancel", serde_json::json!({ "the": "oldest" }))
        .await
        .unwrap();
    site.test.clock.advance(backstop::Span::secs(1));
    for _ in 0..backstop::audit::LOOKS_MAX {
        audit
            .open_entry("queue pause", serde_json::Value::Null)
            .await
            .unwrap();
    }
    let first = site.page("/audit?what=cancel").await;
    assert!(
        first.contains("None of the 1,000 entries that were looked at fits"),
        "{first}"
    );
    assert!(
        first.contains("Go on looking") && !first.contains("No entry fits"),
        "{first}"
    );
    let rest = site.page(&next_of(&first).unwrap()).await;
    assert!(
        rest.contains("job cancel") && next_of(&rest).is_none(),
        "{rest}"
    );
}

#[tokio::test]
async fn the_audit_shows_a_reason_as_the_text_it_is() {
    let site = Site::new("");
    site.post(
        "/queues/emails/pause",
        "reason=%3Cscript%3Ealert(1)%3C/script%3E+token%3Dabc123",
    )
    .await;
    let page = site.page("/audit").await;
    assert!(
        page.contains("Reason: &#60;script&#62;alert(1)&#60;/script&#62; token=[redacted]"),
        "{page}"
    );
    assert!(
        !page.contains("<script>alert") && !page.contains("abc123"),
        "{page}"
    );
}

#[tokio::test]
async fn questions_ask_for_a_reason_and_remember_it_where_they_have_to_ask_again() {
    let site = Site::new("");
    let id = ready(&site.test.backstop, "emails", "a").await;
    let field = "name=\"reason\" value=\"\" maxlength=\"200\"";
    for address in [
        "/jobs/confirm?action=cancel&all=matching".to_owned(),
        "/dead/confirm?action=requeue&all=matching".to_owned(),
        "/dead/redrive".to_owned(),
        format!("/jobs/{id}"),
    ] {
        assert!(site.page(&address).await.contains(field), "{address}");
    }
    let asked = site
        .post("/jobs/act", "action=delete&all=matching&reason=sent+twice")
        .await;
    assert!(
        asked.location.ends_with("&reason=sent+twice"),
        "{}",
        asked.location
    );
    let again = site.page(&asked.location).await;
    assert!(
        again.contains("name=\"reason\" value=\"sent twice\""),
        "{again}"
    );
}

#[tokio::test]
async fn a_bulk_action_keeps_its_reason_for_whichever_server_goes_on_with_it() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let form = "action=cancel&queue=emails&all=matching&reason=sent+twice";
    let started = site.post("/jobs/act", form).await;
    let page = crate::given::until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("<dt>Reason</dt><dd class=\"break\">sent twice</dd>"),
        "{page}"
    );
    crate::runs::cut_off(&site, &started.location, |_| ()).await;
    site.test.clock.advance(backstop::Span::minutes(1));
    backstop_server::resume::resume_once(&site.app)
        .await
        .unwrap();
    crate::given::until_said(&site, &started.location, ">done<").await;
    let entries = site.test.backstop.audit("").entries(10).await.unwrap();
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert!(
        entries
            .iter()
            .all(|entry| entry.reason.as_deref() == Some("sent twice")),
        "{entries:?}"
    );
}
