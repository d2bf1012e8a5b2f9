use super::*;
use crate::tasks::*;
use backstop::core::rate::RateLimit;
use backstop::core::schedule::MissedPolicy;
use backstop::{Backstop, QueueName, Task};

const URL: &str = "postgres://alerts@localhost/alerts";

fn real() -> Config {
    read(&text(URL, Pace::REAL, None)).unwrap()
}

#[test]
fn the_sending_queue_has_the_limit_of_the_provider() {
    let limit = real().queues[&QueueName::new(SendEmail::QUEUE).unwrap()]
        .settings
        .rate_limit;
    assert_eq!(
        limit,
        Some(RateLimit::new(21_600, Span::secs(60)).over(Span::minutes(5)))
    );
}

#[test]
fn digests_are_due_at_half_past_eight_in_london_and_a_week_is_made_up() {
    let config = real();
    let mut schedules = config
        .schedules
        .values()
        .filter(|schedule| schedule.name.as_str() != COMPLETION);
    assert!(
        schedules.all(|schedule| schedule.missed.policy == MissedPolicy::All
            && (schedule.missed.look_back, schedule.missed.grace)
                == (Span::days(7), Span::minutes(30))
            && schedule.timezone.as_str() == "Europe/London")
    );
    let crons: Vec<&str> = config
        .schedules
        .values()
        .map(|schedule| schedule.cron.as_str())
        .collect();
    assert_eq!(crons, ["30 8 * * *", "* * * * *", "30 8 * * 6"]);
}

#[test]
fn thresholds_are_those_of_the_source_and_what_is_promised_in_a_quarter_of_an_hour_is_found_in_one()
{
    for (name, sweep) in real().sweeps {
        match name.as_str() {
            "emails" => assert_eq!(
                (sweep.threshold(), sweep.period()),
                (Span::hours(3), Span::minutes(30))
            ),
            "transactional_emails" => {
                assert!(sweep.threshold().plus(sweep.period()) <= Span::minutes(15));
            }
            _ => {
                assert_eq!(
                    (sweep.threshold(), sweep.period()),
                    (Span::hours(1), Span::minutes(30)),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn an_hour_of_two_seconds_scales_what_is_waited_for() {
    let fast = Pace {
        hour: Span::secs(2),
        lease: Span::secs(2),
    };
    let config = read(&text(URL, fast, None)).unwrap();
    let of = |name: &str| {
        (
            config.sweeps[name].threshold(),
            config.sweeps[name].period(),
        )
    };
    assert_eq!(of("content_changes"), (Span::secs(2), Span::secs(1)));
    assert_eq!(of("emails"), (Span::secs(6), Span::secs(1)));
}

/// What a sweep writes must be what everybody else writes, or it would take rows with a job for
/// lost.
#[tokio::test]
async fn sweeps_make_the_same_jobs_as_everybody_else() {
    let backstop = Backstop::open("memory:").await.unwrap();
    check(
        &backstop,
        "content_changes",
        &ProcessContentChange { id: 17 },
    )
    .await;
    check(&backstop, "messages", &ProcessMessage { id: 17 }).await;
    check(
        &backstop,
        "digest_run_subscribers",
        &DigestEmailGeneration { id: 17 },
    )
    .await;
    check(&backstop, "emails", &SendEmail { id: 17 }).await;
    check(
        &backstop,
        "transactional_emails",
        &SendTransactionalEmail { id: 17 },
    )
    .await;
}

async fn check<R: Row>(backstop: &Backstop, sweep: &str, row: &R) {
    let job = row.draft(backstop).build().await.unwrap();
    let lost = SWEEPS.iter().find(|lost| lost.name == sweep).unwrap();
    assert_eq!(
        (lost.queue, lost.kind),
        (job.queue.as_str(), job.kind.as_str())
    );
    assert_eq!(
        lost.key.replace("{id}", "17"),
        job.unique.unwrap().key.as_str()
    );
    assert_eq!(
        job.payload.as_bytes(),
        br#"{"id":17}"#,
        "a sweep's payload is its row"
    );
}
