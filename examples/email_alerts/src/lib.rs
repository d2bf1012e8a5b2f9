//! A service that tells its subscribers by email what has changed: content changes and messages at
//! once, digests every morning and every Saturday.
//!
//! It stands on PostgreSQL, its tables and its jobs in one database. Work can get lost in two ways:
//! a row is committed and the enqueue after it never happens, or a process dies in the middle.
//! `email_alerts chaos` makes both happen all the time, and then counts.
//!
//! | where | what |
//! |---|---|
//! | [`intake`] | what comes in: commits a row, then enqueues |
//! | [`process`] | a content change, a message: emails to those who want them at once |
//! | [`initiate`] | a digest run: who gets one |
//! | [`generate`] | one subscriber's digest |
//! | [`send`] | one email |
//! | [`complete`] | which digest runs are over |
//! | [`digest`] | which time a digest is about |
//! | [`config`] | queues, schedules and sweeps, as `backstop.toml` |
//! | [`provider`] | who delivers emails, and is not always well |
//! | [`play`] | a run: a week, worker processes, kills |
//! | [`report`] | what came of it, measured against what should have |

pub mod complete;
pub mod config;
pub mod database;
pub mod desk;
pub mod digest;
pub mod generate;
pub mod initiate;
pub mod intake;
pub mod limits;
pub mod loss;
pub mod play;
pub mod postgres;
pub mod process;
pub mod provider;
pub mod report;
pub mod send;
pub mod tasks;
pub mod worker;
pub mod world;
