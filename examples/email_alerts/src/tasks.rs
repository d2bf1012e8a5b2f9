//! The kinds of jobs, where they wait, and what makes each of them one.
//!
//! A sweep that finds a row makes the same job under the same key: that is how it knows which rows
//! have one.

use backstop::{Backstop, JobDraft, Task};
use serde::{Deserialize, Serialize};

/// Work on a row that has one job at a time.
pub trait Row: Task {
    /// The unique key of its job; `config` has the same for sweeps.
    fn key(&self) -> String;

    /// Its job, to be pushed.
    fn draft(&self, backstop: &Backstop) -> JobDraft {
        backstop
            .draft(Self::QUEUE)
            .task(self)
            .unique_key(&self.key())
    }
}

/// Tells those who want to know at once of a content change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProcessContentChange {
    /// The content change.
    pub id: i64,
}

/// Tells those who want to know at once of a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProcessMessage {
    /// The message.
    pub id: i64,
}

/// Begins the daily digest of a date.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DailyDigestInitiator {
    /// The date in London.
    pub date: String,
}

/// Begins the weekly digest of a date.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeeklyDigestInitiator {
    /// The date in London, a Saturday.
    pub date: String,
}

/// Makes the digest of one subscriber.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DigestEmailGeneration {
    /// The subscriber's part of the run.
    pub id: i64,
}

/// Notes which digest runs are over.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MarkDigestRunsComplete {}

/// Sends an email.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SendEmail {
    /// The email.
    pub id: i64,
}

/// Sends an email that somebody waits for: it is not to queue behind a digest.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SendTransactionalEmail {
    /// The email.
    pub id: i64,
}

impl Task for ProcessContentChange {
    const KIND: &'static str = "ProcessContentChange";
    const QUEUE: &'static str = "process_and_generate_emails";
}

impl Task for ProcessMessage {
    const KIND: &'static str = "ProcessMessage";
    const QUEUE: &'static str = ProcessContentChange::QUEUE;
}

impl Task for DailyDigestInitiator {
    const KIND: &'static str = "DailyDigestInitiator";
    const QUEUE: &'static str = "digest_initiation";
}

impl Task for WeeklyDigestInitiator {
    const KIND: &'static str = "WeeklyDigestInitiator";
    const QUEUE: &'static str = DailyDigestInitiator::QUEUE;
}

impl Task for DigestEmailGeneration {
    const KIND: &'static str = "DigestEmailGeneration";
    const QUEUE: &'static str = "email_generation_digest";
}

impl Task for MarkDigestRunsComplete {
    const KIND: &'static str = "MarkDigestRunsComplete";
    const QUEUE: &'static str = DailyDigestInitiator::QUEUE;
}

impl Task for SendEmail {
    const KIND: &'static str = "SendEmail";
    const QUEUE: &'static str = "send_email";
}

impl Task for SendTransactionalEmail {
    const KIND: &'static str = "SendEmail";
    const QUEUE: &'static str = "send_email_transactional";
}

impl Row for ProcessContentChange {
    fn key(&self) -> String {
        format!("content_change:{}", self.id)
    }
}

impl Row for ProcessMessage {
    fn key(&self) -> String {
        format!("message:{}", self.id)
    }
}

impl Row for DigestEmailGeneration {
    fn key(&self) -> String {
        format!("digest_run_subscriber:{}", self.id)
    }
}

impl Row for SendEmail {
    fn key(&self) -> String {
        format!("email:{}", self.id)
    }
}

impl Row for SendTransactionalEmail {
    fn key(&self) -> String {
        format!("email:{}", self.id)
    }
}
