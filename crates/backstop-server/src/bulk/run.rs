//! Runs one: a step, a note of how far it is, the next step.

use super::report::{BulkAction, BulkReport, BulkSelection};
use super::{BulkRunSlot, SaveReportResult, parse_report, swap_report};
use crate::App;
use backstop::Backstop;
use backstop::audit::{AuditLog, OpenAuditEntry};
use backstop::dead::{DeadFilter, DeadLetter};
use backstop::search::{JobSearch, change};
use backstop_core::amend::{Filter, Selection};
use backstop_core::limits::AMEND_MAX;
use backstop_core::port::{AmendJobsRequest, AmendResult, StoreError, StoreResult};
use backstop_core::{JobState, Time};
use std::time::Duration;

/// Dead letters looked at in one step.
const LETTERS_MAX: usize = 200;
/// How often in a row a store that does not answer is asked again, and after how long.
const TRIES_MAX: u32 = 30;
const WAIT: Duration = Duration::from_secs(1);

/// A run that this process has.
pub(super) struct BulkRun {
    app: App,
    backstop: Backstop,
    report: BulkReport,
    version: i64,
}

/// Why a run of this process ends.
enum BulkRunEnd {
    Done,
    Stopped,
    /// The store failed for good.
    Failed(StoreError),
    /// Somebody else has it, or it was removed.
    Lost,
    /// The server closes: another one goes on.
    Left,
}

/// What a run does next.
enum BulkRunStep {
    Step,
    /// It writes down what the step before did.
    Save {
        is_last: bool,
    },
}

/// How often in a row the store did not answer.
#[derive(Default)]
struct BulkRetries(u32);

impl BulkRetries {
    /// Waits before the next try; ends the run where none can help, or there were enough.
    async fn wait_after(&mut self, error: StoreError, run: &str) -> Result<(), BulkRunEnd> {
        if !error.is_transient() || self.0 >= TRIES_MAX {
            return Err(BulkRunEnd::Failed(error));
        }
        self.0 += 1;
        tracing::warn!(%error, run, "not answered; trying again in {WAIT:?}");
        tokio::time::sleep(WAIT).await;
        Ok(())
    }
}

impl BulkRun {
    /// Writes a new run down.
    pub(super) async fn begin(app: &App, report: BulkReport) -> StoreResult<Self> {
        match swap_report(app.backstop(), &report, None).await? {
            SaveReportResult::Applied(version) => Ok(Self::new(app, report, version)),
            SaveReportResult::Conflict(_) => Err(StoreError::unavailable(
                "starting a bulk action",
                "another one has its id; try again",
            )),
        }
    }

    /// Takes a run over, in the name and for the reason that `log` has; without one, for the reason
    /// it was started for. `None` if somebody else was faster.
    pub(super) async fn take(
        app: &App,
        report: BulkReport,
        seen: i64,
        log: &AuditLog,
    ) -> StoreResult<Option<Self>> {
        let (who, seen_at, runner) = (log.who().to_owned(), app.backstop().now(), rand::random());
        let reason = log.reason().map(str::to_owned).or(report.reason);
        let report = BulkReport {
            who,
            reason,
            seen_at,
            runner,
            is_left: false,
            ..report
        };
        Ok(
            match swap_report(app.backstop(), &report, Some(seen)).await? {
                SaveReportResult::Applied(version) => Some(Self::new(app, report, version)),
                SaveReportResult::Conflict(_) => None,
            },
        )
    }

    fn new(app: &App, report: BulkReport, version: i64) -> Self {
        Self {
            app: app.clone(),
            backstop: app.backstop().clone(),
            report,
            version,
        }
    }

    /// Goes on in the background; the place is its own as long.
    pub(super) fn spawn(self, place: BulkRunSlot) {
        let tasks = self.app.tasks().clone();
        tasks.spawn(async move {
            self.run_to_end().await;
            drop(place);
        });
    }

    /// Goes on to the end, between the two halves of an entry of the audit.
    async fn run_to_end(mut self) {
        let audit = self
            .backstop
            .audit(&self.report.who)
            .because_of(self.report.reason.as_deref());
        let before = self.report.count;
        let noted = match self.begin_entry(&audit).await {
            Ok(noted) => noted,
            Err(end) => {
                // Nothing is done that is not written down.
                self.record_end(end).await;
                return;
            }
        };
        let end = self.run_steps().await;
        let count = self.report.count.saturating_sub(before);
        match &end {
            BulkRunEnd::Failed(error) => {
                audit
                    .record_end(noted, count, Some(error.to_string()))
                    .await;
            }
            // A server that went on with a run is in the audit, also where nothing was left to do.
            _ if before > 0 => audit.record_end(noted, count, None).await,
            _ => audit.close_entry::<StoreError>(noted, count, &Ok(())).await,
        }
        self.record_end(end).await;
    }

