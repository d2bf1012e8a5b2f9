//! Runs the threads of a consumer, from the first poll until it leaves the group.

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

/// The parts of a consumer.
pub(crate) struct ConsumerThread {
    pub(crate) consumer: BaseConsumer<RebalanceHandler>,
    pub(crate) state: Arc<ConsumerState>,
    pub(crate) sink: Arc<dyn MessageSink>,
    pub(crate) runtime: Handle,
    pub(crate) settings: KafkaSettings,
}

impl ConsumerThread {
    /// Polls on this thread, next to the other threads, and finally closes the client. The consumer
    /// leaves the group before anyone learns that it has stopped.
    pub(crate) fn run(self) {
        let phase_guard = ConsumerPhaseGuard(Arc::clone(&self.state));
        let end = self.work();
        drop(self);
        phase_guard.set_phase(end.map_or_else(ConsumerPhase::Failed, |()| ConsumerPhase::Stopped));
    }

    /// Runs until the consumer stops; returns why it could not continue.
    fn work(&self) -> Result<(), String> {
        let topics: Vec<Arc<str>> = self
            .settings
            .topics
            .iter()
            .map(|topic| topic.as_str().into())
            .collect();
        let (consumer, state) = (&self.consumer, &self.state);
        thread::scope(|scope| {
            // This block drops the senders, and that ends the two threads.
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

    /// Finishes batches and commits under way, within the deadline.
    fn shut_down(&self, poller: &ConsumerPoller<'_>) {
        self.state.stopping.cancel();
        self.state.phase.send_replace(ConsumerPhase::Stopping);
        poller.finish(Instant::now() + self.settings.stop_wait);
        let left_behind = self.state.assignment().left_behind();
        // No other code sets it, so `set` cannot fail.
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

/// Publishes how the consumer ended, even after a panic.
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
