//! One subscriber's digest: fast work, in one transaction with its row locked.
//!
//! The email, `processed_at` and the job that sends the email come into being with one commit, or
//! not at all: no email of a digest is ever without its job. A second copy waits for the row, and
//! then finds it processed.

use crate::desk::Desk;
use crate::tasks::{DigestEmailGeneration, Row, SendEmail};
use backstop::postgres::tokio_postgres::Transaction;
use backstop::{Run, RunError, Task};

const CONTENT: &str = include_str!("sql/digest_content.sql");

/// Handles [`DigestEmailGeneration`].
pub async fn digest(task: DigestEmailGeneration, run: Run) -> Result<(), RunError> {
    let desk = run.state::<Desk>()?;
    let mut connection = desk.database.connection().await?;
    let transaction = connection.transaction().await?;
    if is_processed(&transaction, task.id).await? {
        return Ok(());
    }
    if let Some(email) = make(&transaction, task.id).await? {
        email
            .draft(&desk.backstop)
            .push_in_postgres(&transaction)
            .await?;
    }
    let sql = "UPDATE email_alerts.digest_run_subscribers SET processed_at = clock_timestamp() WHERE id = $1";
    transaction.execute(sql, &[&task.id]).await?;
    transaction.commit().await?;
    Ok(())
}

/// Locks the row, and says whether there is nothing left to do.
async fn is_processed(transaction: &Transaction<'_>, part: i64) -> Result<bool, RunError> {
    let sql = "SELECT processed_at IS NOT NULL FROM email_alerts.digest_run_subscribers WHERE id = $1 FOR UPDATE";
    match transaction.query_opt(sql, &[&part]).await? {
        Some(row) => Ok(row.try_get(0)?),
        None => Err(RunError::cancel(format!(
            "there is no digest run subscriber {part}"
        ))),
    }
}

/// Makes the email; none if its subscriptions ended meanwhile.
async fn make(transaction: &Transaction<'_>, part: i64) -> Result<Option<SendEmail>, RunError> {
    let Some(row) = transaction.query_opt(CONTENT, &[&part]).await? else {
        return Ok(None);
    };
    let (count, range, date): (i64, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let subscriber: i64 = row.try_get(3)?;
    let subject = format!("Your {range} digest of {date}: {count} updates");
    let sql =
        "INSERT INTO email_alerts.emails (subscriber_id, subject, queue, digest_run_subscriber_id)
               VALUES ($1, $2, $3, $4) RETURNING id";
    let row = transaction
        .query_one(sql, &[&subscriber, &subject, &SendEmail::QUEUE, &part])
        .await?;
    Ok(Some(SendEmail {
        id: row.try_get(0)?,
    }))
}
