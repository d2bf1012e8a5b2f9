//! Actions on all jobs that match: they run in the background, whoever watches.
//!
//! A run is one cell, `bulk/ID`: what it does, how far it is, and who runs it. It goes on when the
//! tab is closed; when its server is gone, the cell still says what was done, and the first server
//! of the store that sees it goes on from there. Each run is one entry of the audit, and so is each
//! going on.

mod preview;
mod report;
mod run;

pub use preview::{COUNT_MAX, Counted, preview};
pub(crate) use preview::{is_kept, kept};
pub use report::{Deed, Plan, Report, Standing, Target, Which};

use crate::App;
use crate::turns::{CallerTurns, Turn};
use backstop::Backstop;
use backstop::audit::{Audit, Reason};
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Answer, Cell, CellQuery, Swap, Swapped};
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
pub struct Runs {
    places: Arc<Semaphore>,
    callers: CallerTurns,
}

/// The place of one run, free again when dropped.
pub struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_caller: Turn,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(RUNS_MAX)),
            callers: CallerTurns::new(CALLER_RUNS_MAX, 0),
        }
    }
}

impl Runs {
    /// A place for one more run of this caller, if there is one.
    fn enter(&self, who: &str) -> Option<Place> {
        Some(Place {
            _of_caller: self.callers.enter_now(&who.into())?,
            _of_all: Arc::clone(&self.places).try_acquire_owned().ok()?,
        })
    }
}

/// Runs on a store, in somebody's name.
#[derive(Clone)]
pub struct Bulk {
    app: App,
    backstop: Backstop,
    log: Audit,
}

