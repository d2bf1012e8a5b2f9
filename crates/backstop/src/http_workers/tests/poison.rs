//! A job that kills every worker that runs it.

use super::*;
use backstop_core::limits::LOST_LEASES_UNTIL_DEAD;
use backstop_core::verdict::EndReason;

/// How the worker that the poison killed comes back.
#[derive(Clone, Copy, Debug)]
enum Restart {
    SameName,
    SameNameWithStart,
    SameNameAfterABeat,
    NewName,
}

/// Asks once for each death, as the worker with this number.
async fn leased_after(
    test: &TestBackstop,
    attendance: &SeenWorkers,
    restart: Restart,
    death: u32,
) -> Vec<LeasedJob> {
    let config = config("");
    let remote = test.backstop.http_workers(&config, attendance);
    let name = match restart {
        Restart::NewName => WorkerName::new(&format!("w-{death}")),
        _ => WorkerName::new("w"),
    };
    let since = matches!(restart, Restart::SameNameWithStart).then(|| test.backstop.now());
    let about = WorkerDescription {
        since,
        ..WorkerDescription::default()
    };
    if matches!(restart, Restart::SameNameAfterABeat) {
        remote.beat(&name, &about, Vec::new(), None).await.unwrap();
    }
    remote
        .lease(&LeaseRequest {
            worker: name,
            about,
            ..ask(4)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn three_lost_leases_bury_a_poison_job_whatever_its_worker_is_called() {
    for restart in [
        Restart::SameName,
        Restart::SameNameWithStart,
        Restart::SameNameAfterABeat,
        Restart::NewName,
    ] {
        let test = pushed(&["poison"]).await;
        let servers = [SeenWorkers::default(), SeenWorkers::default()];
        for death in 0..LOST_LEASES_UNTIL_DEAD {
            let handed = leased_after(&test, &servers[death % 2], restart, death as u32).await;
            assert_eq!(handed.len(), 1, "{restart:?}, run {}", death + 1);
            test.clock.advance(Span::secs(16));
            recovered(&test).await;
        }
        let job = test
            .backstop
            .job(JobId::named("poison"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (job.state, job.reason),
            (JobState::Dead, Some(EndReason::CrashedWorker)),
            "{restart:?}"
        );
    }
}

#[tokio::test]
async fn of_two_poison_jobs_each_is_run_again_and_buried() {
    let test = suspects(&["a", "b"]).await;
    let servers = [SeenWorkers::default(), SeenWorkers::default()];
    for death in 0..4 {
        let handed = leased_after(&test, &servers[death % 2], Restart::SameName, 0).await;
        assert_eq!(handed.len(), 1, "run {}", death + 1);
        test.clock.advance(Span::secs(16));
        recovered(&test).await;
    }
    for name in ["a", "b"] {
        let job = test
            .backstop
            .job(JobId::named(name))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(job.reason, Some(EndReason::CrashedWorker), "{name}");
    }
}

#[tokio::test]
async fn a_suspect_whose_lease_expired_keeps_no_other_suspect_waiting() {
    let test = suspects(&["a", "b"]).await;
    let server = SeenWorkers::default();
    let first = leased_after(&test, &server, Restart::SameName, 0).await;
    test.clock.advance(Span::secs(14));
    assert!(
        leased_after(&test, &server, Restart::SameName, 0)
            .await
            .is_empty(),
        "the first one runs"
    );
    test.clock.advance(Span::secs(2));
    // Nobody has taken the first one over yet.
    let second = leased_after(&test, &server, Restart::SameName, 0).await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].run.lease.job, second[0].run.lease.job);
}
