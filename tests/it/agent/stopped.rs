//! Turns that end before the answer of their model is complete, because their host stops or their
//! call is cancelled.

use std::future::pending;
use std::sync::Arc;

use organism::agent::ModelAgent;
use organism::bus::native_host::NativeHost;
use organism::bus::{Host, Outcome, Reserved, Sink};
use organism::envelope::{AttemptFailure, Reservation};
use organism::ids::{Attempt, CallId, ListenerName};
use organism::model::{AnswerChunk, CallFuture, ModelProvider, ModelRequest, ModelRoute, OnChunk};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::setup::{delivery, options, question_thread};
use super::story::listener;
use crate::organism::PATIENCE;

/// A model that writes the beginning of its answer, and then nothing more.
#[derive(Debug, Default)]
struct Stalling {
    has_begun: Notify,
}

impl ModelProvider for Stalling {
    fn call<'a>(&'a self, _: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            on_chunk(AnswerChunk::Text("Let me see"));
            self.has_begun.notify_one();
            pending().await
        })
    }

    fn route(&self) -> ModelRoute {
        ModelRoute { provider: "fake".to_owned(), model: "m-1".to_owned() }
    }
}

type AttemptResult = Result<Outcome, AttemptFailure>;

/// A sink that permits each reservation, and passes the results of attempts to the test.
struct ResultSink(mpsc::UnboundedSender<AttemptResult>);

impl Sink for ResultSink {
    fn ended(&self, _: &ListenerName, _: CallId, _: Attempt, result: AttemptResult) {
        self.0.send(result).unwrap();
    }

    fn heartbeat(&self, _: &ListenerName, _: CallId, _: Attempt) {}

    fn reserve(&self, _: CallId, _: Attempt, _: Reservation) -> Reserved {
        let (permit, reserved) = oneshot::channel();
        permit.send(Ok(())).unwrap();
        reserved
    }

    fn joined(&self, _: &ListenerName, _: &str) {}

    fn left(&self, _: &ListenerName, _: &str) {}
}

/// The result of a turn whose model stalls, after `end` has ended the turn.
async fn result_after(end: impl AsyncFnOnce(&NativeHost, (CallId, Attempt))) -> AttemptResult {
    let (story, call) = question_thread();
    let model = Arc::new(Stalling::default());
    let agent = ModelAgent::new(options(), model.clone(), Arc::new(story.clone()));
    let (results, mut ended) = mpsc::unbounded_channel();
    let sink = Arc::new(ResultSink(results));
    let host = NativeHost::new(listener("researcher"), agent, sink, Handle::current());

    let delivery = delivery(&story, call);
    let attempt = (delivery.call, delivery.attempt);
    host.deliver(delivery);
    timeout(PATIENCE, model.has_begun.notified()).await.unwrap();
    assert!(!host.is_idle());
    end(&host, attempt).await;
    timeout(PATIENCE, ended.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_turn_whose_host_stops_is_charged_and_repeated() {
    let stopped = result_after(async |host: &NativeHost, _| {
        host.stop().await;
        assert!(host.is_idle());
    });
    let failure = stopped.await.unwrap_err();
    assert!(failure.is_retried(), "{failure}");
    assert!(failure.spent().unwrap().tokens > 0, "{failure:?}");
}

#[tokio::test]
async fn a_turn_whose_call_is_cancelled_is_charged_and_not_repeated() {
    let cancelled = result_after(async |host: &NativeHost, (call, attempt)| {
        host.cancel(call, attempt);
    });
    let failure = cancelled.await.unwrap_err();
    assert!(!failure.is_retried(), "{failure}");
    assert!(failure.spent().unwrap().tokens > 0, "{failure:?}");
}
