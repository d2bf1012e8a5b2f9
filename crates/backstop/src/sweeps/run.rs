//! One run: look for rows, ask the store what it knows of them, let the core decide, enqueue, write
//! down.

use super::recoveries::SweepRecoveries;
use super::{
    FindError, FindResult, FindScope, PastRun, Sweep, dead_letters, history, metrics, turn,
};
use crate::client::Backstop;
use crate::worker::default_worker_name;
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::limits::{BURY_MAX, HOLDERS_MAX, RECONCILE_MAX, SWEEP_RUN_MAX};
use backstop_core::port::{
    EnqueueOutcome, NewDeadLetter, StoreError, StoreResult, UniqueKeyHolder,
};
use backstop_core::sweep::{
    Finding, FindingDecision, FindingFacts, SweepBusyError, SweepTurn, judge,
};
use backstop_core::unique::{UniqueConstraint, UniqueKey};
use backstop_core::verdict::EndReason;
use backstop_core::{JobId, NewJob, Span, Time, WorkerName};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// A run that takes longer is given up.
const DEADLINE: Duration =
    Duration::from_secs(SWEEP_RUN_MAX.as_micros().unsigned_abs() / 1_000_000);

/// A run looks at so many times the rows it may act on, and at no fewer than this; at all it can
/// compare only where that was not enough.
const SCAN_FACTOR: usize = 10;
const SCAN_MIN: usize = 10_000;
/// What two readings of a clock may be apart.
const NOW_TOLERANCE: Span = Span::minutes(1);

/// A row that no job can be made of.
#[derive(Clone, PartialEq, Debug)]
pub struct UnusableRow {
    /// What it is known by.
    pub row: Value,
    pub why: String,
}

/// What a run found, and what it did. Lists hold what rows are known by.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SweepReport {
    /// All that were found and can be used.
    pub found: Vec<Value>,
    /// Those whose job is on its way.
    pub alive: Vec<Value>,
    /// Those whose work was given up: a dead letter has their key, or is made by this run.
    pub dead: Vec<Value>,
    /// Those whose job has ended and keeps its key: it is not to be done twice.
    pub spent: Vec<Value>,
    /// Those that are to get a job.
    pub would_enqueue: Vec<Value>,
    /// Those that got one. Empty in a dry run.
    pub enqueued: Vec<Value>,
    /// Those that this run gave up. Empty in a dry run.
    pub buried: Vec<Value>,
    /// Those that a full queue, or full dead letters, did not take; the next run looks again.
    pub refused: Vec<Value>,
    /// Rows that no job can be made of.
    pub unusable: Vec<UnusableRow>,
    /// Whether there is more than one run looks at, or acts on; the next one goes on.
    pub is_cut: bool,
    /// Whether there is more than a run can look at: nobody sees what is lost behind that, until
    /// what stands before it is done with.
    pub unseen: bool,
}

/// Rows, and what is to become of them.
struct JudgedRows {
    rows: Vec<(Finding, FindingDecision)>,
    unusable: Vec<UnusableRow>,
    /// At how many rows was looked, at most.
    max: usize,
    /// Whether there may be more.
    is_cut: bool,
}

/// A run that failed. Nothing is enqueued by a run whose search fails.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the sweep is being run already: {0}")]
    Taken(#[from] SweepBusyError),
    #[error("the run was not through after {0:?}")]
    TooSlow(Duration),
}

/// A sweep on a store.
#[derive(Clone, Debug)]
pub struct Sweeper {
    backstop: Backstop,
    sweep: Sweep,
    runner: WorkerName,
    /// Where the search runs; where it is asked for, if none is named.
    runtime: Option<Handle>,
}

