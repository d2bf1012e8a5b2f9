//! The one thread that writes. Whatever waits goes into one transaction, and is answered when that
//! is on disk.

mod desk;
mod file;

use crate::error::is_disk_failure;
use crate::hints::Bell;
use crate::open::SqliteOptions;
use crate::work::Work;
use backstop_core::port::{Answer, StoreError};
use desk::Desk;
pub(crate) use file::{WriterFile, leave_log};
use rusqlite::{Connection, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the writer; then callers wait.
const WAITING_MAX: usize = 4_096;
/// Requests of one transaction.
const GROUP_MAX: usize = 1_024;
/// Rows of one transaction: past it those who wait would wait longer for company than for the disk.
const GROUP_ROWS_MAX: usize = 10_000;

/// What a request asks of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Its effect must be on disk when it is answered.
    Durable,
    /// If a power cut undoes it, nothing is lost: it is done again.
    Light,
    /// As light, and of no use to anybody once its caller went away.
    Claim,
}

/// What a request is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) doing: &'static str,
    pub(crate) effort: Effort,
    /// About how many rows, or pages of payload, it touches.
    pub(crate) rows: usize,
}

/// The one thread that writes.
pub(crate) struct Writer {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

enum Request {
    /// Shares a transaction with others.
    Grouped(Box<dyn Errand>),
    /// Has the connection to itself.
    Alone(&'static str, Alone),
}

/// A request in a group. It may run twice: with the others, and by itself after one of them failed.
trait Errand: Send {
    fn task(&self) -> Task;
    fn is_wanted(&self) -> bool;
    fn run(&mut self, work: &mut Work<'_>) -> Result<()>;
    fn fail(&mut self, error: StoreError);
    fn reply(self: Box<Self>);
}

struct Call<T, F> {
    task: Task,
    run: F,
    answer: Option<Answer<T>>,
    reply: oneshot::Sender<Answer<T>>,
}

impl<T, F> Errand for Call<T, F>
where
    T: Send,
    F: for<'c> FnMut(&mut Work<'c>) -> Result<T> + Send,
{
    fn task(&self) -> Task {
        self.task
    }

    fn is_wanted(&self) -> bool {
        self.task.effort != Effort::Claim || !self.reply.is_closed()
    }

    fn run(&mut self, work: &mut Work<'_>) -> Result<()> {
        self.answer = Some(Ok((self.run)(work)?));
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

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(
        file: WriterFile,
        options: SqliteOptions,
        bell: Bell,
    ) -> std::io::Result<Self> {
        // A runtime of its own, and only for its clock: the thread waits for requests with a
        // deadline.
        let waiting = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let desk = Desk::new(file, options, bell);
        let thread = thread::Builder::new().name("backstop-writer".to_owned());
        let thread = thread.spawn(move || serve(desk, &waiting, receiver))?;
        Ok(Self {
            requests: Some(sender),
            thread: Some(thread),
        })
    }

    /// Does something in a transaction, with whatever else waits; answers when that is committed.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        task: Task,
        run: impl for<'c> FnMut(&mut Work<'c>) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.send(
            task.doing,
            Request::Grouped(Box::new(Call {
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
    pub(crate) async fn alone<T: Send + 'static>(
        &self,
        doing: &'static str,
        run: impl FnOnce(&mut Connection) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        let run = Box::new(move |db: Answer<&mut Connection>| {
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
        self.send(doing, Request::Alone(doing, run)).await?;
        answer.await.map_err(|_| stopped(doing))?
    }

    async fn send(&self, doing: &'static str, request: Request) -> Answer<()> {
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

impl Drop for Writer {
    /// What was asked for is still done; then the log is folded into the file.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

fn serve(mut desk: Desk, waiting: &Runtime, mut requests: mpsc::Receiver<Request>) {
    while let Some(first) = desk.wait(waiting, &mut requests) {
        let (mut group, alone) = gather(first, &mut requests);
        // Who is not answered learns it from the reply that is dropped.
        let ended = catch_unwind(AssertUnwindSafe(|| desk.run(&mut group)));
        if ended.is_ok() {
            group.into_iter().for_each(Errand::reply);
        } else {
            tracing::error!("a write to the store panicked; this is a bug in backstop");
            desk.roll_back();
            drop(group);
        }
        // After the replies: a claim of this group that was answered with nothing would else come
        // behind the hint of what was enqueued after it, and its caller would wait for another.
        desk.ring();
        if let Some((doing, alone)) = alone {
            desk.run_alone(doing, alone);
        }
        desk.fold_log();
    }
    desk.close();
}

type Group = Vec<Box<dyn Errand>>;
/// Answers how the disk failed, if it did.
type Alone = Box<dyn FnOnce(Answer<&mut Connection>) -> Option<StoreError> + Send>;

/// The first request and whatever else waits, up to one that must be alone.
fn gather(
    first: Request,
    requests: &mut mpsc::Receiver<Request>,
) -> (Group, Option<(&'static str, Alone)>) {
    let (mut group, mut rows) = (Group::new(), 0);
    let mut next = Some(first);
    loop {
        match next {
            Some(Request::Grouped(errand)) if errand.is_wanted() => {
                rows += errand.task().rows;
                group.push(errand);
            }
            Some(Request::Grouped(_)) => {}
            Some(Request::Alone(doing, alone)) => return (group, Some((doing, alone))),
            None => return (group, None),
        }
        let full = group.len() >= GROUP_MAX || rows >= GROUP_ROWS_MAX;
        next = if full { None } else { requests.try_recv().ok() };
    }
}

#[cfg(test)]
mod tests;
