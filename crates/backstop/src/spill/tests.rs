use super::*;
use crate::clock::ManualClock;
use async_trait::async_trait;
use backstop_core::failure::FailureHistory;
use backstop_core::port::{
    AmendJobsRequest, AmendResult, DeadLetterGroup, EnqueueOutcome, ExpiredLeases,
    ListGroupsRequest, ListJobsRequest, ListJobsResult, PruneRequest, PruneResult, QueueState,
    QueueStatus, StoreError, StoreResult, UniqueKeyHolder, WorkerStatus,
};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{Job, JobId, Kind, NewJob, Payload, QueueBounds, QueueName};
use tempfile::TempDir;

/// Takes dead letters in, and refuses every batch with one of these ids in it.
#[derive(Default)]
struct Picky {
    refused: Vec<JobId>,
    taken: Mutex<Vec<JobId>>,
}

#[async_trait]
impl OperatorStore for Picky {
    async fn bury(&self, burials: Vec<NewDeadLetter>, _: Time) -> StoreResult<Vec<EnqueueOutcome>> {
        let ids: Vec<JobId> = burials.iter().map(|burial| burial.job.id).collect();
        if ids.iter().any(|id| self.refused.contains(id)) {
            return Err(StoreError::misuse("burying", "not that one"));
        }
        self.taken.lock().unwrap().extend(&ids);
        Ok(vec![EnqueueOutcome::Inserted; ids.len()])
    }

    async fn job(&self, _: JobId, _: Time) -> StoreResult<Option<Job>> {
        unreachable!("a spill only buries")
    }
    async fn find(&self, _: QueueName, _: Vec<JobId>, _: Time) -> StoreResult<Vec<Option<Job>>> {
        unreachable!("a spill only buries")
    }
    async fn jobs(&self, _: ListJobsRequest, _: Time) -> StoreResult<ListJobsResult> {
        unreachable!("a spill only buries")
    }
    async fn amend(&self, _: AmendJobsRequest, _: Time) -> StoreResult<AmendResult> {
        unreachable!("a spill only buries")
    }
    async fn queues(&self, _: Time) -> StoreResult<Vec<QueueStatus>> {
        unreachable!("a spill only buries")
    }
    async fn unique_holders(
        &self,
        _: QueueName,
        _: Vec<UniqueKey>,
        _: Time,
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        unreachable!("a spill only buries")
    }
    async fn groups(&self, _: ListGroupsRequest, _: Time) -> StoreResult<Vec<DeadLetterGroup>> {
        unreachable!("a spill only buries")
    }
    async fn set_bounds(&self, _: QueueName, _: QueueBounds, _: Time) -> StoreResult<()> {
        unreachable!("a spill only buries")
    }
    async fn declare_queues(&self, _: Vec<QueueName>) -> StoreResult<()> {
        unreachable!("a spill only buries")
    }
    async fn set_queue_state(&self, _: QueueName, _: QueueState, _: Time) -> StoreResult<()> {
        unreachable!("a spill only buries")
    }
    async fn expired_leases(&self, _: Time) -> StoreResult<ExpiredLeases> {
        unreachable!("a spill only buries")
    }

    async fn workers(&self, _: Span, _: Time) -> StoreResult<Vec<WorkerStatus>> {
        unreachable!("a spill only buries")
    }
    async fn prune(&self, _: PruneRequest, _: Time) -> StoreResult<PruneResult> {
        unreachable!("a spill only buries")
    }
}

fn burial(name: &str) -> NewDeadLetter {
    let payload = Payload::json("null").unwrap();
    let now = Time::from_millis(1_000);
    NewDeadLetter {
        job: NewJob::new(
            JobId::named(name),
            QueueName::new("q").unwrap(),
            Kind::default(),
            payload,
        ),
        attempts: 1,
        lost_leases: 0,
        requeues: 0,
        inserted_at: now,
        finished_at: now,
        reason: EndReason::Rejected,
        history: FailureHistory::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_the_store_refuses_keeps_out_no_other_and_stays() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Picky {
        refused: vec![JobId::named("b")],
        ..Picky::default()
    });
    let clock = Arc::new(ManualClock::default());
    let spill = Spill::on(
        SpillSettings::at(folder.path()),
        Arc::<Picky>::clone(&store),
        clock,
        RandomSource::seeded(1),
    );
    for name in ["a", "b", "c"] {
        spill.put(&burial(name)).await.unwrap();
    }
    let taken = spill.take_in().await.unwrap();
    assert_eq!((taken.records, taken.full, taken.set_aside), (2, 0, 0));
    assert!(matches!(taken.trouble, Some(StoreError::Misuse { .. })));
    assert_eq!(spill.status().await.unwrap().records, 1);
    assert_eq!(spill.take_in().await.unwrap().records, 0);
    assert_eq!(
        *store.taken.lock().unwrap(),
        [JobId::named("a"), JobId::named("c")]
    );
}

#[test]
fn every_store_has_a_directory_of_its_own_whoever_opens_it() {
    let of = |address: &str| SpillSettings::of(&StoreAddress::new(address)).directory;
    assert_eq!(
        of("sqlite:/var/lib/shop/jobs.db"),
        Path::new("/var/lib/shop/jobs.db-spill")
    );
    assert_eq!(of("sqlite://jobs.db"), Path::new("jobs.db-spill"));
    let postgres = of("postgres://ada:secret@h/shop");
    assert!(
        postgres
            .to_str()
            .unwrap()
            .starts_with("backstop-spill/postgres-"),
        "{postgres:?}"
    );
    assert_eq!(
        postgres,
        of("postgres://eve:other@h/shop"),
        "a new password is the same store"
    );
    assert_ne!(postgres, of("postgres://ada:secret@h/stage"));
    assert_ne!(of("redis://h"), of("redis://g"));
}
