//! Jobs, claims and a clock moved by hand, in few words.

use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::limits::{AMEND_MAX, SEIZE_MAX};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{
    AmendJobsRequest, AmendResult, BeatRequest, Claim, EnqueueOutcome, ListJobsRequest,
    QueueStatus, SeizeRequest, SeizeResult, SeizedRun, SettleOutcome, Store, StoreResult,
};
use backstop_core::unique::{UniqueConstraint, UniqueKey};
use backstop_core::verdict::{DoneRetention, EndReason, Settlement};
use backstop_core::{
    Job, JobId, JobState, Kind, Lease, LeaseNumber, LeasedRun, NewJob, Outcome, Payload, Priority,
    QueueName, RetryPolicy, Span, Time, WorkerName,
};
use std::sync::Arc;

/// When every scene begins: not on a whole millisecond, so that a store that rounds is found out.
pub const START: Time = Time::from_micros(1_767_225_600_123_457);

/// The worker that claims where a test does not care who does.
pub const WORKER: &str = "worker-1";

/// How long a lease is where a test does not care.
pub const LEASE: Span = Span::secs(30);

/// A new job of this queue, known by `name`: its id and its payload are made of it.
pub fn job(queue: &str, name: &str) -> Draft {
    let payload = Payload::from_stored(format!("\"{name}\"").into_bytes());
    Draft(NewJob::new(
        JobId::named(name),
        self::queue(queue),
        Kind::default(),
        payload,
    ))
}

/// A new job in the making.
#[derive(Clone, Debug)]
pub struct Draft(NewJob);

impl Draft {
    /// Of this kind.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        self.0.kind = Kind::new(kind).expect("the test names a kind that is one");
        self
    }

    /// With these bytes as its payload, JSON or not: a store does not look inside.
    #[must_use]
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.payload = Payload::from_stored(bytes.into());
        self
    }

    /// Of this level.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.0.priority = priority;
        self
    }

    /// Not before this.
    #[must_use]
    pub fn at(mut self, time: Time) -> Self {
        self.0.run_at = Some(time);
        self
    }

    /// The only live one of this key.
    #[must_use]
    pub fn unique(self, key: &str) -> Self {
        let unique = UniqueConstraint::live(self::key(key));
        self.unique_as(unique)
    }

    /// The only one of a key, on these terms.
    #[must_use]
    pub fn unique_as(mut self, unique: UniqueConstraint) -> Self {
        self.0.unique = Some(unique);
        self
    }

    /// With a retry policy of its own.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.0.retry = Some(policy);
        self
    }

    /// Pushed from this place in a trace.
    #[must_use]
    pub fn trace(mut self, traceparent: &str) -> Self {
        self.0.trace = Some(
            traceparent
                .parse()
                .expect("the test names a traceparent that is one"),
        );
        self
    }
}

impl From<Draft> for NewJob {
    fn from(draft: Draft) -> Self {
        draft.0
    }
}

/// The queue of this name.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("the test names a queue that can be one")
}

/// The unique key of this text.
pub fn key(text: &str) -> UniqueKey {
    UniqueKey::new(text).expect("the test names a key that can be one")
}

/// The id of the job of this name.
pub fn id(name: &str) -> JobId {
    JobId::named(name)
}

/// So many seconds after the start.
pub fn at(secs: i64) -> Time {
    START.after(Span::secs(secs))
}

/// A history of one failure with this message.
pub fn history(message: &str) -> FailureHistory {
    let worker = WorkerName::new(WORKER);
    FailureHistory::default().with_failure(FailureRecord::new(
        START,
        1,
        FailureCause::Failed,
        &worker,
        ErrorReport::message(message),
    ))
}

/// Succeeded, and stays listed.
pub const DONE: Outcome = Outcome::Done(DoneRetention::Listed);

/// Failed, to be tried again at this time.
pub fn retry_at(at: Time) -> Outcome {
    Outcome::Retry {
        at,
        history: history("boom"),
        anew: false,
    }
}

/// Failed for good.
pub fn dead() -> Outcome {
    Outcome::Dead {
        reason: EndReason::AttemptsExhausted,
        history: history("boom"),
    }
}

/// Called off by its handler.
pub fn cancelled() -> Outcome {
    Outcome::Cancelled {
        reason: EndReason::Unwanted,
        history: history("unwanted"),
    }
}

/// Everything of one queue in one state.
pub fn filter(queue: Option<&str>, state: Option<JobState>) -> Filter {
    Filter {
        queue: queue.map(self::queue),
        state,
        ..Filter::default()
    }
}

/// The names the jobs were given, in order.
pub fn names<'a>(runs: impl IntoIterator<Item = &'a LeasedRun>) -> Vec<String> {
    runs.into_iter().map(|run| name(&run.payload)).collect()
}

/// The names the listed jobs were given, in order.
pub fn listed(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|job| name(&job.payload)).collect()
}

