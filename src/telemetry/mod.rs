//! Exports spans to a collector, as OTLP over HTTP.
//!
//! This module must not know the meaning of spans. No other module waits for this module. If the
//! collector is slow or unreachable, spans that do not fit into the queue are lost and counted.

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

/// Exports the spans that its tracer receives, until the exporter is stopped.
#[derive(Debug)]
pub struct SpanExporter {
    tracer: SpanTracer,
    stop: watch::Sender<bool>,
    sending: JoinHandle<()>,
}

impl SpanExporter {
    /// Starts the exporter. `organism` is the name of the organism, which is exported in addition
    /// to the service's name. The exporter connects to the collector at the first span.
    pub fn start(telemetry: &TelemetryConfig, organism: &str) -> Self {
        let (tracer, spans) = SpanTracer::new(telemetry.sample);
        let (stop, stopped) = watch::channel(false);
        let counts = tracer.counts().map(Arc::clone).unwrap_or_default();
        let resource = otlp::OtlpResource::new(&telemetry.service, organism);
        let collector = SpanCollector::new(telemetry);
        let sending = ExportTask::new(collector, resource, spans, counts);
        Self { tracer, stop, sending: tokio::spawn(sending.run(stopped)) }
    }

    /// Returns the tracer whose spans are exported.
    pub fn tracer(&self) -> &SpanTracer {
        &self.tracer
    }

    /// Stops the exporter. Spans in the queue are still exported, for at most
    /// [`limits::SPANS_FLUSH_TIMEOUT`].
    pub async fn stop(self) {
        // The send fails only if the task has already ended.
        self.stop.send(true).ok();
        let patience = limits::SPANS_FLUSH_TIMEOUT + limits::SPANS_WAIT;
        // The task ends by itself in time, unless the machine is suspended.
        if tokio::time::timeout(patience, self.sending).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }
}
