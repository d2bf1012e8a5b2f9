//! The pipeline: pictures wait in `detection_queue` for the detector; what it has seen waits in
//! `analysis_queue`.

use crate::ANALYSIS_QUEUE;
use async_trait::async_trait;
use backstop::core::verdict::RunEnding;
use backstop::{Backstop, Handler, HttpHandler, Run, RunError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sends a picture to the detector, and on to the analysis.
pub(crate) struct Detect {
    pub(crate) backstop: Backstop,
    pub(crate) detector: HttpHandler,
}

#[async_trait]
impl Handler for Detect {
    async fn run(&self, run: Run) -> RunEnding {
        match self.detector.run(run.clone()).await {
            RunEnding::Done => self.hand_on(&run).await,
            other => other,
        }
    }
}

impl Detect {
    /// The next job has an id made from this one's: a run that is repeated hands the picture on
    /// once.
    async fn hand_on(&self, run: &Run) -> RunEnding {
        let next = self
            .backstop
            .draft(ANALYSIS_QUEUE)
            .id(&format!("analysis of {}", run.id()))
            .kind("Analyse");
        match next.payload(run.payload().to_vec()).push().await {
            Ok(_) => RunEnding::Done,
            Err(error) => RunError::retry(error).into_ending(),
        }
    }
}

/// Counts what reaches the end of the pipeline.
#[derive(Clone, Default)]
pub(crate) struct Analysed(Arc<AtomicU64>);

impl Analysed {
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
