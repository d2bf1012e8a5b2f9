//! Actions on all jobs that match: they run in the background, whoever watches.
//!
//! A run is one cell, `bulk/ID`: what it does, how far it is, and who runs it. It goes on when the
//! tab is closed; when its server is gone, the cell still says what was done, and the first server
//! of the store that sees it goes on from there. Each run is one entry of the audit, and so is each
//! going on.

mod preview;
mod report;
mod run;

pub use preview::{COUNT_MAX, JobCount, count_target};
pub(crate) use preview::{has_stored_count, stored_count};
pub use report::{BulkAction, BulkPlan, BulkReport, BulkSelection, BulkStatus, BulkTarget};

use crate::App;
use crate::work_limits::{CallerLimiters, WorkPermit};
use backstop::Backstop;
use backstop::audit::{AuditLog, AuditReason};
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreResult, SwapOutcome};
use backstop_core::share::surplus;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Runs that one server has under way at a time.
const RUNS_MAX: usize = 4;
/// And so many of one caller: nobody keeps everybody else out alone.
const CALLER_RUNS_MAX: usize = RUNS_MAX - 1;
/// Ended runs that stay listed.
const ENDED_MAX: usize = 50;

const PREFIX: &str = "bulk/";

/// The runs that this server has under way.
pub struct BulkRunSlots {
    places: Arc<Semaphore>,
    callers: CallerLimiters,
}

/// The place of one run, free again when dropped.
pub struct BulkRunSlot {
    _of_all: OwnedSemaphorePermit,
    _of_caller: WorkPermit,
}

impl Default for BulkRunSlots {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(RUNS_MAX)),
            callers: CallerLimiters::new(CALLER_RUNS_MAX, 0),
        }
    }
}

impl BulkRunSlots {
    /// A place for one more run of this caller, if there is one.
    fn enter(&self, who: &str) -> Option<BulkRunSlot> {
        Some(BulkRunSlot {
            _of_caller: self.callers.try_acquire(&who.into())?,
            _of_all: Arc::clone(&self.places).try_acquire_owned().ok()?,
        })
    }
}

/// Runs on a store, in somebody's name.
#[derive(Clone)]
pub struct BulkActions {
    app: App,
    backstop: Backstop,
    log: AuditLog,
}

/// Goes on with runs whose server is gone, in the names of those who started them, as far as there
/// is room. One that was asked to stop ends.
pub(crate) async fn resume(app: &App) -> StoreResult<()> {
    let bulk = BulkActions::new(app, "");
    for cell in bulk.list_cells().await? {
        let silent = parse_report(&cell)
            .filter(|report| report.status(app.backstop().now()) == BulkStatus::Silent);
        let Some(report) = silent else { continue };
        let Some(place) = app.bulk_runs().enter(&report.who) else {
            continue;
        };
        let (id, log) = (report.id.clone(), app.backstop().audit(&report.who));
        if let Some(run) = run::BulkRun::take(app, report, cell.version, &log).await? {
            tracing::info!(
                run = id,
                who = log.who(),
                "a bulk action whose server is gone goes on here"
            );
            run.spawn(place);
        }
    }
    Ok(())
}

impl BulkActions {
    /// The runs on the store of `app`, in the name of `who`.
    pub fn new(app: &App, who: &str) -> Self {
        Self {
            app: app.clone(),
            backstop: app.backstop().clone(),
            log: app.backstop().audit(who),
        }
    }

    /// For this reason, if there is one: the audit says so.
    #[must_use]
    pub fn because(self, reason: Option<AuditReason>) -> Self {
        Self {
            log: self.log.because(reason),
            ..self
        }
    }

    /// Starts a run; answers its id, or `None` if this server, or its caller, has too many under
    /// way.
    pub async fn start(&self, plan: BulkPlan) -> StoreResult<Option<String>> {
        match self.enter() {
            Some(place) => self.start_in(place, plan).await.map(Some),
            None => Ok(None),
        }
    }

    /// The place of a run, if this server, and its caller, have one left. Whoever counts jobs for a
    /// run takes it before that.
    pub fn enter(&self) -> Option<BulkRunSlot> {
        self.app.bulk_runs().enter(self.log.who())
    }

    /// Starts a run in its place; answers its id.
    pub async fn start_in(&self, place: BulkRunSlot, plan: BulkPlan) -> StoreResult<String> {
        self.forget_old().await?;
        let report = BulkReport::new(
            self.backstop.new_id().to_string(),
            &self.log,
            plan,
            self.backstop.now(),
        );
        let id = report.id.clone();
        run::BulkRun::begin(&self.app, report).await?.spawn(place);
        Ok(id)
    }

    /// Lets a run go on whose server is gone, now and whatever was asked of it; `None` if this
    /// server, or its caller, has too many under way, `Some(false)` if it has ended or somebody
    /// runs it.
    pub async fn resume(&self, id: &str) -> StoreResult<Option<bool>> {
        let Some(place) = self.app.bulk_runs().enter(self.log.who()) else {
            return Ok(None);
        };
        let Some(cell) = self.cell(id).await? else {
            return Ok(Some(false));
        };
        let Some(report) = parse_report(&cell) else {
            return Ok(Some(false));
        };
        if report.status(self.backstop.now()) != BulkStatus::Silent {
            return Ok(Some(false));
        }
        let resumed_report = BulkReport {
            is_stop_requested: false,
            ..report
        };
        let Some(run) =
            run::BulkRun::take(&self.app, resumed_report, cell.version, &self.log).await?
        else {
            return Ok(Some(false));
        };
        run.spawn(place);
        Ok(Some(true))
    }

