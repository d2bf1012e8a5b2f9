//! What happens, in the order in which it happens.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use crate::detector::Detector;
use crate::pipeline::{Analysed, Detect};
use crate::{ANALYSIS_QUEUE, DETECTION_QUEUE, Options, Told};
use anyhow::{Context, Result, bail};
use backstop::breakers::BreakerName;
use backstop::core::breaker::{BreakerPhase, BreakerSettings};
use backstop::dead::DeadSelection;
use backstop::dead::redrive::{RedrivePlan, RedriveRate};
use backstop::{
    Backstop, Http, JobState, QueueName, QueueSettings, RetryPolicy, Run, RunningWorker, Span,
};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::Instant;

/// The longest any step of the story may take.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Story {
    pub(crate) backstop: Backstop,
    pub(crate) detector: Detector,
    pub(crate) analysed: Analysed,
    pub(crate) options: Options,
    pub(crate) told: Told,
}

impl Story {
    /// All of it.
    pub(crate) async fn tell(mut self) -> Result<Told> {
        let worker = self.start_worker().await?;
        self.a_good_day().await?;
        self.an_outage().await?;
        self.dead_letters().await?;
        self.redrive().await?;
        worker.stop();
        worker.stopped().await;
        self.told.calls = self.detector.calls().0;
        Ok(self.told)
    }

    fn say(&self, text: impl AsRef<str>) {
        if !self.options.quiet {
            println!("{}", text.as_ref());
        }
    }

    async fn start_worker(&self) -> Result<RunningWorker> {
        let address = self.detector.start().await?;
        let detector = Http::new(&format!("http://{address}/detect"))?
            .timeout(Span::secs(5))
            .handler()?;
        let breaker = BreakerSettings {
            recovery_timeout: Span::millis(500),
            ..BreakerSettings::default()
        };
        let retry = RetryPolicy::from_json(
            br#"{"kind":"exponential","base":"50ms","factor":2.0,"cap":"1s","jitter":0.25,"max_attempts":3}"#,
        )?;
        let settings = QueueSettings {
            concurrency: 4,
            prefetch: Some(0),
            retry,
            breaker: Some(breaker),
            ..QueueSettings::default()
        };
        let analysed = self.analysed.clone();
        let analyse = move |_: Run| {
            let analysed = analysed.clone();
            async move {
                analysed.one_more();
                Ok(())
            }
        };
        self.say(format!(
            "the detector listens on {address}; four pictures are looked at at a time"
        ));
        let worker = self.backstop.worker().queue(DETECTION_QUEUE, settings);
        let detect = Detect {
            backstop: self.backstop.clone(),
            detector,
        };
        Ok(worker
            .handle_queue(DETECTION_QUEUE, detect)
            .handle_raw(ANALYSIS_QUEUE, analyse)
            .start()?)
    }

    /// Pictures come in and are analysed; the failures of a service that is mostly well cost a
    /// retry each.
    async fn a_good_day(&mut self) -> Result<()> {
        self.say("\n1. a good day: the detector fails every seventh call");
        self.push(self.options.pictures, "jpg").await?;
        self.until("all pictures are analysed", async |story| {
            Ok(story.analysed.count() == story.options.pictures)
        })
        .await?;
        self.say(format!(
            "   {} pictures analysed with {} calls",
            self.analysed.count(),
            self.detector.calls().0
        ));
        Ok(())
    }

    /// The detector goes down. The breaker leaves it alone, and finds out by itself when it is
    /// well.
    async fn an_outage(&mut self) -> Result<()> {
        self.say("\n2. the detector goes down while pictures come in");
        self.detector.set_down(true);
        let before = self.analysed.count();
        self.push(self.options.pictures, "jpg").await?;
        self.until("the breaker is open", async |story| {
            Ok(story.phase().await? == Some(BreakerPhase::Open))
        })
        .await?;
        self.say("   five failures in a row: the breaker is open, nothing more is claimed");
        tokio::time::sleep(self.options.outage).await;
        let waiting = self.live().await?;
        let (_, calls) = self.detector.calls();
        self.told.calls_during_outage = calls;
        self.say(format!(
            "   after {:?}: {waiting} pictures wait, the detector was called {calls} times",
            self.options.outage
        ));
        self.detector.set_down(false);
        self.until("the breaker is closed", async |story| {
            Ok(story.phase().await? == Some(BreakerPhase::Closed))
        })
        .await?;
        self.say("   it is up again: two probes succeeded, the breaker is closed");
        self.until("the backlog is gone", async |story| {
            Ok(story.live().await? == 0)
        })
        .await?;
        let dead = self.dead().await?;
        self.told.died_in_outage = dead;
        self.say(format!(
            "   {} more pictures analysed, {dead} dead",
            self.analysed.count() - before
        ));
        Ok(())
    }

