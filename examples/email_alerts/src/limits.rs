//! Every bound in one place.

use std::time::Duration;

/// Emails made in one go, where nobody says otherwise.
pub const EMAIL_BATCH_MAX: i64 = 5_000;
/// Subscribers of a digest entered in one go.
pub const SUBSCRIBER_SLICE_MAX: i64 = 1_000;

/// Connections of one process to its tables, beside those of the store.
pub const CONNECTIONS_MAX: usize = 16;
/// How long a statement may take, and a transaction may wait for its next one.
pub const STATEMENT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long the provider may take.
pub const PROVIDER_TIME_MAX: Duration = Duration::from_secs(10);

/// Worker processes of a run.
pub const WORKERS_MAX: usize = 16;
/// How long a run may take to settle once nothing more comes in and nobody is killed.
pub const SETTLE_TIME_MAX: Duration = Duration::from_mins(2);
/// Between two looks at whether it has.
pub const SETTLE_LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often an operator requeues what died of its workers' deaths.
pub const REQUEUES_MAX: u32 = 3;
/// How long worker processes may take to end.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a PostgreSQL may take to start.
pub const START_TIME_MAX: Duration = Duration::from_mins(1);
/// How often one is started on another port because somebody else was quicker.
pub const PORT_TRIES_MAX: usize = 5;
