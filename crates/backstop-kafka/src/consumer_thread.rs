//! The life of a source: its threads, from the first poll until the group is left.

use crate::committer::OffsetCommitter;
use crate::consumer_state::ConsumerState;
use crate::context::RebalanceHandler;
use crate::lag_monitor::LagMonitor;
use crate::poller::ConsumerPoller;
use crate::settings::KafkaSettings;
use crate::sink::MessageSink;
use crate::status::ConsumerPhase;
use rdkafka::consumer::BaseConsumer;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, Scope};
use std::time::Instant;
use tokio::runtime::Handle;

/// What a source is made of.
pub(crate) struct ConsumerThread {
    pub(crate) consumer: BaseConsumer<RebalanceHandler>,
    pub(crate) state: Arc<ConsumerState>,
    pub(crate) sink: Arc<dyn MessageSink>,
    pub(crate) runtime: Handle,
    pub(crate) settings: KafkaSettings,
}

impl ConsumerThread {
    /// Polls on this thread, with the others beside it, and closes the client at the end: the group
    /// is left before anybody hears that the source has stopped.
    pub(crate) fn run(self) {
        let phase_guard = ConsumerPhaseGuard(Arc::clone(&self.state));
        let end = self.work();
        drop(self);
        phase_guard.set_phase(end.map_or_else(ConsumerPhase::Failed, |()| ConsumerPhase::Stopped));
    }

    /// Tells why it could not go on.
    fn work(&self) -> Result<(), String> {
        let topics: Vec<Arc<str>> = self
            .settings
            .topics
            .iter()
            .map(|topic| topic.as_str().into())
            .collect();
        let (consumer, state) = (&self.consumer, &self.state);
        thread::scope(|scope| {
            // Both ends are dropped with this block, and so end the threads.
            let (commits, orders) = mpsc::channel();
            let (_surveying, stop) = mpsc::channel();
            let (sink, runtime) = (&self.sink, &self.runtime);
            let poller = ConsumerPoller {
                consumer,
                state,
                sink,
                runtime,
                topics: &topics,
                commits,
            };
            let committer = OffsetCommitter { consumer, state };
            let (every, start) = (self.settings.lag_every, self.settings.start);
            let lag_monitor = LagMonitor {
                consumer,
                state,
                every,
                start,
            };
            let spawned = spawn_thread(scope, "backstop-kafka-commit", move || {
                committer.run(&orders);
            })
            .and_then(|()| {
                spawn_thread(scope, "backstop-kafka-lag", move || lag_monitor.run(&stop))
            });
            let end = match spawned {
                Ok(()) => poller.work(),
                Err(error) => Err(format!("the system gives no thread: {error}")),
            };
            self.shut_down(&poller);
            end
        })
    }

    /// Finishes what is under way, as long as there is time.
    fn shut_down(&self, poller: &ConsumerPoller<'_>) {
        self.state.stopping.cancel();
        self.state.phase.send_replace(ConsumerPhase::Stopping);
        poller.finish(Instant::now() + self.settings.stop_wait);
        let left_behind = self.state.assignment().left_behind();
        // Nobody else sets it.
        let _ = self.state.left_behind.set(left_behind);
        self.state.abandoned.cancel();
    }
}

fn spawn_thread<'scope>(
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
struct ConsumerPhaseGuard(Arc<ConsumerState>);

impl ConsumerPhaseGuard {
    fn set_phase(&self, phase: ConsumerPhase) {
        self.0.stopping.cancel();
        self.0.phase.send_replace(phase);
    }
}

impl Drop for ConsumerPhaseGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.set_phase(ConsumerPhase::Failed(
                "a thread of the source panicked".to_owned(),
            ));
        }
    }
}