/// Goes on with runs whose server is gone, in the names of those who started them, as far as there
/// is room. One that was asked to stop ends.
pub(crate) async fn resume(app: &App) -> Answer<()> {
    let bulk = Bulk::new(app, "");
    for cell in bulk.all().await? {
        let silent =
            read(&cell).filter(|report| report.standing(app.backstop().now()) == Standing::Silent);
        let Some(report) = silent else { continue };
        let Some(place) = app.runs().enter(&report.who) else {
            continue;
        };
        let (id, log) = (report.id.clone(), app.backstop().audit(&report.who));
        if let Some(run) = run::Run::take(app, report, cell.version, &log).await? {
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

impl Bulk {
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
    pub fn because(self, reason: Option<Reason>) -> Self {
        Self {
            log: self.log.because(reason),
            ..self
        }
    }

    /// Starts a run; answers its id, or `None` if this server, or its caller, has too many under
    /// way.
    pub async fn start(&self, plan: Plan) -> Answer<Option<String>> {
        match self.enter() {
            Some(place) => self.start_in(place, plan).await.map(Some),
            None => Ok(None),
        }
    }

    /// The place of a run, if this server, and its caller, have one left. Whoever counts jobs for a
    /// run takes it before that.
    pub fn enter(&self) -> Option<Place> {
        self.app.runs().enter(self.log.who())
    }

    /// Starts a run in its place; answers its id.
    pub async fn start_in(&self, place: Place, plan: Plan) -> Answer<String> {
        self.forget_old().await?;
        let report = Report::new(
            self.backstop.new_id().to_string(),
            &self.log,
            plan,
            self.backstop.now(),
        );
        let id = report.id.clone();
        run::Run::begin(&self.app, report).await?.spawn(place);
        Ok(id)
    }

    /// Lets a run go on whose server is gone, now and whatever was asked of it; `None` if this
    /// server, or its caller, has too many under way, `Some(false)` if it has ended or somebody runs
    /// it.
    pub async fn resume(&self, id: &str) -> Answer<Option<bool>> {
        let Some(place) = self.app.runs().enter(self.log.who()) else {
            return Ok(None);
        };
        let Some(cell) = self.cell(id).await? else {
            return Ok(Some(false));
        };
        let Some(report) = read(&cell) else {
            return Ok(Some(false));
        };
        if report.standing(self.backstop.now()) != Standing::Silent {
            return Ok(Some(false));
        }
        let wanted = Report {
            is_stop_asked: false,
            ..report
        };
        let Some(run) = run::Run::take(&self.app, wanted, cell.version, &self.log).await? else {
            return Ok(Some(false));
        };
        run.spawn(place);
        Ok(Some(true))
    }

    /// One run.
    pub async fn report(&self, id: &str) -> Answer<Option<Report>> {
        Ok(self.cell(id).await?.as_ref().and_then(read))
    }

    /// All runs, the newest first.
    pub async fn reports(&self) -> Answer<Vec<Report>> {
        let mut reports: Vec<Report> = self.all().await?.iter().filter_map(read).collect();
        reports.sort_by(|one, other| (other.started_at, &other.id).cmp(&(one.started_at, &one.id)));
        Ok(reports)
    }

    /// How many have not ended.
    pub async fn under_way(&self) -> Answer<u64> {
        let is_open = |cell: &&Cell| read(cell).is_some_and(|report| report.ended_at.is_none());
        Ok(self.all().await?.iter().filter(is_open).count() as u64)
    }

    /// Asks a run to stop: it does so before its next step. Whether there is one that has not
    /// ended.
    pub async fn stop(&self, id: &str) -> Answer<bool> {
        let change = async {
            self.ask_to_stop(id)
                .await
                .map(|stopped| (stopped.then_some(1), stopped))
        };
        self.log
            .around_change("bulk stop", serde_json::json!({ "run": id }), change)
            .await
    }

    async fn ask_to_stop(&self, id: &str) -> Answer<bool> {
        let Some(mut cell) = self.cell(id).await? else {
            return Ok(false);
        };
        loop {
            let Some(report) = read(&cell).filter(|report| report.ended_at.is_none()) else {
                return Ok(false);
            };
            let is_silent = report.standing(self.backstop.now()) == Standing::Silent;
            // Nobody is there to stop it: it has stopped.
            let ended_at = is_silent.then(|| self.backstop.now());
            let wish = Report {
                is_stop_asked: true,
                ended_at,
                ..report
            };
            match swap(&self.backstop, &wish, Some(cell.version)).await? {
                Written::Applied(_) => return Ok(true),
                Written::Conflict(Some(now)) => cell = now,
                Written::Conflict(None) => return Ok(false),
            }
        }
    }

    async fn cell(&self, id: &str) -> Answer<Option<Cell>> {
        Ok(self
            .backstop
            .store()
            .cells(vec![format!("{PREFIX}{id}")])
            .await?
            .pop()
            .flatten())
    }

    async fn all(&self) -> Answer<Vec<Cell>> {
        let query = CellQuery {
            prefix: PREFIX.to_owned(),
            after: None,
            limit: CELLS_MAX,
        };
        self.backstop.store().list_cells(query).await
    }

    /// Forgets some of those that have ended, where there are too many: the caller with the most
    /// loses its oldest. Ids sort by time.
    async fn forget_old(&self) -> Answer<()> {
        let cells = self.all().await?;
        let ended = cells.iter().filter_map(|cell| {
            let report = read(cell);
            let is_open = |report: &Report| report.ended_at.is_none();
            let is_ended = !report.as_ref().is_some_and(is_open);
            is_ended.then(|| (report.map(|report| report.who), cell))
        });
        let surplus = surplus(ended, ENDED_MAX);
        let gone = |cell: &&Cell| Swap {
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
enum Written {
    /// It stands, under this version.
    Applied(i64),
    /// Somebody was faster.
    Conflict(Option<Cell>),
}

/// Writes a report over the version that was seen.
async fn swap(backstop: &Backstop, report: &Report, seen: Option<i64>) -> Answer<Written> {
    let version = rand::random();
    let value = serde_json::to_vec(report).expect("a report has only text, numbers and lists");
    let change = Swap {
        name: format!("{PREFIX}{}", report.id),
        seen,
        version,
        value: Some(value),
    };
    Ok(match backstop.store().swap(vec![change]).await?.pop() {
        Some(Swapped::Conflict(standing)) => Written::Conflict(standing),
        Some(Swapped::Applied) | None => Written::Applied(version),
    })
}

fn read(cell: &Cell) -> Option<Report> {
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
        let runs = Runs::default();
        let of_flood: Vec<Place> = (0..RUNS_MAX).map_while(|_| runs.enter("flood")).collect();
        assert_eq!(of_flood.len(), CALLER_RUNS_MAX);
        let of_ada: Vec<Place> = (0..RUNS_MAX).map_while(|_| runs.enter("ada")).collect();
        assert_eq!(of_ada.len(), 1);
        assert!(runs.enter("grace").is_none(), "all places are taken");
        drop(of_flood);
        assert!(runs.enter("grace").is_some());
    }
}
