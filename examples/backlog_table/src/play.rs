//! What is played: passes of the real engine over a real table, at times that we say.

use crate::{ARTICLE, Backlog, Sample, moment};
use anyhow::{Context, Result, ensure};
use backstop::tables::{AdoptedTable, PassProgress, Table, TableRow};
use backstop::{Backstop, RetryPolicy, RunError, Span, Time};
use std::sync::{Arc, Mutex, PoisonError};

/// When rows are tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// After 1, 1, 2, 3, 5, 8 … minutes, by failures.
    Fibonacci,
    /// The less often the older, by age.
    Progressive,
}

impl Strategy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fibonacci, Self::Progressive];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fibonacci => "Fibonacci minutes",
            Self::Progressive => "progressive",
        }
    }

    fn policy(self) -> Result<RetryPolicy> {
        let json: &[u8] = match self {
            Self::Fibonacci => {
                br#"{"kind":"fibonacci","unit":"1m","cap":"360d","max_attempts":"unlimited"}"#
            }
            Self::Progressive => br#"{"kind":"progressive","max_attempts":"unlimited"}"#,
        };
        Ok(RetryPolicy::from_json(json)?)
    }
}

/// A row was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Try {
    /// Which.
    pub id: i64,
    /// How long after the beginning.
    pub after: Span,
}

/// What was played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// By what.
    pub strategy: Strategy,
    /// All tries, in their order.
    pub tries: Vec<Try>,
    /// Passes it took.
    pub passes: usize,
    /// Rows that are expired in the end: still there, still counted.
    pub expired: u64,
}

impl Played {
    /// When a row was tried, after the beginning.
    pub fn of(&self, id: i64) -> Vec<Span> {
        self.tries
            .iter()
            .filter(|one| one.id == id)
            .map(|one| one.after)
            .collect()
    }
}

/// One run over the article's rows, of which 1 and 4 fail: what became of all, and what is due a
/// minute later.
pub async fn first_run() -> Result<(Vec<(i64, String)>, Vec<i64>)> {
    let backlog = Backlog::new(&ARTICLE)?;
    let handler = |row: TableRow| async move {
        if [1, 4].contains(&key(&row)) {
            Err(RunError::retry("the service is down"))
        } else {
            Ok(())
        }
    };
    let table = table(&backlog, Strategy::Fibonacci)?.handler(handler);
    let adopted = Backstop::open("memory:").await?.adopted_table(&table);
    adopted.run_at(moment(), &mut |_: PassProgress| {}).await?;
    let due = adopted.due(moment().after(Span::minutes(1)), None).await?;
    Ok((
        backlog.rows()?,
        due.iter().filter_map(|row| row.key.as_i64()).collect(),
    ))
}

/// Every try of these rows fails, for so long. Time is ours: a pass is run whenever a row is due,
/// and `at` is told of each.
pub async fn play(
    rows: &[Sample],
    strategy: Strategy,
    length: Span,
    mut at: impl FnMut(Span),
) -> Result<Played> {
    let backlog = Backlog::new(rows)?;
    let tried: Arc<Mutex<Vec<i64>>> = Arc::default();
    let noted = Arc::clone(&tried);
    let handler = move |row: TableRow| {
        noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(key(&row));
        async { Err::<(), RunError>(RunError::retry("the service is down")) }
    };
    let table = table(&backlog, strategy)?.handler(handler);
    let adopted = Backstop::open("memory:").await?.adopted_table(&table);
    let mut played = Played {
        strategy,
        tries: Vec::new(),
        passes: 0,
        expired: 0,
    };
    let (mut now, end) = (moment(), moment().after(length));
    while now <= end {
        let after = now.since(moment());
        at(after);
        let pass = adopted.run_at(now, &mut |_: PassProgress| {}).await?;
        let ids = std::mem::take(&mut *tried.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(
            pass.failed == ids.len(),
            "{} rows were tried, {} became an error",
            ids.len(),
            pass.failed
        );
        played
            .tries
            .extend(ids.into_iter().map(|id| Try { id, after }));
        played.passes += 1;
        let Some(next) = next_due(&adopted, now).await? else {
            break;
        };
        now = next;
    }
    played.expired = adopted
        .status(end.after(Span::millis(1_000)))
        .await?
        .expired;
    Ok(played)
}

/// When there is something to do again: nothing is missed by not looking before.
async fn next_due(adopted: &AdoptedTable, now: Time) -> Result<Option<Time>> {
    let next = adopted.status(now).await?.next_due;
    ensure!(
        next.is_none_or(|next| next > now),
        "rows are due after a pass that took them all"
    );
    Ok(next)
}

fn table(backlog: &Backlog, strategy: Strategy) -> Result<Table> {
    let table = Table::new("invoices", &backlog.url(), "BACKLOG")?;
    table
        .strategy(&strategy.policy()?, Some(Span::days(360)))
        .context("the strategy of a table")
}

fn key(row: &TableRow) -> i64 {
    row.key.as_i64().unwrap_or_default()
}
