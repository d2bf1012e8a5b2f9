//! Kinds: what ran lately, and how long it took.

use crate::site::Site;
use backstop::{Run, RunError, Span};

/// A site on which three jobs of a kind ran, one of which failed.
async fn worked() -> Site {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for kind in ["good<b>", "good<b>", "bad"] {
        backstop.draft("mail").kind(kind).push().await.unwrap();
    }
    let handler = |run: Run| async move {
        if run.kind().as_str() == "bad" {
            Err(RunError::retry("boom"))
        } else {
            Ok(())
        }
    };
    backstop
        .worker()
        .handle_raw("mail", handler)
        .drain()
        .await
        .unwrap();
    backstop.run_times().write().await.unwrap();
    site
}

#[tokio::test]
async fn kinds_tell_their_runs_failures_and_how_long_they_took() {
    let site = worked().await;
    for window in ["", "?window=5m", "?window=1h", "?window=24h", "?window=7d"] {
        let page = site.page(&format!("/kinds{window}")).await;
        assert!(
            page.contains("good&#60;b&#62;") && !page.contains("good<b>"),
            "{window}: {page}"
        );
        assert!(
            page.contains("100 %") && page.contains("How long runs took"),
            "{window}: {page}"
        );
        assert!(page.contains("href=\"/queues/mail\""), "{window}: {page}");
    }
    site.test.clock.advance(Span::hours(2));
    assert!(
        site.page("/kinds?window=1h")
            .await
            .contains("No run ended in this time")
    );
    assert!(site.page("/kinds?window=24h").await.contains("bad"));
}

#[tokio::test]
async fn the_overview_and_the_queue_draw_how_long_runs_took() {
    let site = worked().await;
    site.test.clock.advance(Span::minutes(1));
    for address in ["/?window=1h", "/queues/mail?window=1h"] {
        let page = site.page(address).await;
        for words in ["How long runs took", "How late runs started", "p95"] {
            assert!(page.contains(words), "{address}: {words}");
        }
    }
}