impl Backstop {
    /// A sweep, to be run and looked at by hand. Workers run theirs by themselves.
    pub fn sweeper(&self, sweep: &Sweep) -> Sweeper {
        Sweeper {
            backstop: self.clone(),
            sweep: sweep.clone(),
            runner: default_worker_name(self),
            runtime: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepMode {
    Dry,
    Real,
}

impl Sweeper {
    pub(crate) fn by(
        backstop: &Backstop,
        sweep: &Sweep,
        runner: &WorkerName,
        runtime: Option<Handle>,
    ) -> Self {
        Self {
            backstop: backstop.clone(),
            sweep: sweep.clone(),
            runner: runner.clone(),
            runtime,
        }
    }

    pub const fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    pub(super) const fn backstop(&self) -> &Backstop {
        &self.backstop
    }

    /// Runs it now, whenever it ran last; refused while somebody else does.
    pub async fn run(&self) -> Result<SweepReport, SweepError> {
        self.run_at(self.backstop.current_time().await).await
    }

    /// As [`Sweeper::run`], with rows looked for as if it were `at`.
    pub async fn run_at(&self, at: Time) -> Result<SweepReport, SweepError> {
        let taken = turn::take(
            &self.backstop,
            &self.sweep,
            self.runner.as_str(),
            Span::ZERO,
        )
        .await?;
        self.run_turn(&taken?, at).await
    }

    /// What a run would do if it were `at`. Changes nothing.
    pub async fn dry_run(&self, at: Time) -> Result<SweepReport, SweepError> {
        self.with_deadline(self.perform(at, SweepMode::Dry)).await
    }

    /// The last runs, the latest first.
    pub async fn history(&self) -> StoreResult<Vec<PastRun>> {
        history::runs(&self.backstop, &self.sweep).await
    }

    /// When the next run may begin.
    pub(crate) async fn next(&self) -> StoreResult<Time> {
        turn::next(&self.backstop, &self.sweep).await
    }

    /// Takes the turn of this period; `None` if somebody else has it.
    pub(crate) async fn take_turn(&self) -> StoreResult<Option<SweepTurn>> {
        let taken = turn::take(
            &self.backstop,
            &self.sweep,
            self.runner.as_str(),
            self.sweep.period(),
        )
        .await?;
        Ok(taken.ok())
    }

    /// Leaves a turn to others, because this process stops.
    pub(crate) async fn leave_turn(&self, turn: &SweepTurn) {
        turn::leave(&self.backstop, &self.sweep, turn).await;
    }

    /// Runs it, once the turn is ours, and writes down what came of it.
    pub(crate) async fn run_turn(
        &self,
        turn: &SweepTurn,
        at: Time,
    ) -> Result<SweepReport, SweepError> {
        let outcome = self
            .renewing_turn(turn, self.with_deadline(self.perform(at, SweepMode::Real)))
            .await;
        let took = self.backstop.now().since(turn.began);
        metrics::run(&self.sweep, &outcome, took);
        let run = PastRun::of(&outcome, turn.began, took, self.runner.as_str());
        history::note(&self.backstop, &self.sweep, &run).await;
        if let Ok(report) = &outcome {
            // For metrics and pages: nobody else looks in both directions while nobody asks.
            let has_seen_all = !report.is_cut && self.is_now(at);
            let compared = async {
                if has_seen_all {
                    self.reconcile_after(report).await
                } else {
                    self.reconcile().await
                }
            };
            match self.renewing_turn(turn, compared).await {
                Ok(found) => {
                    history::note_reconciled(&self.backstop, &self.sweep, &run, &found).await;
                }
                Err(error) => {
                    tracing::debug!(%error, sweep = self.sweep.name(), "rows and jobs were not compared");
                }
            }
        }
        turn::end(&self.backstop, &self.sweep, turn).await;
        outcome
    }

    /// Works, and says now and then that the runner lives.
    async fn renewing_turn<T>(&self, turn: &SweepTurn, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(turn::KEEP_EVERY) => turn::keep(&self.backstop, &self.sweep, turn).await,
            }
        }
    }

    pub(super) async fn with_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, SweepError>>,
    ) -> Result<T, SweepError> {
        tokio::time::timeout(DEADLINE, work)
            .await
            .unwrap_or(Err(SweepError::TooSlow(DEADLINE)))
    }

