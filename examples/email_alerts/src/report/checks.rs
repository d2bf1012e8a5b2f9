//! What the tables say.

use super::Check;
use crate::desk::Desk;
use crate::digest::system_time;
use crate::tasks::{DigestEmailGeneration, ProcessContentChange, ProcessMessage, Row, SendEmail};
use anyhow::Result;
use backstop::Time;
use std::collections::BTreeSet;

/// What all of them may refer to: what came in during the run, and everything that a digest can be
/// about.
const GIVEN: &str = include_str!("../sql/given.sql");

/// What should be, and what is.
const CHECKS: [(&str, &str, &str); 10] = [
    (
        "content changes processed",
        "SELECT count(*) FROM new_changes",
        "SELECT count(*) FROM new_changes WHERE processed_at IS NOT NULL",
    ),
    (
        "messages processed",
        "SELECT count(*) FROM new_messages",
        "SELECT count(*) FROM new_messages WHERE processed_at IS NOT NULL",
    ),
    (
        "emails about content changes",
        "SELECT count(*) FROM new_changes JOIN subscriptions USING (list) WHERE frequency = 'immediately'",
        "SELECT count(*) FROM emails WHERE content_change_id IS NOT NULL",
    ),
    (
        "emails about messages",
        "SELECT count(*) FROM new_messages JOIN subscriptions USING (list) WHERE frequency = 'immediately'",
        "SELECT count(*) FROM emails WHERE message_id IS NOT NULL",
    ),
    (
        "emails to confirm a subscription",
        "SELECT count(*) FROM subscribers WHERE address LIKE 'new-%'",
        "SELECT count(*) FROM emails WHERE queue = 'send_email_transactional'",
    ),
    (
        "digest runs completed",
        "SELECT count(*) FROM digest_runs",
        "SELECT count(*) FROM digest_runs WHERE processed_at IS NOT NULL AND completed_at IS NOT NULL",
    ),
    (
        "digests to subscribers, each with its email",
        "SELECT count(*) FROM wanted_digests",
        "SELECT count(*) FROM wanted_digests JOIN digest_run_subscribers AS part USING (digest_run_id, subscriber_id)
           JOIN emails ON emails.digest_run_subscriber_id = part.id WHERE part.processed_at IS NOT NULL",
    ),
    (
        "emails to good addresses sent",
        "SELECT count(*) FROM addressed WHERE is_good",
        "SELECT count(*) FROM addressed WHERE is_good AND status = 'sent'",
    ),
    (
        "emails to bad addresses failed",
        "SELECT count(*) FROM addressed WHERE NOT is_good",
        "SELECT count(*) FROM addressed WHERE NOT is_good AND status = 'failed'",
    ),
    ("emails left pending", "SELECT 0::bigint", "SELECT count(*) FROM emails WHERE status = 'pending'"),
];

/// Compares the tables with what they should have.
pub(super) async fn of_tables(desk: &Desk, started: Time) -> Result<Vec<Check>> {
    let connection = desk.database.connection().await?;
    let mut checks = Vec::with_capacity(CHECKS.len());
    for (what, expected, found) in CHECKS {
        let sql = format!("{GIVEN} SELECT ({expected}), ({found}) FROM run");
        let row = connection.query_one(&sql, &[&system_time(started)]).await?;
        checks.push(Check {
            what,
            expected: row.try_get(0)?,
            found: row.try_get(1)?,
        });
    }
    Ok(checks)
}

/// How many rows are unprocessed.
pub(super) async fn unprocessed(desk: &Desk) -> Result<i64> {
    let sql = "SELECT (SELECT count(*) FROM email_alerts.content_changes WHERE processed_at IS NULL)
                    + (SELECT count(*) FROM email_alerts.messages WHERE processed_at IS NULL)
                    + (SELECT count(*) FROM email_alerts.digest_runs WHERE processed_at IS NULL)
                    + (SELECT count(*) FROM email_alerts.digest_run_subscribers WHERE processed_at IS NULL)
                    + (SELECT count(*) FROM email_alerts.emails WHERE status = 'pending')";
    Ok(desk
        .database
        .connection()
        .await?
        .query_one(sql, &[])
        .await?
        .try_get(0)?)
}

/// The digest runs there are: range and date.
pub(super) async fn runs(desk: &Desk) -> Result<BTreeSet<(String, String)>> {
    let sql = "SELECT range, date::text FROM email_alerts.digest_runs";
    let rows = desk.database.connection().await?.query(sql, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// The emails that are sent.
pub(super) async fn sent(desk: &Desk) -> Result<Vec<i64>> {
    ids(
        desk,
        "SELECT id FROM email_alerts.emails WHERE status = 'sent'",
    )
    .await
}

/// The keys of all work that is enqueued after its row is committed. Emails of digests are not
/// among it: theirs is one commit; nor is what happened before the run.
pub(super) async fn keys(desk: &Desk) -> Result<Vec<String>> {
    let changes = ids(
        desk,
        "SELECT id FROM email_alerts.content_changes WHERE title LIKE 'change %'",
    )
    .await?;
    let messages = ids(desk, "SELECT id FROM email_alerts.messages").await?;
    let parts = ids(desk, "SELECT id FROM email_alerts.digest_run_subscribers").await?;
    let emails = ids(
        desk,
        "SELECT id FROM email_alerts.emails WHERE digest_run_subscriber_id IS NULL",
    )
    .await?;
    let changes = changes
        .into_iter()
        .map(|id| ProcessContentChange { id }.key());
    let messages = messages.into_iter().map(|id| ProcessMessage { id }.key());
    let parts = parts
        .into_iter()
        .map(|id| DigestEmailGeneration { id }.key());
    let emails = emails.into_iter().map(|id| SendEmail { id }.key());
    Ok(changes.chain(messages).chain(parts).chain(emails).collect())
}

async fn ids(desk: &Desk, sql: &str) -> Result<Vec<i64>> {
    let rows = desk.database.connection().await?.query(sql, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
