//! The task that sends spans from the queue to the collector, in batches and with a bounded number
//! of retries.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::collector::{ExportVerdict, SpanCollector};
use super::otlp::{self, OtlpResource};
use crate::limits;
use crate::plural;
use crate::trace::{Span, SpanCounts, SpanReceiver};

pub(super) struct ExportTask {
    collector: SpanCollector,
    resource: OtlpResource,
    queue: SpanReceiver,
    counts: Arc<SpanCounts>,
    /// Spans that were taken from the queue and not exported yet, oldest first.
    batch: Vec<Span>,
    /// Maximum number of spans in a request. Halved when the collector refuses a request because of
    /// its size. Doubled again, up to [`limits::SPANS_SENT_MAX`], when it has accepted
    /// [`limits::SPANS_GROWTH_AFTER`] requests with this number of spans.
    at_once: usize,
    /// Number of requests with `at_once` spans that the collector has accepted since `at_once` last
    /// changed.
    full_requests: usize,
    backoff: Duration,
    /// Whether the log has the begin of an outage, in which spans are kept for a retry, and not yet
    /// its end. A rejection does not end an outage.
    warned: bool,
    /// Whether the log already states, since the last outage began, that the collector rejected
    /// spans.
    is_rejection_logged: bool,
}

impl ExportTask {
    pub fn new(
        collector: SpanCollector,
        resource: OtlpResource,
        queue: SpanReceiver,
        counts: Arc<SpanCounts>,
    ) -> Self {
        Self {
            collector,
            resource,
            queue,
            counts,
            batch: Vec::new(),
            at_once: limits::SPANS_SENT_MAX,
            full_requests: 0,
            backoff: limits::COLLECTOR_BACKOFF_FIRST,
            warned: false,
            is_rejection_logged: false,
        }
    }

    /// Exports spans until a stop is requested through `stop`. After the stop, exports the
    /// remaining spans for at most [`limits::SPANS_FLUSH_TIMEOUT`].
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let export = self.export(stop.clone());
        let is_exported = {
            let mut export = pin!(export);
            tokio::select! {
                () = &mut export => true,
                () = stopped(&mut stop) => timeout(limits::SPANS_FLUSH_TIMEOUT, export).await.is_ok(),
            }
        };