    async fn perform(&self, at: Time, mode: SweepMode) -> Result<SweepReport, SweepError> {
        let cutoff = at.before(self.sweep.older_than);
        let recoveries = SweepRecoveries::read(&self.backstop, &self.sweep).await?;
        let seen = self.find_rows(cutoff, &recoveries).await?;
        let (rows, is_bounded) = self.cut_to_max(seen.rows);
        let (judged, is_left_over) = self.confirm(rows, cutoff, seen.max).await?;
        let is_cut = seen.is_cut || is_bounded || is_left_over;
        let mut report = SweepReport {
            unusable: seen.unusable,
            is_cut,
            unseen: seen.is_cut,
            ..SweepReport::of(&judged)
        };
        if mode == SweepMode::Real {
            self.recover(&judged, &recoveries, &mut report).await?;
            self.give_up(&judged, &recoveries, &mut report).await?;
            let keys = judged.iter().map(|(finding, _)| &finding.key).collect();
            // Looked for as of an earlier time, what is younger was not found although it is there.
            let is_gone_for_good = !is_cut && self.is_now(at);
            recoveries.clear(&keys, is_gone_for_good).await?;
        }
        Ok(report)
    }

    /// Looks at as many rows as a run needs. Rows that stay as they are, since their jobs are dead
    /// or no job can be made of them, are found first by every run: where they fill a look, and it
    /// leaves the run with too little to do, as much as can be is looked at.
    async fn find_rows(
        &self,
        cutoff: Time,
        recoveries: &SweepRecoveries<'_>,
    ) -> Result<JudgedRows, SweepError> {
        let first = self.judge_rows(cutoff, self.scan_max(), recoveries).await?;
        let acted_on = first
            .rows
            .iter()
            .filter(|(_, fate)| is_acted_on(*fate))
            .count();
        if !first.is_cut || first.max >= RECONCILE_MAX || acted_on >= self.sweep.max_per_run {
            return Ok(first);
        }
        match self.judge_rows(cutoff, RECONCILE_MAX, recoveries).await {
            Err(SweepError::Find(error)) => {
                tracing::warn!(%error, sweep = self.sweep.name(), "there are more rows than {}, and they could not be looked at", first.max);
                Ok(first)
            }
            further => further,
        }
    }

    async fn judge_rows(
        &self,
        cutoff: Time,
        max: usize,
        recoveries: &SweepRecoveries<'_>,
    ) -> Result<JudgedRows, SweepError> {
        let found = self.search(cutoff, max, FindScope::Keys).await?;
        let fates = self.judge(&found.findings, recoveries).await?;
        let rows = found.findings.into_iter().zip(fates).collect();
        Ok(JudgedRows {
            rows,
            unusable: found.unusable,
            max,
            is_cut: found.is_cut,
        })
    }

    /// Whether a run as of `at` sees what is there, and not what was.
    fn is_now(&self, at: Time) -> bool {
        at >= self.backstop.now().before(NOW_TOLERANCE)
    }

    /// How many rows one run looks at: more than it acts on, so that rows which need nothing do not
    /// hide those behind them.
    fn scan_max(&self) -> usize {
        self.sweep
            .max_per_run
            .saturating_mul(SCAN_FACTOR)
            .clamp(SCAN_MIN, RECONCILE_MAX)
    }

    /// Looks for rows, away from the loops that must not wait: a finder of the user's may block, or
    /// panic.
    pub(super) async fn search(
        &self,
        cutoff: Time,
        max: usize,
        wanted: FindScope,
    ) -> Result<FindResult, FindError> {
        let finder = Arc::clone(&self.sweep.finder);
        let looking = async move { finder.find_wanted(cutoff, max, &wanted).await };
        let task = match &self.runtime {
            Some(runtime) => runtime.spawn(looking),
            None => tokio::spawn(looking),
        };
        let ended = AbortOnDropHandle::new(task).await;
        ended.unwrap_or_else(|error| {
            Err(FindError::Failed(format!(
                "the search did not end by itself: {error}"
            )))
        })
    }

