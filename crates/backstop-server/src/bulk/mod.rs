//! Actions on all jobs that match: they run in the background, whoever watches.
//!
//! A run is one cell, `bulk/ID`: what it does, how far it is, and who runs it. It goes on when the tab is closed; when
//! its server dies, the cell still says what was done, and anybody can let it go on from there. Each run is one entry of
//! the audit.

mod report;
mod run;

pub use report::{Plan, Report, Standing, Target};

use crate::App;
use backstop::Backstop;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Answer, Cell, CellQuery, Swap, Swapped};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Runs that one server has under way at a time.
const RUNS_MAX: usize = 4;
/// Ended runs that stay listed.
const ENDED_MAX: usize = 50;

const PREFIX: &str = "bulk/";

/// The runs that this server has under way.
#[derive(Clone)]
pub struct Runs(Arc<Semaphore>);

impl Default for Runs {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(RUNS_MAX)))
    }
}

/// Runs on a store, in somebody's name.
#[derive(Clone)]
pub struct Bulk {
    backstop: Backstop,
    who: String,
}

impl Bulk {
    /// The runs on the store of `app`, in the name of `who`.
    pub fn new(app: &App, who: &str) -> Self {
        Self { backstop: app.backstop().clone(), who: who.to_owned() }
    }

    /// Starts a run; answers its id, or `None` if this server has too many under way.
    pub async fn start(&self, runs: &Runs, plan: Plan) -> Answer<Option<String>> {
        let Ok(permit) = Arc::clone(&runs.0).try_acquire_owned() else { return Ok(None) };
        self.forget_old().await?;
        let report = Report::new(self.backstop.new_id().to_string(), &self.who, plan, self.backstop.now());
        let id = report.id.clone();
        let run = run::Run::begin(&self.backstop, report).await?;
        tokio::spawn(async move {
            run.go().await;
            drop(permit);
        });
        Ok(Some(id))
    }

    /// Lets a run go on whose server is gone; `None` if this server has too many under way, `Some(false)` if it has ended
    /// or somebody runs it.
    pub async fn resume(&self, runs: &Runs, id: &str) -> Answer<Option<bool>> {
        let Ok(permit) = Arc::clone(&runs.0).try_acquire_owned() else { return Ok(None) };
        let Some(cell) = self.cell(id).await? else { return Ok(Some(false)) };
        let Some(report) = read(&cell) else { return Ok(Some(false)) };
        if report.standing(self.backstop.now()) != Standing::Silent {
            return Ok(Some(false));
        }
        let Some(run) = run::Run::take(&self.backstop, report, cell.version, &self.who).await? else {
            return Ok(Some(false));
        };
        tokio::spawn(async move {
            run.go().await;
            drop(permit);
        });
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

    /// Asks a run to stop: it does so before its next step. Whether there is one that has not ended.
    pub async fn stop(&self, id: &str) -> Answer<bool> {
        let Some(mut cell) = self.cell(id).await? else { return Ok(false) };
        loop {
            let Some(report) = read(&cell).filter(|report| report.ended_at.is_none()) else {
                return Ok(false);
            };
            let is_silent = report.standing(self.backstop.now()) == Standing::Silent;
            // Nobody is there to stop it: it has stopped.
            let ended_at = is_silent.then(|| self.backstop.now());
            let wish = Report { is_stop_asked: true, ended_at, ..report };
            match swap(&self.backstop, &wish, Some(cell.version)).await? {
                Written::Applied(_) => return Ok(true),
                Written::Conflict(Some(now)) => cell = now,
                Written::Conflict(None) => return Ok(false),
            }
        }
    }

    async fn cell(&self, id: &str) -> Answer<Option<Cell>> {
        Ok(self.backstop.store().cells(vec![format!("{PREFIX}{id}")]).await?.pop().flatten())
    }

    async fn all(&self) -> Answer<Vec<Cell>> {
        let query = CellQuery { prefix: PREFIX.to_owned(), after: None, limit: CELLS_MAX };
        self.backstop.store().list_cells(query).await
    }

    /// Forgets the oldest of those that have ended, where there are too many. Ids sort by time.
    async fn forget_old(&self) -> Answer<()> {
        let cells = self.all().await?;
        let is_ended = |cell: &&Cell| read(cell).is_none_or(|report| report.ended_at.is_some());
        let ended: Vec<&Cell> = cells.iter().filter(is_ended).collect();
        let surplus = ended.len().saturating_sub(ENDED_MAX);
        let gone = |cell: &&Cell| Swap {
            name: cell.name.clone(),
            seen: Some(cell.version),
            version: rand::random(),
            value: None,
        };
        self.backstop.store().swap(ended[..surplus].iter().map(gone).collect()).await.map(drop)
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
    let change = Swap { name: format!("{PREFIX}{}", report.id), seen, version, value: Some(value) };
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