        if !is_exported {
            self.queue.close();
            let mut left = self.batch.len();
            while self.queue.try_recv().is_ok() {
                left += 1;
            }
            self.counts.dropped.add(count(left));
            let address = self.collector.address();
            tracing::warn!(
                "the last {} {} not exported to {address} in time",
                plural::count(left, "span"),
                plural::form(left, "was", "were")
            );
        }
    }

    /// Exports spans until a stop. After the stop, exports the spans that remain in the queue. A
    /// stop may interrupt a wait between two requests. It never interrupts a request, because a
    /// repeated request could store its spans twice.
    async fn export(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let is_open = tokio::select! {
                is_open = self.gather() => is_open,
                () = stopped(&mut stop) => false,
            };
            if !is_open {
                break;
            }
            let Some(wait) = self.send().await else { continue };
            tokio::select! {
                () = sleep(wait) => {}
                () = stopped(&mut stop) => break,
            }
        }

        self.queue.close();
        loop {
            while self.batch.len() < self.at_once {
                let Ok(span) = self.queue.try_recv() else { break };
                self.batch.push(span);
            }
            if self.batch.is_empty() {
                return;
            }
            if let Some(wait) = self.send().await {
                sleep(wait).await;
            }
        }
    }

    /// Moves spans from the queue to the batch. Waits for the first span, and then for a short time
    /// for further spans. Returns false if the queue is closed and empty.
    async fn gather(&mut self) -> bool {
        let room = |batch: &Vec<Span>, at_once: usize| at_once.saturating_sub(batch.len());
        if self.batch.is_empty() && self.queue.recv_many(&mut self.batch, self.at_once).await == 0 {
            return false;
        }

        let until = Instant::now() + limits::SPANS_WAIT;

        while let more @ 1.. = room(&self.batch, self.at_once) {
            let came = timeout_at(until, self.queue.recv_many(&mut self.batch, more)).await;
            if !matches!(came, Ok(1..)) {
                break;
            }
        }

        true
    }

    /// Sends a request with the oldest spans of the batch. Returns the delay before a retry, or
    /// `None` if no retry is needed.
    async fn send(&mut self) -> Option<Duration> {
        let sent = self.batch.len().min(self.at_once);
        let body = otlp::request(&self.resource, self.batch.get(..sent).unwrap_or_default());
        match self.collector.post(body).await {
            ExportVerdict::Taken { rejected, why } => {
                let rejected = rejected.min(count(sent));
                self.counts.exported.add(count(sent).saturating_sub(rejected));
                if rejected < count(sent) {
                    self.note_recovery();
                }
                if rejected > 0 {
                    self.count_rejected(rejected, &why);
                }
                if sent == self.at_once {
                    self.full_requests += 1;
                }
                if self.full_requests == limits::SPANS_GROWTH_AFTER {
                    self.set_at_once((2 * self.at_once).min(limits::SPANS_SENT_MAX));
                }
                self.done(sent);
            }
            ExportVerdict::TooLarge if sent > 1 => self.set_at_once(sent / 2),
            ExportVerdict::TooLarge => {
                self.count_rejected(1, "it answers HTTP 413");
                self.done(sent);
            }
            ExportVerdict::Never { why } => {
                self.count_rejected(count(sent), &why);
                self.done(sent);
            }
            ExportVerdict::Later { why, after } => return Some(self.delay(&why, after)),
        }

        None
    }

    fn set_at_once(&mut self, spans: usize) {
        self.at_once = spans;
        self.full_requests = 0;
    }

    /// Removes the `sent` oldest spans from the batch.
    fn done(&mut self, sent: usize) {
        self.batch.drain(..sent.min(self.batch.len()));
        self.backoff = limits::COLLECTOR_BACKOFF_FIRST;
    }

    /// Logs the end of an outage, if the log has its begin.
    fn note_recovery(&mut self) {
        if std::mem::take(&mut self.warned) {
            let address = self.collector.address();
            let dropped = self.counts.dropped.get();
            tracing::warn!(
                "the collector at {address} accepts spans again; {} {} dropped",
                plural::count(dropped, "span"),
                plural::form(dropped, "was", "were")
            );
        }
    }

    fn count_rejected(&mut self, spans: u64, why: &str) {
        self.counts.rejected.add(spans);
        if !std::mem::replace(&mut self.is_rejection_logged, true) {
            let address = self.collector.address();
            tracing::warn!(
                "the collector at {address} rejected {}: {why}; later rejections are only \
                 counted, in organism_spans_total{{outcome=\"rejected\"}}",
                plural::count(spans, "span")
            );
        }
    }

    fn delay(&mut self, why: &str, after: Option<Duration>) -> Duration {
        if !std::mem::replace(&mut self.warned, true) {
            // The log states again what the collector does with the spans after the outage.
            self.is_rejection_logged = false;
            let address = self.collector.address();
            tracing::warn!(
                "the collector at {address} does not accept spans: {why}; up to {} spans are \
                 queued and further ones are dropped; messages are not affected",
                limits::SPANS_QUEUED_MAX
            );
        }

        let least = limits::COLLECTOR_BACKOFF_FIRST;
        let most = limits::COLLECTOR_BACKOFF_MAX;
        let wait = after.unwrap_or(self.backoff).clamp(least, most);
        self.backoff = (self.backoff * 2).min(most);
        wait
    }
}

/// Waits until a stop is requested, or until the sender of the channel is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}

fn count(spans: usize) -> u64 {
    u64::try_from(spans).unwrap_or(u64::MAX)
}