    /// No more are acted on in one run than it may; whether some were left out. The next run finds
    /// them.
    fn cut_to_max(
        &self,
        judged: Vec<(Finding, FindingDecision)>,
    ) -> (Vec<(Finding, FindingDecision)>, bool) {
        let (before, mut acted_on) = (judged.len(), 0);
        let is_within = |(_, fate): &(Finding, FindingDecision)| {
            acted_on += usize::from(is_acted_on(*fate));
            !is_acted_on(*fate) || acted_on <= self.sweep.max_per_run
        };
        let within: Vec<(Finding, FindingDecision)> =
            judged.into_iter().filter(is_within).collect();
        let is_bounded = within.len() < before;
        (within, is_bounded)
    }

    async fn judge(
        &self,
        findings: &[Finding],
        recoveries: &SweepRecoveries<'_>,
    ) -> StoreResult<Vec<FindingDecision>> {
        let keys: Vec<UniqueKey> = findings.iter().map(|finding| finding.key.clone()).collect();
        let holders = self.unique_holders(&keys).await?;
        let free = keys
            .iter()
            .zip(&holders)
            .filter(|(_, holder)| holder.is_none())
            .map(|(key, _)| key);
        let dead = dead_letters::keys_with_dead_letters(
            &self.backstop,
            self.sweep.queue(),
            &free.collect(),
        )
        .await?;
        let known = keys.iter().zip(holders).map(|(key, holder)| {
            (
                key,
                FindingFacts {
                    holder,
                    is_dead: dead.contains(key),
                    recovered: recoveries.count(key),
                },
            )
        });
        Ok(judge(known, self.sweep.max_recoveries))
    }

