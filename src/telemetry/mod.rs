//! Exports spans to a collector, as OTLP over HTTP.
//!
//! Must not know the meaning of spans. No other module waits for this one: a slow or missing
//! collector costs only the spans that do not fit into the queue, and these are counted.

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

/// Exports the spans of its tracer until it is stopped.
#[derive(Debug)]
pub struct SpanExporter {
    tracer: SpanTracer,
    stop: watch::Sender<bool>,
    sending: JoinHandle<()>,
}

impl SpanExporter {
    /// Starts the exporter. `organism` is the organism's name, exported beside the service's.
    /// Connects at the first span.
    pub fn start(telemetry: &TelemetryConfig, organism: &str) -> Self {
        let (tracer, spans) = SpanTracer::new(telemetry.sample);
        let (stop, stopped) = watch::channel(false);
        let counts = tracer.counts().map(Arc::clone).unwrap_or_default();
        let resource = otlp::OtlpResource::new(&telemetry.service, organism);
        let collector = SpanCollector::new(telemetry);
        let sending = ExportTask::new(collector, resource, spans, counts);
        Self { tracer, stop, sending: tokio::spawn(sending.run(stopped)) }
    }

    /// The tracer that receives spans.
    pub fn tracer(&self) -> &SpanTracer {
        &self.tracer
    }

    /// Stops the exporter, after at most [`limits::SPANS_FAREWELL`] for the spans in the queue.
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
