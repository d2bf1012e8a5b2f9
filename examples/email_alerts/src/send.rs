//! One email: fast work, in one transaction with its row locked.
//!
//! | what the provider says | the email | the job |
//! |---|---|---|
//! | delivered, now or before | sent | done |
//! | no such address | failed, for good | done |
//! | anything else, or nothing | stays pending | tried again |
//!
//! Between the provider's answer and the commit a process may be killed, and the email is sent
//! again: under the same key, by which the provider knows it. No lock and no transaction could do
//! that; the key is the email's own, so that a job made by a sweep has the same.

use crate::desk::Desk;
use crate::provider::{Answer, Mail};
use crate::tasks::{SendEmail, SendTransactionalEmail};
use backstop::{Run, RunError};

/// Handles [`SendEmail`].
pub async fn email(task: SendEmail, run: Run) -> Result<(), RunError> {
    send(run.state::<Desk>()?, task.id).await
}

/// Handles [`SendTransactionalEmail`].
pub async fn transactional(task: SendTransactionalEmail, run: Run) -> Result<(), RunError> {
    send(run.state::<Desk>()?, task.id).await
}

/// What the provider knows an email by.
pub fn idempotency_key(email: i64) -> String {
    format!("email-{email}")
}

async fn send(desk: &Desk, id: i64) -> Result<(), RunError> {
    let mut connection = desk.database.connection().await?;
    let transaction = connection.transaction().await?;
    let pending = "SELECT subscriber.address, email.subject FROM email_alerts.emails AS email
                     JOIN email_alerts.subscribers AS subscriber ON subscriber.id = email.subscriber_id
                    WHERE email.id = $1 AND email.status = 'pending' FOR UPDATE OF email";
    let Some(row) = transaction.query_opt(pending, &[&id]).await? else {
        return Ok(());
    };
    let mail = Mail {
        to: row.try_get(0)?,
        subject: row.try_get(1)?,
    };
    let (status, refusal) = match desk.provider.send(&idempotency_key(id), &mail).await? {
        Answer::Delivered => ("sent", None),
        Answer::Refused(why) => ("failed", Some(why)),
        Answer::Unwell(why) => return Err(RunError::retry(why)),
    };
    let settled = "UPDATE email_alerts.emails
                      SET status = $2, refusal = $3, processed_at = clock_timestamp() WHERE id = $1";
    transaction
        .execute(settled, &[&id, &status, &refusal])
        .await?;
    transaction.commit().await?;
    Ok(())
}