fn name(payload: &Payload) -> String {
    String::from_utf8_lossy(payload.as_bytes())
        .trim_matches('"')
        .to_owned()
}

/// Everything that fits, page by page, from a store that answers.
pub async fn list(store: &dyn Store, filter: &Filter, limit: usize, now: Time) -> Vec<Job> {
    try_list(store, filter, limit, now)
        .await
        .expect("the store lists its jobs")
}

/// Everything that fits, page by page; panics on a list that does not end.
pub async fn try_list(
    store: &dyn Store,
    filter: &Filter,
    limit: usize,
    now: Time,
) -> StoreResult<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut cursor = None;
    // More pages than this for what a test puts in is a list that runs in circles.
    for _ in 0..20_000 {
        let query = ListJobsRequest {
            filter: filter.clone(),
            cursor,
            limit,
            ..ListJobsRequest::default()
        };
        let page = store.jobs(query, now).await?;
        assert!(
            page.jobs.len() <= limit.max(1),
            "a page of {} where {limit} were asked for",
            page.jobs.len()
        );
        jobs.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(jobs);
        }
    }
    assert!(cursor.is_none(), "the list of {filter:?} does not end");
    Ok(jobs)
}

/// A store and a clock that a test moves by hand.
#[derive(Clone)]
pub struct Scene {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// What every call gets as `now`.
    pub now: Time,
    drawn: u64,
}

