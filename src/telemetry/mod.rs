//! Spans on their way to a collector, as OTLP over HTTP.
//!
//! Must not know what the spans are of. Nobody ever waits for what happens here: a collector that
//! is slow or away costs the organism nothing but the spans that find no room meanwhile, and those
//! are counted.

mod collector;
mod export_task;
mod otlp;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::TelemetryConfig;
use crate::limits;
use crate::trace::SpanTracer;
use collector::SpanCollector;
use export_task::ExportTask;

/// Exports what its tracer is handed, until it is stopped.
#[derive(Debug)]
pub struct SpanExporter {
    tracer: SpanTracer,
    stop: watch::Sender<bool>,
    sending: JoinHandle<()>,
}

impl SpanExporter {
    /// `organism`: its name, told beside the service's. Connects to nobody before there is a span.
    pub fn start(telemetry: &TelemetryConfig, organism: &str) -> Self {
        let (tracer, spans) = SpanTracer::new(telemetry.sample);
        let (stop, stopped) = watch::channel(false);
        let counts = tracer.counts().map(Arc::clone).unwrap_or_default();
        let resource = otlp::OtlpResource::new(&telemetry.service, organism);
        let collector = SpanCollector::new(telemetry);
        let sending = ExportTask::new(collector, resource, spans, counts);
        Self { tracer, stop, sending: tokio::spawn(sending.run(stopped)) }
    }

    /// Where spans are handed in.
    pub fn tracer(&self) -> &SpanTracer {
        &self.tracer
    }

    /// Exports what waits, as far as that goes within [`limits::SPANS_FAREWELL`].
    pub async fn stop(self) {
        // It is there until it was told so.
        self.stop.send(true).ok();
        let patience = limits::SPANS_FAREWELL + limits::SPANS_WAIT;
        // It keeps its own time; this is for a machine that stands still.
        if tokio::time::timeout(patience, self.sending).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }
}
