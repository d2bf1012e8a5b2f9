//! Pages without anything on them teach the next step.

use crate::site::Site;

async fn check(address: &str, said: &[&str]) {
    let page = Site::new("").page(address).await;
    for words in said {
        assert!(page.contains(words), "{address} does not say {words}: {page}");
    }
}

#[tokio::test]
async fn an_empty_page_teaches_the_next_step() {
    check("/", &["Nothing here yet", "backstop push emails", "backstop work emails"]).await;
    check("/queues", &["No queues yet", "backstop push emails", "/v1/jobs"]).await;
    check("/jobs", &["No jobs yet", "backstop push emails"]).await;
    check("/jobs?state=dead", &["No job fits", "Show all jobs"]).await;
    check("/jobs/runs", &["No bulk actions yet"]).await;
    check("/dead", &["No dead letters", "/policy"]).await;
    check("/dead?view=letters", &["No dead letters"]).await;
    check("/dead/redrives", &["No redrives yet", "backstop dead redrive"]).await;
    check("/workers", &["No worker was heard", "backstop work emails --exec"]).await;
    check("/breakers", &["No breakers yet", "failure_threshold = 5"]).await;
    check("/audit", &["Nothing was changed by hand yet"]).await;
}