impl Scene {
    /// The scene at its start.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            now: START,
            drawn: 0,
        }
    }

    /// The same scene for one of several workers that act at once: their draws never meet.
    #[must_use]
    pub fn apart(&self, worker: u32) -> Self {
        Self {
            drawn: (u64::from(worker) + 1) << 32,
            ..self.clone()
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Span) {
        self.now = self.now.after(span);
    }

    /// A lease number that was not drawn before.
    pub fn draw(&mut self) -> LeaseNumber {
        self.drawn += 1;
        LeaseNumber::draw(self.drawn)
    }

    /// Hands jobs in.
    pub async fn enqueue(&self, jobs: impl IntoIterator<Item = Draft>) -> Vec<EnqueueOutcome> {
        let jobs = jobs.into_iter().map(NewJob::from).collect();
        self.store
            .enqueue(jobs, self.now)
            .await
            .expect("the store takes jobs in")
    }

    /// Hands jobs in that nothing stands against.
    pub async fn insert(&self, jobs: impl IntoIterator<Item = Draft>) {
        let answers = self.enqueue(jobs).await;
        assert!(
            answers
                .iter()
                .all(|answer| *answer == EnqueueOutcome::Inserted),
            "not all inserted: {answers:?}"
        );
    }

    /// A claim of these queues by [`WORKER`].
    pub fn claim_of(&mut self, wants: &[(&str, usize)]) -> Claim {
        let wants = wants.iter().map(|(queue, max)| QueueQuota {
            queue: self::queue(queue),
            max: *max,
        });
        Claim {
            number: self.draw(),
            worker: WorkerName::new(WORKER),
            until: self.now.after(LEASE),
            wants: wants.collect(),
        }
    }

    /// Claims as asked.
    pub async fn claim_as(&self, claim: &Claim) -> Vec<LeasedRun> {
        self.store
            .claim(claim.clone(), self.now)
            .await
            .expect("the store gives out jobs")
            .runs
    }

    /// Claims at most `max` jobs of one queue.
    pub async fn claim(&mut self, queue: &str, max: usize) -> Vec<LeasedRun> {
        let claim = self.claim_of(&[(queue, max)]);
        self.claim_as(&claim).await
    }

    /// Claims one job that is there.
    pub async fn claim_one(&mut self, queue: &str) -> LeasedRun {
        let mut runs = self.claim(queue, 1).await;
        runs.pop().expect("a job is ready to be claimed")
    }

    /// Ends one run.
    pub async fn settle(&self, lease: &Lease, outcome: Outcome) -> SettleOutcome {
        self.settle_all([(lease, outcome)]).await[0]
    }

    /// Ends runs.
    pub async fn settle_all<'a>(
        &self,
        runs: impl IntoIterator<Item = (&'a Lease, Outcome)>,
    ) -> Vec<SettleOutcome> {
        let settlements: Vec<Settlement> = runs
            .into_iter()
            .map(|(lease, outcome)| Settlement {
                lease: lease.clone(),
                outcome,
            })
            .collect();
        let count = settlements.len();
        let answers = self
            .store
            .settle(settlements, self.now)
            .await
            .expect("the store settles");
        assert_eq!(answers.len(), count, "one answer per settlement");
        answers
    }

    /// Hands in one job that is claimed next, and ends its run.
    pub async fn insert_and_end(&mut self, job: Draft, outcome: Outcome) {
        let (queue, id) = (job.0.queue.clone(), job.0.id);
        self.insert([job]).await;
        let run = self.claim_one(queue.as_str()).await;
        assert_eq!(run.lease.job, id, "another job was first in line");
        assert_eq!(
            self.settle(&run.lease, outcome).await,
            SettleOutcome::Applied
        );
    }

    /// Notes that these runs have begun; tells the lost ones.
    pub async fn begin(&self, leases: &[Lease]) -> Vec<Lease> {
        self.store
            .begin(leases.to_vec(), self.now)
            .await
            .expect("the store notes a beginning")
    }

    /// A sign of life of [`WORKER`] for these leases; tells the lost ones.
    pub async fn beat(&self, leases: &[Lease], until: Time) -> Vec<Lease> {
        self.beat_as(WORKER, leases, until).await
    }

    /// A sign of life of this worker for these leases; tells the lost ones.
    pub async fn beat_as(&self, worker: &str, leases: &[Lease], until: Time) -> Vec<Lease> {
        let queues = vec![queue("q")];
        let beat = BeatRequest {
            worker: WorkerName::new(worker),
            queues,
            leases: leases.to_vec(),
            until,
        };
        self.store
            .beat(beat, self.now)
            .await
            .expect("the store hears a beat")
            .lost
    }

    /// A request of this worker for what was left behind.
    pub fn seize_of(&mut self, worker: &str) -> SeizeRequest {
        SeizeRequest {
            number: self.draw(),
            worker: WorkerName::new(worker),
            until: self.now.after(LEASE),
            max: SEIZE_MAX,
            spared: Vec::new(),
        }
    }

    /// Takes over as asked; tells whether there is more.
    pub async fn seize_some(&self, seize: &SeizeRequest) -> SeizeResult {
        self.store
            .seize(seize.clone(), self.now)
            .await
            .expect("the store gives out what was left behind")
    }

    /// Takes over as asked.
    pub async fn seize_as(&self, seize: &SeizeRequest) -> Vec<SeizedRun> {
        self.seize_some(seize).await.runs
    }

    /// Takes over whatever has expired.
    pub async fn seize(&mut self, worker: &str) -> Vec<SeizedRun> {
        let seize = self.seize_of(worker);
        self.seize_as(&seize).await
    }

    /// Makes ready whatever is due; tells how many.
    pub async fn promote(&self) -> usize {
        self.store
            .promote(usize::MAX, self.now)
            .await
            .expect("the store promotes")
            .moved
    }

    /// Does something to jobs, in as many steps as the store takes; answers for all of them.
    pub async fn amend(&self, selection: Selection, action: AmendAction) -> AmendResult {
        let mut all = AmendResult::default();
        for step in self.amend_in_steps(selection, action, AMEND_MAX).await {
            all.applied += step.applied;
            all.refused.extend(step.refused);
        }
        all
    }

    /// Does something to jobs, at most `max` in a step; answers for each step.
    pub async fn amend_in_steps(
        &self,
        selection: Selection,
        action: AmendAction,
        max: usize,
    ) -> Vec<AmendResult> {
        let mut amendment = AmendJobsRequest {
            selection,
            action,
            only: None,
            cursor: None,
            max,
        };
        let mut steps = Vec::new();
        // More steps than this for what a test puts in is an amendment that runs in circles.
        while steps.len() < 20_000 {
            let step = self
                .store
                .amend(amendment.clone(), self.now)
                .await
                .expect("the store amends");
            amendment.cursor.clone_from(&step.next);
            steps.push(step);
            if amendment.cursor.is_none() {
                return steps;
            }
        }
        assert!(
            amendment.cursor.is_none(),
            "an amendment that does not end: {amendment:?}"
        );
        steps
    }

    /// Does something to the jobs of these names.
    pub async fn amend_named(&self, names: &[&str], action: AmendAction) -> AmendResult {
        self.amend(
            Selection::Ids(names.iter().map(|name| id(name)).collect()),
            action,
        )
        .await
    }

    /// The job of this name, if there is one.
    pub async fn find(&self, name: &str) -> Option<Job> {
        self.store
            .job(id(name), self.now)
            .await
            .expect("the store looks a job up")
    }

    /// The job of this name, which is there.
    pub async fn job(&self, name: &str) -> Job {
        let job = self.find(name).await;
        assert!(job.is_some(), "there is no job {name}");
        job.expect("asserted")
    }

    /// Where the job of this name stands.
    pub async fn state(&self, name: &str) -> Option<JobState> {
        self.find(name).await.map(|job| job.state)
    }

    /// Everything that fits, in the order of the list.
    pub async fn list(&self, filter: &Filter) -> Vec<Job> {
        list(&*self.store, filter, 100, self.now).await
    }

    /// The queue of this name as an operator sees it.
    pub async fn queue(&self, name: &str) -> QueueStatus {
        let queues = self
            .store
            .queues(self.now)
            .await
            .expect("the store lists its queues");
        let status = queues
            .into_iter()
            .find(|status| status.name.as_str() == name);
        status.expect("the queue exists")
    }
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene")
            .field("now", &self.now)
            .field("drawn", &self.drawn)
            .finish_non_exhaustive()
    }
}
