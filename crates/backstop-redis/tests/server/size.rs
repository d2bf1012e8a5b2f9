//! Work stays bounded, whatever there is in a queue.

use crate::place::Place;
use backstop_core::amend::{AmendAction, Selection};
use backstop_core::limits::{ENQUEUE_JOBS_MAX, PAYLOAD_BYTES_MAX};
use backstop_core::port::{ListJobsRequest, PruneRequest, Retention};
use backstop_core::{JobState, Span};
use backstop_testkit::given::{DONE, at, filter, job};
use backstop_testkit::servers::Redis;
use backstop_testkit::servers::redis::{Append, Settings};

const MANY: usize = 100_000;

#[tokio::test]
async fn no_script_keeps_the_server_for_long_with_100000_jobs_of_every_kind() {
    let server = Redis::start(Settings {
        append: Append::Off,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let mut scene = place.scene();
    for batch in 0..MANY / ENQUEUE_JOBS_MAX {
        scene
            .insert((0..ENQUEUE_JOBS_MAX).map(|n| job("q", &format!("{batch}-{n}"))))
            .await;
        scene
            .insert(
                (0..ENQUEUE_JOBS_MAX).map(|n| job("q", &format!("later {batch}-{n}")).at(at(60))),
            )
            .await;
    }
    // A tenth of what others wait at most before they are told that the server is busy.
    server.cli(&["config", "set", "slowlog-log-slower-than", "500000"]);
    server.cli(&["slowlog", "reset"]);
    for _ in 0..10 {
        let runs = scene.claim("q", 2_000).await;
        assert_eq!(runs.len(), 2_000);
        scene
            .beat(
                &runs.iter().map(|run| run.lease.clone()).collect::<Vec<_>>(),
                at(90),
            )
            .await;
        scene
            .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
            .await;
    }
    scene.now = at(60);
    scene.promote().await;
    assert_eq!(
        scene
            .store
            .jobs(ListJobsRequest::default(), scene.now)
            .await
            .expect("a page")
            .jobs
            .len(),
        1
    );
    let ready = Selection::Matching(filter(Some("q"), Some(JobState::Ready)));
    scene
        .amend_in_steps(ready, AmendAction::Cancel, 1_000)
        .await;
    let shelf = Retention {
        cancelled_for: Span::ZERO,
        ..Retention::default()
    };
    let retention = PruneRequest {
        default: Some(shelf),
        queues: Vec::new(),
        max: 2_000,
    };
    for _ in 0..5 {
        assert_eq!(
            scene
                .store
                .prune(retention.clone(), scene.now)
                .await
                .expect("it prunes")
                .cancelled,
            2_000
        );
    }
    assert_eq!(
        server.cli(&["slowlog", "len"]).trim(),
        "0",
        "{}",
        server.cli(&["slowlog", "get"])
    );
}

#[tokio::test]
async fn a_claim_of_large_payloads_hands_out_fewer_and_the_next_one_the_rest() {
    const LARGE: usize = 80;
    let server = Redis::start(Settings {
        append: Append::Off,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    let mut scene = place.scene();
    for n in 0..LARGE {
        scene
            .insert([job("q", &n.to_string()).payload(vec![b'1'; PAYLOAD_BYTES_MAX])])
            .await;
    }
    let first = scene.claim("q", LARGE).await.len();
    assert!((1..LARGE).contains(&first), "{first} at once");
    let mut all = first;
    while all < LARGE {
        let next = scene.claim("q", LARGE).await.len();
        assert!(next > 0, "{all} and no more");
        all += next;
    }
    assert_eq!(scene.claim("q", LARGE).await, []);
}