    pub async fn report(&self, id: &str) -> StoreResult<Option<BulkReport>> {
        Ok(self.cell(id).await?.as_ref().and_then(parse_report))
    }

    /// All runs, the newest first.
    pub async fn reports(&self) -> StoreResult<Vec<BulkReport>> {
        let mut reports: Vec<BulkReport> = self
            .list_cells()
            .await?
            .iter()
            .filter_map(parse_report)
            .collect();
        reports.sort_by(|one, other| (other.started_at, &other.id).cmp(&(one.started_at, &one.id)));
        Ok(reports)
    }

    /// How many have not ended.
    pub async fn count_running(&self) -> StoreResult<u64> {
        let is_open =
            |cell: &&Cell| parse_report(cell).is_some_and(|report| report.ended_at.is_none());
        Ok(self.list_cells().await?.iter().filter(is_open).count() as u64)
    }

    /// Asks a run to stop: it does so before its next step. Whether there is one that has not
    /// ended.
    pub async fn stop(&self, id: &str) -> StoreResult<bool> {
        let change = async {
            self.ask_to_stop(id)
                .await
                .map(|stopped| (stopped.then_some(1), stopped))
        };
        self.log
            .record_change("bulk stop", serde_json::json!({ "run": id }), change)
            .await
    }

    async fn ask_to_stop(&self, id: &str) -> StoreResult<bool> {
        let Some(mut cell) = self.cell(id).await? else {
            return Ok(false);
        };
        loop {
            let Some(report) = parse_report(&cell).filter(|report| report.ended_at.is_none())
            else {
                return Ok(false);
            };
            let is_silent = report.status(self.backstop.now()) == BulkStatus::Silent;
            // Nobody is there to stop it: it has stopped.
            let ended_at = is_silent.then(|| self.backstop.now());
            let changed_report = BulkReport {
                is_stop_requested: true,
                ended_at,
                ..report
            };
            match swap_report(&self.backstop, &changed_report, Some(cell.version)).await? {
                SaveReportResult::Applied(_) => return Ok(true),
                SaveReportResult::Conflict(Some(now)) => cell = now,
                SaveReportResult::Conflict(None) => return Ok(false),
            }
        }
    }

    async fn cell(&self, id: &str) -> StoreResult<Option<Cell>> {
        Ok(self
            .backstop
            .store()
            .cells(vec![format!("{PREFIX}{id}")])
            .await?
            .pop()
            .flatten())
    }

    async fn list_cells(&self) -> StoreResult<Vec<Cell>> {
        let query = ListCellsRequest {
            prefix: PREFIX.to_owned(),
            after: None,
            limit: CELLS_MAX,
        };
        self.backstop.store().list_cells(query).await
    }

    /// Forgets some of those that have ended, where there are too many: the caller with the most
    /// loses its oldest. Ids sort by time.
    async fn forget_old(&self) -> StoreResult<()> {
        let cells = self.list_cells().await?;
        let ended = cells.iter().filter_map(|cell| {
            let report = parse_report(cell);
            let is_open = |report: &BulkReport| report.ended_at.is_none();
            let is_ended = !report.as_ref().is_some_and(is_open);
            is_ended.then(|| (report.map(|report| report.who), cell))
        });
        let surplus = surplus(ended, ENDED_MAX);
        let gone = |cell: &&Cell| CellSwap {
            name: cell.name.clone(),
            seen: Some(cell.version),
            version: rand::random(),
            value: None,
        };
        self.backstop
            .store()
            .swap(surplus.iter().map(gone).collect())
            .await
            .map(drop)
    }
}

/// What became of a write.
enum SaveReportResult {
    /// It stands, under this version.
    Applied(i64),
    Conflict(Option<Cell>),
}

/// Writes a report over the version that was seen.
async fn swap_report(
    backstop: &Backstop,
    report: &BulkReport,
    seen: Option<i64>,
) -> StoreResult<SaveReportResult> {
    let version = rand::random();
    let value = serde_json::to_vec(report).expect("a report has only text, numbers and lists");
    let change = CellSwap {
        name: format!("{PREFIX}{}", report.id),
        seen,
        version,
        value: Some(value),
    };
    Ok(match backstop.store().swap(vec![change]).await?.pop() {
        Some(SwapOutcome::Conflict(current)) => SaveReportResult::Conflict(current),
        Some(SwapOutcome::Applied) | None => SaveReportResult::Applied(version),
    })
}

fn parse_report(cell: &Cell) -> Option<BulkReport> {
    let report = serde_json::from_slice(&cell.value).ok();
    if report.is_none() {
        tracing::error!(cell = %cell.name, "the report of a bulk action cannot be read");
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_a_place_to_others() {
        let runs = BulkRunSlots::default();
        let of_flood: Vec<BulkRunSlot> = (0..RUNS_MAX).map_while(|_| runs.enter("flood")).collect();
        assert_eq!(of_flood.len(), CALLER_RUNS_MAX);
        let of_ada: Vec<BulkRunSlot> = (0..RUNS_MAX).map_while(|_| runs.enter("ada")).collect();
        assert_eq!(of_ada.len(), 1);
        assert!(runs.enter("grace").is_none(), "all places are taken");
        drop(of_flood);
        assert!(runs.enter("grace").is_some());
    }
}
