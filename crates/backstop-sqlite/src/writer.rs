//! The one thread that writes. Whatever waits goes into one transaction, and is answered when that
//! is on disk.

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

/// Requests that wait for the writer; then callers wait.
const WAITING_MAX: usize = 4_096;
const GROUP_MAX: usize = 1_024;
/// Rows of one transaction: past it those who wait would wait longer for company than for the disk.
const GROUP_ROWS_MAX: usize = 10_000;

/// What a request asks of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteDurability {
    /// Its effect must be on disk when it is answered.
    Durable,
    /// If a power cut undoes it, nothing is lost: it is done again.
    Light,
    /// As light, and of no use to anybody once its caller went away.
    Claim,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTask {
    pub(crate) doing: &'static str,
    pub(crate) durability: WriteDurability,
    /// About how many rows, or pages of payload, it touches.
    pub(crate) rows: usize,
}

/// The one thread that writes.
pub(crate) struct WriterHandle {
    requests: Option<mpsc::Sender<WriterMessage>>,
    thread: Option<JoinHandle<()>>,
}

enum WriterMessage {
    /// Shares a transaction with others.
    Grouped(Box<dyn WriteRequest>),
    /// Has the connection to itself.
    Exclusive(&'static str, ExclusiveRequest),
}

/// A request in a group. It may run twice: with the others, and by itself after one of them failed.
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
            // A caller that went away asks again, and is told then.
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
        // A runtime of its own, and only for its clock: the thread waits for requests with a
        // deadline.
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

    /// Does something in a transaction, with whatever else waits; answers when that is committed.
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

    /// Does something with the connection that is not to share a transaction.
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
            // A caller that went away asks again, and is told then.
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
    /// What was asked for is still done; then the log is folded into the file.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to end.
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
        // Who is not answered learns it from the reply that is dropped.
        let ended = catch_unwind(AssertUnwindSafe(|| connection.run(&mut group)));
        if ended.is_ok() {
            group.into_iter().for_each(WriteRequest::reply);
        } else {
            tracing::error!("a write to the store panicked; this is a bug in backstop");
            connection.roll_back();
            drop(group);
        }
        // After the replies: a claim of this group that was answered with nothing would else come
        // behind the hint of what was enqueued after it, and its caller would wait for another.
        connection.notify_if_due();
        if let Some((doing, alone)) = alone {
            connection.run_exclusive(doing, alone);
        }
        connection.fold_log();
    }
    connection.close();
}

type RequestGroup = Vec<Box<dyn WriteRequest>>;
/// Answers how the disk failed, if it did.
type ExclusiveRequest = Box<dyn FnOnce(StoreResult<&mut Connection>) -> Option<StoreError> + Send>;

/// The first request and whatever else waits, up to one that must be alone.
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
