//! Runs one: a step, a note of how far it is, the next step.

use super::report::{Deed, Report, Which};
use super::{Place, Written, read, swap};
use crate::App;
use backstop::Backstop;
use backstop::audit::{Audit, Noted};
use backstop::dead::{DeadFilter, DeadLetter};
use backstop::search::{Search, change};
use backstop_core::amend::{Filter, Selection};
use backstop_core::limits::AMEND_MAX;
use backstop_core::port::{Amended, Amendment, Answer, StoreError};
use backstop_core::{State, Time};
use std::time::Duration;

/// Dead letters looked at in one step.
const LETTERS_MAX: usize = 200;
/// How often in a row a store that does not answer is asked again, and after how long.
const TRIES_MAX: u32 = 30;
const WAIT: Duration = Duration::from_secs(1);

/// A run that this process has.
pub(super) struct Run {
    app: App,
    backstop: Backstop,
    report: Report,
    version: i64,
}

/// Why a run of this process ends.
enum End {
    /// There is nothing more.
    Done,
    /// Somebody stopped it.
    Stopped,
    /// The store failed for good.
    Failed(StoreError),
    /// Somebody else has it, or it was removed.
    Lost,
    /// The server closes: another one goes on.
    Left,
}

/// What a run does next.
enum Next {
    /// The next step.
    Step,
    /// It writes down what the step before did.
    Save { is_last: bool },
}

/// How often in a row the store did not answer.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    /// Waits before the next try; ends the run where none can help, or there were enough.
    async fn after(&mut self, error: StoreError, run: &str) -> Result<(), End> {
        if !error.is_transient() || self.0 >= TRIES_MAX {
            return Err(End::Failed(error));
        }
        self.0 += 1;
        tracing::warn!(%error, run, "not answered; trying again in {WAIT:?}");
        tokio::time::sleep(WAIT).await;
        Ok(())
    }
}

impl Run {
    /// Writes a new run down.
    pub(super) async fn begin(app: &App, report: Report) -> Answer<Self> {
        match swap(app.backstop(), &report, None).await? {
            Written::Applied(version) => Ok(Self::new(app, report, version)),
            Written::Conflict(_) => Err(StoreError::unavailable(
                "starting a bulk action",
                "another one has its id; try again",
            )),
        }
    }

    /// Takes a run over, in the name and for the reason that `log` has; without one, for the reason
    /// it was started for. `None` if somebody else was faster.
    pub(super) async fn take(
        app: &App,
        report: Report,
        seen: i64,
        log: &Audit,
    ) -> Answer<Option<Self>> {
        let (who, seen_at, runner) = (log.who().to_owned(), app.backstop().now(), rand::random());
        let reason = log.reason().map(str::to_owned).or(report.reason);
        let report = Report {
            who,
            reason,
            seen_at,
            runner,
            is_left: false,
            ..report
        };
        Ok(match swap(app.backstop(), &report, Some(seen)).await? {
            Written::Applied(version) => Some(Self::new(app, report, version)),
            Written::Conflict(_) => None,
        })
    }

    fn new(app: &App, report: Report, version: i64) -> Self {
        Self {
            app: app.clone(),
            backstop: app.backstop().clone(),
            report,
            version,
        }
    }

    /// Goes on in the background; the place is its own as long.
    pub(super) fn spawn(self, place: Place) {
        let tasks = self.app.tasks().clone();
        tasks.spawn(async move {
            self.go().await;
            drop(place);
        });
    }

    /// Goes on to the end, between the two halves of an entry of the audit.
    async fn go(mut self) {
        let audit = self
            .backstop
            .audit(&self.report.who)
            .because_of(self.report.reason.as_deref());
        let before = self.report.count;
        let noted = match self.begin_entry(&audit).await {
            Ok(noted) => noted,
            Err(end) => {
                // Nothing is done that is not written down.
                self.close(end).await;
                return;
            }
        };
        let end = self.steps().await;
        let done = match &end {
            End::Failed(error) => Err(error),
            End::Done | End::Stopped | End::Lost | End::Left => Ok(()),
        };
        let count = self.report.count.saturating_sub(before);
        audit.note_done(noted, count, &done).await;
        self.close(end).await;
    }

    /// Writes the first half of the entry, as patiently as everything else.
    async fn begin_entry(&self, audit: &Audit) -> Result<Noted, End> {
        let mut patience = Patience::default();
        loop {
            let selection = self.report.target.selection(&self.app.config().redaction);
            match audit.note(&self.report.target.what, selection).await {
                Ok(noted) => return Ok(noted),
                Err(error) => patience.after(error, &self.report.id).await?,
            }
            if self.app.closing().is_cancelled() {
                return Err(End::Left);
            }
        }
    }

