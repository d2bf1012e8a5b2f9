//! The life of a source: its threads, from the first poll until the group is left.

use crate::board::Board;
use crate::committer::Committer;
use crate::context::Context;
use crate::poller::Poller;
use crate::settings::Settings;
use crate::sink::Sink;
use crate::status::Phase;
use crate::survey::Surveyor;
use rdkafka::consumer::BaseConsumer;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, Scope};
use std::time::Instant;
use tokio::runtime::Handle;

/// What a source is made of.
pub(crate) struct Life {
    pub(crate) consumer: BaseConsumer<Context>,
    pub(crate) board: Arc<Board>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) runtime: Handle,
    pub(crate) settings: Settings,
}

impl Life {
    /// Polls on this thread, with the others beside it, and closes the client at the end: the group
    /// is left before anybody hears that the source has stopped.
    pub(crate) fn live(self) {
        let epitaph = Epitaph(Arc::clone(&self.board));
        let end = self.work();
        drop(self);
        epitaph.say(end.map_or_else(Phase::Failed, |()| Phase::Stopped));
    }

    /// Tells why it could not go on.
    fn work(&self) -> Result<(), String> {
        let topics: Vec<Arc<str>> = self
            .settings
            .topics
            .iter()
            .map(|topic| topic.as_str().into())
            .collect();
        let (consumer, board) = (&self.consumer, &self.board);
        thread::scope(|scope| {
            // Both ends are dropped with this block, and so end the threads.
            let (commits, orders) = mpsc::channel();
            let (_surveying, stop) = mpsc::channel();
            let (sink, runtime) = (&self.sink, &self.runtime);
            let poller = Poller {
                consumer,
                board,
                sink,
                runtime,
                topics: &topics,
                commits,
            };
            let committer = Committer { consumer, board };
            let (every, start) = (self.settings.lag_every, self.settings.start);
            let surveyor = Surveyor {
                consumer,
                board,
                every,
                start,
            };
            let beside = beside(scope, "backstop-kafka-commit", move || {
                committer.run(&orders);
            })
            .and_then(|()| beside(scope, "backstop-kafka-lag", move || surveyor.run(&stop)));
            let end = match beside {
                Ok(()) => poller.work(),
                Err(error) => Err(format!("the system gives no thread: {error}")),
            };
            self.part(&poller);
            end
        })
    }

    /// Finishes what is under way, as long as there is time.
    fn part(&self, poller: &Poller<'_>) {
        self.board.stopping.cancel();
        self.board.phase.send_replace(Phase::Stopping);
        poller.finish(Instant::now() + self.settings.stop_wait);
        let left_behind = self.board.assignment().left_behind();
        // Nobody else sets it.
        let _ = self.board.left_behind.set(left_behind);
        self.board.abandoned.cancel();
    }
}

fn beside<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, work)
        .map(drop)
}

/// Says how the source ended, even if it panicked.
struct Epitaph(Arc<Board>);

impl Epitaph {
    fn say(&self, phase: Phase) {
        self.0.stopping.cancel();
        self.0.phase.send_replace(phase);
    }
}

impl Drop for Epitaph {
    fn drop(&mut self) {
        if thread::panicking() {
            self.say(Phase::Failed("a thread of the source panicked".to_owned()));
        }
    }
}
