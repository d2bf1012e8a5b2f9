//! Enqueues jobs inside a transaction of sqlx's.

use crate::enqueue::{EnqueueColumns, refused, set_answer};
use crate::error::TOO_MANY_QUEUES;
use backstop_core::port::backlog::check_enqueue;
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::{NewJob, Time};
use sqlx_core::error::DatabaseError;
use sqlx_core::row::Row;
use sqlx_postgres::PgConnection;
use uuid::Uuid;

const DOING: &str = "enqueueing";

/// Enqueues jobs inside a transaction of sqlx's (`&mut *transaction` is its connection): the same
/// as [`crate::enqueue_in`], for users of the other driver.
pub async fn enqueue_in_sqlx(
    connection: &mut PgConnection,
    schema: &str,
    jobs: &[NewJob],
    now: Time,
) -> StoreResult<Vec<EnqueueOutcome>> {
    check_enqueue(jobs, now)?;
    let batch = EnqueueColumns {
        careful: true,
        ..EnqueueColumns::of(jobs.iter().map(|job| (job, now)))
    };
    let ids: Vec<String> = batch.ids.iter().map(Uuid::to_string).collect();
    // Ids are sent and read as text: sqlx supports UUIDs only with a feature that the rest of a
    // user's program may not want.
    let sql = format!(
        "SELECT at, holder::text, is_full, is_conflict FROM \"{}\".enqueue_jobs($1, $2, $3, $4::uuid[], $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         WHERE at > 0",
        schema.replace('"', "\"\"")
    );
    let rows = sqlx_core::query::query(sqlx_core::sql_str::AssertSqlSafe(sql))
        .bind(&batch.queues)
        .bind(&batch.queue_at)
        .bind(&batch.nows)
        .bind(&ids)
        .bind(&batch.levels)
        .bind(&batch.kinds)
        .bind(&batch.payloads)
        .bind(&batch.run_ats.0)
        .bind(&batch.keys.0)
        .bind(&batch.key_states.0)
        .bind(&batch.key_untils.0)
        .bind(&batch.retries.0)
        .bind(batch.singly)
        .bind(batch.careful)
        .fetch_all(connection)
        .await
        .map_err(|error| sqlx_error(&error))?;
    let mut answers = vec![EnqueueOutcome::Inserted; jobs.len()];
    for row in &rows {
        let (at, holder, is_full, is_conflict): (i32, Option<String>, bool, bool) = (
            row.try_get(0).map_err(|error| sqlx_error(&error))?,
            row.try_get(1).map_err(|error| sqlx_error(&error))?,
            row.try_get(2).map_err(|error| sqlx_error(&error))?,
            row.try_get(3).map_err(|error| sqlx_error(&error))?,
        );
        let holder = holder.and_then(|holder| holder.parse().ok());
        set_answer(&mut answers, at, refused(holder, is_full, is_conflict))?;
    }
    Ok(answers)
}

fn sqlx_error(error: &sqlx_core::Error) -> StoreError {
    match error.as_database_error().and_then(DatabaseError::code) {
        Some(code) if ["42P01", "42883", "3F000"].contains(&&*code) => StoreError::misuse(
            DOING,
            format!("{error}; run `backstop migrate` on this address"),
        ),
        Some(code) if &*code == TOO_MANY_QUEUES => StoreError::TooManyQueues {
            cause: error.to_string(),
        },
        Some(code) if &*code == "42501" => StoreError::misuse(DOING, error),
        _ => StoreError::unavailable(DOING, error),
    }
}
