//! Digest runs: one for each date and range, and who gets a part in it.
//!
//! Fired by schedules, by their ledger for days on which nobody was there, and by sweeps for runs
//! that were begun and not finished. The run is found or made, its subscribers are entered in
//! slices, those that are there already are left as they are, and all that have no email yet get a
//! job. `processed_at` comes last.

use crate::desk::Desk;
use crate::digest::{Range, Window, system_time};
use crate::limits::SUBSCRIBER_SLICE_MAX;
use crate::tasks::{DailyDigestInitiator, DigestEmailGeneration, WeeklyDigestInitiator};
use backstop::postgres::tokio_postgres::Client;
use backstop::{Run, RunError};

/// Who gets a part in a run: whoever has a subscription of its range with anything in its time.
const SUBSCRIBERS: &str = include_str!("sql/digest_subscribers.sql");

/// Handles [`DailyDigestInitiator`].
pub async fn daily(task: DailyDigestInitiator, run: Run) -> Result<(), RunError> {
    initiate(&run, Range::Daily, &task.date).await
}

/// Handles [`WeeklyDigestInitiator`].
pub async fn weekly(task: WeeklyDigestInitiator, run: Run) -> Result<(), RunError> {
    initiate(&run, Range::Weekly, &task.date).await
}

async fn initiate(run: &Run, range: Range, date: &str) -> Result<(), RunError> {
    let desk = run.state::<Desk>()?;
    let window = Window::of(date, range, desk.backstop.now()).map_err(RunError::dead)?;
    let name = format!("DigestRun-{date}-{range}");
    let Some(lock) = desk.backstop.try_lock_for(run, &name).await? else {
        return Ok(()); // another job is at it
    };
    let entered = tokio::select! {
        entered = enter_all(desk, range, date, window) => entered,
        () = lock.lost() => Err(RunError::retry("the lock was lost half-way")),
    };
    lock.release().await?;
    entered
}

async fn enter_all(desk: &Desk, range: Range, date: &str, window: Window) -> Result<(), RunError> {
    let connection = desk.database.connection().await?;
    let Some(run) = find_or_make(&connection, range, date, window).await? else {
        return Ok(());
    };
    let mut after = 0;
    loop {
        let (starts_at, ends_at) = (system_time(window.starts_at), system_time(window.ends_at));
        let rows = connection
            .query(
                SUBSCRIBERS,
                &[
                    &range.as_str(),
                    &starts_at,
                    &ends_at,
                    &after,
                    &SUBSCRIBER_SLICE_MAX,
                ],
            )
            .await?;
        let subscribers = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<Vec<i64>, _>>()?;
        let Some(last) = subscribers.last().copied() else {
            break;
        };
        let parts = parts(&connection, run, &subscribers).await?;
        desk.enqueue_after_commit(&parts).await?;
        after = last;
    }
    let sql = "UPDATE email_alerts.digest_runs SET processed_at = clock_timestamp() WHERE id = $1";
    connection.execute(sql, &[&run]).await?;
    Ok(())
}

/// The run of a date; `None` if all of it was done before.
async fn find_or_make(
    client: &Client,
    range: Range,
    date: &str,
    window: Window,
) -> Result<Option<i64>, RunError> {
    let make = "INSERT INTO email_alerts.digest_runs (date, range, starts_at, ends_at)
                VALUES ($1::text::date, $2, $3, $4) ON CONFLICT (date, range) DO NOTHING";
    let (starts_at, ends_at) = (system_time(window.starts_at), system_time(window.ends_at));
    client
        .execute(make, &[&date, &range.as_str(), &starts_at, &ends_at])
        .await?;
    let find = "SELECT id, processed_at IS NOT NULL FROM email_alerts.digest_runs
                 WHERE date = $1::text::date AND range = $2";
    let row = client.query_one(find, &[&date, &range.as_str()]).await?;
    let is_processed: bool = row.try_get(1)?;
    Ok(if is_processed {
        None
    } else {
        Some(row.try_get(0)?)
    })
}

/// Enters subscribers where they are not, and answers all that have no email yet: those that a
/// former run entered as well.
async fn parts(
    client: &Client,
    run: i64,
    subscribers: &[i64],
) -> Result<Vec<DigestEmailGeneration>, RunError> {
    let enter = "INSERT INTO email_alerts.digest_run_subscribers (digest_run_id, subscriber_id)
                 SELECT $1, unnest($2::bigint[]) ON CONFLICT DO NOTHING";
    client.execute(enter, &[&run, &subscribers]).await?;
    let open = "SELECT id FROM email_alerts.digest_run_subscribers
                 WHERE digest_run_id = $1 AND subscriber_id = ANY($2) AND processed_at IS NULL ORDER BY id";
    let rows = client.query(open, &[&run, &subscribers]).await?;
    rows.iter()
        .map(|row| {
            Ok(DigestEmailGeneration {
                id: row.try_get(0)?,
            })
        })
        .collect()
}
