use super::*;
use crate::config::{Overrides, Written, resolve};
use crate::testing::{Test, start};
use backstop_core::State;
use backstop_core::failure::ErrorReport;
use backstop_core::verdict::Ending;

fn config(text: &str) -> Config {
    let written = Written { path: "backstop.toml", text };
    resolve(Some(written), Overrides::default(), Overrides::default()).unwrap()
}

fn ask(max: usize) -> Ask {
    Ask {
        queues: vec![QueueName::new("q").unwrap()],
        max,
        worker: WorkerName::new("elsewhere"),
        lease: None,
        wait: Span::ZERO,
    }
}

async fn pushed(names: &[&str]) -> Test {
    let test = start();
    for name in names {
        test.backstop.draft("q").id(name).push().await.unwrap();
    }
    test
}

#[test]
fn a_worker_is_noted_once_in_a_while_and_not_more_of_them_than_fit() {
    let (attendance, worker) = (Attendance::default(), WorkerName::new("w"));
    let at = |secs| Time::from_millis(1_000_000).after(Span::secs(secs));
    assert!(attendance.is_due(&worker, at(0)));
    assert!(!attendance.is_due(&worker, at(4)));
    assert!(attendance.is_due(&worker, at(5)));
    assert!(attendance.is_due(&worker, at(1)), "after the clock was set back");
    for n in 0..NOTED_MAX + 10 {
        assert!(attendance.is_due(&WorkerName::new(&n.to_string()), at(6)), "none is kept from being seen");
    }
    assert!(attendance.0.lock().unwrap().len() <= NOTED_MAX);
    assert!(attendance.is_due(&WorkerName::new("new"), at(60)));
    assert!(!attendance.is_due(&WorkerName::new("new"), at(61)), "those that left made room");
}

#[tokio::test]
async fn the_shortest_lease_of_the_queues_holds_unless_one_is_asked_for() {
    let test = pushed(&["a", "b"]).await;
    let (config, attendance) = (config("[queues.q]\nlease = \"40s\"\n"), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    let until = async |name: &str| {
        let job = test.backstop.job(JobId::named(name)).await.unwrap().unwrap();
        job.held_by.unwrap().until.since(test.backstop.now())
    };
    remote.lease(&ask(1)).await.unwrap();
    assert_eq!(until("a").await, Span::secs(40));
    remote.lease(&Ask { lease: Some(Span::days(9)), ..ask(1) }).await.unwrap();
    assert_eq!(until("b").await, LEASE_MAX);
}

#[tokio::test]
async fn any_process_on_the_store_ends_what_another_handed_out() {
    let test = pushed(&["a"]).await;
    let (config, here, there) = (config(""), Attendance::default(), Attendance::default());
    let handed = test.backstop.remote(&config, &here).lease(&ask(1)).await.unwrap().remove(0);
    let ticket: Ticket = handed.ticket.to_string().parse().unwrap();
    let ended = Ended { job: handed.run.lease.job, ticket: Some(ticket), ending: Ending::Done };
    assert_eq!(test.backstop.remote(&config, &there).settle(vec![ended]).await.unwrap(), [Said::Applied]);
    assert_eq!(test.backstop.job(JobId::named("a")).await.unwrap().unwrap().state, State::Done);
}

#[tokio::test]
async fn what_is_done_in_a_queue_that_keeps_nothing_is_gone() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config("[queues.q]\nkeep_done = \"0s\"\n"), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    let ended = Ended { job: handed.run.lease.job, ticket: Some(handed.ticket), ending: Ending::Done };
    assert_eq!(remote.settle(vec![ended]).await.unwrap(), [Said::Applied]);
    assert_eq!(test.backstop.job(JobId::named("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_failure_names_the_worker_that_had_the_job() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    let ending = Ending::failed(ErrorReport::message("no route"));
    let ended = Ended { job: handed.run.lease.job, ticket: Some(handed.ticket), ending };
    remote.settle(vec![ended]).await.unwrap();
    let failures = test.backstop.job(JobId::named("a")).await.unwrap().unwrap().history.failures();
    assert_eq!((failures[0].worker.as_str(), failures[0].attempt), ("elsewhere", 1));
    assert!(failures[0].retry_in.is_some());
}