    /// A camera sends pictures that the detector refuses for good: no retry can help them.
    async fn dead_letters(&mut self) -> Result<()> {
        self.say("\n3. a new camera sends raw pictures, and the detector answers 422");
        self.push(self.options.raw_pictures, "raw").await?;
        self.until("all of them are dead", async |story| {
            Ok(story.live().await? == 0 && story.dead().await? >= story.options.raw_pictures)
        })
        .await?;
        for group in self
            .backstop
            .dead()
            .groups(Some(QueueName::new(DETECTION_QUEUE)?), 10)
            .await?
        {
            self.say(format!(
                "   {} × {} ({})",
                group.count, group.sample.error, group.fingerprint
            ));
        }
        self.told.dead = self.dead().await?;
        Ok(())
    }

    /// The detector learns to read them; five go first, and then the rest.
    async fn redrive(&mut self) -> Result<()> {
        self.say("\n4. the detector is mended; the dead letters go back, five of them first");
        self.detector.learn_raw();
        let dead = self.backstop.dead().by("the example");
        let plan = RedrivePlan {
            canary: 5,
            max_failures: 1,
            then_rate: RedriveRate::per_second(NonZeroU32::new(100).context("a rate")?),
            selection: DeadSelection::All,
        };
        let id = dead.redrive(plan).await?;
        let mut phase = None;
        let quiet = self.options.quiet;
        let report = dead
            .run_redrive(&id, |report| {
                if !quiet && phase.replace(report.phase) != Some(report.phase) {
                    println!(
                        "   {}: {} requeued, {} done, {} died again",
                        report.phase, report.requeued, report.done, report.died_again
                    );
                }
                ControlFlow::Continue(())
            })
            .await?;
        self.told.redriven = report.requeued;
        let all = self.options.pictures * 2 + self.options.raw_pictures;
        self.until("everything is analysed", async |story| {
            Ok(story.analysed.count() == all)
        })
        .await?;
        self.told.analysed = self.analysed.count();
        self.told.dead_at_the_end = self.dead().await?;
        self.say(format!(
            "   all {all} pictures are analysed; {} dead letters are left",
            self.told.dead_at_the_end
        ));
        Ok(())
    }

    async fn push(&self, count: u64, kind_of_file: &str) -> Result<()> {
        for n in 0..count {
            let payload =
                format!(r#"{{"camera_id":"door","file_path":"/pictures/{n:04}.{kind_of_file}"}}"#);
            self.backstop
                .draft(DETECTION_QUEUE)
                .kind("Detect")
                .payload(payload.into_bytes())
                .push()
                .await?;
        }
        Ok(())
    }

    async fn phase(&self) -> Result<Option<BreakerPhase>> {
        let name = BreakerName::Breaker(QueueName::new(DETECTION_QUEUE)?);
        let guards = self.backstop.breakers().list().await?;
        Ok(guards
            .into_iter()
            .find(|guard| guard.name == name)
            .map(|guard| guard.status.state))
    }

    async fn live(&self) -> Result<u64> {
        let queues = self.backstop.store().queues(self.backstop.now()).await?;
        Ok(queues.iter().map(|queue| queue.counts.live()).sum())
    }

    async fn dead(&self) -> Result<u64> {
        let queues = self.backstop.store().queues(self.backstop.now()).await?;
        Ok(queues
            .iter()
            .map(|queue| queue.counts.of(JobState::Dead))
            .sum())
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is_so(self).await? {
            if began.elapsed() > PATIENCE {
                bail!("it did not come about that {what}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
