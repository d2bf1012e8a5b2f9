//! The rules of backstop, and the port that its stores implement.
//!
//! Everything here is a value or a function of values: no I/O, no clock, no randomness. `now` and
//! every random draw are arguments. Two rules decide what belongs here: if two stores could
//! disagree about it, it is in this crate; if two processes could race on it, it is in a store.
//!
//! | module | what it decides |
//! |---|---|
//! | [`retry`] | how long to wait after a failure, and when to stop |
//! | [`verdict`] | what the end of a run means for its job |
//! | [`blame`] | which job is charged when a worker vanishes |
//! | [`worker_command`] | what an operator may ask of a worker, and which run of it that is for |
//! | [`plan`] | which queues to claim from, and how many jobs of each |
//! | [`amend`] | what an operator may do to a job in which state |
//! | [`bounds`] | how many jobs a queue holds, and what happens when it is full |
//! | [`fingerprint`] | which deaths have the same cause |
//! | [`unique`] | whether a unique key is still held |
//! | [`breaker`] | when to stop calling a failing service |
//! | [`gate`] | when to stop starting jobs that keep dying |
//! | [`redact`] | which secrets are hidden from view |
//! | [`rate`] | how many jobs may start in which time |
//! | [`stream`] | which records are handled, held or declared missing, in which order |
//! | [`sweep`] | which rows lost their work, and what to do about each |
//! | [`table`] | which rows of a user's own table are due, and which runner works on them |
//! | [`terminal`] | how text from elsewhere is made safe to print |
//! | [`schedule`] | when a schedule is due, and what to do about instants that nobody fired |
//! | [`job_options`], [`trace`] | what a job carries beside its payload |
//! | [`simulate`] | how a retry policy loads a service that is down |
//! | [`port`] | what a store must do |

pub mod amend;
pub mod blame;
pub mod bounds;
pub mod breaker;
pub mod failure;
pub mod fingerprint;
pub mod gate;
pub mod histogram;
pub mod job;
pub mod job_options;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod name;
pub mod payload;
pub mod plan;
pub mod port;
pub mod rate;
pub mod redact;
pub mod retry;
pub mod schedule;
pub mod share;
pub mod simulate;
pub mod stream;
pub mod sweep;
pub mod table;
pub mod terminal;
pub mod time;
pub mod trace;
pub mod unique;
pub mod verdict;
pub mod worker_command;

pub use bounds::{Overflow, QueueBounds};
pub use fingerprint::Fingerprint;
pub use job::{Job, JobId, JobState, NewJob, Priority};
pub use lease::{Lease, LeaseNumber, LeasedRun, WorkerName};
pub use name::{Kind, QueueName, ScheduleName, StreamKey, StreamName};
pub use payload::Payload;
pub use retry::RetryPolicy;
pub use schedule::Schedule;
pub use time::{Span, Time};
pub use trace::TraceContext;
pub use verdict::Outcome;
