//! What comes in. As in many services, a row is committed first and its job is enqueued after:
//! whatever happens in between is lost to the queue, and found by a sweep.

use crate::desk::Desk;
use crate::tasks::{ProcessContentChange, ProcessMessage, SendTransactionalEmail};
use anyhow::Result;
use backstop::Task;

/// The way in.
pub struct Intake<'a>(pub &'a Desk);

impl Intake<'_> {
    /// Something was published.
    pub async fn content_change(&self, list: &str, title: &str) -> Result<()> {
        let sql =
            "INSERT INTO email_alerts.content_changes (list, title) VALUES ($1, $2) RETURNING id";
        let row = self
            .0
            .database
            .connection()
            .await?
            .query_one(sql, &[&list, &title])
            .await?;
        Ok(self
            .0
            .enqueue_after_commit(&[ProcessContentChange {
                id: row.try_get(0)?,
            }])
            .await?)
    }

    /// Somebody has something to say.
    pub async fn message(&self, list: &str, title: &str) -> Result<()> {
        let sql = "INSERT INTO email_alerts.messages (list, title) VALUES ($1, $2) RETURNING id";
        let row = self
            .0
            .database
            .connection()
            .await?
            .query_one(sql, &[&list, &title])
            .await?;
        Ok(self
            .0
            .enqueue_after_commit(&[ProcessMessage {
                id: row.try_get(0)?,
            }])
            .await?)
    }

    /// Somebody signs up, and waits for an email to confirm it.
    pub async fn sign_up(&self, address: &str) -> Result<()> {
        let sql =
            "WITH subscriber AS (INSERT INTO email_alerts.subscribers (address) VALUES ($1) RETURNING id)
                   INSERT INTO email_alerts.emails (subscriber_id, subject, queue)
                   SELECT id, 'Confirm your subscription', $2 FROM subscriber RETURNING id";
        let connection = self.0.database.connection().await?;
        let row = connection
            .query_one(sql, &[&address, &SendTransactionalEmail::QUEUE])
            .await?;
        Ok(self
            .0
            .enqueue_after_commit(&[SendTransactionalEmail {
                id: row.try_get(0)?,
            }])
            .await?)
    }
}
