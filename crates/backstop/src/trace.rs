//! How jobs take part in traces.
//!
//! The library makes its spans with [`tracing`]; which ids they have is known only to whatever
//! exports them, and that says so here, once in a process ([`set_exporter`]). Without it spans are
//! made for logs alone, and a job still carries where it was pushed from if its producer says so.
//!
//! | span | target | around | in the trace |
//! |---|---|---|---|
//! | `push` | `backstop::push` | one push of one or many jobs | a child of the span it is called in |
//! | `run` | `backstop::run` | one run of one job | a trace of its own, linked to where the job was pushed: that may be days ago |
//!
//! A run's span has the fields that logs are searched by: `job`, `queue`, `kind`, `attempt`,
//! `worker`, `trace`.

use backstop_core::{LeasedRun, NewJob, TraceContext, WorkerName};
use std::sync::OnceLock;
use tracing::field::Empty;
use tracing::{Span, info_span};

/// Whatever exports the spans of this process.
pub trait TraceExporter: Send + Sync + 'static {
    /// Where a span stands; `None` if it is not exported.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Links a span to another place.
    fn link(&self, span: &Span, to: TraceContext);

    /// Makes a span that has not begun the child of another place.
    fn adopt(&self, span: &Span, parent: TraceContext);
}

static EXPORTER: OnceLock<Box<dyn TraceExporter>> = OnceLock::new();

/// Says who exports the spans of this process; whether nobody did before, who then stays.
pub fn set_exporter(exporter: impl TraceExporter) -> bool {
    EXPORTER.set(Box::new(exporter)).is_ok()
}

/// Where a span stands; `None` if spans are not exported.
pub fn context(span: &Span) -> Option<TraceContext> {
    EXPORTER.get()?.context(span)
}

/// Makes a span that has not begun the child of another place, such as a caller's; nothing if spans
/// are not exported.
pub fn adopt(span: &Span, parent: TraceContext) {
    if let Some(exporter) = EXPORTER.get() {
        exporter.adopt(span, parent);
    }
}

/// The span around a push. Jobs that do not say where they were asked for carry its place from then
/// on, and so do those of the same trace: it is nearer.
pub(crate) fn push_span(jobs: &mut [NewJob]) -> Span {
    let span = info_span!(
        target: "backstop::push",
        "push",
        otel.kind = "producer",
        otel.name = Empty,
        queue = Empty,
        kind = Empty,
        job = Empty,
        jobs = jobs.len(),
    );
    if span.is_disabled() {
        return span;
    }
    if let [first, rest @ ..] = &*jobs {
        span.record("otel.name", format!("push {}", first.queue));
        span.record("queue", tracing::field::display(&first.queue));
        if rest.is_empty() {
            span.record("kind", tracing::field::display(&first.kind));
            span.record("job", tracing::field::display(first.id));
        }
    }
    // Outside any span of this process the jobs themselves may say where they are asked for.
    if let Some(given) = jobs
        .first()
        .and_then(|job| job.trace)
        .filter(|_| Span::current().is_disabled())
    {
        adopt(&span, given);
    }
    if let Some(here) = context(&span) {
        for job in jobs {
            let is_nearer = job
                .trace
                .is_none_or(|given| given.trace_id() == here.trace_id());
            job.trace = if is_nearer { Some(here) } else { job.trace };
        }
    }
    span
}

/// The span around a run, and where it stands: its own place, or that of the push if spans are not
/// exported.
pub(crate) fn run_span(leased: &LeasedRun, worker: &WorkerName) -> (Span, Option<TraceContext>) {
    let pushed = leased.options.trace();
    let span = info_span!(
        target: "backstop::run",
        parent: None,
        "run",
        otel.kind = "consumer",
        otel.name = %format_args!("run {}", leased.lease.queue),
        job = %leased.lease.job,
        queue = %leased.lease.queue,
        kind = %leased.kind,
        attempt = leased.attempt(),
        worker = %worker,
        trace = Empty,
        outcome = Empty,
        otel.status_code = Empty,
    );
    if let (Some(exporter), Some(pushed)) = (EXPORTER.get().filter(|_| !span.is_disabled()), pushed)
    {
        exporter.link(&span, pushed);
    }
    let here = context(&span).or(pushed);
    if let Some(here) = here {
        span.record("trace", here.trace_text());
    }
    (span, here)
}

/// Notes on its span how a run ended.
pub(crate) fn record_end(span: &Span, outcome: &'static str, failed: bool) {
    span.record("outcome", outcome);
    if failed {
        span.record("otel.status_code", "ERROR");
        tracing::info!(parent: span, "the run failed");
    } else {
        tracing::debug!(parent: span, "the run ended");
    }
}
