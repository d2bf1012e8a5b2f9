//! The policy lab.

use crate::site::{Site, all_under};
use backstop_server::access::ScopeSet;

fn address(fields: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields);
    format!("/policy?{}", query.finish())
}

#[tokio::test]
async fn the_usual_policy_is_laid_out_without_being_asked_for() {
    let page = Site::new("").page("/policy").await;
    for part in [
        "With Jitter (0-25%)",
        "30.0s (capped)",
        "How long each wait is",
        "Simulate the outage",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("played through"), "{page}");
}

#[tokio::test]
async fn a_policy_of_every_kind_is_laid_out() {
    let page = Site::new("").page("/policy").await;
    let links = page
        .split("<a href=\"/policy?policy=")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let links: Vec<String> = links
        .map(|query| format!("/policy?policy={query}"))
        .collect();
    assert_eq!(links.len(), 6);
    let site = Site::new("");
    for link in links {
        assert!(
            site.page(&link).await.contains("How long each wait is"),
            "{link}"
        );
    }
}

#[tokio::test]
async fn an_outage_is_played_through_and_drawn() {
    let fields = [("rate", "5/s"), ("outage", "1m"), ("simulate", "yes")];
    let page = Site::new("").page(&address(&fields)).await;
    for part in [
        "The outage, played through",
        "class=\"chart outage\"",
        "calls hit the service",
        "<dt>Deaths</dt>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let fields = [
        ("rate", "5/s"),
        ("outage", "1m"),
        ("breaker", "{}"),
        ("simulate", "yes"),
    ];
    assert!(
        Site::new("")
            .page(&address(&fields))
            .await
            .contains("the breaker let through")
    );
}

#[tokio::test]
async fn what_is_wrong_is_said_and_what_was_written_stays() {
    let cases = [
        (
            "policy",
            "{\"kind\":\"fibonaci\"}",
            "is not a kind of policy",
        ),
        ("policy", "{", "EOF"),
        ("attempts", "0", "whole number from 1 to 100"),
        ("attempts", "1000000000", "whole number from 1 to 100"),
        ("rate", "NaN/s", "is not a rate"),
        ("rate", "1000000000/s", "lower rate"),
        ("outage", "-1", "is not a duration"),
        ("outage", "3660d", "shorter outage"),
        ("service_time", "0s", "service"),
        ("concurrency", "-1", "whole number"),
        ("breaker", "{\"failure_threshold\":0}", "failure_threshold"),
        ("breaker", "[", "Breaker"),
    ];
    for (field, value, said) in cases {
        let page = Site::new("")
            .page(&address(&[(field, value), ("simulate", "yes")]))
            .await;
        assert!(page.contains(said), "{field}={value}: {page}");
    }
}

#[tokio::test]
async fn text_in_a_field_is_text() {
    let site = Site::new("");
    for field in [
        "policy",
        "attempts",
        "rate",
        "outage",
        "service_time",
        "concurrency",
        "breaker",
    ] {
        let page = site
            .page(&address(&[
                (field, crate::site::HOSTILE),
                ("simulate", "yes"),
            ]))
            .await;
        assert!(
            page.contains("alert(7)"),
            "{field} keeps what was written: {page}"
        );
    }
}

#[tokio::test]
async fn under_a_path_every_address_is_under_it() {
    all_under(
        &Site::mounted("", "/ops", ScopeSet::ALL)
            .page("/ops/policy")
            .await,
        "/ops",
    );
}