    /// Who holds these keys, in their order.
    pub(super) async fn unique_holders(
        &self,
        keys: &[UniqueKey],
    ) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
        let mut holders = Vec::with_capacity(keys.len());
        for part in keys.chunks(HOLDERS_MAX) {
            let queue = self.sweep.queue().clone();
            holders.extend(
                self.backstop
                    .store()
                    .unique_holders(queue, part.to_vec(), self.backstop.now())
                    .await?,
            );
        }
        Ok(holders)
    }

    /// What is acted on, whole, and without what was processed meanwhile; whether some were too
    /// large for one run. A job that ended between the search and the question who holds its key
    /// looks lost: its row is looked for once more, now that no job was seen, and is not found
    /// again.
    async fn confirm(
        &self,
        judged: Vec<(Finding, FindingDecision)>,
        cutoff: Time,
        max: usize,
    ) -> Result<(Vec<(Finding, FindingDecision)>, bool), FindError> {
        let acted_on = judged.iter().filter(|(_, fate)| is_acted_on(*fate));
        let wanted: BTreeSet<UniqueKey> =
            acted_on.map(|(finding, _)| finding.key.clone()).collect();
        if wanted.is_empty() {
            return Ok((judged, false));
        }
        let again = self.search(cutoff, max, FindScope::These(wanted)).await?;
        let mut still = BTreeMap::new();
        for finding in again.findings {
            still.entry(finding.key.clone()).or_insert(finding);
        }
        let whole = judged.into_iter().filter_map(|(finding, fate)| match fate {
            FindingDecision::Recover | FindingDecision::GiveUp => {
                Some((still.remove(&finding.key)?, fate))
            }
            _ => Some((finding, fate)),
        });
        Ok((whole.collect(), again.is_cut))
    }

    async fn recover(
        &self,
        judged: &[(Finding, FindingDecision)],
        recoveries: &SweepRecoveries<'_>,
        report: &mut SweepReport,
    ) -> StoreResult<()> {
        let lost: Vec<&Finding> = with_decision(judged, FindingDecision::Recover).collect();
        let jobs = lost
            .iter()
            .map(|finding| self.job(finding, self.backstop.new_id()))
            .collect();
        let answers = self.backstop.push_jobs(jobs).await?;
        let mut recovered = Vec::new();
        for (finding, answer) in lost.into_iter().zip(answers) {
            match answer {
                EnqueueOutcome::Inserted | EnqueueOutcome::Same => {
                    report.enqueued.push(finding.row.clone());
                    recovered.push(finding.key.clone());
                }
                // Somebody gave it a job meanwhile.
                EnqueueOutcome::Duplicate(_) => report.alive.push(finding.row.clone()),
                EnqueueOutcome::Full | EnqueueOutcome::Conflict => {
                    report.refused.push(finding.row.clone());
                }
            }
        }
        recoveries.add(&recovered).await
    }

    async fn give_up(
        &self,
        judged: &[(Finding, FindingDecision)],
        recoveries: &SweepRecoveries<'_>,
        report: &mut SweepReport,
    ) -> StoreResult<()> {
        let hopeless: Vec<&Finding> = with_decision(judged, FindingDecision::GiveUp).collect();
        let mut buried = Vec::new();
        for part in hopeless.chunks(BURY_MAX) {
            let burials = part
                .iter()
                .map(|finding| self.burial(finding, recoveries))
                .collect();
            let answers = self
                .backstop
                .store()
                .bury(burials, self.backstop.now())
                .await?;
            for (finding, answer) in part.iter().zip(answers) {
                if answer == EnqueueOutcome::Full {
                    report.refused.push(finding.row.clone());
                } else {
                    tracing::warn!(
                        sweep = self.sweep.name(), row = %finding.row,
                        "recovered {} times in vain; it is a dead letter now", recoveries.count(&finding.key)
                    );
                    report.buried.push(finding.row.clone());
                    buried.push(finding.key.clone());
                }
            }
        }
        // The letter speaks from here on. Should a person requeue it, the count begins anew.
        recoveries.forget(&buried).await
    }

    fn job(&self, finding: &Finding, id: JobId) -> NewJob {
        let (queue, kind) = (self.sweep.queue.clone(), self.sweep.kind.clone());
        let job = NewJob::new(id, queue, kind, finding.payload.clone());
        NewJob {
            unique: Some(UniqueConstraint::live(finding.key.clone())),
            ..job
        }
    }

    fn burial(&self, finding: &Finding, recoveries: &SweepRecoveries<'_>) -> NewDeadLetter {
        let (now, count) = (self.backstop.now(), recoveries.count(&finding.key));
        let last = recoveries.last(&finding.key).unwrap_or(now);
        // The same id for whoever gives it up at the same time: one letter.
        let name = format!(
            "sweep {} {} {}",
            self.sweep.name,
            finding.key,
            last.as_micros()
        );
        let message = format!(
            "sweep {} recovered row {} {count} times, the last time at {last}, and still finds it: its jobs end without marking the row as processed",
            self.sweep.name, finding.row
        );
        let error = ErrorReport {
            error_type: Some("SweptInVain".to_owned()),
            ..ErrorReport::message(message)
        };
        let failure = FailureRecord::new(now, count, FailureCause::Failed, &self.runner, error);
        NewDeadLetter {
            job: self.job(finding, JobId::named(&name)),
            attempts: count,
            lost_leases: 0,
            requeues: 0,
            inserted_at: now,
            finished_at: now,
            reason: EndReason::AttemptsExhausted,
            history: FailureHistory::default().with_failure(failure),
        }
    }
}

/// Whether a run does something about it.
const fn is_acted_on(decision: FindingDecision) -> bool {
    matches!(decision, FindingDecision::Recover | FindingDecision::GiveUp)
}

fn with_decision(
    judged: &[(Finding, FindingDecision)],
    wanted: FindingDecision,
) -> impl Iterator<Item = &Finding> {
    judged
        .iter()
        .filter(move |(_, fate)| *fate == wanted)
        .map(|(finding, _)| finding)
}

impl SweepReport {
    fn of(judged: &[(Finding, FindingDecision)]) -> Self {
        let rows = |fates: &[FindingDecision]| {
            let those = judged.iter().filter(|(_, fate)| fates.contains(fate));
            those.map(|(finding, _)| finding.row.clone()).collect()
        };
        Self {
            found: judged
                .iter()
                .map(|(finding, _)| finding.row.clone())
                .collect(),
            alive: rows(&[FindingDecision::Alive]),
            dead: rows(&[FindingDecision::Dead, FindingDecision::GiveUp]),
            spent: rows(&[FindingDecision::Spent]),
            would_enqueue: rows(&[FindingDecision::Recover]),
            ..Self::default()
        }
    }
}
