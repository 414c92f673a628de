//! Bounded queue of finished spans. Adding a span never blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Span, SpanId, TraceParent};
use crate::limits;
use crate::metrics::Counter;

/// Accepts spans from any OS thread. Cheap to clone. The default tracer is off and drops every
/// span.
#[derive(Debug, Clone, Default)]
pub struct SpanTracer(Option<Arc<TracerShared>>);

#[derive(Debug)]
struct TracerShared {
    queue: mpsc::Sender<Span>,
    counts: Arc<SpanCounts>,
    /// Sampling threshold. A trace that begins in this program is exported if the random number at
    /// the end of its id is at least this threshold.
    from: u64,
    serial: AtomicU64,
}

/// Counters of exported and lost spans.
#[derive(Debug, Default)]
pub struct SpanCounts {
    pub exported: Counter,
    /// Spans that were dropped because the queue was full, or because they were not exported before
    /// the program ended.
    pub dropped: Counter,
    /// Spans that the collector rejected.
    pub rejected: Counter,
}

/// Receiving end of the queue of spans.
pub type SpanReceiver = mpsc::Receiver<Span>;

/// Number of random bits at the end of every trace id, including ids from other programs. The other
/// bits may come from a clock and a counter.
const CHANCE_BITS: u32 = 32;

impl SpanTracer {
    /// Makes a tracer and the receiver of its spans. `sample` is the exported share of the traces
    /// that begin in this program, from 0 to 1.
    pub fn new(sample: f64) -> (Self, SpanReceiver) {
        let (queue, spans) = mpsc::channel(limits::SPANS_QUEUED_MAX);
        let all = (1u64 << CHANCE_BITS) as f64;
        // A cast of a float saturates.
        let from = ((1.0 - sample) * all) as u64;
        let counts = Arc::default();
        let serial = AtomicU64::new(0);
        (Self(Some(Arc::new(TracerShared { queue, counts, from, serial }))), spans)
    }

    pub fn counts(&self) -> Option<&Arc<SpanCounts>> {
        self.0.as_ref().map(|shared| &shared.counts)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether spans of this trace are exported.
    pub fn keeps(&self, trace: &TraceParent) -> bool {
        self.is_on() && trace.is_sampled()
    }

    /// Begins a trace whose first span is `first`. Returns `None` if the tracer is off.
    pub fn begin(&self, id: Uuid, first: SpanId) -> Option<TraceParent> {
        let shared = self.0.as_ref()?;
        let chance = id.as_u64_pair().1 & ((1 << CHANCE_BITS) - 1);
        let flags = if chance >= shared.from { super::SAMPLED } else { 0 };
        Some(TraceParent { trace: id.as_u128().max(1), span: first, flags })
    }

    /// Makes a new id for a span whose parent is `within`. Repeated calls return different ids.
    pub fn another(&self, within: SpanId) -> SpanId {
        let serial =
            self.0.as_ref().map_or(0, |shared| shared.serial.fetch_add(1, Ordering::Relaxed));
        within.within(serial.saturating_add(1))
    }

    /// Queues a span, or drops it if the queue is full.
    pub fn enqueue(&self, span: Span) {
        let Some(shared) = &self.0 else { return };
        if shared.queue.try_send(span).is_err() {
            shared.counts.dropped.increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::{CallId, MessageId};
    use crate::trace::SpanKind;

    fn begun(tracer: &SpanTracer, id: Uuid) -> Option<TraceParent> {
        tracer.begin(id, SpanId::of_call(CallId(MessageId(id))))
    }

    #[test]
    fn the_configured_share_of_traces_is_kept() {
        for (sample, least, most) in [(0.0, 0, 0), (0.25, 200, 300), (1.0, 1000, 1000)] {
            let (tracer, _spans) = SpanTracer::new(sample);
            let ids = (0..1000).map(|_| Uuid::now_v7());
            let kept = ids.filter(|id| begun(&tracer, *id).unwrap().is_sampled()).count();
            assert!((least..=most).contains(&kept), "{sample}: {kept}");
        }

        assert_eq!(begun(&SpanTracer::default(), Uuid::now_v7()), None);
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped_and_counted_and_nobody_waits() {
        let (tracer, mut spans) = SpanTracer::new(1.0);
        let at = begun(&tracer, Uuid::now_v7()).unwrap();
        for _ in 0..limits::SPANS_QUEUED_MAX + 7 {
            tracer.enqueue(Span::new(at, SpanKind::Internal, String::new(), Time(0)));
        }

        let counts = tracer.counts().unwrap();
        assert_eq!(counts.dropped.get(), 7);
        let waiting = std::iter::from_fn(|| spans.try_recv().ok()).count();
        assert_eq!(waiting, limits::SPANS_QUEUED_MAX);
    }

    #[test]
    fn spans_within_one_differ_from_it_and_from_each_other() {
        let (tracer, _spans) = SpanTracer::new(1.0);
        let one = begun(&tracer, Uuid::now_v7()).unwrap().span();
        let all = [one, tracer.another(one), tracer.another(one), one.within(0)];
        assert_eq!(std::collections::HashSet::from(all).len(), all.len());
    }
}
