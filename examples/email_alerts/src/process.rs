//! Content changes and messages: those who want to know at once get an email.
//!
//! Slow work, so it is done under a lock: a second copy does nothing. Batches of emails are
//! committed one by one, and their jobs are enqueued after each; `processed_at` comes last. Killed
//! anywhere, all of it is repeated, and what is there stays as it is.
//!
//! The lock is taken in the name of the job. Whoever finds it taken ends as done: another job has
//! it, and does the work. Were that one's process killed, its next run would take the lock over at
//! once.

use crate::desk::Desk;
use crate::tasks::{ProcessContentChange, ProcessMessage, SendEmail};
use backstop::postgres::tokio_postgres::Client;
use backstop::{Run, RunError, Task};

/// What people are told of.
struct News {
    model: &'static str,
    table: &'static str,
    /// What emails refer to it by.
    column: &'static str,
    id: i64,
}

/// Handles [`ProcessContentChange`].
pub async fn content_change(task: ProcessContentChange, run: Run) -> Result<(), RunError> {
    let (model, table) = ("ContentChange", "email_alerts.content_changes");
    tell(
        &run,
        News {
            model,
            table,
            column: "content_change_id",
            id: task.id,
        },
    )
    .await
}

/// Handles [`ProcessMessage`].
pub async fn message(task: ProcessMessage, run: Run) -> Result<(), RunError> {
    let (model, table) = ("Message", "email_alerts.messages");
    tell(
        &run,
        News {
            model,
            table,
            column: "message_id",
            id: task.id,
        },
    )
    .await
}

async fn tell(run: &Run, news: News) -> Result<(), RunError> {
    let desk = run.state::<Desk>()?;
    let name = format!("{}-{}", news.model, news.id);
    let Some(lock) = desk.backstop.try_lock_for(run, &name).await? else {
        return Ok(()); // another job is at it
    };
    let told = tokio::select! {
        told = tell_all(desk, &news) => told,
        () = lock.lost() => Err(RunError::retry("the lock was lost half-way")),
    };
    lock.release().await?;
    told
}

async fn tell_all(desk: &Desk, news: &News) -> Result<(), RunError> {
    let connection = desk.database.connection().await?;
    let sql = format!(
        "SELECT list, title, processed_at IS NOT NULL FROM {} WHERE id = $1",
        news.table
    );
    let Some(row) = connection.query_opt(&sql, &[&news.id]).await? else {
        return Err(RunError::cancel(format!(
            "there is no {} {}",
            news.model, news.id
        )));
    };
    if row.try_get(2)? {
        return Ok(());
    }
    let (list, title): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let subject = format!("{list}: {title}");
    let mut after = 0;
    loop {
        let subscribers = at_once(&connection, &list, after, desk.email_batch).await?;
        let Some(last) = subscribers.last().copied() else {
            break;
        };
        let emails = emails(&connection, news, &subject, &subscribers).await?;
        desk.enqueue_after_commit(&emails).await?;
        after = last;
    }
    let sql = format!(
        "UPDATE {} SET processed_at = clock_timestamp() WHERE id = $1",
        news.table
    );
    connection.execute(&sql, &[&news.id]).await?;
    Ok(())
}

/// The next of those who want to know at once.
async fn at_once(client: &Client, list: &str, after: i64, max: i64) -> Result<Vec<i64>, RunError> {
    let sql = "SELECT subscriber_id FROM email_alerts.subscriptions
                WHERE list = $1 AND frequency = 'immediately' AND subscriber_id > $2
                ORDER BY subscriber_id LIMIT $3";
    let rows = client.query(sql, &[&list, &after, &max]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Makes their emails where there are none, and answers all that are to be sent: those of a former
/// run that got no further as well.
async fn emails(
    client: &Client,
    news: &News,
    subject: &str,
    subscribers: &[i64],
) -> Result<Vec<SendEmail>, RunError> {
    let column = news.column;
    let make = format!(
        "INSERT INTO email_alerts.emails (subscriber_id, subject, queue, {column})
         SELECT unnest($1::bigint[]), $2, $3, $4 ON CONFLICT DO NOTHING"
    );
    client
        .execute(
            &make,
            &[&subscribers, &subject, &SendEmail::QUEUE, &news.id],
        )
        .await?;
    let pending = format!(
        "SELECT id FROM email_alerts.emails
          WHERE {column} = $1 AND subscriber_id = ANY($2) AND status = 'pending' ORDER BY id"
    );
    let rows = client.query(&pending, &[&news.id, &subscribers]).await?;
    rows.iter()
        .map(|row| {
            Ok(SendEmail {
                id: row.try_get(0)?,
            })
        })
        .collect()
}
