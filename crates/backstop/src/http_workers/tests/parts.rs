//! A store of which a part is away.

use super::*;
use crate::testing::VirtualClock;
use backstop_testkit::parted::{Gone, Parted};

struct Place {
    backstop: Backstop,
    parted: Arc<Parted>,
}

fn queues() -> Vec<QueueName> {
    ["gone", "kept"]
        .map(|name| QueueName::new(name).unwrap())
        .to_vec()
}

fn lose_a_part(place: &Place) {
    place
        .parted
        .set_gone(queues().into_iter().take(1), Gone::Granting);
}

/// With jobs in both queues.
async fn place() -> Place {
    let parted = Arc::new(Parted::new(Arc::new(MemoryStore::new())));
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::<Parted>::clone(&parted),
        clock,
        RandomSource::seeded(1),
    );
    for queue in ["gone", "kept"] {
        for n in 0..20 {
            backstop
                .draft(queue)
                .id(&format!("{queue} {n}"))
                .push()
                .await
                .unwrap();
        }
    }
    Place { backstop, parted }
}

async fn running_in_gone(place: &Place) -> u64 {
    let queues = place
        .backstop
        .store()
        .queues(place.backstop.now())
        .await
        .unwrap();
    queues
        .into_iter()
        .find(|one| one.name.as_str() == "gone")
        .unwrap()
        .counts
        .of(JobState::Running)
}

#[tokio::test(start_paused = true)]
async fn what_a_queue_granted_that_did_not_answer_goes_back_when_it_is_there_again() {
    let place = place().await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = place.backstop.http_workers(&config, &attendance);
    lose_a_part(&place);
    let both = LeaseRequest {
        queues: queues(),
        ..ask(4)
    };
    let handed = remote.lease(&both).await.unwrap();
    assert!(!handed.is_empty() && running_in_gone(&place).await > 0);
    let held: Vec<_> = handed
        .into_iter()
        .map(|one| (one.run.lease.job, Some(one.token)))
        .collect();
    // A neighbour runs on: its beats keep the whole claim.
    for second in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        remote
            .beat(
                &both.worker,
                &WorkerDescription::default(),
                held.clone(),
                None,
            )
            .await
            .unwrap();
        if second == 30 {
            place.parted.set_whole();
        }
    }
    assert_eq!(running_in_gone(&place).await, 0);
    let beaten = remote
        .beat(&both.worker, &WorkerDescription::default(), held, None)
        .await
        .unwrap();
    assert_eq!(beaten.lost, [], "what the worker has stays its own");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_is_left_out_for_a_while_and_asked_again() {
    let place = place().await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = place.backstop.http_workers(&config, &attendance);
    lose_a_part(&place);
    let both = LeaseRequest {
        queues: queues(),
        ..ask(2)
    };
    remote.lease(&both).await.unwrap();
    let granted = running_in_gone(&place).await;
    for _ in 0..5 {
        assert_eq!(
            remote.lease(&both).await.unwrap().len(),
            2,
            "the other gives all there is room for"
        );
    }
    assert_eq!(running_in_gone(&place).await, granted, "it was not asked");
    place.parted.set_whole();
    let of_gone = |handed: &[LeasedJob]| {
        handed
            .iter()
            .any(|one| one.run.lease.queue.as_str() == "gone")
    };
    assert!(!of_gone(&remote.lease(&both).await.unwrap()));
    let alone = LeaseRequest {
        queues: queues()[..1].to_vec(),
        ..ask(1)
    };
    assert!(
        of_gone(&remote.lease(&alone).await.unwrap()),
        "where nothing else is asked for, it is"
    );
    assert!(
        of_gone(&remote.lease(&both).await.unwrap()),
        "it has answered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_back_is_asked_for_again_within_seconds_and_gives_nothing_out_for_nobody() {
    let place = place().await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = place.backstop.http_workers(&config, &attendance);
    // It is gone before it grants anything.
    place
        .parted
        .set_gone(queues().into_iter().take(1), Gone::Refusing);
    let both = LeaseRequest {
        queues: queues(),
        ..ask(2)
    };
    remote.lease(&both).await.unwrap();
    place.parted.set_whole();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(running_in_gone(&place).await, 0);
    let handed = remote.lease(&both).await.unwrap();
    assert!(
        handed
            .iter()
            .any(|one| one.run.lease.queue.as_str() == "gone")
    );
}

#[tokio::test(start_paused = true)]
async fn what_reached_nobody_is_given_back_with_its_leave_beside_a_queue_that_does_not_answer() {
    let place = place().await;
    let limit = "rate_limit = { count = 2, per = \"60s\", over = \"5m\" }";
    let config = config(&format!("[queues.gone]\n{limit}\n[queues.kept]\n{limit}\n"));
    let attendance = SeenWorkers::default();
    let remote = place.backstop.http_workers(&config, &attendance);
    let both = LeaseRequest {
        queues: queues(),
        ..ask(4)
    };
    let of = |handed: &[LeasedJob], queue: &str| {
        handed
            .iter()
            .filter(|one| one.run.lease.queue.as_str() == queue)
            .count()
    };
    let handed = remote.lease(&both).await.unwrap();
    assert_eq!(
        (of(&handed, "gone"), of(&handed, "kept")),
        (2, 2),
        "all that the limits leave"
    );
    place
        .parted
        .set_gone(queues().into_iter().take(1), Gone::Refusing);
    remote.release_undelivered(handed).await;
    place.parted.set_whole();
    assert_eq!(running_in_gone(&place).await, 2, "these run out");
    let handed = remote.lease(&both).await.unwrap();
    assert_eq!(
        (of(&handed, "gone"), of(&handed, "kept")),
        (0, 2),
        "leave is back with what went back"
    );
}
