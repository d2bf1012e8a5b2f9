//! Spans over OTLP, by HTTP: those of pushes, of runs and of requests.
//!
//! Configured by `[telemetry]`, and by the standard variables, which win:
//! `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `…_HEADERS`,
//! `…_TIMEOUT`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
//! `OTEL_TRACES_EXPORTER=none`, `OTEL_SDK_DISABLED=true`. Without an address nothing is exported.

use super::AnyLayer;
use crate::error::CliError;
use backstop::TraceContext;
use backstop::config::TelemetryConfig;
use backstop::trace::TraceExporter;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use std::time::Duration;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;

/// How long the last spans of a process may take on their way.
const LAST_SPANS: Duration = Duration::from_secs(5);
/// What a process is called whose configuration does not say.
const SERVICE_USUAL: &str = "backstop";
/// What the targets of spans that are exported begin with.
const TARGETS: &str = "backstop::";

/// Spans on their way to a collector.
pub(super) struct TracerGuard(SdkTracerProvider);

/// Starts exporting, if there is somewhere to; `read` looks up a variable.
pub(super) fn start(
    telemetry: &TelemetryConfig,
    read: impl Fn(&str) -> Option<String>,
) -> Result<Option<TracerGuard>, CliError> {
    let read_variable = |name: &str| read(name).filter(|text| !text.is_empty());
    let is_off = read_variable("OTEL_SDK_DISABLED")
        .is_some_and(|text| text.eq_ignore_ascii_case("true"))
        || read_variable("OTEL_TRACES_EXPORTER").is_some_and(|text| text == "none");
    let of_environment = read_variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or_else(|| read_variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if is_off || (of_environment.is_none() && telemetry.otlp.is_none()) {
        return Ok(None);
    }
    // Fails if there is one, which is then as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_headers(telemetry.headers.clone().into_iter().collect());
    if let Some(address) = telemetry.otlp.as_ref().filter(|_| of_environment.is_none()) {
        exporter = exporter.with_endpoint(address);
    }
    let failed = |error| {
        CliError::misuse(format!("spans cannot be exported: {error}")).advise(
            "`otlp = \"http://HOST:4318\"` under [telemetry], or OTEL_EXPORTER_OTLP_ENDPOINT",
        )
    };
    let mut provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter.build().map_err(failed)?)
        .with_resource(resource(telemetry, read_variable("OTEL_SERVICE_NAME")));
    if let Some(share) = telemetry
        .sample
        .filter(|_| read_variable("OTEL_TRACES_SAMPLER").is_none())
    {
        provider = provider.with_sampler(Sampler::ParentBased(Box::new(
            Sampler::TraceIdRatioBased(share),
        )));
    }
    backstop::trace::set_exporter(OpenTelemetryBridge);
    Ok(Some(TracerGuard(provider.build())))
}

fn resource(telemetry: &TelemetryConfig, of_environment: Option<String>) -> Resource {
    let service = of_environment.or_else(|| telemetry.service.clone());
    Resource::builder()
        .with_service_name(service.unwrap_or_else(|| SERVICE_USUAL.to_owned()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

impl TracerGuard {
    pub(super) fn layer(&self) -> AnyLayer {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(SERVICE_USUAL))
            .with_location(false)
            .with_threads(false)
            .with_filter(filter_fn(|metadata| {
                metadata.is_span() && metadata.target().starts_with(TARGETS)
            }))
            .boxed()
    }
}

impl Drop for TracerGuard {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_SPANS) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Knows the ids of spans.
struct OpenTelemetryBridge;

impl TraceExporter for OpenTelemetryBridge {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let place = context.span().span_context().clone();
        TraceContext::new(
            place.trace_id().to_bytes(),
            place.span_id().to_bytes(),
            place.trace_flags().to_u8(),
        )
    }

    fn link(&self, span: &Span, to: TraceContext) {
        span.add_link(remote(to));
    }

    fn adopt(&self, span: &Span, parent: TraceContext) {
        // Fails if the span is not exported: then it has no parent, either.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote(parent)));
    }
}

fn remote(place: TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(place.trace_id()),
        SpanId::from_bytes(place.span_id()),
        TraceFlags::new(place.flags()),
        true,
        TraceState::default(),
    )
}
