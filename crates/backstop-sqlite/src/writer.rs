//! The writer thread. It runs all waiting requests in one transaction (group commit) and replies to
//! them after the commit.

mod connection;
mod file;

use crate::error::is_disk_failure;
use crate::hints::Notifier;
use crate::open::SqliteOptions;
use crate::transaction::WriteTransaction;
use backstop_core::port::{StoreError, StoreResult};
use connection::WriterConnection;
pub(crate) use file::{WriterFile, leave_log};
use rusqlite::{Connection, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

/// Capacity of the request channel. When it is full, callers wait to send.
const WAITING_MAX: usize = 4_096;
const GROUP_MAX: usize = 1_024;
/// Rows of one transaction. In a larger one, requests would wait longer for each other than for the
/// disk.
const GROUP_ROWS_MAX: usize = 10_000;

/// How durable a request must be when the writer replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteDurability {
    /// Fsynced before the reply, unless the store is opened as `Relaxed`.
    Durable,
    /// Not fsynced: if a power cut undoes it, nothing is lost, because it is done again.
    Light,
    /// Not fsynced, and dropped if its caller is gone before it runs.
    Claim,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTask {
    pub(crate) doing: &'static str,
    pub(crate) durability: WriteDurability,
    /// Estimated number of rows, or pages of payload, that it touches.
    pub(crate) rows: usize,
}

/// The handle of the writer thread: sends it requests, and stops it when dropped.
pub(crate) struct WriterHandle {
    requests: Option<mpsc::Sender<WriterMessage>>,
    thread: Option<JoinHandle<()>>,
}

enum WriterMessage {
    /// Runs in one transaction with other requests.
    Grouped(Box<dyn WriteRequest>),
    /// Runs alone on the connection, outside of any group.
    Exclusive(&'static str, ExclusiveRequest),
}

/// A request in a group. It may run twice: once in the group, and once alone after another request
/// of the group failed.
trait WriteRequest: Send {
    fn task(&self) -> WriteTask;
    fn is_wanted(&self) -> bool;
    fn run(&mut self, tx: &mut WriteTransaction<'_>) -> Result<()>;
    fn fail(&mut self, error: StoreError);
    fn reply(self: Box<Self>);
}

struct WriteCall<T, F> {
    task: WriteTask,
    run: F,
    answer: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, F> WriteRequest for WriteCall<T, F>
where
    T: Send,
    F: for<'c> FnMut(&mut WriteTransaction<'c>) -> Result<T> + Send,
{
    fn task(&self) -> WriteTask {
        self.task
    }

    fn is_wanted(&self) -> bool {
        self.task.durability != WriteDurability::Claim || !self.reply.is_closed()
    }

    fn run(&mut self, tx: &mut WriteTransaction<'_>) -> Result<()> {
        self.answer = Some(Ok((self.run)(tx)?));
        Ok(())
    }

    fn fail(&mut self, error: StoreError) {
        self.answer = Some(Err(error));
    }

    fn reply(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // If this fails, the caller is gone. If it retries, it gets its answer then.
            let _ = self.reply.send(answer);
        }
    }
}

impl WriterHandle {
    pub(crate) fn start(
        file: WriterFile,
        options: SqliteOptions,
        notifier: Notifier,
    ) -> std::io::Result<Self> {
        // The thread uses this runtime only for its timer: it waits for requests with a timeout.
        let waiting = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let connection = WriterConnection::new(file, options, notifier);
        let thread = thread::Builder::new().name("backstop-writer".to_owned());
        let thread = thread.spawn(move || serve(connection, &waiting, receiver))?;
        Ok(Self {
            requests: Some(sender),
            thread: Some(thread),
        })
    }

    /// Runs `run` in a transaction, grouped with all waiting requests; returns after the commit.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        task: WriteTask,
        run: impl for<'c> FnMut(&mut WriteTransaction<'c>) -> Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        self.send(
            task.doing,
            WriterMessage::Grouped(Box::new(WriteCall {
                task,
                run,
                answer: None,
                reply,
            })),
        )
        .await?;
        answer.await.map_err(|_| stopped(task.doing))?
    }

    /// Runs `run` alone on the connection, for work that must not share a transaction.
    pub(crate) async fn call_exclusive<T: Send + 'static>(
        &self,
        doing: &'static str,
        run: impl FnOnce(&mut Connection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let run = Box::new(move |db: StoreResult<&mut Connection>| {
            let answer = db.and_then(run);
            let failure = answer
                .as_ref()
                .err()
                .filter(|error| is_disk_failure(error))
                .cloned();
            // If this fails, the caller is gone. If it retries, it gets its answer then.
            let _ = reply.send(answer);
            failure
        });
        self.send(doing, WriterMessage::Exclusive(doing, run))
            .await?;
        answer.await.map_err(|_| stopped(doing))?
    }

    async fn send(&self, doing: &'static str, request: WriterMessage) -> StoreResult<()> {
        let requests = self.requests.as_ref().ok_or_else(|| stopped(doing))?;
        requests.send(request).await.map_err(|_| stopped(doing))
    }
}

fn stopped(doing: &'static str) -> StoreError {
    StoreError::unavailable(
        doing,
        "the store's writer gave up on this; see the log, and try again",
    )
}

impl Drop for WriterHandle {
    /// Waits until the thread has run all requests in the channel and has checkpointed the log.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended already, so the error needs no handling.
            let _ = thread.join();
        }
    }
}

fn serve(
    mut connection: WriterConnection,
    waiting: &Runtime,
    mut requests: mpsc::Receiver<WriterMessage>,
) {
    while let Some(first) = connection.wait(waiting, &mut requests) {
        let (mut group, alone) = gather(first, &mut requests);
        // After a panic the reply channels are dropped, and that is how the callers learn of it.
        let ended = catch_unwind(AssertUnwindSafe(|| connection.run(&mut group)));
        if ended.is_ok() {
            group.into_iter().for_each(WriteRequest::reply);
        } else {
            tracing::error!("a write to the store panicked; this is a bug in backstop");
            connection.roll_back();
            drop(group);
        }
        // Hint after the replies. Otherwise a claim in this group that returned no jobs could get
        // its reply after the hint for jobs that were enqueued behind it, and its caller would wait
        // for another hint.
        connection.notify_if_due();
        if let Some((doing, alone)) = alone {
            connection.run_exclusive(doing, alone);
        }
        connection.checkpoint_wal();
    }
    connection.close();
}

type RequestGroup = Vec<Box<dyn WriteRequest>>;
/// A request that runs alone; it returns the error if a write or fsync failed.
type ExclusiveRequest = Box<dyn FnOnce(StoreResult<&mut Connection>) -> Option<StoreError> + Send>;

/// Collects the first request and all waiting ones, up to the first that must run alone.
fn gather(
    first: WriterMessage,
    requests: &mut mpsc::Receiver<WriterMessage>,
) -> (RequestGroup, Option<(&'static str, ExclusiveRequest)>) {
    let (mut group, mut rows) = (RequestGroup::new(), 0);
    let mut next = Some(first);
    loop {
        match next {
            Some(WriterMessage::Grouped(request)) if request.is_wanted() => {
                rows += request.task().rows;
                group.push(request);
            }
            Some(WriterMessage::Grouped(_)) => {}
            Some(WriterMessage::Exclusive(doing, alone)) => return (group, Some((doing, alone))),
            None => return (group, None),
        }
        let full = group.len() >= GROUP_MAX || rows >= GROUP_ROWS_MAX;
        next = if full { None } else { requests.try_recv().ok() };
    }
}

#[cfg(test)]
mod tests;