    /// Step after step, each written down before the next. A store that does not answer is asked
    /// again, whatever it was asked.
    async fn steps(&mut self) -> End {
        let (mut patience, mut next) = (Patience::default(), Next::Step);
        loop {
            if let Some(end) = self.early_end(&next) {
                return end;
            }
            let answer = match next {
                Next::Step => self.step().await.map(|is_last| Ok(Next::Save { is_last })),
                Next::Save { is_last } => {
                    self.save().await.map(|is_ours| match (is_ours, is_last) {
                        (false, _) => Err(End::Lost),
                        (true, true) => Err(End::Done),
                        (true, false) => Ok(Next::Step),
                    })
                }
            };
            match answer {
                Ok(Ok(following)) => (patience, next) = (Patience::default(), following),
                Ok(Err(end)) => return end,
                Err(error) => {
                    if let Err(end) = patience.after(error, &self.report.id).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Whether it is to end before it does `next`. The last step of all leaves nothing to be
    /// stopped, or to be left to others: begun anew from no cursor it would do everything again.
    fn early_end(&self, next: &Next) -> Option<End> {
        let is_closing = self.app.closing().is_cancelled();
        match next {
            Next::Save { is_last: true } => is_closing.then_some(End::Done),
            Next::Step if self.report.is_stop_asked => Some(End::Stopped),
            Next::Step | Next::Save { is_last: false } => is_closing.then_some(End::Left),
        }
    }

    /// The next step; whether it was the last.
    async fn step(&mut self) -> Answer<bool> {
        let which = self.report.target.which.clone();
        self.report.cursor = match (which.search()?, &which) {
            (Some(search), _) if search.is_beyond_store() => self.searched(&search).await?,
            (Some(search), _) => self.found(search.filter, None).await?,
            (None, Which::Letters(filter)) => match as_stores_own(filter) {
                Some(filter) => self.found(filter, Some(State::Dead)).await?,
                None => self.letters(filter).await?,
            },
            // Whatever is not letters has a search.
            (None, _) => None,
        };
        Ok(self.report.cursor.is_none())
    }

    /// What the store finds by itself; where to go on.
    async fn found(&mut self, filter: Filter, only: Option<State>) -> Answer<Option<String>> {
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
        only: Option<State>,
        cursor: Option<String>,
    ) -> Answer<Option<String>> {
        let action = self.report.target.action();
        let amended = self
            .make(Amendment {
                selection,
                action,
                only,
                cursor,
                max: AMEND_MAX,
            })
            .await?;
        self.report.refuse(
            amended
                .refused
                .into_iter()
                .map(|(id, why)| (id, why.to_string())),
        );
        Ok(amended.next)
    }

    async fn make(&mut self, amendment: Amendment) -> Answer<Amended> {
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
    async fn searched(&mut self, search: &Search) -> Answer<Option<String>> {
        let (config, action) = (self.app.config(), self.report.target.action());
        let cursor = self.report.cursor.clone();
        let next = self
            .backstop
            .to_change(search, &config.redaction, &action, cursor)
            .await?;
        for amendment in next.amendments {
            let amended = self.make(amendment).await?;
            self.report
                .refuse(change::refused(&amended).map(|(id, why)| (id, why.to_string())));
        }
        Ok(next.next)
    }

    /// What has to be looked at: only letters that were dead when it began, so that none is met
    /// twice. Where to go on.
    async fn letters(&mut self, filter: &DeadFilter) -> Answer<Option<String>> {
        let filter = as_of(filter, self.report.started_at);
        let page = self
            .backstop
            .dead()
            .list(&filter, self.report.cursor.clone(), LETTERS_MAX)
            .await?;
        for selection in by_queue(page.letters, self.report.target.deed) {
            self.amend(selection, Some(State::Dead), None).await?;
        }
        Ok(page.next)
    }

    /// Writes how far it is; learns whether somebody wants it to stop. False if it is no longer
    /// this process's.
    async fn save(&mut self) -> Answer<bool> {
        self.report.seen_at = self.backstop.now();
        loop {
            match swap(&self.backstop, &self.report, Some(self.version)).await? {
                Written::Applied(version) => {
                    self.version = version;
                    return Ok(true);
                }
                Written::Conflict(None) => return Ok(false),
                Written::Conflict(Some(cell)) => {
                    let standing = read(&cell).filter(|other| other.runner == self.report.runner);
                    let Some(standing) = standing else {
                        return Ok(false);
                    };
                    self.report.is_stop_asked |= standing.is_stop_asked;
                    self.version = cell.version;
                }
            }
        }
    }

    async fn close(&mut self, end: End) {
        if let End::Failed(error) = &end {
            self.report.error = Some(error.to_string());
        }
        if matches!(end, End::Left) {
            self.report.is_left = true;
        }
        if matches!(end, End::Lost) {
            tracing::warn!(
                run = self.report.id,
                "a bulk action was taken over by another server"
            );
            return;
        }
        // Asked to stop at its very end it was not stopped.
        if matches!(end, End::Done) {
            self.report.is_stop_asked = false;
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
fn by_queue(mut letters: Vec<DeadLetter>, deed: Deed) -> Vec<Selection> {
    if deed != Deed::Move {
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
fn as_stores_own(filter: &DeadFilter) -> Option<Filter> {
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
        state: Some(State::Dead),
        fingerprint,
    })
}

fn as_of(filter: &DeadFilter, at: Time) -> DeadFilter {
    DeadFilter {
        until: Some(filter.until.map_or(at, |until| until.min(at))),
        ..filter.clone()
    }
}