    /// Writes the first half of the entry, as patiently as everything else.
    async fn begin_entry(&self, audit: &AuditLog) -> Result<OpenAuditEntry, BulkRunEnd> {
        let mut retries = BulkRetries::default();
        loop {
            let selection = self
                .report
                .target
                .audit_selection(&self.app.config().redaction);
            match audit.open_entry(&self.report.target.what, selection).await {
                Ok(noted) => return Ok(noted),
                Err(error) => retries.wait_after(error, &self.report.id).await?,
            }
            if self.app.closing().is_cancelled() {
                return Err(BulkRunEnd::Left);
            }
        }
    }

    /// Step after step, each written down before the next. A store that does not answer is asked
    /// again, whatever it was asked.
    async fn run_steps(&mut self) -> BulkRunEnd {
        let (mut retries, mut next) = (BulkRetries::default(), BulkRunStep::Step);
        loop {
            if let Some(end) = self.early_end(&next) {
                return end;
            }
            let answer = match next {
                BulkRunStep::Step => self
                    .run_step()
                    .await
                    .map(|is_last| Ok(BulkRunStep::Save { is_last })),
                BulkRunStep::Save { is_last } => {
                    self.save().await.map(|is_ours| match (is_ours, is_last) {
                        (false, _) => Err(BulkRunEnd::Lost),
                        (true, true) => Err(BulkRunEnd::Done),
                        (true, false) => Ok(BulkRunStep::Step),
                    })
                }
            };
            match answer {
                Ok(Ok(following)) => (retries, next) = (BulkRetries::default(), following),
                Ok(Err(end)) => return end,
                Err(error) => {
                    if let Err(end) = retries.wait_after(error, &self.report.id).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Whether it is to end before it does `next`. The last step of all leaves nothing to be
    /// stopped, or to be left to others: begun anew from no cursor it would do everything again.
    fn early_end(&self, next: &BulkRunStep) -> Option<BulkRunEnd> {
        let is_closing = self.app.closing().is_cancelled();
        match next {
            BulkRunStep::Save { is_last: true } => is_closing.then_some(BulkRunEnd::Done),
            BulkRunStep::Step if self.report.is_stop_requested => Some(BulkRunEnd::Stopped),
            BulkRunStep::Step | BulkRunStep::Save { is_last: false } => {
                is_closing.then_some(BulkRunEnd::Left)
            }
        }
    }

    /// The next step; whether it was the last.
    async fn run_step(&mut self) -> StoreResult<bool> {
        let which = self.report.target.which.clone();
        self.report.cursor = match (which.search()?, &which) {
            (Some(search), _) if search.needs_scan() => self.amend_searched(&search).await?,
            (Some(search), _) => self.amend_matching(search.filter, None).await?,
            (None, BulkSelection::Letters(filter)) => match as_store_filter(filter) {
                Some(filter) => self.amend_matching(filter, Some(JobState::Dead)).await?,
                None => self.amend_dead_letters(filter).await?,
            },
            // Whatever is not letters has a search.
            (None, _) => None,
        };
        Ok(self.report.cursor.is_none())
    }

    /// What the store finds by itself; where to go on.
    async fn amend_matching(
        &mut self,
        filter: Filter,
        only: Option<JobState>,
    ) -> StoreResult<Option<String>> {
        let selection = if filter.is_empty() {
            Selection::All
        } else {
            Selection::Matching(filter)
        };
        self.amend(selection, only, self.report.cursor.clone())
            .await
    }

    /// One call, and what it did in the report at once: the next one may fail.
    async fn amend(
        &mut self,
        selection: Selection,
        only: Option<JobState>,
        cursor: Option<String>,
    ) -> StoreResult<Option<String>> {
        let action = self.report.target.action();
        let amended = self
            .send_amendment(AmendJobsRequest {
                selection,
                action,
                only,
                cursor,
                max: AMEND_MAX,
            })
            .await?;
        self.report.record_refusals(
            amended
                .refused
                .into_iter()
                .map(|(id, why)| (id, why.to_string())),
        );
        Ok(amended.next)
    }

    async fn send_amendment(&mut self, amendment: AmendJobsRequest) -> StoreResult<AmendResult> {
        let amended = self
            .backstop
            .store()
            .amend(amendment, self.backstop.now())
            .await?;
        self.report.count += amended.applied as u64;
        Ok(amended)
    }

    /// Jobs that have to be looked at, as [`backstop::search::change`] walks through them. Where to
    /// go on.
    async fn amend_searched(&mut self, search: &JobSearch) -> StoreResult<Option<String>> {
        let (config, action) = (self.app.config(), self.report.target.action());
        let cursor = self.report.cursor.clone();
        let next = self
            .backstop
            .next_job_changes(search, &config.redaction, &action, cursor)
            .await?;
        for amendment in next.amendments {
            let amended = self.send_amendment(amendment).await?;
            self.report
                .record_refusals(change::refusals(&amended).map(|(id, why)| (id, why.to_string())));
        }
        Ok(next.next)
    }

    /// What has to be looked at: only letters that were dead when it began, so that none is met
    /// twice. Where to go on.
    async fn amend_dead_letters(&mut self, filter: &DeadFilter) -> StoreResult<Option<String>> {
        let filter = until_at_most(filter, self.report.started_at);
        let page = self
            .backstop
            .dead()
            .list(&filter, self.report.cursor.clone(), LETTERS_MAX)
            .await?;
        for selection in by_queue(page.letters, self.report.target.deed) {
            self.amend(selection, Some(JobState::Dead), None).await?;
        }
        Ok(page.next)
    }

    /// Writes how far it is; learns whether somebody wants it to stop. False if it is no longer
    /// this process's.
    async fn save(&mut self) -> StoreResult<bool> {
        self.report.seen_at = self.backstop.now();
        loop {
            match swap_report(&self.backstop, &self.report, Some(self.version)).await? {
                SaveReportResult::Applied(version) => {
                    self.version = version;
                    return Ok(true);
                }
                SaveReportResult::Conflict(None) => return Ok(false),
                SaveReportResult::Conflict(Some(cell)) => {
                    let stored =
                        parse_report(&cell).filter(|other| other.runner == self.report.runner);
                    let Some(stored) = stored else {
                        return Ok(false);
                    };
                    self.report.is_stop_requested |= stored.is_stop_requested;
                    self.version = cell.version;
                }
            }
        }
    }

    async fn record_end(&mut self, end: BulkRunEnd) {
        if let BulkRunEnd::Failed(error) = &end {
            self.report.error = Some(error.to_string());
        }
        if matches!(end, BulkRunEnd::Left) {
            self.report.is_left = true;
        }
        if matches!(end, BulkRunEnd::Lost) {
            tracing::warn!(
                run = self.report.id,
                "a bulk action was taken over by another server"
            );
            return;
        }
        // Asked to stop at its very end it was not stopped.
        if matches!(end, BulkRunEnd::Done) {
            self.report.is_stop_requested = false;
        }
        self.report.ended_at = (!self.report.is_left).then(|| self.backstop.now());
        if let Err(error) = self.save().await {
            tracing::warn!(%error, run = self.report.id, "the end of a bulk action could not be noted");
        }
    }
}

/// These letters, each selection of one queue: on Redis another may have a job of the same id.
/// Those that move meet in one line, in the order in which they were found; others stay where they
/// are, and queue by queue is fewer calls.
fn by_queue(mut letters: Vec<DeadLetter>, deed: BulkAction) -> Vec<Selection> {
    if deed != BulkAction::Move {
        letters.sort_by(|one, other| one.queue.cmp(&other.queue));
    }
    let parts = letters.chunk_by(|one, next| one.queue == next.queue);
    let within = |part: &[DeadLetter]| {
        Selection::Within(
            part[0].queue.clone(),
            part.iter().map(|letter| letter.id).collect(),
        )
    };
    parts.map(within).collect()
}

/// The filter, if the store can tell all of it.
fn as_store_filter(filter: &DeadFilter) -> Option<Filter> {
    let DeadFilter {
        queue,
        kind,
        error_type,
        fingerprint,
        since,
        until,
        text,
    } = filter.clone();
    let is_own = error_type.is_none() && since.is_none() && until.is_none() && text.is_none();
    is_own.then_some(Filter {
        queue,
        kind,
        state: Some(JobState::Dead),
        fingerprint,
    })
}

fn until_at_most(filter: &DeadFilter, at: Time) -> DeadFilter {
    DeadFilter {
        until: Some(filter.until.map_or(at, |until| until.min(at))),
        ..filter.clone()
    }
}
